"""The chat protocol: the meaning of `messages` in the input of a compiled graph."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from duologue import (
    MessageQuestion,
    ModelError,
    Result,
    Session,
    SessionError,
    SpecError,
    aconverse,
    build_graph,
    chat,
    role_play,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.fork_help import plain
from support.graphs import (
    ChatForm,
    Form,
    Graph,
    GroupSolveForm,
    RolePlayForm,
    UserProxyForm,
    forms_by_kind,
)
from support.log import kind_of
from support.stores import open_store

CONFIG = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=200)
GARDEN = ["A better task.", "Instruction: dig\nInput: None", "Solution: dug\nNext request."]
END_OF_IT = "<CAMEL_TASK_DONE>"
BloggerForm, CoderForm = (forms_by_kind()[kind] for kind in ("blogger", "coder"))


class Thread:
    """A thread of a compiled graph."""

    def __init__(self, form: type[Form], script: list[Any]) -> None:
        self.model = ScriptedChatModel(script=script)
        self.graph = build_graph(form=form, model=self.model, checkpointer=InMemorySaver())

    async def give(self, *messages: Any, **fields: Any) -> dict[str, Any]:
        given: Any = {"messages": [*messages], **fields}
        found: Any = await self.graph.ainvoke(given, CONFIG)
        assert isinstance(found, dict)
        return found


def user(text: Any, message_id: str | None = None) -> dict[str, Any]:  # noqa: ANN401
    return {"role": "user", "content": text} | ({"id": message_id} if message_id else {})


def texts(found: dict[str, Any]) -> list[str]:
    return [message.text for message in found["messages"]]


def prompts(model: ScriptedChatModel) -> list[str]:
    """Return the texts of the model's last prompt, message by message."""
    return [message.text for message in model.calls[-1].messages]


@pytest.mark.part(1)
@pytest.mark.parametrize(
    "message",
    [
        user("Hi", "mine"),
        {"type": "human", "content": "Hi", "id": "mine"},
        {"type": "human", "content": [{"type": "text", "text": "Hi"}], "id": "mine"},
        HumanMessage("Hi", id="mine"),
    ],
)
@pytest.mark.parametrize("form", [ChatForm, UserProxyForm])
async def test_a_message_begins_a_chat_and_keeps_its_id(form: type[Form], message: Any) -> None:  # noqa: ANN401
    on = Thread(form, ["Hello!", "Fine."])
    found = await on.give(message)
    assert [(one.type, one.text) for one in found["messages"]] == [
        ("human", "Hi"),
        ("ai", "Hello!"),
    ]
    assert found["messages"][0].id == "mine"
    assert kind_of(found["messages"][0]) == "speech"
    assert "__interrupt__" not in found
    # The newest message from a client is the person's next one; the others are known.
    found = await on.give(*found["messages"], user("How are you?", "next"))
    assert texts(found) == ["Hi", "Hello!", "How are you?", "Fine."]
    assert found["messages"][2].id == "next"


async def test_each_message_is_answered_without_an_interrupt() -> None:
    on = Thread(ChatForm, ["One.", "Two.", "Three."])
    for number, answer in enumerate(["One.", "Two.", "Three."]):
        found = await on.give(user(f"{number}?"))
        state = await on.graph.aget_state(CONFIG)
        assert (texts(found)[-1], state.next, state.interrupts) == (answer, (), ())
        assert not found.get("outcome")
    # A run without a message changes nothing.
    assert texts(await on.give()) == texts(found)


async def test_a_question_that_was_asked_by_an_interrupt_is_asked_by_an_interrupt_again() -> None:
    on = Thread(ChatForm, ["One.", "Two.", "Three."])
    assert (await on.give())["__interrupt__"]
    found: Any = await on.graph.ainvoke(Command(resume="1?"), CONFIG)
    assert (texts(found), bool(found["__interrupt__"])) == (["1?", "One."], True)
    found = await on.give(user("2?"))
    assert (texts(found)[-1], "__interrupt__" in found) == ("Two.", False)


