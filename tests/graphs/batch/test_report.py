"""The report of a batch: its figures agree with the rows, and its page runs no text."""

import asyncio
import json
import re
from collections.abc import Iterator
from html import unescape
from itertools import combinations
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st

from duologue.graphs import BatchRun, DuologueError, Reason, SpecError, aconverse, converse
from duologue.graphs.batch.order import STORED, RunOrder, Selection
from duologue.graphs.batch.report.page import BatchReport, describe_end
from duologue.graphs.batch.report.report import render
from duologue.graphs.batch.report.rows import Estimate, Rows, Trials, mean_of, pass_hat
from duologue.nodes.testing import ScriptedChatModel
from pages import ALLOWED, HOSTILE
from support.batches import batch_row, cell_row, report_of
from support.html import Seen
from support.stores import BatchRow, CellRow, open_store


def batch(cells: int, **fields: Any) -> BatchRow:
    return batch_row("grid", **{"title": "Sell a boat", "cells": cells} | fields)


def cell(number: int, **fields: Any) -> CellRow:
    return cell_row(number, "grid", **{"status": "finished", "reason": "completed"} | fields)


def report(rows: Iterator[CellRow] | list[CellRow], cells: int = 0, **fields: Any) -> BatchReport:
    rows = [*rows]
    return report_of(batch(cells or len(rows), **fields), rows, written=rows[::2])


def grid() -> Iterator[CellRow]:
    """Yield rows for two prices and three towns, two trials each; one cell has failed."""
    number = 0
    for price in (30, 40):
        for town in ("Lyon", "Rome", "القاهرة"):
            for trial in (1, 2):
                number += 1
                passed = price == 30 or trial == 1
                yield cell(
                    number,
                    trial=trial,
                    varied={"speakers.Ann.price": price, "labels.town": town},
                    reason="completed" if passed else "max_iterations",
                    messages=number,
                    input_tokens=100,
                    cost=0.5,
                    calls=2,
                    scores={"complete": float(passed), "words": 10.0 * number},
                )
    yield cell(
        number + 1,
        varied={"speakers.Ann.price": 50, "labels.town": "Rome"},
        status="failed",
        reason=None,
        error=f"The session 'grid-{number + 1}' has no model.",
    )


def test_figures_agree_with_the_rows_and_stand_by_each_value_that_varies() -> None:
    found = report(grid(), cells=20)
    assert {one.name: one.cells for one in found.kinds} == {
        "completed": 9,
        "max_iterations": 3,
        "failed": 1,
        "not_begun": 7,
    }
    assert (found.trials, found.combinations, found.calls, found.tokens) == (2, 7, 24, 1200)
    assert found.cost == 6
    assert [one.text for one in found.faults] == ["The session '…' has no model."]
    messages = found.histograms[0]
    assert (messages.title, messages.mean, messages.median) == ("Messages", 6.5, 6)
    assert sum(messages.bars) == 12

    prices, towns = found.varied
    assert [(one.label, one.cells, one.messages) for one in prices.values] == [
        ("30", 6, 3.5),
        ("40", 6, 9.5),
        ("50", 1, None),
    ]
    assert [one.label for one in towns.values] == ["Lyon", "Rome", "القاهرة"]
    shares = [one.scores[0] and one.scores[0].value for one in prices.values]
    assert shares == [1, 0.5, None]
    assert {one.name: one.cells for one in prices.values[1].kinds} == {
        "completed": 3,
        "max_iterations": 3,
    }

    complete, words = found.scores
    assert [one.value for one in complete.passes] == [0.75, 0.5]
    assert (words.is_share, words.passes, words.mean.value) == (False, (), 65)
    assert found.score("words") is words
    with pytest.raises(KeyError):
        found.score("word")
    assert "Score complete, pass^2" in str(found)
    assert repr(found) == "BatchReport(batch='grid', cells=20, page=None)"


