"""R10: an ended session continues after one more message, and a waiting one can be stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from duologue import (
    Conversation,
    DuologueError,
    Hook,
    Result,
    Session,
    SessionError,
    SpecError,
    chat,
    converse,
    list_sessions,
    load_conversation,
    load_session,
    stream,
    user_proxy,
)
from duologue.graphs.events import ConversationEnded, ConversationReopened, MessageSaid
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Turn
from support.cli_help import duologue, isolate
from support.results import outcome_of
from support.tables import read_rows

ROUNDS = ["Let us plant beans.", "I will dig the bed.", "Then water it.", "The can is full."]


SUMS = user_proxy("What is 2 + 2?", human_input_mode="NEVER", code=False)


@pytest.fixture
def options(store: str) -> dict[str, Any]:
    """Return the options that run session "s"."""
    return {"session": "s", "store": store}


def talk(**fields: Any) -> Conversation:
    end_chat = {"max_iterations": 2} | fields.pop("end_chat", {})
    people = [{"name": "Ann"}, {"name": "Bob"}]
    return load_conversation({"task": "Plan.", "speakers": people, "end_chat": end_chat} | fields)


def model(*script: Line) -> ScriptedChatModel:
    return ScriptedChatModel(script=list(script))


def ended(store: str, conversation: Conversation | None = None) -> Result:
    result = converse(conversation or talk(), session="s", store=store, model=model(*ROUNDS))
    assert result.outcome is not None
    return result


def test_r10_one_more_sentence_is_said_to_an_ended_session_and_its_caps_count_anew(
    store: str,
) -> None:
    session = Session("s", store=store)
    first = ended(store).outcome
    open_ = session.add_message("Ann", "And what about peas?")
    assert open_.outcome is None
    more = session.resume(model=model("Peas, too.", "Where?", "Behind the shed."))
    assert [text for _, text in more.transcript] == [
        *ROUNDS,
        "And what about peas?",
        "Peas, too.",
        "Where?",
        "Behind the shed.",
    ]
    outcome = more.outcome
    assert outcome is not None
    assert str(outcome) == "Ended after 2 rounds and 4 messages: the round cap was reached."
    assert first is not None
    # Budgets continue, and the earlier outcome stays readable.
    assert outcome.total.calls == first.total.calls + 3
    assert more.previous_outcomes == [first]


def test_r10_a_fork_at_the_last_message_is_open_for_one_more_sentence(store: str) -> None:
    session = Session("s", store=store)
    before = ended(store)
    new = session.fork()
    assert new.resume().outcome == before.outcome
    new.add_message("Bob", "One thing is left.")
    more = new.resume(model=model("Which?", "The fence.", "Oh.", "Now."))
    assert outcome_of(more).messages == 4
    assert session.state().outcome == before.outcome


@pytest.mark.parametrize("end", read_rows(__file__, "counted_anew"))
def test_r10_what_ended_it_counts_from_the_new_message(end: str, store: str) -> None:
    session = Session("s", store=store)
    row = read_rows(__file__, "counted_anew")[end]
    conversation, script = talk(end_chat=row["end_chat"]), row["script"]
    first = converse(conversation, session="s", store=store, model=model(*script)).outcome
    assert first is not None
    session.add_message("Ann", "Three.")
    again = session.resume(model=model(*script[1:])).outcome
    assert again is not None
    assert (again.reasons, again.messages) == (first.reasons, first.messages)


def test_r10_a_task_that_was_complete_is_judged_anew(store: str) -> None:
    yes: Line = {"objectives_left": [], "complete": True}
    no: Line = {"objectives_left": ["The fence."], "complete": False}
    people = [{"name": "Ann", "checks_completion": True}, {"name": "Bob"}]
    conversation = talk(speakers=people, end_chat={"mode": "end_chat_after_first_completion"})
    first = converse(conversation, session="s", store=store, model=model("Done.", yes))
    assert outcome_of(first).completed == ("Ann",)
    first.session.add_message("Bob", "The fence, too.")
    again = first.session.resume(model=model("Painted.", no, "Thanks.", "Welcome.", yes))
    assert again.stop_reason == "completed"
    assert [verdict.complete for verdict in outcome_of(again).verdicts] == [False, True]


def test_r10_a_budget_that_is_spent_ends_it_again(store: str) -> None:
    conversation = talk(end_chat={"when": {"kind": "max_calls", "limit": 2}})
    session = converse(conversation, session="s", store=store, model=model("One.", "Two.")).session
    result = session.add_message("Ann", "Three.")
    assert result.stop_reason == "max_calls"
    assert len(result.previous_outcomes) == 1
    assert [row for row in result.transcript if row[1] == "Three."]


def test_r10_what_ended_in_its_opening_has_nothing_to_go_on_with(store: str) -> None:
    people = [{"name": name, "task": "Say something."} for name in ("Ann", "Bob")]
    conversation = talk(
        speakers=people,
        opening={"answers": True},
        end_chat={"when": {"kind": "max_calls", "limit": 1}},
    )
    session = converse(conversation, session="s", store=store, model=model("One.")).session
    with pytest.raises(SessionError, match="'s' ended at its opening; reset it to run it again"):
        session.add_message("Ann", "More.")


def test_r10_a_user_proxy_is_sent_a_second_message(options: dict[str, Any]) -> None:
    """R10: a user proxy accepts a second message, like AutoGen's second ``send``."""
    converse(SUMS, model=model("It is 4. TERMINATE"), **options)
    scripted = model("It is 6. TERMINATE")
    more = converse(SUMS, message="And 3 + 3?", model=scripted, **options)
    assert [message.text for message in scripted.calls[0].messages[1:]] == [
        "What is 2 + 2?",
        "It is 4. TERMINATE",
        "And 3 + 3?",
    ]
    assert (more.stop_reason, outcome_of(more).messages) == ("termination", 2)
    # Without a message it is not run again.
    assert converse(SUMS, **options).outcome == more.outcome


