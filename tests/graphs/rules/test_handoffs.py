"""Handoffs between speakers, and messages to some speakers only."""

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from duologue.graphs import (
    Conversation,
    Reason,
    Result,
    Session,
    SpecError,
    converse,
    load_conversation,
    stream,
)
from duologue.graphs.events import MessageSaid, MessageStarted, MessageToken
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import Flaw, fields_of, kind_of
from support.prompts import PROMPTS, fill
from support.results import outcome_of
from support.shape_help import play
from support.tables import each_row

NAMES = ("Ann", "Bob", "Cid")
ALONE = {"kind": "handoff", "private": True}


def talk(rounds: int = 1, order: Any = "handoff", **fields: Any) -> Conversation:  # noqa: ANN401
    speakers = [{"name": name} | fields.pop(name, {}) for name in NAMES]
    end_chat = {"max_iterations": rounds} | fields.pop("end_chat", {})
    spec = {"task": "Plan.", "speakers": speakers, "turn_order": order, "end_chat": end_chat}
    return load_conversation(spec | fields)


def call(name: str, number: int = 0, **args: Any) -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=f"call-{number}")


def over(to: object, message: str | None = None, *, text: str = "", **more: Any) -> Reply:
    said: dict[str, Any] = {} if message is None else {"message": message}
    return Reply(text=text, tool_calls=(call("hand_off", to=to, **said, **more),))


def order_of(result: Result) -> str:
    """Return the first letters of the speakers in order."""
    return "".join(name[0] for name, _ in result.transcript)


# Handoffs


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (over("Cid", "Over to you."), "Over to you."),
        (over("Cid", text="Beside it."), "Beside it."),
        (over("Cid", "In it.", text="Beside it."), "Beside it.\n\nIn it."),
        (over("Cid", "The same.", text="The same."), "The same."),
        (over("Cid"), ""),
        (over(" *cid*. ", "Any case, any marks."), "Any case, any marks."),
    ],
)
def test_a_call_is_the_message_and_names_who_is_next_at_no_further_model_call(
    reply: Reply, said: str
) -> None:
    result, model = play(talk(), [reply, "I have looked at it.", "And I go on."])
    # A speaker that was handed the turn and names no speaker returns it.
    assert result.transcript == [
        ("Ann", said),
        ("Cid", "I have looked at it."),
        ("Ann", "And I go on."),
    ]
    (offered,) = model.calls[0].tools
    schema = offered["function"]["parameters"]
    assert schema["properties"]["to"]["enum"] == ["Bob", "Cid"]
    assert schema["required"] == ["to", "message"]
    assert not [one for one in result.messages if isinstance(one, ToolMessage)]


@pytest.mark.parametrize("text", ["Beside it.", "Beside it. ", "Beside it.\n", "\n", ""])
@pytest.mark.parametrize("message", ["In it.", "Beside it.", ""])
def test_what_is_said_beside_a_call_is_told_once(text: str, message: str) -> None:
    model = ScriptedChatModel(script=[over("Cid", message, text=text), "I see.", "Good."])
    told, starts, said = "", 0, ""
    for event in stream(talk(), model=model, store=f"memory:{uuid4().hex}"):
        if isinstance(event, MessageSaid):
            said = event.text
            break
        told += event.text if isinstance(event, MessageToken) else ""
        starts += isinstance(event, MessageStarted)
    # Text that did not arrive in pieces is sent with the message itself.
    assert told == (said if text.strip() else "")
    assert starts == bool(told)


def test_of_several_calls_the_first_that_may_counts_and_the_speaker_sees_what_came_of_each() -> (
    None
):
    both = Reply(
        tool_calls=tuple(
            call("hand_off", number, to=name, message=f"Now {name}.")
            for number, name in enumerate(("Zed", "cid", "Bob"))
        )
    )
    result, model = play(talk(), [both, "Here is Cid.", "Ann once more."])
    assert result.transcript[:2] == [
        ("Ann", "Now Zed.\n\nNow cid.\n\nNow Bob."),
        ("Cid", "Here is Cid."),
    ]
    shown = model.calls[2].messages[2:6]
    assert isinstance(shown[0], AIMessage)
    assert [made["args"] for made in shown[0].tool_calls] == [
        {"to": "Zed"},
        {"to": "Cid", "message": "Now Zed.\n\nNow cid.\n\nNow Bob."},
        {"to": "Bob"},
    ]
    assert [one.text for one in shown[1:]] == [
        fill(PROMPTS["hand_off_refused"], other="Zed", names="Bob, Cid"),
        fill(PROMPTS["hand_off_accepted"], name="Cid"),
        PROMPTS["hand_off_ignored"],
    ]