async def test_an_approval_interrupts_a_chat_by_messages() -> None:
    @tool
    def water(bed: str) -> str:
        """Water a bed."""
        return f"{bed} is wet"

    call = ScriptedToolCall(name="water", args={"bed": "left"}, id="1")
    model = ScriptedChatModel([Reply(tool_calls=[call]), "Done."])
    graph = build_graph(form=ChatForm, model=model, tools=[water], checkpointer=InMemorySaver())
    asks: Any = {"tools": ["water"], "interrupt_on": {"water": True}}
    found = await graph.ainvoke({"messages": [user("Water it.")], **asks}, CONFIG)
    (asked,) = found["__interrupt__"]
    assert asked.value["action_requests"][0]["name"] == "water"
    approved = {"decisions": [{"type": "approve"}]}
    found = await graph.ainvoke(Command(resume=approved), CONFIG)
    assert (texts(found)[-1], "__interrupt__" in found) == ("Done.", False)


@pytest.mark.parametrize("form", [RolePlayForm, BloggerForm])
async def test_streams_show_neither_the_rewriting_of_a_task_nor_a_done_token(
    form: type[Form],
) -> None:
    is_play = form is RolePlayForm
    script = [*GARDEN, END_OF_IT] if is_play else ["Bees dance.", "Fine!\nSATISFIED"]
    on = Thread(form, script)
    shown: dict[str, str] = {}
    given: Any = {"messages": [user("A garden")]}
    async for piece, about in on.graph.astream(given, CONFIG, stream_mode="messages"):
        shown[piece.id] = shown.get(piece.id, "") + piece.text
        assert about["langgraph_node"] in ("user_agent", "assistant_agent")
    assert [*shown.values()] == (GARDEN[1:] if is_play else ["Bees dance."])
    calls = [
        event["metadata"]
        async for event in Thread(form, script).graph.astream_events(given, CONFIG, version="v2")
        if event["event"] == "on_chat_model_start"
    ]
    # AG-UI's adapter leaves out the calls that are marked so.
    hidden = [about.get("emit-messages") is False for about in calls]
    assert hidden == ([True, True, False, True] if is_play else [False, True])


async def test_exit_leaves_and_a_later_message_goes_on() -> None:
    on = Thread(ChatForm, ["Hello!", "Again."])
    await on.give(user("Hi"))
    found = await on.give(user(" Exit "))
    assert found["outcome"]["reasons"] == ["quit"]
    assert (await on.give(user("exit")))["outcome"]["reasons"] == ["quit"]
    found = await on.give(user("Still there?", "mine"))
    assert texts(found)[-2:] == ["Still there?", "Again."]
    assert not found["outcome"]
    assert len(on.model.calls) == 2


async def test_a_run_of_a_thread_that_has_ended_gives_its_output() -> None:
    on = Thread(CoderForm, ["It is 4."])
    found = await on.give(user("2 + 2"))
    assert await on.give() == found
    assert await on.graph.ainvoke({}, CONFIG) == found


async def test_what_was_said_elsewhere_before_is_known_to_the_agent() -> None:
    on = Thread(ChatForm, ["Bo."])
    before = [HumanMessage("I am Bo.", id="1"), AIMessage("Hi!", id="2")]
    found = await on.give(*before, user("Guess.", "3"), user("What is my name?", "4"))
    assert texts(found) == ["I am Bo.", "Hi!", "Guess.\n\nWhat is my name?", "Bo."]
    sent = "\n".join(prompts(on.model))
    assert sent.index("I am Bo.") < sent.index("Hi!") < sent.index("What is my name?")


async def test_a_message_after_a_failure_is_said_at_once() -> None:
    on = Thread(ChatForm, [ModelError("it is down"), "Here I am."])
    with pytest.raises(ModelError):
        await on.give(user("Hi", "1"))
    found = await on.give(user("Hello?", "2"))
    assert texts(found) == ["Hi", "Hello?", "Here I am."]


