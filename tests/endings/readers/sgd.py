"""The Schema-Guided Dialogue data set: a user and a system, each turn with its dialogue acts.

Read: ``dialogues_*.json`` of ``train``, ``dev`` and ``test`` below the folder.

Labels: from the acts. The dialogue should end after its last turn, the system's GOODBYE; once the
user has closed it with GOODBYE or THANK_YOU, an end does as well. If the system asked for more
(REQ_MORE) after earlier thanks of the user, a question was open then.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from endings.dialogue import Case, Dialogue, Label, Origin, Turn

USER, SYSTEM = "User", "System"
CLOSING = {"GOODBYE", "THANK_YOU"}
ANSWERING = CLOSING | {"NEGATE"}


class Utterance(NamedTuple):
    """One turn with its acts."""

    dialogue: str  # the id of its dialogue
    speaker: str
    text: str
    acts: frozenset[str]

    @property
    def is_closing(self) -> bool | None:
        """Whether its acts close the dialogue. None if they also do something else."""
        if not self.acts & CLOSING:
            return False
        return True if self.acts <= ANSWERING else None


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all dialogues below a folder."""
    for utterances in _dialogues(folder):
        turns = tuple(Turn(one.speaker, one.text) for one in utterances)
        yield Dialogue(utterances[0].dialogue, "sgd", turns, label_of(utterances))


def utterances_of(folder: Path) -> Iterator[Utterance]:
    """Read all turns below a folder."""
    for dialogue in _dialogues(folder):
        yield from dialogue


def _dialogues(folder: Path) -> Iterator[list[Utterance]]:
    for path in sorted(folder.rglob("dialogues_*.json")):
        part = path.parent.name
        for dialogue in json.loads(path.read_text(encoding="utf-8")):
            name = f"sgd/{part}/{dialogue['dialogue_id']}"
            yield [_utterance(name, turn) for turn in dialogue["turns"]]


def _utterance(dialogue: str, turn: dict[str, Any]) -> Utterance:
    acts = {action["act"] for frame in turn["frames"] for action in frame["actions"]}
    speaker = USER if turn["speaker"] == "USER" else SYSTEM
    return Utterance(dialogue, speaker, turn["utterance"], frozenset(acts))


def label_of(utterances: Sequence[Utterance]) -> Label:
    """Return the label of a dialogue, by its acts."""
    length = len(utterances)
    by_user = [
        place
        for place, one in enumerate(utterances, 1)
        if one.speaker == USER and one.acts & CLOSING
    ]
    if not by_user or by_user[-1] < length - 1:
        return Label(Case.NO_END, length + 1, Origin.FIELD)
    asked = any(
        "REQ_MORE" in one.acts and utterances[place - 1].acts & CLOSING
        for place, one in enumerate(utterances)
        if place
    )
    case = Case.CLOSING_QUESTION if asked else Case.FAREWELL
    return Label(case, length, Origin.FIELD, by_user[-1])
