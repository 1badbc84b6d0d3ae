"""Rounds in which all speakers speak at once."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.outputs import ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime

from duologue import (
    Conversation,
    DoneToken,
    MaxCalls,
    MaxMessages,
    MaxTokens,
    ModelError,
    Result,
    Session,
    Speaker,
    SpecError,
    aconverse,
    build_graph,
    converse,
    load_conversation,
    load_session,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import kind_of, of_kind
from support.prompts import PROMPTS
from support.results import outcome_of
from support.tables import each_row

NAMES = ("Ann", "Bob", "Cid")
ALL_SPEAK = PROMPTS["all_speak"]


def vote(
    rounds: int = 2, *, tools: dict[str, list[str]] | None = None, **fields: Any
) -> Conversation:
    """Return a conversation of three speakers at once, each with a model of the same name."""
    known = tools or {}
    speakers = [{"name": one, "model": one, "tools": known.get(one, [])} for one in NAMES]
    default = {"speakers": speakers, "end_chat": {"max_iterations": rounds}}
    given = {"task": "Which bean?", "turn_order": "concurrent"} | default | fields
    return load_conversation(given)


def models(**scripts: Sequence[Line]) -> dict[str, ScriptedChatModel]:
    """Return a model for each speaker. Those without a script say one line per round."""
    own = {name: [f"{name} likes bean {number}." for number in range(4)] for name in NAMES}
    return {name: ScriptedChatModel([*script]) for name, script in (own | scripts).items()}


def play(conversation: Conversation, used: dict[str, ScriptedChatModel], **options: Any) -> Result:
    store = options.pop("store", f"memory:{uuid4().hex}")
    return converse(conversation, models=used, store=store, **options)


def heard(model: ScriptedChatModel, call: int) -> list[str]:
    """Return the prompt of a call without the system prompt, each text with its role."""
    return [f"{one.type[0]}: {one.text}" for one in model.calls[call].messages[1:]]


def names_of(result: Result) -> list[str]:
    return [name for name, _ in result.transcript]


def test_each_speaker_hears_the_rounds_before_and_nothing_of_its_own_round() -> None:
    used = models()
    result = play(vote(3), used)
    assert result.transcript == [
        (name, f"{name} likes bean {number}.") for number in range(3) for name in NAMES
    ]
    assert heard(used["Bob"], 0) == [f"h: {ALL_SPEAK}"]
    assert heard(used["Bob"], 2) == [
        f"h: {ALL_SPEAK}",
        "a: Bob likes bean 0.",
        f"h: Ann: Ann likes bean 0.\n\nCid: Cid likes bean 0.\n\n{ALL_SPEAK}",
        "a: Bob likes bean 1.",
        f"h: Ann: Ann likes bean 1.\n\nCid: Cid likes bean 1.\n\n{ALL_SPEAK}",
    ]
    # Each prompt continues the one before, so that a provider's cache applies.
    assert heard(used["Cid"], 2)[:3] == heard(used["Cid"], 1)


class MeetingModel(ScriptedChatModel):
    """A model whose calls are answered when as many calls wait as the barrier has parties."""

    barrier: Any

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        await self.barrier.wait()
        return await super()._agenerate(*args, **kwargs)


def meeting(parties: int) -> MeetingModel:
    script = [f"This is answer number {number}." for number in range(6)]
    return MeetingModel(script=script, barrier=asyncio.Barrier(parties))


async def test_the_models_of_a_round_are_called_at_the_same_time() -> None:
    """Each call waits for all three calls of its round. One after the other would wait forever."""
    model = meeting(len(NAMES))
    conversation = vote(speakers=[Speaker(name) for name in NAMES])
    async with asyncio.timeout(60):
        result = await aconverse(conversation, model=model, store=f"memory:{uuid4().hex}")
    assert names_of(result) == [*NAMES, *NAMES]
    assert len(model.calls) == 2 * len(NAMES)


def test_a_failed_call_is_repeated_alone(tmp_path: Path) -> None:
    """The answers of the other calls of the round are recorded, and are not requested again."""
    store = str(tmp_path / "sessions.db")
    used = models(Bob=[ModelError("gone"), "Bob likes bean 0.", "Bob likes bean 1."])
    with pytest.raises(ModelError):
        play(vote(), used, store=store, session="vote")
    assert [len(model.calls) for model in used.values()] == [1, 1, 1]
    result = Session("vote", store=store).resume(models=used)
    assert [len(model.calls) for model in used.values()] == [2, 3, 2]
    assert result.transcript == play(vote(), models()).transcript
    assert outcome_of(result).total.calls == 6


async def test_after_an_interruption_only_the_call_in_flight_is_repeated(tmp_path: Path) -> None:
    store = str(tmp_path / "sessions.db")
    others, late = models(), meeting(2)
    run = asyncio.create_task(
        aconverse(vote(), models={**others, "Cid": late}, store=store, session="vote")
    )
    async with asyncio.timeout(60):
        while _recorded_answers(Path(store)) < 2:  # noqa: ASYNC110  # of another thread
            await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    result = await Session("vote", store=store).aresume(models=others)
    assert {name: len(model.calls) for name, model in others.items()} == dict.fromkeys(NAMES, 2)
    assert names_of(result) == [*NAMES, *NAMES]
    assert await Session("vote", store=store).astate() == result


def _recorded_answers(store: Path) -> int:
    """Return the number of answers that a store has recorded and no step has used yet."""
    if not store.exists():
        return 0
    with sqlite3.connect(store) as database:
        tables = database.execute("select name from sqlite_master where name = 'writes'")
        if tables.fetchone() is None:
            return 0
        found = database.execute("select count(*) from writes where channel = '__return__'")
        return int(found.fetchone()[0])


_KILLED = """
import os, signal, sys, threading
from pathlib import Path
from nodes.turn.test_concurrent_rounds import _recorded_answers, meeting, models, vote
from duologue import converse

