"""Sessions and batches of an earlier version are refused with one error, and nothing is changed."""

import json
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import (
    Batch,
    BatchError,
    BatchRun,
    Session,
    StoreError,
    converse,
    list_sessions,
    run_batch,
)
from duologue.graphs.common.versions import BEFORE_RELEASE
from duologue.graphs.conversation.fields import SPEC_VERSION
from duologue.nodes.testing import ScriptedChatModel

TALK: dict[str, Any] = {
    "task": "Dig.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}

USES: dict[str, Callable[[str, ScriptedChatModel], object]] = {
    "converse": lambda store, model: converse(TALK, session="s", store=store, model=model),
    "resume": lambda store, model: Session("s", store=store).resume(model=model),
    "get_session": lambda store, model: Session("s", store=store).state(),
    "fork": lambda store, model: Session("s", store=store).fork(into="t").id,
    "say": lambda store, model: Session("s", store=store).add_message("Bob", "Hello."),
}


def make_older(path: Path) -> None:
    """Set the version of each stored spec to the one before."""
    with sqlite3.connect(path) as connection:
        known = connection.execute("SELECT session, spec FROM duologue_sessions").fetchall()
        for session, spec in known:
            older = json.dumps(json.loads(spec) | {"version": SPEC_VERSION - 1})
            row = (older, sha256(older.encode()).hexdigest(), session)
            connection.execute(
                "UPDATE duologue_sessions SET spec = ?, digest = ? WHERE session = ?", row
            )
        connection.execute(
            "UPDATE duologue_batches SET spec = json_set(spec, '$.version', ?)",
            (SPEC_VERSION - 1,),
        )
    connection.close()


def content(path: Path) -> list[str]:
    """Return all rows of a store."""
    with sqlite3.connect(path) as connection:
        rows = [*connection.iterdump()]
    connection.close()
    return rows


@pytest.mark.part(3)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_session_of_an_earlier_version_stays_untouched(
    use: Callable[[str, ScriptedChatModel], object], tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    converse(TALK, session="s", store=path, model=ScriptedChatModel(script=["A.", "B."]))
    make_older(path)
    before = content(path)
    model = ScriptedChatModel(script=["C."])
    said = f"'s' can't be read: version: {SPEC_VERSION - 1} was {BEFORE_RELEASE}; create it again"
    with pytest.raises(StoreError, match=said):
        use(str(path), model)
    assert not model.calls
    assert content(path) == before


def test_a_session_of_an_earlier_version_is_listed_and_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    converse(TALK, session="s", store=path, model=ScriptedChatModel(script=["A.", "B."]))
    make_older(path)
    assert [row.session for row in list_sessions(store=path)] == ["s"]
    Session("s", store=path).delete()
    assert not list_sessions(store=path)


def test_a_batch_of_an_earlier_version_stays_untouched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    batch = Batch.model_validate({"conversation": TALK, "vary": {"task": ["Dig.", "Rake."]}})
    run_batch(batch, name="b", store=path, model=ScriptedChatModel(script=["A.", "B."] * 2))
    make_older(path)
    before = content(path)
    with pytest.raises(
        BatchError,
        match=r"'b' .* was written by a development version before 0.1.0; create it again; choose",
    ):
        run_batch(batch, name="b", store=path, model=ScriptedChatModel(script=["C."]))
    assert content(path) == before
    assert BatchRun("b", store=path).status().cells == 2
