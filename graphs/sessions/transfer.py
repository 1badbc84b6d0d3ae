"""Export a session, or what one speaker remembers of it, in the formats of the folder `exports`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple

from ...tools.registry.registry import Registry
from ..common.errors import SpecError
from ..common.validation import listing
from ..store.address import Store
from .session import check_speaker, read_stored_session
from .stored_session import StoredSession

ExportFormat = Literal["markdown", "jsonl", "html", "openai", "sharegpt"]
"""The formats in which a session can be exported."""


async def export_session(
    store: Store,
    session: str,
    form: ExportFormat,
    speaker: str | None,
    registry: Registry,
    *,
    metadata: bool,
) -> str:
    """Write a session as text in one of the formats."""
    if form not in _WRITERS:
        raise SpecError(f"format: {form!r} is unknown; there are {listing(_WRITERS)}")
    return await _WRITERS[form](_Export(store, session, form, speaker, registry, metadata))


class _Export(NamedTuple):
    """A request for an export."""

    store: Store
    session: str
    form: ExportFormat
    speaker: str | None
    registry: Registry
    metadata: bool

    async def read(self) -> StoredSession:
        """Read the session, and check that it has the speaker."""
        found = await read_stored_session(self.store, self.session)
        if self.speaker is not None:
            check_speaker(self.session, found.conversation, self.speaker)
        return found


# Each format has its own libraries, which take long to import.


async def _write_markdown(export: _Export) -> str:
    from .exports.text import as_markdown

    return as_markdown(await export.read(), export.speaker)


async def _write_json_lines(export: _Export) -> str:
    from .exports.text import as_json_lines

    return as_json_lines(await export.read(), export.speaker)


async def _write_page(export: _Export) -> str:
    from .exports.page import read_page

    return await read_page(export.store, export.session, export.speaker)


async def _write_examples(export: _Export) -> str:
    from .exports.training import as_examples

    read = await export.read()
    return as_examples(read, export.form, export.speaker, export.registry, metadata=export.metadata)


_WRITERS: Final[Mapping[ExportFormat, Callable[[_Export], Awaitable[str]]]] = {
    "markdown": _write_markdown,
    "jsonl": _write_json_lines,
    "html": _write_page,
    "openai": _write_examples,
    "sharegpt": _write_examples,
}
"""What writes each format."""
