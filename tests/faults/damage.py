"""Stores to damage, ways to damage them, and operations on them. No tests here."""
# ruff: noqa: S608  # the names of tables are constants of this module

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from langchain_core.tools import tool
from langgraph.types import interrupt
from typer.testing import CliRunner

from duologue.graphs import Conversation, Session, StoreError, chat, converse, list_sessions
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.cli_help import app

SESSIONS = ("finished", "forked", "waiting", "asking", "unfinished", "new")


@tool
def weather(day: str) -> str:
    """Tell the weather."""
    return f"{day}: sun"


@tool
def choose(what: str) -> str:
    """Ask the person which one."""
    return str(interrupt({"which": what}))


TOOLS: dict[str, Any] = {"tools": [weather, choose]}

_GARDEN = Conversation.model_validate(
    {
        "task": "Plan a garden",
        "speakers": [
            {"name": "Ann", "tools": ["weather", "choose"]},
            {
                "name": "Ben",
                "checks_completion": True,
                "context": {"kind": "summary", "limit": 500},
            },
        ],
        "end_chat": {"max_iterations": 3, "mode": "all_task_must_complete"},
    }
)


def _calls(name: str, **arguments: str) -> Reply:
    return Reply(text="", tool_calls=(ScriptedToolCall(name=name, args=arguments, id="call 1"),))


def speak(prompt: Prompt) -> Line:
    """Return a reply that fits any request."""
    asked = "left" in str(prompt[-1])
    return {"objectives_left": ["water"], "complete": False} if asked else "Dig."


class BrokenError(RuntimeError):
    """The error that ends a run in the middle."""


def breaks_after(*lines: Line) -> ScriptedChatModel:
    """Return a model that says these lines and then fails."""
    left = list(lines)

    def script(_: Prompt) -> Line:
        if not left:
            raise BrokenError
        return left.pop(0)

    return ScriptedChatModel(script=script)


def fill(store: str) -> None:
    """Create one session of each sort."""
    model = ScriptedChatModel(script=speak)
    first = breaks_after(_calls("weather", day="Monday"), "It is dry.", "We need water.")
    with suppress(BrokenError):
        converse(_GARDEN, session="finished", store=store, model=first, **TOOLS)
    with suppress(BrokenError):
        halves = breaks_after("So?", "Well.", _calls("weather", day="Sunday"))
        converse(_GARDEN, session="unfinished", store=store, model=halves, **TOOLS)
    Session("finished", store=store).resume(model=model, **TOOLS)
    Session("finished", store=store).fork(at="m0004", into="forked", end_chat={"max_iterations": 4})
    converse(chat(), session="waiting", store=store, model=model)
    Session("waiting", store=store).answer("Hello.", model=model)
    asks = breaks_after(_calls("choose", what="rose"))
    converse(_GARDEN, session="asking", store=store, model=asks, **TOOLS)
    with suppress(BrokenError):
        converse(_GARDEN, session="new", store=store, model=breaks_after(), **TOOLS)


def who(session: str) -> str:
    """Return a speaker's name."""
    return "User" if session == "waiting" else "Ann"


def _read(session: str, store: str) -> None:
    found = Session(session, store=store).state()
    found.why()
    assert found.transcript is not None
    for name in found.conversation.names:
        found.viewpoint(name)
        found.parsed(name)


_MODEL = ScriptedChatModel(script=speak)

READS: dict[str, Callable[[str, str], object]] = {
    "list": lambda _, store: list_sessions(store=store),
    "get": _read,
    "dump": lambda session, store: json.dumps(Session(session, store=store).dump()),
    "memory": lambda session, store: Session(session, store=store).state().memory(who(session)),
    "markdown": lambda session, store: Session(session, store=store).export(format="markdown"),
    "html": lambda session, store: Session(session, store=store).export(format="html"),
    "jsonl": lambda session, store: Session(session, store=store).export(format="jsonl"),
}
WRITES: dict[str, Callable[[str, str], object]] = {
    "fork": lambda session, store: Session(session, store=store).fork().id,
    "fork at": lambda session, store: (
        Session(session, store=store).fork(at="m0002", task="Plan a park").id
    ),
    "copy": lambda session, store: Session(session, store=store).copy().id,
    "say": lambda session, store: Session(session, store=store).add_message(who(session), "Stop."),
    "stop": lambda session, store: Session(session, store=store).stop(),
    "respond": lambda session, store: Session(session, store=store).answer(
        "a rose", model=_MODEL, **TOOLS
    ),
    "resume": lambda session, store: Session(session, store=store).resume(model=_MODEL, **TOOLS),
    "reset memory": lambda session, store: Session(session, store=store).reset(
        speaker=who(session)
    ),
    "reset": lambda session, store: Session(session, store=store).reset(),
    "delete": lambda session, store: Session(session, store=store).delete(),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "$ sessions": ("sessions",),
    "$ sessions --json": ("sessions", "--json"),
    "$ show": ("show", "*"),
    "$ show --json": ("show", "*", "--json"),
    "$ show --why": ("show", "*", "--why"),
    "$ show --as": ("show", "*", "--as", "WHO"),
    "$ export": ("export", "*"),
    "$ dump": ("session", "dump", "*"),
    "$ fork": ("fork", "*"),
    "$ delete": ("delete", "*"),
}


