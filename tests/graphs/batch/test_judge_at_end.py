"""The judge of a batch, asked about sessions after their ends: verdicts, limits, kills, errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from duologue import Scenario
from duologue.graphs import (
    BatchLimits,
    BatchRun,
    ModelError,
    ModelUnavailableError,
    Price,
    Result,
    Session,
    SpecError,
    arun_batch,
)
from duologue.nodes.testing import Call, Line, Prompt, ScriptedChatModel
from support.tables import read_rows

CRITERIA = ["A price is named.", "A day is named."]
HALF: Line = {"criterion_1": "met", "criterion_2": "not_met"}
TOKEN = [{"kind": "done_token", "token": "DEAL"}]
UNJUDGED = "the scores 'criteria', 'findings' are missing: the session ended before it was judged"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def grid(**fields: Any) -> dict[str, Any]:
    """Two sessions, which a done token ends before the judge is asked."""
    return {
        "conversation": {
            "task": "Sell.",
            "speakers": [{"name": "Ann", "checks_completion": True}, {"name": "Bob"}],
            "judge": {"criteria": CRITERIA, "model": "judge"},
            "end_chat": {"max_iterations": 9, "when": TOKEN},
        },
        "trials": 2,
        "score": ["criteria", "findings"],
        "judge_at_end": True,
    } | fields


def talker() -> ScriptedChatModel:
    return ScriptedChatModel(lambda prompt: "Forty." if len(prompt) < 3 else "DEAL")


async def run(store: str, judge: ScriptedChatModel, **fields: Any) -> list[dict[str, Any]]:
    models = {"judge": judge}
    await arun_batch(
        grid(**fields), name="b", model=talker(), models=models, store=store, concurrency=1
    )
    return await BatchRun("b", store=store).arows()


async def test_the_judge_is_asked_once_whatever_ended_the_session(store: str) -> None:
    judge = ScriptedChatModel(lambda prompt: HALF)
    rows = await run(store, judge)
    # Three calls of the speakers, and one of the judge.
    assert [(row["reason"], row["error"], row["calls"]) for row in rows] == [
        ("done_token", None, 4),
        ("done_token", None, 4),
    ]
    assert [row["score.criteria"] for row in rows] == [0.5, 0.5]
    assert [row["score.findings.A day is named."] for row in rows] == [0, 0]
    assert "Bob: Forty." in judge.calls[0].prompt[-1]["content"]
    # The verdict is stored beside the session, whose own outcome does not change.
    result = await Session(rows[0]["session"], store=store).astate()
    assert result.outcome is not None
    assert (result.outcome.verdicts, result.outcome.total.calls) == ((), 3)
    (later,) = result.later_verdicts
    assert (later.batch, later.verdict.readable, later.verdict.complete) == ("b", True, False)
    assert list(later.verdict.findings) == CRITERIA
    assert await run(store, judge) == rows
    assert len(judge.calls) == 2


async def test_a_session_whose_last_message_is_judged_is_not_judged_again(store: str) -> None:
    judge = ScriptedChatModel(lambda prompt: HALF)
    capped = grid()["conversation"] | {"end_chat": {"max_iterations": 1}}
    rows = await run(store, judge, conversation=capped)
    assert [(row["reason"], row["score.criteria"]) for row in rows] == [("max_iterations", 0.5)] * 2
    assert [row["calls"] for row in rows] == [3, 3]
    assert len(judge.calls) == 2


async def test_known_sessions_are_judged_when_the_batch_asks_for_it(store: str) -> None:
    judge = ScriptedChatModel(lambda prompt: HALF)
    rows = await run(store, judge, judge_at_end=False)
    assert [(row["error"], row["score.criteria"]) for row in rows] == [(UNJUDGED, None)] * 2
    assert ([row["score.findings"] for row in rows], judge.calls) == ([None] * 2, [])
    rows = await run(store, judge)
    assert [(row["error"], row["score.criteria"], row["calls"]) for row in rows] == [
        (None, 0.5, 4)
    ] * 2


async def test_missing_scores_come_from_a_later_verdict_by_the_same_criteria(store: str) -> None:
    judge = ScriptedChatModel(lambda prompt: HALF)
    first, second = await run(store, judge, judge_at_end=False)
    await Session(first["session"], store=store).ajudge(model=judge)
    other = ["A boat is named."]
    await Session(second["session"], store=store).ajudge(
        other, model=ScriptedChatModel(script=[{"criterion_1": "met"}])
    )
    rows = await run(store, judge, judge_at_end=False)
    assert [(row["score.criteria"], row["error"]) for row in rows] == [
        (0.5, None),
        (None, UNJUDGED),
    ]
    # A call that the batch did not ask for does not count for its budgets.
    assert [row["calls"] for row in rows] == [3, 3]
    assert len(judge.calls) == 1


async def test_the_judges_calls_obey_the_limits_and_count_for_them(store: str) -> None:
    judge = ScriptedChatModel(lambda prompt: HALF)
    rows = await run(store, judge)
    (tokens,) = {row["input_tokens"] + row["output_tokens"] for row in rows}
    talk = (await Session(rows[0]["session"], store=store).astate()).outcome
    assert talk is not None
    spoken = talk.total.input_tokens + talk.total.output_tokens
    assert tokens > spoken

    other = f"{store}-2"
    # The first session uses up the budget, so that its judge is not asked.
    rows = await run(other, judge, limits=BatchLimits(max_tokens=spoken))
    assert [(row["status"], row["reason"]) for row in rows] == [("paused", None)]
    assert len(judge.calls) == 2
    # The next budget is used up by the first call of the second session.
    most = tokens + 1
    first, second = await run(other, judge, limits=BatchLimits(max_tokens=most))
    assert [(row["status"], row["score.criteria"]) for row in (first, second)] == [
        ("finished", 0.5),
        ("paused", None),
    ]
    status = await BatchRun("b", store=other).astatus()
    assert (status.calls, status.stopped) == (5, f"limits.max_tokens of {most} is used up")


async def test_a_verdict_that_is_stored_is_not_asked_for_again_after_a_stop(store: str) -> None:
    async def stop(result: Result) -> bool:
        # A session is scored after its verdict is stored.
        running.cancel()
        await asyncio.Event().wait()
        return True

    judge = ScriptedChatModel(lambda prompt: HALF)
    running = asyncio.create_task(run(store, judge, score=stop))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(judge.calls) == 1
    rows = await run(store, judge)
    assert [(row["score.criteria"], row["calls"]) for row in rows] == [(0.5, 4)] * 2
    assert len(judge.calls) == 2


async def test_an_unreadable_verdict_is_requested_once_more_and_each_answer_counts(
    store: str,
) -> None:
    judge = ScriptedChatModel(script=["?", HALF, "?", "?", HALF])
    rows = await run(store, judge)
    assert [(row["score.criteria"], row["calls"]) for row in rows] == [(0.5, 5), (None, 5)]
    assert rows[1]["error"] == (
        "the scores 'criteria', 'findings' are missing: the last verdict could not be read"
    )
    rows = await run(store, judge)
    assert [(row["score.criteria"], row["calls"]) for row in rows] == [(0.5, 5), (0.5, 6)]


async def test_a_judge_that_fails_costs_only_the_scores(store: str) -> None:
    fails = [True]

    def says(prompt: Prompt, call: Call) -> Line:
        if fails:
            raise ModelError("The judge is ill.")
        return HALF

    judge = ScriptedChatModel(says)
    rows = await run(store, judge)
    assert [(row["status"], row["reason"]) for row in rows] == [("finished", "done_token")] * 2
    assert rows[0]["error"].startswith("the judge returned no verdict: ")
    assert "The judge is ill." in rows[0]["error"]
    assert rows[0]["score.criteria"] is None
    fails.clear()
    rows = await run(store, judge)
    assert [(row["error"], row["score.criteria"]) for row in rows] == [(None, 0.5)] * 2


async def test_a_judge_whose_model_is_not_available_stops_the_batch(store: str) -> None:
    def says(prompt: Prompt, call: Call) -> Line:
        raise ModelUnavailableError("There is no judge.")

    with pytest.raises(ModelUnavailableError, match="There is no judge"):
        await run(store, ScriptedChatModel(says))
    rows = await BatchRun("b", store=store).arows()
    assert [(row["status"], row["reason"]) for row in rows] == [("paused", None)]
    rows = await run(store, ScriptedChatModel(lambda prompt: HALF))
    assert [row["score.criteria"] for row in rows] == [0.5, 0.5]


async def test_the_judges_cost_counts_at_its_price(store: str) -> None:
    price = Price(input=1, output=1)
    prices = {"prices": {"ScriptedChatModel": price, "judge": price}}
    talk = grid()["conversation"] | prices
    rows = await run(store, ScriptedChatModel(lambda prompt: HALF), conversation=talk)
    for row in rows:
        talked = (await Session(row["session"], store=store).astate()).outcome
        assert talked is not None
        assert row["cost"] > (talked.total.cost or 0) > 0


@pytest.mark.parametrize(
    ("fields", "why"), read_rows(__file__, "judging_without_a_score_or_a_judge_is_refused")
)
async def test_judging_without_a_score_or_a_judge_is_refused(
    store: str, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(SpecError) as caught:
        await run(store, ScriptedChatModel(lambda prompt: HALF), **fields)
    assert str(caught.value) == why


async def test_the_sessions_of_a_scenario_are_judged_with_reasons(store: str) -> None:
    scenario = Scenario("Sell the boat.", criteria=CRITERIA)
    agent: RunnableLambda[Any, Any] = RunnableLambda(lambda _: "Forty.", name="shop")
    reason = {"reason": "Forty is named.", "message": 2, "finding": "met"}
    other = {"reason": "No day is named.", "message": 0, "finding": "not_met"}
    judge = ScriptedChatModel(lambda _: {"criterion_1": reason, "criterion_2": other})
    user = ScriptedChatModel(lambda prompt: "Hello." if len(prompt) < 3 else "###STOP###")
    conversation = scenario.conversation(agent).replace(judge={"model": "judge"})
    batch: Any = {"conversation": conversation, "trials": 2} | {
        "score": ["criteria", "findings"],
        "judge_at_end": True,
    }
    models = {"judge": judge}
    await arun_batch(batch, name="b", model=user, models=models, store=store, concurrency=1)
    rows = await BatchRun("b", store=store).arows()
    assert [row["score.criteria"] for row in rows] == [0.5, 0.5]
    (later,) = (await Session(rows[0]["session"], store=store).astate()).later_verdicts
    assert later.verdict.describe_finding(CRITERIA[0]) == "met: Forty is named, message 2"
