"""Tables of the rules: facts of short logs, positions after removals, and the better of two tries.

The walks only use their own facts; here the facts come from the messages of a log.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import tool_call

from duologue.graphs import Conversation, Reason, load_conversation
from duologue.graphs.conversation.limits import most_messages, most_tool_rounds
from duologue.graphs.rules.log_counter import facts_of
from duologue.graphs.rules.position import Phase, Position, max_steps
from duologue.graphs.rules.transitions import position_after_removals
from duologue.graphs.rules.turns import Checked, Problem, better
from support.log import Failure, Flaw, make_line, make_tool_line
from support.tables import each_row

FAILURES = {"=": None, "!": Failure.TOOL, "?": Failure.PERSON}


def conversation_of(ann: dict[str, Any]) -> Conversation:
    speakers = [{"name": "Ann"} | ann, {"name": "Bob"}]
    return load_conversation(
        {"task": "Look.", "speakers": speakers, "end_chat": {"max_iterations": 9}}
    )


def log_of(*rows: str) -> list[AnyMessage]:
    """Return a log. Each row begins with a sign.

    `-` is a speech, with its speaker and its source; `>` is a round of calls, with its speaker and
    one word for each call; then come their results: `=` returned by a tool, `!` an error, `?`
    refused by a person.
    """
    log: list[AnyMessage] = []
    waiting: list[str] = []
    caller = ""
    for number, (sign, *words) in enumerate(row.split() for row in rows):
        if sign == "-":
            log.append(make_line(number, "Well.", speaker=words[0], source=words[1]))
        elif sign == ">":
            caller, *asked = words
            waiting = [f"{number}-{at}" for at in range(len(asked))]
            made = [
                tool_call(name="look", args={"at": word}, id=call)
                for word, call in zip(asked, waiting, strict=True)
            ]
            log.append(make_line(number, "", "tool_calls", speaker=caller, tool_calls=made))
        else:
            text, failure = " ".join(words), FAILURES[sign]
            log.append(
                make_tool_line(
                    number, text, speaker=caller, call_id=waiting.pop(0), failure=failure
                )
            )
    return log


@each_row("equal_calls")
def test_equal_calls_in_a_row_are_counted_by_their_calls_and_results(
    rows: Sequence[str], count: int
) -> None:
    conversation = conversation_of({})
    assert facts_of(conversation, log_of(*rows)).count(Reason.SAME_TOOL_CALLS) == count


@each_row("auto_replies")
def test_automatic_replies_are_counted_since_a_person_last_spoke(
    rows: Sequence[str], first: str | None, count: int
) -> None:
    given = {"kind": "text", "text": first, "once": True}
    person = {"kind": "human", "human_input_mode": "TERMINATE", "sees_calls": True}
    replies = [*([given] if first else []), person, {"kind": "text", "text": "Well."}]
    conversation = conversation_of({"replies": replies})
    assert facts_of(conversation, log_of(*rows)).auto_replies.get("Ann", 0) == count


@pytest.mark.parametrize(
    ("phase", "read", "then", "asked_again", "cut_off"),
    [
        (Phase.REJECTED, "draft", Phase.PASSED, False, True),
        (Phase.CUT_OFF, "draft", Phase.PASSED, True, False),
        (Phase.CALLED, "tool_calls", Phase.PASSED, True, True),
        (Phase.ASKED, "judge_question", Phase.SPOKEN, True, True),
        (Phase.UNREAD, "judge_question", Phase.SPOKEN, True, True),
    ],
    ids=lambda value: value.value if isinstance(value, Phase) else "",
)
def test_a_position_goes_back_if_its_node_would_read_a_removed_message(
    phase: Phase, read: str, then: Phase, asked_again: bool, cut_off: bool
) -> None:
    position = Position(phase=phase, speaker="Ann", asked_again=True, cut_off=True)
    log = [*log_of("- Bob model"), make_line(1, "Well.", read)]
    assert position_after_removals(position, log) == position
    log[-1] = make_line(1, "Well.", "removed", was={"kind": read})
    update = {"phase": then, "asked_again": asked_again, "cut_off": cut_off}
    assert position_after_removals(position, log) == position.model_copy(update=update)


PERSON = {"kind": "human", "human_input_mode": "ALWAYS"}


@pytest.mark.parametrize(
    ("plain", "watched"),
    [
        ({"tools": ["look"]}, {"tools": ["look"], "interrupt_on": {"look": True}}),
        ({"replies": [PERSON, "model"]}, {"replies": [PERSON | {"sees_calls": True}, "model"]}),
    ],
    ids=["decides-on-them", "sees-them"],
)
def test_each_round_of_calls_that_a_person_watches_adds_a_step_to_a_turn(
    plain: dict[str, Any], watched: dict[str, Any]
) -> None:
    def steps_of_turn(conversation: Conversation) -> float:
        once = 2 + bool(conversation.people)
        return (max_steps(conversation) - once) / most_messages(conversation)

    before, after = conversation_of(plain), conversation_of(watched)
    assert steps_of_turn(after) - steps_of_turn(before) == most_tool_rounds(before)


CONTENT = "I chose Kraken since fees are low."


def tried(worth: str) -> Checked:
    """Return a checked reply of this quality."""
    flaw, own = {
        "good": (None, CONTENT),
        "content": (Flaw.FORM, CONTENT),
        "misnamed": (Flaw.NOT_NEXT, CONTENT),
        "sorry": (None, "Sorry."),
        "formless okay": (Flaw.FORM, "Okay."),
        "repeat": (Flaw.REPEATED, CONTENT),
        "echo": (Flaw.ECHO, CONTENT),
        "blank": (Flaw.BLANK, ""),
        "nothing": (Flaw.NO_REPLY, ""),
        "flip": (Flaw.ROLE_FLIP, ""),
    }[worth]
    return Checked(worth, None if flaw is None else Problem(flaw=flaw, text="…"), own)


RANKS = [
    ("good",),
    ("content", "misnamed"),
    ("sorry", "formless okay"),
    ("repeat", "echo"),
    ("blank", "nothing", "flip"),
]
"""Qualities of replies, the best first."""


def test_r15_content_beats_an_apology_and_an_apology_beats_what_was_said_before() -> None:
    placed = [(rank, kind) for rank, kinds in enumerate(RANKS) for kind in kinds]
    said = {
        (one, other): better(tried(one), tried(other)).text
        for _, one in placed
        for _, other in placed
    }
    assert said == {
        (one, other): one if first < second else other
        for first, one in placed
        for second, other in placed
    }
