"""L2: memory in sessions with people: decisions, open questions, text next to tool calls."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    Session,
    SpecError,
    chat,
    list_sessions,
    load_session,
    user_proxy,
)
from duologue.graphs.session.dump import DUMP_VERSION
from duologue.nodes.testing import Line, ScriptedChatModel
from duologue.tools import Hook, Turn
from support.log import without_ids
from support.people_help import call, calls, play


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return f"Sent to {to}."


def _fails(_: Turn, __: ToolCall) -> ToolCall:
    raise ValueError("not now")


def _lets(_: Turn, made: ToolCall) -> ToolCall:
    return made


def with_hook(before_tool: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"tools": [mail], "hooks": {"before": Hook(before_tool=before_tool)}}


HOOKED = {"tools": ["mail"], "hooks": ["before"]}
APPROVED = {
    "decisions": [{"type": "edit", "edited_action": {"name": "mail", "args": {"to": "Bo"}}}]
}
DECIDED: dict[str, tuple[Conversation, list[Line], list[Any]]] = {
    "approved": (
        Conversation.model_validate(
            {
                "task": "Write.",
                "speakers": [
                    {"name": "Ann", "interrupt_on": {"mail": True}, **HOOKED},
                    {"name": "Ben"},
                ],
                "end_chat": {"max_iterations": 1},
            }
        ),
        ["Done.", "Fine."],
        [APPROVED],
    ),
    "seen": (
        user_proxy("Write.", tools=("mail",), assistant="Ann"),
        ["Done. TERMINATE"],
        [""],
    ),
}


def left_decided(name: str, store: str) -> list[Line]:
    """Leave a session after a person's decision, before its calls; return the remaining script."""
    conversation, rest, answers = DECIDED[name]
    ann = conversation.speaker("Ann").model_copy(update={"hooks": ("before",)})
    speakers = tuple(ann if one.name == "Ann" else one for one in conversation.speakers)
    conversation = conversation.model_copy(update={"speakers": speakers})
    script = [calls(call("mail", to="Bob"))]
    with pytest.raises(SpecError, match="not now"):
        play(conversation, script, answers, store=store, **with_hook(_fails))
    return rest


def ended(session: str, store: str, rest: list[Line]) -> Any:  # noqa: ANN401
    """Resume without questions about calls; return the messages and the remaining questions."""
    model = ScriptedChatModel(script=rest)
    result = Session(session, store=store).resume(model=model, **with_hook(_lets))
    assert len(model.calls) == len(rest)
    return without_ids(result.messages), [one.kind for one in result.pending]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", DECIDED)
def test_what_a_person_has_decided_goes_with_a_session(name: str, tmp_path: Path) -> None:
    """Copies and loaded dumps keep a person's decision and do not ask again."""
    store = f"memory:{tmp_path.name}"
    rest = left_decided(name, store)
    dump = json.loads(json.dumps(Session("s", store=store).dump()))
    load_session(dump, into="loaded", store=store)
    assert Session("loaded", store=store).dump() == {**dump, "session": "loaded"}
    Session("s", store=store).copy(into="copied")
    whole = ended("s", store, rest)
    assert "Sent to" in str(whole[0])
    for session in ("loaded", "copied"):
        assert ended(session, store, rest) == whole
        # A decision is deleted after its calls have run.
        assert "decisions" not in Session(session, store=store).dump()["steps"][-1]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", DECIDED)
