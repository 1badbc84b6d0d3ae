"""The export of a batch to a file."""

import asyncio
from pathlib import Path
from typing import Any

from ..batch.export import ExportManifest
from ..batch.handle import BatchRun
from ..common.errors import SpecError
from .terminal.console import cell, plain, stderr, stdout
from .terminal.progress import Progress


def export_to(batch: str, store: str | None, output: Path | None, **options: Any) -> None:
    """Write a batch to a file, and print the number of rows, sessions and left-out sessions."""
    if output is None:
        raise SpecError("--output is missing; name the file for the batch and its manifest")
    if options.get("status") == "any":
        options["status"] = None
    told = asyncio.run(_exported(BatchRun(batch, store=store), output, options))
    rows, sessions = _counted(told.rows, "row"), _counted(told.sessions, "session")
    plain(stdout(), f"{output}: {rows} of {sessions}")
    if told.left_out:
        left = ", ".join(f"{cell(why)} {count:,}" for why, count in told.left_out.items())
        plain(stdout(), f"Left out: {left}")


async def _exported(batch: BatchRun, output: Path, options: dict[str, Any]) -> ExportManifest:
    with Progress(stderr(), f"Exporting {batch}"):
        return await batch.aexport(output, **options)


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
