"""Answers at unusual times, of unusual types, to unusual questions: none is lost or confused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from duologue import (
    AnswerError,
    Hook,
    MessageQuestion,
    Question,
    Result,
    Session,
    SpecError,
    ToolQuestion,
    build_graph,
    chat,
    converse,
    list_sessions,
    stream,
    user_proxy,
)
from duologue.graphs.events import QuestionAsked
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Turn
from support.cli_help import duologue
from support.tables import each_row


class Yes(BaseModel):
    """A yes or a no."""

    ok: bool


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def tools(ran: list[str]) -> list[BaseTool]:
    """Return tools that ask a person once or twice, and one that does not ask."""

    @tool
    def twice(what: str) -> str:
        """Ask twice."""
        first = interrupt(f"first {what}?")
        second = interrupt(f"second {first}?")
        ran.append(f"{first} {second}")
        return f"{first} {second}"

    @tool
    def agree(what: str) -> str:
        """Ask for a yes."""
        found = interrupt(f"agree {what}?", response_schema=Yes)
        ran.append(f"agreed {what}")
        return str(found.ok)

    @tool
    def plain(what: str) -> str:
        """Return the text without a question."""
        ran.append(what)
        return what

    return [twice, agree, plain]


def calls(*names: str) -> Reply:
    made = [
        ScriptedToolCall(name=name, args={"what": str(place)}, id=f"{name}{place}")
        for place, name in enumerate(names)
    ]
    return Reply(tool_calls=made)


def options(script: list[Line], tools: list[BaseTool]) -> dict[str, Any]:
    return {"model": ScriptedChatModel(script=script), "tools": tools}


NAMES = ["twice", "agree", "plain"]


def test_each_answer_goes_to_its_own_question(
    store: str, tools: list[BaseTool], ran: list[str]
) -> None:
    """A bad answer to one tool neither answers another's next question nor asks it again."""
    asked: list[tuple[Any, bool]] = []
    given: dict[Any, list[Any]] = {
        "first 0?": ["a.txt"],
        "agree 1?": [{"ok": "perhaps"}, {"ok": True}],
        "second a.txt?": ["sure"],
    }

    def answer(question: Question) -> Any:  # noqa: ANN401
        if isinstance(question, MessageQuestion):
            return "exit"
        assert isinstance(question, ToolQuestion)
        asked.append((question.value, question.problem is not None))
        return given[question.value].pop(0)

    result = converse(
        chat("Go.", tools=NAMES),
        answer=answer,
        **options([calls("twice", "agree", "plain"), "Done."], tools),
        store=store,
    )
    assert sorted(asked) == [
        ("agree 1?", False),
        ("agree 1?", True),
        ("first 0?", False),
        ("second a.txt?", False),
    ]
    assert sorted(ran) == ["2", "a.txt sure", "agreed 1"]
    assert result.transcript[-1] == ("Assistant", "Done.")


def test_a_question_that_got_no_answer_is_not_asked_again_in_that_run(
    store: str, tools: list[BaseTool]
) -> None:
    asked: list[Any] = []

    def answer(question: Question) -> Any:  # noqa: ANN401
        asked.append(getattr(question, "value", ""))
        return None if asked[-1] == "agree 1?" else "x"

    result = converse(
        chat("Go.", tools=NAMES),
        session="s",
        answer=answer,
        **options([calls("twice", "agree")], tools),
        store=store,
    )
    assert asked.count("agree 1?") == 1
    (left,) = result.pending
    assert isinstance(left, ToolQuestion)
    assert left.value == "agree 1?"


@pytest.mark.part(3)
@pytest.mark.parametrize("value", [{}, None, 5, ["a", 5], {"0" * 32: "x"}, object()], ids=type)
def test_what_is_no_message_is_one_error_and_the_question_stays(value: Any, store: str) -> None:  # noqa: ANN401
    model = ScriptedChatModel(script=["Hello."])
    waits = converse(chat(), session="s", model=model, store=store)
    with pytest.raises(AnswerError, match="the question stays open"):
        waits.session.answer(value, model=model)
    assert waits.session.state().pending == waits.pending
    assert not model.calls
    assert waits.session.answer("Hi.", model=model).transcript[0] == ("User", "Hi.")


@pytest.mark.part(3)
@pytest.mark.parametrize("value", [{}, {"0" * 32: "x"}, "", False, [1]], ids=repr)
def test_a_tool_may_be_given_any_answer_that_can_be_stored(value: Any, store: str) -> None:  # noqa: ANN401

    @tool
    def ask() -> str:
        """Ask a person."""
        return repr(interrupt("Well?"))

    given = options([Reply(tool_calls=[ScriptedToolCall(name="ask", id="a")]), "Ok."], [ask])
    session = converse(chat("Go.", tools=["ask"]), session="s", store=store, **given).session
    with pytest.raises(AnswerError, match="can't be stored"):
        session.answer(object(), **given)
    result = session.answer(value, **given)
    assert [one.text for one in result.messages if one.type == "tool"] == [repr(value)]


