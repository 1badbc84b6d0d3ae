"""Several processes run the same sessions and are killed at random instants, again and again."""

import time
from collections import Counter
from pathlib import Path

import pytest

from drawn_faults import Faults
from duologue import Session, list_sessions
from support.contenders import ROUNDS, SESSIONS, said, started

pytestmark = pytest.mark.process


@pytest.mark.live
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_said_is_lost_and_no_turn_is_spoken_twice(
    kind: str, tmp_path: Path, faults: Faults, request: pytest.FixtureRequest
) -> None:
    store = f"sqlite:///{tmp_path}/sessions.db"
    if kind == "postgresql":
        store = request.getfixturevalue("postgres_url")
    drawn, record = faults.random(kind), tmp_path / "calls.txt"
    record.touch()
    known: dict[str, list[str]] = {}
    kills = faults.times(1)
    for _ in range(kills):
        processes = [started(store, record) for _ in range(2)]
        calls = len(record.read_text().splitlines())
        # The kill comes somewhere between its first calls and some hundred more.
        until = time.monotonic() + 20
        more = drawn.randrange(1, 40)
        while (
            len(record.read_text().splitlines()) < calls + more
            and time.monotonic() < until
            and any(one.is_alive() for one in processes)
        ):
            time.sleep(drawn.uniform(0, 0.02))
        victims = processes if drawn.random() < 0.3 else [drawn.choice(processes)]
        for one in victims:
            one.kill()
            one.join()
        for row in list_sessions(store=store):
            now = [text for _, text in Session(row.session, store=store).state().transcript]
            before = known.get(row.session, [])
            assert now[: len(before)] == before
            known[row.session] = now
        for one in processes:
            one.kill()
            one.join()
    last = started(store, record)
    last.join(120)
    assert last.exitcode == 0
    for number in range(SESSIONS):
        result = Session(f"s{number}", store=store).state()
        assert result.outcome is not None
        assert [text for _, text in result.transcript] == [
            said(number, turn) for turn in range(2 * ROUNDS)
        ]
    counted = Counter(record.read_text().splitlines())
    assert len(counted) == SESSIONS * 2 * ROUNDS
    # Only calls in flight are repeated; two were in flight at each kill.
    for number in range(SESSIONS):
        asked = sum(count for call, count in counted.items() if call.startswith(f"{number} "))
        assert asked - 2 * ROUNDS <= 2 * kills
