"""R14: the prompt that a speaker's model received is rebuilt exactly from the stored session."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from duologue.graphs import Session, SessionError, SpecError, converse
from duologue.nodes.models.adapters.families import prompting_of
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from duologue.nodes.turn import prompt as prompting
from duologue.tools import Hook
from support.cli_help import DONE, FIRST, SHORT, duologue, isolate


@tool
def seeds() -> str:
    """Count the seeds."""
    return "7 seeds"


class Plan(BaseModel):
    beds: int


def pair(**ann: object) -> list[dict[str, object]]:
    return [{"name": "Ann"} | ann, {"name": "Bob"}]


def numbered() -> Callable[[Prompt], Line]:
    """Return a model's function whose replies all differ."""
    numbers = iter(range(1000))
    return lambda _: f"Bed {next(numbers)} is for herbs, and the next one is for roses."


TALKS: dict[str, dict[str, Any]] = {
    "plain": {"speakers": pair()},
    "three": {"speakers": [*pair(), {"name": "Cy"}]},
    "last": {"speakers": pair(context={"kind": "last", "limit": 4})},
    "tokens": {"speakers": pair(context={"kind": "tokens", "limit": 200})},
    "summary": {"speakers": pair(context={"kind": "summary", "limit": 250, "words": 20})},
    "moderated": {"speakers": pair(), "turn_order": {"kind": "moderator", "form": "word"}},
    "mended": {"speakers": pair(format={"kind": "lines", "lines": ["Plan:"]})},
    "opening": {
        "speakers": [{"name": "Ann", "task": "Dig."}, {"name": "Bob", "task": "Sow."}],
        "opening": {"answers": True},
    },
    "private": {"speakers": pair(private_opening={"lines": ["You are allergic to roses."]})},
    "tool": {"speakers": pair(tools=["seeds"], context={"kind": "tokens", "limit": 300})},
    "schema": {"speakers": pair(format={"kind": "schema", "name": "Plan", "form": "text"})},
    "hook": {"speakers": pair(hooks=["loud"])},
    "worded": {"speakers": pair(), "prompts": {"begin": "Go!", "participant": "Be {me}."}},
    "max rounds of tools": {"speakers": pair(tools=["seeds"]), "max_tool_rounds": 1},
}

REGISTERED: dict[str, Any] = {
    "tools": [seeds],
    "schemas": {"Plan": Plan},
    "hooks": {
        "loud": Hook(
            before_speaker=lambda turn: HumanMessage(turn.heard.upper()),
            after_speaker=lambda turn, reply: reply.model_copy(update={"content": "Yes!"}),
        )
    },
}


