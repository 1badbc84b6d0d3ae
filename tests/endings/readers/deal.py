"""Deal or No Deal: two people share out books, hats and balls, and then select their shares.

Read: ``data.txt`` below the folder. Each dialogue is in it once for each speaker; it is read from
the side of the speaker who began.

Labels: the last message is a field of the record, ``<selection>``, and is the whole message.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from endings.dialogue import Case, Dialogue, Label, Origin, Turn, Word

SELECTION = "<selection>"
SPEAKERS = {"YOU": "Ann", "THEM": "Ben"}
_TALK = re.compile(rf"YOU: .*?{SELECTION}")
_TURN = re.compile(r"(YOU|THEM): (.*?)(?: <eos>|$)")


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all dialogues below a folder."""
    for path in sorted(folder.rglob("data.txt")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            talk = _TALK.search(line)
            # The numbers before the talk are the things to share out, and their values.
            if talk is None or not set(line[: talk.start()]) <= set("0123456789 "):
                continue
            turns = tuple(Turn(SPEAKERS[who], text) for who, text in _TURN.findall(talk[0]))
            label = Label(Case.WORD_SAID, len(turns), Origin.FIELD, signalled=True)
            yield Dialogue(f"deal/{number}", "deal", turns, label, (Word(SELECTION),))