async def test_a_message_instead_of_an_approval_is_said_and_nothing_runs() -> None:
    call = ScriptedToolCall(name="calculator", args={"expression": "6*7"}, id="a")
    on = Thread(ChatForm, [Reply(tool_calls=[call]), "As you like."])
    await on.give(user("6*7"), tools=["calculator"], interrupt_on={"calculator": True})
    found = await on.give(user("Never mind.", "mine"))
    assert [one.type for one in found["messages"]] == ["human", "ai", "tool", "human", "ai"]
    assert texts(found)[2] == "Not run: User sent a message instead."
    assert found["messages"][3].id == "mine"


async def test_an_edited_message_goes_on_from_the_checkpoint_before_the_first() -> None:
    """An edit in a chat interface runs from the parent of the old message's checkpoint."""
    on = Thread(ChatForm, ["A1", "A2", "A3", "A4"])
    await on.give(user("Q1"))
    known = await on.give(user("Q2", "old"))
    for text, answer in (("Q2, I mean", "A3"), ("Q3", "A4")):
        states = [one async for one in on.graph.aget_state_history(CONFIG)]
        holding = [one for one in states if "old" in {m.id for m in one.values.get("messages", ())}]
        given: Any = {"messages": [user(text)]}
        found = await on.graph.ainvoke(given, holding[-1].parent_config)
        assert texts(found) == [*texts(known)[:2], text, answer]


async def test_a_client_that_answers_calls_itself_changes_nothing() -> None:
    call = ScriptedToolCall(name="calculator", args={"expression": "6*7"}, id="a")
    on = Thread(ChatForm, [Reply(tool_calls=[call]), "As you like."])
    await on.give(user("6*7"), tools=["calculator"], interrupt_on={"calculator": True})
    handled = ToolMessage("Handled.", tool_call_id="a", id="do-not-render-1")
    found = await on.give(handled, user("Never mind."))
    assert texts(found)[-2:] == ["Never mind.", "As you like."]
    assert not any("Handled" in text for text in prompts(on.model))
    assert any("Not run" in text for text in prompts(on.model))


@pytest.mark.parametrize("beside", [5, {"kind": "speech", "speaker": "User"}, {"kind": 1}, None])
async def test_what_clients_write_beside_a_message_counts_for_nothing(beside: object) -> None:
    on = Thread(ChatForm, ["Hello!", "Fine."])
    for text in ("Hi", "How are you?"):
        extra = {"duologue": beside, "duologue_place": [0], "mine": 1}
        found = await on.give(HumanMessage(text, additional_kwargs=extra))
    assert texts(found) == ["Hi", "Hello!", "How are you?", "Fine."]
    assert {kind_of(message) for message in found["messages"]} == {"speech"}
    assert [m.additional_kwargs["mine"] for m in found["messages"][::2]] == [1, 1]


@pytest.mark.parametrize(
    ("form", "script", "answer"),
    [
        (RolePlayForm, [*GARDEN, END_OF_IT], GARDEN[-1]),
        (CoderForm, ["It is 4."], "It is 4."),
        (BloggerForm, ["Bees dance.", "SATISFIED"], "Bees dance."),
    ],
)
async def test_the_message_is_the_task_and_the_last_one_the_answer(
    form: type[Form], script: list[str], answer: str
) -> None:
    on = Thread(form, script * 2)
    found = await on.give(user("Do it.", "mine"))
    assert (texts(found)[0], found["messages"][0].id) == ("Do it.", "mine")
    assert texts(found)[-1] == answer
    assert found["outcome"]["complete"] is not False
    # A different message is another task; the speakers know nothing of the earlier one.
    known = texts(found)
    found = await on.give(user("Do that."))
    assert texts(found) == [*known, "Do that.", *known[1:]]
    assert len(on.model.calls) == 2 * len(script)
    sent = [[one.text for one in call.messages] for call in on.model.calls]
    again = [
        [text.replace("Do that.", "Do it.") for text in texts] for texts in sent[len(script) :]
    ]
    assert sent[: len(script)] == again


