"""The sessions and the batch in the store of a release, and the use that a later release makes."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from duologue import (
    Batch,
    BatchRun,
    Conversation,
    Session,
    Speaker,
    chat,
    converse,
    list_sessions,
    load_session,
    run_batch,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall

TALK: Final = Conversation(
    "Dig.",
    [
        Speaker("Ann", private_opening={"lines": ["The soil is dry."]}, tools=["get_history"]),
        Speaker("Bob"),
    ],
    end_chat={"max_iterations": 2},
)
HISTORY: Final = ScriptedToolCall(name="get_history", args={"limit": 1}, id="call_1")
LINES: Final[list[Line]] = [Reply(tool_calls=[HISTORY]), "A1", "B1", "A2", "B2"]
BATCH: Final = {
    "conversation": {"task": "Dig.", "speakers": [{"name": "Ann"}, {"name": "Bob"}]},
    "vary": {"end_chat.max_iterations": [1]},
}


def write_store(folder: Path) -> None:
    """Write a store and a dump into a new folder."""
    folder.mkdir(parents=True)
    store = folder / "store.db"
    converse(TALK, session="ended", store=store, model=_model(*LINES))
    with pytest.raises(Exception, match="500"):
        converse(TALK, session="broken", store=store, model=_model(*LINES[:3], Reply(error=500)))
    converse(chat("Hello."), session="waiting", store=store, model=_model("Hi."))
    run_batch(Batch.model_validate(BATCH), name="batch", store=store, model=_model("A", "B"))
    dump = json.dumps(Session("ended", store=store).dump())
    (folder / "dump.json").write_text(dump, encoding="utf-8")


def use_store(folder: Path) -> None:
    """Read the store and the dump, and continue all their sessions and batches."""
    store = folder / "store.db"
    rows = {row.session: row.status for row in list_sessions(store=store)}
    assert rows.pop("ended") == "finished"
    assert rows.pop("broken") == "unfinished"
    assert rows.pop("waiting") == "waiting"
    assert set(rows.values()) == {"finished"}
    ended = Session("ended", store=store)
    assert ended.state().transcript == [("Ann", "A1"), ("Bob", "B1"), ("Ann", "A2"), ("Bob", "B2")]
    assert [message.text for message in ended.state().viewpoint("Ann")][1].startswith("The soil")
    assert "A1" in ended.export("markdown")
    fork = ended.fork(end_chat={"max_iterations": 3})
    assert len(fork.resume(model=_model("A3", "B3")).transcript) == 6
    broken = Session("broken", store=store).resume(model=_model("A2", "B2"))
    assert broken.transcript == ended.state().transcript
    answered = Session("waiting", store=store).answer("And you?", model=_model("Well."))
    assert answered.transcript[-1] == ("Assistant", "Well.")
    loaded = load_session(folder / "dump.json", into="loaded", store=store)
    assert loaded.state().messages == ended.state().messages
    more: dict[str, Any] = {**BATCH, "trials": 2}
    run_batch(Batch.model_validate(more), name="batch", store=store, model=_model("A", "B"))
    assert BatchRun("batch", store=store).status().finished == 2


def _model(*lines: Line) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*lines])