store = sys.argv[1]

def die():
    while _recorded_answers(Path(store)) < 2:
        pass
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()
used = {**models(), "Cid": meeting(2)}
converse(vote(), models=used, store=store, session="v")
"""


@pytest.mark.process
def test_a_killed_process_leaves_the_answers_that_have_arrived(tmp_path: Path) -> None:
    store = str(tmp_path / "sessions.db")
    tests = Path(__file__).parents[2]
    killed = subprocess.run(  # this test's own program
        [sys.executable, "-c", _KILLED, store],
        env=os.environ | {"PYTHONPATH": str(tests)},
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    # A second call for the first round would use the line of the second round.
    used = models(Ann=["Ann likes bean 1."], Bob=["Bob likes bean 1."])
    result = Session("v", store=store).resume(models=used)
    assert result.transcript == play(vote(), models()).transcript


@pytest.mark.exhaustive
def test_a_run_in_threads_and_a_checkpointer_of_langgraph_give_the_same_conversation() -> None:
    """The graph is compiled as for LangGraph's servers."""
    expected = play(vote(), models()).transcript
    graph = build_graph(models=models(), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "vote"}}
    state = graph.invoke({"conversation": vote().stored()}, config)
    assert [(one.name, one.text) for one in state["messages"]] == expected


# Ends


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        pytest.param(MaxMessages(1), "max_messages", marks=pytest.mark.exhaustive),
        pytest.param(MaxCalls(1), "max_calls", marks=pytest.mark.exhaustive),
        pytest.param(MaxCalls(1, by="Bob"), "max_calls", marks=pytest.mark.exhaustive),
        pytest.param(MaxTokens(5), "max_tokens", marks=pytest.mark.exhaustive),
        (DoneToken("DONE", by="Ann"), "done_token"),
    ],
)
def test_ends_apply_when_the_round_is_complete(when: Any, reason: str) -> None:  # noqa: ANN401
    used = models(Ann=["DONE"])
    conversation = vote(end_chat={"when": when, "allow_unanswered_end": True})
    result = play(conversation, used)
    assert names_of(result) == [*NAMES]
    assert result.stop_reason == reason


def test_the_calls_of_a_round_belong_to_their_speakers() -> None:
    conversation = vote(end_chat=MaxCalls(2, by="Bob") | MaxMessages(12))
    result = play(conversation, models())
    assert outcome_of(result).explanations == ("Bob's cap on model calls was reached (2 calls)",)
    assert names_of(result) == [*NAMES, *NAMES]


