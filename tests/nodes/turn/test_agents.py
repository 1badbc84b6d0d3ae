"""R: a user's own agents as speakers: compiled graphs and other Runnables."""

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    wrap_model_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, SecretStr
from typing_extensions import TypedDict

from duologue.graphs import (
    AgentError,
    AgentReply,
    AnswerError,
    ApprovalQuestion,
    Conversation,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxTokens,
    Result,
    Session,
    SpecError,
    ToolQuestion,
    aconverse,
    converse,
    load_conversation,
    stream,
)
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import Source, fields_of
from support.results import outcome_of, reason_of

YES = {"name": "Bob", "replies": [{"kind": "text", "text": "Yes."}]}
APPROVE = {"decisions": [{"type": "approve"}]}


def talk(agent: Any, *, rounds: int = 1, **fields: Any) -> Conversation:  # noqa: ANN401
    """Return a conversation of Ann, who speaks by an agent, and Bob, who agrees."""
    ann = {"name": "Ann", "replies": [agent], **fields.pop("ann", {})}
    end_chat = {"max_iterations": rounds, **fields.pop("end_chat", {})}
    given = {"task": "Plan a garden.", "speakers": [ann, YES], "end_chat": end_chat}
    return Conversation.model_validate({**given, **fields})


def said(agent: Any, **options: Any) -> list[str]:  # noqa: ANN401
    """Return Ann's messages."""
    rounds = options.pop("rounds", 1)
    result = converse(talk(agent, rounds=rounds), **({"store": "memory:"} | options))
    return [text for name, text in result.transcript if name == "Ann"]


def graph(*nodes: Any, state: Any = MessagesState, **options: Any) -> Any:  # noqa: ANN401
    """Compile a graph of nodes in a row."""
    builder = StateGraph(state)
    builder.add_sequence([(f"node_{number}", node) for number, node in enumerate(nodes)])
    builder.add_edge(START, "node_0")
    builder.add_edge(f"node_{len(nodes) - 1}", END)
    return builder.compile(**{"name": "plain"} | options)


def says(text: str) -> dict[str, Any]:
    return {"messages": [AIMessage(text)]}


def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def searches(prompt: Prompt) -> str | Reply:
    """Search twice, then report the results."""
    found = 0
    for message in reversed(prompt):
        if message["role"] == "user":
            break
        found += message["role"] == "tool"
    if found == 2:
        return f"It {prompt[-1]['content']}."
    args = {"query": f"beans {found}"}
    return Reply(tool_calls=[ScriptedToolCall(name="search", args=args, id=f"c{found}")])


def researcher(*middleware: Any, **options: Any) -> tuple[Any, ScriptedChatModel]:
    """Return a LangChain agent that searches twice in each turn."""
    model = ScriptedChatModel(script=searches)
    given = {"name": "researcher", "middleware": middleware} | options
    return create_agent(model, [search], **given), model


# Agents as objects and by name.


def test_as_data_there_are_names_alone(tmp_path: Path) -> None:
    """R: a file that names the registered agents means the same conversation."""
    agent, _ = researcher()
    plain = graph(lambda state: says("By a graph."))
    made = Conversation(
        task="Plan.",
        speakers=({"name": "Ann", "replies": [agent]}, {"name": "Bob", "replies": [plain]}),
        end_chat={"max_iterations": 2},
    )
    assert made.stored()["speakers"] == [
        {"name": "Ann", "replies": [{"kind": "agent", "name": "researcher"}]},
        {"name": "Bob", "replies": [{"kind": "agent", "name": "plain"}]},
    ]
    assert made.speakers[0].replies == (AgentReply("researcher"),)
    (tmp_path / "talk.toml").write_text(made.to_toml())
    assert load_conversation(tmp_path / "talk.toml") == made
    agents: Any = {"researcher": agent, "plain": plain}
    by_name = converse(tmp_path / "talk.toml", store="memory:", agents=agents)
    by_itself = converse(made, store="memory:")
    assert (
        by_name.transcript
        == by_itself.transcript
        == 2
        * [
            ("Ann", "It found beans 1."),
            ("Bob", "By a graph."),
        ]
    )
    assert {fields_of(one).source for one in by_name.messages if one.type == "ai"} == {Source.AGENT}


