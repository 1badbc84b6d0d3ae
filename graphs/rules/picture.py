"""The table of moves as a Mermaid state diagram, for `docs/how-a-conversation-moves.md`."""

from typing import Final

from .moves import MOVES, Strength
from .position import Phase

_ENDED_BY: Final = {
    None: "nothing",
    Strength.HARD: "hard stops",
    Strength.SAID: "hard stops and what is said",
    Strength.VERDICT: "all but guards and caps",
    Strength.GUARD: "all but caps",
    Strength.CAP: "every end",
}


def picture() -> str:
    """Draw the moves; phases after which the same one acts, and the same may end it, are a box."""
    boxes: dict[object, list[Phase]] = {}
    for phase, move in MOVES.items():
        boxes.setdefault((move.actor, move.ends), []).append(phase)
    lines = ["stateDiagram-v2"]
    for box in boxes.values():
        move = MOVES[box[0]]
        label = f"{_names(box)}<br/>next: {move.actor}<br/>ended by: {_ENDED_BY[move.ends]}"
        lines.append(f'    state "{label}" as {box[0]}')
    lines.append(f"    [*] --> {Phase.STARTED}")
    for box in boxes.values():
        move = MOVES[box[0]]
        follow = {phase for before in box for phase in MOVES[before].then}
        for other in boxes.values():
            phases = [phase for phase in other if phase in follow]
            if phases:
                lines.append(f"    {box[0]} --> {other[0]}: {_names(phases)}")
        if move.ends is not None:
            lines.append(f"    {box[0]} --> [*]")
    return "\n".join(lines) + "\n"


def _names(phases: list[Phase]) -> str:
    return ", ".join(phases)
