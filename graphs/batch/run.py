"""Running a batch from Python, and the handle of a stored batch."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias, Unpack, cast

from ...tools.registry.registry import Registered
from ..common.addresses import show_address
from ..common.data import check_whole
from ..common.errors import SpecError, hide_frames, how_to_install
from ..common.model_help import check_options, list_options
from ..common.settings import load_settings
from ..common.threads import in_background
from ..session.listing import known_store
from ..session.options import Options, StoreOptions
from ..session.run import check_here
from ..store.batches import CellStatus, CellsWanted, check_batch_name
from ..store.open import open_store
from ..store.rows import reading_store
from .batch_row import catch_up, read_known_row, read_usage_before, write_begun_row
from .cells import Cells, iter_first
from .driver import (
    CONCURRENCY,
    BatchSettings,
    CellExecutor,
    Driver,
    LocalExecutor,
    select_cells,
)
from .export import BatchFormat, ExportManifest, read_export, write_export
from .limiter import PATIENCE, Limiter
from .order import read_selection
from .preview import Preview, preview_batch
from .report.page import BatchReport
from .report.report import write_report
from .scores import ScoreFunction, check_judges, find_scores
from .spec import Batch, BatchLimits, load_batch
from .status import BatchStatus, known_batch, read_rows, read_status
from .worker import CellRules, Worker


@dataclass(frozen=True)
class BatchRun:
    """A handle of a stored batch: its name and its store.

    `run_batch` runs a batch. The handle reads, reports, exports or deletes it. All except deleting
    also works during a run. Creating a handle opens nothing. Each method opens the store, and
    raises `BatchError` if the batch does not exist, and `StoreError` if the store cannot be opened,
    read or written. Each method has an asynchronous twin whose name begins with ``a``, such as
    ``astatus``. ``str(batch)`` is the name.

    Args:
        name: The batch's name: 1 to 100 letters, digits, ``.``, ``_`` and ``-``.
        store: The store of the batch's sessions: a path, ``sqlite:///…``, ``postgresql://…`` or
            ``memory:``. If None, the store in the settings, or else an SQLite file in the user's
            data folder.

    Raises:
        SpecError: The name is not valid.

    Example:
        >>> from duologue import BatchRun, run_batch
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> garden = {"kind": "role_play", "task": "Plan a garden", "specify_task": False}
        >>> roles = {"user_role": ["Cook", "Teacher"], "assistant_role": ["Gardener"]}
        >>> model = ScriptedChatModel(lambda prompt: "<CAMEL_TASK_DONE>")
        >>> batch = {"conversation": garden, "vary": roles}
        >>> status = run_batch(batch, name="gardens", model=model, store="memory:docs")
        >>> run = BatchRun("gardens", store="memory:docs")
        >>> run.status() == status
        True
        >>> [row["user_role"] for row in run.rows()]
        ['Cook', 'Teacher']
    """

    name: str
    """The batch's name."""
    _: KW_ONLY
    store: str | Path | None = None
    """The store's path or address, as it was passed in."""

    # A generated one would add its frame to the traceback of an error.
    @hide_frames
    def __init__(self, name: str, *, store: str | Path | None = None) -> None:
        check_batch_name(name)
        vars(self).update(name=name, store=store)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        store = show_address(self.store) if isinstance(self.store, str) else self.store
        return f"BatchRun({self.name!r}, store={store!r})"

    @hide_frames
    async def astatus(self) -> BatchStatus:
        """Return the batch's status: how many sessions have ended, why, and their usage.

        The status can also be read during a run, even if another process runs the batch.
        """
        async with known_store(self.store) as store:
            return await read_status(store, self.name)

    status = in_background(astatus)

    @hide_frames
    async def arows(self) -> list[dict[str, Any]]:
        """Return one row for each session that has begun, without reading the session.

        Returns:
            Plain dicts in the order of the sessions, suitable for ``pandas.DataFrame``: fields of
            the session; each field that varies as a column with its path as name, such as
            ``user_role`` or ``labels.level``; and each score as ``score.NAME``. A missing score is
            None, and ``error`` contains the reason.
        """
        async with known_store(self.store) as store:
            return await read_rows(store, self.name)

    rows = in_background(arows)

    @hide_frames
    async def areport(
        self,
        output: str | Path | None = None,
        *,
        transcripts: int = 1000,
        sort: str | None = None,
    ) -> BatchReport:
        """Write the batch's results as an HTML page, with a folder of transcripts next to it.

        The page shows how the sessions ended, their length, their cost and their scores, for each
        value of every field that varies. During a run, it shows the results so far.

        Args:
            output: The page's file. An existing file is replaced. If None, ``NAME.html`` in the
                working folder. The transcripts are written to the folder ``NAME-sessions`` next to
                the page.
            transcripts: Maximum number of transcripts: first those of the sessions that the page
                lists with an error, then those of the first sessions in the page's table.
            sort: The name of a score. The table lists the sessions with the lowest score first;
                with a ``-`` before the name, those with the highest score. If None, the order of
                the run, so that the first sessions cover the values of each field equally.

        Returns:
            The figures on the page, and its path.

        Raises:
            SpecError: The page cannot be written, or no session has the score.
        """
        page = Path(output if output is not None else f"{self.name}.html")
        async with known_store(self.store) as store:
            return await write_report(store, self.name, page, transcripts, sort)

    report = in_background(areport)

    @hide_frames
    @list_options
    async def aexport(
        self,
        output: str | Path,
        *,
        format: BatchFormat = "jsonl",  # noqa: A002  # the usual name
        speaker: str | None = None,
        status: CellStatus | None = "finished",
        reason: str | Sequence[str] = (),
        score: str | Sequence[str] = (),
        trial: int | None = None,
        metadata: bool = True,
        **registered: Unpack[Registered],
    ) -> ExportManifest:
        """Write the sessions of the batch to a file, in the order of the sessions.

        The file replaces an existing file once it is complete. The same batch produces the same
        JSON Lines. A manifest is written next to it, as ``FILE.manifest.json``.

        Args:
            output: The file.
            format: ``jsonl`` writes one object for each session: its row, ``models``, and all its
                messages as ``trajectory``. ``openai`` and ``sharegpt`` write training examples, one
                object for each speaker for whom a model has spoken: the speaker's view, in which
                its own messages have the role of the assistant, and the row as ``metadata``.
                ``inspect`` writes a log of Inspect in its format ``.eval``, one sample for each
                session. After 1,000 samples a new file begins: ``NAME-2.eval``, and so on.
            speaker: The speaker whose view is exported. If None, a neutral view (``jsonl``), or the
                view of each speaker (training examples).
            status: Export only sessions with this status. If None, all that have begun.
            reason: Export only sessions that ended for this reason, or for one of these reasons.
            score: Export only sessions whose score satisfies a comparison such as ``won>=0.5``. If
                several comparisons are given, all must be true.
            trial: Export only this trial of each combination.
            metadata: Whether training examples have the key ``metadata``. OpenAI's service rejects
                keys that it does not know.
            **registered: The registered objects of the run. Examples describe the tools and schemas
                that are passed here or installed.

        Returns:
            The manifest: the number of rows and sessions, and of the sessions that were left out.

        Raises:
            SpecError: The format, status, reason, score or speaker does not exist, the format needs
                a package that is not installed, or the file cannot be written. In this case nothing
                is written.
        """
        filters = {"status": status, "reason": reason, "score": score, "trial": trial}
        work = read_export(format, speaker, filters, registered, metadata=metadata)
        async with known_store(self.store) as store:
            return await write_export(store, self.name, Path(output), work)

    export = in_background(aexport)

    @hide_frames
    async def adelete(self) -> None:
        """Delete the batch with all its sessions.

        Raises:
            BatchError: The batch is running.
            SessionError: A session of the batch is running outside it.
        """
        async with known_store(self.store) as store, store.lock_batch(self.name) as lease:
            await known_batch(store, self.name)
            async for row in store.batches.each(CellsWanted(batch=self.name)):
                await lease.check()
                # A cell may have failed before its session was created.
                if await store.get(row.session) is not None:
                    await store.delete(row.session)
            # The row is deleted last, so that an interrupted deletion can be repeated.
            await lease.delete()

    delete = in_background(adelete)