def test_two_agents_need_two_names() -> None:
    """R."""
    one, two = (graph(lambda state: says("x")) for _ in range(2))
    speakers = [{"name": "Ann", "replies": [one]}, {"name": "Bob", "replies": [two]}]
    made = Conversation(task="x", speakers=speakers)
    with pytest.raises(SpecError, match="two different agents are named 'plain'; give each"):
        converse(made, store="memory:")


class NoMessages(TypedDict):
    question: str


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (graph(lambda state: {}, checkpointer=True), "is compiled with checkpointer=True; remov"),
        (graph(lambda state: {}, checkpointer=False), "is compiled with checkpointer=False; re"),
        (graph(lambda state: {}, state=NoMessages), "is a graph without messages in its state; a"),
    ],
)
def test_what_can_not_speak_is_refused_before_it_begins(agent: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError, match=f"^speakers.0.replies.0.name: 'plain' {words}"):
        said(agent)
    with pytest.raises(SpecError, match=f"^agents: 'other' {words}"):
        said({"kind": "agent", "name": "other"}, agents={"other": agent.with_retry()})


# Inputs and outputs of agents.


def test_it_is_given_what_a_model_would_be_sent() -> None:
    """R: it gets the system prompt and both sides' messages; a graph starts new in each turn."""
    given: list[list[tuple[str, str]]] = []

    def note(state: MessagesState) -> dict[str, Any]:
        given.append([(one.type, one.text) for one in state["messages"]])
        return says(f"Answer {len(given)}.")

    own = graph(note, checkpointer=InMemorySaver())
    assert said(own, rounds=2) == ["Answer 1.", "Answer 2."]
    system = "You are Ann, in a conversation with Bob. Write only your own next message."
    begun = [("system", f"{system}\n\nThe task: Plan a garden."), ("human", "Please begin.")]
    assert given == [begun, [*begun, ("ai", "Answer 1."), ("human", "Yes.")]]


class Plan(BaseModel):
    steps: str


CALL = Reply(tool_calls=[ScriptedToolCall(name="Plan", args={"steps": "Sow."}, id="1")])
PROMPT = ChatPromptTemplate.from_messages([("system", "Plan."), MessagesPlaceholder("messages")])


@entrypoint()
async def functional(messages: list[Any]) -> str:
    return f"{len(messages)} messages."


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("agent", "text"),
    [
        pytest.param(RunnableLambda(lambda heard: f"{len(heard)}!"), "2!", id="text"),
        pytest.param(RunnableLambda(lambda _: AIMessage("Hi.")), "Hi.", id="message"),
        pytest.param(RunnableLambda(lambda _: says("Hi.")), "Hi.", id="state"),
        pytest.param(
            RunnableLambda(lambda _: {"messages": [{"role": "assistant", "content": "Hi."}]}),
            "Hi.",
            id="plain-data",
        ),
        pytest.param(
            RunnableLambda(lambda _: AIMessage("<think>So.</think>Hi.")), "Hi.", id="thinks"
        ),
        pytest.param(ScriptedChatModel(script=["Hi."]), "Hi.", id="model"),
        pytest.param(PROMPT | ScriptedChatModel(script=["Hi."]), "Hi.", id="chain-of-state"),
        pytest.param(functional, "2 messages.", id="functional"),
        pytest.param(graph(lambda state: says("Hi.")).with_retry(), "Hi.", id="bound"),
    ],
)
def test_it_may_give_text_a_message_or_a_state(agent: Runnable[Any, Any], text: str) -> None:
    """R."""
    assert said(agent) == [text]


def test_a_structured_response_is_read() -> None:
    agent = create_agent(
        ScriptedChatModel(script=[CALL]), response_format=ToolStrategy(Plan), name="planner"
    )
    result = converse(talk(agent), store="memory:")
    assert result.transcript[0] == ("Ann", '{"steps":"Sow."}')
    assert result.parsed("Ann") == [{"steps": "Sow."}]


