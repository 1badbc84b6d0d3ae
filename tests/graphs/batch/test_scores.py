"""Scores of a batch: found by name, called with the ended session, and stored independently."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import inf, nan
from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import Batch, Result, SpecError, converse, load_conversation
from duologue.graphs.batch.scores import find_scores, score
from duologue.nodes.testing import Line, ScriptedChatModel
from support.stores import CellRow
from support.tables import each_row, read_rows

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CRITERIA = ["A price is named.", "A day is named."]
HALF: Line = {"criterion_1": "met", "criterion_2": "inconclusive"}
MET: Line = {"criterion_1": "met", "criterion_2": "met"}


def ended(*judged: Line, **fields: Any) -> Result:
    """Return an ended conversation of two messages with these verdicts."""
    if judged:
        fields["judge"] = {"criteria": CRITERIA, "model": "judge"}
    talk = load_conversation(
        {
            "task": "Sell.",
            "speakers": [{"name": "Ann", "checks_completion": True}, {"name": "Bob"}],
            "end_chat": {"max_iterations": 1},
            **fields,
        }
    )
    said = ScriptedChatModel(script=["Forty for the boat.", "Then on Monday."])
    models = {"judge": ScriptedChatModel(script=[*judged])} if judged else {}
    return converse(talk, model=said, models=models, store=f"memory:{uuid4().hex}")


ASKED = {"end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 1}}


def spoken(result: Result) -> int:
    """Return the number of characters in the messages."""
    return sum(len(text) for _, text in result.transcript)


async def awaited(result: Result, values: Mapping[str, Any]) -> bool:
    """Return whether the conversation is about the boat of its cell."""
    return values["labels.boat"] in result.transcript[0][1]


class Scorer:
    def __call__(self, result: Result) -> Decimal:
        return Decimal(len(result.transcript))


class Wanting:
    def __init__(self, result: Result, *, values: object = None) -> None:
        self.values = values

    def __float__(self) -> float:
        raise ValueError("never")


NOTHING: dict[str, int] = {}
VALUES = {"labels.boat": "boat"}


async def scored(function: Callable[..., Any], result: Result) -> tuple[dict[str, float], Any]:
    scores = find_scores(["own"], {"own": function})
    return await score(result, VALUES, scores)


async def test_a_score_may_be_sync_or_async_take_the_values_and_give_several_numbers() -> None:
    """A score is a function's yes or no, or its number."""
    result = ended()
    rows: list[tuple[Callable[..., Any], dict[str, float]]] = [
        (spoken, {"own": 34.0}),
        (awaited, {"own": 1.0}),
        (Scorer(), {"own": 2.0}),
        (lambda result, values=None: values["labels.boat"] == "boat", {"own": 1.0}),
        # Another argument with a default keeps it.
        (lambda result, least=3: len(result.transcript) >= least, {"own": 0.0}),
        (partial(lambda least, result: len(result.transcript) >= least, 2), {"own": 1.0}),
        (lambda result: {"said": 2, "short": True}, {"own.said": 2.0, "own.short": 1.0}),
        # Functions with any number of arguments, and functions written in C.
        (lambda *given: len(given), {"own": 1.0}),
        (bool, {"own": 1.0}),
    ]
    for function, given in rows:
        found, problem = await scored(function, result)
        assert (found, problem) == (given, None)
        row = CellRow(batch="b", number=1, session="b-1", scores=found, updated_at=NOW)
        assert row.has_score("own")
        assert not row.has_score("ow")


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda result: None, "returned NoneType; return a number, True or False"),
        (lambda result: "1", "returned str; return a number, True or False"),
        (lambda result: inf, "returned inf; return a finite number"),
        (lambda result: nan, "returned nan; return a finite number"),
        (
            lambda result: 10**400,
            "returned a value that can't be converted to a number "
            "(int too large to convert to float); return a number",
        ),
        (Wanting, "returned a value that can't be converted to a number (never); return a number"),
        (lambda result: {}, "returned an empty dict; return at least one score"),
        (lambda result: NOTHING["x"], "failed: KeyError: 'x'"),
        (lambda result: exit(1), "failed: SystemExit: 1"),
    ],
)
async def test_a_score_that_is_none_is_missing_with_a_sentence_and_the_others_are_there(
    function: Callable[..., Any], why: str
) -> None:
    scores = find_scores(["said", "own"], {"own": function, "said": spoken})
    found, problem = await score(ended(), VALUES, scores)
    assert found == {"said": 34.0}
    assert problem == f"the score 'own' {why}"


async def test_what_a_function_does_to_its_values_stays_with_it() -> None:
    values = {"task": "Sell."}
    scores = find_scores(["own"], {"own": lambda result, values: bool(values.clear()) + 1})
    assert (await score(ended(), values, scores)).scores == {"own": 1.0}
    assert values == {"task": "Sell."}


@pytest.mark.parametrize(
    ("judged", "fields", "given"),
    [
        # Each turn that checks completion is judged, and the cap asks for a final verdict.
        ([HALF, HALF], ASKED, {"complete": 0, "criteria": 0.5, "met": (1, 0)}),
        ([HALF, MET], {}, {"complete": 1, "criteria": 1, "met": (1, 1)}),
    ],
    ids=["half", "met"],
)
async def test_the_separate_judges_findings_are_scores_by_name(
    judged: list[Line], fields: dict[str, Any], given: dict[str, Any]
) -> None:
    result = ended(*judged[-1:] if not fields else judged, **fields)
    found, problem = await score(result, {}, find_scores(["complete", "criteria", "findings"]))
    price, day = given.pop("met")
    named = dict(zip((f"findings.{text}" for text in CRITERIA), (price, day), strict=True))
    assert (found, problem) == (given | named, None)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("judged", "fields", "names", "why"),
    read_rows(__file__, "a_score_without_a_verdict_is_missing_and_says_why"),
    ids=["token", "own token", "unreadable", "no judge", "no separate judge"],
)
async def test_a_score_without_a_verdict_is_missing_and_says_why(
    judged: list[Line], fields: dict[str, Any], names: str, why: str
) -> None:
    wanted = [name for name in ("complete", "criteria", "findings") if f"'{name}'" in names]
    found, problem = await score(ended(*judged, **fields), {}, find_scores(wanted))
    assert (found, problem) == ({}, f"the {names} missing: {why}")


def test_a_function_may_stand_in_the_place_of_its_name() -> None:
    batch = Batch(conversation={}, score=spoken)
    assert batch.score == ("spoken",)
    assert find_scores(batch.score) == {"spoken": spoken}
    # The stored batch contains its name, under which the function is passed again.
    stored = Batch.model_validate_json(batch.model_dump_json())
    assert find_scores(stored.score, {"spoken": spoken}) == {"spoken": spoken}
    with pytest.raises(SpecError, match="two different scores are called 'spoken'"):
        find_scores(batch.score, {"spoken": awaited})


OFFERED: dict[str, Any] = {
    "nothing": {},
    "a score": {"own": spoken},
    "a number": {"own": 3},
    "no argument": {"own": lambda: True},
    "a list": [spoken],
    "a space": {" own": spoken},
}


@each_row("what_is_no_score_is_refused_before_anything_is_called", "name", "offered", "why")
def test_what_is_no_score_is_refused_before_anything_is_called(
    name: str, offered: str, why: str
) -> None:
    with pytest.raises(SpecError) as caught:
        find_scores([name], OFFERED[offered])
    assert str(caught.value) == why
