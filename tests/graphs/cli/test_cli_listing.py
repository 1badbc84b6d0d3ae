"""Filtered lists of sessions, their pages, and the deletion of old sessions."""

import asyncio
import json
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from duologue.graphs import (
    Batch,
    BatchError,
    SessionError,
    SpecError,
    chat,
    converse,
    list_sessions,
    role_play,
    run_batch,
)
from duologue.nodes.testing import Script, ScriptedChatModel
from support.cli_help import ANSWER, DONE, FIRST, duologue
from support.stores import open_store

AGES = {"day": 1, "ten": 10, "twenty": 20, "thirty": 30, "forty": 40}
"""The days since the last change of each session."""

GARDEN = role_play("Plan", "Owner", "Gardener", specify_task=False)


@pytest.fixture
def store() -> str:
    """Return a store with sessions of 1, 10, 20 … days, the oldest of them finished."""
    unfinished: Script = [RuntimeError("stopped")]
    for name in reversed(AGES):
        talk = chat(title="Plan forty") if name == "forty" else GARDEN.replace(title=f"Plan {name}")
        script: Script = unfinished if AGES[name] < 15 else [FIRST, ANSWER, DONE]
        options: dict[str, Any] = {"model": ScriptedChatModel(script), "store": "kept.db"}
        with suppress(RuntimeError):
            if name == "twenty":
                run_batch(Batch(conversation=talk), name="lot", **options)
            else:
                converse(talk, session=name, answer=lambda question: "exit", **options)
    with closing(sqlite3.connect("kept.db")) as database, database:
        for name, days in AGES.items():
            then = datetime.now(UTC) - timedelta(days=days)
            database.execute(
                "UPDATE duologue_sessions SET session = ?, updated_at = ? WHERE title = ?",
                (name, then.isoformat(timespec="microseconds"), f"Plan {name}"),
            )
        database.execute("UPDATE duologue_cells SET session = 'twenty'")
    return "kept.db"


def listed(*options: str) -> list[str]:
    """Return the ids in a list, which are the same with `--json`."""
    arguments = ("sessions", *options, "--store", "kept.db")
    lines = duologue(*arguments).stdout.splitlines()
    objects = duologue(*arguments, "--json").stdout.splitlines()
    found = [line.split()[0] for line in lines]
    assert [json.loads(line)["session"] for line in objects] == found
    return found


def test_sessions_are_listed_by_status_reason_batch_text_and_age(store: str) -> None:
    assert listed() == ["day", "ten", "twenty", "thirty", "forty"]
    assert listed("--status", "finished") == ["twenty", "thirty", "forty"]
    assert listed("--status", "finished", "--reason", "quit") == ["forty"]
    assert listed("--batch", "lot") == ["twenty"]
    assert listed("PLAN T") == ["ten", "twenty", "thirty"]
    assert listed("--older-than", "25d") == ["thirty", "forty"]
    assert listed("--status", "running") == []


def test_a_long_list_is_shown_in_pages(store: str) -> None:
    first = duologue("sessions", "--limit", "2", "--store", store)
    assert [line.split()[0] for line in first.stdout.splitlines()] == ["day", "ten"]
    assert first.stderr == "There are older sessions; show them with --after ten\n"
    assert listed("--limit", "2", "--after", "ten") == ["twenty", "thirty"]
    rest = duologue("sessions", "--after", "twenty", "--store", store)
    assert (len(rest.stdout.splitlines()), rest.stderr) == (2, "")


def test_a_running_session_is_found_by_its_lease(store: str) -> None:
    async def look() -> tuple[str, str]:
        async with open_store(store) as opened, opened.lock("ten"):
            arguments = ("sessions", "--status", "running", "--store", store)
            ran = await asyncio.to_thread(duologue, *arguments)
            done = await asyncio.to_thread(
                duologue, "delete", "--older-than", "5d", "--yes", "--store", store
            )
            return ran.stdout, done.output

    shown, deleted = asyncio.run(look())
    assert shown.split()[:2] == ["ten", "running"]
    assert "Deleted 3 sessions." in deleted
    assert "Not deleted, because a run is using them: ten" in deleted
    assert listed() == ["day", "ten"]


def test_the_list_in_python_has_the_same_filters(store: str) -> None:
    def found(**filters: object) -> list[str]:
        return [row.session for row in list_sessions(store=store, **filters)]  # type: ignore[arg-type]

    assert found(status="finished", limit=1) == ["twenty"]
    assert found(older_than=timedelta(days=35)) == ["forty"]
    assert found(batch="lot") == ["twenty"]
    assert found(after="thirty") == ["forty"]
    with pytest.raises(SpecError, match=r"^reason: 'quitt' is unknown; did you mean 'quit'\?$"):
        found(reason="quitt")
    with pytest.raises(BatchError, match="There is no batch 'none'"):
        found(batch="none")
    with pytest.raises(SessionError, match="There is no session 'none'"):
        found(after="none")


def test_old_sessions_are_counted_then_deleted(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ("delete", "--older-than", "15d", "--status", "finished", "--store", store)
    assert duologue(*old, "--dry-run").stdout == "3 sessions would be deleted.\n"
    refused = duologue(*old)
    assert refused.exit_code == 2
    assert "--yes: 3 sessions would be deleted" in refused.stderr
    monkeypatch.setattr("duologue.graphs.cli.sessions.can_ask", lambda: True)
    assert "Nothing was deleted." in duologue(*old, lines="n\n").stdout
    assert len(listed()) == 5
    assert "Deleted 3 sessions." in duologue(*old, lines="y\n").stdout
    assert listed() == ["day", "ten"]
    assert duologue(*old, "--yes").stdout == "No session matches.\n"


def test_a_session_that_runs_again_before_it_is_deleted_stays(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with open_store(store) as opened, opened.lock("forty") as held:
            await held.touch()

    def confirm(question: str) -> bool:
        asyncio.run(use())
        return True

    monkeypatch.setattr("duologue.graphs.cli.sessions.can_ask", lambda: True)
    monkeypatch.setattr(typer, "confirm", confirm)
    assert duologue("delete", "--older-than", "35d", "--store", store).stdout == (
        "Deleted 0 sessions.\n"
    )
    assert "forty" in listed()