@pytest.mark.parametrize(
    "asks",
    [
        {"kind": "message", "because": "lunch"},
        {"action_requests": 1, "review_configs": 2},
        {1: 2},
        b"x",
    ],
    ids=repr,
)
def test_whatever_a_tool_asks_the_session_can_be_read_and_answered(asks: Any, store: str) -> None:  # noqa: ANN401

    @tool
    def ask() -> str:
        """Ask a person."""
        return str(interrupt(asks))

    given = options([Reply(tool_calls=[ScriptedToolCall(name="ask", id="a")]), "Ok."], [ask])
    session = converse(chat("Go.", tools=["ask"]), session="s", store=store, **given).session
    (question,) = session.state().pending
    assert question.kind == "tool"
    assert session.answer("fine", **given).transcript[-1] == ("Assistant", "Ok.")


def test_a_tool_that_asks_what_cannot_be_stored_has_failed(store: str) -> None:
    @tool
    def ask() -> str:
        """Ask a person."""
        return str(interrupt(object()))

    given = options([Reply(tool_calls=[ScriptedToolCall(name="ask", id="a")]), "Ok."], [ask])
    result = converse(chat("Go.", tools=["ask"]), store=store, **given)
    assert "can't be stored" in next(one.text for one in result.messages if one.type == "tool")


def test_an_interrupt_of_the_program_in_an_answer_ends_this_run_alone(store: str) -> None:
    async def interrupted(question: Question) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converse(chat(), store=store, answer=interrupted)
    assert converse(chat(), store=store, answer=lambda _: "exit").outcome is not None


def test_a4_a_hook_in_front_does_not_take_a_persons_words(store: str) -> None:
    hook = Hook(before_speaker=lambda turn: AIMessage("The hook's words."))
    speakers = [{"name": "Ann", "replies": ["human"], "hooks": ["h"]}, {"name": "Bob"}]
    said = iter(["My words.", "exit"])
    result = converse(
        {"task": "Talk", "speakers": speakers},
        model=ScriptedChatModel(script=["Well."]),
        store=store,
        hooks={"h": hook},
        answer=lambda _: next(said),
    )
    assert result.transcript[0] == ("Ann", "My words.")


def test_hooks_before_tools_run_once_though_a_tool_asks(store: str, ran: list[str]) -> None:
    count: list[str] = []

    def before(turn: Turn, call: Any) -> Any:  # noqa: ANN401
        count.append("hook")
        return {**call, "args": {"what": f"{call['args']['what']} of hook {len(count)}"}}

    @tool
    def ask(what: str) -> str:
        """Ask a person."""
        found = interrupt(what)
        ran.append(what)
        return str(found)

    speakers = [
        {"name": "Ann", "tools": ["ask"], "hooks": ["h"]},
        {"name": "Bob", "replies": ["human"]},
    ]
    spec = {"task": "Talk", "speakers": speakers, "end_chat": {"max_iterations": 1}}
    given = options([calls("ask"), "Done."], [ask]) | {"hooks": {"h": Hook(before_tool=before)}}
    (question,) = converse(spec, session="s", store=store, **given).pending
    assert isinstance(question, ToolQuestion)
    Session("s", store=store).answer("yes", **given)
    assert count == ["hook"]
    # The call that ran is the call that was approved.
    assert ran == [question.value]


def test_say_tells_who_called_that_nothing_came_of_it(store: str, ran: list[str]) -> None:

    @tool
    def ring() -> str:
        """Ring the bell."""
        ran.append("ring")
        return "rings"

    spec = chat("Go.", tools=["ring"], interrupt_on={"ring": True})
    call = Reply(text="I ring.", tool_calls=[ScriptedToolCall(name="ring", id="a")])
    model = ScriptedChatModel(script=[call, "As you wish."])
    given: dict[str, Any] = {"model": model, "tools": [ring]}
    session = converse(spec, session="s", store=store, **given).session
    session.add_message("User", "Do not.")
    session.resume(**given)
    assert not ran
    roles = [(line["role"], line["content"]) for line in model.calls[-1].prompt[-3:]]
    assert roles == [
        ("tool", "Not run: User sent a message instead."),
        ("assistant", "(empty message)"),
        ("user", "Do not."),
    ]


