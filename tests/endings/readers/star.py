"""STAR: a user and a person in the place of a system, who picks most replies from suggestions.

Read: ``dialogues/*.json`` below the folder.

Labels: the reply that was picked last. If it is a goodbye, the dialogue should end with it, and an
end after the message before it does as well.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from endings.dialogue import Case, Dialogue, Label, Origin, Turn

SAYS = {"utter", "pick_suggestion"}
SPEAKERS = {"User", "Wizard"}


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all dialogues below a folder."""
    for path in sorted(folder.glob("dialogues/*.json"), key=lambda one: int(one.stem)):
        events = json.loads(path.read_text(encoding="utf-8"))["Events"]
        said = [one for one in events if one["Action"] in SAYS and one["Agent"] in SPEAKERS]
        length = len(said)
        if {one["Agent"] for one in said} != SPEAKERS:
            continue
        label = Label(Case.NO_END, length + 1, Origin.FIELD)
        if "bye" in said[-1].get("ActionLabel", ""):
            label = Label(Case.FAREWELL, length, Origin.FIELD, max(length - 1, 1))
        turns = tuple(Turn(one["Agent"], one["Text"]) for one in said)
        yield Dialogue(f"star/{path.stem}", "star", turns, label)
