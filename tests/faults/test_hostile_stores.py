"""A store from elsewhere runs no code, even with hostile values."""

import json
import pickle
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from drawn_faults import Faults
from duologue.graphs import StoreError
from support.cases import thorough

from .damage import act, fill

ACTS = (
    *("get", "dump", "memory", "markdown", "jsonl", "fork", "copy", "resume"),
    *("say", "reset memory", "$ show", "$ show --json", "$ show --why", "$ export", "$ dump"),
    "$ fork",
)


class Written(NamedTuple):
    """A value with its type, as a store contains it."""

    kind: str
    value: bytes


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file that hostile code would create; importing the module `canary` creates it."""
    folder = tmp_path / "canary"
    folder.mkdir()
    (folder / "canary.py").write_text("open(__file__ + '.sings', 'w').close()\nsong = str\n")
    monkeypatch.syspath_prepend(folder)
    yield folder / "canary.py.sings"
    sys.modules.pop("canary", None)


def ext(code: int, *parts: object) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(parts))


def packed(value: object) -> Written:
    return Written("msgpack", ormsgpack.packb(value))


class _Pickled:
    def __init__(self, order: str) -> None:
        self.order = order

    def __reduce__(self) -> Any:  # noqa: ANN401
        import os

        return os.system, (self.order,)


def constructor(age: int, order: str) -> dict[str, Any]:
    """Return LangChain's form of an object."""
    path = ["subprocess", "getoutput"]
    return {"lc": age, "type": "constructor", "id": path, "args": [order], "kwargs": {}}


HOSTILE: dict[str, Callable[[str], Written]] = {
    "by one argument": lambda order: packed([ext(0, "subprocess", "getoutput", order)]),
    "by arguments": lambda order: packed([ext(1, "subprocess", "getoutput", (order,))]),
    "by names": lambda order: packed([ext(2, "subprocess", "getoutput", {"cmd": order})]),
    "by a method": lambda order: packed([ext(3, "subprocess", "sys", order, "exit")]),
    "like pydantic 1": lambda order: packed([ext(4, "subprocess", "getoutput", {"cmd": order})]),
    "like pydantic 2": lambda order: packed([ext(5, "subprocess", "getoutput", {"cmd": order})]),
    "by an import": lambda _: packed({"a": ext(0, "canary", "song", "la")}),
    "of the unknown kind": lambda order: packed([ext(99, order)]),
    "of a known type": lambda order: packed([ext(3, "builtins", "set", order, "__init__")]),
    "within a message": lambda order: packed(
        ormsgpack.Ext(
            5,
            ormsgpack.packb(
                (
                    *(AIMessage.__module__, "AIMessage"),
                    {"content": "", "name": ext(0, "subprocess", "getoutput", order)},
                )
            ),
        )
    ),
    "within a snapshot": lambda order: packed(
        ormsgpack.Ext(7, ormsgpack.packb([ext(1, "subprocess", "getoutput", (order,))]))
    ),
    "in numpy's form": lambda _: packed([ext(6, "|O", (1,), "C", b"\0" * 8)]),
    "in JSON": lambda order: Written("json", json.dumps(constructor(2, order)).encode()),
    "in older JSON": lambda order: Written("json", json.dumps(constructor(1, order)).encode()),
    "as a dict": lambda order: packed([constructor(1, order)]),
    "pickled": lambda order: Written("pickle", pickle.dumps(_Pickled(order))),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("stores") / "base.db"
    fill(str(file))
    return file


def in_checkpoints(file: Path, hostile: Written) -> None:
    """Replace every checkpoint by the hostile value."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", hostile)
        connection.commit()


def in_channels(file: Path, hostile: Written) -> None:
    """Insert the hostile value into the channels of each checkpoint, if its format fits."""
    value = ormsgpack.unpackb(hostile.value, ext_hook=ormsgpack.Ext)
    serializer = JsonPlusSerializer()
    with closing(sqlite3.connect(file)) as connection:
        for row, *one in connection.execute("SELECT rowid, type, checkpoint FROM checkpoints"):
            checkpoint = serializer.loads_typed(tuple(one))
            checkpoint["channel_values"]["messages"] = value
            order = "UPDATE checkpoints SET checkpoint = ? WHERE rowid = ?"
            connection.execute(order, (serializer.dumps_typed(checkpoint)[1], row))
        connection.commit()


def in_writes(file: Path, hostile: Written) -> None:
    """Replace every message that a step wrote by the hostile value."""
    with closing(sqlite3.connect(file)) as connection:
        order = "UPDATE writes SET type = ?, value = ? WHERE channel = 'messages'"
        connection.execute(order, hostile)
        connection.commit()


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("form", "where"),
    [
        (form, where)
        for form, written in HOSTILE.items()
        for where in (in_checkpoints, in_channels, in_writes)
        # Values in other formats cannot be part of a channel.
        if where is not in_channels or written("").kind == "msgpack"
    ],
)
@thorough
def test_nothing_runs_and_one_error_names_the_store(
    thorough: bool,
    form: str,
    where: Callable[[Path, Written], None],
    base: Path,
    tmp_path: Path,
    canary: Path,
    faults: Faults,
) -> None:
    hostile = HOSTILE[form](f"touch {canary}")
    some = min(len(ACTS), faults.times(4)) if thorough else 2
    for name in faults.random(f"{form} {where.__name__}").sample(ACTS, some):
        file = tmp_path / f"{name.replace(' ', '')}.db"
        file.write_bytes(base.read_bytes())
        where(file, hostile)
        with pytest.raises(StoreError) as caught:
            act(name, "unfinished", str(file))
        assert f"sqlite:///{file} can't be used: session 'unfinished'" in str(caught.value)
        assert not canary.exists()
        act("$ sessions", "unfinished", str(file))
        act("delete", "unfinished", str(file))
    assert "canary" not in sys.modules


@pytest.mark.parametrize("form", ["by one argument", "by arguments", "by names", "by an import"])
def test_it_would_run_if_it_were_let(form: str, canary: Path) -> None:
    opened = JsonPlusSerializer(allowed_msgpack_modules=True)
    opened.loads_typed(HOSTILE[form](f"touch {canary}"))
    assert canary.exists()


@pytest.mark.exhaustive
@pytest.mark.live
def test_nothing_runs_out_of_postgresql(postgres_url: str, canary: Path) -> None:
    import psycopg

    fill(postgres_url)
    hostile = HOSTILE["by one argument"](f"touch {canary}")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE checkpoint_writes SET type = %s, blob = %s", hostile)
    for name in ("get", "dump", "resume", "fork", "$ show"):
        with pytest.raises(
            StoreError, match=r"has the type subprocess\.getoutput, which no session"
        ):
            act(name, "unfinished", postgres_url)
    assert not canary.exists()
