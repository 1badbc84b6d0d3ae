"""Budgets that count the calls of one speaker."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from duologue import (
    Conversation,
    DoneToken,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxTokens,
    Price,
    Result,
    Session,
    SpecError,
    converse,
)
from duologue.graphs import load_conversation
from duologue.nodes.testing import Line, ScriptedChatModel
from support.ends import BaseEnd
from support.results import outcome_of
from support.shape_help import play as play_script


def talk(when: BaseEnd, ann: dict[str, Any] | None = None, **fields: Any) -> Conversation:
    """Return a conversation of Ann and Bob that this end or a number of messages ends."""
    speakers = [{"name": "Ann"} | (ann or {}), {"name": "Bob"}]
    cap = when | MaxMessages(8)
    return load_conversation({"task": "Plan.", "speakers": speakers, "end_chat": cap} | fields)


def play(
    conversation: Conversation, script: Sequence[Line], store: str = "", **options: Any
) -> Result:
    return play_script(conversation, script, **({"store": store} if store else {}) | options)[0]


def lines(number: int) -> list[Line]:
    return [f"This is the text of line {place}." for place in range(number)]


def explanations(result: Result) -> tuple[str, ...]:
    return outcome_of(result).explanations


def test_the_other_speaker_spends_nothing_of_a_speakers_tokens() -> None:
    alone = play(talk(MaxMessages(1)), lines(1)).outcome
    assert alone is not None
    used = alone.total.tokens
    both = play(talk(MaxTokens(used, by="Ann") | MaxTokens(used, by="Bob")), lines(1))
    assert explanations(both) == (f"Ann's token cap was reached ({used} tokens)",)
    more = play(talk(MaxTokens(used + 1, by="Ann")), lines(3))
    assert [name for name, _ in more.transcript] == ["Ann", "Bob", "Ann"]


def test_a_speakers_cost_is_counted_by_the_price_of_its_model() -> None:
    prices = {"dear": Price(input=1_000_000, output=0), "cheap": Price(input=0, output=1)}
    conversation = talk(
        MaxCost(10, by="Bob") | MaxCost(30, by="Ann"),
        {"model": "dear"},
        prices=prices,
        model="cheap",
    )
    models = {"dear": ScriptedChatModel(lines(2)), "cheap": ScriptedChatModel(["Well, dear Ann."])}
    result = converse(conversation, models=models, store=f"memory:{uuid4().hex}")
    spent = outcome_of(result).usage["dear"].cost
    assert explanations(result) == (f"Ann's cost cap was reached ({spent:.6g} of 30)",)


@pytest.mark.parametrize(
    ("ann", "by", "error"),
    [
        ({}, "Bop", r"end_chat\.when\.of\.0\.by: no speaker is called 'Bop'; did you mean 'Bob'"),
        (
            {"replies": ["human"]},
            "Ann",
            r"end_chat\.when\.of\.0\.by: 'Ann' makes no model calls; name a speaker with a model",
        ),
    ],
    ids=["an-unknown-name", "a-person"],
)
@pytest.mark.parametrize("kind", [MaxCalls, MaxCost])
def test_a_budget_of_a_speaker_without_calls_is_refused(
    kind: type[MaxCalls], ann: dict[str, Any], by: str, error: str
) -> None:
    with pytest.raises(SpecError, match=error):
        talk(kind(5, by=by), ann)


def test_a_speakers_budget_bounds_no_calls_of_the_others() -> None:
    sixth = MaxMessages(6) & DoneToken("DEAL")
    assert talk(MaxCalls(3, by="Ann") | sixth)
    with pytest.raises(SpecError, match="at most 3 messages and 3 model calls"):
        talk(MaxCalls(3) | sixth)


def test_pages_and_summaries_name_the_speaker_of_a_budget() -> None:
    whens = (MaxTokens(20_000, by="Bob"), MaxCalls(1, by="Bob"), MaxCost(0.5, by="Bob"))
    assert [end.describe_end() for end in whens] == [
        "at 20,000 tokens of Bob",
        "at 1 call of Bob",
        "at a cost of 0.5 by Bob",
    ]
    store = f"memory:{uuid4().hex}"
    result = play(talk(MaxCalls(3, by="Bob") | MaxTokens(20_000)), lines(6), store)
    page = Session(result.session_id, store=store).export("html")
    assert "model calls of Bob" in page
    assert "Bob's cap on model calls was reached (3 calls)" in str(result.outcome)


def test_a_fork_counts_the_calls_that_a_speaker_has_made_before(tmp_path: Path) -> None:
    """The origin has no budget of a speaker, but its calls count in the fork."""
    store = str(tmp_path / "sessions.db")
    origin = play(talk(DoneToken("DEAL")), [*lines(3), "DEAL"], store)
    assert origin.session_id is not None
    fork = Session(origin.session_id, store=store).fork(
        at=origin.messages[-2],
        end_chat=MaxCalls(3, by="Bob") | MaxCalls(2, by="Ann") | MaxMessages(8),
    )
    assert explanations(fork.state()) == ("Ann's cap on model calls was reached (2 calls)",)