def test_the_best_and_the_worst_values_of_each_field_are_named() -> None:
    found = report(grid())
    prices, towns = found.varied
    (complete, words), (of_town,) = prices.extremes, towns.extremes
    assert (complete.score, complete.is_share) == ("complete", True)
    assert (complete.best.label, complete.best.mean.value, complete.best.others) == ("30", 1, 0)
    assert (complete.worst.label, complete.worst.mean.value) == ("40", 0.5)
    assert (words.best.label, words.worst.label, words.best.mean.sessions) == ("40", "30", 6)
    assert (of_town.best.label, of_town.worst.label) == ("القاهرة", "Lyon")
    told = " ".join(str(found).split())
    assert "Score complete, best speakers.Ann.price 30: 100 % (" in told
    page = " ".join(re.sub(r"<[^>]+>", "", unescape(render(found))).split())
    assert "complete: best 30, 100 % (" in page
    assert "; worst 40, 50.0 % (" in page
    assert "If their intervals overlap, the difference may be due to chance." in page


def test_best_values_are_found_among_all_and_equal_ones_are_counted() -> None:
    scores = [0.0] * 20 + [1.0, 0.5, 1.0]
    rows = [
        cell(2 * number + trial, varied={"labels.town": f"Town {number}"}, scores={"own": score})
        for number, score in enumerate(scores)
        for trial in (0, 1)
        if number
    ]
    ((found,),) = (one.extremes for one in report(rows).varied)
    assert (found.best.label, found.best.others) == ("Town 20", 1)
    assert (found.worst.label, found.worst.others) == ("Town 1", 18)
    assert "Town 20 and 1 more: 1" in " ".join(str(report(rows)).split())
    # If all values are equally good, none is named.
    even = [row.model_copy(update={"scores": {"own": 0.5}}) for row in rows]
    assert [one.extremes for one in report(even).varied] == [()]
    # A value that occurs once is best or worst by chance.
    assert [one.extremes for one in report(rows[::2]).varied] == [()]


def test_a_report_of_a_sample_says_so() -> None:
    order = RunOrder(sizes=(10, 10), seed=3)
    stored = json.dumps({STORED: Selection(order=order, sample=12).model_dump()})
    found = report([cell(1, scores={"own": 1.0})], cells=12, settings=stored)
    assert (found.cells, found.sample_of, found.seed) == (12, 100, 3)
    says = "A random sample of 12 of 100 sessions (seed 3)."
    assert says in str(found)
    assert f"{says} The figures are estimates for all 100 sessions, with 95 % intervals" in render(
        found
    )
    whole = json.dumps({STORED: Selection(order=order).model_dump()})
    begun = report([cell(1)], cells=100, settings=whole)
    assert begun.sample is None
    assert "in a shuffled order (seed 3), so those that are done cover" in render(begun)


async def test_rows_and_transcripts_are_those_that_ran_first_or_have_the_lowest_scores(
    tmp_path: Path,
) -> None:
    order = RunOrder(sizes=(30, 4), trials=2, seed=5)
    scores = {number: float(number * 37 % 100) for number in range(1, 241) if number % 10}
    async with open_store(f"memory:{tmp_path.name}") as store:
        async with store.lock_batch("grid") as lease:
            settings = json.dumps({STORED: Selection(order=order).model_dump()})
            await lease.put(batch(240, settings=settings))
            for number in range(1, 241):
                known = {"own": scores[number]} if number in scores else {}
                await lease.put_cell(cell(number, trial=2 - number % 2, scores=known))
        handle = BatchRun("grid", store=store.url)
        page = tmp_path / "r.html"
        spread = await handle.areport(output=page)
        assert [line.number for line in spread.lines] == [*order.numbers(240)]
        lowest = await handle.areport(output=page, sort="own")
        highest = await handle.areport(output=page, sort="-own")
        for found, sign in ((lowest, 1), (highest, -1)):
            own = [line.scores[0] for line in found.lines]
            assert own[216:] == [None] * 24
            assert own[:216] == sorted(scores.values(), key=lambda score: sign * score)
        with pytest.raises(
            SpecError, match=r"^sort: no session has a score 'won'; did you mean 'own'"
        ):
            await handle.areport(output=page, sort="won")
        async with store.lock_batch("grid") as lease:
            for number in range(1, 241):
                await lease.put_cell(cell(number))
        with pytest.raises(SpecError, match="no session has a score 'own'; leave out sort"):
            await handle.areport(output=page, sort="own")


