"""R3: an answer that ended at its token limit is recognized with every client."""

import asyncio
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from duologue.nodes.models.stops import stop_of
from support.models import greet, model_of
from support.tables import read_rows


def answered(answer: AIMessage) -> AIMessage:
    model = model_of("own", FakeMessagesListChatModel(responses=[answer]))
    return asyncio.run(greet(model))


@pytest.mark.parametrize(
    "metadata",
    [
        *read_rows(__file__, "each_client_says_it_in_its_own_way"),
        pytest.param({"stop_reason": "max_tokens", "stop_sequence": None}, id="Anthropic"),
    ],
)
def test_r3_each_client_says_it_in_its_own_way(metadata: dict[str, Any]) -> None:
    assert stop_of(answered(AIMessage("Once upon", response_metadata=metadata)))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"finish_reason": "stop"},
        {"finish_reason": None, "stop_reason": "end_turn"},
        {"stop_reason": "stop_sequence"},
        {"done_reason": "stop", "incomplete_details": None},
        {"finish_reason": "eos_token"},
    ],
)
def test_r3_other_ends_are_none(metadata: dict[str, Any]) -> None:
    assert not stop_of(answered(AIMessage("Once upon.", response_metadata=metadata)))


def test_r3_the_last_call_may_have_been_mended_and_is_not_run() -> None:
    calls = [{"name": "add", "args": {"a": number}, "id": f"c{number}"} for number in (1, 2)]
    ended = {"stop_reason": "max_tokens"}
    answer = answered(AIMessage("", tool_calls=calls, response_metadata=ended))
    assert [call["id"] for call in answer.tool_calls] == ["c1"]
    [broken] = answer.invalid_tool_calls
    assert (broken["id"], broken["args"]) == ("c2", '{"a": 2}')
    assert "cut off" in (broken["error"] or "")
    whole = answered(AIMessage("", tool_calls=calls, response_metadata={"stop_reason": "tool_use"}))
    assert [call["id"] for call in whole.tool_calls] == ["c1", "c2"]