def test_r10_a_chat_takes_a_message_each_time(options: dict[str, Any]) -> None:
    """R10: new, waiting and ended sessions accept a message."""
    first = converse(chat(), message="Hello.", model=model("Hello! What is it?"), **options)
    assert first.pending
    second = converse(chat(), message="Six times seven?", model=model("42."), **options)
    assert second.last_message("Assistant") == "42."
    assert converse(chat(), message="exit", model=model(), **options).outcome is not None
    last = converse(chat(), message="Are you there?", model=model("Yes."), **options)
    assert last.outcome is None
    assert last.transcript[-2:] == [("User", "Are you there?"), ("Assistant", "Yes.")]
    assert [outcome.reason.value for outcome in last.previous_outcomes] == ["quit"]


def test_r10_a_message_comes_after_an_answer_that_ends_it(store: str) -> None:
    session = converse(
        chat(), message="Hello.", session="s", model=model("Hello!"), store=store
    ).session
    result = session.answer("exit", message="Wait.", model=model("Yes?"))
    assert result.transcript[-2:] == [("User", "Wait."), ("Assistant", "Yes?")]
    assert [outcome.reason.value for outcome in result.previous_outcomes] == ["quit"]


def test_r10_a_message_waits_for_the_end_of_what_was_broken_off(options: dict[str, Any]) -> None:
    """R10: without a question to a person, the message comes after the end."""
    scripted = model("It is 4. TERMINATE", "It is 6. TERMINATE")
    result = converse(SUMS, message="And 3 + 3?", model=scripted, **options)
    assert [text for _, text in result.transcript][-2:] == ["And 3 + 3?", "It is 6. TERMINATE"]


def test_r10_who_has_left_and_leaves_again_says_nothing_more(
    store: str, options: dict[str, Any]
) -> None:
    left = converse(chat(), message="exit", model=model(), **options)
    again = converse(chat(), message=" Exit ", model=model(), **options)
    assert (again.outcome, again.transcript) == (left.outcome, left.transcript)
    once = converse(SUMS, message="exit", model=model("4. TERMINATE"), store=store)
    assert once.transcript[-1] == ("Assistant", "4. TERMINATE")


def test_r10_a_message_that_nobody_could_say_is_not_lost_silently(options: dict[str, Any]) -> None:
    """R10: a message is refused while tool calls wait for a decision."""
    call = ScriptedToolCall(name="calculator", args={"expression": "6 * 7"}, id="1")
    helper = chat(tools=["calculator"], interrupt_on={"calculator": True})
    converse(helper, message="6 * 7?", model=model(Reply(tool_calls=(call,))), **options)
    with pytest.raises(
        SessionError, match="waits for another answer, so the message was not added"
    ):
        converse(helper, message="And 7 * 8?", model=model(), **options)
    yes = iter([{"decisions": [{"type": "approve"}]}, None])
    both = model("It is 42.", "It is 56.")
    said = converse(
        helper, message="And 7 * 8?", model=both, answer=lambda asked: next(yes), **options
    )
    assert said.transcript[-3:] == [
        ("Assistant", "It is 42."),
        ("User", "And 7 * 8?"),
        ("Assistant", "It is 56."),
    ]