def test_only_the_rows_with_the_lowest_ranks_are_kept() -> None:
    rows = Rows(3, lambda row: (row.number * 7 % 11,))
    for number in range(1, 12):
        rows.add(cell(number))
    assert [row.number for row in rows.first] == [11, 8, 5]


def test_a_report_of_scores_that_are_all_missing_says_why() -> None:
    why = "the score 'criteria' is missing: the session ended before it was judged"
    found = report([cell(1, error=why), cell(2, error=why)])
    assert (found.scores, [(one.text, one.cells) for one in found.unscored]) == ((), [(why, 2)])
    assert f"In 2 sessions: {why}" in " ".join(str(found).split())
    assert "the session ended before it was judged" in render(found)


def test_a_score_that_is_missing_is_counted_and_its_cell_stays_finished() -> None:
    rows = [cell(1, scores={"own": 1.0}), cell(2, error="the score 'own' gave str"), cell(3)]
    found = report(rows)
    assert found.reasons == {"completed": 3}
    (own,) = found.scores
    assert (own.missing, own.mean.sessions) == (2, 1)
    assert "Score own, missing" in str(found)
    assert [(one.text, one.cells) for one in found.unscored] == [("the score 'own' gave str", 1)]
    assert found.faults == ()


def test_of_many_values_the_most_frequent_stand_alone_and_the_rest_together() -> None:
    towns = [f"Town {number}" for number in range(700)] + ["Rome"] * 5
    rows = [
        cell(number, varied={"labels.town": town, "labels.one": 1}, scores={"own": 1.0})
        for number, town in enumerate(["Rome", *towns], 1)
    ]
    # A field with the same value in all cells does not vary.
    (found,) = report(rows).varied
    assert [one.label for one in found.values][:2] == ["Rome", "Town 0"]
    assert (len(found.values), found.values[0].cells) == (12, 6)
    last = found.values[-1]
    assert (last.label, last.cells, last.is_rest) == ("all others", len(rows) - 16, True)
    assert sum(one.cells for one in found.values) == len(rows)
    score = last.scores[0]
    assert score is not None
    assert score.sessions == last.cells


