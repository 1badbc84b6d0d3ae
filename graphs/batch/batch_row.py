"""A batch's row in the store, and the rows of the cells."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from pydantic import JsonValue

from ..build import build_graph
from ..common.data import VersionError
from ..common.errors import BatchError, DuologueError, SpecError
from ..conversation.conversation import SPEC_VERSIONS, Conversation, migrate_spec
from ..conversation.conversation_options import first_difference
from ..conversation.usage import Usage, add_usage, read_usage
from ..log.state import State
from ..rules.outcome import Outcome
from ..rules.position import Position
from ..rules.turns import Dialogue
from ..session.checkpoints import (
    read_snapshot,
    reading_session,
    stored_conversation,
)
from ..session.questions import find_open_questions
from ..session.session_row import title_of
from ..session.stored_session import (
    LaterVerdict,
    StoredSession,
    make_session,
    read_verdicts,
    usage_for,
)
from ..store.batches import (
    BatchRow,
    CellCount,
    CellRow,
    CellStatus,
    CellsWanted,
    add_counts,
)
from ..store.open import Store
from ..store.session_lease import BatchLease
from .cells import Cell, Cells, RunCells
from .order import STORED
from .spec import Batch
from .values import canonical_json


def new_cell_row(batch: str, cell: Cell) -> CellRow:
    """Return the row of a cell that begins now."""
    return CellRow(
        batch=batch,
        number=cell.number,
        session=cell.session,
        trial=cell.trial,
        varied=dict(cell.varied),
        updated_at=datetime.now(UTC),
    )


async def read_result(
    store: Store, session: str, batch: str
) -> tuple[StoredSession, dict[str, Any]] | None:
    """Read a session and its figures in a batch. Return None if the session does not exist."""
    row = await store.get(session)
    if row is None:
        return None
    conversation = stored_conversation(row, store.url)
    graph = build_graph(checkpointer=store.checkpointer)
    with reading_session(graph, session):
        state = await read_snapshot(graph, session)
        pending = await find_open_questions(graph, session, state)
        result = make_session(session, conversation, state.values, pending)
    ended, state_now = result.outcome, cast("State", state.values)
    figures = _so_far(conversation, state_now) if ended is None else read_figures(ended)
    result = replace(result, later_verdicts=await read_verdicts(store, session))
    return result, add_judge_usage(figures, result.later_verdicts, batch)


def add_judge_usage(
    figures: dict[str, Any], verdicts: Sequence[LaterVerdict], batch: str
) -> dict[str, Any]:
    """Return a session's figures with the usage of the verdicts that a batch asked for."""
    used = add_usage((_usage(figures), usage_for(batch, verdicts)))
    return figures | _usage_figures(used)


