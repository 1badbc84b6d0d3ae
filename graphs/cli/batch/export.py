"""A batch written to a file."""

from pathlib import Path
from typing import Any

from ...batch.exports.export import export_batch
from ...common.errors import SpecError
from ..terminal.console import plain, stdout


def export_to(batch: str, output: Path | None, **options: Any) -> None:
    """Write a batch to a file, and say what is in it."""
    if output is None:
        raise SpecError("--output is missing: a batch is written to a file, its manifest beside it")
    if options.get("status") == "any":
        options["status"] = None
    told = export_batch(batch, output, **options)
    plain(
        stdout(), f"{output}: {_counted(told.rows, 'row')} of {_counted(told.sessions, 'session')}"
    )
    if told.left_out:
        left = ", ".join(f"{why} {count:,}" for why, count in told.left_out.items())
        plain(stdout(), f"Left out: {left}")


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
