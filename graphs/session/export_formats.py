"""The formats in which a session can be exported, and the function that writes each.

To add a format, write its function here, add its name to `ExportFormat` and a row to `FORMATS`. The
help of the command line and the error messages are made from them. Imports are inside the functions
because they are slow.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ..common.errors import SpecError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ...tools.registry.registry import Registry
    from ..store.open import Store
    from .stored_session import StoredSession

ExportFormat = Literal["markdown", "jsonl", "html", "openai", "sharegpt", "inspect"]
"""The name of a format in which a session can be exported."""


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
    return await FORMATS[form].write(_Export(store, session, form, speaker, registry, metadata))


def check_format(form: str) -> None:
    """Raise if there is no format of this name."""
    from ..common.errors import list_names

    if form not in FORMATS:
        raise SpecError(f"format: {form!r} is unknown; choose one of {list_names(FORMATS)}")


class _Export(NamedTuple):
    """A request for an export."""

    store: "Store"
    session: str
    form: ExportFormat
    speaker: str | None
    registry: "Registry"
    metadata: bool

    async def read(self) -> "StoredSession":
        """Read the session, and raise if it does not have the speaker."""
        from .session_row import check_speaker, read_stored_session

        found = await read_stored_session(self.store, self.session)
        if self.speaker is not None:
            check_speaker(self.session, found.conversation, self.speaker)
        return found


async def _write_markdown(export: _Export) -> str:
    from .export_text import as_markdown

    return as_markdown(await export.read(), export.speaker)


async def _write_json_lines(export: _Export) -> str:
    from .export_text import as_json_lines

    return as_json_lines(await export.read(), export.speaker)


async def _write_page(export: _Export) -> str:
    from .page import read_page

    return await read_page(export.store, export.session, export.speaker)


async def _write_examples(export: _Export) -> str:
    from .export_text import as_examples

    read = await export.read()
    return as_examples(read, export.form, export.speaker, export.registry, metadata=export.metadata)


async def _write_log(export: _Export) -> str:
    import asyncio

    from .session_row import known_row

    check_log(export.speaker)
    row = await known_row(export.store, export.session)
    read = await export.read()
    # In a thread, since the import of Inspect takes long, and its function starts an event loop.
    return await asyncio.to_thread(_render_log, read, row.created_at, row.updated_at)


def _render_log(read: "StoredSession", created: "datetime", ended: "datetime") -> str:
    from .export_inspect import write_session

    return write_session(read, created, ended)


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


class FormatRow(NamedTuple):
    """The description of a format, and the function that writes it."""

    purpose: str
    """A short description for the help of the command line."""
    write: Callable[[_Export], Awaitable[str]]
    """The function that writes the format."""


FORMATS: Final[Mapping[ExportFormat, FormatRow]] = {
    "markdown": FormatRow("a page to read", _write_markdown),
    "jsonl": FormatRow("one JSON object for each message, for programs", _write_json_lines),
    "html": FormatRow("a page for a browser, in one self-contained file", _write_page),
    "openai": FormatRow("training examples, one for each speaker", _write_examples),
    "sharegpt": FormatRow("training examples in ShareGPT's format", _write_examples),
    "inspect": FormatRow("a log of Inspect", _write_log),
}
"""All formats, in the order in which they are listed."""
