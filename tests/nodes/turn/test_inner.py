"""Inner conversations: as the source of a speaker's replies, and as a tool."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from openai import BadRequestError
from pydantic import BaseModel

from duologue.graphs import (
    AnswerError,
    ApprovalQuestion,
    Conversation,
    DoneToken,
    MaxCalls,
    MaxCost,
    MaxTokens,
    MessageQuestion,
    ModelError,
    Price,
    Result,
    SchemaFormat,
    Session,
    SessionError,
    SpecError,
    aconverse,
    as_tool,
    build_graph,
    converse,
    list_sessions,
    load_conversation,
    load_session,
)
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import Source, fields_of
from support.results import StoredSession, outcome_of
from support.shape_help import play

YES = {"name": "Bob", "replies": [{"kind": "text", "text": "Yes."}]}
ASKS = {"name": "Bob", "replies": [{"kind": "text", "text": "Do it."}]}


def inner(*, rounds: int = 1, **fields: Any) -> Conversation:
    """Return a conversation of two models."""
    given = {"task": "Think.", "speakers": [{"name": "Iris"}, {"name": "Jay"}]}
    return Conversation(**{**given, "end_chat": {"max_iterations": rounds}, **fields})


INTERVIEW = inner(speakers=[{"name": "Pat", "replies": ["human"]}, {"name": "Jay"}], rounds=2)


def outer(reply: Any, *, rounds: int = 1, **fields: Any) -> Conversation:  # noqa: ANN401
    """Return a conversation of Bob, who asks, and Ann, who replies by a conversation."""
    end_chat = {"max_iterations": rounds, **fields.pop("end_chat", {})}
    ann = {"name": "Ann", "replies": [reply]}
    return Conversation(
        **{"task": "Plan.", "speakers": [ASKS, ann], "end_chat": end_chat, **fields}
    )


def calling(*tools: Any, **fields: Any) -> Conversation:
    """Return a conversation of Ann, who may call tools, and Bob, who agrees."""
    ann = {"name": "Ann", "tools": tools}
    end_chat = {"max_iterations": 1, **fields.pop("end_chat", {})}
    return Conversation(**{"task": "Plan.", "speakers": [ann, YES], "end_chat": end_chat, **fields})


def call(name: str = "research", number: int = 1, **args: Any) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=name, args=args, id=f"c{number}")])


def kinds(messages: Any) -> list[str]:  # noqa: ANN401
    return [fields_of(one).kind for one in messages]


def both(
    as_a_tool: bool, inside: Conversation, *, tools: Sequence[Any] = (), **args: Any
) -> tuple[Conversation, list[Any], list[Line]]:
    """Return a conversation that runs another one, its tools, and the replies before the run."""
    if not as_a_tool:
        return outer(inside), [*tools], []
    tool = as_tool(inside, name="research")
    return calling(tool), [*tools, tool], [call(**args)]


def calls_of(result: StoredSession) -> int:
    """Return the number of model calls that a session has counted."""
    return sum(one.calls for one in outcome_of(result).usage.values())


# As a speaker.


def test_a_speaker_replies_by_an_inner_conversation() -> None:
    result, model = play(outer(inner(), rounds=2), ["One.", "Two.", "Three.", "Four."])
    assert result.transcript == [
        *[("Bob", "Do it."), ("Ann", "Two.")],
        *[("Bob", "Do it."), ("Ann", "Four.")],
    ]
    assert result.output == "Four."
    tasks = [one.prompt[0]["content"].partition("The task: ")[2] for one in model.calls]
    second = "Bob: Do it.\n\nAnn: Two.\n\nBob: Do it."
    assert tasks == ["Do it.", "Do it.", second, second]
    assert sum(one.calls for one in outcome_of(result).usage.values()) == 4
    said = [one for one in result.messages if fields_of(one).speaker == "Ann"]
    assert kinds(said) == ["inner_session", "speech", "inner_session", "speech"]
    assert fields_of(said[1]).source is Source.CONVERSATION


def test_the_task_of_an_inner_conversation_describes_files() -> None:
    me = {"name": "Bob", "replies": ["human"]}
    ann = {"name": "Ann", "replies": [inner()]}
    talk = Conversation(speakers=[me, ann], task="Plan.", end_chat={"max_iterations": 1})
    picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
    said: list[Any] = [{"type": "text", "text": "Where is it?"}, picture]
    model = ScriptedChatModel(["Here.", "There."])
    converse(talk, model=model, store=f"memory:{uuid4().hex}", answer=lambda _: said)
    assert "The task: Where is it?\n[image, 8 bytes]" in model.calls[0].messages[0].text


def test_a_failure_inside_is_resumed_inside() -> None:
    store = f"memory:{uuid4()}"
    model = ScriptedChatModel(script=["One.", Reply(error=400, message="no")])
    with pytest.raises(BadRequestError):
        converse(outer(inner()), session="s", store=store, model=model)
    again = ScriptedChatModel(script=["Two."])
    result = Session("s", store=store).resume(model=again)
    assert result.transcript == [("Bob", "Do it."), ("Ann", "Two.")]
    assert len(again.calls) == 1
    assert calls_of(result) == 2


# People inside.


@pytest.mark.parametrize("as_a_tool", [False, True])
def test_a_person_inside_is_asked_by_the_outer_session(as_a_tool: bool) -> None:
    store = f"memory:{uuid4()}"
    talk, tools, first = both(as_a_tool, INTERVIEW, message="Beans?")
    model = ScriptedChatModel(script=[*first, "One."])
    result = converse(talk, session="s", store=store, model=model)
    (question,) = result.pending
    assert isinstance(question, MessageQuestion)
    assert question.speaker == "Pat"
    assert question.heard == "One."
    with pytest.raises(AnswerError):
        result.session.answer(3, model=model, tools=tools)
    rest = ScriptedChatModel(script=["Two.", *(["Done."] if as_a_tool else [])])
    result = Session("s", store=store).answer("Peas?", model=rest, tools=tools)
    assert result.pending == ()
    said = result.transcript
    assert said == (
        [("Ann", "Done."), ("Bob", "Yes.")] if as_a_tool else [("Bob", "Do it."), ("Ann", "Two.")]
    )
    (found,) = result.inner_sessions.values()
    assert found.transcript == [
        ("Pat", "Beans?" if as_a_tool else "Do it."),
        *[("Jay", "One."), ("Pat", "Peas?"), ("Jay", "Two.")],
    ]


# Limits, usage and ends.


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(MaxCalls(3), "max_calls"), (MaxTokens(30), "max_tokens"), (MaxCost(3e-5), "max_cost")],
)
@pytest.mark.parametrize("as_a_tool", [False, True])
def test_a_hard_limit_of_the_outer_conversation_stops_the_inner_one(
    limit: Any,  # noqa: ANN401
    reason: str,
    as_a_tool: bool,
) -> None:
    talk, _, first = both(as_a_tool, inner(rounds=50), task="Beans.")
    prices = {"ScriptedChatModel": Price(input=1, output=1)}
    talk = talk.replace(end_chat={"when": limit, "max_iterations": 1}, prices=prices)
    model = ScriptedChatModel(script=[*first, *["Some words."] * 20])
    result = converse(talk, store="memory:", model=model)
    assert result.stop_reason == reason
    assert len(model.calls) <= 4
    assert calls_of(result) == len(model.calls)
    (found,) = result.inner_sessions.values()
    assert found.stop_reason == reason


def test_a_hard_limit_of_one_speaker_stops_its_inner_conversation() -> None:
    model = ScriptedChatModel(script=["Some words."] * 9)
    talk = outer(inner(rounds=9), end_chat={"when": MaxCalls(3, by="Ann")})
    result = converse(talk, store="memory:", model=model)
    assert result.stop_reason == "max_calls"
    assert calls_of(result) == len(model.calls) == 3


def test_the_inner_conversation_has_its_own_limits() -> None:
    bounded = inner(rounds=50, end_chat={"max_iterations": 50, "when": MaxCalls(2)})
    result, _ = play(outer(bounded), ["One.", "Two."])
    assert result.stop_reason == "max_iterations"
    (found,) = result.inner_sessions.values()
    assert found.stop_reason == "max_calls"


def test_a_failure_inside_is_a_sentence_for_the_speaker_that_called_the_tool() -> None:
    tool = as_tool(inner(), name="research")
    model = ScriptedChatModel(
        script=[call(task="Beans."), "One.", Reply(error=400, message="no"), "Done."]
    )
    result = converse(calling(tool), store="memory:", model=model)
    assert result.transcript == [("Ann", "Done."), ("Bob", "Yes.")]
    (told,) = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert told.status == "error"
    assert told.text == "research failed: BadRequestError: Error code: 400 - no"
    assert calls_of(result) == 3


@pytest.mark.exhaustive
def test_a_call_that_takes_too_long_is_stopped_and_its_calls_count() -> None:
    tool = as_tool(inner(), name="research")
    tool.metadata = {"timeout": 1.0}
    model = ScriptedChatModel(
        script=[call(task="Beans."), "One.", Reply(text="Late.", delay=60), "Done."]
    )
    result = converse(calling(tool), store="memory:", model=model)
    (told,) = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert told.text == "research failed: it took longer than 1 s and was stopped"
    assert result.transcript[0] == ("Ann", "Done.")
    assert calls_of(result) == 3


@pytest.mark.exhaustive
def test_an_inner_conversation_without_an_output_is_an_error() -> None:
    silent = inner(
        speakers=[{"name": "Iris", "replies": [{"kind": "text", "text": "DONE"}]}, {"name": "Jay"}],
        end_chat={"when": {"kind": "done_token", "token": "DONE"}, "allow_unanswered_end": True},
    )
    with pytest.raises(ModelError, match="inner conversation of 'Ann' has ended without an output"):
        converse(outer(silent), store="memory:")
    result, _ = play(calling(as_tool(silent, name="research")), [call(task="Beans."), "Done."])
    (told,) = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert told.text.startswith("research failed: its conversation has ended without an output: ")


@pytest.mark.exhaustive
async def test_a_stop_request_ends_the_inner_conversation_too() -> None:
    store = f"memory:{uuid4()}"

    def answer(prompt: Prompt) -> str:
        if len(model.calls) == 2:
            Session("s", store=store).stop()
        return "Words."

    model = ScriptedChatModel(script=answer)
    talk = outer(inner(rounds=9), rounds=9)
    result = await aconverse(talk, session="s", store=store, model=model)
    assert result.stop_reason == "stop_requested"
    (found,) = result.inner_sessions.values()
    assert found.stop_reason == "stop_requested"
    assert len(model.calls) == 2


class Plan(BaseModel):
    steps: list[str]


@pytest.mark.exhaustive
def test_structured_output_is_the_value_of_the_outer_message() -> None:
    planner = inner(
        speakers=[
            {"name": "Iris"},
            {"name": "Jay", "format": SchemaFormat(Plan), "writes_output": True},
        ],
    )
    result, _ = play(outer(planner), ["Plan it.", '{"steps": ["dig", "sow"]}'])
    assert result.output == {"steps": ["dig", "sow"]}
    assert result.parsed("Ann") == [{"steps": ["dig", "sow"]}]


@pytest.mark.exhaustive
@pytest.mark.parametrize("as_a_tool", [False, True])
def test_tool_calls_inside_wait_for_approval(as_a_tool: bool) -> None:
    def water(place: str) -> str:
        """Water a place."""
        return f"{place} is wet"

    gardener = {"name": "Iris", "tools": [water], "interrupt_on": {"water": True}}
    careful = inner(speakers=[gardener, {"name": "Jay"}])
    talk, tools, first = both(as_a_tool, careful, tools=[water], task="Beans.")
    model = ScriptedChatModel([*first, call("water", 2, place="Bed"), "Done.", "Two.", "Three."])
    result = converse(talk, store=f"memory:{uuid4()}", model=model)
    (question,) = result.pending
    assert isinstance(question, ApprovalQuestion)
    approve = {"decisions": [{"type": "approve"}]}
    result = result.session.answer(approve, model=model, tools=tools)
    assert result.stop_reason == "max_iterations"
    (found,) = result.inner_sessions.values()
    assert [one.text for one in found.messages if isinstance(one, ToolMessage)] == ["Bed is wet"]


# Reading, copying and deleting.


def nested_session(store: str | Path) -> Result:
    """Run a conversation of three levels: a tool whose conversation has an inner speaker."""
    middle = inner(speakers=[{"name": "Max", "replies": [inner()]}, {"name": "Mia"}])
    tool = as_tool(middle, name="research")
    model = ScriptedChatModel(
        script=[call(task="Beans."), "One.", "Two.", "Three.", "Final <b>word</b>."]
    )
    return converse(calling(tool), session="s", store=store, model=model)


def test_an_inner_session_is_read_by_its_own_id(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    result = nested_session(store)
    assert [*result.inner_sessions] == ["s.m0002"]
    middle = Session("s.m0002", store=store).state()
    assert middle.transcript == [("Max", "Two."), ("Mia", "Three.")]
    assert [*middle.inner_sessions] == ["s.m0002.m0001"]
    inmost = Session("s.m0002.m0001", store=store)
    assert inmost.state().transcript == [("Iris", "One."), ("Jay", "Two.")]
    assert "Two." in inmost.export("markdown")
    assert "Two." in inmost.export("html")
    with pytest.raises(SessionError, match=r"There is no session 's.m0003'"):
        Session("s.m0003", store=store).state()
    assert [row.session for row in list_sessions(store=store)] == ["s"]


def test_pages_and_events_lead_into_an_inner_session(tmp_path: Path) -> None:
    result = nested_session(tmp_path / "s.db")
    note = "Inner conversation of Ann, 2 messages: Ended after 1 round and 2 messages"
    markdown = result.session.export("markdown")
    html = result.session.export("html")
    for page in (markdown, html):
        assert note in page
        assert "Max: Two." in page
    assert '<details class="f-inner"><summary>Inner messages</summary>' in html
    # The memory of a speaker contains no inner session.
    assert "Max: Two." not in result.session.export("markdown", speaker="Bob")
    # Nobody hears a record, and clients of a graph do not get it as a message.
    assert all("Max" not in one.text for one in result.viewpoint("Ann"))


@pytest.mark.exhaustive
def test_why_names_the_inner_session_that_led_to_the_last_message() -> None:
    model = ScriptedChatModel(script=["One.", "It is DONE"])
    talk = outer(inner(), rounds=5, end_chat={"when": DoneToken("DONE", match="anywhere")})
    result = converse(talk, store="memory:", model=model)
    assert result.stop_reason == "done_token"
    assert [one.kind.value for one in result.why()] == ["inner", "said", "reason"]


def test_forks_and_dumps_take_inner_sessions_along(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    result = nested_session(store)
    (wanted,) = result.inner_sessions.values()
    fork = result.session.fork(at=result.messages[-1], into="f").state()
    assert fork.inner_sessions["f.m0002"].messages == wanted.messages
    copy = load_session(result.session.dump(), store="memory:", into="t").state()
    assert copy.inner_sessions["t.m0002"].messages == wanted.messages
    assert copy.outcome == result.outcome


@pytest.mark.exhaustive
def test_a_deleted_session_leaves_nothing_of_its_inner_sessions(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    result = nested_session(store)
    result.session.delete()
    with sqlite3.connect(store) as opened:
        for table in ("checkpoints", "writes"):
            ((count,),) = opened.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
            assert count == 0


@pytest.mark.exhaustive
def test_an_inner_session_in_a_dump_is_checked_when_it_is_loaded() -> None:
    result, _ = play(outer(inner()), ["One.", "Two."])
    dump = result.session.dump()
    lines = [line for step in dump["steps"] for line in step.get("messages", ())]
    (about,) = [line["metadata"] for line in lines if line["metadata"]["kind"] == "inner_session"]
    about["log"][0]["data"]["additional_kwargs"]["duologue"]["kind"] = "unknown"
    with pytest.raises(SpecError, match=r"messages.0.metadata: is not an inner session: .*unknown"):
        load_session(dump, store="memory:", into="t")


# Files, and errors before a model is called.

TALK = """
task = "Plan."
end_chat = {{ max_iterations = 1 }}
[[speakers]]
name = "Ann"
replies = [{{ kind = "conversation", conversation = {inner} }}]
[[speakers]]
name = "Bob"
replies = [{{ kind = "text", text = "Yes." }}]
"""
SHORT = 'kind = "role_play"\ntask = "Sow."\nuser_role = "Owner"\nassistant_role = "Gardener"\n'


def test_a_file_contains_an_inner_conversation_or_its_path(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "garden.toml").write_text(SHORT)
    table = "{ " + ", ".join(SHORT.splitlines()) + " }"
    talks = []
    for number, inside in enumerate(('"parts/garden.toml"', table)):
        path = tmp_path / f"talk{number}.toml"
        path.write_text(TALK.format(inner=inside))
        talks.append(load_conversation(path))
    garden = load_conversation(tmp_path / "parts" / "garden.toml")
    assert talks[0] == talks[1]
    (reply,) = talks[0].stored()["speakers"][0]["replies"]
    assert load_conversation(reply["conversation"]) == garden
    (tmp_path / "copy.toml").write_text(talks[0].to_toml())
    assert load_conversation(tmp_path / "copy.toml") == talks[0]


def test_a_file_that_contains_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(TALK.format(inner='"two.toml"'))
    (tmp_path / "two.toml").write_text(TALK.format(inner='"one.toml"'))
    with pytest.raises(SpecError, match=r"one.toml: the conversation contains itself; name anoth"):
        load_conversation(tmp_path / "one.toml")
    (tmp_path / "two.toml").write_text(TALK.format(inner='"none.toml"'))
    with pytest.raises(SpecError, match=r"none.toml: can't be read"):
        load_conversation(tmp_path / "one.toml")


def test_a_path_is_read_only_for_a_file() -> None:
    talk = {"kind": "conversation", "conversation": "/etc/passwd"}
    with pytest.raises(SpecError, match="must be a conversation, which load_conversation reads"):
        load_conversation(
            outer("model").stored() | {"speakers": [{"name": "A", "replies": [talk]}]}
        )


def test_a_conversation_that_calls_itself_by_a_tool_is_refused() -> None:
    own = calling("research")
    other = calling("first")
    for tools, at in (
        ([as_tool(own, name="research")], "speakers.0.tools.research"),
        (
            [as_tool(own, name="first"), as_tool(other, name="research")],
            "speakers.0.tools.research.speakers.0.tools.first",
        ),
    ):
        with pytest.raises(SpecError, match=f"^{at}: the conversation contains itself; remove"):
            converse(own, store="memory:", tools=tools)


@pytest.mark.exhaustive
def test_conversations_can_be_nested_only_so_deep() -> None:
    found = inner()
    for _ in range(4):
        found = outer(found)
    with pytest.raises(SpecError, match="nested too deeply; use at most 5 levels"):
        outer(found)


@pytest.mark.parametrize("as_a_tool", [False, True])
def test_what_the_inner_conversation_names_is_checked_first(as_a_tool: bool) -> None:
    model = ScriptedChatModel(script=[])
    for fields, words in (
        ({"speakers": [{"name": "Iris", "tools": ["nosuch"]}, {"name": "Jay"}]}, "no tool 'nosuch"),
        ({"end_chat": {"when": MaxCost(1)}}, "has no price"),
    ):
        talk, *_ = both(as_a_tool, inner(**fields))
        at = "tools.research" if as_a_tool else "replies.0.conversation"
        with pytest.raises(SpecError, match=f"{at}.*{words}"):
            converse(talk, store="memory:", model=model)
    assert model.calls == []


@pytest.mark.parametrize("as_a_tool", [False, True])
def test_a_server_refuses_an_inner_conversation_without_a_sandbox(as_a_tool: bool) -> None:
    speakers = [{"name": "Iris", "replies": ["code"]}, {"name": "Jay"}]
    bare = inner(speakers=speakers, sandbox={"level": "host"})
    tool = as_tool(bare, name="research")
    talk = calling("research") if as_a_tool else outer(bare)
    graph = build_graph(tools=[tool], model=ScriptedChatModel(script=[]))
    with pytest.raises(SpecError, match=r"sandbox.level: 'host' is not allowed here"):
        graph.invoke({"conversation": talk.stored()})


# Graphs and agents.


@pytest.mark.parametrize("as_a_tool", [False, True])
async def test_a_graph_of_a_server_runs_and_asks_inside(as_a_tool: bool) -> None:
    talk, _, first = both(as_a_tool, INTERVIEW, message="Beans?")
    model = ScriptedChatModel(script=[*first, "One.", "Two.", "Done."])
    graph = build_graph(conversation=talk, model=model, checkpointer=InMemorySaver())
    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    found = await graph.ainvoke({}, thread)
    (asked,) = found["__interrupt__"]
    assert asked.value["speaker"] == "Pat"
    # An answer that does not fit is asked for again.
    found = await graph.ainvoke(Command(resume=3), thread)
    (asked,) = found["__interrupt__"]
    assert "does not fit" in asked.value["problem"]
    found = await graph.ainvoke(Command(resume="Peas?"), thread)
    texts = [one.text for one in found["messages"] if one.text]
    assert texts[-2:] == (["Done.", "Yes."] if as_a_tool else ["Do it.", "Two."])
    assert found["outcome"]["reasons"] == ["max_iterations"]


@pytest.mark.exhaustive
def test_a_sync_run_of_a_graph_runs_the_inner_conversation() -> None:
    model = ScriptedChatModel(script=["One.", "Two."])
    graph = build_graph(conversation=outer(inner()), model=model, checkpointer=InMemorySaver())
    found = graph.invoke({}, {"configurable": {"thread_id": "t"}})
    assert found["messages"][-1].text == "Two."


async def test_an_agent_calls_a_conversation_and_passes_on_its_question() -> None:
    inside = ScriptedChatModel(script=["One.", "Two."])
    tool = as_tool(INTERVIEW, name="research", model=inside)
    model = ScriptedChatModel(script=[call(message="Beans?"), "Done."])
    agent: Any = create_agent(model, [tool], checkpointer=InMemorySaver())
    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    found = await agent.ainvoke({"messages": [("user", "Go.")]}, thread)
    (asked,) = found["__interrupt__"]
    assert asked.value["heard"] == "One."
    found = await agent.ainvoke(Command(resume="Peas?"), thread)
    assert [one.text for one in found["messages"]] == ["Go.", "", "Two.", "Done."]
    assert len(inside.calls) == 2
    assert tool.invoke({"message": "Hi"}).startswith("research failed: ")


@pytest.mark.exhaustive
def test_a_failure_inside_is_a_result_for_an_agent() -> None:
    tool = as_tool(inner(), name="research", model=ScriptedChatModel(script=[Reply(error=400)]))
    agent: Any = create_agent(ScriptedChatModel(script=[call(task="Beans."), "Done."]), [tool])
    found = agent.invoke({"messages": [("user", "Go.")]})
    (told,) = [one for one in found["messages"] if isinstance(one, ToolMessage)]
    assert told.status == "error"
    assert told.text.startswith("research failed: ")