CALLING = AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": "c"}])
LAMBDA, PLAIN = "'RunnableLambda' failed:", "'plain' failed in the turn of 'Ann':"


def exits(heard: object) -> str:
    raise SystemExit(3)


def fails(heard: object) -> str:
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (RunnableLambda(fails), "'fails' failed in the turn of 'Ann': ValueError: no luck"),
        (RunnableLambda(exits), "'exits' failed in the turn of 'Ann': SystemExit: 3"),
        (graph(fails), f"{PLAIN} ValueError: no luck"),
        (RunnableLambda(lambda _: 3), f"{LAMBDA} it must return text, a message,"),
        (graph(lambda _: {}), "'plain' failed: it must return a new message"),
        (
            RunnableLambda(lambda _: CALLING),
            f"{LAMBDA} it returned a call to the tool 'search'",
        ),
        (
            graph(lambda _: Command(graph=Command.PARENT, goto="x")),
            f"{PLAIN} it returned a Command",
        ),
        (graph(lambda _: interrupt(threading.Lock())), f"{PLAIN} its question cannot be stored"),
    ],
)
def test_whatever_goes_wrong_is_one_clear_error(agent: Any, words: str) -> None:  # noqa: ANN401
    # An agent that raises did not answer; one that returns another thing is not valid.
    kind = AgentError if ": no luck" in words or "SystemExit" in words else SpecError
    with pytest.raises(kind) as caught:
        said(agent)
    assert str(caught.value).startswith(f"the agent {words}")


def test_what_fails_goes_on_where_it_failed() -> None:
    """R: a graph, as a subgraph, resumes inside; any other agent runs again as a whole."""
    ran: list[str] = []

    def first(given: Any) -> dict[str, Any]:  # noqa: ANN401
        ran.append("first")
        return says("First.")

    def second(given: Any) -> dict[str, Any]:  # noqa: ANN401
        ran.append("second")
        if ran.count("second") == 1:
            raise OSError("no line")
        return says("Second.")

    chain = RunnableLambda(first) | RunnableLambda(second)
    for agent, expected in (
        (graph(first, second), ["first", "second", "second"]),
        (chain, ["first", "second", "first", "second"]),
    ):
        ran.clear()
        store, agents = f"memory:{uuid4()}", {"a": agent}
        made = talk({"kind": "agent", "name": "a"})
        with pytest.raises(AgentError, match="OSError: no line"):
            converse(made, session="s", store=store, agents=agents)
        resumed = Session("s", store=store).resume(agents=agents)
        assert resumed.transcript == [("Ann", "Second."), ("Bob", "Yes.")]
        assert ran == expected


@pytest.mark.exhaustive
def test_a_graph_has_its_own_limit_of_steps() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("node", lambda state: says("x"))
    builder.add_edge(START, "node")
    builder.add_conditional_edges(
        "node", lambda state: END if len(state["messages"]) > 300 else "node"
    )
    agent = builder.compile(name="long")
    assert said(agent) == ["x"]
    with pytest.raises(AgentError, match=r"'long' failed in .*Recursion limit of 5"):
        said(agent.with_config({"recursion_limit": 5}))


async def test_one_that_blocks_holds_up_nobody() -> None:
    """R: an agent that is not async runs in a thread."""
    meet = threading.Barrier(2, timeout=60)

    def wait(heard: object) -> str:
        meet.wait()
        return "Met."

    def both() -> Any:  # noqa: ANN401
        return aconverse(talk(RunnableLambda(wait)), store=f"memory:{uuid4()}")

    found = await asyncio.gather(both(), both())
    assert [one.transcript[0] for one in found] == 2 * [("Ann", "Met.")]


# Token usage of an agent's models.


def summarise(query: str) -> str:
    """Ask another model, inside of a tool."""
    return ScriptedChatModel(script=["one two three"]).invoke(query).text


