"""A batch as a data set: one file with a manifest."""

import asyncio
import operator
import re
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    FiniteFloat,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
)

from ...tools.registry.registry import Registered, Registry
from ..build import Graph, build_graph
from ..common.data import Data, Spec
from ..common.errors import SpecError, list_names, suggest_near_or_all
from ..common.files import NewFile
from ..common.model_help import check_options
from ..common.validation import validate
from ..conversation.fields import SPEC_VERSION
from ..ends.end_chat import Reason
from ..log.transcript import trajectory, transcript
from ..session.checkpoints import stored_conversation
from ..session.export_formats import check_log, check_log_name
from ..session.export_text import JsonLine, examples, format_example, json_line, models_of
from ..session.session_row import read_session
from ..session.stored_session import StoredSession
from ..store.batches import CellRow, CellStatus, CellsWanted
from ..store.open import Store
from .status import cell_columns, known_batch

_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}

_BOUND = re.compile(rf"\s*(.+?)\s*({'|'.join(_SIGNS)})\s*([^\s=<>!]+)\s*")


class ScoreBound(Spec):
    """A comparison that a session's score must satisfy."""

    name: str
    """The name of the score."""
    sign: Literal[">=", "<=", "==", "!=", ">", "<", "="]
    """The operator."""
    value: FiniteFloat
    """The number that the score is compared with."""

    def holds(self, scores: Mapping[str, float]) -> bool:
        """Return whether a session has this score, and the score satisfies the comparison."""
        return self.name in scores and _SIGNS[self.sign](scores[self.name], self.value)


def _read_bound(given: object) -> object:
    if not isinstance(given, str):
        return given
    found = _BOUND.fullmatch(given)
    if found is None:
        raise ValueError(f"must compare a score with a number, as in won>=0.5, not {given!r}")
    name, sign, value = found.groups()
    return {"name": name, "sign": sign, "value": value}


def _read_reason(given: object) -> object:
    known = [one.value for one in Reason]
    if isinstance(given, str) and given not in known:
        raise ValueError(f"{given!r} is unknown{suggest_near_or_all(given, known)}")
    return given


class Chosen(Spec):
    """A selection of sessions of a batch.

    Raises:
        SpecError: The status or a reason does not exist, or a comparison cannot be parsed.
    """

    status: CellStatus | None = "finished"
    """The status that the selected sessions have. Any status if None."""
    reason: tuple[Annotated[Reason, BeforeValidator(_read_reason)], ...] = ()
    """The reasons of the end: each selected session ended for one of them. Any reason if empty."""
    score: tuple[Annotated[ScoreBound, BeforeValidator(_read_bound)], ...] = ()
    """The comparisons that the scores of each selected session must all satisfy. Any scores if
    empty.
    """
    trial: PositiveInt | None = None
    """The number of the trial. Any trial if None."""

    def leaves_out(self, row: CellRow) -> str | None:
        """Return the name of the field that leaves a session out, or None if it is selected."""
        if self.status not in (None, row.status):
            return "status"
        if self.reason and row.reason not in self.reason:
            return "reason"
        if self.trial not in (None, row.trial):
            return "trial"
        return None if all(bound.holds(row.scores) for bound in self.score) else "score"


BatchFormat = Literal["jsonl", "openai", "sharegpt", "inspect"]
"""The name of a format in which a batch can be exported."""

EXPORT_VERSION: Final = 1
"""The version of the exported files' formats."""


class ExportedFile(Data):
    """A file of an export."""

    file: str
    """The file's name."""
    bytes: NonNegativeInt
    """Size of the file in bytes."""
    sha256: str
    """The SHA-256 hash of the file."""


class ExportManifest(ExportedFile):
    """The contents and the origin of an exported file, stored next to it."""

    format: BatchFormat
    """The file's format."""
    version: int = EXPORT_VERSION
    """The version of that format."""
    batch: str
    """The batch's name."""
    speaker: str | None
    """The speaker whose view the file contains. If None, a neutral view, or the view of each
    speaker.
    """
    filters: dict[str, JsonValue]
    """The filters that selected the sessions, by name."""
    sessions: NonNegativeInt
    """Number of sessions in all files."""
    rows: NonNegativeInt
    """Number of lines, or of samples, in all files."""
    left_out: dict[str, NonNegativeInt]
    """Number of sessions that have begun but are not in the file, by the filter that left them out,
    or by ``deleted``: the session no longer exists; ``speaker``: it has no speaker of that name;
    ``nothing_said``: it has no message that a model could learn.
    """
    further_files: tuple[ExportedFile, ...] = ()
    """The other files, in order, if the export has more than one file."""
    models: tuple[str, ...]
    """The models that were called in the sessions."""
    duologue: str
    """The version of duologue that wrote the file."""
    spec_version: int
    """The version of the sessions' specs."""
    written_at: AwareDatetime
    """The time of writing, in UTC."""


Found: TypeAlias = tuple[CellRow, StoredSession]
"""A selected session with its row."""

_AT_ONCE: Final = 32  # number of sessions that are read at the same time


def read_export(
    form: BatchFormat,
    speaker: str | None,
    filters: Mapping[str, object],
    registered: Registered,
    *,
    metadata: bool,
) -> "Export":
    """Check the options of an export, and return the export."""
    check_options(registered, Registered)
    if form not in get_args(BatchFormat):
        known = list_names(get_args(BatchFormat))
        raise SpecError(f"format: {form!r} is unknown for batches; choose one of {known}")
    if form == "inspect":
        check_log(speaker)
    wanted = {
        name: (value,) if name in ("reason", "score") and isinstance(value, str) else value
        for name, value in filters.items()
    }
    return Export(validate(Chosen, wanted), form, speaker, metadata, Registry(registered))


