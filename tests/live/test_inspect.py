"""Conversations in evaluations of the real Inspect."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from duologue import Session
from duologue.nodes.testing import ScriptedChatModel

from .conftest import page_blocks

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessage, ModelOutput

# The import of Inspect takes seconds, which a run of the other tests saves.
pytestmark = [
    pytest.mark.clients,
    # Inspect leaves its in-memory streams and temporary files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """Collect the streams that Inspect has not closed while their warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture
def page() -> dict[str, Any]:
    """Return the names that the page's program defines."""
    (code,) = [code for code in page_blocks("py", "python") if "agent_bridge" in code]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  # the page's own program
    return names


def answer(input: "list[ChatMessage]", *_: object) -> "ModelOutput":  # noqa: A002  # Inspect's name
    """Say DEAL as the second message of the seller; use 10 tokens."""
    from inspect_ai.model import ModelOutput, ModelUsage

    is_seller = "You sell a boat" in input[0].text
    said = sum(message.role == "assistant" for message in input)
    text = ("DEAL" if said else "I ask 900.") if is_seller else "I offer 700."
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
    return output


async def answer_slowly(input: "list[ChatMessage]", *_: object) -> "ModelOutput":  # noqa: A002
    """Answer the third call only after a long time."""
    if sum(message.role != "system" for message in input) > 2:
        await asyncio.sleep(600)
    return answer(input)


def run(
    task: "Task", folder: Path, reply: Callable[..., Any] = answer, **options: Any
) -> "list[EvalSample]":
    """Evaluate a task with a scripted model for each role, and return its samples."""
    from inspect_ai import eval as evaluate
    from inspect_ai.model import get_model

    model, buyer = (
        get_model("mockllm/model", custom_outputs=reply, memoize=False) for _ in range(2)
    )
    (log,) = evaluate(
        task,
        model=model,
        model_roles={"buyer": buyer},
        display="none",
        log_dir=str(folder),
        **options,
    )
    assert log.status == "success", log.error
    assert log.samples is not None
    return log.samples


def test_a_solver_runs_a_conversation_with_roles_and_epochs(
    page: dict[str, Any], tmp_path: Path
) -> None:
    samples = run(page["boat"], tmp_path, epochs=2)
    assert [one.epoch for one in samples] == [1, 2]
    for one in samples:
        said = [(message.role, message.text) for message in one.messages]
        assert said == [
            ("user", "Agree on a price."),
            ("assistant", "I ask 900."),
            ("assistant", "I offer 700."),
            ("assistant", "DEAL"),
        ]
        assert one.scores is not None
        assert one.scores["includes"].value == "C"
        assert one.role_usage["buyer"].total_tokens == 10
        assert one.model_usage["mockllm/model"].total_tokens == 30
        assert one.limit is None


@pytest.mark.parametrize(
    ("limit", "reply", "kind"),
    [
        ({"token_limit": 15}, answer, "token"),
        ({"message_limit": 3}, answer, "message"),
        ({"time_limit": 10}, answer_slowly, "time"),
    ],
)
def test_a_limit_of_inspect_stops_a_conversation_that_resumes(
    page: dict[str, Any],
    tmp_path: Path,
    limit: dict[str, int],
    reply: Callable[..., Any],
    kind: str,
) -> None:
    store = str(tmp_path / "sessions.db")
    page["boat"].solver = page["talk"](store)
    (sample,) = run(page["boat"], tmp_path / "logs", reply, **limit)
    assert sample.error is None
    assert sample.limit is not None
    assert sample.limit.type == kind
    assert sample.uuid is not None
    session = Session(sample.uuid, store=store)
    said = [text for _, text in session.state().transcript]
    assert said == ["I ask 900.", "I offer 700."][: len(said)]
    assert said
    model = ScriptedChatModel(lambda prompt: "DEAL")
    result = session.resume(model=model, models={"buyer": model})
    assert [text for _, text in result.transcript][: len(said)] == said
    assert result.stop_reason == "done_token"


def test_duologues_own_client_passes_a_limit_of_inspect(
    page: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    page["bridged"] = lambda name: name
    page["buyer"] = page["buyer"].replace(model="inspect/buyer")
    page["boat"].solver = page["talk"]()
    # The names of models are not registered, so duologue calls them with its own client.
    monkeypatch.setitem(page, "aconverse", _without_models(page["aconverse"]))
    (sample,) = run(page["boat"], tmp_path, token_limit=15)
    assert sample.error is None
    assert sample.limit is not None
    assert sample.limit.type == "token"


def _without_models(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, models: object, **options: Any) -> Any:  # noqa: ANN401
        return function(*arguments, **options)

    return call