def shown(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


@pytest.mark.part(3)
@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize("speaker", ["Ann", "Bob"])
def test_it_is_what_the_model_was_sent(name: str, speaker: str) -> None:
    """R14: the prompt is exact, including context policy, cue, hooks and correction requests."""
    guards = {"same_replies": 0}
    end_chat = {"max_iterations": 5, "guards": guards}
    talk = {"task": "Plan a garden.", "end_chat": end_chat} | TALKS[name]
    model = ScriptedChatModel(script=numbered())
    session, store = f"{name} {speaker}".replace(" ", "-"), "memory:sent"
    converse(talk, session=session, store=store, model=model, **REGISTERED)
    prompt = Session(session, store=store).prompt(speaker, **REGISTERED)
    own = [shown(call.messages) for call in model.calls if call.messages[0] == prompt[0]]
    assert shown(prompt) == own[-1]
    assert len(own) >= 4


def test_a_model_that_calls_tools_by_a_schema_was_told_of_them() -> None:
    """R14: the prompt includes the description of tools that are called by a schema."""
    talk: dict[str, Any] = {
        "task": "Plan.",
        "speakers": pair(tools=["seeds"], tool_calling="schema"),
    }
    model = ScriptedChatModel(script=[{"tool": "seeds", "arguments": {}}, {"reply": "7."}, "Yes."])
    talk |= {"end_chat": {"max_iterations": 1}}
    converse(talk, session="schema", store="memory:sent", model=model, tools=[seeds])
    prompt = Session("schema", store="memory:sent").prompt("Ann", tools=[seeds])
    assert "Count the seeds." in prompt[0].text
    assert shown(prompt) == shown(model.calls[1].messages)


def test_what_is_registered_is_needed_only_where_the_prompt_tells_of_it() -> None:
    """R14: a registered object is only required if the prompt contains it."""
    talk: dict[str, Any] = {"task": "Plan.", "end_chat": {"max_iterations": 1}}
    for name in ("hook", "schema"):
        model = ScriptedChatModel(script=numbered())
        given = talk | TALKS[name]
        converse(given, session=f"r-{name}", store="memory:sent", model=model, **REGISTERED)
    assert Session("r-hook", store="memory:sent").prompt("Ann")
    with pytest.raises(SpecError, match="there is no schema 'Plan'"):
        Session("r-schema", store="memory:sent").prompt("Ann")


def test_it_is_the_prompt_of_its_time_whatever_came_after() -> None:
    """R14: a fork with other prompts shows the old ones until the speaker's next message."""
    talk = {"task": "Plan.", "speakers": pair(), "end_chat": {"max_iterations": 1}}
    first = ScriptedChatModel(script=["Roses.", "Lilies."])
    converse(talk, session="one", store="memory:sent", model=first)
    changes: dict[str, Any] = {
        "speakers": {"Ann": {"system_prompt": "Be new."}},
        "end_chat": {"max_iterations": 2},
    }
    Session("one", store="memory:sent").fork(into="two", **changes)
    assert shown(Session("two", store="memory:sent").prompt("Ann")) == shown(
        first.calls[0].messages
    )
    second = ScriptedChatModel(script=["Tulips.", "Ivy."])
    Session("two", store="memory:sent").resume(model=second)
    prompt = Session("two", store="memory:sent").prompt("Ann")
    assert shown(prompt) == shown(second.calls[0].messages)
    assert prompt[0].text.startswith("Be new.")


def test_the_embedded_model_was_sent_the_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: the prompt is the short one if the embedded model replied."""
    small = {"system_prompt": "You cook. {task}", "reminder": "What next?"}
    talk = {
        "task": "Cook.",
        "speakers": pair(small_model_prompt=small),
        "end_chat": {"max_iterations": 1},
    }
    model = ScriptedChatModel(script=["Soup.", "Good."])
    converse(talk, session="small", store="memory:sent", model=model)
    assert Session("small", store="memory:sent").prompt("Ann")[0].text.startswith("You are Ann,")
    asked: list[tuple[str | None, str | None]] = []

    def tiny(name: str | None, label: str | None) -> object:
        asked.append((name, label))
        return prompting_of("embedded", label)

    monkeypatch.setattr(prompting, "prompting_of", tiny)
    prompt = Session("small", store="memory:sent").prompt("Ann")
    assert shown(prompt) == [
        ("system", "You cook. Cook."),
        ("human", "Please begin.\n\nWhat next?"),
    ]
    assert asked == [(None, "ScriptedChatModel")]


def test_who_no_model_has_spoken_for_was_sent_nothing() -> None:
    """R14: a speaker without a model call has no prompt."""
    people = [{"name": "Ann", "replies": ["human"]}, {"name": "Bob"}]
    converse({"speakers": people}, session="none", store="memory:sent")
    with pytest.raises(SessionError, match="No model has spoken for 'Bob' in session 'none' yet"):
        Session("none", store="memory:sent").prompt("Bob")
    with pytest.raises(SpecError, match="no speaker in session 'none' is called 'Zoe'"):
        Session("none", store="memory:sent").prompt("Zoe")


def test_the_command_shows_it_with_roles_or_as_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R14: ``duologue show --as X --prompt`` prints the prompt with roles or as JSON."""
    isolate(monkeypatch, tmp_path)
    with ScriptedServer([FIRST, "Solution: Dug.\nNext request.", DONE]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert duologue(*SHORT).exit_code == 0
    sent_last = [one.body["messages"] for one in server.calls][-1]
    ran = duologue("show", "g", "--as", "Owner", "--prompt", "--json")
    lines = [json.loads(one) for one in ran.stdout.splitlines()]
    bare = [{name: one[name] for name in ("role", "content")} for one in lines]
    assert bare == [{name: one[name] for name in ("role", "content")} for one in sent_last]
    plain = duologue("show", "g", "--as", "Owner", "--prompt").stdout
    for message in sent_last:
        assert message["role"] in plain
        assert all(one.strip() in plain for one in message["content"].splitlines())
    refused = duologue("show", "g", "--prompt")
    assert refused.exit_code == 2
    assert "--as" in refused.stderr


def test_between_two_what_the_conversation_says_is_told_from_what_the_other_says() -> None:
    """R14: between two speakers, prompts label the moderator's messages; views do not."""
    talk = {
        "task": "Plan.",
        "speakers": pair(private_opening={"lines": ["You hate roses."]}),
        "opening": {"first_speaker": "Bob"},
        "turn_order": {"kind": "function", "name": "other"},
        "end_chat": {"max_iterations": 2},
    }

    def other(said: Any, names: Any) -> str:  # noqa: ANN401
        return "Bob" if not said or said[-1].name == "Ann" else "Ann"

    model = ScriptedChatModel(script=["Roses?", "No.", "Ivy?", "Yes."])
    converse(talk, session="pair", store="memory:sent", model=model, orders={"other": other})
    sent_to = {
        number: [text for _, text in shown(one.messages)][1:]
        for number, one in enumerate(model.calls)
    }
    assert sent_to[0] == ["Please begin."]
    assert sent_to[1] == [
        "Moderator: You hate roses.\n\nRoses?\n\nModerator: Ann, it is your turn."
    ]
    assert sent_to[2][-1] == "No.\n\nModerator: Bob, it is your turn."
    view = Session("pair", store="memory:sent").state().viewpoint("Ann")
    assert "Moderator" not in str(shown(view))
