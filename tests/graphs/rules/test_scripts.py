"""Scripted conversations as rows of a table: each ends for its reasons and with its causes."""

from typing import Any

import pytest

from support.scripts import describe_end, read_scripts, run_row

ROWS = read_scripts(__file__)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_scripted_conversation_ends_as_its_row_says(row: dict[str, Any]) -> None:
    found = describe_end(run_row(row))
    assert {name: found[name] for name in row["found"]} == row["found"]