def used(result: Result) -> tuple[int, int]:
    """Return the number of calls and of tokens."""
    parts = outcome_of(result).usage.values()
    calls = sum(part.calls for part in parts)
    return calls, sum(part.input_tokens + part.output_tokens for part in parts)


def test_what_its_models_and_its_tools_models_use_counts() -> None:
    """R: each call counts once, even if other callbacks listen."""
    told: list[int] = []

    class Listens(BaseCallbackHandler):
        def on_llm_end(self, response: LLMResult, **kwargs: object) -> None:
            told.append(response.generations[0][0].message.usage_metadata["total_tokens"])  # type: ignore[union-attr]

    call = ScriptedToolCall(name="summarise", args={"query": "a b"}, id="1")
    model = ScriptedChatModel(script=[Reply(tool_calls=[call]), "Well done."])
    agent = create_agent(model, [summarise], name="agent")
    result = converse(talk(agent), store="memory:", callbacks=[Listens()])
    assert used(result) == (len(told), sum(told))
    assert len(told) == 3


def test_what_a_remote_agent_tells_of_its_use_counts() -> None:
    """R: if no call is visible, the usage in the agent's messages counts."""
    usage: Any = {"input_tokens": 30, "output_tokens": 8, "total_tokens": 38}
    far: Any = RunnableLambda(lambda _: {"messages": [AIMessage("Hi.", usage_metadata=usage)]})
    assert used(converse(talk(far), store="memory:")) == (1, 38)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (MaxCost(limit=0.0001), "max_cost"),
        (MaxTokens(limit=60), "max_tokens"),
        (MaxCalls(limit=3), "max_calls"),
    ],
)
def test_a_budget_holds_after_the_turn_that_reaches_it(end: Any, reason: str) -> None:  # noqa: ANN401
    """R."""
    agent, _ = researcher()
    prices = {"ScriptedChatModel": {"input": 2, "output": 2}}
    made = talk(agent, rounds=9, end_chat={"when": end}, prices=prices)
    result = converse(made, store="memory:")
    assert (reason_of(result), result.transcript) == (
        reason,
        [("Ann", "It found beans 1.")],
    )
    assert (outcome_of(result).usage["ScriptedChatModel"].cost or 0) > 0


def test_a_model_without_a_price_is_refused_before_it_is_asked() -> None:
    """R: the error is raised even if the agent would catch it."""
    agent, model = researcher()
    made = talk(agent, prices={"gpt": {"input": 1, "output": 1}})
    for one in (made, talk(agent.with_fallbacks([graph(lambda _: says("x"))]), prices=made.prices)):
        with pytest.raises(SpecError, match="the model 'ScriptedChatModel', which the ag"):
            converse(one, store="memory:")
    assert model.calls == []


def test_without_prices_the_list_of_the_provider_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """R: they apply to a model at its own provider's address, and so does `max_cost`."""
    script = ScriptedChatModel(script=["Hello."] * 9)
    monkeypatch.setattr(ChatOpenAI, "_agenerate", script._agenerate)
    far = ChatOpenAI(model="gpt-4o", api_key=SecretStr("k"))
    dear: Any = {"rounds": 9, "end_chat": {"when": MaxCost(limit=0.000_001)}}
    result = converse(talk(far, **dear), store="memory:")
    assert (reason_of(result), len(result.transcript)) == ("max_cost", 1)
    near = ChatOpenAI(model="gpt-4o", api_key=SecretStr("k"), base_url="http://localhost:9/v1")
    with pytest.raises(SpecError, match=r"'gpt-4o', which .* has no price .max_cost needs a price"):
        converse(talk(near, **dear), store="memory:")


def test_middleware_applies() -> None:
    """R: LangChain's middleware works as in any agent."""

    @wrap_model_call
    async def polite(request: Any, handler: Any) -> Any:  # noqa: ANN401
        answer = await handler(request)
        return AIMessage(f"Please: {answer.result[0].text}") if answer.result[0].text else answer

    agent, _ = researcher(polite)
    assert said(agent) == ["Please: It found beans 1."]
    agent, _ = researcher(ModelCallLimitMiddleware(run_limit=1, exit_behavior="end"))
    assert said(agent, rounds=2) == 2 * ["Model call limits exceeded: run limit (1/1)"]


