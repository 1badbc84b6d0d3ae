"""A damaged store is read as far as possible; otherwise one error names it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from drawn_faults import Faults
from duologue.graphs import SessionError, StoreError, list_sessions
from support.tables import read_rows

from .damage import COMMANDS, DAMAGES, READS, SESSIONS, WRITES, act, fill

pytestmark = pytest.mark.exhaustive

PARTS = 12


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a session of each sort."""
    file = tmp_path_factory.mktemp("stores") / "base.db"
    fill(str(file))
    return file


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_is_damaged_works_or_is_told_of(
    part: int, base: Path, tmp_path: Path, faults: Faults
) -> None:
    for number in range(faults.times(5)):
        random = faults.random(f"{part} {number}")
        file = tmp_path / f"{number}.db"
        file.write_bytes(base.read_bytes())
        damage = random.choice(DAMAGES)(file, random)
        for name in random.sample([*READS, *COMMANDS, *WRITES], 14):
            session = random.choice(SESSIONS)
            try:
                act(name, session, str(file))
            except StoreError as error:
                assert_names(str(error), file, session)
            except SessionError:
                # The session no longer exists, has ended, or waits for nothing.
                continue
            except Exception as error:
                error.add_note(f"{name} {session} after {damage}, {part} {number}")
                raise
        file.unlink()


def assert_names(text: str, file: Path, session: str) -> None:
    """Check that an error is one short sentence about the store or the session."""
    assert str(file) in text or repr(session) in text
    assert text.isprintable()
    assert len(text) < 1000


@pytest.mark.parametrize(
    ("order", "told"),
    read_rows(__file__, "odd_rows_are_told_of_with_what_to_do"),
)
def test_odd_rows_are_told_of_with_what_to_do(
    order: str, told: str, base: Path, tmp_path: Path
) -> None:
    file = tmp_path / "odd.db"
    file.write_bytes(base.read_bytes())
    with closing(sqlite3.connect(file)) as connection:
        of_one = " WHERE session = 'new'" if order.startswith("UPDATE duologue_sessions") else ""
        connection.execute(order + of_one)
        connection.commit()
    with pytest.raises(StoreError) as caught:
        list_sessions(store=file)
    assert told in str(caught.value)
    assert "Upgrade duologue" in str(caught.value) or "restore a backup, or " in str(caught.value)
