"""Running summaries: the request to the model, and the entries in the log."""

from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import tool_call

from drawn.player import too_long
from duologue.graphs import Conversation, RunningSummary, Speaker
from duologue.graphs.rules.position import Position
from duologue.nodes.testing import Script, ScriptedChatModel
from duologue.nodes.turn import long_histories
from duologue.nodes.turn.long_histories import summarize
from duologue.nodes.turn.node_context import NodeContext, Resources
from duologue.nodes.turn.running_sessions import RunningSession
from duologue.tools.registry.registry import Registry
from support.log import fields_of, make_line, make_metadata, make_tool_line, place_of
from support.models import Models


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the notices in the stream."""
    told: list[str] = []
    monkeypatch.setattr(long_histories, "notify", told.append)
    return told


def heard(number: int, text: str, speaker: str | None, **fields: Any) -> AnyMessage:
    kind = "instruction" if speaker is None else "speech"
    return make_line(number, text, kind, speaker=speaker, **fields)


LOG: list[AnyMessage] = [
    heard(0, "Please begin.", None, audience=("Ann",)),
    heard(1, "Let us meet.", "Ann"),
    heard(2, "On Monday?", "Bob"),
    heard(3, "At nine.", "Ann"),
    heard(4, "Fine.", "Bob"),
]


def moment(
    script: Script,
    log: list[AnyMessage],
    **context: Any,
) -> tuple[NodeContext, ScriptedChatModel]:
    policy = RunningSummary(limit=3000, model="cheap", **context)
    conversation = Conversation(
        task="Meet.", speakers=(Speaker(name="Ann", context=policy), Speaker(name="Bob"))
    )
    cheap = ScriptedChatModel(script)
    resources = Resources(Models(named={"cheap": cheap}), Registry())
    now = NodeContext(
        conversation,
        Position(),
        log=log,
        resources=resources,
        session=RunningSession(conversation),
        task="Meet.",
    )
    return now, cheap


async def test_the_cheap_model_is_asked_and_its_answer_is_heard_by_nobody() -> None:
    now, cheap = moment(["They meet on Monday."], LOG, temperature=0.5, words=40)
    await summarize(now, LOG[:3], "m0003")
    assert now.new[0].text == "They meet on Monday."
    assert place_of(now.new[0]) == "m0005"
    assert fields_of(now.new[0]) == make_metadata(
        "summary", speaker="Ann", audience=(), since="m0003"
    )
    assert now.usage["cheap"].calls == 1
    (call,) = cheap.calls
    asked = call.messages[-1].text
    for words in ("Ann: Let us meet.", "Bob: On Monday?", "(to Ann) Please begin.", "40 words"):
        assert words in asked
    assert "At nine." not in asked
    assert call.kwargs["temperature"] == 0.5


async def test_the_summary_before_is_part_of_the_next_one() -> None:
    old = make_line(5, "Ann is Bob's aunt.", "summary", speaker="Ann", audience=())
    others = make_line(6, "Bob lies.", "summary", speaker="Bob", audience=())
    now, cheap = moment(["Both."], [*LOG, old, others])
    await summarize(now, LOG[1:3], "m0003")
    asked = cheap.calls[0].messages[-1].text
    assert asked.index("Ann is Bob's aunt.") < asked.index("Let us meet.")
    assert "Bob lies." not in asked


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a_blank_answer_keeps_the_summary_before(blank: str) -> None:
    old = make_line(5, "Ann is Bob's aunt.", "summary", speaker="Ann", audience=())
    now, _ = moment([blank], [*LOG, old])
    await summarize(now, LOG[1:3], "m0003")
    assert now.new[0].text == "Ann is Bob's aunt."
    assert fields_of(now.new[0]).since == "m0003"
    assert now.usage["cheap"].calls == 1


async def test_a_summary_that_is_too_long_is_cut_at_a_sentence() -> None:
    now, _ = moment(["They meet. On Monday, at nine in the morning."], LOG, words=5)
    await summarize(now, LOG[1:3], "m0003")
    assert now.new[0].text == "They meet."


async def test_calls_and_results_are_told_to_their_caller_alone() -> None:
    call = tool_call(name="add", args={"a": 17}, id="c1")
    lines: list[AnyMessage] = [
        make_line(1, "", "tool_calls", speaker="Ann", tool_calls=[call]),
        make_tool_line(2, "It is 18.", speaker="Ann", call_id="c1"),
        make_line(
            3,
            "Wait.",
            "tool_calls",
            speaker="Bob",
            tool_calls=[tool_call(name="sub", args={"b": 4}, id="c2")],
        ),
        heard(4, "", "Bob"),
    ]
    now, cheap = moment(["Sums."], lines)
    await summarize(now, lines, "m0005")
    asked = cheap.calls[0].messages[-1].text
    for words in (
        '(Ann called add with {"a": 17})',
        "It is 18.",
        "Bob: Wait.",
        "Bob: (empty message)",
    ):
        assert words in asked
    assert "sub" not in asked


async def test_what_the_cheap_model_refuses_as_too_long_is_halved_and_said(
    notices: list[str],
) -> None:
    now, cheap = moment([too_long(900, 512), too_long(600, 512), "Short."], LOG)
    await summarize(now, LOG[:4], "m0004")
    assert now.new[0].text == "Short."
    assert now.usage["cheap"].calls == 1
    asked = [call.messages[-1].text for call in cheap.calls]
    assert ["Let us meet." in one for one in asked] == [True, False, False]
    assert ["On Monday?" in one for one in asked] == [True, True, False]
    assert all("At nine." in one for one in asked)
    assert len(notices) == 2
    assert all("too long" in one and "older half" in one for one in notices)


async def test_a_single_line_that_is_too_long_is_shortened() -> None:
    long = [heard(1, "Let us meet. " * 900, "Bob")]
    now, cheap = moment([too_long(4000, 1000), "They meet."], long)
    await summarize(now, long, "m0002")
    assert now.new[0].text == "They meet."
    first, second = (call.messages[-1].text for call in cheap.calls)
    assert len(second) * 3 < len(first)
    assert "characters are left out here" in second
    assert second[:40] == first[:40]
    assert second[-40:] == first[-40:]


async def test_a_single_line_that_stays_too_long_leaves_the_summary_as_it_was(
    notices: list[str],
) -> None:
    now, cheap = moment(lambda _: too_long(900, 512), LOG)
    await summarize(now, LOG[:4], "m0004")
    assert (now.new[0].text, fields_of(now.new[0]).since, now.usage) == ("", "m0004", {})
    assert len(cheap.calls) == 4
    assert len(notices) == 3
