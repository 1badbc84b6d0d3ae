"""The report of a batch: its figures agree with the rows, and its page runs no text."""

import json
import re
from collections.abc import Iterable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import BatchRun, DuologueError, Reason, SpecError, converse, run_batch
from duologue.nodes.testing import ScriptedChatModel
from pages import ALLOWED, HOSTILE
from support.batches import batch_row, cell_row, store_batch
from support.html import Seen
from support.stores import BatchRow, CellRow

SELL = {
    "task": "Sell.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}


def batch(cells: int, **fields: Any) -> BatchRow:
    return batch_row("grid", **{"title": "Sell a boat", "cells": cells} | fields)


def cell(number: int, **fields: Any) -> CellRow:
    return cell_row(number, "grid", **{"status": "finished", "reason": "completed"} | fields)


def report(rows: Iterable[CellRow], cells: int = 0, **fields: Any) -> Any:  # noqa: ANN401
    """Return the report of a batch with these rows. Its page is written to the working folder."""
    rows = [*rows]
    store = f"memory:{uuid4().hex}"
    return store_batch(store, batch(cells or len(rows), **fields), rows).report()


def page_of(found: Any) -> str:  # noqa: ANN401
    return Path(found.page).read_text("utf-8")


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
    assert repr(found) == "BatchReport(batch='grid', cells=20, page='grid.html')"


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
    page = " ".join(re.sub(r"<[^>]+>", "", unescape(page_of(found))).split())
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


def test_a_report_of_a_sample_says_so(tmp_path: Path) -> None:
    roles = {"user_role": ["Cook", "Nurse"], "assistant_role": ["Ann", "Bob"]}
    play = {"kind": "role_play", "task": "Plan.", "specify_task": False, "max_iterations": 1}
    given: Any = {"conversation": play, "vary": roles, "score": "own"}
    options: Any = {"model": ScriptedChatModel(lambda _: "Instruction: Dig."), "seed": 3}
    options |= {"store": f"memory:{tmp_path.name}", "scores": {"own": lambda result: 1}}
    run_batch(given, name="some", sample=3, **options)
    found = BatchRun("some", store=options["store"]).report()
    assert (found.cells, found.sample_of, found.seed) == (3, 4, 3)
    says = "A random sample of 3 of 4 sessions (seed 3)."
    assert says in str(found)
    estimates = "The figures are estimates for all 4 sessions, with 95 % intervals"
    assert f"{says} {estimates}" in page_of(found)
    run_batch(given, name="all", limit=2, **options)
    begun = BatchRun("all", store=options["store"]).report()
    assert begun.sample is None
    assert "in a shuffled order (seed 3), so those that are done cover" in page_of(begun)


def test_rows_and_transcripts_are_those_that_ran_first_or_have_the_lowest_scores(
    tmp_path: Path,
) -> None:
    selection = {"order": {"sizes": [30, 4], "trials": 2, "seed": 5}}
    known = batch(240, settings=json.dumps({"selection": selection}))
    scores = {number: float(number * 37 % 100) for number in range(1, 241) if number % 10}
    rows = [
        cell(number, trial=2 - number % 2, scores={"own": scores[number]} if number % 10 else {})
        for number in range(1, 241)
    ]
    handle = store_batch(f"memory:{tmp_path.name}", known, rows)
    spread = [line.number for line in handle.report().lines]
    assert sorted(spread) == [*range(1, 241)]
    assert [number % 2 for number in spread] == [1] * 120 + [0] * 120
    # The order in which this seed runs the batch.
    assert spread[:8] == [159, 45, 169, 195, 125, 225, 35, 31]
    for sort, sign in (("own", 1), ("-own", -1)):
        own = [line.scores[0] for line in handle.report(sort=sort).lines]
        assert own[216:] == [None] * 24
        assert own[:216] == sorted(scores.values(), key=lambda score: sign * score)
    with pytest.raises(SpecError, match=r"^sort: no session has a score 'won'; did you mean 'own'"):
        handle.report(sort="won")
    store_batch(f"memory:{tmp_path.name}", known, map(cell, range(1, 241)))
    with pytest.raises(SpecError, match="no session has a score 'own'; leave out sort"):
        handle.report(sort="own")


def test_a_report_of_scores_that_are_all_missing_says_why() -> None:
    why = "the score 'criteria' is missing: the session ended before it was judged"
    found = report([cell(1, error=why), cell(2, error=why)])
    assert (found.scores, [(one.text, one.cells) for one in found.unscored]) == ((), [(why, 2)])
    assert f"In 2 sessions: {why}" in " ".join(str(found).split())
    assert "the session ended before it was judged" in page_of(found)


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
    rows = (cell(number, reason=reason.value) for number, reason in enumerate(Reason, 1))
    kinds = report(rows).kinds
    assert {one.name for one in kinds} == {*Reason}
    assert all(one.words[0].isupper() for one in kinds)


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
    page = page_of(found)
    seen = Seen(page)
    assert {*seen.links} == {"#cells"}
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
    page = page_of(found)
    assert '<h1 dir="auto">grid</h1>' in page
    assert "<title>grid</title>" in page
    assert "2 in every session" in page
    assert str(found).startswith("Batch grid\n")


def test_the_page_links_to_the_transcripts_that_were_written(tmp_path: Path) -> None:
    store = f"memory:{uuid4().hex}"
    for number in (1, 2, 3):
        model = ScriptedChatModel(script=["Forty.", "Done."])
        converse(SELL, model=model, session=f"grid-{number}", store=store)
    rows = [cell(number, messages=2) for number in (1, 2, 3)]
    rows.append(cell(4, status="failed", reason=None, error="It has no model."))
    handle = store_batch(store, batch(5, stopped="max_cost: 1 is used up."), rows)
    found = handle.report(output=tmp_path / 'r "#1.html', transcripts=3)
    folder = tmp_path / 'r "#1-sessions'
    # The cell that never began has no row to write, and two more rows are written.
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["grid-1.html", "grid-2.html"]
    assert (found.pages, found.page) == (2, str(tmp_path / 'r "#1.html'))
    page = page_of(found)
    links = {*Seen(page).links} - {"#cells"}
    assert links == {f"r%20%22%231-sessions/{name}" for name in written}
    assert "duologue show SESSION --html" in page
    assert "Forty." in (folder / "grid-1.html").read_text("utf-8")
    assert "max_cost: 1 is used up." in str(found)


def test_what_can_not_be_read_or_written_is_one_sentence(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 's.db'}"
    converse(SELL, model=ScriptedChatModel(script=["Forty.", "Done."]), session="x", store=store)
    with pytest.raises(DuologueError, match="There is no batch 'grid' in sqlite:"):
        BatchRun("grid", store=store).report()
    handle = store_batch(store, batch(2), ())
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="can't be written: "):
        handle.report(output=tmp_path / "file" / "r.html")
    found = handle.report(output=tmp_path / "r.html")
    assert (found.cells, found.left) == (2, 2)
    assert "No session has begun." in page_of(found)


def test_the_report_begins_with_the_scores_also_with_those_that_no_session_has() -> None:
    rows = [cell(number, scores={"solved": 1.0}) for number in (1, 2)]
    settings = json.dumps({"score": ["solved", "complete", "found"]})
    more = cell(3, scores={"solved": 0, "found.a": 1})
    shown = page_of(report([*rows, more], settings=settings))
    assert report(rows, settings=settings).absent == ("complete", "found")
    assert re.search("<bdi>complete</bdi></th><td>.</td><td>0</td><td>3</td>", shown)
    assert "<bdi>found</bdi></th>" not in shown
    assert shown.index('id="scores"') < shown.index('id="stands"')
