"""Talks about tasks in MultiWOZ, in English and Chinese, and in CrossWOZ, with their dialogue acts.

Read: ``*.json.zip`` in ``data/multiwoz``, ``data/multiwoz_zh`` and ``data/crosswoz`` below the
folder, a copy of ConvLab-2.

Labels: as for the Schema-Guided Dialogue data set, whose names of acts are used.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from endings.dialogue import Dialogue, Turn
from endings.readers.sgd import SYSTEM, USER, Utterance, label_of

SOURCES = {"multiwoz": "MultiWOZ", "multiwoz_zh": "MultiWOZ, Chinese", "crosswoz": "CrossWOZ"}
"""The folders below ``data``, each with the name of its messages in tables."""

REWRITTEN = "human_val"
"""The part with translations that people have rewritten. Another part has the machine's."""

ACTS = {
    **dict.fromkeys(("general-bye", "常规-再见"), "GOODBYE"),
    **dict.fromkeys(("general-thank", "常规-谢谢"), "THANK_YOU"),
    **dict.fromkeys(("general-welcome", "常规-欢迎"), "THANK_YOU"),
    **dict.fromkeys(("general-reqmore", "常规-更多请求"), "REQ_MORE"),
    **dict.fromkeys(("general-greet", "常规-问好"), "GREET"),
}
"""The names of acts in this module, by the names in the sources, in lower case."""

EMPTY = {"REQ_MORE", "GREET"}
"""Acts that the sources also use for messages without a label, such as "Have a nice day!"."""


class Message(Utterance):
    """One turn with its acts. Turns without acts are frequent, and questions often lack theirs."""

    @property
    def is_closing(self) -> bool | None:
        """Whether its acts close the dialogue. None if the acts can't decide."""
        if self.acts <= EMPTY or "?" in self.text or "？" in self.text:  # noqa: RUF001
            return None
        return super().is_closing


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all dialogues below a folder."""
    for _, messages in _dialogues(folder):
        turns = tuple(Turn(one.speaker, one.text) for one in messages)
        source = messages[0].dialogue.split("/")[0]
        yield Dialogue(messages[0].dialogue, source, turns, label_of(messages))


def messages_of(folder: Path) -> Iterator[tuple[str, Message]]:
    """Yield each turn below a folder with the name of its group in tables."""
    for group, messages in _dialogues(folder):
        yield from ((group, one) for one in messages)


def _dialogues(folder: Path) -> Iterator[tuple[str, list[Message]]]:
    for source, title in SOURCES.items():
        for path in sorted(folder.glob(f"data/{source}/*.json.zip")):
            part = path.name.removesuffix(".json.zip")
            with ZipFile(path) as archive:
                found = json.loads(archive.read(f"{part}.json"))
            for name, dialogue in found.items():
                turns = dialogue.get("log") or dialogue["messages"]
                speakers = ((USER, SYSTEM)[place % 2] for place in range(len(turns)))
                group = f"{title}, rewritten" if part == REWRITTEN else title
                said = zip(speakers, turns, strict=True)
                yield group, [_message(f"{source}/{name}", *one) for one in said]


def _message(dialogue: str, speaker: str, turn: dict[str, Any]) -> Message:
    if "content" in turn:
        names = {"-".join(act[:2]) for act in turn["dialog_act"]}
        return Message(dialogue, speaker, turn["content"], _acts_of(names))
    return Message(dialogue, speaker, turn["text"], _acts_of(set(turn["dialog_act"])))


def _acts_of(names: set[str]) -> frozenset[str]:
    return frozenset(ACTS.get(name.lower(), name) for name in names)
