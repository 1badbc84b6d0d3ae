"""The handle of a stored batch."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Unpack

from ...tools.registry.registry import Registered
from ..common.addresses import show_address
from ..common.model_help import list_options
from ..common.threads import in_background
from ..session.listing import known_store
from ..store.base import Store
from ..store.batches import CellStatus, CellsWanted, check_batch_name
from ..store.errors import unknown_batch
from .export import BatchFormat, ExportManifest, read_export, write_export
from .report.page_data import BatchReport
from .report.report import write_report
from .status import BatchStatus, read_rows, read_status


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

    def __post_init__(self) -> None:
        check_batch_name(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        store = show_address(self.store) if isinstance(self.store, str) else self.store
        return f"BatchRun({self.name!r}, store={store!r})"

    async def astatus(self) -> BatchStatus:
        """Return the batch's status: how many cells have ended, for which reasons, and their usage.

        The status can also be read during a run, even if another process runs the batch.
        """
        async with known_store(self.store) as store:
            return await read_status(store, self.name)

    status = in_background(astatus)

    async def arows(self) -> list[dict[str, Any]]:
        """Return one row for each cell that has begun, without reading sessions.

        Returns:
            Plain dicts in the order of the cells, suitable for ``pandas.DataFrame``: the fields of
            the cell; each field that varies as a column with its path as name, such as
            ``user_role`` or ``labels.level``; and each score as ``score.NAME``. A missing score is
            None, and ``error`` contains the reason.
        """
        async with known_store(self.store) as store:
            return await read_rows(store, self.name)

    rows = in_background(arows)

    async def areport(
        self,
        output: str | Path | None = None,
        *,
        transcripts: int = 1000,
        sort: str | None = None,
    ) -> BatchReport:
        """Write the batch's results as an HTML page, with a folder of transcripts next to it.

        The page shows how the cells ended, their length, their cost and their scores, for each
        value of every field that varies. During a run, it shows the results so far.

        Args:
            output: The page's file. An existing file is replaced. If None, ``NAME.html`` in the
                working folder. The transcripts are written to the folder ``NAME-sessions`` next to
                the page.
            transcripts: Maximum number of transcripts: first those of the cells that the page lists
                with an error, then those of the first cells in the page's table.
            sort: The name of a score. The table lists the cells with the lowest score first; with a
                ``-`` before the name, those with the highest score. If None, the order of the run,
                so that the first cells cover the values of each field equally.

        Returns:
            The figures on the page, and its path.

        Raises:
            SpecError: The page cannot be written, or no cell has the score.
        """
        page = Path(output if output is not None else f"{self.name}.html")
        async with known_store(self.store) as store:
            return await write_report(store, self.name, page, transcripts, sort)

    report = in_background(areport)

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
        """Write the sessions of the batch to a file, in the order of the cells.

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

    async def adelete(self) -> None:
        """Delete the batch with all its sessions.

        Raises:
            BatchError: The batch is running.
            SessionError: A session of the batch is running outside it.
        """
        async with known_store(self.store) as store:
            await _delete_batch(store, self.name)

    delete = in_background(adelete)


async def _delete_batch(store: Store, name: str) -> None:
    """Delete a batch that is not running, with all its sessions."""
    async with store.lock_batch(name) as lease:
        if await store.batches.get(name) is None:
            raise unknown_batch(name, store.url)
        async for row in store.batches.each(CellsWanted(batch=name)):
            await lease.check()
            # A cell may have failed before its session was created.
            if await store.get(row.session) is not None:
                await store.delete(row.session)
        # The row is deleted last, so that an interrupted deletion can be repeated.
        await lease.delete()
