"""Rows A9, G5, G6: people get the same questions, and as many, through every entry point.

Whole conversations by every entry point; a waiting session with answers that come in between, are
wrong, never come, or come from another process or after a crash.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import pytest

from duologue import (
    AnswerError,
    Conversation,
    DuologueError,
    Hook,
    MessageQuestion,
    Question,
    Result,
    Session,
    SessionError,
    SpecError,
    aconverse,
    astream,
    chat,
    converse,
    list_sessions,
    load_session,
    stream,
    user_proxy,
)
from duologue.graphs.events import ConversationEnded, QuestionAsked
from duologue.nodes.testing import Prompt, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.breaking import Breakage

Asked = tuple[str, str, str | None]
"""Speaker of a question, its reason, and the meaning of no answer."""

WORD = "It is 42. TERMINATE"
DRAFTS = ("I try.", "I try again.", WORD, "I look once more.", "It is 42. TERMINATE")


class Person:
    """A person who answers and records the questions."""

    def __init__(self, *answers: object) -> None:
        self.answers = iter(answers)
        self.asked: list[Asked] = []

    def note(self, question: Question) -> None:
        assert isinstance(question, MessageQuestion)
        self.asked.append((question.speaker, question.because.value, question.empty))

    def __call__(self, question: Question) -> object:
        self.note(question)
        return next(self.answers, None)

    async def later(self, question: Question) -> object:
        await asyncio.sleep(0)
        return self(question)


class Went(NamedTuple):
    """Course of a conversation."""

    transcript: list[tuple[str, str]]
    asked: list[Asked]
    end: tuple[str, str | None] | None


def went(result: Result, asked: list[Asked]) -> Went:
    ended = result.outcome
    end = None if ended is None else (ended.reason.value, ended.by)
    return Went(result.transcript, asked, end)


def proxy(mode: str, cap: int = 100) -> Conversation:
    return user_proxy(
        "What is 6 times 7?",
        human_input_mode=mode,
        max_consecutive_auto_reply=cap,
        default_auto_reply="Go on.",
        code=False,
    )


TWO_PEOPLE = Conversation.model_validate(
    {
        "speakers": [
            {"name": "Ann", "replies": ["human"]},
            {"name": "Bot"},
            {"name": "Cid", "replies": [{"kind": "human"}, {"kind": "text", "text": "Hm."}]},
        ],
        "end_chat": {"max_iterations": None},
    }
)

PLAYS: dict[str, tuple[Conversation, tuple[str, ...], int]] = {
    # The conversation, the person's answers, and the number of questions.
    "G6-chat": (chat(), ("Hello.", "And?", " Exit\n"), 3),
    "G5-chat-told": (chat("Hello."), ("And?", "exit"), 2),
    "A4-texts": (proxy("ALWAYS"), ("Sure?", "", ""), 3),
    "A4-empty": (proxy("ALWAYS"), ("", "", ""), 3),
    "A5-goes-on": (proxy("TERMINATE"), ("Sure?", ""), 2),
    "A5-cap": (proxy("TERMINATE", 1), ("", "No.", ""), 3),
    "A3-never": (proxy("NEVER", 1), (), 0),
    "two-people": (TWO_PEOPLE, ("Hi.", "", "Ho.", "Hey.", "EXIT"), 5),
    "nobody-there": (chat(), ("Hello.",), 2),
}


def model() -> ScriptedChatModel:
    return ScriptedChatModel(script=list(DRAFTS))


async def collect(events: AsyncGenerator[Any, None]) -> list[Any]:
    return [event async for event in events]


WAYS: dict[str, tuple[Callable[..., Any], ...]] = {
    "sync": (converse, lambda *given, **options: [*stream(*given, **options)]),
    "async": (
        lambda *given, **options: asyncio.run(aconverse(*given, **options)),
        lambda *given, **options: asyncio.run(collect(astream(*given, **options))),
    ),
}
WAYS["sync"] += Session.resume, Session.answer
WAYS["async"] += (
    lambda *given, **options: asyncio.run(Session.aresume(*given, **options)),
    lambda *given, **options: asyncio.run(Session.aanswer(*given, **options)),
)
"""The functions that run a conversation, yield its events, resume it, and answer a question."""


@pytest.mark.part(1)
@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_all_entry_points_ask_the_same_and_go_the_same_way(
    play: tuple[Conversation, tuple[str, ...], int],
) -> None:
    """A9: sync and async, at once or step by step, have the same transcript, questions and end."""
    talk, answers, times = play
    found: list[Went] = []
    for way, (run, follow, resume, give) in WAYS.items():
        for is_async, entry in product((False, True), ("run", "stream", "resume")):
            person, said = Person(*answers), model()
            answer = {"answer": person.later if is_async else person}
            options = {"session": "one", "store": f"memory:{uuid4().hex}", "model": said}
            if entry == "run":
                result = run(talk, **answer, **options)
            elif entry == "stream":
                last = follow(talk, **answer, **options)[-1]
                assert isinstance(last, ConversationEnded | QuestionAsked)
                result = Session("one", store=options["store"]).state()  # type: ignore[arg-type]
            else:
                result = resume(run(talk, **options).session, model=said, **answer)
            found.append(went(result, person.asked))
        # Each question is answered in a separate call.
        person, said = Person(), model()
        result = run(talk, model=said, store="memory:")
        for text in answers:
            (question,) = result.pending
            person.note(question)
            named = {"question": question.id} if way == "async" else {}
            result = give(result.session, text, model=said, **named)
        for question in result.pending:
            person.note(question)
        found.append(went(result, person.asked))
    assert len(found[0].asked) == times
    assert found == [found[0]] * len(found)


# A session that waits


def waiting(store: str) -> str:
    """Leave a session waiting for the person's first message; return its question's id."""
    result = converse(chat(), session="one", store=store, model=ScriptedChatModel(script=[]))
    assert result.outcome is None
    assert result.messages == []
    (question,) = result.pending
    return question.id


def status(store: str, session: str = "one") -> str:
    rows = {row.session: row.status for row in list_sessions(store=store)}
    return rows[session]


def test_a_waiting_session_is_listed_as_such_until_it_ends(store: str) -> None:
    one = Session("one", store=store)
    waiting(store)
    assert status(store) == "waiting"
    assert one.answer("Hello.", model=ScriptedChatModel(script=["Hi."])).outcome is None
    assert status(store) == "waiting"
    assert one.answer("exit").outcome is not None
    assert status(store) == "finished"


def test_a_session_that_failed_behind_an_answer_does_not_wait(store: str) -> None:
    one = Session("one", store=store)
    waiting(store)
    with pytest.raises(Exception, match="script"):
        one.answer("Hello.", model=ScriptedChatModel(script=[]))
    assert status(store) == "unfinished"
    assert one.state().transcript == [("User", "Hello.")]


def test_answers_in_between_and_a_callable_share_one_session(store: str) -> None:
    """A9: after `Session.answer`, a callable answers the following questions of the session."""
    said = ScriptedChatModel(script=["One.", "Two.", "Three."])
    person = Person("Second.", None)
    one = converse(chat(), store=store, model=said, session="one").session
    one.answer("First.", model=said)
    result = one.resume(model=said, answer=person)
    assert len(person.asked) == 2
    result = one.answer("Third.", model=said, answer=Person("exit"))
    assert result.transcript == [
        ("User", "First."),
        ("Assistant", "One."),
        ("User", "Second."),
        ("Assistant", "Two."),
        ("User", "Third."),
        ("Assistant", "Three."),
    ]
    assert result.outcome is not None


def test_an_answer_to_what_is_not_asked_is_one_clear_error(store: str) -> None:
    """An answer needs an open question: not an answered, unknown or ended one."""
    one = Session("one", store=store)
    said = ScriptedChatModel(script=["Hi."])
    before = waiting(store)
    one.answer("Hello.", question=before, model=said)
    kept = one.state()
    with pytest.raises(SessionError, match=r"'one' does not wait for an .* already answered"):
        one.answer("Hello too.", question=before, model=said)
    assert one.state() == kept
    with pytest.raises(SessionError, match="'two'"):
        Session("two", store=store).answer("Hello.")
    assert status(store) == "waiting"
    one.answer("exit")
    with pytest.raises(SessionError, match="'one' has ended and does not wait for an answer"):
        one.answer("Hello?")


def test_a_session_that_asks_nothing_takes_no_answer(store: str) -> None:
    talk = proxy("NEVER")
    with pytest.raises(Exception, match="script"):
        converse(talk, session="one", store=store, model=ScriptedChatModel(script=[]))
    with pytest.raises(SessionError, match="'one' does not wait for an answer"):
        Session("one", store=store).answer("Hello.")


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "bad", [7, 4.5, True, "", " \n", ["Hello.", 7], {"text": "Hello."}], ids=str
)
def test_an_answer_that_does_not_fit_is_asked_again(store: str, bad: object) -> None:
    """After an invalid answer, the same question is asked again with an error message."""
    seen: list[Question] = []
    answers = iter([bad, "Hello.", "exit"])

    def answer(question: Question) -> object:
        seen.append(question)
        return next(answers)

    said = ScriptedChatModel(script=["Hi."])
    result = converse(chat(), session="one", store=store, model=said, answer=answer)
    assert result.transcript == [("User", "Hello."), ("Assistant", "Hi.")]
    first, again, last = seen
    assert first.problem is None
    assert again.problem is not None
    assert "does not fit" in again.problem
    assert "\n" not in again.problem
    assert again.model_copy(update={"problem": None}) == first
    assert last.problem is None


@pytest.mark.parametrize("bad", [7, "  "], ids=["number", "blank"])
def test_what_never_fits_leaves_the_session_waiting(store: str, bad: object) -> None:
    """After five wrong answers there is an error; nothing is lost, and the next run asks again."""
    one = Session("one", store=store)
    seen: list[Question] = []

    def answer(question: Question) -> object:
        seen.append(question)
        return bad

    with pytest.raises(AnswerError, match="does not fit"):
        converse(chat("Hi."), session="one", store=store, model=model(), answer=answer)
    assert len(seen) == 5
    assert status(store) == "waiting"
    kept = one.state()
    assert kept.transcript == [("User", "Hi."), ("Assistant", DRAFTS[0])]
    assert len(kept.pending) == 1
    with pytest.raises(AnswerError, match="does not fit"):
        one.answer(bad)
    assert one.state() == kept
    assert one.answer("exit").outcome is not None


def test_an_answer_may_be_blank_where_that_means_something(store: str) -> None:
    """A4: an answer may be blank if that means an automatic reply, or the end."""
    one = Session("one", store=store)
    result = converse(proxy("ALWAYS"), session="one", store=store, model=model())
    assert isinstance(result.pending[0], MessageQuestion)
    assert result.pending[0].empty == "auto_reply"
    result = one.answer(" ", model=ScriptedChatModel(script=[WORD]))
    assert isinstance(result.pending[0], MessageQuestion)
    assert result.pending[0].empty == "stop"
    assert one.answer("\t").outcome is not None


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (RuntimeError("no such window"), "'answer' failed: RuntimeError: no such window"),
        (StopIteration(), "the function 'answer' failed"),
        # The end of the input only leaves the question open.
        (EOFError(), None),
    ],
    ids=repr,
)
def test_what_fails_to_answer_is_named_and_leaves_the_session_waiting(
    raised: Exception, error: str | None, is_async: bool, store: str
) -> None:
    one = Session("one", store=store)

    def fail(question: Question) -> str:
        raise raised

    async def fail_later(question: Question) -> str:
        return next(iter(())) if isinstance(raised, StopIteration) else fail(question)

    given: dict[str, Any] = {"answer": fail_later if is_async else fail, "model": model()}
    with pytest.raises(SpecError, match=error) if error else nullcontext():
        converse(chat("Hi."), session="one", store=store, **given)
    assert status(store) == "waiting"
    assert len(one.state().pending) == 1
    assert one.answer("exit").outcome is not None


@pytest.mark.parametrize("point", ["before_speaker", "after_speaker"])
@pytest.mark.parametrize("answer", ["Hello.", "exit"])
def test_a_hook_that_fails_behind_an_answer_costs_no_answer(
    store: str, point: str, answer: str
) -> None:
    """L7: the answer is kept, and the resumed run does not ask again; an exit runs no hook."""
    one = Session("one", store=store)
    talk = Conversation.model_validate(
        {
            "speakers": [{"name": "User", "replies": ["human"], "hooks": ["odd"]}, {"name": "Bot"}],
            "end_chat": {"max_iterations": 1},
        }
    )

    def odd(*_: object) -> None:
        raise ValueError("not yet")

    person = Person(answer)
    run: dict[str, Any] = {"model": ScriptedChatModel(script=["Hi."])}
    broken = {"odd": Hook(**{point: odd})}
    if answer == "exit":
        result = converse(talk, session="one", answer=person, hooks=broken, store=store, **run)
        assert result.stop_reason == "quit"
        return
    with pytest.raises(SpecError, match="not yet"):
        converse(talk, session="one", answer=person, hooks=broken, store=store, **run)
    session = one
    assert (session.state().pending, status(store)) == ((), "unfinished")
    with pytest.raises(SessionError, match="does not wait for an answer"):
        session.answer("Other words.", hooks=broken, **run)
    with pytest.raises(SpecError, match="not yet"):
        session.resume(answer=person, hooks=broken, **run)
    result = one.resume(answer=person, hooks={"odd": Hook()}, **run)
    assert result.transcript == [("User", "Hello."), ("Bot", "Hi.")]
    assert len(person.asked) == 1


MADE: dict[str, Callable[[Session], Session]] = {
    "fork": lambda session: session.fork(),
    "dump": lambda session: load_session(session.dump(), into="loaded", store=session.store),
    "copy": lambda session: session.copy(),
}


@pytest.mark.part(1)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_is_made_of_a_waiting_session_asks_too(
    make: Callable[[Session], Session], store: str
) -> None:
    """L2: copies and forks of a waiting session ask the question, too."""
    said = ScriptedChatModel(script=["Hi.", "You too.", "Me too."])
    one = converse(chat("Hello."), session="one", store=store, model=said).session
    new = make(one).id
    result = Session(new, store=store).resume()
    assert result.outcome is None
    (question,) = result.pending
    (first,) = one.state().pending
    assert isinstance(question, MessageQuestion)
    assert question.model_copy(update={"id": first.id}) == first
    for session, answer in ((new, "Bye."), ("one", "Well.")):
        found = Session(session, store=store).answer(answer, model=said)
        assert found.transcript[2] == ("User", answer)
        assert len(found.transcript) == 4


# Processes that end


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    def reply(prompt: Prompt) -> str:
        return f"I heard: {prompt[-1]['content']}"

    with ScriptedServer(reply) as server:
        yield server


@pytest.mark.process
def test_a_question_is_answered_in_another_process(
    start_child: Callable[..., Any], tmp_path: Path, served: ScriptedServer
) -> None:
    """A9, G5: on SQLite one process asks, and others answer after its end."""
    shared: dict[str, Any] = {
        "environment": {"OPENAI_BASE_URL": served.url, "DUOLOGUE_MODEL": "scripted"},
        "session": "one",
        "store": f"sqlite:///{tmp_path / 'sessions.db'}",
    }
    asked = start_child(conversation=chat().model_dump(mode="json"), **shared).result()
    assert (asked["outcome"], len(asked["pending"])) == (None, 1)
    assert status(shared["store"]) == "waiting"
    again = start_child(respond="Hello.", **shared).result()
    assert (again["outcome"], len(again["pending"])) == (None, 1)
    assert again["pending"][0]["heard"] == "I heard: Hello."
    left = start_child(respond="exit", **shared).result()
    assert left["outcome"]["reasons"] == ["quit"]
    late = start_child(respond="Hello?", **shared).result()
    assert "SessionError" in late["error"]
    assert Session("one", store=shared["store"]).state().transcript == [
        ("User", "Hello."),
        ("Assistant", "I heard: Hello."),
    ]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("point", ["before_speaker", "after_speaker"])
def test_broken_off_right_behind_an_answer_nobody_is_asked_again(
    tmp_path: Path, point: str, durability: Literal["sync", "async"]
) -> None:
    """An interrupted run keeps the person's answer, and the resumed run uses it."""
    talk = Conversation.model_validate(
        {
            "speakers": [
                {"name": "User", "replies": ["human"], "hooks": ["breaks"]},
                {"name": "Bot"},
            ],
            "end_chat": {"max_iterations": 1},
        }
    )
    store, breakage, person = tmp_path / "sessions.db", Breakage(), Person("Hello.")
    hook = Hook(**{point: lambda *_: breakage.now()})
    with breakage.under_way(), pytest.raises(DuologueError):
        converse(
            talk,
            session="one",
            store=store,
            answer=person,
            hooks={"breaks": hook},
            durability=durability,
        )
    assert len(person.asked) == 1
    person = Person("Again?")
    result = Session("one", store=store).resume(
        model=ScriptedChatModel(script=["Hi."]), hooks={"breaks": Hook()}, answer=person
    )
    assert result.transcript == [("User", "Hello."), ("Bot", "Hi.")]
    assert person.asked == []
