"""The table of moves as a Mermaid state diagram, for `docs/how-a-conversation-moves.md`."""

from typing import Final

from .moves import MOVES, Strength
from .position import Phase

_ENDED_BY: Final = {
    None: "nothing",
    Strength.HARD: "hard stops",
    Strength.SAID: "hard stops and what is said",
    Strength.CAP: "every end",
}


def picture() -> str:
    """Draw the moves; events after which the same one acts, and the same may end it, are a box."""
    boxes: dict[object, list[Phase]] = {}
    for event, move in MOVES.items():
        boxes.setdefault((move.actor, move.ends), []).append(event)
    lines = ["stateDiagram-v2"]
    for box in boxes.values():
        move = MOVES[box[0]]
        label = f"{_names(box)}<br/>next: {move.actor}<br/>ended by: {_ENDED_BY[move.ends]}"
        lines.append(f'    state "{label}" as {box[0]}')
    lines.append(f"    [*] --> {Phase.STARTED}")
    for box in boxes.values():
        follow = {event for before in box for event in MOVES[before].then}
        for other in boxes.values():
            events = [event for event in other if event in follow]
            if events:
                lines.append(f"    {box[0]} --> {other[0]}: {_names(events)}")
        if any(MOVES[event].ends is Strength.CAP for event in box):
            lines.append(f"    {box[0]} --> [*]")
    return "\n".join(lines) + "\n"


def _names(events: list[Phase]) -> str:
    return ", ".join(events)
