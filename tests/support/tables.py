"""Tables of rows as TOML files beside the tests, and loops over them. No tests here."""

import tomllib
from collections.abc import Callable, Iterable
from functools import cache, wraps
from inspect import signature
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


def each_row(name: str, *names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with the fields of each row of this name, and report every failing row.

    A row that is no table is the test's first argument. A missing field is None.

    Args:
        name: The name of the rows.
        *names: The arguments for the items of a row, if the rows are lists.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        rows = read_rows(test.__code__.co_filename, name)
        if names:
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        parameters = signature(test).parameters
        named = {field for row in rows if isinstance(row, dict) for field in row}
        fields = [field for field in parameters if field in named] or [next(iter(parameters))]

        @wraps(test)
        def try_rows(**fixtures: Any) -> None:
            def check(row: object) -> None:
                values = row if isinstance(row, dict) else {fields[0]: row}
                test(**fixtures, **dict.fromkeys(fields) | values)

            check_rows([(row,) for row in rows], check)

        # Without this signature, pytest would treat the fields as fixtures.
        rest = [one for field, one in parameters.items() if field not in fields]
        vars(try_rows)["__signature__"] = signature(test).replace(parameters=rest)
        return try_rows

    return decorate