# Questions of agents.


def test_what_it_asks_is_a_question_of_the_session(tmp_path: Path) -> None:
    """R: any process can answer it; earlier usage counts, and no call is made twice."""
    agent, model = researcher(HumanInTheLoopMiddleware({"search": True}))
    store = tmp_path / "s.db"
    options: Any = {"agents": {"researcher": agent}}
    result = converse(talk(agent), session="s", store=store, **options)
    for number in range(2):
        (question,) = result.pending
        assert isinstance(question, ApprovalQuestion)
        assert question.action_requests[0]["args"] == {"query": f"beans {number}"}
        wrong: Any
        for wrong in ("exit", {"decisions": []}, {"decisions": [{"type": "maybe"}]}):
            with pytest.raises(AnswerError, match="the answer does not fit, and the"):
                Session("s", store=store).answer(wrong, **options)
        assert Session("s", store=store).resume(**options).pending == result.pending
        result = Session("s", store=store).answer(APPROVE, **options)
    assert result.transcript == [("Ann", "It found beans 1."), ("Bob", "Yes.")]
    assert used(result)[0] == len(model.calls) == 3


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_a_person_at_hand_answers_it(mode: Any) -> None:  # noqa: ANN401
    """R: an answer that does not fit is requested again."""
    agent, _ = researcher(HumanInTheLoopMiddleware({"search": True}, interrupt_mode=mode))
    asked: list[str | None] = []

    def answer(question: Any) -> Any:  # noqa: ANN401
        asked.append(question.problem and "again")
        if question.problem is None:
            return {"type": "no"}
        return APPROVE if mode == "batched" else {"type": "approve"}

    assert said(agent, answer=answer) == ["It found beans 1."]
    assert asked == [None, "again", None, "again"]


def asks_twice() -> Any:  # noqa: ANN401
    """Return a graph whose two nodes ask at once, and whose third repeats the answers."""
    builder = StateGraph(MessagesState)
    builder.add_node("bed", lambda _: {"messages": [HumanMessage(interrupt("Which bed?"))]})
    builder.add_node("seed", lambda _: {"messages": [HumanMessage(interrupt({"how": "many"}))]})
    builder.add_node(
        "tell", lambda state: says(" ".join(one.text for one in state["messages"][-2:]))
    )
    for node in ("bed", "seed"):
        builder.add_edge(START, node)
    builder.add_edge(["bed", "seed"], "tell")
    return builder.compile(name="asks")


def test_several_questions_at_once_are_answered_one_by_one(tmp_path: Path) -> None:
    """R."""
    store = tmp_path / "s.db"
    options: Any = {"agents": {"asks": asks_twice()}}
    result = converse(talk({"kind": "agent", "name": "asks"}), session="s", store=store, **options)
    two, one = sorted(result.pending, key=lambda question: "Which" in question.summary())
    assert isinstance(one, ToolQuestion)
    assert (one.by, one.summary()) == ("agent", 'An agent asks: "Which bed?"')
    left = Session("s", store=store).answer("7 seeds", question=two.id, **options)
    assert left.pending == (one,)
    result = Session("s", store=store).answer("The left.", **options)
    assert result.transcript[0] == ("Ann", "The left. 7 seeds")


# Sessions.


def test_a_session_that_waits_is_forked_and_copied_as_before_the_turn(tmp_path: Path) -> None:
    """R: in the copy, the agent starts its turn again."""
    options: Any = {"agents": {"asks": asks_twice()}}
    store, other = tmp_path / "s.db", tmp_path / "t.db"
    waits = converse(talk({"kind": "agent", "name": "asks"}), session="s", store=store, **options)
    forked = Session("s", store=store).fork().id
    copied = Session("s", store=store).copy(to=other).id
    for session, at in ((forked, store), (copied, other)):
        assert Session(session, store=at).state().pending == ()
        again = Session(session, store=at).resume(answer=lambda question: "x", **options)
        assert again.transcript == [("Ann", "x x"), ("Bob", "Yes.")]
    assert Session("s", store=store).state().pending == waits.pending


