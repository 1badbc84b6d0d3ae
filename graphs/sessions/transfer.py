"""Load, copy and export a session, or what one speaker remembers of it.

Lagent's agents have such a state each. Here a speaker's memory is what it has said and heard in
one log: resetting or replacing it changes what that speaker sees, and nothing that was said.
`graphs.sessions.dumps.dump` has the form of a dump, `graphs.sessions.exports` that of an export.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ...tools.registry.registry import Registry
from ..common.errors import SpecError
from ..common.validation import listing
from ..store.address import Store
from ..store.rows import check_session_id
from .dumps.dump import MemoryDump, SessionDump
from .remembering import load_whole, replace_memory
from .session import check_speaker, read_stored_session
from .stored_session import StoredSession

Dump = Mapping[str, Any] | str | Path
"""A dump, or the path of a ``.json`` file that contains one."""

ExportFormat = Literal["markdown", "jsonl", "html", "openai", "sharegpt"]
"""The formats in which a session can be exported."""


async def write_dump(
    store: Store, dump: SessionDump | MemoryDump, into: str | None, speaker: str | None = None
) -> str:
    """Write a session, or put a memory into another one, and return the session's id."""
    if isinstance(dump, MemoryDump):
        if into is None:
            raise SpecError("into: is missing: name the session whose speaker is to remember it")
        await replace_memory(store, check_session_id(into), speaker or dump.speaker, dump)
        return into
    if speaker is not None:
        raise SpecError("speaker: a whole session is loaded for all its speakers: leave it out")
    session = check_session_id(into or dump.session)
    await load_whole(store, session, dump)
    return session


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
