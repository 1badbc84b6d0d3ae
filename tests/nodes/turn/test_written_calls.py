"""Calls that a model writes as text run, or the reply is requested again (Y19)."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from pydantic import BaseModel

from duologue import Conversation, Result, chat, stream
from duologue.graphs.events import MessageSaid, MessageToken
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from support.log import rejections
from support.shape_help import play
from support.tables import each_row

TEXTS = tomllib.loads(Path(__file__).with_name("written_calls.toml").read_text())
CALL = '<tool_call>{"name": "look", "arguments": {"city": "Oslo"}}</tool_call>'
PLAIN = '{"name": "look", "arguments": {"city": "Oslo"}}'


class Data(BaseModel):
    """Data in the form of a call."""

    name: str
    arguments: dict[str, str]


class Tools:
    """Tools that note their calls."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def all(self) -> list[Any]:
        """Return the tools."""

        def look(city: str) -> str:
            """Look at a city."""
            self.ran.append(city)
            return "It is sunny"

        def count(n: int, deep: bool = False) -> str:
            """Count."""
            self.ran.append(f"{n} {deep}")
            return "It is sunny"

        return [look, count]


def talk_with(tools: Tools, task: str = "Weather?", **options: Any) -> Conversation:
    """Return a conversation of one reply."""
    end = {"max_iterations": 1}
    return chat(task, assistant={"name": "Clerk", **options}, tools=tools.all(), end_chat=end)


def run(
    *script: Line,
    task: str = "Weather?",
    schemas: dict[str, type[BaseModel]] | None = None,
    **clerk: Any,
) -> tuple[Result, list[str], ScriptedChatModel]:
    """Return the result of a conversation of one reply, the calls that ran, and the model."""
    tools = Tools()
    spec = talk_with(tools, task, **clerk)
    result, model = play(spec, script, schemas=schemas)
    return result, tools.ran, model


@pytest.mark.parametrize("case", TEXTS["call"], ids=lambda case: case["text"].strip()[:30])
def test_a_text_that_is_nothing_but_calls_is_these_calls(case: dict[str, Any]) -> None:
    result, ran, model = run(case["text"].strip(), "Sunny.")
    assert sorted(ran) == case.get("ran", ["Oslo"])
    assert result.messages[-1].text == "Sunny."
    assert "look" not in "".join(one.text for one in result.messages)
    answers = [one.text for one in model.calls[-1].messages if isinstance(one, ToolMessage)]
    assert answers == ["It is sunny"] * len(ran)


@pytest.mark.parametrize("case", TEXTS["again"], ids=lambda case: case["text"].strip()[-30:])
def test_a_call_at_the_end_of_a_text_is_requested_again(case: dict[str, Any]) -> None:
    result, ran, model = run(case["text"].strip(), "I see.")
    assert ran == []
    assert rejections(result) == ["Your message contains a tool call as text, so no tool ran."]
    assert result.messages[-1].text == "I see."
    request = str(model.calls[-1].messages[-1].content)
    assert request.startswith("Your message contains a tool call as text")
    assert "Call the tool itself" in request


@pytest.mark.parametrize("case", TEXTS["reply"], ids=lambda case: case["text"].strip()[:30])
def test_a_text_that_shows_a_call_or_data_is_a_reply(case: dict[str, Any]) -> None:
    result, ran, _ = run(text := case["text"].strip())
    assert (ran, result.messages[-1].text) == ([], text)


def test_the_second_reply_may_call_the_tool() -> None:
    call = {"name": "look", "args": {"city": "Oslo"}, "id": "a"}
    result, ran, _ = run(f"Let me look.\n{CALL}", Reply(tool_calls=[call]), "Sunny.")
    assert (ran, result.messages[-1].text) == (["Oslo"], "Sunny.")


@each_row("a_speaker_whose_task_is_about_json_shows_it")
def test_a_speaker_whose_task_is_about_json_shows_it(task: str, options: dict[str, Any]) -> None:
    result, ran, _ = run(PLAIN, task=task, **options)
    assert (ran, result.messages[-1].text) == ([], PLAIN)


def test_a_speaker_without_tools_may_write_a_call() -> None:
    spec = chat("Weather?", assistant="Clerk", end_chat={"max_iterations": 1})
    result, _ = play(spec, [CALL])
    assert result.messages[-1].text == CALL


def test_a_speaker_with_a_json_format_may_write_a_call() -> None:
    form = {"kind": "schema", "name": "call", "form": "text"}
    result, ran, _ = run(PLAIN, format=form, schemas={"call": Data})
    assert (ran, result.messages[-1].text) == ([], PLAIN)


@pytest.mark.parametrize("text", [CALL, PLAIN, f"```json\n{PLAIN}\n```"])
def test_listeners_do_not_see_a_call_that_is_streamed_as_text(text: str) -> None:
    tools = Tools()
    reply = Reply(text=text, chunks=[*text])
    model = ScriptedChatModel(script=[reply, "It is sunny."])
    events = [*stream(talk_with(tools), model=model, store="memory:")]
    said = [one.text for one in events if isinstance(one, MessageSaid)]
    assert "".join(one.text for one in events if isinstance(one, MessageToken)) == "It is sunny."
    assert said[-1] == "It is sunny."
    assert tools.ran == ["Oslo"]


@pytest.mark.parametrize("text", ['{"city": "Oslo"}', "<b>Oslo</b> is sunny.", "[1] is sunny."])
def test_listeners_see_all_of_a_reply_that_begins_like_a_call(text: str) -> None:
    model = ScriptedChatModel(script=[Reply(text=text, chunks=[*text])])
    events = [*stream(talk_with(Tools()), model=model, store="memory:")]
    assert "".join(one.text for one in events if isinstance(one, MessageToken)) == text
