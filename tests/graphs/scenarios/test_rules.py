"""Rules of trials, reports and recordings, tried with many values."""

import pickle
from itertools import product
from pathlib import Path

import pytest

from duologue.graphs.batch.report.page import explain_interval
from duologue.graphs.batch.report.rows import Trials, pass_hat
from duologue.graphs.pytest_plugin import decide
from duologue.graphs.scenarios.pytest_report import name_file
from duologue.graphs.scenarios.suite_report import describe_passes
from duologue.graphs.scenarios.suite_run import SuiteAgent


@pytest.mark.parametrize(
    ("scored", "passed", "words"),
    [
        (3, 3, "with so few trials the true rate may be as low as 44 %"),
        (3, 0, "with so few trials the true rate may be as high as 56 %"),
        (1, 1, "with so few trials the true rate may be as low as 21 %"),
        (4, 2, "with so few trials the true rate may be between 15 % and 85 %"),
        (30, 30, ""),
    ],
)
def test_a_wide_interval_is_one_sentence(scored: int, passed: int, words: str) -> None:
    found = pass_hat([Trials(scored, passed)])
    assert explain_interval(found[0]) == words
    shown = describe_passes(found)
    assert shown == f"; {words}" if words else shown.startswith("; pass^1 1.00 (0.89 to 1.00), ")


def test_few_combinations_with_many_trials_are_named_as_the_cause() -> None:
    found = pass_hat([Trials(50, 50), Trials(50, 0)])[0]
    assert explain_interval(found).startswith("with so few combinations the true rate may be ")


def test_the_outcome_is_inconclusive_only_if_inconclusive_trials_could_change_it() -> None:
    for passed, failed, unclear in product(range(4), repeat=3):
        count = passed + failed + unclear
        for at_least in range(1, count + 1):
            possible = {passed + more >= at_least for more in range(unclear + 1)}
            expected = "passed" if False not in possible else "failed"
            if len(possible) > 1:
                expected = "inconclusive"
            assert decide(passed, failed, unclear, at_least) == expected


def test_paths_of_recordings_are_plain_and_differ() -> None:
    assert name_file("test_it[a-1]") == "test_it-a-1"
    assert name_file("TestIt::test_it") == "TestIt-test_it"
    names = {name_file(f"test_it[{one}]") for one in ("a/b", "a b", "a:b", "x" * 300)}
    assert len(names) == 4
    assert all(Path(one).name == one and len(one) < 120 for one in names)


def test_a_server_that_a_module_names_keeps_its_model_in_other_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own_server.py").write_text("URL = 'http://127.0.0.1:1/v1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    agent = SuiteAgent.take("own_server:URL", {"agent_model": "shop-2"})
    assert pickle.loads(pickle.dumps(agent)) == agent  # noqa: S301  # our own