BatchLike: TypeAlias = Batch | Mapping[str, Any] | str | Path
"""A batch, or a dict or file that contains it."""

_OWN: Final = tuple(field.name for field in fields(BatchSettings))
"""The options that only batches have."""


@asynccontextmanager
async def open_driver(
    source: BatchLike, settings: BatchSettings, options: Options
) -> AsyncIterator[Driver]:
    """Check a batch, lease it, and yield the driver that runs it."""
    check_options(options, Options, *_OWN)
    if options.get("message") is not None:
        raise TypeError(
            "message: the sessions of a batch begin without a message; leave this option out"
        )
    batch, cells, found = await asyncio.to_thread(_read_batch, source, settings)
    name = cells.name
    # The stored names are those of the columns: `solved` for `words:solved`.
    batch = batch.model_copy(update={"score": tuple(found)})
    own_settings = await asyncio.to_thread(load_settings)
    store = options.get("store") or own_settings.store
    async with open_store(store) as opened, opened.lock_batch(name) as lease:
        known = await read_known_row(opened, name, cells, settings.facts)
        with reading_store(opened.url):
            before = None if known is None else read_selection(known)
        run = select_cells(cells, settings, before)
        seconds = 0.0 if known is None else known.seconds
        await catch_up(opened, lease)
        used = await read_usage_before(opened, name)
        limiter = Limiter(batch.limits, used, seconds, settings.patience)
        counts = await opened.batches.count(name)
        if sum(one.cells for one in counts if one.status == "finished") < len(run):
            # A batch whose cells have all ended is only read or scored, which needs no model.
            judges = () if settings.second_judge is None else (settings.second_judge,)
            first = cells.cell(1).conversation()
            await check_here(first, options, limiter, judges)
        given: Options = {**options, "store": store}
        judging = batch.judge_at_end, settings.examine, settings.second_judge, settings.enclose
        worker = Worker(lease, opened, limiter, own_settings, CellRules(given, found, *judging))
        async with _open_crew(worker, limiter, batch.limits, settings) as crew:
            row = await write_begun_row(lease, batch, run, known, settings.facts, settings.title)
            yield Driver(opened, lease, row, run, crew, settings, tuple(found))


