"""The table of moves: each move is used, and the documentation contains the table's diagram."""

import re
from pathlib import Path
from typing import Final

import pytest
from pydantic import TypeAdapter

from duologue.graphs import (
    CodeReply,
    Conversation,
    EndChat,
    EndChatMode,
    Guards,
    HumanReply,
    ModelReply,
    Moderator,
    Predicate,
    Reason,
    RunningSummary,
    Speaker,
)
from duologue.graphs.conversation.judges import RoundRobin, TurnOrder
from duologue.graphs.ends.end import Strength
from duologue.graphs.rules.met_ends import ENDS
from duologue.graphs.rules.position import MOVES, Phase
from oracle.onlooker import Came
from oracle.paths import Choices, Walk
from support.ends import BaseEnd, End

PAGE = Path(__file__).parents[3] / "docs" / "how-it-works.md"


_ENDED_BY: Final = {
    None: "nothing",
    Strength.HARD: "hard stops",
    Strength.SAID: "hard stops and what is said",
    Strength.VERDICT: "all but guards and caps",
    Strength.GUARD: "all but caps",
    Strength.CAP: "every end",
}


def picture() -> str:
    """Draw the moves; phases with the same node and the same possible ends share a box."""
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


def test_the_page_shows_the_table() -> None:
    shown = re.findall(r"^```mermaid\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert shown == [picture()]


def test_the_reasons_are_those_of_the_ends_in_order_of_precedence() -> None:
    assert list(ENDS) == list(Reason)
    strengths = [end.strength for end in ENDS.values()]
    assert strengths == sorted(strengths)
    for end in ENDS.values():
        assert end.__doc__
        assert end.report


def test_each_end_and_guard_of_the_spec_has_its_class() -> None:
    kinds = TypeAdapter(End).json_schema()["discriminator"]["mapping"]
    named = {end.reason for end in ENDS.values() if issubclass(end, BaseEnd)}
    assert named | {"any", "all"} == {*kinds}
    guards = [end.reason for end in ENDS.values() if end.strength is Strength.GUARD]
    assert sorted(guards) == sorted(Guards.model_fields)


def talk(order: TurnOrder, when: Predicate | None, *, human: bool) -> Conversation:
    """Return a conversation in which every move within a turn is possible."""
    first = (HumanReply(), CodeReply()) if human else (CodeReply(),)
    speakers = tuple(
        Speaker(
            name=name,
            checks_completion=name == "Ann",
            tools=("bell",),
            context=RunningSummary(limit=9_000),
            replies=(*first, ModelReply()),
            on_length="continue",
        )
        for name in ("Ann", "Bob")
    )
    mode = EndChatMode.END_CHAT_AFTER_FIRST_COMPLETION
    return Conversation(
        task="Plan.",
        speakers=speakers,
        model="m",
        turn_order=order,
        end_chat=EndChat(mode=mode, max_iterations=2, when=when),
        max_tool_rounds=1,
        max_tool_errors=2,
    )


@pytest.mark.exhaustive
def test_conversations_make_every_move_of_the_table() -> None:
    """The walks use every move of the table, and each walk asserts that it uses no other."""
    choices = Choices(
        drafts=True,
        cuts=True,
        calls=("bell",),
        fails=(Came(0, 1, worked=False),),
        direct=True,
        code=True,
        halves=True,
        unreadable=True,
        hooks=True,
        summaries=True,
    )
    found: set[tuple[Phase, Phase]] = set()
    for order in (RoundRobin(), Moderator()):
        for when in (None, Predicate(name="won")):
            for human in (False, True):
                found |= Walk(talk(order, when, human=human), choices).moves
    moves = {(event, then) for event, move in MOVES.items() for then in move.then}
    # The moves of speakers that speak at once are tested in `test_concurrent_rounds`.
    moves = {move for move in moves if Phase.REQUESTED not in move}
    # Two moves are tested elsewhere: a person that approves calls in
    # `test_autogen`, and a guard that asks a person in `test_guards_that_ask`.
    assert moves - found == {(Phase.CALLED, Phase.LEFT), (Phase.CALLED, Phase.SPOKEN)}
