"""Exports of batches as data sets, and as rows for tables."""

import asyncio
import json
import re
import resource
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import (
    BatchError,
    BatchRun,
    Conversation,
    Session,
    Speaker,
    SpecError,
)
from duologue.nodes.testing import Line, Reply, ScriptedToolCall
from support.batches import NOW, batch_row, cell_row, store_batch
from support.cli_help import duologue, isolate
from support.fork_help import run, weather
from support.graphs import RolePlayForm
from support.results import StoredSession
from support.stores import CellRow
from support.tables import each_row, read_rows


def cell(number: int, result: StoredSession | None = None, **fields: Any) -> CellRow:
    """Return the row of a cell whose session has this result."""
    told: dict[str, Any] = {"session": f"s-{number}"}
    if result is not None and result.outcome is not None:
        ended = result.outcome
        told |= {
            "status": "finished",
            "reason": ended.reason,
            "complete": ended.complete,
            "rounds": ended.rounds,
            "messages": ended.messages,
            "calls": ended.total.calls,
        }
    return cell_row(number, **told | fields)


PAIR: dict[str, Any] = {
    "task": "Plan a garden.",
    "speakers": [
        {"name": "Head Cook", "tools": ["weather"]},
        {"name": "Ben", "private_opening": {"lines": ["You hate beans."]}},
    ],
    "end_chat": {"max_iterations": 1},
}
SCRIPT: list[Line] = [
    "",
    Reply(
        text="Let me see.",
        reasoning="A thought.",
        tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")],
    ),
    "Beans?",
    "Peas.",
]
"""A rejected draft, a tool call with a thought, and a message."""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}"


@pytest.fixture
def one(store: str) -> StoredSession:
    """Return the only session of a batch."""
    conversation = Conversation.model_validate(PAIR)
    result = run(conversation, SCRIPT, session="s-1", store=store)
    varied = {"task": "Plan a garden.", "labels.level": "easy \ud83d\u2028"}
    row = cell(1, result, trial=2, varied=varied, scores={"won": 1}, cost=0.5, seconds=2)
    store_batch(store, batch_row(), [row])
    return result


