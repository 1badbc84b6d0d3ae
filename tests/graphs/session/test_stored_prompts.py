"""R14: a session keeps the prompts that it began with, even if a new release has others."""

import json
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import (
    Conversation,
    Session,
    SessionError,
    converse,
    load_conversation,
    role_play,
)
from duologue.graphs.conversation.conversation_options import first_difference
from duologue.graphs.kinds.load import forms_by_kind
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.script import ScriptExhaustedError
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import DONE, SHORT, duologue, isolate
from support.stores import store_address

ROLES = {"user_role": "Owner", "assistant_role": "Gardener"}
GARDEN = {"kind": "role_play", "task": "Plan a garden", "specify_task": False, **ROLES}
TASKS = [{"name": "Ann", "task": "Dig."}, {"name": "Bob", "task": "Sow."}]

SOURCES: dict[str, dict[str, Any]] = {
    "role_play": GARDEN,
    "blogger": {"task": "Bees."},
    "coder": {"task": "Sum 0 to 4."},
    "chat": {"message": "Hello."},
    "user_proxy": {"message": "Hello.", "human_input_mode": "NEVER"},
    "group_solve": {"speakers": TASKS},
    "simulation": {"goal": "Get a refund."},
}
"""The smallest valid input of each kind."""

CHANGES: dict[str, dict[str, Any]] = {
    "role_play": {"user_prompt": "Lead.", "max_iterations": 9, "done_token": "<END>"},
    "blogger": {"critic_prompt": "Judge.", "rounds": 9, "satisfied": "<GOOD>"},
    "coder": {"coder_prompt": "Code.", "executions": 9},
    "chat": {"assistant_prompt": "Talk.", "max_iterations": 9},
    "user_proxy": {"assistant_prompt": "Help.", "termination": "END"},
    "simulation": {"persona": "Rude.", "done_token": "<END>", "max_iterations": 9},
    "group_solve": {"shift_content": "Go.", "max_tool_rounds": 9},
}
"""Fields that must equal the session's if they are set."""


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


@pytest.mark.parametrize("kind", SOURCES)
def test_what_a_kind_fills_in_is_not_compared_and_what_was_given_is(kind: str) -> None:
    now = made(kind)
    old = earlier(now)
    assert first_difference(old, now) == ""
    assert first_difference(now, made(kind, **CHANGES[kind])) != ""
    for name, value in CHANGES[kind].items():
        given = made(kind, **{name: value})
        assert first_difference(old, given) != "", name
        # Fields that it began with are optional when it continues.
        assert first_difference(given, now) == "", name


@pytest.mark.part(1)
@pytest.mark.parametrize("kind", ["role_play", "blogger", "group_solve"])
def test_a_session_with_other_prompts_goes_on_by_them(kind: str, store: str) -> None:
    """R14: a session keeps its older prompts, in memory and in SQLite."""
    now = made(kind, prompts={"begin": "Go."}) if kind == "role_play" else made(kind)
    begun(store, earlier(now))
    model = ScriptedChatModel(script=lambda _: DONE if kind == "role_play" else "Fine.")
    result = converse(made(kind), session="g", store=store, model=model)
    assert result.conversation == Session("g", store=store).state().conversation == earlier(now)
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
