"""Takeovers: stop after the turn, add a message as any speaker, change the rules, continue."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    DuologueError,
    Result,
    Session,
    SessionError,
    SpecError,
    chat,
    converse,
    list_sessions,
    user_proxy,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools.registry.hooks import Hook, Turn
from support.cli_help import duologue, isolate

THREE = {
    "task": "Plan a party",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}, {"name": "Cid"}],
    "end_chat": {"max_iterations": 3},
}


@pytest.fixture
def store() -> str:
    return f"memory:{uuid4()}"


def lines(count: int) -> list[str]:
    """Return lines that differ, so that no guard counts them."""
    return [f"Line {number}: {chr(97 + number) * 9}." for number in range(count)]


def halted(store: str, spec: dict[str, Any], after: int) -> None:
    """Run session "one" up to so many messages; the next model call fails."""
    model = ScriptedChatModel(script=[*lines(after), RuntimeError("the line is dead")])
    with pytest.raises(Exception, match="the line is dead"):
        converse(Conversation.model_validate(spec), session="one", model=model, store=store)


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
    halted(store, THREE, after=1)
    result = Session("one", store=store).add_message(speaker, "I take over.")
    assert result.transcript[1:] == [(speaker, "I take over.")]
    model = ScriptedChatModel(script=lines(9)[1:])
    result = Session("one", store=store).resume(model=model)
    assert names(result)[:3] == ["Ann", speaker, following]
    assert len(result.transcript) == 9
    assert result.outcome is not None
    assert result.outcome.reason.value == "max_iterations"
    heard = model.calls[0].prompt
    assert "I take over." in str(heard)
    # Only the current speaker gets a cue for its turn.
    turns = [line for line in str(heard).split("\\n") if "it is your turn" in line]
    assert all(following in line for line in turns)


def test_what_is_said_ends_it_as_if_it_were_the_speakers_own(store: str) -> None:
    ends = {"when": {"kind": "done_token", "token": "OVER"}}
    spec = THREE | {"end_chat": ends}
    halted(store, spec, after=2)
    result = Session("one", store=store).add_message("Ann", "OVER")
    assert result.outcome is not None
    assert result.outcome.reason.value == "done_token"
    assert result.outcome.by == "Ann"
    assert list_sessions(store=store)[0].status == "finished"


def test_a_turn_said_for_somebody_counts_as_a_round(store: str) -> None:
    halted(store, THREE | {"end_chat": {"max_iterations": 1}}, after=2)
    result = Session("one", store=store).add_message("Ann", "Enough of it.")
    assert result.outcome is not None
    assert result.outcome.reason.value == "max_iterations"


def test_stop_say_change_the_mode_and_a_prompt_and_go_on(store: str) -> None:
    async def stopping(turn: Turn) -> None:
        if len(turn.messages) > 3:
            await Session("one", store=store).astop()

    speakers = [{"name": "Ann", "hooks": ["stopping"]}, {"name": "Bob", "checks_completion": True}]
    spec = THREE | {"speakers": speakers}
    hooks = {"stopping": Hook(before_speaker=stopping)}
    model = ScriptedChatModel(script=lines(9))
    stopped = converse(
        Conversation.model_validate(spec), session="one", model=model, store=store, hooks=hooks
    )
    assert stopped.outcome is not None
    assert stopped.outcome.reason.value == "stop_requested"
    Session("one", store=store).fork(
        into="two",
        end_chat={"mode": "end_chat_after_first_completion"},
        speakers={"Bob": {"system_prompt": "You are Bob, and brief now."}, "Ann": {"hooks": []}},
    )
    said = Session("two", store=store).add_message("Ann", "From here on I decide.")
    assert said.transcript[:-1] == stopped.transcript
    later = ScriptedChatModel(script=["Fine.", {"objectives_left": [], "complete": True}])
    result = Session("two", store=store).resume(model=later)
    assert result.transcript[-2:] == [("Ann", "From here on I decide."), ("Bob", "Fine.")]
    assert later.calls[0].prompt[0]["content"].startswith("You are Bob, and brief now.")
    assert result.outcome is not None
    assert result.outcome.reason.value == "completed"
    assert Session("one", store=store).state() == stopped


def test_a_question_that_somebody_is_asked_is_dropped(store: str) -> None:
    waits = converse(chat(), session="one", store=store)
    assert waits.pending
    result = Session("one", store=store).add_message("User", "Good morning.")
    assert not result.pending
    assert list_sessions(store=store)[0].status == "unfinished"
    with pytest.raises(SessionError, match="does not wait for an answer"):
        Session("one", store=store).answer("Good evening.", question=waits.pending[0].id)
    result = Session("one", store=store).resume(model=ScriptedChatModel(script=["Hello."]))
    assert result.transcript == [("User", "Good morning."), ("Assistant", "Hello.")]
    assert [question.id for question in result.pending] != [waits.pending[0].id]


def test_a4_what_is_said_for_the_user_is_a_persons_and_begins_the_count_anew(store: str) -> None:
    spec = user_proxy("Go.", human_input_mode="NEVER", max_consecutive_auto_reply=1, code=False)
    model = ScriptedChatModel(script=[*lines(1), RuntimeError("the line is dead")])
    with pytest.raises(Exception, match="the line is dead"):
        converse(spec, session="one", model=model, store=store)
    Session("one", store=store).add_message("User", "I am here myself.")
    result = Session("one", store=store).resume(model=ScriptedChatModel(script=lines(9)))
    # One automatic reply before it, and one after it.
    assert len([name for name in names(result) if name == "User"]) == 4
    assert result.outcome is not None
    assert result.outcome.reason.value == "max_consecutive_auto_reply"


def test_calls_that_have_not_run_are_dropped(store: str) -> None:
    ran = []

    @tool
    def ring() -> str:
        """Ring the bell."""
        ran.append("ring")
        return "rings"

    def fails(turn: Turn, call: Any) -> None:  # noqa: ANN401
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
    Session("one", store=store).add_message("Ann", "Never mind the bell.")
    result = Session("one", store=store).resume(model=model, **given)
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
    halted(store, THREE, after=1)
    before = Session("one", store=store).state()
    session, speaker, text = given
    with pytest.raises(error, match=words):
        Session(session, store=store).add_message(speaker, text)
    assert Session("one", store=store).state() == before


@pytest.mark.usefixtures("impatient")
def test_nothing_is_said_while_somebody_runs_it_or_in_its_opening(store: str) -> None:
    refused: list[str] = []

    async def saying(turn: Turn) -> None:
        try:
            await Session("one", store=store).aadd_message("Ann", "Me, too!")
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
        Session("one", store=store).add_message("Ann", "Me, too!")


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
