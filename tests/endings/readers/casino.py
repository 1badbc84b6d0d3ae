"""CaSiNo: two people share out food, water and firewood, and submit and accept deals.

Read: ``casino_train.json``, ``casino_valid.json`` and ``casino_test.json`` below the folder.

The record stores a deal separately from its text "Submit-Deal". The reader makes the deal a part of
the text, as speakers without a form would say it: otherwise all deals would be the same message.

Labels: the last message is a field of the record, "Accept-Deal" or "Walk-Away". Either ends the
dialogue, and is the whole message.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from endings.dialogue import Case, Dialogue, Label, Origin, Turn, Word

ACCEPT, WALK_AWAY = "Accept-Deal", "Walk-Away"
SUBMIT = "Submit-Deal"
ENDS = {ACCEPT: Case.WORD_SAID, WALK_AWAY: Case.OTHER_SIDE}


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all dialogues below a folder, each id once."""
    seen = set[int]()
    for path in sorted(folder.rglob("casino_*.json")):
        for found in json.loads(path.read_text(encoding="utf-8")):
            if found["dialogue_id"] not in seen:
                seen.add(found["dialogue_id"])
                yield _dialogue(found)


def _dialogue(found: dict[str, Any]) -> Dialogue:
    turns = tuple(Turn(one["id"], _text_of(one)) for one in found["chat_logs"])
    case, length = ENDS.get(turns[-1].text), len(turns)
    label = (
        Label(Case.NO_END, length + 1, Origin.FIELD)
        if case is None
        else Label(case, length, Origin.FIELD, signalled=True)
    )
    words = (Word(ACCEPT), Word(WALK_AWAY))
    return Dialogue(f"casino/{found['dialogue_id']}", "casino", turns, label, words)


def _text_of(message: dict[str, Any]) -> str:
    wanted = message.get("task_data", {}).get("issue2youget", {})
    deal = ", ".join(f"{name} {wanted[name]}" for name in sorted(wanted))
    return f"{SUBMIT}: {deal}" if deal else str(message["text"])