async def plan_batch(source: BatchLike, settings: BatchSettings, options: Options) -> Preview:
    """Check a batch as `open_driver` does, with its scores, tools and models, and preview it."""
    batch, cells, _ = await asyncio.to_thread(_read_batch, source, settings)
    await check_here(cells.cell(1).conversation(), options)
    return preview_batch(select_cells(cells, settings), batch)


def _open_crew(
    worker: Worker, limiter: Limiter, limits: BatchLimits, settings: BatchSettings
) -> AbstractAsyncContextManager[CellExecutor]:
    """Return the executor that runs the cells: in this process, or on Ray workers."""
    if settings.ray is None:
        return nullcontext(LocalExecutor(worker, limiter))
    try:
        from .ray.workers import make_ray_executor
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise SpecError(f"ray: needs more packages; {how_to_install('ray')}") from error
    return make_ray_executor(settings.ray, worker, limits, settings)


def _read_batch(
    source: BatchLike, settings: BatchSettings
) -> tuple[Batch, Cells, dict[str, ScoreFunction]]:
    """Read a batch, its cells and its scores, and raise if a value or a setting does not fit."""
    check_settings(settings)
    name = batch_name(settings.name, source)
    batch = source if isinstance(source, Batch) else load_batch(source)
    cells = Cells.of(batch, name)
    cells.grid.check()
    found = find_scores(batch.score, settings.scores)
    check_judges(found, iter_first(cells), judge_at_end=batch.judge_at_end)
    return batch, cells, found


def batch_name(name: str | None, source: BatchLike) -> str:
    """Return the name of a batch. Without a name, it is the name of the batch's file."""
    if name is None and isinstance(source, str | Path):
        name = Path(source).stem
    if name is None:
        raise SpecError("name: is missing; name the batch, so that it can be resumed")
    return check_batch_name(name)


def check_settings(settings: BatchSettings) -> None:
    """Raise if a setting of a run is not valid."""
    check_whole("concurrency", settings.concurrency)
    for name, least in (("limit", 1), ("sample", 1), ("seed", 0)):
        if (value := getattr(settings, name)) is not None:
            check_whole(name, value, least)
    if not isinstance(settings.shuffle, bool | None):
        raise SpecError(f"shuffle: must be true or false, not {settings.shuffle!r}")
    patience = settings.patience
    is_number = isinstance(patience, int | float) and not isinstance(patience, bool)
    if not is_number or not 0 <= patience < inf:
        raise SpecError(f"patience: must be a number of seconds, 0 or more, not {patience!r}")


