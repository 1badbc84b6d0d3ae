"""Batches in other processes: settings, packages, and earlier token usage."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from duologue.graphs import Batch, SpecError, arun_batch, run_batch
from duologue.graphs.batch.batch_row import new_cell_row, read_usage_before
from duologue.graphs.batch.cells import Cells
from duologue.graphs.common.settings import environment_variables, load_settings
from duologue.nodes.testing import ScriptedChatModel
from support.stores import Store, open_store

BATCH = {
    "conversation": {
        "kind": "role_play",
        "assistant_role": "Gardener",
        "specify_task": False,
        "max_iterations": 1,
    },
    "vary": {"task": ["Plan a garden", "Plan a meal"], "user_role": ["Cook"]},
}


def model() -> ScriptedChatModel:
    return ScriptedChatModel(lambda prompt: "Water the beans.")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"memory:{tmp_path.name}") as opened:
        yield opened


def test_a_process_elsewhere_has_the_settings_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another process gets the settings without the file, and no key of an unrelated address."""
    for name in environment_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "of the environment")
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "1")
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:9/v1\nDUOLOGUE_MODEL=m\n")
    here, sent = load_settings(), environment_variables()
    assert (here.api_key, here.model, here.max_retries) == (None, "m", 1)
    monkeypatch.chdir(tmp_path.parent)
    for name, value in sent.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == here.model_dump()


def test_a_batch_that_ray_should_run_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        SpecError, match=r"^ray: needs more packages; run `pip install '\.\[ray\]'` or "
    ):
        run_batch(BATCH, name="b", model=model(), ray="auto", store=tmp_path / "sessions.db")


async def test_what_sessions_under_way_have_used_is_known_from_their_logs(
    store: Store,
) -> None:
    await arun_batch(BATCH, name="b", model=model(), store=store.url)
    used = await read_usage_before(store, "b")
    assert used.calls > 0
    assert used.input_tokens > 0
    for cell in Cells.of(Batch.model_validate(BATCH), "b"):
        # The row looks like this while its cell runs.
        async with store.lock_batch("b") as lease:
            await lease.put_cell(new_cell_row("b", cell))
    assert await read_usage_before(store, "b") == used
