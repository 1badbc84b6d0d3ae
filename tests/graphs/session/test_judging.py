"""Stored sessions judged later: their verdicts, and what is asked, repeated and deleted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage

from duologue import (
    ModelUnavailableError,
    SeparateJudge,
    Session,
    SessionError,
    SpecError,
    aconverse,
    aload_session,
)
from duologue.nodes.testing import Line, ScriptedChatModel
from support.cli_help import duologue
from support.results import outcome_of
from support.stores import open_store
from support.tables import read_rows

PRICE, DAY = "A price is named.", "A day is named."
TALK: dict[str, Any] = {
    "task": "Sell the boat.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}
HALF: Line = {"criterion_1": "met", "criterion_2": "not_met"}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


async def talked(store: str, **fields: Any) -> Session:
    said = ScriptedChatModel(script=["Forty for the boat.", "Then on Monday."])
    models = {"judge": ScriptedChatModel(lambda prompt: HALF)}
    result = await aconverse(TALK | fields, session="s", model=said, models=models, store=store)
    return result.session


async def test_a_session_that_nobody_judged_is_judged_without_running_it(store: str) -> None:
    session = await talked(store)
    before = await session.astate()
    judge = ScriptedChatModel(script=[HALF])
    verdict = await session.ajudge([PRICE, DAY], model=judge)
    assert verdict.findings == {PRICE: "met", DAY: "not_met"}
    assert (verdict.speaker, verdict.complete, verdict.objectives_left) == ("Bob", False, (DAY,))
    system, heard = judge.calls[0].prompt
    assert "Sell the boat." in system["content"]
    assert f"1. {PRICE}\n2. {DAY}" in system["content"]
    assert "Ann: Forty for the boat.\n\nBob: Then on Monday." in heard["content"]
    after = await session.astate()
    assert (after.messages, after.outcome) == (before.messages, before.outcome)
    (later,) = after.later_verdicts
    assert later.verdict == verdict
    assert [one.calls for one in later.usage.values()] == [1]
    assert (await aconverse(TALK, session="s", store=store)).later_verdicts == (later,)


class OtherModel(ScriptedChatModel):
    """A model with another name in the usage."""


async def test_the_same_judge_is_not_asked_again_about_the_same_messages(store: str) -> None:
    session = await talked(store)
    judge = ScriptedChatModel(lambda prompt: HALF)
    for _ in range(2):
        await session.ajudge([PRICE, DAY], model=judge)
    assert len(judge.calls) == 1
    # By other criteria, or by another model, it is judged again.
    await session.ajudge([DAY, PRICE], model=judge)
    other = OtherModel(script=lambda prompt: HALF)
    await session.ajudge([PRICE, DAY], model=other)
    assert (len(judge.calls), len(other.calls)) == (2, 1)
    # So are other messages.
    await session.aadd_message("Ann", "Agreed.")
    await session.ajudge([PRICE, DAY], model=judge)
    assert "Ann: Agreed." in judge.calls[-1].prompt[-1]["content"]
    assert len((await session.astate()).later_verdicts) == 4


async def test_without_criteria_the_conversations_own_judge_is_asked(store: str) -> None:
    own = {"criteria": [PRICE, DAY], "model": "judge", "final_verdict": False}
    session = await talked(store, judge=own)
    judge = ScriptedChatModel(script=[HALF])
    assert (await session.ajudge(model=judge)).findings[DAY] == "not_met"
    assert len(judge.calls) == 1


async def test_a_verdict_in_the_log_is_not_asked_for_again(store: str) -> None:
    session = await talked(store, judge={"criteria": [PRICE, DAY], "model": "judge"})
    verdict = await session.ajudge()
    result = await session.astate()
    assert (verdict, result.later_verdicts) == (outcome_of(result).verdicts[-1], ())


async def test_an_unreadable_answer_is_requested_once_more_and_both_are_stored(store: str) -> None:
    session = await talked(store)
    # A lone surrogate has no encoding, and PostgreSQL stores no NUL.
    judge = ScriptedChatModel(script=["?\ud800\0", HALF])
    assert (await session.ajudge([PRICE, DAY], model=judge)).readable
    known = (await session.astate()).later_verdicts
    assert [(one.answer[0] == "?", one.verdict.readable) for one in known] == [
        (True, False),
        (False, True),
    ]
    assert "exactly this format" in judge.calls[1].prompt[-1]["content"]


async def test_the_callbacks_receive_the_judges_call(store: str) -> None:
    prompts = list[str]()

    class Noted(BaseCallbackHandler):
        def on_chat_model_start(
            self, serialized: object, messages: list[list[BaseMessage]], **more: Any
        ) -> None:
            prompts.append(messages[0][-1].text)

    session = await talked(store)
    judge = ScriptedChatModel(script=["1"] * 2)
    await session.ajudge([DAY], model=judge, callbacks=[Noted()])
    assert prompts == [call.prompt[-1]["content"] for call in judge.calls]
    assert len(prompts) == 2


async def test_a_sessions_verdicts_go_with_its_messages(store: str) -> None:
    session = await talked(store)
    for forget in (session.areset, session.adelete):
        await session.ajudge([PRICE, DAY], model=ScriptedChatModel(script=[HALF]))
        await forget()
        async with open_store(store) as opened:
            assert await opened.verdicts("s") == []
        await talked(store)


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("criteria", "error", "why"),
    [
        (
            None,
            SpecError,
            "criteria: the conversation of session 's' has no separate judge; pass the criteria",
        ),
        ([], SpecError, "criteria: needs at least 1"),
        ([PRICE, PRICE], SpecError, "criteria: "),
    ],
)
async def test_what_cannot_be_judged_is_refused_before_a_call(
    store: str, criteria: list[str] | None, error: type[Exception], why: str
) -> None:
    session = await talked(store)
    judge = ScriptedChatModel(script=[HALF])
    with pytest.raises(error) as caught:
        await session.ajudge(criteria, model=judge)
    assert why in str(caught.value)
    assert not judge.calls


@pytest.mark.usefixtures("impatient")
async def test_a_session_that_is_unknown_or_busy_is_not_judged(store: str) -> None:
    session = await talked(store)
    with pytest.raises(SessionError, match="nowhere"):
        await Session("nowhere", store=store).ajudge([DAY])
    async with open_store(store) as opened, opened.lock("s"):
        with pytest.raises(SessionError, match="busy"):
            await session.ajudge([DAY])


async def test_a_model_that_is_missing_is_named(store: str) -> None:
    session = await talked(store)
    with pytest.raises(ModelUnavailableError):
        await session.ajudge([DAY], model="nosuchprovider:x")


async def test_later_verdicts_are_shown_with_the_session_and_travel_with_it(
    store: str, tmp_path: Path
) -> None:
    session = await talked(store)
    judge = ScriptedChatModel(lambda prompt: HALF)
    await session.ajudge([PRICE, DAY], model=judge)
    line = "A price is named (met); A day is named (not met)"
    for form in ("html", "markdown"):
        text = (await session.aexport(form)).replace("\\", "")
        assert "Judged later by " in text
        assert line in text
        # A speaker does not know the verdict.
        assert line not in (await session.aexport(form, speaker="Ann"))
    shown = await asyncio.to_thread(duologue, "show", "s", "--store", store)
    assert line in shown.stdout
    assert "before the messages changed" not in shown.stdout
    known = (await session.astate()).later_verdicts
    there = str(tmp_path / "there.db")
    copies = [
        await aload_session(json.loads(json.dumps(await session.adump())), store=there),
        await session.acopy(),
    ]
    for copy in copies:
        assert (await copy.astate()).later_verdicts == known
        # The judge who has read these messages is not asked again.
        await copy.ajudge([PRICE, DAY], model=judge)
    assert len(judge.calls) == 1


async def test_a_verdict_about_messages_that_have_changed_since_is_shown_as_such(
    store: str,
) -> None:
    session = await talked(store)
    await session.ajudge([PRICE, DAY], model=ScriptedChatModel(lambda prompt: HALF))
    await session.aadd_message("Ann", "Fifty.")
    assert ", before the messages changed): A price is named (met)" in (
        await session.aexport("markdown")
    ).replace("\\", "")


REASONED: Line = {
    "criterion_1": {"reason": "Ann names forty.", "message": 1, "finding": "met"},
    "criterion_2": {"reason": "Nobody names a date.", "message": 0, "finding": "not_met"},
}


async def test_a_judge_with_reasons_reads_numbered_lines_and_its_reasons_are_stored(
    store: str,
) -> None:
    session = await talked(store)
    judge = ScriptedChatModel(script=[REASONED])
    verdict = await session.ajudge(SeparateJudge([PRICE, DAY], with_reasons=True), model=judge)
    heard = judge.calls[0].prompt[1]["content"]
    assert "1. Ann: Forty for the boat.\n2. Bob: Then on Monday." in heard
    assert verdict.describe_finding(PRICE) == "met: Ann names forty, message 1"
    assert verdict.describe_finding(DAY) == "not met: Nobody names a date"
    copy = await session.acopy(into="copied")
    for stored in (session, copy):
        (later,) = (await stored.astate()).later_verdicts
        assert later.verdict == verdict
    # A judge without reasons is another judge.
    assert (await session.ajudge([PRICE, DAY], model=ScriptedChatModel([HALF]))).reasons == {}


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("decision", "reason"),
    read_rows(__file__, "a_finding_that_contradicts_its_reason_counts_as_inconclusive"),
)
async def test_a_finding_that_contradicts_its_reason_counts_as_inconclusive(
    store: str, decision: dict[str, Any], reason: str
) -> None:
    session = await talked(store)
    judge = ScriptedChatModel(script=[{"criterion_1": {**decision, "finding": "met"}}])
    verdict = await session.ajudge(SeparateJudge([PRICE], with_reasons=True), model=judge)
    assert verdict.findings == {PRICE: "inconclusive"}
    assert verdict.reasons[PRICE].text.startswith(reason)
    assert not verdict.complete


async def test_a_judge_within_the_run_records_its_reasons(store: str) -> None:
    own = {"criteria": [PRICE, DAY], "model": "judge", "with_reasons": True}
    said = ScriptedChatModel(script=["Forty for the boat.", "Then on Monday."])
    judge = ScriptedChatModel([REASONED])
    options: Any = {"model": said, "models": {"judge": judge}, "store": store}
    result = await aconverse(TALK | {"judge": own}, **options)
    (verdict,) = outcome_of(result).verdicts
    assert verdict.reasons[PRICE].message == 1
    assert (await result.session.astate()).outcome == result.outcome


def test_reasons_need_the_structured_form() -> None:
    with pytest.raises(SpecError, match="with_reasons: a line has no room for a reason; set form"):
        SeparateJudge([PRICE], with_reasons=True, form="lines")
