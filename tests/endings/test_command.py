"""The command, on our own texts and on a tiny copy of a source."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from endings import sources
from endings.closings import Line, agreements
from endings.command import main
from endings.intervals import Table
from endings.sources import SOURCES, dialogues

FOLDER = Path(__file__).parent


@pytest.fixture
def casino(tmp_path: Path) -> Path:
    """Write a copy of CaSiNo with two dialogues, the first in the half to report."""
    logs = [{"id": "a", "text": "Submit-Deal"}, {"id": "b", "text": "Accept-Deal"}]
    found = [{"dialogue_id": number, "chat_logs": logs} for number in (3, 4)]
    tmp_path.joinpath("casino_test.json").write_text(json.dumps(found))
    return tmp_path


def rows(printed: str) -> dict[str, list[str]]:
    """Return the rows of the first table, by source."""
    lines = printed.split("\n\n")[1].splitlines()[2:]
    cells = ([cell.strip() for cell in line.strip("| ").split("|")] for line in lines)
    return {row[0]: row[1:] for row in cells}


def test_the_command_prints_tables_for_a_copy(
    casino: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = tmp_path / "errors.tsv"
    both = ["run", "--casino", str(casino), "--limit", "40", "--errors", str(errors)]
    main([*both, "--half", "report"])
    printed = capsys.readouterr().out
    found = rows(printed)
    assert found["corpus"][:2] == ["report", "40"]
    assert found["casino"][:3] == ["report", "1", "0.00 (0.00 to 79.35)"]
    assert errors.exists()


@pytest.mark.exhaustive
def test_the_command_runs_as_a_folder() -> None:
    command = [sys.executable, str(FOLDER), "run", "--limit", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "### By source" in found.stdout
    assert "| corpus | report | 1 |" in found.stdout


def test_a_folder_without_a_dialogue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--sgd: .* has no dialogue of this source; give"):
        main(["run", "--sgd", str(tmp_path)])


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere: there is no such folder"):
        main(["run", "--tau2", str(tmp_path / "nowhere")])


def test_labels_by_id_take_the_place_of_a_readers(
    casino: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"casino/4": {"case": "farewell", "end": 1, "origin": "person"}}
    monkeypatch.setattr(sources, "_labels", lambda: given)
    found = {one.id: one.label for one in dialogues({"casino": [casino]})}
    assert (found["casino/3"].case, found["casino/3"].origin) == ("word said", "field")
    assert (found["casino/4"].case, found["casino/4"].end) == ("farewell", 1)
    assert found["casino/4"].origin == "person"


def test_every_label_by_id_can_be_read_and_names_its_origin() -> None:
    labels = sources._labels()
    assert all({"case", "end", "origin", "why"} <= row.keys() for row in labels.values())
    assert {name.partition("/")[0] for name in labels} <= {"tau", *SOURCES}


def test_farewells_are_compared_with_labels_and_mixed_ones_counted_apart() -> None:
    texts = (
        ("Thank you, goodbye!", True),
        ("Nothing but a boat.", True),
        ("Goodbye!", False),
        ("Find me a café.", False),
        ("Find me a bar.", False),
        ("Thanks, and a taxi.", None),
    )
    found = agreements(Line("a", "users", text, closes) for text, closes in texts)
    one = found["report", "users"]
    assert one.total == Table(both=1, rule=1, label=1, neither=2)
    assert one.mixed == 1
    assert one.precision is not None
    assert one.recall is not None
    assert one.kappa is not None
    assert (one.precision.value, one.recall.value) == (0.5, 0.5)
    # They agree on 3 of 5, by chance on (2 * 2 + 3 * 3) / 25.
    assert one.kappa.value == pytest.approx((0.6 - 0.52) / 0.48)
