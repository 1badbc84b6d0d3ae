"""Speakers that say all by their calls, and messages in place of calls that have not run."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from duologue.graphs import (
    Conversation,
    DoneToken,
    Session,
    SessionError,
    Speaker,
    chat,
    converse,
    stream,
)
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.shape_help import play


@tool
def send() -> str:
    """Send a message."""
    return "Sent."


@tool
def asks() -> str:
    """Ask a person."""
    return str(interrupt("Sure?"))


TOOLS = [send, asks]


def call(name: str, number: int = 0, **args: Any) -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=f"{name}-{number}")


def says(*texts: str) -> Reply:
    """Return a reply that sends texts by its calls."""
    made = (call("send", number, to_user=text) for number, text in enumerate(texts))
    return Reply(tool_calls=tuple(made))


CLERK = Speaker("Clerk", tools=["send"], speaks_with_tool_calls=True)


def talk(clerk: Speaker = CLERK, **end: Any) -> Conversation:
    speakers = [clerk, Speaker("Ann"), Speaker("Bob")]
    return Conversation("Add up.", speakers, end_chat={"max_iterations": 1} | end)


@pytest.mark.parametrize("blank", ["", " \n", "<think>All is said.</think>"])
@pytest.mark.parametrize("texts", [["It is 4."], ["It is 4.", "Surely."]])
def test_a_speaker_that_says_all_by_its_calls_is_not_asked_again(
    blank: str, texts: list[str]
) -> None:
    """The text of the calls is the reply, and the others hear it once."""
    result, model = play(talk(), [says(*texts), blank, "I see.", "Well."], tools=TOOLS)
    said = "\n\n".join(texts)
    assert result.transcript == [("Clerk", said), ("Ann", "I see."), ("Bob", "Well.")]
    assert [one.speaker for one in model.calls] == ["Clerk", "Clerk", "Ann", "Bob"]
    assert str(model.calls[2].prompt).count("It is 4.") == 1
    assert str(model.calls[3].prompt).count("It is 4.") == 1


def test_texts_of_several_rounds_are_one_reply() -> None:
    script: list[Line] = [says("One moment."), says("It is 4."), "", "I see.", "Well."]
    result, _ = play(talk(), script, tools=TOOLS)
    said = [text for _, text in result.transcript]
    assert said == ["One moment.", "It is 4.", "I see.", "Well."]


def test_the_output_and_the_ends_read_the_text_of_the_calls() -> None:
    end: dict[str, Any] = {"when": DoneToken("DONE"), "allow_unanswered_end": True}
    result, _ = play(talk(**end), [says("It is 4.\nDONE"), ""], tools=TOOLS)
    assert result.stop_reason == "done_token"
    assert result.output == "It is 4."


def test_a_blank_reply_after_a_tool_that_delivers_nothing_is_asked_for_again() -> None:
    first = Reply(text="Let me look.", tool_calls=(call("send"),))
    result, _ = play(talk(), [first, "", "It is 4.", "I see.", "Well."], tools=TOOLS)
    assert [text for _, text in result.transcript][:2] == ["Let me look.", "It is 4."]


def test_a_stream_says_the_text_of_the_calls_once() -> None:
    model = ScriptedChatModel([says("It is 4."), "", "I see.", "Well."])
    events = list(stream(talk(), model=model, tools=TOOLS, store="memory:"))
    said = [one.text for one in events if isinstance(one, MessageSaid)]
    assert said == ["It is 4.", "I see.", "Well."]


def agent(*messages: AIMessage | ToolMessage) -> Any:  # noqa: ANN401  # a compiled graph
    """Return an agent that replies with these messages."""
    graph = StateGraph(MessagesState)
    graph.add_node("only", lambda _: {"messages": [*messages]})
    graph.add_edge(START, "only")
    graph.add_edge("only", END)
    return graph.compile(name="only")


def asked(text: str = "") -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": "send", "args": {}, "id": "1"}])


def sent(text: str, **more: Any) -> ToolMessage:
    return ToolMessage(text, tool_call_id="1", name="send", **more)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([asked(), sent("It is 4."), AIMessage("")], "It is 4."),
        ([asked(), sent("It is 4."), AIMessage("<think>Done.</think>")], "It is 4."),
        ([asked("It is 4."), sent("Sent."), AIMessage("")], "It is 4."),
        ([asked(), sent("It is 4.")], "It is 4."),
        ([asked(), sent("It is 4."), AIMessage("Four.")], "Four."),
        ([asked(), sent("No.", status="error"), AIMessage("")], ""),
    ],
)
def test_an_agent_with_a_blank_last_message_says_what_its_tool_delivered(
    messages: list[Any], text: str
) -> None:
    clerk = Speaker("Clerk", replies=[agent(*messages)])
    model: ScriptedChatModel = ScriptedChatModel(["I see.", "Well."])
    result = converse(talk(clerk), model=model, store=f"memory:{uuid4().hex}")
    assert result.transcript == [("Clerk", text), ("Ann", "I see."), ("Bob", "Well.")]


NOT_RUN = "Not run: User sent a message instead."
UNKNOWN = "Result unknown: User sent a message instead."


@pytest.mark.parametrize(
    ("calls", "options", "results"),
    [
        ([call("send")], {"interrupt_on": {"send": True}}, [NOT_RUN]),
        ([call("asks"), call("send")], {"interrupt_on": {"send": True}}, [NOT_RUN] * 2),
        ([call("asks")], {}, [UNKNOWN]),
        ([call("asks"), call("other")], {}, [UNKNOWN, NOT_RUN]),
        (
            [call("asks"), ScriptedToolCall(name="send", args="{", id="broken")],
            {},
            [UNKNOWN, NOT_RUN],
        ),
    ],
)
def test_a_call_that_cannot_have_run_is_reported_as_not_run(
    calls: list[ScriptedToolCall], options: dict[str, Any], results: list[str], tmp_path: Path
) -> None:
    """The error for the option `message` names the method that takes the message."""
    store = f"sqlite:///{tmp_path / 'talks.db'}"
    spec = chat("Add up.", assistant="Clerk", tools=TOOLS, **options)
    model = ScriptedChatModel([Reply(tool_calls=tuple(calls)), "As you wish."])
    given: dict[str, Any] = {"model": model, "session": "s", "store": store}
    converse(spec, **given)
    with pytest.raises(SessionError, match=r"waits for another answer.*Session\.add_message"):
        converse(spec, message="Never mind.", **given)
    session = Session("s", store=store)
    session.add_message("User", "Never mind.")
    session.resume(model=model, tools=TOOLS)
    read = [one.text for one in model.calls[-1].messages if isinstance(one, ToolMessage)]
    assert read == results


def test_a_rejected_call_is_reported_as_not_run(tmp_path: Path) -> None:
    """A person rejects one call, and another call asks a question."""
    store = f"sqlite:///{tmp_path / 'talks.db'}"
    spec = chat("Add up.", assistant="Clerk", tools=TOOLS, interrupt_on={"send": True})
    calls: list[Line] = [Reply(tool_calls=(call("send"), call("asks"))), "As you wish."]
    model = ScriptedChatModel(calls)
    converse(spec, model=model, session="s", store=store)
    session = Session("s", store=store)
    given: dict[str, Any] = {"model": model, "tools": TOOLS}
    session.answer({"decisions": [{"type": "reject"}]}, **given)
    session.add_message("User", "Never mind.")
    session.resume(**given)
    read = [one.text for one in model.calls[-1].messages if isinstance(one, ToolMessage)]
    assert read == [NOT_RUN, UNKNOWN]
