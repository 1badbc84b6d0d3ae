"""The handle of a stored batch."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Unpack

from ...tools.registry.options import list_options
from ...tools.registry.registry import Registered
from ..common.addresses import redact_address
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
    """A handle of a stored batch: its name, and the store that contains it.

    `run_batch` runs a batch; the handle is for what comes after or meanwhile. Making a handle opens
    nothing. Each method opens the store, and raises `BatchError` if there is no such batch, and
    `StoreError` if the store can't be opened, read or written. Each method has an asynchronous twin
    with an ``a`` in front, such as ``astatus``. ``str(batch)`` is the name.

    Args:
        name: The batch's name, 1 to 100 of letters, digits, ``.``, ``_`` and ``-``.
        store: The store of its sessions. None: the setting, else the user's data folder.

    Raises:
        SpecError: The name can't be a batch's.

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
    """The address of the store, as it was given."""

    def __post_init__(self) -> None:
        check_batch_name(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        store = redact_address(self.store) if isinstance(self.store, str) else self.store
        return f"BatchRun({self.name!r}, store={store!r})"

    async def astatus(self) -> BatchStatus:
        """Return how many cells have ended, why, and what they used, whoever runs the batch."""
        async with known_store(self.store) as store:
            return await read_status(store, self.name)

    status = in_background(astatus)

    async def arows(self) -> list[dict[str, Any]]:
        """Return one row for each cell that has begun, without reading sessions.

        Returns:
            Plain dicts in the order of the cells, as ``pandas.DataFrame`` takes them: the fields of
            the cell, each field that varies as a column by its path, such as ``user_role`` or
            ``labels.level``, and each score as ``score.NAME``.
        """
        async with known_store(self.store) as store:
            return await read_rows(store, self.name)

    rows = in_background(arows)

    async def areport(
        self, output: str | Path | None = None, *, transcripts: int = 1000
    ) -> BatchReport:
        """Write the batch's results as one HTML page, with the transcripts of its cells beside it.

        The page shows how the cells ended, how long they are, what they cost, and their scores, by
        the values of every field that varies. If the batch runs, it shows the results so far.

        Args:
            output: The page's file, which is replaced. None: ``NAME.html`` in the working folder.
                Transcripts go to the folder ``NAME-sessions`` beside it.
            transcripts: Maximum number of transcripts: of the first cells, and of those that the
                page names beside an error.

        Returns:
            The figures on the page, and its path.

        Raises:
            SpecError: The page can't be written.
        """
        page = Path(output if output is not None else f"{self.name}.html")
        async with known_store(self.store) as store:
            return await write_report(store, self.name, page, transcripts)

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
        """Write the sessions of the batch to a file of JSON Lines, in the order of its cells.

        The file replaces an older one when it is complete. The same batch gives the same bytes. The
        manifest is written beside it, as ``FILE.manifest.json``.

        Args:
            output: The file.
            format: ``jsonl`` for one object a session: its row, ``models``, and ``trajectory``, all
                messages. ``openai`` or ``sharegpt`` for examples to train models on, one object for
                each speaker for whom a model has spoken: its view, with its own lines as the
                assistant's, and the row in ``metadata``.
            speaker: The speaker whose view to export. None: nobody's, or that of each speaker.
            status: Export only sessions with this status. None: all that have begun.
            reason: Export only sessions that ended for this reason, or one of these.
            score: Export only sessions with such a score, as in ``won>=0.5``. Several comparisons
                must all hold.
            trial: Export only this trial of each combination.
            metadata: Whether examples have ``metadata``. OpenAI's own service refuses keys that it
                does not know.
            **registered: Objects that were registered for the run: examples describe the tools and
                schemas that are given here, or installed.

        Returns:
            The manifest: the number of rows and sessions, and what was left out.

        Raises:
            SpecError: There is no such format, status, reason, score or speaker, or the file can't
                be written. Nothing was written then.
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
            SessionError: One of its sessions is running by itself.
        """
        async with known_store(self.store) as store:
            await _delete_batch(store, self.name)

    delete = in_background(adelete)


async def _delete_batch(store: Store, name: str) -> None:
    """Delete a batch that nobody runs, with all its sessions."""
    async with store.lock_batch(name) as lease:
        if await store.batches.get(name) is None:
            raise unknown_batch(name, store.url)
        async for row in store.batches.each(CellsWanted(batch=name)):
            await lease.check()
            # A cell may have failed before its session was there.
            if await store.get(row.session) is not None:
                await store.delete(row.session)
        # The row goes last: a kill in between leaves something that can be deleted again.
        await lease.delete()