@pytest.mark.parametrize(
    ("form", "given", "words"),
    [
        (
            ChatForm,
            [user([{"type": "image_url", "image_url": {"url": "x"}}])],
            "an address is not opened here",
        ),
        (ChatForm, [user("Hi"), user(" ")], "newest message must not be empty"),
        (RolePlayForm, [AIMessage("I.")], "task: is missing"),
        (RolePlayForm, [], "task: is missing"),
        (UserProxyForm, [], "message: is missing"),
        (GroupSolveForm, [user("Solve it.")], "speakers: is missing"),
    ],
)
async def test_bad_input_is_one_error_before_any_call(
    form: type[Form], given: list[Any], words: str
) -> None:
    on = Thread(form, [])
    with pytest.raises(SpecError, match=words) as raised:
        await on.give(*given)
    assert "\n" not in str(raised.value)


async def test_without_a_message_of_the_user_the_person_is_asked() -> None:
    found = await Thread(ChatForm, []).give(AIMessage("Hello, I am new."))
    assert found["__interrupt__"][0].value["speaker"] == "User"


async def test_of_several_people_the_message_names_one() -> None:
    people = [{"name": name, "replies": ["human"]} for name in ("Ann", "Ben")]
    graph = build_graph(checkpointer=InMemorySaver())
    said = HumanMessage("Hi", id="mine", name="Ann")
    given: Any = {"conversation": plain(speakers=people).stored(), "messages": [said]}
    found: Any = await graph.ainvoke(given, CONFIG)
    assert [(one.name, one.text) for one in found["messages"]] == [("Ann", "Hi")]
    assert found["__interrupt__"][0].value["speaker"] == "Ben"


async def test_of_a_whole_conversation_without_a_task_the_message_is_the_task() -> None:
    """The first message is the task if the conversation has none, also when sent again."""
    spec = plain(end_chat={"max_iterations": 1}).model_dump(mode="json", exclude={"task"})
    on = Thread(GroupSolveForm, ["A1", "B1", "A2", "B2"])
    first = await on.give(user("Dig.", "a"), conversation=spec)
    assert (texts(first), first["specified_task"]) == (["Dig.", "A1", "B1"], "Dig.")
    again = await on.give(user("Dig.", "a"), conversation=spec)
    assert texts(again) == texts(first)
    second = await on.give(user("Sow.", "b"), conversation=spec)
    assert (texts(second)[3:], second["specified_task"]) == (["Sow.", "A2", "B2"], "Sow.")


@tool("transfer_to_team")
def hand_over(
    state: Annotated[dict[str, Any], InjectedState],
    tool_call_id: Annotated[str, InjectedToolCallId],
) -> Command[Any]:
    """Have the team do it."""
    told: list[AnyMessage] = [*state["messages"], ToolMessage("Done.", tool_call_id=tool_call_id)]
    return Command(goto="team", graph=Command.PARENT, update={"messages": told})


async def test_a_supervisor_has_a_role_play_as_its_worker() -> None:
    def handing_over(number: int) -> Reply:
        call = ScriptedToolCall(name="transfer_to_team", args={}, id=str(number))
        return Reply(tool_calls=[call])

    head = ScriptedChatModel(script=[handing_over(1), "It is dug.", handing_over(2), "Again."])
    team = build_graph(form=RolePlayForm, model=ScriptedChatModel(script=[*GARDEN, END_OF_IT] * 2))
    parent = StateGraph(MessagesState)
    agent = create_agent(head, tools=[hand_over], name="supervisor")
    parent.add_node("supervisor", agent, destinations=("team", END))
    parent.add_node("team", team)
    parent.add_edge(START, "supervisor")
    parent.add_edge("team", "supervisor")
    graph = parent.compile(checkpointer=InMemorySaver())
    expected: list[str] = []
    for task, answer in (("Plan a garden", "It is dug."), ("Plan a park", "Again.")):
        given: Any = {"messages": [user(task)]}
        found: Any = await graph.ainvoke(given, CONFIG)
        expected += [task, "", "Done.", *GARDEN[1:], answer]
        assert texts(found) == expected
        assert GARDEN[-1] in prompts(head)
    ids = [message.id for message in found["messages"]]
    assert len({*ids}) == len(ids)