def rows_of(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().decode().split("\n")
    assert lines.pop() == ""
    return [json.loads(one) for one in lines]


KNOWN = {
    "batch": "b",
    "number": 1,
    "session": "s-1",
    "trial": 2,
    "task": "Plan a garden.",
    "labels.level": "easy \ud83d\u2028",
    "status": "finished",
    "reason": "max_iterations",
    "error": None,
    "complete": None,
    "rounds": 1,
    "messages": 2,
    "calls": 4,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost": 0.5,
    "seconds": 2.0,
    "score.won": 1.0,
}


def test_rows_hold_what_is_known_of_each_cell(one: StoredSession, store: str) -> None:
    assert BatchRun("b", store=store).rows() == [{**KNOWN, "updated_at": NOW}]
    with pytest.raises(BatchError, match="There is no batch 'c' in memory:"):
        BatchRun("c", store=store).rows()


def test_no_column_of_a_row_is_called_like_what_may_vary() -> None:
    own = KNOWN.keys() - {"task"}
    for form in (Conversation, Speaker, RolePlayForm):
        assert own.isdisjoint(form.model_fields), form


def test_a_session_is_a_line_with_all_that_was_said(
    one: StoredSession, store: str, tmp_path: Path
) -> None:
    BatchRun("b", store=store).export(tmp_path / "f.jsonl")
    (found,) = rows_of(tmp_path / "f.jsonl")
    assert found == {
        **KNOWN,
        "models": ["ScriptedChatModel"],
        "trajectory": read_rows(__file__, "trajectory"),
    }
    BatchRun("b", store=store).export(tmp_path / "f.jsonl", speaker="Ben")
    (found,) = rows_of(tmp_path / "f.jsonl")
    assert (found["speaker"], found["trajectory"]) == ("Ben", one.trajectory("Ben"))


def test_a_speakers_example_is_its_view_in_the_form_of_the_trainer(
    one: StoredSession, store: str, tmp_path: Path
) -> None:
    beside = {**KNOWN, "models": ["ScriptedChatModel"]}
    BatchRun("b", store=store).export(tmp_path / "o.jsonl", format="openai")
    cook, ben = rows_of(tmp_path / "o.jsonl")
    system = (
        "You are {}, in a conversation with {}. Write only your own next message.\n\nThe task: {}"
    )
    names = ("Head Cook", "Ben")
    of_cook, of_ben = (system.format(*two, "Plan a garden.") for two in (names, names[::-1]))
    assert cook == {
        "messages": [
            {"role": "system", "content": of_cook},
            *read_rows(__file__, "openai_example"),
        ],
        "metadata": {**beside, "speaker": "Head Cook"},
    }
    assert ben == {
        "messages": [
            {"role": "system", "content": of_ben},
            {"role": "user", "content": "You hate beans.\n\nLet me see.\n\nBeans?"},
            {"role": "assistant", "name": "Ben", "content": "Peas."},
        ],
        "metadata": {**beside, "speaker": "Ben"},
    }
    BatchRun("b", store=store).export(tmp_path / "s.jsonl", format="sharegpt", speaker="Head Cook")
    (cook,) = rows_of(tmp_path / "s.jsonl")
    assert cook == {
        "conversations": [
            {"from": "system", "value": of_cook},
            *read_rows(__file__, "sharegpt_example"),
        ],
        "metadata": {**beside, "speaker": "Head Cook"},
    }
    BatchRun("b", store=store).export(tmp_path / "s.jsonl", format="sharegpt", metadata=False)
    assert [row.keys() for row in rows_of(tmp_path / "s.jsonl")] == [{"conversations"}] * 2


def test_one_session_is_exported_as_examples_too(
    one: StoredSession, store: str, tmp_path: Path
) -> None:
    BatchRun("b", store=store).export(tmp_path / "o.jsonl", format="openai", metadata=False)
    text = Session("s-1", store=store).export(format="openai")
    found = [json.loads(one) for one in text.splitlines()]
    assert [{"messages": one["messages"]} for one in found] == rows_of(tmp_path / "o.jsonl")
    told = {"session": "s-1", "reason": "max_iterations", "complete": None}
    assert [one["metadata"] for one in found] == [
        {**told, "models": ["ScriptedChatModel"], "speaker": name} for name in ("Head Cook", "Ben")
    ]
    found = [json.loads(Session("s-1", store=store).export(format="sharegpt", speaker="Ben"))]
    assert [one["metadata"]["speaker"] for one in found] == ["Ben"]


def test_an_example_tells_of_the_tools_where_all_are_known(one: StoredSession, store: str) -> None:
    def told(form: Any, **registered: Any) -> list[Any]:  # noqa: ANN401
        text = Session("s-1", store=store).export(format=form, **registered)
        return [json.loads(line).get("tools") for line in text.splitlines()]

    assert told("openai") == [None, None]
    about_day = {"properties": {"day": {"type": "string"}}, "required": ["day"], "type": "object"}
    known = {"name": "weather", "description": "Tell the weather.", "parameters": about_day}
    assert told("openai", tools=[weather]) == [[{"type": "function", "function": known}], None]
    of_cook, of_ben = told("sharegpt", tools=[weather])
    assert (json.loads(of_cook), of_ben) == ([known], None)


# Choice of sessions


@pytest.fixture(scope="module")
def many() -> str:
    """Return a store with six unordered cells; one session is deleted, one has failed."""
    store = "memory:many-cells-to-export"
    conversation = Conversation.model_validate(PAIR)
    result = run(conversation, SCRIPT, session="s-1", store=store)
    for number in (2, 3, 4, 5):
        run(conversation, SCRIPT, session=f"s-{number}", store=store)
    Session("s-5", store=store).delete()
    rows = [
        cell(4, result, trial=2, scores={"won": 0.5, "fair play": 1}),
        cell(7, status="failed", error="No key."),
        cell(1, result, scores={"won": 1, "fair play": -0.25}),
        cell(3, result, reason="done_token", scores={"won": 0}),
        cell(5, result),
        cell(2, result, trial=2),
    ]
    store_batch(store, batch_row(), rows)
    return store


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("asked", "numbers", "left_out"),
    [
        *read_rows(__file__, "sessions_are_chosen_and_the_others_counted"),
        ({"status": None}, [1, 2, 3, 4], {"deleted": 2}),
    ],
)
def test_sessions_are_chosen_and_the_others_counted(
    many: str, tmp_path: Path, asked: dict[str, Any], numbers: list[int], left_out: dict[str, int]
) -> None:
    told = BatchRun("b", store=many).export(tmp_path / "f", **asked)
    assert [row["number"] for row in rows_of(tmp_path / "f")] == numbers
    assert told.left_out == left_out
    assert (told.sessions, told.rows) == (len(numbers), len(numbers))


