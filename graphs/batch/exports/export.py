"""A batch as a data set: one file, with a manifest beside it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_args

from ....tools.registry.options import check_options
from ....tools.registry.registry import Registered, Registry
from ...build import Graph, build_graph
from ...common.errors import SpecError
from ...common.new_file import NewFile
from ...common.validation import listing, validated
from ...log.trajectory import trajectory, transcript
from ...sessions.exports.training import Line, examples, json_line, models_of, written
from ...sessions.session import read_session
from ...sessions.stored_session import StoredSession
from ...sessions.stored_state import stored_conversation
from ...spec.fields import SPEC_VERSION
from ...store.address import Store
from ...store.batches import CellRow, CellsWanted
from .chosen import Chosen
from .manifest import BatchFormat, ExportManifest
from .rows import columns, known_batch

_AT_ONCE: Final = 32  # sessions that are read at the same time


def read_export(
    form: BatchFormat,
    speaker: str | None,
    filters: Mapping[str, object],
    registered: Registered,
    *,
    metadata: bool,
) -> "Export":
    """Check the options of an export."""
    check_options(registered, Registered)
    if form not in get_args(BatchFormat):
        raise SpecError(
            f"format: of a batch there are {listing(get_args(BatchFormat))}, not {form!r}"
        )
    wanted = {**filters, **{name: _several(filters[name]) for name in ("reason", "score")}}
    return Export(validated(Chosen, wanted), form, speaker, metadata, Registry(registered))


async def write_export(store: Store, batch: str, path: Path, work: "Export") -> ExportManifest:
    """Write the sessions of a batch to a file, and its manifest beside it."""
    async with _new_files(path, Path(f"{path}.manifest.json")) as (data, beside):
        await known_batch(store, batch)
        async for text in work.lines(store, batch):
            await asyncio.to_thread(data.write, text)
        work.check(batch)
        manifest = work.manifest(batch, data)
        await asyncio.to_thread(beside.write, manifest.model_dump_json(indent=2) + "\n")
        await asyncio.to_thread(data.put)
        await asyncio.to_thread(beside.put)
    return manifest


def _several(given: object) -> object:
    return (given,) if isinstance(given, str) else given


@asynccontextmanager
async def _new_files(*paths: Path) -> AsyncIterator[list[NewFile]]:
    """Begin several files; what is not put in its place leaves nothing behind."""
    files: list[NewFile] = []
    try:
        for path in paths:
            files.append(await asyncio.to_thread(NewFile.begun, path))
        yield files
    finally:
        for file in files:
            await asyncio.to_thread(file.drop)


@dataclass
class Export:
    """One export: what is asked for, and what was found."""

    chosen: Chosen
    form: BatchFormat
    speaker: str | None
    has_metadata: bool
    registry: Registry
    rows: int = 0
    sessions: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    scores: set[str] = field(default_factory=set)
    names: tuple[str, ...] = ()

    async def lines(self, store: Store, batch: str) -> AsyncIterator[str]:
        """Give the file's text, that of some sessions at a time."""
        graph = build_graph(checkpointer=store.checkpointer)
        chunk: list[CellRow] = []
        async for row in store.batches.each(CellsWanted(batch=batch)):
            self.scores.update(row.scores)
            if (why := self.chosen.leaves_out(row)) is not None:
                self.left_out[why] += 1
                continue
            chunk.append(row)
            if len(chunk) == _AT_ONCE:
                yield await self._read(store, graph, chunk)
                chunk = []
        yield await self._read(store, graph, chunk)

    async def _read(self, store: Store, graph: Graph, rows: Sequence[CellRow]) -> str:
        found = await asyncio.gather(
            *(self._result(store, graph, row) for row in rows), return_exceptions=True
        )
        lines: list[str] = []
        for row, result in zip(rows, found, strict=True):
            if isinstance(result, BaseException):
                raise result
            if isinstance(result, str):
                self.left_out[result] += 1
            else:
                lines += self._written(row, result)
        return "".join(lines)

    async def _result(self, store: Store, graph: Graph, row: CellRow) -> StoredSession | str:
        """Read a session, or say why it is left out."""
        stored = await store.get(row.session)
        if stored is None:
            return "deleted"
        conversation = stored_conversation(stored, store.url)
        self.names = conversation.names
        if self.speaker not in (None, *conversation.names):
            return "speaker"
        return await read_session(row.session, conversation, graph)

    def _written(self, row: CellRow, result: StoredSession) -> Iterator[str]:
        models = models_of(result)
        told = columns(row) | {"models": models}
        objects = [*self._objects(told, result)]
        if not objects:
            self.left_out["nothing_said"] += 1
            return
        self.models.update(models)
        self.sessions += 1
        self.rows += len(objects)
        yield from map(json_line, objects)

    def _objects(self, told: dict[str, Any], result: StoredSession) -> Iterable[Line]:
        if self.form == "jsonl":
            yield told | _said(result, self.speaker)
            return
        for one in examples(result, self.speaker, self.registry):
            yield written(one, self.form, told if self.has_metadata else None)

    def check(self, batch: str) -> None:
        """Refuse what is asked for and that nothing has."""
        unknown = self.chosen.unknown_score(self.scores)
        if unknown is not None:
            known = f"; there are {listing(sorted(self.scores))}" if self.scores else ""
            raise SpecError(f"score: no session of batch {batch!r} has a score {unknown!r}{known}")
        if self.left_out["speaker"] and not self.sessions + self.left_out["nothing_said"]:
            raise SpecError(
                f"nobody in batch {batch!r} is called {self.speaker!r}; in a session of it there "
                f"are {listing(self.names)}"
            )

    def manifest(self, batch: str, data: NewFile) -> ExportManifest:
        """Say what was written."""
        return ExportManifest(
            file=data.path.name,
            format=self.form,
            batch=batch,
            speaker=self.speaker,
            filters=self.chosen.model_dump(mode="json"),
            sessions=self.sessions,
            rows=self.rows,
            left_out=dict(self.left_out.most_common()),
            bytes=data.bytes,
            sha256=data.sha256,
            models=tuple(sorted(self.models)),
            duologue=version("duologue"),
            spec_version=SPEC_VERSION,
            written_at=datetime.now(UTC),
        )


def _said(result: StoredSession, speaker: str | None) -> Line:
    shown = (result.conversation, result.messages, result.specified_task)
    if speaker is not None:
        return {"speaker": speaker, "trajectory": trajectory(*shown, speaker)}
    said = transcript(*shown)
    return {"trajectory": said}