# Messages that a caller writes to a thread's state, and the run that answers them

HELLO: Any = {"messages": [HumanMessage("Hello")]}
MORE: Any = {"messages": [HumanMessage("And bees?")]}


def _graph(*script: str | Reply) -> Graph:
    model = ScriptedChatModel(script=[*script])
    return build_graph(conversation=chat(), model=model, checkpointer=InMemorySaver())


def _texts(graph: Graph) -> list[str]:
    messages: list[AnyMessage] = graph.get_state(CONFIG).values["messages"]
    return [one.text for one in messages]


@pytest.mark.parametrize(
    "update",
    [
        MORE,
        {"messages": "And bees?"},
        {"messages": [("user", "And bees?")]},
        {"messages": [{"role": "user", "content": "And bees?"}]},
        Command(update=MORE),
    ],
)
def test_a_message_written_to_the_state_is_answered(update: Any) -> None:  # noqa: ANN401
    """The next run without an input answers the message, in each form of it."""
    graph = _graph("Hi.", "They dance.")
    graph.invoke(HELLO, CONFIG)
    graph.update_state(CONFIG, update)
    graph.invoke(None, CONFIG)
    assert _texts(graph) == ["Hello", "Hi.", "And bees?", "They dance."]
    graph.invoke(None, CONFIG)
    assert len(_texts(graph)) == 4


async def test_a_finished_session_answers_a_written_message() -> None:
    """The session continues, as after a run's input."""
    graph = _graph("Hi.", "They dance.")
    await graph.ainvoke(HELLO, CONFIG)
    await graph.ainvoke({"messages": ["exit"]}, CONFIG)
    await graph.aupdate_state(CONFIG, MORE)
    await graph.ainvoke(None, CONFIG)
    assert _texts(graph) == ["Hello", "Hi.", "And bees?", "They dance."]


def test_messages_written_in_two_updates_are_joined() -> None:
    """A later update that adds no user's message does not hide an earlier one."""
    graph = _graph("Hi.", "They dance.")
    graph.invoke(HELLO, CONFIG)
    graph.update_state(CONFIG, MORE)
    graph.update_state(CONFIG, {"messages": [HumanMessage("And wasps?"), AIMessage("A note.")]})
    graph.invoke(None, CONFIG)
    assert "And bees?\n\nAnd wasps?" in _texts(graph)
    assert _texts(graph)[-1] == "They dance."


def test_a_message_that_replaces_another_one_is_answered() -> None:
    """One update may remove the newest messages and add a new one."""
    graph = _graph("Hi.", "They dance.")
    graph.invoke(HELLO, CONFIG)
    removed = [RemoveMessage(id=one.id) for one in graph.get_state(CONFIG).values["messages"]]
    graph.update_state(CONFIG, {"messages": [*removed, *MORE["messages"]]})
    graph.invoke(None, CONFIG)
    assert _texts(graph) == ["And bees?", "They dance."]


def test_a_written_message_cancels_an_approval() -> None:
    """The call does not run, and the message is answered."""

    def look() -> str:
        """Look."""
        raise AssertionError

    call = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    graph = build_graph(
        conversation=chat(assistant={"tools": ["look"], "interrupt_on": {"look": True}}),
        model=ScriptedChatModel(script=[call, "They dance."]),
        checkpointer=InMemorySaver(),
        tools=[look],
    )
    graph.invoke(HELLO, CONFIG)
    assert graph.get_state(CONFIG).interrupts
    graph.update_state(CONFIG, MORE)
    graph.invoke(None, CONFIG)
    assert not graph.get_state(CONFIG).interrupts
    assert _texts(graph)[2:] == [
        "Not run: User sent a message instead.",
        "And bees?",
        "They dance.",
    ]