@pytest.mark.parametrize(
    ("people", "match"),
    read_rows(__file__, "r10_a_message_needs_one_person"),
)
def test_r10_a_message_needs_one_person(people: list[str], match: str, store: str) -> None:
    replies = {name: {"replies": ["human"]} for name in people}
    speakers = [{"name": name} | replies.get(name, {}) for name in ("Ann", "Bob")]
    with pytest.raises(SpecError, match=match):
        converse(talk(speakers=speakers), message="Hi.", store=store, model=model())
    for odd in ("", " ", 3):
        options: dict[str, Any] = {"message": odd}
        with pytest.raises(TypeError, match="message: must be text that is not empty"):
            converse(chat(), store=store, **options)


def test_r10_the_stream_tells_that_it_went_on(options: dict[str, Any]) -> None:
    *_, end = stream(SUMS, model=model("It is 4. TERMINATE"), **options)
    assert isinstance(end, ConversationEnded)
    new = [*stream(SUMS, message="And 3 + 3?", model=model("6. TERMINATE"), **options)]
    told = [
        event
        for event in new
        if isinstance(event, ConversationReopened | MessageSaid | ConversationEnded)
    ]
    assert [type(event) for event in told] == [
        ConversationReopened,
        MessageSaid,
        MessageSaid,
        ConversationEnded,
    ]
    assert isinstance(told[0], ConversationReopened)
    assert told[0].outcome.explanations == end.explanations
    again = [event for event in stream(SUMS, **options) if isinstance(event, ConversationReopened)]
    assert again == told[:1]


def test_r10_why_and_the_page_tell_each_end(store: str) -> None:
    session = Session("s", store=store)
    ended(store)
    session.add_message("Ann", "And what about peas?")
    result = session.resume(model=model("Peas, too.", "Where?", "Behind the shed."))
    texts = [cause.text for cause in result.why()]
    # The earlier end did not cause the later one.
    assert texts == ["the round cap was reached"]
    page = session.export(format="markdown")
    assert "and 4 messages: the round cap was reached. Then it continued" in page
    # No speaker hears of it.
    for name in ("Ann", "Bob"):
        assert not any("Ended" in message.text for message in result.viewpoint(name))


def test_r10_what_went_on_can_be_dumped_and_forked_as_before(store: str) -> None:
    session = Session("s", store=store)
    ended(store)
    session.add_message("Ann", "And what about peas?")
    result = session.resume(model=model("Peas, too.", "Where?", "Behind the shed."))
    loaded = load_session(session.dump(), into="copy", store=store).id
    assert Session(loaded, store=store).state().outcome == result.outcome
    places = [message.additional_kwargs["duologue_place"] for message in result.messages]
    for place in places[len(places) // 2 :]:
        new = session.fork(at=f"m{place:04}")
        script = model(*(f"Line number {number} of the fork." for number in range(9)))
        assert new.resume(model=script).stop_reason == "max_iterations"


@pytest.mark.parametrize(
    "kind", [chat, lambda: user_proxy("Hi.", code=False)], ids=["chat", "proxy"]
)
def test_r10_a_session_that_waits_can_be_stopped(
    kind: Callable[[], Conversation], store: str
) -> None:
    waiting = converse(kind(), session="s", store=store, model=model("Hello."))
    assert waiting.pending
    assert waiting.session.stop()
    result = waiting.session.state()
    assert (result.stop_reason, result.pending) == ("stop_requested", ())
    with pytest.raises(SessionError, match="has ended already"):
        waiting.session.stop()
    # The session continues like any other.
    assert waiting.session.add_message("User", "Wait!").outcome is None
    assert waiting.session.resume(model=model("Yes?")).last_message("Assistant") == "Yes?"


def test_r10_where_a_stop_alone_does_not_end_it_the_error_says_so(store: str) -> None:
    when = {"kind": "all", "of": ["stop_requested", {"kind": "done_token", "token": "#A#"}]}
    person = {"name": "Ann", "replies": ["human"]}
    conversation = talk(speakers=[person, {"name": "Bob"}], end_chat={"when": when})
    session = converse(conversation, session="s", store=store, model=model()).session
    with pytest.raises(SessionError, match="a stop alone does not meet its"):
        session.stop()
    assert session.state().pending


# Takeovers: stop after the turn, add a message as any speaker, change the rules, continue

THREE = {
    "task": "Plan a party",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}, {"name": "Cid"}],
    "end_chat": {"max_iterations": 3},
}


