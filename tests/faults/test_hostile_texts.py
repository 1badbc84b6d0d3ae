"""A store from elsewhere shows only its own content, even with hostile texts.

Every text in a store is replaced in turn, in its rows, its checkpoints and its batches; then the
commands are run and the pages are read as bytes.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from drawn_faults import Faults
from duologue.graphs import BatchRun, DuologueError, Session, chat, converse, run_batch
from duologue.graphs.common.sanitize import escape_invisible
from duologue.graphs.session.options import Options
from duologue.graphs.view.app import view_app
from duologue.graphs.view.pages import Runs
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.cases import thorough
from support.cli_help import app

from .damage import fill

HOSTILE = (
    "\x1b[31m\x9b2J\x07\x7f\u061c\u200e\u202e\u2066\u2028\u200b\U000e0041"
    "[red]x[/red]\x1b]8;;http://a.example\x1b\\\r\ny\tz\r"
)

CONTROLS = {
    *map(chr, (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x2070))),
    *"\u061c\u200e\u200f\u2028\u2029",
}
MARKS = {*"\u061c\u200e\u200f"}

COMMANDS = (
    *("sessions", "sessions --json", "show *", "show * --why", "show * --json", "show * --as Ann"),
    *("export *", "export * --format jsonl", "dump *", "dump * --as Ann", "batch list"),
    *("batch list --json", "batch status b", "batch status b --json", "batch export"),
    *("resume *", "answer * x", "judge *", "stop *", "delete *", "batch delete b"),
)
SESSIONS = ("finished", "waiting", "asking", "approving")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with sessions of each sort, one waiting for an approval, and a batch."""
    file = tmp_path_factory.mktemp("texts") / "base.db"
    fill(str(file))
    approving(str(file))
    batch = {
        "conversation": {
            "task": "Plan.",
            "speakers": [{"name": "Ann"}, {"name": "Bob"}],
            "end_chat": {"max_iterations": 1},
        },
        "vary": {"task": ["Dig.", "Sow."]},
    }
    run_batch(batch, name="b", store=str(file), model=ScriptedChatModel(script=lambda _: "Yes."))
    judge = ScriptedChatModel(script=[{"criterion_1": "met"}])
    Session("finished", store=str(file)).judge(["They say hello."], model=judge)
    return file


def approving(store: str, session: str = "approving", **arguments: Any) -> None:
    """Create a session that waits for a decision on a call."""
    call = ScriptedToolCall(name="calculator", args={"expression": "2*3"} | arguments, id="c1")
    talk = chat("How many?", tools=["calculator"], interrupt_on={"calculator": True})
    model = ScriptedChatModel(script=[Reply(tool_calls=[call])])
    converse(talk, session=session, store=store, model=model)


def run(*words: str) -> str:
    """Run a command, and return its output."""
    ran = CliRunner().invoke(app, words)
    assert ran.exception is None or isinstance(ran.exception, SystemExit), words
    return ran.stdout_bytes.decode() + ran.stderr_bytes.decode()


def told(store: str, sessions: tuple[str, ...] = SESSIONS) -> Iterator[tuple[str, str]]:
    """Run all commands; yield each with its output."""
    for command in COMMANDS:
        for session in sessions if "*" in command else ("",):
            words = [session if word == "*" else word for word in command.split()]
            yield " ".join(words), run(*words, "--store", store)


def is_harmless(command: str, text: str) -> None:
    kept = {"\n", "\t", *MARKS} if re.fullmatch(r"export \S+", command) else {"\n"}
    found = (CONTROLS - kept) & {*text}
    assert not found, (command, found)


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("duologue_sessions", name) for name in ("session", "title", "status", "reason")),
        *(("duologue_sessions", name) for name in ("spec", "digest", "created_at")),
        *(("duologue_batches", name) for name in ("batch", "title", "stopped", "spec", "settings")),
        *(("duologue_cells", name) for name in ("batch", "session", "varied", "status", "reason")),
        *(("duologue_cells", name) for name in ("error", "scores", "updated_at")),
        ("duologue_verdicts", "verdict"),
    ],
)
def test_no_column_of_a_row_reaches_the_terminal_raw(
    table: str, column: str, base: Path, tmp_path: Path
) -> None:
    store = copied(base, tmp_path)
    with closing(sqlite3.connect(store)) as connection:
        query = f"SELECT rowid, {column} FROM {table}"  # noqa: S608  # ours
        for row, value in connection.execute(query).fetchall():
            order = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608  # ours
            connection.execute(order, (within(value, lambda text: text + HOSTILE), row))
        connection.commit()
    for command, text in told(store, ("approving",)):
        is_harmless(command, text)


