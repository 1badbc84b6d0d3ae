"""The formats in which a session can be exported.

To add a format, write its function, add its name to `ExportFormat`, a row to `FORMATS`, and its
call to `export_session`. The help of the command line and the error messages are made from them.
Imports are inside the functions because they are slow.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from ..common.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from ...tools.registry.registry import Registry
    from ..store.open import Store

ExportFormat = Literal["markdown", "jsonl", "html", "openai", "sharegpt", "inspect"]
"""The name of a format in which a session can be exported."""

FORMATS: Final[Mapping[ExportFormat, str]] = {
    "markdown": "a page to read",
    "jsonl": "one JSON object for each message, for programs",
    "html": "a page for a browser, in one self-contained file",
    "openai": "training examples, one for each speaker",
    "sharegpt": "training examples in ShareGPT's format",
    "inspect": "a log of Inspect",
}
"""A short description of each format for the help of the command line, in the order of lists."""


async def export_session(
    store: "Store",
    session: str,
    form: ExportFormat,
    speaker: str | None,
    registry: "Registry",
    *,
    metadata: bool,
) -> str:
    """Return a session as text in one of the formats."""
    check_format(form)
    if form == "html":
        from .page import read_page

        return await read_page(store, session, speaker)
    from .session_row import check_speaker, known_row, read_stored_session

    if form == "inspect":
        check_log(speaker)
        row = await known_row(store, session)
        read = await read_stored_session(store, session)

        def render_log() -> str:
            from .export_inspect import write_session

            return write_session(read, row.created_at, row.updated_at)

        # In a thread: the import of Inspect takes long, and its function starts an event loop.
        return await asyncio.to_thread(render_log)
    from .export_text import as_examples, as_json_lines, as_markdown

    read = await read_stored_session(store, session)
    if speaker is not None:
        check_speaker(session, read.conversation, speaker)
    if form == "markdown":
        return as_markdown(read, speaker)
    if form == "jsonl":
        return as_json_lines(read, speaker)
    return as_examples(read, form, speaker, registry, metadata=metadata)


def check_format(form: str) -> None:
    """Raise if there is no format of this name."""
    from ..common.errors import list_names

    if form not in FORMATS:
        raise SpecError(f"format: {form!r} is unknown; choose one of {list_names(FORMATS)}")


def check_log(speaker: str | None) -> None:
    """Check an export as a log of Inspect, which is about all speakers and needs its package."""
    from importlib.util import find_spec

    from ..common.errors import how_to_install

    if speaker is not None:
        raise SpecError("speaker: the format 'inspect' contains all speakers; leave it out")
    if find_spec("inspect_ai") is None:
        raise SpecError(f"format: 'inspect' needs more packages; {how_to_install('inspect')}")


def check_log_name(path: "Path", endings: tuple[str, ...]) -> None:
    """Raise if a file's name does not have the ending by which Inspect knows the form of a log."""
    if path.suffix not in endings:
        raise SpecError(f"{path}: Inspect can't read this name; end it in {' or '.join(endings)}")