def test_a_speaker_that_only_some_sessions_have_is_taken_from_these(
    store: str, tmp_path: Path
) -> None:
    """An export of a speaker uses the sessions with that name, because names may vary."""
    rows = []
    for number, names in enumerate((("Ann", "Ben"), ("Ben", "Cat"), ("Cat", "Ann")), start=1):
        speakers = [{"name": name} for name in names]
        conversation = Conversation.model_validate({**PAIR, "speakers": speakers})
        lines = ["Beans?", "Peas."]
        rows.append(cell(number, run(conversation, lines, session=f"s-{number}", store=store)))
    store_batch(store, batch_row(), rows)
    told = BatchRun("b", store=store).export(tmp_path / "f", format="openai", speaker="Cat")
    found = [row["metadata"] for row in rows_of(tmp_path / "f")]
    assert [(one["number"], one["speaker"]) for one in found] == [(2, "Cat"), (3, "Cat")]
    assert (told.sessions, told.left_out) == (2, {"speaker": 1})


def test_a_manifest_says_what_is_in_the_file_and_the_same_batch_gives_the_same_bytes(
    many: str, tmp_path: Path
) -> None:
    texts = []
    for name in ("f", "g"):
        told = BatchRun("b", store=many).export(tmp_path / name, format="openai", score="won>=0.5")
        texts.append((tmp_path / name).read_bytes())
        written = json.loads((tmp_path / f"{name}.manifest.json").read_text())
        assert written == told.model_dump(mode="json")
        assert told.sha256 == sha256(texts[-1]).hexdigest()
        assert told.bytes == len(texts[-1])
    assert texts[0] == texts[1]
    assert told.model_dump(
        exclude={"sha256", "bytes", "written_at", "spec_version", "duologue"}
    ) == {
        "file": "g",
        "format": "openai",
        "version": 1,
        "batch": "b",
        "speaker": None,
        "filters": {
            "status": "finished",
            "reason": [],
            "score": [{"name": "won", "sign": ">=", "value": 0.5}],
            "trial": None,
        },
        "sessions": 2,
        "rows": 4,
        "left_out": {"score": 3, "status": 1},
        "further_files": (),
        "models": ("ScriptedChatModel",),
    }


# Incomplete data


