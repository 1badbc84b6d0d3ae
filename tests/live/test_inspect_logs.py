"""Logs that the real Inspect reads, tabulates, scores and packs."""

import gc
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage

from duologue import BatchRun, Session, chat, converse, run_batch
from duologue.graphs.scenarios import run_suite
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.cli_help import duologue
from support.files import PDF, PNG
from support.results import outcome_of
from support.tables import read_rows

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

# The import of Inspect takes seconds, which a run of the other tests saves.
pytestmark = [
    pytest.mark.clients,
    # Inspect leaves its in-memory streams to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

MODEL = "ScriptedChatModel"
TALK: dict[str, Any] = read_rows(__file__, "talk")
BATCH: dict[str, Any] = {
    "conversation": TALK,
    "vary": {"speakers.Ben.system_prompt": ["You count.", "You count well."]},
    "trials": 2,
}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
SUM = ScriptedToolCall(name="calculator", args={"expression": "2 * 7"}, id="sum")


def speak(prompt: Prompt) -> Line:
    """Ask, call the calculator and report its result, or decide that the criterion is met."""
    if prompt[-1]["role"] == "tool":
        return "Fourteen."
    if prompt[0]["content"].startswith("You ask."):
        return "Multiply."
    if prompt[0]["content"].startswith("You count"):
        return Reply(tool_calls=[SUM], reasoning="Two times seven.")
    return {"criterion_1": "met"}


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """Collect the streams that Inspect has not closed while their warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/sessions.db"


def run(store: str, batch: dict[str, Any] = BATCH) -> BatchRun:
    run_batch(batch, name="days", model=ScriptedChatModel(speak), store=store)
    return BatchRun("days", store=store)


def samples_of(log: "EvalLog") -> "list[EvalSample]":
    assert log.samples is not None
    return log.samples


def read(path: Path) -> "EvalLog":
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(path), resolve_attachments=True)


def test_a_batch_is_a_log_with_samples_events_and_usage(store: str, tmp_path: Path) -> None:
    batch = run(store, {**BATCH, "vary": {**BATCH["vary"], "labels.answer": ["14"]}})
    manifest = batch.export(tmp_path / "days.eval", format="inspect")
    assert (manifest.sessions, manifest.rows, manifest.further_files) == (4, 4, ())
    log = read(tmp_path / "days.eval")
    samples = samples_of(log)
    assert [(one.id, one.epoch) for one in samples] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert (log.status, log.eval.task, log.eval.model) == ("success", "days", "none/none")
    assert (log.eval.dataset.sample_ids, log.eval.config.epochs) == ([1, 2], 2)
    rows = {row["session"]: row for row in batch.rows()}
    for one in samples:
        row = rows[one.metadata["session"]]
        assert {**one.metadata} == {name: row[name] for name in one.metadata}
        assert (one.input, one.target) == (TALK["task"], "14")
        check_sample(one, Session(row["session"], store=store))


def check_sample(sample: "EvalSample", session: Session) -> None:
    """Compare a sample with its session."""
    from inspect_ai.event import InfoEvent, ModelEvent, SpanBeginEvent, ToolEvent, event_tree

    result = session.state()
    told = [(one["role"], one["content"] or "") for one in result.trajectory()]
    assert [(one.role, one.text) for one in sample.messages] == told
    assert sample.messages[1].metadata == {"speaker": "Head_Cook"}
    used = outcome_of(result).usage[MODEL]
    found = sample.model_usage[MODEL]
    assert (found.input_tokens, found.output_tokens) == (used.input_tokens, used.output_tokens)
    assert found.total_cost == used.cost
    assert used.cost is not None
    calls = [one for one in sample.events if isinstance(one, ModelEvent)]
    assert len(calls) == used.calls == 7
    assert Counter(one.role for one in calls) == {"Head Cook": 2, "Ben": 4, "Judge": 1}
    assert [one.text for one in calls[2].input] == [
        "You count.\n\nThe task: Find out how many days two weeks have."
        if sample.id == 1
        else "You count well.\n\nThe task: Find out how many days two weeks have.",
        "Multiply.",
        "",
        "14",
    ]
    (tool, _) = (one for one in sample.events if isinstance(one, ToolEvent))
    assert (tool.function, tool.arguments, tool.result) == ("calculator", SUM.args, "14")
    spans = [one.name for one in sample.events if isinstance(one, SpanBeginEvent)]
    assert spans == ["Head Cook", "Ben", "Head Cook", "Ben", "Judge"]
    assert len(event_tree(sample.events)) == 5 + 2  # the spans, why, and the limit
    facts = {one.source: one.data for one in sample.events if isinstance(one, InfoEvent)}
    assert facts["verdict"] == outcome_of(result).verdicts[0].model_dump(mode="json")
    steps = [one.model_dump(mode="json") for one in result.why()]
    assert facts["why"] == {"outcome": str(result.outcome), "steps": steps}
    assert sample.limit is not None
    assert (sample.limit.type, sample.limit.limit) == ("message", 4)


def test_inspect_tabulates_scores_and_packs_the_log(store: str, tmp_path: Path) -> None:
    from inspect_ai import score
    from inspect_ai.analysis import samples_df
    from inspect_ai.scorer import includes

    folder = tmp_path / "logs"
    folder.mkdir()
    run(store, {**BATCH, "score": ["complete"]}).export(folder / "days.eval", format="inspect")
    table = samples_df(str(folder))
    assert list(table["metadata_reason"]) == ["max_messages"] * 4
    assert list(table["score_complete"]) == [1] * 4
    assert list(table["limit"]) == ["message"] * 4
    log = read(folder / "days.eval")
    assert log.results is not None
    assert [one.metrics["mean"].value for one in log.results.scores] == [1]
    for sample in samples_of(log):
        sample.target = "Fourteen"
    scored = samples_of(score(log, includes(), display="none"))
    assert [(one.scores or {})["includes"].value for one in scored] == ["C"] * 4
    assert all("complete" in (one.scores or {}) for one in scored)
    command = [str(Path(sys.executable).with_name("inspect")), "view", "bundle"]
    packed = tmp_path / "packed"
    arguments = ["--log-dir", str(folder), "--output-dir", str(packed)]
    subprocess.run([*command, *arguments], check=True, capture_output=True)
    assert (packed / "index.html").is_file()
    assert (packed / "logs" / "days.eval").read_bytes() == (folder / "days.eval").read_bytes()


def test_a_failed_session_is_a_sample_with_an_error(store: str, tmp_path: Path) -> None:
    from inspect_ai.event import ModelEvent

    def fail(prompt: Prompt) -> Line:
        if prompt[0]["content"].startswith("You count well.") and prompt[-1]["role"] == "tool":
            raise ValueError("the model is tired")
        return speak(prompt)

    run_batch(BATCH, name="days", model=ScriptedChatModel(fail), store=store)
    batch = BatchRun("days", store=store)
    manifest = batch.export(tmp_path / "days.eval", format="inspect", status=None)
    assert manifest.sessions == 4
    log = read(tmp_path / "days.eval")
    errors = {one.id: one.error for one in samples_of(log)}
    assert errors[1] is None
    assert errors[2] is not None
    assert "the model is tired" in errors[2].message
    assert log.results is not None
    assert (log.results.total_samples, log.results.completed_samples) == (4, 2)
    failed = next(one for one in samples_of(log) if one.error)
    assert failed.events[-1].event == "error"
    (used,) = failed.model_usage.values()
    assert used.total_tokens == sum(
        one.output.usage.total_tokens
        for one in failed.events
        if isinstance(one, ModelEvent) and one.output.usage
    )
    assert used.total_tokens


def test_a_large_batch_is_several_files(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duologue.graphs.batch import export_inspect

    monkeypatch.setattr(export_inspect, "MOST_SAMPLES", 3)
    prompts = ["You count.", "You count well.", "You count fast."]
    batch = run(store, {**BATCH, "vary": {"speakers.Ben.system_prompt": prompts}})
    manifest = batch.export(tmp_path / "days.eval", format="inspect")
    (second,) = manifest.further_files
    assert (manifest.file, second.file, manifest.sessions) == ("days.eval", "days-2.eval", 6)
    content = (tmp_path / second.file).read_bytes()
    assert (second.bytes, second.sha256) == (len(content), sha256(content).hexdigest())
    first, rest = read(tmp_path / "days.eval"), read(tmp_path / "days-2.eval")
    # The trials of a combination stay together.
    assert [sorted(str(one.id) for one in samples_of(log)) for log in (first, rest)] == [
        ["1", "1", "2", "2"],
        ["3", "3"],
    ]
    assert first.eval.run_id == rest.eval.run_id
    assert first.eval.eval_id != rest.eval.eval_id
    stored = json.loads((tmp_path / "days.eval.manifest.json").read_text())
    assert stored["further_files"] == [second.model_dump()]


def test_a_session_is_a_log_of_one_sample(store: str, tmp_path: Path) -> None:
    result = converse(TALK, model=ScriptedChatModel(speak), session="one", store=store)
    (tmp_path / "one.json").write_text(result.session.export("inspect"))
    asked = duologue(
        *("export", "one", "--format", "inspect", "--store", store),
        *("--output", str(tmp_path / "one.eval")),
    )
    assert asked.exit_code == 0, asked.stderr
    for name in ("one.json", "one.eval"):
        (sample,) = samples_of(read(tmp_path / name))
        assert (sample.id, sample.epoch, sample.output.completion) == ("one", 1, "Fourteen.")
        check_sample(sample.model_copy(update={"id": 1}), result.session)


def test_files_in_messages_are_in_the_log(tmp_path: Path) -> None:
    model = ScriptedChatModel(["I see."])
    sound = b"RIFF\0\0\0\0WAVE" + bytes(100)
    talk = converse(chat(), message=["Look", PNG, PDF, sound], model=model, store="memory:files")
    path = tmp_path / "files.json"
    path.write_text(talk.session.export("inspect"))
    (sample,) = samples_of(read(path))
    content = sample.messages[0].content
    assert not isinstance(content, str)
    assert [one.type for one in content] == ["text", "image", "document", "audio"]
    image = content[1]
    assert image.type == "image"
    assert image.image.startswith("data:image/png;base64,")


def test_texts_that_cannot_be_encoded_are_replaced() -> None:
    from inspect_ai.log import EvalLog

    from duologue.graphs.session.export_inspect import make_log, make_sample, write_log
    from duologue.graphs.session.inspect_events import SampleFacts

    result = converse(TALK, model=ScriptedChatModel(speak), store="memory:").session.state()
    odd = "easy \ud83d"
    facts = SampleFacts(1, NOW, target=odd, metadata={"level": [odd]}, error=odd)
    data = write_log(make_log("odd", NOW, [make_sample(result, facts)]), "json")
    (sample,) = samples_of(EvalLog.model_validate_json(data))
    assert (sample.target, sample.metadata["level"]) == ("easy ?", ["easy ?"])
    assert sample.error is not None
    assert sample.error.message == "easy ?"


def test_a_suite_of_simulations_is_a_log(store: str, tmp_path: Path) -> None:
    def play_user(prompt: Prompt) -> Line:
        is_over = any(one["role"] == "assistant" for one in prompt)
        return "###STOP###" if is_over else "Please refund order 7."

    def refund(messages: Sequence[BaseMessage]) -> str:
        return "Order 7 is refunded."

    suite = {"scenarios": {"refund": {"goal": "You want a refund."}}}
    model = ScriptedChatModel(play_user)
    run_suite(suite, refund, name="shop", model=model, store=store, trials=2)
    BatchRun("shop", store=store).export(tmp_path / "shop.eval", format="inspect")
    first, second = samples_of(read(tmp_path / "shop.eval"))
    assert (first.id, first.epoch, second.id, second.epoch) == (1, 1, 1, 2)
    assert first.target == first.metadata["labels.scenario"] == "refund"
    assert [one.text for one in first.messages[-3:-1]] == [
        "Please refund order 7.",
        "Order 7 is refunded.",
    ]
