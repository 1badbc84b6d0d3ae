"""The state for other programs: `messages` contains the conversation, other channels the rest."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from duologue.graphs import Conversation, EndChat, Speaker, build_graph
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook

ANN_CALLS = Conversation(
    task="Talk.",
    speakers=(Speaker(name="Ann", tools=("clock",), hooks=("look",)), Speaker(name="Ben")),
    end_chat=EndChat(max_iterations=1),
)


async def messages_of(hook: Hook) -> list[BaseMessage]:
    calls = Reply(text="One moment.", tool_calls=[ScriptedToolCall(name="clock", args={}, id="c")])
    model = ScriptedChatModel(script=[calls, "It is three.", "Thank you."])
    graph = build_graph(model=model, hooks={"look": hook})
    ended: dict[str, Any] = await graph.ainvoke({"conversation": ANN_CALLS.stored()})
    return list(ended["messages"])


@pytest.mark.parametrize("hook", [Hook(), Hook(after_speaker=lambda turn, reply: None)])
async def test_a_result_is_where_its_call_is_whether_hooks_see_it_first_or_not(hook: Hook) -> None:
    kinds = [type(one) for one in await messages_of(hook)]
    assert kinds == [AIMessage, ToolMessage, AIMessage, AIMessage]