@hide_frames
@list_options
async def arun_batch(
    batch: BatchLike,
    *,
    name: str | None = None,
    concurrency: int = CONCURRENCY,
    retry_failed: bool = False,
    ray: str | None = None,
    patience: float = PATIENCE,
    scores: Mapping[str, ScoreFunction] | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    shuffle: bool | None = None,
    **options: Unpack[StoreOptions],
) -> BatchStatus:
    """Run a batch to its end, or resume it.

    Each combination of values is an ordinary session, which a `Session` handle reads. Sessions that
    have ended are not run again, and an interrupted session resumes at the point where it stopped.
    If a session fails, its row contains the error, and the other sessions continue; `BatchRun`
    reads the rows. This follows CAMEL's grids of roles and tasks, and tau2-bench's trials.

    Args:
        batch: The batch, or a dict or file (``.toml``, ``.json``) that contains it.
        name: The batch's name: 1 to 100 letters, digits, ``.``, ``_`` and ``-``. The ids of the
            sessions begin with it. If None, the file's name without its extension.
        concurrency: Maximum number of sessions that run at once.
        retry_failed: Whether failed sessions run again.
        ray: The address ``HOST:PORT`` of a Ray cluster whose machines run the sessions; or
            ``auto``, which uses a cluster that runs on this machine, or else all its cores. If
            None, the sessions run in this process.
        patience: Time in seconds for which the calls wait for a model's server that is down
            (unreachable, status 502 or 503). The server is tried again after 1 second, 2, 4 and so
            on, at least once a minute. If it is 0, the batch stops at once. If no call of the batch
            has been answered yet, only a server that has replied, such as with 503, is waited for.
        scores: Functions that score a session that has ended, by name. A function receives the
            session's `Result`, or the `Result` and the session's values by path, and returns a
            number, a bool, or a dict of them by name.
        limit: Maximum number of sessions that have run at the end, including those of earlier runs.
            A later run with a larger limit, or without one, runs the next sessions. If None,
            all sessions run.
        sample: Number of sessions that are drawn at random. The batch consists of these sessions
            only. A later run can pass a larger number, which adds sessions to the same sample. If
            None, the batch has all sessions, or the sample with which it was begun.
        seed: The seed of the shuffled order and of the sample, 0 or more. It is stored with the
            batch, and cannot change. If None, the stored seed, or 0 for a new batch.
        shuffle: Whether the sessions run in a random order, in which the sessions that have run so
            far always cover the values of each field equally. If False, they run in the order of
            their numbers. A later run can't change the order. If None, the stored order, or True
            for a new batch.
        **options: The options of each session's run.

    Returns:
        The status of the batch. Some sessions may have failed, wait for people, or be paused by a
        limit.

    Raises:
        TypeError: An option is unknown or has a wrong type.
        SpecError: The batch, its conversation, a file or a setting is not valid.
        BatchError: Another process runs the batch or has taken it over, the name belongs to another
            batch, or many sessions in a row failed with the same error.
        ModelUnavailableError: A model is not available, also after `patience`, which stops the
            whole batch.
        StoreError: The store cannot be opened or written.

    Example:
        >>> from duologue import run_batch
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> garden = {"kind": "role_play", "task": "Plan a garden", "specify_task": False}
        >>> roles = {"user_role": ["Cook", "Teacher"], "assistant_role": ["Gardener"]}
        >>> batch = {"conversation": garden, "vary": roles}
        >>> model = ScriptedChatModel(lambda prompt: "<CAMEL_TASK_DONE>")
        >>> run_batch(batch, name="b", model=model, store="memory:batch-docs").reasons
        {'done_token': 2}
    """
    settings = BatchSettings(
        name, concurrency, retry_failed, ray, patience, scores, limit, sample, seed, shuffle
    )
    async with open_driver(batch, settings, cast("Options", options)) as driver:
        row = await driver.run()
    async with known_store(options.get("store")) as opened:
        return await read_status(opened, row.batch)


run_batch = in_background(arun_batch)
