"""R3: an answer that ended at its token limit is recognized with every client."""

from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from duologue.graphs import chat, converse, stream
from support.tables import each_row


class Told(FakeMessagesListChatModel):
    """A client that returns these messages, whatever tools are bound to it."""

    def bind_tools(self, tools: Any, **_: Any) -> "Told":  # noqa: ANN401
        """Return the client itself."""
        return self


@each_row("each_client_says_it_in_its_own_way")
def test_r3_each_client_says_it_in_its_own_way(metadata: dict[str, Any], cut_off: bool) -> None:
    model = Told(responses=[AIMessage("Once upon", response_metadata=metadata)])
    talk = chat("Tell a story.", assistant="Ann", max_iterations=1)
    events = [*stream(talk, model=model, store="memory:cut-off")]
    (said,) = (one for one in events if one.event == "message" and one.speaker == "Ann")
    assert said.cut_off is cut_off


@pytest.mark.parametrize(("reason", "run"), [("max_tokens", [1]), ("tool_use", [1, 2])])
def test_r3_the_last_call_may_have_been_mended_and_is_not_run(reason: str, run: list[int]) -> None:
    ran: list[int] = []

    def add(a: int) -> str:
        """Add a number."""
        ran.append(a)
        return "Added."

    calls = [{"name": "add", "args": {"a": number}, "id": f"c{number}"} for number in (1, 2)]
    called = AIMessage("", tool_calls=calls, response_metadata={"stop_reason": reason})
    model = Told(responses=[called, AIMessage("Done.")])
    talk = chat("Add.", assistant="Ann", tools=[add], max_iterations=1)
    result = converse(talk, model=model, store="memory:")
    assert ran == run
    results = {one.tool_call_id: str(one.content) for one in result.messages if one.type == "tool"}
    assert ("cut off" in results["c2"]) is (2 not in run)