def lines(count: int) -> list[str]:
    """Return lines that differ, so that no guard counts them."""
    return [f"Line {number}: {chr(97 + number) * 9}." for number in range(count)]


def halted(store: str, spec: dict[str, Any], after: int) -> Session:
    """Run session "one" up to so many messages; the next model call fails."""
    model = ScriptedChatModel(script=[*lines(after), RuntimeError("the line is dead")])
    with pytest.raises(Exception, match="the line is dead"):
        converse(Conversation.model_validate(spec), session="one", model=model, store=store)
    return Session("one", store=store)


def names(result: Result) -> list[str]:
    return [name for name, _ in result.transcript]


@pytest.mark.parametrize(
    ("speaker", "following"),
    [("Ann", "Bob"), ("Bob", "Cid"), ("Cid", "Ann")],
    ids=["who has just spoken", "whose turn it is", "out of turn"],
)
def test_anybody_may_be_spoken_for_and_the_next_in_order_goes_on(
    speaker: str, following: str, store: str
) -> None:
    one = halted(store, THREE, after=1)
    result = one.add_message(speaker, "I take over.")
    assert result.transcript[1:] == [(speaker, "I take over.")]
    model = ScriptedChatModel(script=lines(9)[1:])
    result = one.resume(model=model)
    assert names(result)[:3] == ["Ann", speaker, following]
    assert len(result.transcript) == 9
    assert result.stop_reason == "max_iterations"
    heard = model.calls[0].prompt
    assert "I take over." in str(heard)
    # Only the current speaker gets a cue for its turn.
    turns = [line for line in str(heard).split("\\n") if "it is your turn" in line]
    assert all(following in line for line in turns)


@pytest.mark.parametrize(
    ("ends", "text", "reason"),
    [
        ({"when": {"kind": "done_token", "token": "OVER"}}, "OVER", "done_token"),
        # A turn said for somebody counts as a part of a round.
        ({"max_iterations": 1}, "Enough of it.", "max_iterations"),
    ],
)
def test_what_is_said_ends_it_as_if_it_were_the_speakers_own(
    ends: dict[str, Any], text: str, reason: str, store: str
) -> None:
    one = halted(store, THREE | {"end_chat": ends}, after=2)
    result = one.add_message("Ann", text)
    assert result.stop_reason == reason
    assert outcome_of(result).by == ("Ann" if reason == "done_token" else None)
    assert list_sessions(store=store)[0].status == "finished"


def test_stop_say_change_the_mode_and_a_prompt_and_go_on(store: str) -> None:
    two = Session("two", store=store)
    one = Session("one", store=store)

    async def stopping(turn: Turn) -> None:
        if len(turn.messages) > 3:
            await one.astop()

    speakers = [{"name": "Ann", "hooks": ["stopping"]}, {"name": "Bob", "checks_completion": True}]
    spec = THREE | {"speakers": speakers}
    hooks = {"stopping": Hook(before_speaker=stopping)}
    model = ScriptedChatModel(script=lines(9))
    stopped = converse(
        Conversation.model_validate(spec), session="one", model=model, store=store, hooks=hooks
    )
    assert stopped.stop_reason == "stop_requested"
    one.fork(
        into="two",
        end_chat={"mode": "end_chat_after_first_completion"},
        speakers={"Bob": {"system_prompt": "You are Bob, and brief now."}, "Ann": {"hooks": []}},
    )
    said = two.add_message("Ann", "From here on I decide.")
    assert said.transcript[:-1] == stopped.transcript
    later = ScriptedChatModel(script=["Fine.", {"objectives_left": [], "complete": True}])
    result = two.resume(model=later)
    assert result.transcript[-2:] == [("Ann", "From here on I decide."), ("Bob", "Fine.")]
    assert later.calls[0].prompt[0]["content"].startswith("You are Bob, and brief now.")
    assert result.stop_reason == "completed"
    assert one.state() == stopped


def test_a_question_that_somebody_is_asked_is_dropped(store: str) -> None:
    waits = converse(chat(), session="one", store=store)
    assert waits.pending
    result = waits.session.add_message("User", "Good morning.")
    assert not result.pending
    assert list_sessions(store=store)[0].status == "unfinished"
    with pytest.raises(SessionError, match="does not wait for an answer"):
        waits.session.answer("Good evening.", question=waits.pending[0].id)
    result = waits.session.resume(model=ScriptedChatModel(script=["Hello."]))
    assert result.transcript == [("User", "Good morning."), ("Assistant", "Hello.")]
    assert [question.id for question in result.pending] != [waits.pending[0].id]