def test_a_written_task_begins_a_new_conversation() -> None:
    """If no person takes part, the message is a new task, as a run's input is."""
    tasks: list[str] = []

    def reply(prompt: list[Any]) -> str:
        tasks.append(str(prompt[0]))
        return "Instruction: Go on."

    spec = role_play("Cook", "Gardener", "Dig", specify_task=False, max_iterations=1)
    model = ScriptedChatModel(script=reply)
    graph = build_graph(conversation=spec, model=model, checkpointer=InMemorySaver())
    graph.invoke({"messages": ["Dig a bed"]}, CONFIG)
    graph.update_state(CONFIG, {"messages": ["Plant a tree"]})
    graph.invoke(None, CONFIG)
    assert "Plant a tree" in tasks[-1]
    assert "Dig a bed" not in tasks[-1]


def test_an_invalid_message_is_not_written() -> None:
    """A blank message is refused, and the thread is unchanged."""
    graph = _graph("Hi.")
    graph.invoke(HELLO, CONFIG)
    before = graph.get_state(CONFIG)
    with pytest.raises(SpecError, match="must not be empty"):
        graph.update_state(CONFIG, {"messages": [HumanMessage(" ")]})
    assert graph.get_state(CONFIG) == before


def test_a_named_node_is_kept() -> None:
    """The caller of an update may name the node, and thus the next one."""
    graph = _graph("Hi.")
    graph.invoke(HELLO, CONFIG)
    graph.update_state(CONFIG, MORE, as_node="assistant_agent")
    assert graph.get_state(CONFIG).next == ()


# A stored session that a client continues by messages waits for its person as any other does


def model(*script: str) -> ScriptedChatModel:
    return ScriptedChatModel([*script])


@pytest.fixture
async def session(tmp_path: Path) -> Session:
    """Return a chat that a client has continued by one message."""
    store = f"{tmp_path / 'chat.sqlite'}"
    await aconverse(chat(), session="chat", store=store, model=model())
    async with open_store(store) as opened, opened.lock("chat") as held:
        graph = build_graph(checkpointer=held.checkpointer, model=model("One."))
        given: Any = {"messages": ["1?"]}
        found: Any = await graph.ainvoke(given, {"configurable": {"thread_id": "chat"}})
        assert "__interrupt__" not in found
        row = await opened.get("chat")
        assert row is not None
        assert row.status == "waiting"
    return Session("chat", store=store)


def said(result: Result) -> list[str]:
    return [text for _, text in result.transcript]


async def test_it_waits_for_the_persons_message(session: Session) -> None:
    found = await session.astate()
    (question,) = found.pending
    assert isinstance(question, MessageQuestion)
    assert (question.speaker, question.heard) == ("User", "One.")
    assert str(found).endswith("Waiting for User: User, it is your turn. Enter exit to leave.")
    assert found.output == "One."


async def test_its_question_is_answered_as_any_other(session: Session) -> None:
    (question,) = (await session.astate()).pending
    found = await session.aanswer("2?", question=question.id, model=model("Two."))
    assert said(found) == ["1?", "One.", "2?", "Two."]
    (after,) = found.pending
    assert after.id != question.id
    with pytest.raises(SessionError, match="already answered"):
        await session.aanswer("3?", question=question.id, model=model())


async def test_it_is_resumed_with_a_message(session: Session) -> None:
    found = await session.aresume(message="2?", model=model("Two."))
    assert said(found) == ["1?", "One.", "2?", "Two."]
    assert (await session.aanswer("exit")).stop_reason == "quit"


async def test_it_waits_on_without_an_answer(session: Session) -> None:
    found = await session.aresume(model=model())
    assert (said(found), len(found.pending)) == (["1?", "One."], 1)