@pytest.mark.exhaustive
def test_a_separate_judge_is_asked_once_in_each_round_about_all_messages() -> None:
    judge = ScriptedChatModel(
        [{"all_criteria": {}, "criterion_1": answer} for answer in ("not met", "met")]
    )
    conversation = vote(
        4,
        judge={"kind": "separate", "model": "judge", "criteria": ["They agree."]},
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 4},
    )
    result = play(conversation, {**models(), "judge": judge})
    assert len(judge.calls) == 2
    assert "Cid likes bean 0." in str(judge.calls[0].messages)
    assert names_of(result) == [*NAMES, *NAMES]


# Turns


@pytest.mark.exhaustive
def test_a_rejected_answer_is_requested_again_without_the_others_messages() -> None:
    used = models(Bob=["", "Bob likes peas."])
    result = play(vote(1), used)
    assert result.transcript[1] == ("Bob", "Bob likes peas.")
    assert "Ann likes" not in str(heard(used["Bob"], 1))


def test_equal_votes_are_no_echoes() -> None:
    same = "I vote for the runner bean, because it climbs and has beautiful red flowers."
    used = models(**{name: [same] for name in NAMES})
    result = play(vote(1), used)
    assert result.transcript == [(name, same) for name in NAMES]
    assert [len(model.calls) for model in used.values()] == [1, 1, 1]


def test_tools_run_in_the_turn_of_their_speaker() -> None:
    @tool
    def price(bean: str) -> str:
        """Return a price."""
        return f"{bean}: 3"

    called = Reply(tool_calls=[ScriptedToolCall(id="c1", name="price", args={"bean": "pea"})])
    used = models(Bob=[called, "It costs 3."])
    result = play(vote(1, tools={"Bob": ["price"]}), used, tools=[price])
    assert [text for name, text in result.transcript if name == "Bob"][-1] == "It costs 3."
    assert heard(used["Bob"], 1)[-1] == "t: pea: 3"
    assert "Ann likes" not in str(heard(used["Bob"], 1))


def test_a_tool_and_an_inner_conversation_receive_nothing_of_the_round() -> None:
    known: list[list[str]] = []

    @tool
    def look(runtime: ToolRuntime[None, Any]) -> str:
        """Look at the messages that the caller knows."""
        texts = [message.text for message in runtime.state["messages"]]
        known.append([text for text in texts if text])
        return "seen"

    team = Conversation("Think alone.", [Speaker("Iris"), Speaker("Jay")], end_chat=MaxMessages(2))
    looks = [Reply(tool_calls=[ScriptedToolCall(id=f"c{n}", name="look", args={})]) for n in "12"]
    used = models(Bob=[looks[0], "Bob first.", looks[1], "Bob then."])
    asked = ScriptedChatModel(["Iris 1.", "Jay 1.", "Iris 2.", "Jay 2."])
    speakers = [
        {"name": "Ann", "model": "Ann"},
        {"name": "Bob", "model": "Bob", "tools": ["look"]},
        Speaker("Team", replies=[team]),
    ]
    result = play(vote(speakers=speakers), used, model=asked, tools=[look])
    assert names_of(result) == ["Ann", "Bob", "Team"] * 2
    assert known[0] == []
    assert known[1] == ["Bob first.", "Ann likes bean 0.", "Jay 1."]
    tasks = [call.messages[0].text for call in asked.calls[::2]]
    assert "Think alone." in tasks[0]
    assert "Ann likes bean 0." in tasks[1]
    assert "Bob first." in tasks[1]
    assert "bean 1." not in tasks[1]
    assert "Bob then." not in tasks[1]


@pytest.mark.exhaustive
def test_an_ending_tool_takes_effect_when_the_round_is_complete() -> None:
    @tool
    def sign() -> str:
        """Sign."""
        return "Signed."

    signed = Reply(tool_calls=[ScriptedToolCall(id="c1", name="sign", args={})])
    used = models(Ann=[signed, "I have signed."])
    end_chat = {"when": {"kind": "tool_called", "tool": "sign"}}
    result = play(vote(tools={"Ann": ["sign"]}, end_chat=end_chat), used, tools=[sign])
    assert result.stop_reason == "tool_called"
    assert result.last_message("Cid") == "Cid likes bean 0."


