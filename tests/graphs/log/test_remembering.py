"""L2: the part of a log that a speaker remembers, as a rule."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import tool_call

from duologue.graphs import Conversation, Speaker
from support.cases import drawn_cases
from support.log import make_line, make_tool_line, place_name
from support.results import StoredSession

NAMES = ("Ann", "Ben")


def spoke(
    number: int, name: str, text: str = "", kind: str = "speech", **fields: Any
) -> AnyMessage:
    return make_line(number, text or f"line {number}", kind, speaker=name, **fields)


def forgets(number: int, name: str, since: int | None) -> AnyMessage:
    found = None if since is None else place_name(since)
    return make_line(number, "", "memory_reset", speaker=name, audience=(), since=found)


def memory(log: Sequence[AnyMessage], name: str) -> list[str]:
    """Return the texts of the messages in a speaker's memory."""
    conversation = Conversation("Talk.", [Speaker(one) for one in NAMES])
    session = StoredSession("s", conversation, [*log], None, None)
    return [message.text for message in session.memory(name)]


def lines(*numbers: int) -> list[str]:
    return [f"line {number}" for number in numbers]


def test_a_log_is_remembered_whole_by_those_whose_memory_was_never_reset() -> None:
    log = [spoke(0, "Ann"), spoke(1, "Ben"), forgets(2, "Ann", 1), spoke(3, "Ben")]
    assert memory(log, "Ben") == lines(0, 1, 3)
    assert memory(log, "Ann") == lines(1, 3)


def test_where_nothing_is_left_to_answer_all_before_is_forgotten() -> None:
    log = [spoke(0, "Ben"), spoke(1, "Ann"), forgets(2, "Ann", None), spoke(3, "Ben")]
    assert memory(log, "Ann") == lines(3)


def test_what_was_loaded_stands_in_front_and_the_newest_reset_counts() -> None:
    loaded: dict[str, Any] = {"kind": "remembered", "audience": ("Ann",)}
    log = [
        *(spoke(0, "Ann"), spoke(1, "Ben"), forgets(2, "Ann", 1)),
        *(spoke(3, "Ben", **loaded), spoke(4, "Ben")),
    ]
    assert memory(log, "Ann") == lines(3, 1, 4)
    log += [forgets(5, "Ann", 1), spoke(6, "Ann", **loaded)]
    assert memory(log, "Ann") == lines(6, 1, 4)


def test_a_memory_holds_what_a_hook_made_of_a_message_in_its_place() -> None:
    heard: dict[str, Any] = {
        "kind": "hook_version",
        "audience": ("Ann",),
        "instead_of": ("m0000", "m0001"),
    }
    log = [spoke(0, "Ben"), spoke(1, "Ben"), spoke(2, "Ben"), spoke(3, "Ben", **heard)]
    assert memory(log, "Ann") == lines(3, 2)
    assert memory(log, "Ben") == lines(0, 1, 2)


def test_a_memory_holds_what_was_said_and_heard_and_no_more() -> None:
    """L2: opening answers, drafts, summaries, and others' calls and results are excluded."""
    call = tool_call(name="look", args={}, id="a")
    log = [
        make_line(0, "Begin.", "instruction", audience=("Ann",)),
        spoke(1, "Ann", kind="draft", audience=()),
        spoke(2, "Ann"),
        spoke(3, "Ann", kind="opening_answer", audience=("Ben",)),
        spoke(4, "Ben", kind="tool_calls"),
        make_line(5, "", "tool_calls", speaker="Ben", tool_calls=[call]),
        make_tool_line(6, "sun", speaker="Ben", call_id="a"),
        spoke(7, "Ben", audience=("Ben",)),
        spoke(8, "Ben", kind="summary", audience=("Ann",)),
    ]
    assert memory(log, "Ann") == ["Begin.", *lines(2, 4)]
    assert memory(log, "Ben") == [*lines(2, 3, 4), "", "sun", "line 7"]


@st.composite
def any_log(draw: st.DrawFn) -> list[AnyMessage]:
    log: list[AnyMessage] = []
    for number in range(draw(st.integers(0, 12))):
        name = draw(st.sampled_from(NAMES))
        kind = draw(st.sampled_from(["speech", "memory_reset", "remembered", "summary"]))
        if kind == "memory_reset":
            log.append(forgets(number, name, draw(st.none() | st.integers(0, max(0, number - 1)))))
        elif kind == "speech":
            log.append(spoke(number, name))
        else:
            log.append(spoke(number, draw(st.sampled_from(NAMES)), kind=kind, audience=(name,)))
    return log


@drawn_cases(25, 300, log=any_log())
def test_of_any_log_each_message_is_remembered_once_and_nothing_new_is_forgotten(
    log: list[AnyMessage],
) -> None:
    for name in NAMES:
        kept = memory(log, name)
        assert len(kept) == len({*kept})
        # All speakers remember new messages, after the older ones.
        assert memory([*log, spoke(len(log), "Ben")], name) == [*kept, *lines(len(log))]
        reset = forgets(len(log), "Ann" if name == "Ben" else "Ben", None)
        assert memory([*log, reset], name) == kept
