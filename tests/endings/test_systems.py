"""Systems of others in the benchmark: functions, classes, processes, and the stored results."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from endings.adapter import Rules
from endings.command import RESULTS, ROOT, main
from endings.comparison import PAGE, PARTS, Comparison, SystemResult, fill_page, show
from endings.dialogue import Call, Case, Dialogue, Label, Origin, Turn, Word
from endings.scoring import feed
from endings.systems import (
    FunctionAdapter,
    Library,
    System,
    UnavailableError,
    Worker,
    make_environment,
    open_system,
    read_libraries,
)

TALK = Dialogue(
    "any",
    "casino",
    (
        Turn("Ann", "Find the page."),
        Turn("Bob", "", (Call("find", {"page": 1}, "It is here."),)),
        Turn("Bob", "Page 12."),
        Turn("Ann", "Thanks.\nSTOP"),
        Turn("Bob", "STOP"),
    ),
    Label(Case.WORD_SAID, 4, Origin.FIELD, signalled=True),
    (Word("STOP", "Ann"),),
)

MINE = """
def stops(messages):
    return "stop" if "STOP" in messages[-1].text else None

class Third:
    def __init__(self, dialogue):
        self.calls = self.tokens = 0

    def stops(self, messages):
        self.calls += 1
        return "third" if len(messages) == 3 else None

word = "STOP"
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a module of a user."""
    tmp_path.joinpath("my_endings.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_endings", raising=False)
    return tmp_path


def stop_of(name: str, cache: Path) -> tuple[int | None, str | None, int]:
    with open_system(name, cache) as system:
        adapter = system.begin(TALK)
        assert adapter is not None
        found = feed(TALK, adapter)
    return found.stop, found.reason, found.calls


def test_a_function_and_a_class_of_a_user_are_systems(mine: Path) -> None:
    assert stop_of("my_endings:stops", mine) == (4, "stop", 0)
    assert stop_of("my_endings:Third", mine) == (3, "third", 3)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nobody", "there is no system 'nobody'; choose duologue, autogen,"),
        ("my_endings:nothing", "'my_endings:nothing' can't be imported"),
        ("no_module_here:stops", "'no_module_here:stops' can't be imported"),
        ("my_endings:word", "'my_endings:word' is no function and no class; write stops"),
    ],
)
def test_a_system_that_does_not_exist_is_refused(mine: Path, name: str, problem: str) -> None:
    with pytest.raises(SystemExit, match=problem):
        main(["run", "--system", name, "--limit", "1", "--json", str(mine / "found.json")])
    assert not mine.joinpath("found.json").exists()


def test_the_command_prints_a_table_and_writes_json(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mine / "found.json"
    systems = ["--system", "duologue", "--system", "my_endings:stops"]
    main(["run", *systems, "--limit", "20", "--half", "report", "--json", str(path)])
    printed = capsys.readouterr().out
    assert "| `my_endings:stops` |" in printed
    found = Comparison.model_validate_json(path.read_text())
    assert [one.name for one in found.systems] == ["duologue", "my_endings:stops"]
    assert {one.all["corpus"].dialogues for one in found.systems} == {20}


def worker(rule: str) -> Library:
    return Library(title=rule, environment="", packages=(), version="langgraph", worker=rule)


@pytest.mark.exhaustive
def test_a_rule_in_a_process_of_its_own_is_fed_turn_by_turn() -> None:
    with Worker(worker("for_langgraph:by_hand"), Path(sys.executable)) as process:
        assert process.version
        for _ in range(2):
            adapter = process.begin(TALK)
            assert adapter is not None
            assert [adapter.stops(TALK.turns[:place]) for place in (1, 2, 3, 4)] == [
                *(None, None, None),
                "end",
            ]


def test_a_library_that_does_not_start_is_reported() -> None:
    with (
        pytest.raises(UnavailableError, match=r"No module named 'for_nothing'"),
        Worker(worker("for_nothing:x"), Path(sys.executable)) as process,
    ):
        process.begin(TALK)


@pytest.mark.exhaustive
def test_a_library_that_cannot_be_installed_is_skipped_with_the_reason(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Library(
        title="Absent",
        environment="absent",
        packages=(str(mine / "absent-1.0-py3-none-any.whl"),),
        version="absent",
        worker="for_tau2:user",
    )
    monkeypatch.setattr("endings.systems.read_libraries", lambda: {"absent": absent})
    cache, path = mine / "cache", mine / "found.json"
    main(["run", "--system", "absent", "--limit", "1", "--cache", str(cache), "--json", str(path)])
    assert "absent is skipped, because it can't be installed or started here: " in (
        capsys.readouterr().out
    )
    found = Comparison.model_validate_json(path.read_text())
    assert list(found.skipped) == ["absent"]
    assert found.systems == ()


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of environments, which some systems share."""
    return tmp_path_factory.mktemp("environments")


# Without tau2, which takes 670 MB.
@pytest.mark.packaging
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(read_libraries().keys() - {"tau2"}))
def test_each_library_stops_a_dialogue_with_its_word(name: str, environments: Path) -> None:
    library = read_libraries()[name]
    word = "TERMINATE"
    turns = (
        *(Turn("User", "Find the page."), Turn("Agent", "Page 12.")),
        *(Turn("User", "And the line?"), Turn("Agent", "Line 3."), Turn("User", word)),
    )
    label = Label(Case.WORD_SAID, 5, Origin.FIELD, signalled=True)
    dialogue = Dialogue("any", "casino", turns, label, (Word(word, "User"),))
    with Worker(library, make_environment(library, environments)) as process:
        assert f"=={process.version}" in library.packages[0]
        adapter = process.begin(dialogue)
        assert adapter is not None
        stop = feed(dialogue, adapter).stop
    assert stop == (None if "one-last" in name else 5)


def result_of(name: str, *adapters: FunctionAdapter | Rules) -> SystemResult:
    scored = [feed(TALK, adapter) for adapter in adapters]
    return SystemResult.of(System(name, name, "1.0", Rules), scored, {"tau": 2})


def stops_at(place: int) -> FunctionAdapter:
    def stops(messages: Sequence[Turn]) -> str | None:
        return "now" if len(messages) == place else None

    return FunctionAdapter(stops, TALK)


def test_a_table_has_a_row_for_each_system() -> None:
    ours = result_of("duologue", Rules(TALK), Rules(TALK))
    other = result_of("Other", stops_at(2), stops_at(5))
    found = Comparison(date="2026-01-01", half="report", systems=(ours, other))
    assert show(found).splitlines() == [
        "| system | CaSiNo (2) |",
        "| --- | --- |",
        "| duologue 1.0 | 0.00 / 0.00 |",
        "| Other 1.0 | 50.00 / 0.00, 1 late |",
    ]
    assert show(found, "words") == show(found)


def test_the_tables_in_the_page_are_those_of_the_stored_results() -> None:
    found = Comparison.model_validate_json(RESULTS.read_text(encoding="utf-8"))
    page = ROOT.joinpath(PAGE).read_text(encoding="utf-8")
    assert fill_page(found, page) == page
    assert all(f"<!-- endings: {place} -->" in page for place in PARTS)