async def test_what_has_ended_is_forked() -> None:
    """R: a fork runs the agent from the message on."""
    agent, model = researcher()
    store = f"memory:{uuid4()}"
    result = await aconverse(talk(agent, rounds=2), session="s", store=store)
    calls = len(model.calls)
    await Session("s", store=store).afork(at="m0002", into="f")
    forked = await Session("f", store=store).aresume(agents={"researcher": agent})
    assert (forked.transcript, len(model.calls)) == (result.transcript, calls + 3)


def test_it_is_told_once_and_what_it_streams_itself_is_not_told() -> None:
    """R."""

    def writes(state: MessagesState) -> dict[str, Any]:
        for one in ({"token": "x"}, {"token": {"speaker": 1}}, {"notice": 7}, "notice", 3):
            get_stream_writer()(one)
        return {"messages": [ScriptedChatModel(script=["Hello there."]).invoke("Hi")]}

    events = [*stream(talk(graph(writes)), store="memory:")]
    told = [one.event for one in events]
    assert told == ["session", "message", "message", "outcome"]


# Calls of an agent in the log.


def test_calls_of_an_agent_are_in_the_log_with_their_results() -> None:
    """R: the log contains the agent's calls, which the agent sees again in its next turn."""
    agent, model = researcher()
    result = converse(talk(agent, rounds=2), store="memory:")
    first = result.messages[1:5]
    assert [message.type for message in first] == ["ai", "tool", "ai", "tool"]
    made = [one.tool_calls for one in result.messages if isinstance(one, AIMessage)]
    called = [call for calls in made for call in calls]
    assert [call["args"] for call in called] == [{"query": "beans 0"}, {"query": "beans 1"}] * 2
    # Ids are unique in the log, although the agent's model uses the same ids in each turn.
    assert len({call["id"] for call in called}) == 4
    sent = " ".join(message.type for message in model.calls[3].messages[1:])
    assert sent == "human ai tool ai tool ai human"
    found = [one["content"] for one in result.trajectory() if one["role"] == "tool"]
    assert found == ["found beans 0", "found beans 1"] * 2


def test_other_speakers_do_not_hear_the_calls_of_an_agent() -> None:
    """R: the text beside an agent's calls stays private, and an address in it changes no turn."""
    call = {"name": "search", "args": {"query": "x"}, "id": "c"}
    model = ScriptedChatModel([Reply(text="@Cleo, wait.", tool_calls=[call]), "Beans."])
    agent = create_agent(model, [search])
    heard = ScriptedChatModel(["Fine."])
    speakers: Any = [{"name": "Ann", "replies": [agent]}, {"name": "Bob"}, {"name": "Cleo"}]
    spec = Conversation("Plan.", speakers, turn_order="handoff", end_chat=MaxMessages(2))
    result = converse(spec, model=heard, store="memory:")
    assert [name for name, _ in result.transcript] == ["Ann", "Ann", "Bob"]
    assert "wait" not in str(heard.calls[0].messages)
    assert "search" not in str(heard.calls[0].messages)
    assert "wait" in str(result.viewpoint("Ann"))


@pytest.mark.parametrize("results", [[("error", "no network")], []], ids=["failed", "no result"])
def test_calls_of_an_agent_are_in_the_log_only_with_their_results(
    results: list[tuple[Any, str]],
) -> None:
    """R: an error that the agent's tool reports is visible; the reply needs no result."""
    given = [ToolMessage(text, tool_call_id="c", status=status) for status, text in results]
    agent = graph(lambda _: {"messages": [CALLING, *given, AIMessage("Beans.")]})
    result = converse(talk(agent), store="memory:")
    found = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert [(one.status, one.text) for one in found] == results
    assert any(getattr(message, "tool_calls", None) for message in result.messages) is bool(results)
    assert result.transcript[0] == ("Ann", "Beans.")