def test_whom_nobody_may_name_is_asked_for_once_more_and_then_the_next_in_order_speaks() -> None:
    order = {"kind": "handoff", "to": {"Ann": ["Cid"], "Bob": ["Ann", "Cid"]}}
    spec = talk(order=order, opening={"first_speaker": "Bob"})
    first, second = over("Zed", "Zed, please."), over("Bob", "I mean myself.")
    result, model = play(spec, [first, second, "Cid has the word.", "So has Ann."])
    # Ann may name only Cid, so no tool is offered.
    assert not model.calls[-1].tools
    assert order_of(result) == "BCA"
    said = next(one for one in result.messages if kind_of(one) == "speech")
    assert fields_of(said).flaw is Flaw.NOT_NEXT
    told = fill(PROMPTS["hand_off_refused"], other="Zed", names="Ann, Cid")
    assert told in model.calls[1].messages[-1].text
    assert [fields_of(one).flaw for one in result.messages if kind_of(one) == "draft"] == [
        Flaw.NOT_NEXT
    ]


class Step(BaseModel):
    """One step of a plan."""

    words: str
    next: str | None = None


def test_a_structured_reply_names_who_is_next_by_a_field() -> None:
    planner = {"format": {"name": "step"}}
    script: list[Line] = [
        {"words": "Cid begins.", "next": "Cid"},
        over("Bob", "Bob goes on."),
        {"words": "Zed should.", "next": "Zed"},
        {"words": "Ann should.", "next": "ann"},
        {"words": "Back to whoever asked me.", "next": None},
        {"words": "Then it is in order.", "next": ""},
        "Cid ends it.",
    ]
    spec = talk(2, Ann=planner, Bob=planner)
    result, model = play(spec, script, schemas={"step": Step})
    assert order_of(result) == "ACBABC"
    assert not model.calls[0].tools
    told = fill(PROMPTS["hand_off_refused"], other="Zed", names="Ann, Cid")
    assert told in model.calls[3].messages[-1].text


@each_row("r4_a_field_that_names_who_is_next_is_read_as_models_write_it")
def test_r4_a_field_that_names_who_is_next_is_read_as_models_write_it(reply: str) -> None:
    spec = talk(1, Ann={"format": {"name": "step"}})
    said: list[Line] = [reply, "Fine.", {"words": "Cid ended it.", "next": None}]
    result, _ = play(spec, said, schemas={"step": Step})
    assert order_of(result)[:2] == "AC"


def test_anybody_names_who_is_next_by_a_message_that_begins_with_it() -> None:
    called = {"replies": [{"kind": "function", "name": "calls"}]}
    spec = talk(Bob=called, Ann={"replies": ["human"]})
    options: dict[str, Any] = {
        "functions": {"calls": lambda turn: "@Cid: go on."},
        "model": ScriptedChatModel(script=["That was it."]),
    }
    found = converse(spec, store=f"memory:{uuid4().hex}", **options)
    result = found.session.answer("  @bob what do you say?", **options)
    assert order_of(result) == "ABC"


# With other calls, and with other options of a turn


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: 42"


@pytest.mark.parametrize("calling", ["native", "schema"])
def test_it_can_be_called_where_no_other_tool_can(calling: str) -> None:
    ann = {"tools": ["look"], "tool_choice": "none", "tool_calling": calling}
    reply: Line = over("Cid", "Cid, go on.")
    if calling == "schema":
        reply = {"tool": "hand_off", "arguments": {"to": "Cid", "message": "Cid, go on."}}
    last: Line = "So." if calling == "native" else {"reply": "So."}
    result, model = play(talk(Ann=ann), [reply, "I do.", last], tools=[look])
    assert result.transcript[:2] == [("Ann", "Cid, go on."), ("Cid", "I do.")]
    if calling == "native":
        assert [one["function"]["name"] for one in model.calls[0].tools] == ["hand_off"]
    else:
        assert "- hand_off(" in model.calls[0].messages[0].text


