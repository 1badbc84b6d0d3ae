"""A batch as a data set: one file, with a manifest beside it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Unpack, get_args

from ....tools.registry.registry import Registered, Registry, check_options
from ...build import Graph, build_graph
from ...common.background import in_background
from ...common.errors import SpecError
from ...common.new_file import NewFile
from ...common.validation import listing, validated
from ...log.trajectory import transcript
from ...sessions.exports.training import Line, examples, json_line, models_of, written
from ...sessions.listing import known_store
from ...sessions.result import Result
from ...sessions.session import read_session
from ...sessions.stored_state import stored_conversation
from ...spec.fields import SPEC_VERSION
from ...store.address import Store
from ...store.batches import CellRow, CellStatus, CellsWanted
from .chosen import Chosen
from .manifest import BatchFormat, ExportManifest
from .rows import columns, known_batch

_AT_ONCE: Final = 32  # sessions that are read at the same time


async def aexport_batch(
    batch: str,
    output: str | Path,
    *,
    format: BatchFormat = "jsonl",  # noqa: A002  # what it is called everywhere
    speaker: str | None = None,
    status: CellStatus | None = "finished",
    reason: str | Sequence[str] = (),
    score: str | Sequence[str] = (),
    trial: int | None = None,
    metadata: bool = True,
    store: str | Path | None = None,
    **registered: Unpack[Registered],
) -> ExportManifest:
    """Write the sessions of a batch to a file of JSON Lines, in the order of its cells.

    The file takes its place when it is whole; until then an older one stays. The same batch gives
    the same bytes. Beside it stands its `ExportManifest`, as ``FILE.manifest.json``.

    Args:
        batch: The batch's name.
        output: The file.
        format: ``jsonl`` for one object a session: what `batch_rows` gives, ``models``, and
            ``trajectory``, all that was said. ``openai`` and ``sharegpt`` for examples to train
            models on, one object for each speaker for whom a model has spoken: what it saw, its
            own lines those of the assistant. What is known of the session stands in
            ``metadata`` there.
        speaker: Whose view it is. None: nobody's, or that of each speaker.
        status: Only sessions that stand so. None: all that have begun.
        reason: Only sessions that ended for this reason, or one of these.
        score: Only sessions whose score is so, such as ``won>=0.5``; of several comparisons each
            must hold.
        trial: Only this trial of each combination.
        metadata: Whether examples have ``metadata``. OpenAI's own service refuses keys that it
            does not know.
        store: Where sessions are kept. None: the setting, else the user's data folder.
        **registered: What was registered for the run, as for `converse`: examples tell of tools
            and schemas that are given here, or installed.

    Returns:
        What was written.

    Raises:
        SpecError: There is no such format, status, reason, score or speaker, or the file can't be
            written. Nothing was written then.
        BatchError: There is no such batch.
        StoreError: The store can't be opened or read.
    """
    check_options(registered, Registered)
    if format not in get_args(BatchFormat):
        raise SpecError(
            f"format: of a batch there are {listing(get_args(BatchFormat))}, not {format!r}"
        )
    wanted = {"status": status, "reason": _several(reason), "score": _several(score)}
    chosen = validated(Chosen, {**wanted, "trial": trial})
    work = _Export(chosen, format, speaker, metadata, Registry(registered))
    path = Path(output)
    async with (
        known_store(store) as opened,
        _new_files(path, Path(f"{path}.manifest.json")) as (data, beside),
    ):
        await known_batch(opened, batch)
        async for text in work.lines(opened, batch):
            await asyncio.to_thread(data.write, text)
        work.check(batch)
        manifest = work.manifest(batch, data)
        await asyncio.to_thread(beside.write, manifest.model_dump_json(indent=2) + "\n")
        await asyncio.to_thread(data.put)
        await asyncio.to_thread(beside.put)
    return manifest


export_batch = in_background(aexport_batch)


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


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
class _Export:
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

    async def _result(self, store: Store, graph: Graph, row: CellRow) -> Result | str:
        """Read a session, or say why it is left out."""
        stored = await store.get(row.session)
        if stored is None:
            return "deleted"
        conversation = stored_conversation(stored, store.url)
        self.names = conversation.names
        if self.speaker not in (None, *conversation.names):
            return "speaker"
        return await read_session(row.session, conversation, graph)

    def _written(self, row: CellRow, result: Result) -> Iterator[str]:
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

    def _objects(self, told: dict[str, Any], result: Result) -> Iterable[Line]:
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


def _said(result: Result, speaker: str | None) -> Line:
    if speaker is not None:
        return {"speaker": speaker, "trajectory": result.trajectory(speaker)}
    said = transcript(result.conversation, result.messages, result.specified_task)
    return {"trajectory": said}
