"""L2: the part of a log that a speaker remembers, as a rule."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AnyMessage, BaseMessage

from duologue.graphs import Conversation, Speaker
from duologue.graphs.log.memory import memory, recall
from duologue.graphs.log.viewpoint import describe_news, viewpoint
from support.cases import drawn_cases
from support.log import make_line, make_tool_line, place_name, place_of, read_metadata

NAMES = ("Ann", "Ben")


def spoke(
    number: int, name: str, text: str = "", kind: str = "speech", **fields: Any
) -> AnyMessage:
    return make_line(number, text or f"line {number}", kind, speaker=name, **fields)


def forgets(number: int, name: str, since: int | None) -> AnyMessage:
    found = None if since is None else place_name(since)
    return make_line(number, "", "memory_reset", speaker=name, audience=(), since=found)


def ids(log: Sequence[BaseMessage]) -> list[str]:
    return [place_of(message) for message in log]


def test_a_log_is_remembered_whole_by_those_whose_memory_was_never_reset() -> None:
    log = [spoke(0, "Ann"), spoke(1, "Ben"), forgets(2, "Ann", 1), spoke(3, "Ben")]
    assert recall(log, "Ben") == log
    assert ids(recall(log, "Ann")) == ["m0001", "m0003"]


def test_where_nothing_is_left_to_answer_all_before_is_forgotten() -> None:
    log = [spoke(0, "Ben"), spoke(1, "Ann"), forgets(2, "Ann", None), spoke(3, "Ben")]
    assert ids(recall(log, "Ann")) == ["m0003"]


def test_what_was_loaded_stands_in_front_and_the_newest_reset_counts() -> None:
    loaded: dict[str, Any] = {"kind": "remembered", "audience": ("Ann",)}
    log = [
        *(spoke(0, "Ann"), spoke(1, "Ben"), forgets(2, "Ann", 1)),
        *(spoke(3, "Ben", **loaded), spoke(4, "Ben")),
    ]
    assert ids(recall(log, "Ann")) == ["m0003", "m0001", "m0004"]
    log += [forgets(5, "Ann", 1), spoke(6, "Ann", **loaded)]
    assert ids(recall(log, "Ann")) == ["m0006", "m0001", "m0004"]


def test_what_is_new_to_a_speaker_is_the_same_behind_a_memory_that_was_loaded() -> None:
    """L2, L7: functions, hooks and people get the same new messages as the model."""
    loaded: dict[str, Any] = {"kind": "remembered", "audience": ("Ann",)}
    log = [spoke(0, "Ann"), spoke(1, "Ben", "News.")]
    conversation = Conversation(task="Talk.", speakers=tuple(Speaker(name=it) for it in NAMES))
    assert describe_news(conversation, log, "Ann") == "News."
    log += [forgets(2, "Ann", 1), spoke(3, "Ben", **loaded), spoke(4, "Ann", **loaded)]
    assert describe_news(conversation, log, "Ann") == "News."
    assert viewpoint(conversation, log, "Ann")[-1].text == "News."


def test_a_summary_of_what_is_forgotten_is_forgotten_too() -> None:
    summary: dict[str, Any] = {"kind": "summary", "audience": ("Ann",)}
    log = [spoke(0, "Ann"), spoke(1, "Ben", **summary), spoke(2, "Ben"), forgets(3, "Ann", 1)]
    assert ids(recall(log, "Ann")) == ["m0002"]
    later = [*log, spoke(4, "Ben", **summary)]
    assert ids(recall(later, "Ann")) == ["m0002", "m0004"]
    # A summary only replaces forgotten messages in the view; it is no memory.
    assert ids(memory(later, "Ann")) == ["m0002"]


def test_a_memory_holds_what_a_hook_made_of_a_message_in_its_place() -> None:
    heard: dict[str, Any] = {
        "kind": "hook_version",
        "audience": ("Ann",),
        "instead_of": ("m0000", "m0001"),
    }
    log = [spoke(0, "Ben"), spoke(1, "Ben"), spoke(2, "Ben"), spoke(3, "Ben", **heard)]
    assert ids(memory(log, "Ann")) == ["m0003", "m0002"]
    assert ids(memory(log, "Ben")) == ["m0000", "m0001", "m0002"]


def test_a_memory_holds_what_was_said_and_heard_and_no_more() -> None:
    """L2: opening answers, drafts, and others' calls and results are excluded."""
    log = [
        make_line(0, "Begin.", "instruction", audience=("Ann",)),
        spoke(1, "Ann", kind="draft", audience=()),
        spoke(2, "Ann"),
        spoke(3, "Ann", kind="opening_answer", audience=("Ben",)),
        spoke(4, "Ben", kind="tool_calls"),
        make_line(5, "", "tool_calls", speaker="Ben"),
        make_tool_line(6, "sun", speaker="Ben", call_id="a"),
        spoke(7, "Ben", audience=("Ben",)),
    ]
    assert ids(memory(log, "Ann")) == ["m0000", "m0002", "m0004"]
    assert ids(memory(log, "Ben")) == ["m0002", "m0003", "m0004", "m0005", "m0006", "m0007"]


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
        kept = ids(recall(log, name))
        assert len(kept) == len({*kept})
        assert {*kept} <= {*ids(log)}
        # All speakers remember new messages, after the older ones.
        assert ids(recall([*log, spoke(len(log), "Ben")], name)) == [
            *kept,
            place_name(len(log)),
        ]
        others = [one for one in log if read_metadata(one.additional_kwargs["duologue"])]
        reset = [*others, forgets(len(log), "Ann" if name == "Ben" else "Ben", None)]
        assert [one for one in ids(recall(reset, name)) if one in kept] == kept
