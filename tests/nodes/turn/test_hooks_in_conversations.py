"""Hooks together with failures, streams, stops and shortened histories."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage

from duologue.graphs import (
    Conversation,
    Reason,
    Result,
    Session,
    SpecError,
    aconverse,
    converse,
    stream,
)
from duologue.graphs.events import (
    Event,
    MessageSaid,
    MessageToken,
    ReplyRejected,
    ToolCallFinished,
    ToolCallRequested,
)
from duologue.nodes.testing import Line as Said, Reply, ScriptedChatModel
from duologue.tools import Hook, Turn
from support.log import fields_of, of_kind
from support.results import outcome_of
from support.shape_help import kinds, talk, texts

from .hooks_help import BEGIN, POINTS, adding, called, calling, either, hooked, in_form, play

# Failures.

UNSTORABLE = "returned args that cannot be stored:"


def add(args: Any, name: str = "add") -> dict[str, Any]:  # noqa: ANN401
    return {"name": name, "args": args, "id": "c1"}


WRONG: list[tuple[str, Any, str]] = [
    ("before_speaker", "text", "must return HumanMessage or AIMessage or None, not str"),
    ("after_speaker", HumanMessage("Hi."), "must return AIMessage or None, not HumanMessage"),
    ("after_speaker", "text", "must return AIMessage or None, not str"),
    ("before_tool", AIMessage("Hi."), "must return dict or ToolMessage or None, not AIMessage"),
    ("before_tool", {"name": "add", "id": "c1"}, "returned a call without args"),
    ("before_tool", add([1]), "returned a call without args"),
    ("before_tool", add({}, "sub"), "returned a call to another tool, 'sub'"),
    ("before_tool", add({"a": {1}}), f"{UNSTORABLE} at a, a set is not JSON"),
    ("before_tool", add({"a": 2**64}), f"{UNSTORABLE} at a, a whole number has more than 64 bits"),
    ("before_tool", add({"a": [float("nan")]}), f"{UNSTORABLE} at a.0, a number is not finite"),
    (
        "before_speaker",
        AIMessage("", tool_calls=[ToolCall(name="add", args={}, id="c9")]),
        "returned tool calls; return text only",
    ),
    ("after_tool", "text", "must return ToolMessage or None, not str"),
]


@pytest.mark.part(2)
@either
@pytest.mark.parametrize(
    ("point", "given", "words"),
    [
        *(pytest.param(*one, id=f"{one[0]}-{one[2]}") for one in WRONG),
        *(
            pytest.param(point, OSError, "OSError: no luck", id=f"{point}-raises")
            for point in POINTS
        ),
    ],
)
def test_a_hook_that_fails_is_one_clear_error_and_nothing_is_lost_or_done_again(
    form: str,
    point: str,
    given: Any,  # noqa: ANN401
    words: str,
    tmp_path: Path,
) -> None:
    """L7, G7: it names hook and point; a resumed run asks no model and runs no tool twice."""
    ran: list[tuple[int, int]] = []
    model = ScriptedChatModel(script=[calling(1, 2, text="Let me see."), "Sum.", "Ok."])
    session = Session("s", store=tmp_path / "s.db")
    options: dict[str, Any] = {"model": model, "tools": [adding(ran)]}

    def fails(*given_to_it: object) -> Any:  # noqa: ANN401
        if given is OSError:
            raise OSError("no luck")
        return given

    broken = in_form(Hook(**{point: fails}), form)
    for _ in range(2):
        with pytest.raises(SpecError) as caught:
            converse(hooked("broken"), session=session, hooks={"broken": broken}, **options)
        said = str(caught.value)
        assert said.startswith(f"the hook 'broken' failed in {point}: ")
        assert words in said
    calls = {"before_speaker": 0, "after_speaker": 1, "before_tool": 1, "after_tool": 1}
    assert len(model.calls) == calls[point]
    assert ran == ([(1, 2)] if point == "after_tool" else [])
    assert session.state().outcome is None
    result = session.resume(hooks={"broken": Hook()}, **options)
    assert result.transcript == [("Ann", "Let me see."), ("Ann", "Sum."), ("Bob", "Ok.")]
    assert len(model.calls) == 3
    assert ran == [(1, 2)]


def test_one_of_several_tools_whose_hook_fails_costs_none_of_the_others(tmp_path: Path) -> None:
    """L7, G3: all hooks before the calls run before any tool, and all hooks after them last."""
    ran: list[tuple[int, int]] = []
    both = Reply(tool_calls=[called(1, 2, "c1"), called(3, 4, "c2")])
    script: list[Said] = [both, "Sum.", "Ok."]
    model = ScriptedChatModel(script=script)
    session = Session("s", store=tmp_path / "s.db")
    options: dict[str, Any] = {"model": model, "tools": [adding(ran)]}

    def second(turn: Turn, call: ToolCall, *result: ToolMessage) -> None:
        if call["args"]["a"] == 3:
            raise OSError("no luck")

    with pytest.raises(SpecError, match="before_tool"):
        converse(hooked("h"), session=session, hooks={"h": Hook(before_tool=second)}, **options)
    assert ran == []
    with pytest.raises(SpecError, match="after_tool"):
        session.resume(hooks={"h": Hook(after_tool=second)}, **options)
    assert sorted(ran) == [(1, 2), (3, 4)]
    result = session.resume(hooks={"h": Hook()}, **options)
    assert sorted(ran) == [(1, 2), (3, 4)]
    assert [one.text for one in of_kind(result.messages, "tool_result")] == ["3", "7"]
    assert len(model.calls) == 3


def test_a_model_that_fails_behind_a_hook_is_asked_again_with_the_hook_run_again(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel(script=[Reply(error=500), "Hello.", "Hi."])
    session = Session("s", store=tmp_path / "s.db")
    options: dict[str, Any] = {"model": model}
    hooks = {"h": Hook(before_speaker=lambda turn: HumanMessage(f"({turn.heard})"))}
    with pytest.raises(Exception, match="500"):
        converse(hooked("h"), session=session, hooks=hooks, tools=[adding()], **options)
    result = session.resume(hooks=hooks, tools=[adding()], **options)
    assert texts(model.calls[1]) == [f"u:({BEGIN})"]
    assert kinds(result) == ["instruction", "hook_version", "speech", "speech"]


# In the stream.


def streamed(spec: Conversation, script: Sequence[Said], **options: Any) -> list[Event]:
    model = ScriptedChatModel(script=script)
    return list(stream(spec, model=model, store=f"memory:{uuid4().hex}", **options))


def test_what_hooks_will_see_is_not_streamed_and_what_they_leave_is() -> None:
    """L7, G2: a follower never reads words that a hook changes later."""

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(reply.text.replace("secret", "***"))

    script: list[Said] = [calling(1, 2, text="A secret."), "My secret sum.", "Very well."]
    found = streamed(hooked("h"), script, hooks={"h": Hook(after_speaker=sign)}, tools=[adding()])
    tokens = [event for event in found if isinstance(event, MessageToken)]
    assert {event.speaker for event in tokens} == {"Bob"}
    assert "".join(event.text for event in tokens) == "Very well."
    said = [event.text for event in found if isinstance(event, MessageSaid)]
    assert said == ["A ***.", "My *** sum.", "Very well."]
    assert "secret" not in str(found)


def test_a_speaker_whose_hooks_only_come_before_is_streamed() -> None:
    hooks = {"h": Hook(before_speaker=lambda turn: None, after_tool=lambda *given: None)}
    found = streamed(hooked("h"), ["A secret.", "Fine."], hooks=hooks, tools=[adding()])
    tokens = [
        event.text for event in found if isinstance(event, MessageToken) and event.speaker == "Ann"
    ]
    assert "".join(tokens) == "A secret."


def test_the_stream_tells_of_each_call_and_result_once_as_they_ended_up() -> None:
    """G7: no event contains data that hooks have yet to see."""
    hook = Hook(
        before_speaker=lambda turn: HumanMessage("Changed."),
        after_speaker=lambda turn, reply: AIMessage(f"{reply.text}!"),
        before_tool=lambda turn, call: {**call, "args": {"a": 5, "b": 5}},
        after_tool=lambda turn, call, result: ToolMessage("ten", tool_call_id=""),
    )
    script: list[Said] = [" ", calling(1, 2, text="Hm."), "Sum.", "Ok."]
    found = streamed(hooked("h"), script, hooks={"h": hook}, tools=[adding()])
    told = (ReplyRejected, ToolCallRequested, ToolCallFinished, MessageSaid)
    assert [event.event for event in found if isinstance(event, told)] == [
        *("rejected", "message", "tool_call", "tool_result", "message", "message"),
    ]
    (answered,) = [event for event in found if isinstance(event, ToolCallFinished)]
    assert answered.text == "ten"


# Hooks together with the other parts of a turn.


def test_hooks_see_private_openings_and_opening_answers() -> None:
    """L7, Y4, Y16: private openings and opening answers stay private after a change."""
    spec = talk(
        {
            "name": "Ann",
            "task": "Keep it.",
            "hooks": ["h"],
            "private_opening": {"prompt": "Choose a number."},
        },
        {"name": "Bob", "task": "Guess it."},
        opening={"answers": True, "first_speaker": "Bob"},
        rounds=1,
    )
    hook = Hook(
        before_speaker=lambda turn: HumanMessage(f"{turn.heard} Please."),
        after_speaker=lambda turn, reply: AIMessage(f"{reply.text} So."),
    )
    script = ["Seven.", "I keep it.", "I guess.", "Is it three?", "No."]
    result, model = play(spec, script, hooks={"h": hook})
    assert texts(model.calls[4]) == [
        *("u:Choose a number. Please.", "a:Seven. So."),
        *("u:Keep it. Please.", "a:I keep it. So."),
        "u:Is it three? Please.",
    ]
    # The shift passes the changed message on.
    assert texts(model.calls[3]) == ["u:Guess it.", "a:I guess.", "u:I keep it. So."]
    assert [fields_of(one).audience for one in of_kind(result.messages, "speech")] == [
        *(("Ann",), ("Ann",), ("Bob",), None, None),
    ]
    assert "Seven" not in str(result.viewpoint("Bob"))


@pytest.mark.parametrize("form", ["structured", "two_questions"])
def test_a_speaker_judges_itself_by_what_it_heard_and_said_in_the_end(form: str) -> None:
    """L7, Y9: hooks do not see the verdict."""
    spec = talk(
        {"name": "Ann", "hooks": ["h"], "checks_completion": True, "keep_self_reflection": True},
        "Bob",
        rounds=2,
        judge={"form": form},
        end_chat={"mode": "end_chat_after_first_completion"},
    )
    seen: list[str] = []

    def after(turn: Turn, reply: AIMessage) -> AIMessage:
        seen.append(reply.text)
        return AIMessage(f"{reply.text}!")

    hook = Hook(before_speaker=lambda turn: HumanMessage(f"({turn.heard})"), after_speaker=after)
    left: list[Said] = [{"objectives_left": ["b"], "complete": False}]
    done: list[Said] = [{"objectives_left": [], "complete": True}]
    if form == "two_questions":
        left, done = ["A bit.", "No."], ["None.", "Yes."]
    result, model = play(spec, ["One.", *left, "Two.", "Three.", *done], hooks={"h": hook})
    assert seen == ["One.", "Three."]
    asked = texts(model.calls[-1])
    assert asked[:2] == [f"u:({BEGIN})", "a:One.!"]
    assert "u:(Two.)" in asked
    assert "a:Three.!" in asked
    assert outcome_of(result).reason is Reason.COMPLETED


def test_a_hard_stop_between_answer_and_hook_still_says_the_message() -> None:
    """L7: an answer that is already paid for is heard before the conversation ends."""
    hooks = {"h": Hook(after_speaker=lambda turn, reply: AIMessage(f"{reply.text}!"))}
    spec = hooked("h", rounds=3, end_chat={"when": {"kind": "max_calls", "limit": 3}})
    script = ["One.", "Two.", "Three."]
    result, _ = play(spec, script, hooks=hooks)
    assert [text for _, text in result.transcript] == ["One.!", "Two.", "Three.!"]
    assert outcome_of(result).reason is Reason.MAX_CALLS


def test_a_hard_stop_between_tool_and_hook_comes_behind_the_hook() -> None:
    hook = Hook(after_tool=lambda turn, call, result: ToolMessage("three", tool_call_id=""))
    spec = hooked("h", end_chat={"when": {"kind": "max_seconds", "limit": 1e-9}})
    # The first step uses up the time, so only answers that already exist are processed.
    result, _ = play(spec, [], hooks={"h": hook})
    assert outcome_of(result).reason is Reason.MAX_SECONDS
    spec = hooked("h", end_chat={"when": {"kind": "max_calls", "limit": 1}})
    result, _ = play(spec, [calling(1, 2)], hooks={"h": hook})
    # The call is part of an answer, so it is said; its tool has not run, so it never runs.
    assert kinds(result) == ["instruction", "tool_calls"]


def test_a_stop_that_is_asked_for_in_a_hook_ends_it_after_the_turn(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    def stop(turn: Turn, reply: AIMessage) -> AIMessage:
        assert turn.session is not None
        Session(turn.session, store=store).stop()
        return AIMessage(f"{reply.text}!")

    hooks = {"h": Hook(after_speaker=stop)}
    result, _ = play(hooked("h", rounds=3), ["One."], hooks=hooks, session="s", store=store)
    assert result.transcript == [("Ann", "One.!")]
    assert outcome_of(result).reason is Reason.STOP_REQUESTED


async def test_a_hook_that_waits_holds_up_no_other_conversation() -> None:
    """L7: a hook that is not async runs in a thread."""
    spoken = threading.Event()

    def wait(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(f"Heard: {spoken.wait(30)}")

    def speak(turn: Turn, reply: AIMessage) -> AIMessage:
        spoken.set()
        return reply

    async def said_with(hook: Hook) -> str:
        spec = hooked("h", ann={"tools": ()})
        model = ScriptedChatModel(script=["One.", "Two."])
        found = await aconverse(spec, model=model, hooks={"h": hook}, store="memory:")
        return found.transcript[0][1]

    waits, speaks = Hook(after_speaker=wait), Hook(after_speaker=speak)
    heard, one = await asyncio.gather(said_with(waits), said_with(speaks))
    assert (heard, one) == ("Heard: True", "One.")


def shortened(context: dict[str, Any]) -> Result:
    """Run Ann with a short history and a hook that puts the messages she hears into brackets."""
    spec = talk(
        {
            "name": "Ann",
            "hooks": ["h"],
            "context": context,
            "private_opening": {"lines": ["You like beans."]},
        },
        "Bob",
        rounds=6,
    )
    words = ("one", "two", "three", "four", "five", "six")
    said = [f"{name} says {word}." for word in words for name in ("Ann", "Bob")]
    hook = Hook(before_speaker=lambda turn: HumanMessage(f"({turn.heard})"))
    result, model = play(spec, said, hooks={"h": hook})
    for number, call in enumerate(model.calls[2::2]):
        assert texts(call)[-1].endswith(f"(Bob says {words[number]}.)")
        assert "((" not in str(texts(call))
    return result


@pytest.mark.part(1)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_hook_is_given_what_was_heard_and_not_what_a_short_history_puts_before_it(
    limit: int,
) -> None:
    """L7: pinned messages come before the newest line, and hooks do not see them again."""
    result = shortened({"kind": "last", "limit": limit})
    heard = [message.text for message in of_kind(result.messages, "hook_version")]
    assert heard[0] == f"(You like beans.\n\n{BEGIN})"
    assert heard[1:] == [f"(Bob says {word}.)" for word in ("one", "two", "three", "four", "five")]