def test_last_words_keep_their_order() -> None:
    end_chat = {"mode": "one_last_group_chat_after_first_completion"}
    spec = talk(2, Ann={"checks_completion": True}, end_chat=end_chat)
    done = {"objectives_left": [], "complete": True}
    script: list[Line] = [
        over("Cid", "All is planned."),
        done,
        "Bob's last.",
        over("Bob", "Cid's last."),
        "Bye.",
    ]
    result, model = play(spec, script)
    assert order_of(result) == "ABCA"
    assert not model.calls[2].tools


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, Reason.BLANK_REPLIES),
        ({"private": True}, Reason.BLANK_REPLIES),
        ({"message": "Please take care of the whole plan."}, Reason.STANDSTILL),
    ],
)
def test_handing_over_to_and_fro_without_content_ends_by_a_guard(
    fields: dict[str, Any], reason: Reason
) -> None:
    """Private messages are turns that guards count, too."""
    model = ScriptedChatModel(
        script=lambda prompt: over("Bob" if "You are Ann" in str(prompt[0]) else "Ann", **fields)
    )
    spec = talk(20, ALONE, end_chat={"guards": {"same_replies": 0, "echo": 0}})
    result = converse(spec, model=model, store=f"memory:{uuid4().hex}")
    assert outcome_of(result).reason is reason


# Sessions


def test_a_session_goes_on_and_forks_as_it_handed_over() -> None:
    store = f"memory:{uuid4().hex}"
    script: list[Line] = [
        over("Cid", "Cid?"),
        over("Zed", "Zed?"),
        over("Bob", "Bob?"),
        RuntimeError("gone"),
    ]
    model = ScriptedChatModel(script=script)
    spec = talk(2, Bob={"tools": ["look"]})
    with pytest.raises(RuntimeError):
        converse(spec, session="s", model=model, store=store, tools=[look])
    both = Reply(
        tool_calls=(call("look", what="x"), call("hand_off", 1, to="Ann", message="Wait."))
    )
    rest = ScriptedChatModel(script=[both, "Good.", "Well done.", "So it is."])
    result = Session("s", store=store).resume(model=rest, tools=[look])
    assert order_of(result) == "ACBABC"
    # A fork with another table applies it to the earlier messages.
    other = {"kind": "handoff", "to": {"Ann": ["Bob"]}}
    changed = Session("s", store=store).fork(at="m0001", turn_order=other).id
    model = ScriptedChatModel(script=["I am Bob.", RuntimeError("gone")])
    with pytest.raises(RuntimeError):
        Session(changed, store=store).resume(model=model, tools=[look])
    assert model.calls[0].speaker == "Bob"


@each_row("a_mistake_is_one_sentence", "fields", "message")
def test_a_mistake_is_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as found:
        talk(**fields)
    assert message in str(found.value)


# Messages to some speakers only


def heard(result: Result, name: str) -> str:
    return "\n".join(one.text for one in result.viewpoint(name))


def test_a_speaker_says_something_to_one_other_alone() -> None:
    script: list[Line] = [
        over("Bob", "The number is seven.", private=True),
        over("Cid", "Ann has told me."),
        "What is it?",
    ]
    result, model = play(talk(order=ALONE), script)
    assert order_of(result) == "ABC"
    assert "Ann: (to you only) The number is seven." in heard(result, "Bob")
    assert "seven" not in heard(result, "Cid")
    own = result.viewpoint("Ann")[2]
    assert isinstance(own, AIMessage)
    assert own.tool_calls[0]["args"] == {
        "to": "Bob",
        "message": "The number is seven.",
        "private": True,
    }
    assert "private" in str(model.calls[0].tools)
    assert "Ann (to Bob only): The number is seven." in str(result)
    assert "*Heard only by Bob*" in result.session.export("markdown")


def test_who_speaks_to_some_alone_is_heard_by_no_other() -> None:
    """In any order, only the addressed speakers, judges and moderators hear the message."""
    judge = {"kind": "separate", "criteria": ["They agree."]}
    mode = {"mode": "end_chat_after_first_completion"}
    spec = talk(1, "round_robin", Ann={"speaks_to": ["Cid"]}, judge=judge, end_chat=mode)
    no = {"criterion_1": "not_met"}
    script: list[Line] = ["It is seven.", "What is?", no, "I know it.", no]
    result, model = play(spec, script)
    assert "seven" not in heard(result, "Bob")
    assert "Ann: (to you only) It is seven." in heard(result, "Cid")
    assert "Ann (to Cid only): It is seven." in model.calls[2].messages[-1].text


def test_what_is_meant_for_nobody_there_is_heard_by_nobody() -> None:
    script: list[Line] = [
        over("Zed", "It is seven.", private=True),
        over("Zed", "It is seven, I say.", private=True),
        "I heard nothing.",
        "Nor did I.",
    ]
    result, _ = play(talk(order=ALONE), script)
    assert order_of(result) == "ABC"
    assert "seven" not in heard(result, "Bob") + heard(result, "Cid")
