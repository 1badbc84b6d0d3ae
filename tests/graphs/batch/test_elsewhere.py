"""Batches in other processes: settings, packages, and earlier token usage."""

import sys
from pathlib import Path

import pytest

from duologue.graphs import SpecError, run_batch
from duologue.graphs.common.settings import environment_variables, load_settings
from duologue.nodes.testing import ScriptedChatModel

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
