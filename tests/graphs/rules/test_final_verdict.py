"""R6: at a cap, a separate judge is asked about the turns that it has not judged yet."""

from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import Result, Session, converse, load_conversation, stream
from duologue.graphs.conversation.judges import Finding
from duologue.graphs.events import ConversationEnded, VerdictGiven
from duologue.nodes.testing import Line, ScriptedChatModel
from support.results import outcome_of

CRITERIA = ["A price is named.", "A day is named."]
MET: Line = {"criterion_1": "met", "criterion_2": "met"}
HALF: Line = {"criterion_1": "met", "criterion_2": "inconclusive"}
WORDS = ("Forty for the boat.", "Then on Monday.", "Where do we meet?", "At the pier.")


def spec(**fields: Any) -> dict[str, Any]:
    judge = {"criteria": CRITERIA, "model": "judge"} | fields.pop("judge", {})
    end_chat = {"max_iterations": 1, "allow_unanswered_end": True} | fields.pop("end_chat", {})
    people = [{"name": "Ann"} | fields.pop("ann", {}), {"name": "Bob"}]
    return {"task": "Sell.", "speakers": people, "judge": judge, "end_chat": end_chat} | fields


def play(given: dict[str, Any], found: list[Line], words: int = 2, **options: Any) -> Result:
    """Run a conversation on a script that must be used up."""
    speaks, judge = ScriptedChatModel(script=[*WORDS[:words]]), ScriptedChatModel(script=found)
    options = {"store": f"memory:{uuid4().hex}"} | options
    talk = load_conversation(given)
    result = converse(talk, model=speaks, models={"judge": judge}, **options)
    assert (len(speaks.calls), len(judge.calls)) == (words, len(found))
    return result


@pytest.mark.parametrize(
    ("end_chat", "reason"),
    [
        ({}, "max_iterations"),
        ({"max_iterations": 9, "when": {"kind": "max_messages", "limit": 2}}, "max_messages"),
        # Only Ann checks completion, so that Bob's turn, the last one, is not judged.
        ({"mode": "end_chat_after_first_completion"}, "max_iterations"),
    ],
    ids=["rounds", "messages", "in a mode that asks"],
)
@pytest.mark.parametrize(
    ("answer", "complete", "words"),
    [(MET, True, "2 of 2 criteria met"), (HALF, False, "1 of 2 criteria met")],
)
def test_r6_the_reason_stays_the_cap_and_the_outcome_says_how_it_stands(
    end_chat: dict[str, Any], reason: str, answer: Line, complete: bool, words: str
) -> None:
    marked = "mode" in end_chat
    given = spec(end_chat=end_chat, ann={"checks_completion": marked})
    outcome = play(given, [HALF, answer] if marked else [answer]).outcome
    assert outcome is not None
    assert ([*outcome.reasons], outcome.complete, outcome.completed) == ([reason], complete, ())
    assert str(outcome).endswith(f"reached; the judge found {words}.")
    last = outcome.verdicts[-1]
    assert last.final
    assert last.findings[CRITERIA[1]] is (Finding.MET if complete else Finding.INCONCLUSIVE)


def test_r6_what_was_judged_already_is_not_judged_again() -> None:
    given = spec(end_chat={"mode": "end_chat_after_first_completion"})
    outcome = play(given, [HALF, HALF]).outcome
    assert outcome is not None
    assert (outcome.reason.value, outcome.complete) == ("max_iterations", False)
    assert not any(verdict.final for verdict in outcome.verdicts)


def test_r6_what_ends_it_for_another_reason_is_not_judged() -> None:
    given = spec(end_chat={"max_iterations": 2, "when": {"kind": "max_calls", "limit": 2}})
    outcome = play(given, []).outcome
    assert outcome is not None
    assert (outcome.reason.value, outcome.complete) == ("max_calls", None)


