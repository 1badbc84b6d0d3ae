"""A later version reads the store of each release; `CONTRIBUTING.md` explains how to add one."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from duologue.graphs import Conversation
from duologue.graphs.batch import batch_row as record, cells
from duologue.graphs.common.data import Versions
from duologue.graphs.conversation import conversation as versions
from duologue.graphs.conversation.fields import SPEC_VERSION
from duologue.graphs.session import dump
from duologue.graphs.store import sql_tables as tables

from .contents import use_store, write_store

MADE_UP: Final = Path("made-up")
RELEASED: Final = sorted(path.parent for path in Path(__file__).parent.glob("*/store.db"))


@pytest.mark.parametrize("release", [MADE_UP, *RELEASED], ids=lambda folder: folder.name)
def test_a_store_of_an_earlier_version_is_read_and_gone_on_with(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    if release == MADE_UP:
        write_store_of_the_version_before(folder, monkeypatch)
    else:
        shutil.copytree(release, folder)
    use_store(folder)


def write_store_of_the_version_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write specs and a dump with a field that this version lacks, and add a step to each table.

    The step fails if the field is not there, or is read twice. The tables get a new column.
    """

    def drop_mood(data: dict[str, Any]) -> dict[str, Any]:
        assert data["mood"] == "good"
        return {name: value for name, value in data.items() if name != "mood"}

    older = {"version": SPEC_VERSION - 1, "mood": "good"}
    stored, spec = Conversation.stored, Versions(SPEC_VERSION - 1, (drop_mood,))
    for module in (versions, record):
        monkeypatch.setattr(module, "SPEC_VERSIONS", spec)
    before = tables.STORE_VERSIONS.newest - 1
    with monkeypatch.context() as earlier:
        earlier.setattr(Conversation, "stored", lambda self: stored(self) | older)
        earlier.setattr(cells, "SPEC_VERSION", SPEC_VERSION - 1)
        earlier.setattr(tables, "STORE_VERSIONS", Versions(before))
        write_store(folder)
    with sqlite3.connect(folder / "store.db") as connection:
        connection.execute(
            "UPDATE duologue_batches SET spec = json_set(spec, '$.conversation.mood', 'good')"
        )
    connection.close()
    file = folder / "dump.json"
    dumped = json.loads(file.read_text()) | {"version": dump.DUMP_VERSION - 1, "mood": "good"}
    file.write_text(json.dumps(dumped))
    monkeypatch.setattr(dump, "DUMP_VERSIONS", Versions(dump.DUMP_VERSION - 1, (drop_mood,)))
    column = ("ALTER TABLE duologue_sessions ADD COLUMN mood TEXT",)
    monkeypatch.setattr(tables, "STORE_VERSIONS", Versions(before, (column,)))
