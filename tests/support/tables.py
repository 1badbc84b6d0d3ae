"""Tables of rows as TOML files beside the tests, and loops over them. No tests here."""

import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_rows(test: str, name: str) -> Any:  # noqa: ANN401  # any value of TOML
    """Return the rows of a name from the file ``rows.toml`` in the folder of a test."""
    return _read(Path(test).with_name("rows.toml"))[name]


def check_rows(rows: Iterable[Any], check: Callable[..., object]) -> None:
    """Call a check with the values of each row, and report every row for which it fails."""
    failed: list[str] = []
    for row in rows:
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{row}: {type(error).__name__}: {error}")
    assert not failed, "\n\n".join(failed)