def within(value: object, change: Callable[[str], str]) -> str:
    """Change a text; if it is JSON, change each text in it."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.dumps(changed(json.loads(value), change))
    return change("" if value is None else str(value))


def changed(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401
    """Change each text in plain values and in msgpack data."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Extension):
        data = value.data
        with suppress(ValueError):
            data = ormsgpack.packb(changed(unpacked(data), change))
        return ormsgpack.Ext(value.tag, data)
    if isinstance(value, list | tuple):
        return [changed(one, change) for one in value]
    if isinstance(value, dict):
        return {key: changed(one, change) for key, one in value.items()}
    return value


class Extension(NamedTuple):
    """An object in msgpack."""

    tag: int
    data: bytes


def unpacked(data: bytes) -> Any:  # noqa: ANN401
    return ormsgpack.unpackb(data, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)


CELLS = (("checkpoints", "checkpoint"), ("writes", "value"), ("duologue_sessions", "spec"))


def rewrite(store: str, change: Callable[[str], str]) -> None:
    """Change the texts in all stored data of the sessions."""
    with closing(sqlite3.connect(store)) as connection:
        for table, column in CELLS:
            query = f"SELECT rowid, {column} FROM {table}"  # noqa: S608  # ours
            for row, value in connection.execute(query).fetchall():
                if not value:
                    continue
                if isinstance(value, str):
                    new: object = within(value, change)
                else:
                    packed = changed(unpacked(value), change)
                    new = ormsgpack.packb(packed, option=ormsgpack.OPT_NON_STR_KEYS)
                order = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608  # ours
                connection.execute(order, (new, row))
        connection.commit()


def hostile(text: str) -> Callable[[str], str]:
    """Return a function that inserts this hostile text into any text."""
    return lambda one: one + HOSTILE if one == text else one


def copied(base: Path, folder: Path, name: str = "copy") -> str:
    file = folder / f"{name}.db"
    file.write_bytes(base.read_bytes())
    return str(file)


@thorough
def test_no_text_of_a_session_reaches_the_terminal_or_an_approval_raw(
    thorough: bool, base: Path, tmp_path: Path, faults: Faults
) -> None:
    texts: dict[str, None] = {}
    rewrite(copied(base, tmp_path, "read"), lambda text: texts.setdefault(text) or text)
    assert {"Plan a garden", "Ann", "calculator", "2*3", "Dig.", "approve"} <= {*texts}
    most = faults.times(4 if thorough else 1)
    some = faults.random("texts").sample([*texts], min(most, len(texts)))
    some += ["Ann", "calculator", "2*3"] if thorough else ["calculator"]
    for number, text in enumerate(some):
        store = copied(base, tmp_path, str(number))
        rewrite(store, hostile(text))
        for command, shown in told(store, ("asking", "approving")):
            is_harmless(command, shown)
        store = copied(base, tmp_path, f"{number} pages")
        rewrite(store, hostile(text))
        for page in pages(store):
            is_exact(page)


def pages(store: str) -> Iterator[str]:
    """Yield the pages on which a person reads and approves."""
    with TestClient(view_app(Runs(Options(store=store)), lambda: False)) as client:
        for path in ("/", *(f"/sessions/{name}" for name in SESSIONS)):
            yield client.get(path).text
    for session in SESSIONS:
        with suppress(DuologueError):
            yield Session(session, store=store).export(format="html")
            yield Session(session, store=store).state()._repr_html_()
    with suppress(DuologueError):
        report = BatchRun("b", store=store).report(output=Path(f"{store}.html"), transcripts=0)
        assert report.page is not None
        yield Path(report.page).read_text(encoding="utf-8")