def read_figures(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a session that has ended, from its outcome."""
    return {
        "reason": outcome.reason.value,
        "complete": outcome.complete,
        "rounds": outcome.rounds,
        "messages": outcome.messages,
        "seconds": outcome.seconds,
        **_usage_figures(outcome.total),
    }


def _so_far(conversation: Conversation, state: State) -> dict[str, Any]:
    position = Position.model_validate(state.get("position") or {})
    return {
        "rounds": Dialogue(conversation, position).rounds,
        "messages": position.facts.messages,
        "seconds": position.facts.seconds,
        **_usage_figures(add_usage(read_usage(state).values())),
    }


def _usage_figures(used: Usage) -> dict[str, Any]:
    return used.model_dump(include={*_USED})


def cell_status_of(result: StoredSession) -> CellStatus:
    """Return the cell status of a session that was run: finished, waiting or paused."""
    if result.outcome is not None:
        return "finished"
    return "waiting" if result.pending else "paused"


_USED: Final = ("calls", "input_tokens", "output_tokens", "cost")


async def read_known_row(
    store: Store, name: str, cells: Cells, facts: Mapping[str, JsonValue]
) -> BatchRow | None:
    """Read the row of a batch that is resumed. Return None for a new batch.

    Since the last run, values and trials may have been added, and limits and scores changed.

    Raises:
        BatchError: The row belongs to another batch, or its version is not supported.
        StoreError: The store cannot be read.
    """
    known = await store.batches.get(name)
    if known is None:
        return None

    def refuse(why: str) -> BatchError:
        return BatchError(
            f"Batch {name!r} in {store.url}{why}; choose another name, or delete the batch by "
            f"`duologue batch delete {name}`."
        )

    try:
        spec = _upgrade_spec(known.spec)
    except VersionError as error:
        raise refuse(f": {error}") from error
    if spec != cells.spec:
        differs = first_difference(json.loads(spec), json.loads(cells.spec))
        raise refuse(f" has a different conversation: {differs} differs")
    if (changed := _changed_fact(read_facts(known), facts)) is not None:
        raise refuse(f" was begun with another value of {changed}")
    return known


_FACTS: Final = "facts"
"""The key of the facts in the stored settings of a batch."""


def read_facts(row: BatchRow) -> dict[str, JsonValue]:
    """Return the facts that are stored with a batch."""
    facts: dict[str, JsonValue] = json.loads(row.settings).get(_FACTS, {})
    return facts


def _changed_fact(known: JsonValue, given: object) -> str | None:
    """Return the path of the first known fact that differs. The path is empty for a plain value."""
    if not isinstance(known, dict) or not isinstance(given, Mapping):
        return None if known == given else ""
    for name, value in known.items():
        if (inner := _changed_fact(value, given.get(name))) is not None:
            return f"{name}.{inner}".removesuffix(".")
    return None


def _upgrade_spec(spec: str) -> str:
    """Upgrade the stored spec of a batch. A short form has no version, and is not changed."""
    data = json.loads(spec)
    fields, version = data["conversation"], data["version"]
    if SPEC_VERSIONS.steps_from(version) and "kind" not in fields:
        data["conversation"] = migrate_spec({**fields, "version": version})
        if "version" not in fields:
            del data["conversation"]["version"]
    return canonical_json({**data, "version": SPEC_VERSIONS.newest})


async def write_begun_row(
    lease: BatchLease,
    batch: Batch,
    run: RunCells,
    known: BatchRow | None,
    facts: Mapping[str, JsonValue],
    title: str | None = None,
) -> BatchRow:
    """Write the row of a batch that runs now. If the title is None, it comes from the cells."""
    now = datetime.now(UTC)
    settings = batch.model_dump(
        mode="json", include={"judge_at_end", "limits", "score", "seed", "trials"}
    )
    settings |= {STORED: run.selection.model_dump()}
    row = BatchRow(
        batch=lease.batch,
        title=_title(run.cells) if title is None else title,
        spec=run.cells.spec,
        settings=json.dumps(settings | ({_FACTS: {**facts}} if facts else {})),
        cells=run.selection.cells,
        seconds=known.seconds if known else 0,
        created_at=known.created_at if known else now,
        updated_at=now,
    )
    await lease.put(row)
    return row


async def catch_up(store: Store, lease: BatchLease) -> None:
    """Write the usage of interrupted sessions to their rows."""
    async for row, figures in _read_unfinished(store, lease.batch):
        # A session that has ended becomes `finished` in its next run, which also scores it.
        known = {**figures, "status": "paused", "reason": None}
        await lease.put_cell(row.model_copy(update=known))


async def add_interrupted(store: Store, name: str, counts: Sequence[CellCount]) -> list[CellCount]:
    """Return the counts of an interrupted batch with the usage of its sessions.

    Args:
        store: The store.
        name: The batch's name.
        counts: The counts of the cells' rows.
    """
    sums = add_counts([figures async for _, figures in _read_unfinished(store, name)])
    return [one.model_copy(update=sums) if one.status == "running" else one for one in counts]


async def read_usage_before(store: Store, name: str) -> Usage:
    """Return the total usage of a batch so far, including sessions that are running."""
    used = [_usage(one.model_dump()) for one in await store.batches.count(name)]
    used += [_usage(figures) async for _, figures in _read_unfinished(store, name)]
    return add_usage(used)


async def _read_unfinished(
    store: Store, name: str
) -> AsyncIterator[tuple[CellRow, dict[str, Any]]]:
    """Yield the cells whose rows do not contain their usage yet, with their figures."""
    async for row in store.batches.each(CellsWanted(batch=name, status="running")):
        # The run of a damaged session reports the error.
        with suppress(DuologueError):
            if (found := await read_result(store, row.session, name)) is not None:
                yield row, found[1]


def _usage(figures: Mapping[str, Any]) -> Usage:
    return Usage.model_validate({name: figures[name] for name in _USED})


def _title(cells: Cells) -> str:
    """Return the title that all cells have, or an empty text if it varies."""
    try:
        titles = {title_of(cells.cell(number).conversation()) for number in (1, len(cells))}
    except SpecError:
        # The last cell's values may not fit together.
        return ""
    return titles.pop() if len(titles) == 1 else ""