@pytest.mark.parametrize(
    ("numbers", "bars"),
    [([3, 5, 5, 900, 40_000], (4, 1)), ([2, 2, 4], (2, 0, 1)), ([0.5, 0.5], (2,))],
)
def test_a_histogram_covers_its_numbers_however_far_they_reach(
    numbers: list[float], bars: tuple[int, ...]
) -> None:
    found = report([cell(at, cost=cost) for at, cost in enumerate(numbers, 1)]).histograms[-1]
    assert (found.title, found.least, found.most) == ("Cost", min(numbers), max(numbers))
    assert found.mean == pytest.approx(sum(numbers) / len(numbers))
    assert (found.median, found.ninety) == (sorted(numbers)[len(numbers) // 2], max(numbers))
    assert (len(found.bars) <= 30, tuple(filter(None, found.bars))) == (
        True,
        tuple(filter(None, bars)),
    )


def test_every_reason_has_words() -> None:
    assert all(describe_end(reason)[0].isupper() for reason in Reason)


@pytest.mark.exhaustive
def test_hostile_texts_stay_texts_and_a_large_page_stays_small() -> None:
    long = [f"{text} {text * 20}" for text in HOSTILE]
    rows = [
        cell(
            number,
            varied={
                f"labels.{HOSTILE[field]}": long[number * (field + 1) % len(long)]
                for field in range(20)
            },
            reason=None if number % 9 == 0 else "completed",
            status="failed" if number % 9 == 0 else "finished",
            error=f"{long[number % len(long)]} {number}" if number % 9 == 0 else None,
            messages=number,
            scores={HOSTILE[number % 20]: 1.0} | {f"findings.{number % 70}": 0.5},
        )
        for number in range(1, 1500)
    ]
    found = report(rows, title=HOSTILE[3], stopped=HOSTILE[2])
    page = render(found)
    seen = Seen(page)
    assert {"#cells", "grid-sessions/grid-1.html"} <= {*seen.links}
    assert all(re.fullmatch(r"#cells|grid-sessions/grid-\d+\.html", link) for link in seen.links)
    # The only script is the page's own.
    assert re.search(r"script-src 'sha256-[^']+'", unescape(page))
    assert seen.names <= ALLOWED | {"b", "time", "caption"}
    assert len(seen.all("script")) == 1
    lines = len(re.findall(r"<td>grid-\d+</td>", page))
    assert 50 < lines < 1000
    assert f"{len(rows) - lines:,} more sessions are left out" in page
    assert 400_000 < len(page.encode()) < 500_000
    # Fields without space on the page are named.
    assert "Fields left out to keep the page small" in page
    assert len(found.varied) == 20


def test_a_batch_without_a_title_is_called_by_its_name_and_one_bar_is_told_in_words() -> None:
    found = report([cell(1, messages=2), cell(2, messages=2)], title="")
    page = render(found)
    assert '<h1 dir="auto">grid</h1>' in page
    assert "<title>grid</title>" in page
    assert "2 in every session" in page
    assert str(found).startswith("Batch grid\n")


async def test_the_page_links_to_the_transcripts_that_were_written(tmp_path: Path) -> None:
    store = f"memory:{uuid4().hex}"
    spec = {"task": "Sell.", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}
    ended = {"end_chat": {"max_iterations": 1}}
    async with open_store(store) as opened:
        async with opened.lock_batch("grid") as lease:
            await lease.put(batch(5, stopped="max_cost: 1 is used up."))
            for number in (1, 2, 3):
                model = ScriptedChatModel(script=["Forty.", "Done."])
                await aconverse(spec | ended, model=model, session=f"grid-{number}", store=store)
                await lease.put_cell(cell(number, messages=2))
            failed = cell(4, status="failed", reason=None, error="It has no model.")
            await lease.put_cell(failed)
        found = await BatchRun("grid", store=store).areport(
            output=tmp_path / "r.html", transcripts=3
        )
    # The cell that never began has no row to write, and two more rows are written.
    written = sorted(path.name for path in (tmp_path / "r-sessions").iterdir())
    assert written == ["grid-1.html", "grid-2.html"]
    assert (found.pages, found.page) == (2, str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text("utf-8")
    links = {*Seen(page).links} - {"#cells"}
    assert links == {f"r-sessions/{name}" for name in written}
    assert "duologue show SESSION --html" in page
    assert "Forty." in (tmp_path / "r-sessions" / "grid-1.html").read_text("utf-8")
    assert "max_cost: 1 is used up." in str(found)


def test_what_can_not_be_read_or_written_is_one_sentence(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 's.db'}"
    spec = {"task": "Sell.", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}
    model = ScriptedChatModel(script=["Forty.", "Done."])
    converse(spec | {"end_chat": {"max_iterations": 1}}, model=model, session="x", store=store)
    with pytest.raises(DuologueError, match="There is no batch 'grid' in sqlite:"):
        BatchRun("grid", store=store).report()

    async def begin() -> None:
        async with open_store(store) as opened, opened.lock_batch("grid") as lease:
            await lease.put(batch(2))

    asyncio.run(begin())
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="can't be written: "):
        BatchRun("grid", store=store).report(output=tmp_path / "file" / "r.html")
    found = BatchRun("grid", store=store).report(output=tmp_path / "r.html")
    assert (found.cells, found.left) == (2, 2)
    assert "No session has begun." in (tmp_path / "r.html").read_text("utf-8")


def test_the_report_begins_with_the_scores_also_with_those_that_no_session_has() -> None:
    rows = [cell(number, scores={"solved": 1.0}) for number in (1, 2)]
    settings = json.dumps({"score": ["solved", "complete", "found"]})
    shown = render(report([*rows, cell(3, scores={"solved": 0, "found.a": 1})], settings=settings))
    assert report(rows, settings=settings).absent == ("complete", "found")
    assert re.search("<bdi>complete</bdi></th><td>.</td><td>0</td><td>3</td>", shown)
    assert "<bdi>found</bdi></th>" not in shown
    assert shown.index('id="scores"') < shown.index('id="stands"')


# Means of a batch's scores, and pass^k, with intervals that are meaningful and possible.


PASSES = st.lists(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=1,
    max_size=12,
)
"""Number of trials per combination, and number of passes among them."""


def drawn(n: int, c: int, k: int) -> float:
    """Return the fraction of draws of k trials that contain only passes."""
    trials = [place < c for place in range(n)]
    return fmean(all(one) for one in combinations(trials, k))


@given(PASSES)
@settings(max_examples=60)
def test_pass_k_is_the_share_of_draws_of_k_that_all_pass(
    counts: list[tuple[int, int]],
) -> None:
    found = pass_hat(Trials(n, c) for n, c in counts)
    assert len(found) == max(n for n, _ in counts)
    for k, one in enumerate(found, 1):
        enough = [(n, c) for n, c in counts if n >= k]
        assert one.value == pytest.approx(fmean(drawn(n, c, k) for n, c in enough))
        assert (one.combinations, one.sessions) == (len(enough), sum(n for n, _ in enough))
        assert one.low is not None
        assert one.high is not None
        assert 0 <= one.low <= one.value <= one.high <= 1
        # Even if all pass, or none does, other trials may differ.
        assert one.high > one.low
        if k > 1 and one.combinations == found[0].combinations:
            assert one.high <= (found[k - 2].high or 0)
    assert mean_of([Trials(n, c) for n, c in counts], is_share=True) == found[0]


def width(one: Estimate) -> float:
    assert one.low is not None
    assert one.high is not None
    return one.high - one.low


def test_trials_that_resemble_each_other_tell_less_than_as_many_that_do_not() -> None:
    alike = [Trials(4, 4), Trials(4, 0)] * 8
    mixed = [Trials(4, 3), Trials(4, 1)] * 8
    one_by_one = [Trials(1, 1), Trials(1, 0)] * 8
    whole, half, single = (mean_of(one, is_share=True) for one in (alike, mixed, one_by_one))
    assert whole.value == half.value == single.value == 0.5
    # Four equal trials are no more informative than one.
    assert width(whole) >= width(single) > width(half)


def test_a_batch_without_trials_has_wilsons_interval() -> None:
    found = mean_of([Trials(1, 1)] * 18 + [Trials(1, 0)] * 2, is_share=True)
    assert found.value == 0.9
    assert found.low == pytest.approx(0.6990, abs=1e-4)
    assert found.high == pytest.approx(0.9721, abs=1e-4)


def test_the_mean_of_numbers_has_students_interval_over_combinations() -> None:
    units = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]
    found = mean_of([Trials(2, 2 * one) for one in units], is_share=False)
    assert found.value == pytest.approx(5)
    assert found.high == pytest.approx(5 + 2.5706 * stdev(units) / 6**0.5, abs=1e-3)
    # For many trials it is the normal interval.
    many = mean_of([Trials(1, one) for one in units] * 500, is_share=False)
    normal = NormalDist().inv_cdf(0.975) * stdev(units * 500) / 3000**0.5
    assert width(many) == pytest.approx(2 * normal, rel=1e-3)


def test_one_combination_is_judged_by_its_trials_and_one_session_by_nothing() -> None:
    found = mean_of([Trials(4, 8)], is_share=False, spread=4.0)
    assert (found.value, found.combinations, found.sessions) == (2, 1, 4)
    assert width(found) == pytest.approx(2 * 3.1824, abs=1e-3)
    alone = mean_of([Trials(1, 3)], is_share=False)
    assert (alone.value, alone.low, alone.high) == (3, None, None)