def is_exact(page: str) -> None:
    """Check that a page has no control characters, and that people approve no invisible text."""
    unseen = CONTROLS - MARKS - {"\n", "\t"} - {chr(one) for one in range(0x2028, 0x2070)}
    # A hidden field is sent back unchanged and never shown.
    assert not unseen & {*re.sub(r'<input type="hidden"[^>]*>', "", page)}
    for approval in approvals(page):
        assert escape_invisible(approval, keep="\n") == approval


def approvals(page: str) -> list[str]:
    """Return the part of a decision's page that people see, without the hidden fields."""
    forms = re.findall(r'(?s)<fieldset class="call">.*?</fieldset>', page)
    return [re.sub(r' value="[^"]*"', "", form) for form in forms]


ARGUMENTS = [
    {"expression": HOSTILE},
    {"expression": "rm -rf /a    /b  ", "empty": [{}, [], "", None, 1.5, True]},
    {"expression": "2\u202e*\u202c3", HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]},
    {"expression": "👩\u200d💻 שלום ❤\ufe0f", "to": ["א", "ב", 100]},
    {"expression": r"\u202e and \\u202e and \n", "blank": "\xa0\u3000\u3164\u2800\xad\u034f"},
]


@pytest.mark.part(2)
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_what_is_approved_shows_each_of_its_characters(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    store = str(tmp_path / "s.db")
    approving(store, **arguments)
    with TestClient(view_app(Runs(Options(store=store)), lambda: False)) as client:
        page = client.get("/sessions/approving").text
    (form,) = approvals(page)
    named = re.compile(r'(?s)<dt><bdi>(.*?)</bdi></dt><dd dir="ltr">(.*?)</dd>')
    pairs = named.findall(form)
    shown = "".join(value for _, value in pairs)
    assert [unescape(name) for name, _ in pairs] == [
        escape_invisible(name, keep="\n") for name in arguments
    ]
    values = [unescape(re.sub("</?bdi>", "", value)) for _, value in pairs]
    assert [json.loads(value) for value in values] == [*arguments.values()]
    (edited,) = re.findall(r"(?s)<textarea name=\"args0\"[^>]*>\n(.*?)</textarea>", form)
    assert json.loads(unescape(edited)) == arguments
    for written in (*values, unescape(edited)):
        assert escape_invisible(written, keep="\n") == written
    # No string is displayed in the place of another.
    assert len(re.findall(r"<bdi>&#34;", shown)) == shown.count("<bdi>") > 0
    (question,) = Session("approving", store=store).state().pending
    _, _, call = question.summary().partition("calculator with ")
    assert json.loads(call.removesuffix(".")) == arguments
    assert escape_invisible(call) == call
    # If a command shows a pending question, each blank stays, too.
    assert question.summary()[:300] in run("show", "approving", "--store", store)
    assert question.summary() in str(Session("approving", store=store).state())
    for display in (Session("approving", store=store).state()._repr_html_(), page):
        assert named.findall(display)[: len(pairs)] == pairs


def test_ids_and_reasons_are_told_apart_in_lists(base: Path, tmp_path: Path) -> None:
    store = copied(base, tmp_path)
    ids = ["a", "a\u200b", "a\xa0", "a\n", "a\ta", "a" * 5000]
    with closing(sqlite3.connect(store)) as connection:
        for place, name in enumerate(ids):
            order = "UPDATE duologue_sessions SET session = ?, reason = ? WHERE rowid = ?"
            connection.execute(order, (name, f"\u202e{name}", place + 1))
            connection.execute(
                "INSERT INTO duologue_batches SELECT ?, title, spec, settings, cells, seconds, "
                "stopped, created_at, updated_at FROM duologue_batches WHERE batch = 'b'",
                (name,),
            )
        connection.commit()
    for command in (["sessions"], ["batch", "list"]):
        lines = run(*command, "--store", store).splitlines()
        names = [line.split("  ")[0] for line in lines]
        assert {"a", "a\\u200b", "a\\xa0", "a\\n", "a\\ta"} <= {*names}
        assert len({*names}) == len(names)
        # A long name leaves room for the others.
        assert max(map(len, lines)) < 400
    shown = run("sessions", "--store", store)
    assert "finished: \\u202ea" in shown