async def test_new_input_while_a_question_waits_leaves_it_waiting(tools: list[BaseTool]) -> None:
    """A new input, such as a plain submit in Studio, leaves the question open."""
    model = ScriptedChatModel(script=[calls("twice"), "Done."])
    graph = build_graph(checkpointer=InMemorySaver(), model=model, tools=tools)
    config: Any = {"configurable": {"thread_id": "s"}}
    given: Any = {"conversation": chat("Go.", tools=NAMES).model_dump(mode="json")}
    await graph.ainvoke(given, config)
    asked = (await graph.aget_state(config)).interrupts
    found = await graph.ainvoke(given, config)
    assert [one.value for one in found["__interrupt__"]] == [one.value for one in asked]
    found = await graph.ainvoke(Command(resume="a"), config)
    assert [one.value for one in found["__interrupt__"]] == ["second a?"]


def test_who_follows_a_run_sees_each_question_before_it_is_answered(store: str) -> None:
    said = iter(["Hi.", "exit"])
    events = list(
        stream(
            chat(),
            model=ScriptedChatModel(script=["Hello."]),
            store=store,
            answer=lambda _: next(said),
        )
    )
    kinds = [event.event for event in events if event.event in ("question", "message", "outcome")]
    assert kinds == ["question", "message", "message", "question", "outcome"]
    assert all(
        event.question.problem is None for event in events if isinstance(event, QuestionAsked)
    )


def test_an_answer_that_is_no_function_is_one_error(store: str) -> None:
    answer: Any = "hi"
    with pytest.raises(TypeError, match="answer: must be a function"):
        converse(chat(), store=store, answer=answer)


def test_a5_the_cap_holds_where_the_same_one_is_chosen_again(store: str) -> None:
    never = {"kind": "human", "human_input_mode": "NEVER", "max_consecutive_auto_reply": 1}
    speakers = [
        {"name": "P", "replies": [never, {"kind": "text", "text": "Go on."}]},
        {"name": "A"},
    ]
    spec = {
        "task": "Talk",
        "speakers": speakers,
        "turn_order": {"kind": "function", "name": "always"},
        "opening": {"first_speaker": "A"},
        "end_chat": {"max_iterations": 5},
    }
    orders: dict[str, Callable[..., str]] = {"always": lambda messages, names: "P"}
    result = converse(spec, model=ScriptedChatModel(script=["Hm."]), store=store, orders=orders)
    assert [name for name, _ in result.transcript] == ["A", "P"]
    assert result.stop_reason == "max_consecutive_auto_reply"


def test_an_unregistered_predicate_is_one_error_before_any_model(store: str) -> None:
    model = ScriptedChatModel(script=["Hm."])
    with pytest.raises(SpecError, match=r"is_termination: there is no predicate 'over'"):
        converse(user_proxy("Go.", is_termination="over"), model=model, store=store)
    assert not model.calls


# Approvals that are answered with text, and names of files whose letters are not ASCII


def _ask(answer: object) -> Result:
    def look() -> str:
        """Look."""
        return "Seen."

    call = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    assistant = {"tools": [look], "interrupt_on": {"look": True}}
    spec = chat("Hi.", assistant=assistant, end_chat={"max_iterations": 1})
    result = converse(spec, model=ScriptedChatModel(script=[call]), store="memory:")
    model = ScriptedChatModel(script=["Done."])
    return result.session.answer(answer, tools=[look], model=model)


@each_row("text_answers_an_approval", "answer", "heard")
def test_text_answers_an_approval(answer: object, heard: str) -> None:
    """JSON as text, a single decision and a word are read as decisions."""
    assert heard in _ask(answer).messages[-2].text


@pytest.mark.parametrize("answer", ["maybe", '{"x": 1}', "7"])
def test_other_text_does_not_answer_an_approval(answer: str) -> None:
    """The question stays open."""
    with pytest.raises(AnswerError, match="stays open"):
        _ask(answer)


def test_each_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Files whose letters a tool's name can't contain do not get the title as their name."""
    spec = chat("Hi.", title="Plan").to_toml()
    names: list[str] = []
    for file in ("plan", "计划", "计画", "план", "plan_计划", "résumé"):
        (tmp_path / f"{file}.toml").write_text(spec)
        names.append(build_graph(conversation=tmp_path / f"{file}.toml").name)
    assert (names[0], names[-1]) == ("plan", "resume")
    assert len({*names}) == len(names)
    assert all(name.isascii() and len(name) <= 64 for name in names)


def test_a_blank_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings have their defaults."""
    usual = duologue("models").stdout
    assert "embedded" in usual
    for blank in ("", "  "):
        for name in ("OPENAI_BASE_URL", "DUOLOGUE_STORE", "DUOLOGUE_TIMEOUT", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, blank)
        assert list_sessions() == []
        assert duologue("models").stdout == usual
