"""People who answer in another process, after the first one has ended, on PostgreSQL."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duologue import Session, chat, list_sessions
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.children import Child

pytestmark = [pytest.mark.live, pytest.mark.process]

TOOLS = ("first", "second", "third")


def answer(prompt: Prompt) -> Line:
    """Call every tool once if asked to "Work"; then report the results."""
    if prompt[-1]["role"] == "tool":
        return " ".join(one["content"] for one in prompt if one["role"] == "tool")
    if "Work" not in prompt[-1]["content"]:
        return f"You said {prompt[-1]['content']}"
    made = [ScriptedToolCall(name=name, args={}, id=name) for name in TOOLS]
    return Reply(tool_calls=made)


Part = Callable[..., dict[str, Any]]
"""A function that runs a part of the session in a separate process."""


@pytest.fixture
def part(
    start_child: Callable[..., Child], postgres_url: str, tmp_path: Path
) -> Callable[[ScriptedServer], Part]:
    def of(server: ScriptedServer) -> Part:
        environment = {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "any",
            "DUOLOGUE_MODEL": "scripted",
        }

        def run(**order: Any) -> dict[str, Any]:
            child = start_child(
                session="talk", store=postgres_url, environment=environment, **order
            )
            return child.result()

        return run

    for name in TOOLS:
        (tmp_path / name).touch()
    return of


def said(found: dict[str, Any]) -> list[str]:
    return [
        one["content"]
        for one in found["messages"]
        if one["additional_kwargs"]["duologue"]["kind"] == "speech"
    ]


def test_a_question_is_listed_and_answered_in_another_process(
    part: Callable[[ScriptedServer], Part], postgres_url: str
) -> None:
    with ScriptedServer(answer) as server:
        run = part(server)
        asked = run(conversation=chat().model_dump(mode="json"))
        (question,) = asked["pending"]
        assert (asked["outcome"], question["because"]) == (None, "turn")
        (row,) = list_sessions(store=postgres_url)
        assert (row.session, row.status) == ("talk", "waiting")
        assert [one.id for one in Session("talk", store=postgres_url).state().pending] == [
            question["id"]
        ]
        assert run()["pending"] == [question]

        found = run(respond="Hello")
        assert said(found) == ["Hello", "You said Hello"]
        assert [row.status for row in list_sessions(store=postgres_url)] == ["waiting"]

        found = run(respond=" Exit")
        assert found["outcome"]["reasons"] == ["quit"]
        assert [row.status for row in list_sessions(store=postgres_url)] == ["finished"]
        assert "has ended and does not wait for an answer" in run(respond="Hello?")["error"]
    assert len(server.calls) == 1


def test_calls_that_wait_for_approval_run_once_when_it_comes_later(
    part: Callable[[ScriptedServer], Part], tmp_path: Path
) -> None:
    spec = chat("Work", tools=[*TOOLS], interrupt_on={"first": True})
    calls = tmp_path / "calls.txt"
    with ScriptedServer(answer) as server:
        run = part(server)
        asked = run(conversation=spec.model_dump(mode="json"))
        assert [one["name"] for one in asked["pending"][0]["action_requests"]] == ["first"]
        assert run()["pending"] == asked["pending"]
        assert not calls.exists()
        assert "decisions" in run(respond="perhaps")["error"]
        assert not calls.exists()

        found = run(respond={"decisions": [{"type": "approve"}]})
        done = "first is done. second is done. third is done."
        assert said(found)[-1] == done
        assert found["pending"][0]["heard"] == done
        again = run()
        assert again["pending"] == found["pending"]
        ran = [line.split()[0] for line in calls.read_text().splitlines()]
        assert sorted(ran) == [*TOOLS]
    assert len(server.calls) == 2