def act(name: str, session: str, store: str) -> None:
    """Use a session by a function, or by a command of the command line.

    Raises:
        StoreError: The command exited with the code for store errors.
        Exception: Any other error of the function or command.
    """
    if name not in COMMANDS:
        (READS | WRITES)[name](session, store)
        return
    given = {"*": session, "WHO": who(session)}
    words = [given.get(word, word) for word in COMMANDS[name]]
    found = CliRunner().invoke(app, [*words, "--store", store])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    if found.exit_code:
        assert found.exit_code == 4, found.output
        raise StoreError(found.stderr.removeprefix("Error: ").rstrip("\n"))


# Ways to damage a file.


def overwrite(file: Path, random: Random) -> str:
    """Write random bytes at a random place."""
    data = bytearray(file.read_bytes())
    size = random.choice((1, 2, 8, 64, 512, 4096))
    place = random.randrange(len(data))
    new = random.randbytes(min(size, len(data) - place))
    data[place : place + len(new)] = new
    file.write_bytes(data)
    return f"{len(new)} bytes at {place}"


def truncate(file: Path, random: Random) -> str:
    """Truncate the file."""
    size = random.randrange(file.stat().st_size)
    with file.open("r+b") as opened:
        opened.truncate(size)
    return f"cut to {size}"


_ODD: tuple[object, ...] = (
    *(None, "", "x", "\x00", "null", "[]", "{}", "🙂" * 3, "9" * 400, "99", -1, 0, 2**62, 1.5),
    *(b"", b"\x80", b"\xff\xfe", b"\xc7\x05\x00\x00", "\x1b[31m", "2020-01-01", "\ud83d"),
)


def odd_value(file: Path, random: Random) -> str:
    """Write an odd value into a cell, or into a whole column."""
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = [name for (name,) in connection.execute(query)]
        table = random.choice(tables)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = random.choice(columns)
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        row = random.choice([*rows, None])
        value = random.choice(_ODD)
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        where = "" if row is None else f" WHERE rowid = {row}"
        # The column forbids such values, but a file with an odd schema can contain them.
        _loosen(connection, table)
        with suppress(sqlite3.Error):
            connection.execute(f"UPDATE OR REPLACE {table} SET {column} = ?{where}", (value,))
        connection.commit()
    return f"{table}.{column} = {value!r:.40}{where}"


def _loosen(connection: sqlite3.Connection, table: str) -> None:
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = ?", (table,)
    )
    connection.execute("PRAGMA writable_schema = RESET")


def odd_bytes(file: Path, random: Random) -> str:
    """Change some bytes of a text or bytes cell; the file itself stays intact."""
    with closing(sqlite3.connect(file)) as connection:
        column, table = random.choice(
            (
                *(("checkpoint", "checkpoints"), ("metadata", "checkpoints"), ("value", "writes")),
                *(("spec", "duologue_sessions"), ("checkpoint_id", "checkpoints")),
                *(("parent_checkpoint_id", "checkpoints"), ("channel", "writes")),
            )
        )
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        row, value = random.choice([one for one in rows if one[1]])
        is_text = isinstance(value, str)
        data = bytearray(value.encode() if is_text else value)
        for _ in range(random.choice((1, 1, 2, 5))):
            data[random.randrange(len(data))] = random.choice((*data, random.randrange(256)))
        new: object = data.decode("utf-8", "replace") if is_text else bytes(data)
        order = f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?"
        connection.execute(order, (new, row))
        connection.commit()
    return f"bytes of {table}.{column} in row {row}"


def missing(file: Path, random: Random) -> str:
    """Delete rows, a column or a table."""
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        table = random.choice([name for (name,) in connection.execute(query)])
        what = random.choice(("table", "column", "rows", "rows", "rows", "row"))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = random.choice(columns)
        order = {
            "table": f"DROP TABLE {table}",
            "column": f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
            "rows": f"DELETE FROM {table} WHERE (rowid + {random.randrange(9)}) % 3 = 0",
            "row": f"DELETE FROM {table} WHERE rowid = {random.randrange(30)}",
        }[what]
        connection.execute(order)
        connection.commit()
    return order


DAMAGES = (
    *(overwrite, overwrite, overwrite, truncate, missing),
    *(odd_value, odd_value, odd_bytes, odd_bytes),
)