def test_a_person_is_asked_first_and_hears_nothing_of_the_round() -> None:
    speakers = [
        {"name": "Ann", "model": "Ann"},
        {"name": "Pat", "replies": ["human"]},
        {"name": "Cid", "model": "Cid"},
    ]
    used = models()
    questions: list[Any] = []

    def answer(question: Any) -> str:  # noqa: ANN401
        questions.append(question)
        return f"Pat wants bean {len(questions)}."

    result = play(vote(speakers=speakers), used, answer=answer)
    assert names_of(result) == ["Pat", "Ann", "Cid"] * 2
    assert "likes" not in str(questions[0])
    assert "Cid likes bean 0." in str(questions[1])
    assert "Pat" not in str(heard(used["Ann"], 0))
    assert "Pat wants bean 1." in str(heard(used["Ann"], 1))


@pytest.mark.exhaustive
def test_speakers_with_hooks_or_functions_answer_in_their_turn_and_hear_no_more() -> None:
    turns: list[Any] = []

    def guess(turn: Any) -> str:  # noqa: ANN401
        turns.append(turn)
        return f"Guess {len(turns)} of the machine."

    speakers = [
        {"name": "Ann", "model": "Ann"},
        {"name": "Bob", "model": "Bob"},
        {"name": "Rex", "replies": [{"kind": "function", "name": "guess"}]},
    ]
    result = play(vote(speakers=speakers), models(), functions={"guess": guess})
    assert names_of(result) == ["Ann", "Bob", "Rex"] * 2
    assert "likes" not in str(turns[0].messages)
    assert turns[1].heard.count("likes bean 0.") == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["one_last_chat", "one_last_group_chat"])
def test_last_words_are_spoken_one_after_the_other(mode: str) -> None:
    judge = ScriptedChatModel([{"all_criteria": {}, "criterion_1": "met"}])
    conversation = vote(
        judge={"kind": "separate", "model": "judge", "criteria": ["They agree."]},
        end_chat={"mode": f"{mode}_after_first_completion"},
    )
    used = models()
    result = play(conversation, {**used, "judge": judge})
    last = NAMES if mode == "one_last_group_chat" else NAMES[:1]
    assert names_of(result) == [*NAMES, *last]
    if len(last) > 1:
        assert "Ann: Ann likes bean 1." in str(heard(used["Bob"], 1))


@pytest.mark.exhaustive
def test_an_opening_comes_before_the_rounds() -> None:
    speakers = [{"name": name, "model": name, "task": f"Task of {name}."} for name in NAMES]
    used = models()
    result = play(vote(1, speakers=speakers, opening={"answers": True}), used)
    assert len(result.transcript) == 6
    assert "Ann" not in str(heard(used["Bob"], 1))


@each_row("fields_that_do_not_fit_are_refused")
def test_fields_that_do_not_fit_are_refused(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(SpecError, match=error):
        vote(**fields)


# Stores


def test_a_dump_contains_the_answers_of_a_round(tmp_path: Path) -> None:
    store = str(tmp_path / "sessions.db")
    result = play(vote(), models(), store=store, session="vote")
    pending = of_kind(result.messages, "pending_answer")
    assert len(pending) == 6
    loaded = load_session(result.session.dump(), store=tmp_path / "other.db")
    assert loaded.state() == result


@pytest.mark.parametrize("changed", [False, True])
def test_a_fork_within_a_round_asks_again_only_if_the_rules_change(
    changed: bool, tmp_path: Path
) -> None:
    store = str(tmp_path / "sessions.db")
    result = play(vote(1), models(), store=store, session="vote")
    first = next(one for one in result.messages if one.text == "Ann likes bean 0.")
    assert kind_of(first) == "pending_answer"
    spoken = [one for one in result.messages if one.text == first.text][-1]
    changes: dict[str, Any] = {"task": "Which pea?"} if changed else {}
    fork = Session("vote", store=store).fork(at=spoken, **changes)
    used = models(Bob=["Bob likes peas."], Cid=["Cid likes peas."])
    again = fork.resume(models=used)
    of_bob = "Bob likes peas." if changed else "Bob likes bean 0."
    assert again.transcript[:2] == [("Ann", "Ann likes bean 0."), ("Bob", of_bob)]
    assert [len(model.calls) for model in used.values()] == ([0, 1, 1] if changed else [0, 0, 0])


@pytest.mark.exhaustive
def test_the_prompt_of_a_speaker_is_shown_as_it_was_sent(tmp_path: Path) -> None:
    store, used = str(tmp_path / "sessions.db"), models()
    play(vote(), used, store=store, session="vote")
    for name, model in used.items():
        shown = Session("vote", store=store).prompt(name)
        assert [one.text for one in shown] == [one.text for one in model.calls[-1].messages]
