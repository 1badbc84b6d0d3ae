"""An answer applies only to the question that waited when it was sent, through any entry point.

One of two calls gets the session first, and meets another question before the second call runs.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from duologue import (
    Result,
    Session,
    SessionError,
    Speaker,
    aconverse,
    ask,
    build_graph,
    chat,
    converse,
    list_sessions,
)
from duologue.nodes.testing import Line, ScriptedChatModel
from support.people_help import call, calls
from support.stores import EACH_STORE, SessionLease, Store, store_address

T = TypeVar("T")

APPROVE = {"decisions": [{"type": "approve"}]}
WIRES = chat("Pay.", tools=["wire", "pay"], interrupt_on={"wire": True})


@pytest.fixture
def ran() -> list[object]:
    """Return a list for the actions of the tools, in order."""
    return []


@pytest.fixture
def run(ran: list[object]) -> dict[str, Any]:
    """Return an option with a tool that a person must approve, and one that asks a person."""

    @tool
    def wire(amount: int) -> str:
        """Wire money."""
        ran.append(amount)
        return "Wired."

    @tool
    def pay(first: int) -> str:
        """Ask a person for each of three payments."""
        ran.append([interrupt(f"Pay {first + number}?") for number in range(3)])
        return "Paid."

    return {"tools": [wire, pay]}


@pytest.fixture(params=EACH_STORE)
def each_store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


class Overtakes(Protocol):
    """A function that makes two calls, of which the first to begin gets the session last."""

    def __call__(self, late: Callable[[], T], first: Callable[[], object]) -> T: ...


@pytest.fixture
def overtakes(monkeypatch: pytest.MonkeyPatch) -> Overtakes:
    """Delay one call while it waits for its session, until the other call has ended."""

    def play(late: Callable[[], T], first: Callable[[], object]) -> T:
        waits, freed, lock = threading.Event(), threading.Event(), Store.lock

        @asynccontextmanager
        async def held_up(opened: Store, *given: Any, **named: Any) -> AsyncIterator[SessionLease]:
            if not waits.is_set():
                waits.set()
                await asyncio.to_thread(freed.wait)
            async with lock(opened, *given, **named) as held:
                yield held

        with monkeypatch.context() as patched, ThreadPoolExecutor(1) as pool:
            patched.setattr(Store, "lock", held_up)
            found = pool.submit(late)
            try:
                assert waits.wait(60)
                first()
            finally:
                freed.set()
            return found.result(60)

    return play


def wiring(*amounts: int) -> list[Line]:
    return [calls(call("wire", number, amount=amount)) for number, amount in enumerate(amounts)]


def asked(result: Result) -> list[str]:
    return [one.summary() for one in result.pending]


# Two calls with answers


Answers = Callable[[Session, str, dict[str, Any]], object]

UNNAMED: dict[str, Answers] = {
    "answer": lambda session, _, run: session.answer(APPROVE, **run),
    "aanswer": lambda session, _, run: asyncio.run(session.aanswer(APPROVE, **run)),
    "by its id": lambda session, known, run: session.answer(APPROVE, question=known, **run),
    "with a callable": lambda session, _, run: session.answer(
        APPROVE, answer=lambda _: APPROVE, **run
    ),
    "with a message": lambda session, _, run: session.answer(APPROVE, message="Go on.", **run),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("late", UNNAMED.values(), ids=UNNAMED)
def test_an_answer_does_not_approve_a_call_that_nobody_has_seen(
    late: Answers, each_store: str, ran: list[object], run: dict[str, Any], overtakes: Overtakes
) -> None:
    session = Session("s", store=each_store)
    model = ScriptedChatModel(script=wiring(100, 10_000))
    (question,) = converse(WIRES, session="s", model=model, store=each_store, **run).pending
    unasked = ScriptedChatModel(script=[])
    after: list[Result] = []
    with pytest.raises(SessionError, match="was already answered") as refused:
        overtakes(
            lambda: late(session, question.id, {**run, "model": unasked}),
            lambda: after.append(session.answer(APPROVE, model=model, **run)),
        )
    assert ran == [100]
    # Nothing is lost, and the next question waits for its answer.
    assert session.state() == after[0]
    (following,) = after[0].pending
    assert f"it now waits for an answer to {following.id!r}" in str(refused.value)
    assert [row.status for row in list_sessions(store=each_store)] == ["waiting"]
    done = ScriptedChatModel(script=["Done."])
    session.answer(APPROVE, question=following.id, model=done, **run)
    assert ran == [100, 10_000]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (lambda session, run: session.answer("exit", **run), "it has ended"),
        (lambda session, run: session.stop(), "it has ended"),
        (
            lambda session, run: session.add_message("User", "Wait."),
            "it does not wait for an answer",
        ),
    ],
    ids=["left", "stopped", "said"],
)
def test_an_answer_whose_question_is_gone_says_how_things_are(
    first: Callable[[Session, dict[str, Any]], object],
    says: str,
    store: str,
    ran: list[object],
    run: dict[str, Any],
    overtakes: Overtakes,
) -> None:
    session = Session("s", store=store)
    converse(WIRES, session=session, model=ScriptedChatModel(script=wiring(100)), **run)
    with pytest.raises(SessionError, match=f"was already answered or withdrawn; (now )?{says}"):
        overtakes(lambda: session.answer(APPROVE, **run), lambda: first(session, run))
    assert ran == []


def test_an_answer_that_was_given_when_nobody_was_asked_answers_nothing(
    store: str, ran: list[object], run: dict[str, Any], overtakes: Overtakes
) -> None:
    session = Session("s", store=store)
    with pytest.raises(Exception, match="script"):
        converse(WIRES, session="s", model=ScriptedChatModel(script=[]), store=store, **run)
    model = ScriptedChatModel(script=wiring(100))
    with pytest.raises(
        SessionError, match="no question was waiting when the answer was given; it now waits"
    ):
        overtakes(
            lambda: session.answer(APPROVE, **run),
            lambda: session.resume(model=model, **run),
        )
    assert ran == []
    assert len(session.state().pending) == 1


@pytest.mark.part(1)
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_each_question_of_one_tool_takes_an_answer_of_its_own(
    named: bool, store: str, ran: list[object], run: dict[str, Any], overtakes: Overtakes
) -> None:
    """Each question of a tool needs its own answer, although all belong to one step."""
    session = Session("s", store=store)
    model = ScriptedChatModel(script=[calls(call("pay", 1, first=7)), "Done."])
    (question,) = converse(WIRES, session="s", model=model, store=store, **run).pending
    known: dict[str, Any] = {"question": question.id} if named else {}
    with pytest.raises(SessionError, match="was already answered"):
        overtakes(
            lambda: session.answer("late", **known, **run),
            lambda: session.answer("yes", model=model, **run),
        )
    with pytest.raises(SessionError, match="was already answered"):
        session.answer("again", question=question.id, model=model, **run)
    result = session.state()
    assert asked(result) == ['A tool asks: "Pay 8?"']
    for answer in ("no", "maybe"):
        (question,) = result.pending
        result = session.answer(answer, question=question.id, model=model, **run)
    assert ran == [["yes", "no", "maybe"]]


@pytest.mark.part(1)
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_of_several_questions_each_keeps_its_answer(
    named: bool, store: str, ran: list[object], run: dict[str, Any], overtakes: Overtakes
) -> None:
    """An answer is accepted while its question waits, even if others were answered."""
    session = Session("s", store=store)
    both = calls(call("pay", 1, first=1), call("pay", 2, first=5))
    model = ScriptedChatModel(script=[both, "Done."])
    one, other = converse(WIRES, session="s", model=model, store=store, **run).pending

    def first() -> Result:
        return session.answer("first", question=one.id, model=model, **run)

    if not named:
        first()
        # The tool's next question now waits together with the other one.
        with pytest.raises(SessionError, match="waits for several answers; name the question"):
            session.answer("which?", model=model, **run)
        return
    result = overtakes(
        lambda: session.answer("late", question=other.id, model=model, **run),
        first,
    )
    assert sorted(asked(result)) == ['A tool asks: "Pay 2?"', 'A tool asks: "Pay 6?"']


def test_a_fork_is_not_answered_by_its_sources_question(
    store: str, ran: list[object], run: dict[str, Any]
) -> None:
    session = Session("s", store=store)
    model = ScriptedChatModel(script=wiring(100))
    (question,) = converse(WIRES, session="s", model=model, store=store, **run).pending
    forked = session.fork()
    (own,) = forked.resume(**run).pending
    done = ScriptedChatModel(script=["Done."])
    session.answer(APPROVE, question=question.id, model=done, **run)
    with pytest.raises(SessionError, match="does not wait for an answer to"):
        forked.answer(APPROVE, question=question.id, **run)
    assert ran == [100]
    done = ScriptedChatModel(script=["Done."])
    forked.answer(APPROVE, question=own.id, model=done, **run)
    assert ran == [100, 100]


# Messages


HELLO: dict[str, Any] = {"session": "s", "message": "Hello."}

ANSWERED = r"did not accept the message: .* was already answered"
CONTINUED = "'s' has continued since the call, so the message was"
MESSAGES: dict[str, tuple[Callable[[str], object], str]] = {
    "converse": (lambda store: converse(chat(), store=store, **HELLO), ANSWERED),
    "aconverse": (lambda store: asyncio.run(aconverse(chat(), store=store, **HELLO)), ANSWERED),
    "resume": (lambda store: Session("s", store=store).resume(message="Hello."), ANSWERED),
    "leaving": (lambda store: Session("s", store=store).resume(message="exit"), ANSWERED),
    "stream": (lambda store: [*Session("s", store=store).stream(message="Hello.")], ANSWERED),
    "say": (lambda store: Session("s", store=store).add_message("User", "Hello."), CONTINUED),
    "asay": (
        lambda store: asyncio.run(Session("s", store=store).aadd_message("User", "Hello.")),
        CONTINUED,
    ),
}


@pytest.mark.part(4)
@pytest.mark.parametrize("answer", ["Hi.", "exit"])
@pytest.mark.parametrize(("late", "error"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_answers_no_question_that_came_after_it(
    late: Callable[[str], object], error: str, answer: str, store: str, overtakes: Overtakes
) -> None:
    model = ScriptedChatModel(script=["What is it?"])
    session = converse(chat(), session="s", store=store, model=model).session
    after: list[Result] = []
    with pytest.raises(SessionError, match=error):
        overtakes(
            lambda: late(store),
            lambda: after.append(session.answer(answer, model=model)),
        )
    assert session.state() == after[0]


def test_of_two_that_begin_a_chat_one_says_its_message(store: str, overtakes: Overtakes) -> None:
    model = ScriptedChatModel(script=["What is it?"])
    with pytest.raises(SessionError, match="another run has since asked a question"):
        overtakes(
            lambda: converse(chat(), store=store, **HELLO),
            lambda: converse(chat(), store=store, model=model, session="s", message="Hi."),
        )
    said = [("User", "Hi."), ("Assistant", "What is it?")]
    assert Session("s", store=store).state().transcript == said


def test_a_message_to_a_session_that_begins_again_is_said(store: str) -> None:
    """A message to a reset session is said, because the reset deletes the open question."""
    converse(chat(), session="s", store=store)
    model = ScriptedChatModel(script=["What is it?"])
    result = converse(chat(), store=store, model=model, reset=True, **HELLO)
    assert result.transcript == [("User", "Hello."), ("Assistant", "What is it?")]


def test_two_that_ask_an_agent_at_once_are_both_answered(store: str, overtakes: Overtakes) -> None:
    """Two simultaneous questions to an agent are answered one after the other."""
    chef, model = Speaker(name="Chef"), ScriptedChatModel(script=["Soup.", "Plums."])
    result = overtakes(
        lambda: ask(chef, "And then?", session="s", store=store, model=model),
        lambda: ask(chef, "What first?", session="s", store=store, model=model),
    )
    assert [text for _, text in result.transcript] == [
        "What first?",
        "Soup.",
        "And then?",
        "Plums.",
    ]


# LangGraph's own way


async def test_on_a_graph_an_answer_by_an_id_is_for_that_question(
    ran: list[object], run: dict[str, Any]
) -> None:
    model = ScriptedChatModel(script=[*wiring(100, 10_000), "Done."])
    graph = build_graph(checkpointer=InMemorySaver(), model=model, **run)
    thread: Any = {"configurable": {"thread_id": "t"}}

    async def go_on(given: Any) -> list[str]:  # noqa: ANN401
        found = await graph.ainvoke(given, thread)
        return [one.id for one in found.get("__interrupt__", ())]

    (first,) = await go_on({"conversation": WIRES.stored()})
    (second,) = await go_on(Command(resume={first: APPROVE}))
    assert await go_on(Command(resume={first: APPROVE})) == [second]
    assert ran == [100]
    await go_on(Command(resume={second: APPROVE}))
    assert ran == [100, 10_000]