def files_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@each_row("what_is_wrong_is_one_sentence_and_the_old_file_stays", "asked", "words")
def test_what_is_wrong_is_one_sentence_and_the_old_file_stays(
    many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    BatchRun("b", store=many).export("f", score="won=1")
    before = files_in(tmp_path)
    options = {"batch": "b", "output": "f", **asked}
    run = BatchRun(options.pop("batch"), store=many)
    with pytest.raises((SpecError, BatchError)) as caught:
        run.export(**options)
    assert words in str(caught.value)
    assert files_in(tmp_path) == before


READ = "duologue.graphs.batch.export.read_session"


async def test_an_export_that_is_broken_off_leaves_the_old_file(
    many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await BatchRun("b", store=many).aexport(tmp_path / "f", trial=2)
    before = files_in(tmp_path)
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def damaged(*_: object) -> None:
        raise OSError("No space left")

    with monkeypatch.context() as patch:
        patch.setattr(READ, never)
        task = asyncio.create_task(BatchRun("b", store=many).aexport(tmp_path / "f"))
        await begun.wait()
        assert len(files_in(tmp_path)) == 4
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert files_in(tmp_path) == before
        patch.setattr(READ, damaged)
        with pytest.raises(OSError, match="No space left"):
            await BatchRun("b", store=many).aexport(tmp_path / "f")
    assert files_in(tmp_path) == before


def test_an_export_onto_a_full_disk_is_one_sentence_and_the_old_file_stays(
    many: str, tmp_path: Path
) -> None:
    BatchRun("b", store=many).export(tmp_path / "f", score="won=1")
    before = files_in(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["f"]) + 100, limits[1]))
    try:
        with pytest.raises(SpecError, match="f: can't be written: File too large"):
            BatchRun("b", store=many).export(tmp_path / "f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files_in(tmp_path) == before


def test_a_link_stays_a_link_and_a_file_has_the_usual_rights(many: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "f")
    BatchRun("b", store=many).export(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "real" / "f").stat().st_mode == plain.stat().st_mode
    assert len(rows_of(tmp_path / "link")) == 4


def test_the_command_writes_a_batch(
    many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path, DUOLOGUE_STORE=many)
    asked = ("export", "--batch", "b", "--output")
    ran = duologue(*asked, "f.jsonl", "--reason", "max_iterations", "--score", "won>=0.5")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout == "f.jsonl: 2 rows of 2 sessions\nLeft out: score 2, reason 1, status 1\n"
    assert [row["number"] for row in rows_of(tmp_path / "f.jsonl")] == [1, 4]
    more = ("--format", "openai", "--as", "Ben", "--status", "any", "--trial", "1")
    assert duologue(*asked, "g", *more, "--no-metadata").exit_code == 0
    assert [row.keys() for row in rows_of(tmp_path / "g")] == [{"messages"}] * 2
    ran = duologue("export", "s-1", "--format", "openai", "--as", "Ben")
    assert json.loads(ran.stdout)["metadata"]["speaker"] == "Ben"
    ran = duologue("export", "s-1", "--format", "sharegpt", "--as", "Ben", "--no-metadata")
    assert json.loads(ran.stdout).keys() == {"conversations"}


@each_row("what_the_command_refuses_is_one_sentence", "arguments", "words")
def test_what_the_command_refuses_is_one_sentence(
    many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], words: str
) -> None:
    isolate(monkeypatch, tmp_path, DUOLOGUE_STORE=many)
    ran = duologue("export", *arguments)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert words in ran.stderr
    assert files_in(tmp_path) == {}


def test_a_log_of_inspect_needs_its_package_and_contains_all_speakers(
    many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, output = BatchRun("b", store=many), tmp_path / "f.eval"
    words = "speaker: the format 'inspect' contains all speakers; leave it out"
    with pytest.raises(SpecError, match=words):
        batch.export(output, format="inspect", speaker="Ben")
    with pytest.raises(SpecError, match=r"f: Inspect can't read this name; end it in \.eval$"):
        batch.export(tmp_path / "f", format="inspect")
    asked = ("export", "s-1", "--format", "inspect", "--output", "f.txt", "--store", many)
    assert (
        "f.txt: Inspect can't read this name; end it in .eval or .json" in duologue(*asked).stderr
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = "format: 'inspect' needs more packages; run `pip install '.[inspect]'`"
    with pytest.raises(SpecError, match=re.escape(words)):
        batch.export(output, format="inspect")
    with pytest.raises(SpecError, match=re.escape(words)):
        Session("s-1", store=many).export("inspect")
    assert not output.exists()
