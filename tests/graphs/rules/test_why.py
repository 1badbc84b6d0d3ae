"""The causes of an end: the verdicts, counts, done tokens and tools that led to it.

Row U1; `test_scripts.py` compares the causes of many conversations, and `test_cli.py` has the same
for the command line.
"""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from duologue.graphs import Session, converse
from duologue.nodes.testing import ScriptedChatModel, ScriptExhaustedError
from support.log import kind_of, place_of
from support.results import outcome_of
from support.scripts import TOOLS, list_causes, read_line, read_scripts, run, run_row, talk
from support.tables import each_row

ROWS = read_scripts(__file__)


@pytest.mark.exhaustive
def test_every_cause_is_about_a_message_of_the_log_in_its_order() -> None:
    for row in ROWS.values():
        result = run_row(row)
        ids = [place_of(message) for message in result.messages]
        causes = result.why()
        places = [ids.index(cause.message) for cause in causes if cause.message is not None]
        assert places == sorted(places)
        at_the_end = [cause for cause in causes if cause.kind.value == "reason"]
        assert [cause.reason for cause in at_the_end] == list(outcome_of(result).reasons)
        assert at_the_end == causes[len(places) :]
        by, *others = [cause.speaker for cause in at_the_end]
        assert by == outcome_of(result).by
        assert not any(others)


@each_row("a_guard_is_a_cause_only_if_it_is_on")
def test_a_guard_is_a_cause_only_if_it_is_on(guard: str, limit: int, script: list[Any]) -> None:
    for on in (False, True):
        end_chat = {
            "max_iterations": 3 if guard == "same_replies" else 2,
            "mode": "all_task_must_complete" if "verdicts" in guard else "max_iterations_only",
            "guards": {guard: limit if on else 0},
        }
        fields = {"ann": {"checks_completion": True}, "end_chat": end_chat}
        model = ScriptedChatModel(script=[*map(read_line, script)])
        result = converse(talk(**fields), model=model, store="memory:", tools=TOOLS)
        causes = [cause for cause in result.why() if cause.message is not None]
        counted = [cause for cause in causes if cause.kind.value == "counted"]
        assert result.stop_reason == (guard if on else "max_iterations")
        assert bool(causes) is bool(counted) is on
        for cause in counted:
            assert (cause.reason, cause.limit) == (guard, limit)
            assert cause.text.endswith(f"({cause.count} of {limit})")
        if on:
            assert counted[-1].count == limit


def test_a_verdict_and_its_findings_are_data() -> None:
    first, *_ = run_row(ROWS["a separate judge"]).why()
    assert first.verdict is not None
    assert first.verdict.findings == {"They dig": "met", "They plant": "met"}
    assert (first.speaker, first.reason, first.count) == ("Ann", None, None)
    assert type(first).model_validate_json(first.model_dump_json()) == first


def test_an_unfinished_session_tells_what_counted_so_far(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    with pytest.raises(ScriptExhaustedError):
        run(talk(), "", "", session="s", store=store)
    result = Session("s", store=store).state()
    assert result.outcome is None
    assert list_causes(result) == [
        "m0001 Ann: rejected and asked again: Your message was empty.",
        "m0002 Ann: blank reply (1 of 2)",
    ]


def test_a_fork_is_counted_by_its_own_rules(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    whole = run_row(ROWS["blank replies"], session="one", store=store)
    Session("one", store=store).fork(into="two", end_chat={"guards": {"blank_replies": 5}})
    forked = Session("two", store=store).state()
    counted = [cause for cause in forked.why() if cause.kind.value == "counted"]
    assert [(cause.count, cause.limit) for cause in counted] == [(1, 5), (2, 5)]
    assert forked.outcome is None
    assert whole.why()[-1].text == "2 replies in a row were blank"


def test_a_predicate_is_the_reason_that_it_held() -> None:
    def enough(said: list[BaseMessage]) -> bool:
        return len(said) == 2

    conversation = talk(end_chat={"when": {"kind": "predicate", "name": "enough"}})
    result = run(conversation, "Dig.", "Dug.", predicates={"enough": enough})
    assert list_causes(result) == ["the predicate 'enough' returned true"]


@pytest.mark.part(8)
def test_the_page_lists_causes_alone_and_marks_all_steps_on_its_line_of_time() -> None:
    result = run_row(ROWS["a rewritten task"])
    page = result.session.export(format="html")
    assert "What led to it" not in page
    assert page.count("The task: rejected and asked again") == 1
    page = run_row(ROWS["blank replies"]).session.export(format="html")
    assert "What led to it" in page


def test_nothing_of_it_is_stored() -> None:
    result = run_row(ROWS["blank replies"])
    kinds = {kind_of(message) for message in result.messages}
    assert kinds == {"instruction", "draft", "speech"}
    assert result.why() == result.why()