def test_what_a_person_has_decided_stays_when_a_memory_is_reset(name: str, tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    rest = left_decided(name, store)
    for speaker in Session("s", store=store).state().conversation.names:
        Session("s", store=store).reset(speaker=speaker)
    messages, _ = ended("s", store, rest)
    assert "Sent to" in str(messages)


def test_a_question_that_waits_is_asked_again_in_a_copy_and_by_a_new_memory(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    play(chat(), ["Hello."], ["Hi."], store=store)
    Session("s", store=store).copy(into="copied")
    Session("s", store=store).reset(speaker="Assistant")
    for session in ("s", "copied"):
        row = next(one for one in list_sessions(store=store) if one.session == session)
        assert (row.status, Session(session, store=store).state().pending) == ("unfinished", ())
        (question,) = Session(session, store=store).resume().pending
        assert question.kind == "message"
        result = Session(session, store=store).answer("exit")
        assert result.outcome is not None
        assert result.transcript == [("User", "Hi."), ("Assistant", "Hello.")]


def test_words_said_beside_calls_are_remembered_as_what_they_are(tmp_path: Path) -> None:
    """G1: in a loaded memory, its owner sees text next to a call as the call's argument."""
    here, there = f"memory:{tmp_path.name}-1", f"memory:{tmp_path.name}-2"
    said = [call("mail", to="Bob", to_user="I mail Bob."), call("mail", 2, to="Eve")]
    script: list[Line] = [calls(*said, text="Now"), "Done.", "Fine."]
    speakers = [{"name": "Ann", "tools": ["mail"], "speaks_with_tool_calls": True}, {"name": "Ben"}]
    conversation = Conversation.model_validate(
        {"task": "Write.", "speakers": speakers, "end_chat": {"max_iterations": 1}}
    )
    recorded = play(conversation, script, store=here, tools=[mail]).result
    memory = recorded.memory("Ann")
    # Load it once into the same session, in which its call ids are used, and once into another.
    Session("s", store=here).set_memory("Ann", memory)
    play(conversation, ["One.", "Two."], store=there, tools=[mail])
    Session("s", store=there).set_memory("Ann", memory)
    for store in (here, there):
        view = Session("s", store=store).state().viewpoint("Ann")
        made = next(one for one in view if getattr(one, "tool_calls", None))
        before = next(one for one in recorded.viewpoint("Ann") if getattr(one, "tool_calls", None))
        assert made.text == before.text == "Now"
        shown = [[one["args"] for one in found.tool_calls] for found in (made, before)]  # type: ignore[attr-defined]
        assert shown[0] == shown[1] == [{"to_user": "I mail Bob.", "to": "Bob"}, {"to": "Eve"}]


SPEC = {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
SESSION = {"format": "duologue.session", "version": DUMP_VERSION, "session": "one", "spec": SPEC}
ENDED = {"reasons": [], "explanations": ["x"], "rounds": 0, "messages": 0}


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        (
            {
                **SESSION,
                "steps": [
                    {
                        "messages": [
                            {
                                "id": "m0000",
                                "text": "Hi",
                                "metadata": {"kind": "speech", "speaker": "Eve"},
                            }
                        ]
                    }
                ],
            },
            "steps.0.messages.0.metadata.speaker: no speaker is called 'Eve'",
        ),
        ({**SESSION, "steps": [{"outcome": ENDED}]}, "steps.0.outcome.reasons: "),
        (
            {**SESSION, "steps": [{"decisions": {"message": "m0", "decisions": {"a": {}}}}]},
            "steps.0.decisions.decisions.a",
        ),
    ],
)
def test_a_dump_that_does_not_hang_together_is_refused(dump: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_session(dump, into="x", store="memory:bad")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("phase", "kinds"),
    [
        ("rejected", "draft"),
        ("answered", "unheard_reply"),
        ("called", "tool_calls or code"),
        ("ran", "unheard_result"),
        ("given", "tool_result or unheard_result"),
        ("asked", "reflection"),
    ],
)
def test_a_dump_must_hold_what_is_read_next(phase: str, kinds: str) -> None:
    message = {"id": "m0000", "text": "Hi", "metadata": {"kind": "speech", "speaker": "Ann"}}
    position = {"phase": phase, "speaker": "Ann", "facts": {"messages": 1}}
    dump = {**SESSION, "steps": [{"messages": [message], "position": position}]}
    said = f"steps.0.position: does not fit the newest message, which must be of the kind {kinds}"
    with pytest.raises(SpecError, match=f"^{said}$"):
        load_session(dump, into="x", store="memory:bad")
