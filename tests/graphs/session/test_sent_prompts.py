"""R14: the prompt that a speaker's model received is rebuilt exactly from the stored session."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from duologue import (
    Conversation,
    Hook,
    Session,
    SessionError,
    SpecError,
    converse,
    load_conversation,
    role_play,
)
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel, ScriptExhaustedError
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import DONE, FIRST, SHORT, duologue, isolate
from support.graphs import forms_by_kind
from support.stores import store_address
from support.tables import read_rows


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


TALKS: dict[str, dict[str, Any]] = read_rows(__file__, "sent")

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


class Embedded(ScriptedChatModel):
    """A scripted model with the name of the embedded one."""

    model_name: str = "SmolLM2-135M-Instruct.Q4_1"


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


@pytest.mark.parametrize("field", [{"model": "embedded"}, {}], ids=["by name", "by default"])
def test_the_embedded_model_was_sent_the_brief(field: dict[str, str], store: str) -> None:
    """R14: the prompt is the short one if the embedded model replied."""
    small = {"system_prompt": "You cook. {task}", "reminder": "What next?"}
    end_chat = {"max_iterations": 1}
    talk = {"task": "Cook.", "speakers": pair(small_model_prompt=small), "end_chat": end_chat}
    model: Any = ScriptedChatModel(script=["Soup.", "Good."])
    usual = converse(talk, store=store, model=model).session.prompt("Ann")
    assert usual[0].text.startswith("You are Ann,")
    model = Embedded(script=["Soup.", "Good."])
    result = converse(talk | field, store=store, model=model, models={"embedded": model})
    assert shown(result.session.prompt("Ann")) == [
        ("system", "You cook. Cook."),
        ("human", "Please begin.\n\nWhat next?"),
    ]


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


# R14: a session keeps the prompts that it began with, even if a new release has others

SOURCES: dict[str, dict[str, Any]] = read_rows(__file__, "kinds_of_conversations")
"""The smallest valid input of each kind."""

CHANGES: dict[str, dict[str, Any]] = read_rows(__file__, "changed_fields")
"""Fields that must equal the session's if they are set."""

GARDEN = {"kind": "role_play", **SOURCES["role_play"]}


def made(kind: str, **fields: object) -> Conversation:
    return load_conversation({**SOURCES[kind], "kind": kind, **fields})


def earlier(conversation: Conversation) -> Conversation:
    """Return the conversation as another release would have completed it."""
    data = conversation.stored()
    for speaker in data["speakers"]:
        if "system_prompt" in speaker:
            speaker["system_prompt"] = f"Earlier. {speaker['system_prompt']}"
        if "small_model_prompt" in speaker:
            speaker["small_model_prompt"] = {"system_prompt": "Earlier.", "reminder": "Earlier."}
        for name in speaker.get("prefixes", {}):
            speaker["prefixes"][name] = "Earlier: "
        for reply in speaker.get("replies", []):
            if "text" in reply and not reply.get("once"):
                reply["text"] = "Earlier."
    if "first_line" in data.get("opening", {}):
        data["opening"]["first_line"] = "Earlier."
    return load_conversation(data)


def begun(store: str, conversation: Conversation, session: str = "g") -> None:
    """Create a session that fails at its second call."""
    model = ScriptedChatModel(script=["Instruction: Dig.\nInput: None"])
    with pytest.raises(ScriptExhaustedError):
        converse(conversation, session=session, store=store, model=model, answer=lambda _: "Go on.")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


def test_there_is_an_example_of_every_kind() -> None:
    assert SOURCES.keys() == CHANGES.keys() == forms_by_kind().keys()


def has_difference(begun: Conversation, given: Conversation) -> bool:
    """Return whether a session that began with a conversation refuses to go on with another."""
    options: dict[str, Any] = {"session": "s", "store": f"memory:{uuid4().hex}"}
    with suppress(ScriptExhaustedError):
        converse(begun, model=ScriptedChatModel(script=[]), **options)
    try:
        with suppress(ScriptExhaustedError):
            converse(given, model=ScriptedChatModel(script=[]), **options)
    except SessionError as error:
        if " differs; resume it by its id alone" in str(error):
            return True
        raise
    return False


@pytest.mark.parametrize("kind", SOURCES)
def test_what_a_kind_fills_in_is_not_compared_and_what_was_given_is(kind: str) -> None:
    now = made(kind)
    old = earlier(now)
    assert not has_difference(old, now)
    assert has_difference(now, made(kind, **CHANGES[kind]))
    for name, value in CHANGES[kind].items():
        given = made(kind, **{name: value})
        assert has_difference(old, given), name
        # Fields that it began with are optional when it continues.
        assert not has_difference(given, now), name


@pytest.mark.part(1)
@pytest.mark.parametrize("kind", ["role_play", "blogger", "group_solve"])
def test_a_session_with_other_prompts_goes_on_by_them(kind: str, store: str) -> None:
    """R14: a session keeps its older prompts, in memory and in SQLite."""
    now = made(kind, prompts={"begin": "Go."}) if kind == "role_play" else made(kind)
    begun(store, earlier(now))
    model = ScriptedChatModel(script=lambda _: DONE if kind == "role_play" else "Fine.")
    result = converse(made(kind), session="g", store=store, model=model)
    assert result.conversation == result.session.state().conversation == earlier(now)
    told = [call.messages[0].text for call in model.calls]
    assert told
    assert all(text.startswith("Earlier. ") for text in told) == (kind != "group_solve")


def test_a_file_goes_on_with_a_session_of_other_prompts(store: str, tmp_path: Path) -> None:
    begun(store, earlier(load_conversation(GARDEN)))
    file = tmp_path / "garden.json"
    file.write_text(json.dumps(GARDEN))
    model = ScriptedChatModel(script=lambda _: DONE)
    result = converse(file, session="g", store=store, model=model)
    assert result.outcome is not None
    assert model.calls[0].messages[0].text.startswith("Earlier. ")
    file.write_text(json.dumps(GARDEN | {"assistant_prompt": "Another."}))
    with pytest.raises(SessionError, match=r"speakers\.1\.system_prompt differs"):
        converse(file, session="g", store=store, model=model)


def test_the_command_line_goes_on_with_a_session_of_other_prompts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
    isolate(monkeypatch, tmp_path)
    begun(str(tmp_path / "sessions.db"), earlier(play))
    with ScriptedServer(lambda _: DONE) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert duologue(*SHORT).exit_code == 0
    assert server.calls[0].body["messages"][0]["content"].startswith("Earlier. ")
    prompt = Session("g", store=str(tmp_path / "sessions.db")).prompt("Owner")
    assert prompt[0].text.startswith("Earlier. ")