async def write_export(store: Store, batch: str, path: Path, work: "Export") -> ExportManifest:
    """Write the sessions of a batch to a file or several, and a manifest next to the first one."""
    if work.form == "inspect":
        check_log_name(path, (".eval",))
    async with AsyncExitStack() as stack:

        async def begin(path: Path) -> NewFile:
            file = await asyncio.to_thread(NewFile.begin, path)
            # A file that is not put in place is removed.
            stack.push_async_callback(asyncio.to_thread, file.drop)
            return file

        first, beside = await begin(path), await begin(Path(f"{path}.manifest.json"))
        row = await known_batch(store, batch)
        files = [first]
        if work.form == "inspect":
            # Imports Inspect.
            logs = await asyncio.to_thread(import_module, ".export_inspect", __package__)
            async for number, data in logs.write_logs(row, work.sessions_of(store, batch)):
                name = path.with_name(f"{path.stem}-{number}{path.suffix}")
                files += [] if number == 1 else [await begin(name)]
                await asyncio.to_thread(files[-1].write, data)
        else:
            async for chunk in work.find_sessions(store, batch):
                lines = (line for found in chunk for line in work.format_lines(*found))
                await asyncio.to_thread(first.write, "".join(lines))
        work.check(batch)
        manifest = work.manifest(batch, files)
        await asyncio.to_thread(beside.write, manifest.model_dump_json(indent=2) + "\n")
        for file in (*files, beside):
            await asyncio.to_thread(file.put)
    return manifest


@dataclass
class Export:
    """An export: its options and its results."""

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

    async def sessions_of(self, store: Store, batch: str) -> AsyncIterator[Sequence[Found]]:
        """Yield the selected sessions, several at a time, and count each as one row."""
        async for chunk in self.find_sessions(store, batch):
            for _, result in chunk:
                self._count(models_of(result), 1)
            yield chunk

    async def find_sessions(self, store: Store, batch: str) -> AsyncIterator[Sequence[Found]]:
        """Yield the selected sessions, several at a time."""
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

    async def _read(self, store: Store, graph: Graph, rows: Sequence[CellRow]) -> list[Found]:
        reads = (self._result(store, graph, row) for row in rows)
        found: list[Found] = []
        for row, result in zip(
            rows, await asyncio.gather(*reads, return_exceptions=True), strict=True
        ):
            if isinstance(result, BaseException):
                raise result
            if isinstance(result, str):
                self.left_out[result] += 1
            else:
                found.append((row, result))
        return found

    async def _result(self, store: Store, graph: Graph, row: CellRow) -> StoredSession | str:
        """Read a session, or return the reason why it is left out."""
        stored = await store.get(row.session)
        if stored is None:
            return "deleted"
        conversation = stored_conversation(stored, store.url)
        self.names = conversation.names
        if self.speaker not in (None, *conversation.names):
            return "speaker"
        return await read_session(row.session, conversation, graph)

    def format_lines(self, row: CellRow, result: StoredSession) -> Iterator[str]:
        """Yield the lines of a session, and count them."""
        models = models_of(result)
        told = cell_columns(row) | {"models": models}
        objects = [*self._objects(told, result)]
        if not objects:
            self.left_out["nothing_said"] += 1
            return
        self._count(models, len(objects))
        yield from map(json_line, objects)

    def _count(self, models: Iterable[str], rows: int) -> None:
        self.models.update(models)
        self.sessions += 1
        self.rows += rows

    def _objects(self, told: dict[str, Any], result: StoredSession) -> Iterable[JsonLine]:
        if self.form == "jsonl":
            shown = (result.conversation, result.messages, result.specified_task)
            if self.speaker is None:
                yield told | {"trajectory": transcript(*shown)}
            else:
                said = trajectory(*shown, self.speaker)
                yield told | {"speaker": self.speaker, "trajectory": said}
            return
        for one in examples(result, self.speaker, self.registry):
            yield format_example(one, self.form, told if self.has_metadata else None)

    def check(self, batch: str) -> None:
        """Raise if the comparisons name a score, or the export a speaker, that no session has."""
        names = [bound.name for bound in self.chosen.score]
        if unknown := next((name for name in names if name not in self.scores), None):
            known = f"; choose one of {list_names(sorted(self.scores))}" if self.scores else ""
            raise SpecError(f"score: no session of batch {batch!r} has a score {unknown!r}{known}")
        if self.left_out["speaker"] and not self.sessions + self.left_out["nothing_said"]:
            raise SpecError(
                f"no speaker in batch {batch!r} is called {self.speaker!r}; one of its "
                f"sessions has the speakers {list_names(self.names)}"
            )

    def manifest(self, batch: str, files: Sequence[NewFile]) -> ExportManifest:
        """Return the manifest of the written files."""
        first, *others = (
            ExportedFile(file=one.path.name, bytes=one.bytes, sha256=one.sha256) for one in files
        )
        return ExportManifest(
            **dict(first),
            format=self.form,
            batch=batch,
            speaker=self.speaker,
            filters=self.chosen.model_dump(mode="json"),
            sessions=self.sessions,
            rows=self.rows,
            left_out=dict(self.left_out.most_common()),
            further_files=tuple(others),
            models=tuple(sorted(self.models)),
            duologue=version("duologue"),
            spec_version=SPEC_VERSION,
            written_at=datetime.now(UTC),
        )