@pytest.mark.parametrize("found", [[MET], ["Hm."]], ids=["read", "unreadable"])
@pytest.mark.parametrize(
    "budget",
    [
        {"kind": "max_calls", "limit": 3},
        # The two speakers use about 40 of them.
        {"kind": "max_tokens", "limit": 60},
    ],
    ids=["calls", "tokens"],
)
def test_r6_a_budget_that_its_call_reaches_is_not_what_ended_it(
    budget: dict[str, Any], found: list[Line]
) -> None:
    outcome = play(spec(end_chat={"when": budget}), found).outcome
    assert outcome is not None
    assert [*outcome.reasons] == ["max_iterations", budget["kind"]]
    assert str(outcome).startswith("Ended after 1 round and 2 messages: the round cap was")
    assert outcome.complete is (True if found == [MET] else None)


def test_r6_a_budget_that_an_ordinary_verdict_reaches_ended_it() -> None:
    end_chat = {
        "mode": "end_chat_after_first_completion",
        "when": {"kind": "max_calls", "limit": 4},
    }
    outcome = play(spec(end_chat=end_chat), [HALF, HALF]).outcome
    assert outcome is not None
    assert [*outcome.reasons] == ["max_calls", "max_iterations"]


@pytest.mark.parametrize("mode", ["one_last_chat_after_first_completion", "all_task_must_complete"])
def test_r6_a_completed_task_is_not_judged_after_its_last_words(mode: str) -> None:
    given = spec(end_chat={"mode": mode}, ann={"checks_completion": True})
    words = 2 if mode.startswith("one") else 1
    outcome = play(given, [MET], words=words).outcome
    assert outcome is not None
    assert (outcome.reason.value, outcome.complete) == ("completed", True)


def test_r6_it_can_be_switched_off() -> None:
    outcome = play(spec(judge={"final_verdict": False}), []).outcome
    assert outcome is not None
    assert outcome.complete is None
    assert str(outcome).endswith("the round cap was reached.")


def test_r6_an_unreadable_one_is_asked_for_once_more_and_ends_nothing_by_itself() -> None:
    given = spec(end_chat={"guards": {"unreadable_verdicts": 1}})
    outcome = play(given, ["Hm.", "Well."]).outcome
    assert outcome is not None
    assert ([*outcome.reasons], outcome.complete) == (["max_iterations"], False)
    assert str(outcome).endswith("the judge gave no readable verdict.")


def test_r6_a_speaker_that_judges_itself_is_not_asked() -> None:
    """R6: a speaker that judges itself gets no final question (Y2, Y9, Y11)."""
    given = spec(ann={"checks_completion": True}) | {"judge": {}}
    outcome = play(given, []).outcome
    assert outcome is not None
    assert outcome.complete is None


def test_r6_a_moderator_is_not_asked_who_is_next_instead() -> None:
    people = [{"name": name} for name in ("Ann", "Bob", "Cid")]
    order = {"kind": "moderator", "model": "judge"}
    given = spec(speakers=people, turn_order=order)
    chosen: list[Line] = [{"next_speaker": "Bob"}, {"next_speaker": "Cid"}]
    outcome = play(given, [*chosen, MET], words=3).outcome
    assert outcome is not None
    assert outcome.complete is True


def test_r6_a_fork_with_more_rounds_goes_on_as_if_it_had_not_been_asked() -> None:
    store = f"memory:{uuid4().hex}"
    result = play(spec(), [MET], store=store)
    models = {"judge": ScriptedChatModel(script=[HALF])}
    at = outcome_of(result).message
    new = result.session.fork(at=at, end_chat={"max_iterations": 2}).id
    model = ScriptedChatModel(script=[*WORDS[2:]])
    more = Session(new, store=store).resume(model=model, models=models)
    assert (outcome_of(more).rounds, outcome_of(more).complete) == (2, False)


def test_r6_the_stream_and_why_tell_it() -> None:
    models = {"judge": ScriptedChatModel(script=[HALF])}
    model = ScriptedChatModel(script=[*WORDS[:2]])
    options: dict[str, Any] = {"store": f"memory:{uuid4().hex}", "session": "s"}
    *events, ended = stream(load_conversation(spec()), model=model, models=models, **options)
    assert isinstance(ended, ConversationEnded)
    assert ended.complete is False
    (given,) = [event for event in events if isinstance(event, VerdictGiven)]
    assert given.verdict.final
    # The cap has ended it, not the verdict.
    causes = Session("s", store=options["store"]).state().why()
    assert [cause.text for cause in causes] == ["the round cap was reached"]