def test_a4_what_is_said_for_the_user_is_a_persons_and_begins_the_count_anew(store: str) -> None:
    one = Session("one", store=store)
    spec = user_proxy("Go.", human_input_mode="NEVER", max_consecutive_auto_reply=1, code=False)
    model = ScriptedChatModel(script=[*lines(1), RuntimeError("the line is dead")])
    with pytest.raises(Exception, match="the line is dead"):
        converse(spec, session="one", model=model, store=store)
    one.add_message("User", "I am here myself.")
    result = one.resume(model=ScriptedChatModel(script=lines(9)))
    # One automatic reply before it, and one after it.
    assert len([name for name in names(result) if name == "User"]) == 4
    assert result.stop_reason == "max_consecutive_auto_reply"


def test_calls_that_have_not_run_are_dropped(store: str) -> None:
    one = Session("one", store=store)
    ran = []

    @tool
    def ring() -> str:
        """Ring the bell."""
        ran.append("ring")
        return "rings"

    def fails(turn: Turn, call: object) -> None:
        raise RuntimeError("not now")

    speakers = [{"name": "Ann", "tools": ["ring"], "hooks": ["fails"]}, {"name": "Bob"}]
    spec = Conversation.model_validate(
        THREE | {"speakers": speakers, "end_chat": {"max_iterations": 1}}
    )
    call = Reply(tool_calls=[ScriptedToolCall(name="ring", args={}, id="a")])
    given: dict[str, Any] = {"tools": [ring], "hooks": {"fails": Hook(before_tool=fails)}}
    model = ScriptedChatModel(script=[call, "I heard no bell."])
    with pytest.raises(SpecError, match="not now"):
        converse(spec, session="one", model=model, store=store, **given)
    one.add_message("Ann", "Never mind the bell.")
    result = one.resume(model=model, **given)
    assert result.transcript == [("Ann", "Never mind the bell."), ("Bob", "I heard no bell.")]
    assert not ran
    assert not any(message.get("tool_calls") for call in model.calls for message in call.prompt)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (("one", "Dan", "Hi"), SpecError, "no speaker in session 'one' is called 'Dan'"),
        (("one", "Ann", " "), SpecError, "text: must be text that is not empty"),
        (("two", "Ann", "Hi"), SessionError, "no session 'two'"),
    ],
)
def test_bad_input_is_one_error(
    given: tuple[str, str, str], error: type[DuologueError], words: str, store: str
) -> None:
    one = halted(store, THREE, after=1)
    before = one.state()
    session, speaker, text = given
    with pytest.raises(error, match=words):
        Session(session, store=store).add_message(speaker, text)
    assert one.state() == before


@pytest.mark.usefixtures("impatient")
def test_nothing_is_said_while_somebody_runs_it_or_in_its_opening(store: str) -> None:
    one = Session("one", store=store)
    refused: list[str] = []

    async def saying(turn: Turn) -> None:
        try:
            await one.aadd_message("Ann", "Me, too!")
        except SessionError as error:
            refused.append(str(error))

    speakers = [
        {"name": "Ann", "hooks": ["saying"], "private_opening": {"prompt": "Choose a number."}},
        {"name": "Bob"},
    ]
    spec = Conversation.model_validate(THREE | {"speakers": speakers})
    hooks = {"saying": Hook(before_speaker=saying)}
    model = ScriptedChatModel(script=[RuntimeError("the line is dead")])
    with pytest.raises(Exception, match="the line is dead"):
        converse(spec, session="one", model=model, store=store, hooks=hooks)
    assert len(refused) == 1
    assert "busy" in refused[0]
    with pytest.raises(SessionError, match="still at its opening"):
        one.add_message("Ann", "Me, too!")


def test_the_command_says_it_and_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    store = str(tmp_path / "one.db")
    halted(store, THREE, after=1)
    ran = duologue("say", "one", "Bob", "I take over.", "--store", store)
    assert ran.exit_code == 0
    assert ran.stdout == "Added the message of Bob.\n"
    assert ran.stderr == f"Continue with: duologue resume --store {store} one\n"
    assert Session("one", store=store).state().transcript[-1] == ("Bob", "I take over.")
    ran = duologue("say", "one", "Dan", "I take over.", "--store", store)
    assert ran.exit_code == 2
    assert "no speaker in session 'one' is called 'Dan'" in ran.stderr
