"""Specs of older versions are upgraded step by step; sessions store the version of their spec."""

from typing import Any

import pytest
from pydantic import create_model

from duologue.graphs import Conversation, Session, SpecError, converse, load_conversation
from duologue.graphs.common.data import Versions
from duologue.graphs.conversation import conversation as stored
from duologue.graphs.conversation.fields import SPEC_VERSION
from duologue.graphs.session import dump
from duologue.nodes.testing import ScriptedChatModel
from support.spec_help import minimal


@pytest.fixture
def two_releases_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a release two versions later, in which the task was first a job, then a chore."""

    def first(data: dict[str, Any]) -> dict[str, Any]:
        return {"chore": data["job"]} | {k: v for k, v in data.items() if k != "job"}

    def second(data: dict[str, Any]) -> dict[str, Any]:
        return {"task": data["chore"]} | {k: v for k, v in data.items() if k != "chore"}

    later = create_model("Later", __base__=Conversation, version=(int, SPEC_VERSION + 2))
    monkeypatch.setattr(stored, "SPEC_VERSIONS", Versions(SPEC_VERSION, (first, second)))
    monkeypatch.setattr(stored, "Conversation", later)


@pytest.mark.usefixtures("two_releases_later")
def test_an_older_version_is_migrated_step_by_step() -> None:
    people = [{"name": "Ann"}, {"name": "Bob"}]
    for data in (
        {"version": SPEC_VERSION, "job": "Plan", "speakers": people},
        {"version": SPEC_VERSION + 1, "chore": "Plan", "speakers": people},
        {"version": SPEC_VERSION + 2, "task": "Plan", "speakers": people},
        {"task": "Plan", "speakers": people},
    ):
        found = load_conversation(data)
        assert found.task == "Plan"
        assert found.model_dump()["version"] == SPEC_VERSION + 2


def test_each_change_of_a_shape_has_its_step() -> None:
    assert stored.SPEC_VERSIONS.newest == SPEC_VERSION
    assert dump.DUMP_VERSIONS.newest == dump.DUMP_VERSION


@pytest.mark.parametrize("version", [1, stored.SPEC_VERSIONS.oldest - 1])
def test_a_version_of_a_development_version_is_refused(version: int) -> None:
    with pytest.raises(
        SpecError, match=f"version: {version} was written by a development version before 0.1.0"
    ):
        load_conversation(minimal(version=version))


def test_a_session_stores_the_version_it_was_written_in(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(script=["Hi.", "Ho."])
    conversation = load_conversation(minimal(end_chat={"max_iterations": 1}))
    converse(conversation, session="s", model=model, store="memory:versions")
    # When its shape changes later, the old shape must be distinguishable.
    seen: list[object] = []

    def step(data: dict[str, Any]) -> dict[str, Any]:
        seen.append(data["version"])
        return data

    later = create_model("Later", __base__=Conversation, version=(int, SPEC_VERSION + 1))
    monkeypatch.setattr(stored, "SPEC_VERSIONS", Versions(SPEC_VERSION, (step,)))
    monkeypatch.setattr(stored, "Conversation", later)
    assert Session("s", store="memory:versions").state().conversation.task == "Plan"
    assert set(seen) == {SPEC_VERSION}
