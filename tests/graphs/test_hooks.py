"""Hooks around a speaker and its tools: what they see, change and give, and what the log keeps."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, tool
from logs import without_ids
from pydantic import BaseModel

from duologue.graphs import (
    Conversation,
    Reason,
    Result,
    SpecError,
    aconverse,
    converse,
    fork,
    get_session,
    replay,
    resume,
    stop_session,
    stream,
)
from duologue.graphs.log.kinds import Kind
from duologue.graphs.log.messages import Flaw, Source, line, place_of
from duologue.graphs.run.events import (
    Event,
    MessageSaid,
    ReplyRejected,
    Token,
    ToolAnswered,
    ToolCalled,
)
from duologue.nodes.prompts import speaking
from duologue.nodes.prompts.template import filled
from duologue.nodes.testing import Line as Said, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn

from .shape_help import kinds, never, of_kind, play as played, shown, talk, texts

POINTS = ("before_speaker", "after_speaker", "before_tool", "after_tool")


def hooked(*hooks: str, rounds: int = 1, ann: dict[str, Any] | None = None, **fields: Any) -> Any:  # noqa: ANN401
    """Ann, who has these hooks and a tool, and Bob."""
    given = {"name": "Ann", "hooks": hooks, "tools": ["add"]} | (ann or {})
    return talk(given, "Bob", rounds=rounds, **fields)


def adding(ran: list[tuple[int, int]] | None = None) -> BaseTool:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        if ran is not None:
            ran.append((a, b))
        return a + b

    return add


def calling(a: Any, b: Any, call_id: str = "c1", text: str = "") -> Reply:  # noqa: ANN401
    return Reply(text=text, tool_calls=[called(a, b, call_id)])


def called(a: Any, b: Any, call_id: str = "c1") -> ScriptedToolCall:  # noqa: ANN401
    return ScriptedToolCall(name="add", args={"a": a, "b": b}, id=call_id)


def later(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The same function as a coroutine."""
    if function is None:
        return None

    async def slowly(*given: Any) -> Any:  # noqa: ANN401
        await asyncio.sleep(0)
        found = function(*given)
        return await found if isawaitable(found) else found

    return slowly


def play(
    spec: Conversation,
    script: Sequence[Said],
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    """Run it with the tool."""
    return played(spec, script, **{"tools": [adding()]} | options)


def in_form(hook: Hook, form: str) -> Hook:
    if form == "sync":
        return hook
    return Hook(**{point: later(getattr(hook, point)) for point in POINTS})


def raising(words: str) -> Callable[..., Any]:
    def fails(*given: object) -> None:
        raise OSError(words)

    return fails


either = pytest.mark.parametrize("form", ["sync", "async"])


# Before a speaker.


@either
def test_a_hook_changes_what_its_speaker_hears(form: str) -> None:
    """L7: in its prompts from then on, and for nobody else."""

    def whisper(turn: Turn) -> HumanMessage:
        return HumanMessage(f"({turn.heard})")

    spec = talk("Ann", {"name": "Bob", "hooks": ["whisper"]}, rounds=2)
    said = ["Beans?", "Which?", "Runner beans.", "Good."]
    result, model = play(spec, said, hooks={"whisper": in_form(Hook(before_speaker=whisper), form)})
    assert texts(model.calls[1]) == ["u:(Beans?)"]
    assert texts(model.calls[3]) == ["u:(Beans?)", "a:Which?", "u:(Runner beans.)"]
    assert shown(result.viewpoint("Bob")[1:]) == [*texts(model.calls[3]), "a:Good."]
    assert [text for _, text in result.speeches] == said
    assert shown(result.viewpoint("Ann")[1:]) == [
        *(f"u:{speaking.BEGIN}", "a:Beans?", "u:Which?", "a:Runner beans.", "u:Good."),
    ]
    # The log keeps what was said, and says what the speaker heard in its place.
    first, second = of_kind(result, Kind.HEARD)
    assert [first.text, second.text] == ["(Beans?)", "(Runner beans.)"]
    assert [line(one).audience for one in (first, second)] == [("Bob",)] * 2
    ids = {str(message.text): place_of(message) for message in of_kind(result, Kind.SPEECH)}
    assert [line(one).instead_of for one in (first, second)] == [
        *((ids["Beans?"],), (ids["Runner beans."],)),
    ]


def test_what_all_said_since_and_what_the_speaker_is_told_is_changed_as_one() -> None:
    """L7: labels and the speaker's prefix are part of what it hears."""

    def loud(turn: Turn) -> HumanMessage:
        return HumanMessage(turn.heard.upper())

    spec = talk(
        "Ann", "Bob", {"name": "Cid", "hooks": ["loud"], "prefixes": {"Bob": "Mark this: "}}
    )
    _, model = play(spec, ["One.", "Two.", "Three."], hooks={"loud": Hook(before_speaker=loud)})
    told = filled(speaking.YOUR_TURN, name="Cid")
    assert texts(model.calls[2]) == [f"u:{f'Ann: One.{2 * chr(10)}Mark this: Bob: Two.'.upper()}"
                                     f"\n\n{told.upper()}"]  # fmt: skip


def test_a_hook_that_leaves_all_as_it_is_leaves_nothing_in_the_log() -> None:
    """L7."""
    seen: list[str] = []

    def note(turn: Turn) -> None:
        seen.append(turn.heard)

    def same(turn: Turn) -> HumanMessage:
        return HumanMessage(turn.heard)

    hooks = {"note": Hook(before_speaker=note), "same": Hook(before_speaker=same)}
    result, model = play(hooked("note", "same"), ["Hello.", "Hi."], hooks=hooks)
    plain, _ = play(hooked(), ["Hello.", "Hi."])
    assert seen == [speaking.BEGIN]
    assert without_ids(result.messages) == without_ids(plain.messages)
    assert texts(model.calls[0]) == [f"u:{speaking.BEGIN}"]


@either
def test_a_hook_gives_the_reply_instead(form: str) -> None:
    """A10: no model is asked, and nothing behind it is run; the reply is read by the format."""
    ran: list[str] = []

    def instead(turn: Turn) -> AIMessage:
        return AIMessage("Note: ten")

    def note(turn: Turn) -> None:
        ran.append(turn.speaker)

    hooks = {
        "instead": in_form(Hook(before_speaker=instead), form),
        "note": Hook(before_speaker=note),
    }
    spec = hooked("instead", "note", ann={"tools": [], "format": {"lines": ["Note:"]}})
    result, model = play(spec, ["Hi."], hooks=hooks)
    assert result.speeches == [("Ann", "Note: ten"), ("Bob", "Hi.")]
    spoken = line(of_kind(result, Kind.SPEECH)[0])
    assert (spoken.source, spoken.parsed) == (Source.HOOK, {"Note:": "ten"})
    assert texts(model.calls[0]) == ["u:Note: ten"]
    assert ran == []


def test_a_reply_that_a_hook_gives_is_heard_as_it_was_changed_and_passes_the_hooks_behind() -> None:
    hooks = {
        "change": Hook(before_speaker=lambda turn: HumanMessage(f"{turn.heard} Now!")),
        "answer": Hook(before_speaker=lambda turn: AIMessage(f"You say: {turn.heard}")),
        "sign": Hook(after_speaker=lambda turn, reply: AIMessage(f"{reply.text} (signed)")),
    }
    result, _ = play(hooked("change", "answer", "sign"), ["Hi."], hooks=hooks)
    said = f"You say: {speaking.BEGIN} Now!"
    assert result.speeches[0] == ("Ann", f"{said} (signed)")
    assert kinds(result) == ["instruction", "heard", "answer", "speech", "speech"]
    assert of_kind(result, Kind.ANSWER)[0].text == said


# After a speaker.


@either
def test_a_hook_changes_what_is_said(form: str) -> None:
    """L7: all hear what it made of the answer; the log keeps both, as what they are."""

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(f"{reply.text} — {turn.speaker}")

    hooks = {"sign": in_form(Hook(after_speaker=sign), form)}
    said = ["Beans?", "Which?", "Runner.", "Good."]
    result, model = play(hooked("sign", rounds=2), said, hooks=hooks)
    assert [text for name, text in result.speeches if name == "Ann"] == [
        *("Beans? — Ann", "Runner. — Ann"),
    ]
    assert texts(model.calls[1]) == ["u:Beans? — Ann"]
    assert texts(model.calls[2])[1:] == ["a:Beans? — Ann", "u:Which?"]
    answers = of_kind(result, Kind.ANSWER)
    assert [message.text for message in answers] == ["Beans?", "Runner."]
    assert [line(message).audience for message in answers] == [(), ()]
    for name in ("Ann", "Bob"):
        view = shown(result.viewpoint(name))
        assert not any(text in {"a:Beans?", "u:Beans?"} for text in view)
    assert result.outcome is not None
    assert result.outcome.messages == 4


def test_the_hooks_behind_a_speaker_see_what_each_other_made_of_it_in_their_order() -> None:
    """L7: in the order in which the speaker names them."""

    def adds(letter: str) -> Hook:
        return Hook(
            before_speaker=lambda turn: HumanMessage(turn.heard + letter),
            after_speaker=lambda turn, reply: AIMessage(reply.text + letter),
        )

    hooks = {letter: adds(letter) for letter in "xyz"}
    result, model = play(hooked("z", "x", "y"), ["Hello ", "Hi."], hooks=hooks)
    assert texts(model.calls[0]) == [f"u:{speaking.BEGIN}zxy"]
    assert result.speeches[0] == ("Ann", "Hello zxy")


def test_the_hook_behind_a_speaker_is_given_what_the_speaker_saw() -> None:
    turns: list[Turn] = []

    def note(turn: Turn, reply: AIMessage) -> None:
        turns.append(turn)

    hooks = {
        "change": Hook(before_speaker=lambda turn: HumanMessage("Changed.")),
        "note": Hook(after_speaker=note),
    }
    result, model = play(hooked("change", "note"), ["Hello.", "Hi."], session="s9", hooks=hooks)
    (turn,) = turns
    assert (turn.session, turn.speaker, turn.heard) == ("s9", "Ann", "Changed.")
    assert shown(turn.messages) == shown(model.calls[0].messages)
    assert kinds(result) == ["instruction", "heard", "answer", "speech", "speech"]


def test_what_all_hear_is_what_counts() -> None:
    """A done token that a hook takes out ends nothing, and one that it puts in ends it."""
    spec = hooked("mend", rounds=3, end_chat={"when": {"kind": "done_token", "token": "DONE"}})

    def mend(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage({"DONE": "Not yet.", "Then:": "DONE"}.get(reply.text, reply.text))

    result, _ = play(spec, ["DONE", "Why?", "Then:"], hooks={"mend": Hook(after_speaker=mend)})
    assert [text for _, text in result.speeches] == ["Not yet.", "Why?", "DONE"]
    assert result.outcome is not None
    assert result.outcome.reasons[0] is Reason.DONE_TOKEN


def test_hooks_see_no_rejected_draft_but_the_reply_that_mends_it() -> None:
    """L7: what the speaker heard as changed stays so when it is asked once more."""
    seen: list[str] = []

    def note(turn: Turn, reply: AIMessage) -> AIMessage:
        seen.append(reply.text)
        return AIMessage(f"{reply.text}!")

    def change(turn: Turn) -> HumanMessage:
        return HumanMessage("Changed.")

    spec = hooked("h", ann={"format": {"lines": ["Note:"]}})
    hook = Hook(before_speaker=change, after_speaker=note)
    result, model = play(spec, ["ten", "Note: ten", "Hi."], hooks={"h": hook})
    assert seen == ["Note: ten"]
    assert result.speeches[0] == ("Ann", "Note: ten!")
    assert kinds(result) == ["instruction", "heard", "draft", "answer", "speech", "speech"]
    assert texts(model.calls[1])[:2] == ["u:Changed.", "a:ten"]
    assert line(of_kind(result, Kind.SPEECH)[0]).parsed == {"Note:": "ten!"}


@pytest.mark.parametrize(
    ("answers", "made", "flaw"),
    [
        pytest.param(["Bob: Hi.", "Bob: Hey."], "Hey.", None, id="mended"),
        pytest.param(["Bob: Hi.", "Bob: Hey."], None, Flaw.ROLE_FLIP, id="left"),
        pytest.param(["Hey."], "Bob: Hey.", Flaw.ROLE_FLIP, id="broken"),
        pytest.param(["Bob: Hi.", "Bob: Hey."], "Bob: Ho.", Flaw.ROLE_FLIP, id="no-better"),
    ],
)
def test_what_is_wrong_is_what_is_wrong_with_what_all_hear(
    answers: list[Said], made: str | None, flaw: Flaw | None
) -> None:
    """L7: the guards count what was said, so a part that a hook has mended is not flipped."""

    def mend(turn: Turn, reply: AIMessage) -> AIMessage | None:
        return None if made is None else AIMessage(made)

    result, _ = play(hooked("h"), [*answers, "So."], hooks={"h": Hook(after_speaker=mend)})
    spoken = line(of_kind(result, Kind.SPEECH)[0])
    assert spoken.flaw is flaw
    assert (spoken.problem is None) is (flaw is None)


def halved(message: type[BaseMessage]) -> Any:  # noqa: ANN401
    """A message with half a character, which no encoding has."""
    return message(content="").model_copy(update={"content": "half: \ud83d"})


@pytest.mark.parametrize(
    ("hook", "asked", "kind"),
    [
        (Hook(before_speaker=lambda turn: halved(HumanMessage)), 2, Kind.HEARD),
        (Hook(before_speaker=lambda turn: halved(AIMessage)), 1, Kind.SPEECH),
        (Hook(after_speaker=lambda turn, reply: halved(AIMessage)), 2, Kind.SPEECH),
    ],
    ids=["heard", "instead", "after"],
)
def test_half_a_character_that_a_hook_gives_is_shown_as_a_question_mark(
    hook: Hook, asked: int, kind: Kind
) -> None:
    """L7: as one that a model gives."""
    result, _ = play(hooked("h"), ["Hello.", "Hi."][-asked:], hooks={"h": hook})
    assert of_kind(result, kind)[0].text == "half: ?"


def test_a_hook_that_leaves_nothing_makes_a_blank_reply() -> None:
    spec = talk({"name": "Ann", "hooks": ["h"]}, {"name": "Bob", "hooks": ["h"]}, rounds=4)
    hook = Hook(after_speaker=lambda turn, reply: AIMessage(""))
    result, _ = play(spec, ["One.", "Two."], hooks={"h": hook})
    assert result.outcome is not None
    assert result.outcome.reasons[0] is Reason.BLANK_REPLIES


class Offer(BaseModel):
    price: int


def test_a_hook_changes_a_structured_reply_and_it_is_read_as_changed() -> None:
    hook = Hook(after_speaker=lambda turn, reply: AIMessage(reply.text.replace("10", "20")))
    spec = hooked("h", ann={"tools": [], "format": {"kind": "schema", "name": "offer"}})
    result, _ = play(spec, [Offer(price=10), "Fine."], hooks={"h": hook}, schemas={"offer": Offer})
    assert line(of_kind(result, Kind.SPEECH)[0]).parsed == {"price": 20}


# Around tools.


@either
def test_a_hook_changes_the_arguments_of_a_call(form: str) -> None:
    """L7: the log keeps the call as the speaker made it, and what the tool was run with."""
    ran: list[tuple[int, int]] = []

    def more(turn: Turn, call: ToolCall) -> ToolCall:
        return ToolCall(name=call["name"], args={**call["args"], "b": 40}, id=call["id"])

    hooks = {"more": in_form(Hook(before_tool=more), form)}
    script: list[Said] = [calling(1, 2), "Sum.", "Ok."]
    result, model = play(hooked("more"), script, hooks=hooks, tools=[adding(ran)])
    assert ran == [(1, 40)]
    (made,) = of_kind(result, Kind.TOOL_CALLS)
    assert isinstance(made, AIMessage)
    assert made.tool_calls[0]["args"] == {"a": 1, "b": 2}
    (answer,) = of_kind(result, Kind.TOOL_RESULT)
    assert (answer.text, line(answer).arguments) == ("41", {"a": 1, "b": 40})
    assert texts(model.calls[1])[-1] == "t:41"


@either
def test_a_hook_answers_a_call_instead_of_the_tool(form: str) -> None:
    """L7: the hooks behind it are not run; a failure is a failure."""
    ran: list[tuple[int, int]] = []
    seen: list[dict[str, Any]] = []

    def cached(turn: Turn, call: ToolCall) -> ToolMessage | None:
        if call["args"]["a"] == 1:
            return ToolMessage("cached", tool_call_id="any")
        return ToolMessage("refused", tool_call_id="any", status="error")

    def note(turn: Turn, call: ToolCall) -> None:
        seen.append(call["args"])

    hooks = {"cached": in_form(Hook(before_tool=cached), form), "note": Hook(before_tool=note)}
    script: list[Said] = [
        Reply(tool_calls=[called(1, 2, "c1"), called(3, 4, "c2")]),
        *("Sum.", "Ok."),
    ]
    result, model = play(hooked("cached", "note"), script, hooks=hooks, tools=[adding(ran)])
    assert (ran, seen) == ([], [])
    answers = of_kind(result, Kind.TOOL_RESULT)
    assert [(answer.text, line(answer).arguments) for answer in answers] == [
        *(("cached", None), ("refused", None)),
    ]
    assert [getattr(answer, "status", None) for answer in answers] == ["success", "error"]
    told = model.calls[1].prompt[-2:]
    assert [message["tool_call_id"] for message in told] == ["c1", "c2"]


@either
def test_a_hook_changes_the_result_of_a_call(form: str) -> None:
    """L7: it sees the call as it was run; the log keeps what the tool gave, too."""
    seen: list[tuple[dict[str, Any], str, str | None, str]] = []

    def before(turn: Turn, call: ToolCall) -> ToolCall:
        return ToolCall(name="add", args={"a": 5, "b": 5}, id=None)

    def after(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
        seen.append((call["args"], result.text, result.name, result.status))
        return ToolMessage(f"about {result.text}", tool_call_id="any")

    hooks = {"h": in_form(Hook(before_tool=before, after_tool=after), form)}
    script: list[Said] = [calling(1, 2), "Sum.", "Ok."]
    result, model = play(hooked("h"), script, hooks=hooks)
    assert seen == [({"a": 5, "b": 5}, "10", "add", "success")]
    (raw,), (answer,) = of_kind(result, Kind.ANSWER), of_kind(result, Kind.TOOL_RESULT)
    assert (raw.text, line(raw).audience) == ("10", ())
    assert (answer.text, line(answer).arguments) == ("about 10", {"a": 5, "b": 5})
    assert [message["content"] for message in model.calls[1].prompt[-1:]] == ["about 10"]
    assert "t:10" not in shown(result.viewpoint("Ann"))
    assert kinds(result) == [
        *("instruction", "tool_calls", "answer", "tool_result", "speech", "speech"),
    ]


def test_calls_whose_arguments_are_broken_stand_among_those_that_hooks_see() -> None:
    """L7, G3: each result stands with its call, in their order."""
    seen: list[str] = []

    def note(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
        seen.append(str(call["id"]))
        return ToolMessage(f"[{result.text}]", tool_call_id="", status=result.status)

    calls = [
        called(1, 2, "c1"),
        ScriptedToolCall(name="add", args="{a", id="c2"),
        called("x", 4, "c3"),
        ScriptedToolCall(name="sub", args={}, id="c4"),
        called(5, 6, "c5"),
    ]
    hooks = {"h": Hook(before_tool=lambda turn, call: None, after_tool=note)}
    result, model = play(
        hooked("h"), [Reply(tool_calls=calls), "So.", "Ok."], hooks=hooks, tools=[adding()]
    )
    assert seen == ["c1", "c3", "c4", "c5"]
    told = {message["tool_call_id"]: message["content"] for message in model.calls[1].prompt[-5:]}
    assert list(told) == ["c1", "c3", "c4", "c5", "c2"]
    assert told["c1"] == "[3]"
    assert told["c2"].startswith("The arguments of add are not valid JSON: ")
    assert told["c3"].startswith("[The arguments of add do not fit")
    assert told["c4"].startswith("[There is no tool 'sub'")
    assert told["c5"] == "[11]"
    states = [getattr(answer, "status", "") for answer in of_kind(result, Kind.TOOL_RESULT)]
    assert states == ["success", "error", "error", "success", "error"]


def test_hooks_around_a_tool_see_the_turn_and_the_words_beside_the_call() -> None:
    """L7: no made-up words stand for a call that has not run yet."""
    turns: dict[str, list[Turn]] = {"before": [], "after": []}
    hook = Hook(
        before_tool=lambda turn, call: turns["before"].append(turn),
        after_tool=lambda turn, call, result: turns["after"].append(turn),
    )
    script: list[Said] = [calling(1, 2), calling(3, 4, "c2", "Once more."), "Sum.", "Ok."]
    play(hooked("h"), script, hooks={"h": hook})
    for first, second in turns.values():
        assert shown(first.messages[1:]) == [f"u:{speaking.BEGIN}"]
        assert shown(second.messages[1:]) == [f"u:{speaking.BEGIN}", "a:", "t:3", "a:Once more."]


def test_what_is_said_beside_a_call_passes_the_hooks_too() -> None:
    """L7: others hear only the changed text; the call stays as it is."""
    seen: list[tuple[str, int]] = []

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        seen.append((reply.text, len(reply.tool_calls)))
        return AIMessage(f"{reply.text} — A.")

    script: list[Said] = [calling(1, 2, text="Let me see."), calling(3, 4, "c2"), "Sum.", "Ok."]
    result, model = play(
        hooked("h"), script, hooks={"h": Hook(after_speaker=sign)}, tools=[adding()]
    )
    # A call without words says nothing that a hook could change.
    assert seen == [("Let me see.", 1), ("Sum.", 0)]
    assert texts(model.calls[3]) == ["u:Let me see. — A.\n\nSum. — A."]
    assert texts(model.calls[1])[1:] == ["a:Let me see. — A.", "t:3"]
    answers = of_kind(result, Kind.ANSWER)
    assert [message.text for message in answers] == ["Let me see.", "Sum."]
    made = of_kind(result, Kind.TOOL_CALLS)
    assert [message.tool_calls[0]["id"] for message in made if isinstance(message, AIMessage)] == [
        *("c1", "c2"),
    ]


# Copies.


def meddler() -> Hook:
    """Changes all that it is given, and gives nothing."""

    def spoil(turn: Turn) -> None:
        for message in turn.messages:
            message.content = "spoilt"
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    call["args"]["a"] = 99
                message.tool_calls.clear()

    def after_speaker(turn: Turn, reply: AIMessage) -> None:
        spoil(turn)
        reply.content = "spoilt"
        reply.tool_calls.clear()

    def before_tool(turn: Turn, call: ToolCall) -> None:
        spoil(turn)
        call["args"]["a"] = 99

    def after_tool(turn: Turn, call: ToolCall, result: ToolMessage) -> None:
        spoil(turn)
        call["args"]["a"] = 99
        result.content = "spoilt"

    return Hook(
        before_speaker=spoil,
        after_speaker=after_speaker,
        before_tool=before_tool,
        after_tool=after_tool,
    )


def test_what_hooks_do_to_what_they_are_given_changes_nothing() -> None:
    """L7: they see copies; only what they give counts."""
    seen: list[str] = []

    def see(turn: Turn, reply: AIMessage) -> None:
        seen.append(reply.text)

    script: list[Said] = [
        *(calling(1, 2, text="Let me see."), "Sum.", "Ok."),
        *(calling(3, 4, "c2"), "Again.", "Fine."),
    ]
    examples = [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": "Hm!"}]
    spec = hooked("meddler", "see", rounds=2, ann={"examples": examples})
    hooks = {"meddler": meddler(), "see": Hook(after_speaker=see)}
    result, model = play(spec, script, hooks=hooks)
    plain, untouched = play(hooked(rounds=2, ann={"examples": examples}), script)
    assert [call.messages for call in model.calls] != []
    assert [shown(call.messages) for call in model.calls] == [
        shown(call.messages) for call in untouched.calls
    ]
    assert [call.prompt for call in model.calls] == [call.prompt for call in untouched.calls]
    assert result.speeches == plain.speeches
    assert seen == ["Let me see.", "Sum.", "Again."]
    assert spec == hooked("meddler", "see", rounds=2, ann={"examples": examples})


# Taking hooks away.


def test_a_hook_that_is_given_as_none_is_gone() -> None:
    """L7: who names it goes on without."""
    result, _ = play(
        hooked("sign", "other"), ["Hello.", "Hi."], hooks={"sign": None, "other": Hook()}
    )
    assert kinds(result) == ["instruction", "speech", "speech"]


@pytest.mark.parametrize("event", ["answered", "ran"])
def test_a_session_that_waits_for_a_hook_goes_on_without_it(event: str, tmp_path: Path) -> None:
    """L7: resumed with None, or forked without hooks."""
    point = "after_speaker" if event == "answered" else "after_tool"
    script: list[Said] = [calling(1, 2), "Sum.", "Ok."] if event == "ran" else ["Sum.", "Ok."]
    model = ScriptedChatModel(script=script)
    options: dict[str, Any] = {"store": tmp_path / "s.db", "model": model, "tools": [adding()]}
    hooks = {"h": Hook(**{point: raising("no")})}
    with pytest.raises(SpecError, match="no"):
        converse(hooked("h"), session="one", hooks=hooks, **options)
    calls = len(model.calls)
    fork("one", into="two", store=tmp_path / "s.db", speakers={"Ann": {"hooks": []}})
    result = resume("one", hooks={"h": None}, **options)
    assert len(model.calls) == len(script)
    again = ScriptedChatModel(script=script[calls:])
    forked = resume("two", **options | {"model": again})
    assert result.speeches == forked.speeches == [("Ann", "Sum."), ("Bob", "Ok.")]
    if event == "ran":
        assert [one.text for one in of_kind(result, Kind.TOOL_RESULT)] == ["3"]


# What fails.

WRONG: list[tuple[str, Any, str]] = [
    ("before_speaker", "text", "must give HumanMessage or AIMessage or None, not str"),
    ("after_speaker", HumanMessage("Hi."), "must give AIMessage or None, not HumanMessage"),
    ("after_speaker", "text", "must give AIMessage or None, not str"),
    ("before_tool", AIMessage("Hi."), "must give dict or ToolMessage or None, not AIMessage"),
    ("before_tool", {"name": "add", "id": "c1"}, "gave a call without args"),
    ("before_tool", {"name": "add", "args": [1], "id": "c1"}, "gave a call without args"),
    ("before_tool", {"name": "sub", "args": {}, "id": "c1"}, "gave a call of another tool, 'sub'"),
    (
        "before_tool",
        {"name": "add", "args": {"a": {1}}, "id": "c1"},
        "gave args that can't be taken: at a, a set is not JSON",
    ),
    (
        "before_tool",
        {"name": "add", "args": {"a": 2**64}, "id": "c1"},
        "gave args that can't be taken: at a, a whole number has more than 64 bits",
    ),
    (
        "before_tool",
        {"name": "add", "args": {"a": [float("nan")]}, "id": "c1"},
        "gave args that can't be taken: at a.0, a number is not finite",
    ),
    (
        "before_speaker",
        AIMessage("", tool_calls=[ToolCall(name="add", args={}, id="c9")]),
        "gave calls of tools, which are a model's",
    ),
    ("after_tool", "text", "must give ToolMessage or None, not str"),
]


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
    """L7, G7: it names hook and point; resuming asks no model and runs no tool again."""
    ran: list[tuple[int, int]] = []
    model = ScriptedChatModel(script=[calling(1, 2, text="Let me see."), "Sum.", "Ok."])
    options: dict[str, Any] = {
        "session": "s",
        "store": tmp_path / "s.db",
        "model": model,
        "tools": [adding(ran)],
    }

    def fails(*given_to_it: object) -> Any:  # noqa: ANN401
        if given is OSError:
            raise OSError("no luck")
        return given

    broken = in_form(Hook(**{point: fails}), form)
    for _ in range(2):
        with pytest.raises(SpecError) as caught:
            converse(hooked("broken"), hooks={"broken": broken}, **options)
        said = str(caught.value)
        assert said.startswith(f"the hook 'broken' failed in {point}: ")
        assert words in said
    calls = {"before_speaker": 0, "after_speaker": 1, "before_tool": 1, "after_tool": 1}
    assert len(model.calls) == calls[point]
    assert ran == ([(1, 2)] if point == "after_tool" else [])
    assert get_session("s", store=tmp_path / "s.db").outcome is None
    result = resume(hooks={"broken": Hook()}, **options)
    assert result.speeches == [("Ann", "Let me see."), ("Ann", "Sum."), ("Bob", "Ok.")]
    assert len(model.calls) == 3
    assert ran == [(1, 2)]


def test_one_of_several_tools_whose_hook_fails_costs_none_of_the_others(tmp_path: Path) -> None:
    """L7, G3: the hooks before all calls are run before any tool, and those behind after all."""
    ran: list[tuple[int, int]] = []
    both = Reply(tool_calls=[called(1, 2, "c1"), called(3, 4, "c2")])
    script: list[Said] = [both, "Sum.", "Ok."]
    model = ScriptedChatModel(script=script)
    options: dict[str, Any] = {
        "session": "s",
        "store": tmp_path / "s.db",
        "model": model,
        "tools": [adding(ran)],
    }

    def second(turn: Turn, call: ToolCall, *result: ToolMessage) -> None:
        if call["args"]["a"] == 3:
            raise OSError("no luck")

    with pytest.raises(SpecError, match="before_tool"):
        converse(hooked("h"), hooks={"h": Hook(before_tool=second)}, **options)
    assert ran == []
    with pytest.raises(SpecError, match="after_tool"):
        resume(hooks={"h": Hook(after_tool=second)}, **options)
    assert sorted(ran) == [(1, 2), (3, 4)]
    result = resume(hooks={"h": Hook()}, **options)
    assert sorted(ran) == [(1, 2), (3, 4)]
    assert [one.text for one in of_kind(result, Kind.TOOL_RESULT)] == ["3", "7"]
    assert len(model.calls) == 3


def test_a_model_that_fails_behind_a_hook_is_asked_again_with_the_hook_run_again(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel(script=[Reply(error=500), "Hello.", "Hi."])
    options: dict[str, Any] = {"session": "s", "store": tmp_path / "s.db", "model": model}
    hooks = {"h": Hook(before_speaker=lambda turn: HumanMessage(f"({turn.heard})"))}
    with pytest.raises(Exception, match="500"):
        converse(hooked("h"), hooks=hooks, tools=[adding()], **options)
    result = resume(hooks=hooks, tools=[adding()], **options)
    assert texts(model.calls[1]) == [f"u:({speaking.BEGIN})"]
    assert kinds(result) == ["instruction", "heard", "speech", "speech"]


# In the stream.


def streamed(spec: Conversation, script: Sequence[Said], **options: Any) -> list[Event]:
    model = ScriptedChatModel(script=script)
    return list(stream(spec, model=model, store=f"memory:{uuid4().hex}", **options))


def test_what_hooks_will_see_is_not_streamed_and_what_they_leave_is() -> None:
    """L7, G2: nobody reads words that are said otherwise in the end."""

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(reply.text.replace("secret", "***"))

    script: list[Said] = [calling(1, 2, text="A secret."), "My secret sum.", "Very well."]
    found = streamed(hooked("h"), script, hooks={"h": Hook(after_speaker=sign)}, tools=[adding()])
    tokens = [event for event in found if isinstance(event, Token)]
    assert {event.speaker for event in tokens} == {"Bob"}
    assert "".join(event.text for event in tokens) == "Very well."
    said = [event.text for event in found if isinstance(event, MessageSaid)]
    assert said == ["A ***.", "My *** sum.", "Very well."]
    assert "secret" not in str(found)


def test_a_speaker_whose_hooks_only_come_before_is_streamed() -> None:
    hooks = {"h": Hook(before_speaker=lambda turn: None, after_tool=lambda *given: None)}
    found = streamed(hooked("h"), ["A secret.", "Fine."], hooks=hooks, tools=[adding()])
    tokens = [event.text for event in found if isinstance(event, Token) and event.speaker == "Ann"]
    assert "".join(tokens) == "A secret."


def test_the_stream_tells_of_each_call_and_result_once_as_they_ended_up() -> None:
    """G7: no event tells of what hooks have yet to see."""
    hook = Hook(
        before_speaker=lambda turn: HumanMessage("Changed."),
        after_speaker=lambda turn, reply: AIMessage(f"{reply.text}!"),
        before_tool=lambda turn, call: {**call, "args": {"a": 5, "b": 5}},
        after_tool=lambda turn, call, result: ToolMessage("ten", tool_call_id=""),
    )
    script: list[Said] = [" ", calling(1, 2, text="Hm."), "Sum.", "Ok."]
    found = streamed(hooked("h"), script, hooks={"h": hook}, tools=[adding()])
    told = (ReplyRejected, ToolCalled, ToolAnswered, MessageSaid)
    assert [event.event for event in found if isinstance(event, told)] == [
        *("rejected", "message", "tool_call", "tool_result", "message", "message"),
    ]
    (answered,) = [event for event in found if isinstance(event, ToolAnswered)]
    assert answered.text == "ten"


# With all else that a turn may hold.


def test_hooks_see_private_openings_and_opening_answers() -> None:
    """L7, Y4, Y16: what was made up or answered alone stays so, as changed."""
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
    # The shift hands on what was said.
    assert texts(model.calls[3]) == ["u:Guess it.", "a:I guess.", "u:I keep it. So."]
    assert [line(one).audience for one in of_kind(result, Kind.SPEECH)] == [
        *(("Ann",), ("Ann",), ("Bob",), None, None),
    ]
    assert "Seven" not in str(result.viewpoint("Bob"))


@pytest.mark.parametrize("form", ["structured", "two_questions"])
def test_a_speaker_judges_itself_by_what_it_heard_and_said_in_the_end(form: str) -> None:
    """L7, Y9: no hook sees the verdict."""
    spec = talk(
        {"name": "Ann", "hooks": ["h"], "stops_chat": True, "keep_reflection": True},
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
    assert asked[:2] == [f"u:({speaking.BEGIN})", "a:One.!"]
    assert "u:(Two.)" in asked
    assert "a:Three.!" in asked
    assert result.outcome is not None
    assert result.outcome.reason is Reason.COMPLETED


def test_a_hard_stop_between_answer_and_hook_still_says_the_message() -> None:
    """L7: what is answered and paid for is heard before it ends."""
    hooks = {"h": Hook(after_speaker=lambda turn, reply: AIMessage(f"{reply.text}!"))}
    spec = hooked("h", rounds=3, end_chat={"when": {"kind": "max_calls", "limit": 3}})
    script = ["One.", "Two.", "Three."]
    result, _ = play(spec, script, hooks=hooks)
    assert [text for _, text in result.speeches] == ["One.!", "Two.", "Three.!"]
    assert result.outcome is not None
    assert result.outcome.reason is Reason.MAX_CALLS


def test_a_hard_stop_between_tool_and_hook_comes_behind_the_hook() -> None:
    hook = Hook(after_tool=lambda turn, call, result: ToolMessage("three", tool_call_id=""))
    spec = hooked("h", end_chat={"when": {"kind": "max_seconds", "limit": 1e-9}})
    # The first step uses up the time, so only what is already answered goes on.
    result, _ = play(spec, [], hooks={"h": hook})
    assert result.outcome is not None
    assert result.outcome.reason is Reason.MAX_SECONDS
    spec = hooked("h", end_chat={"when": {"kind": "max_calls", "limit": 1}})
    result, _ = play(spec, [calling(1, 2)], hooks={"h": hook})
    # The call is answered, so it is said; it has not run, so it does not run any more.
    assert kinds(result) == ["instruction", "tool_calls"]


def test_a_stop_that_is_asked_for_in_a_hook_ends_it_after_the_turn(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    def stop(turn: Turn, reply: AIMessage) -> AIMessage:
        assert turn.session is not None
        stop_session(turn.session, store=store)
        return AIMessage(f"{reply.text}!")

    hooks = {"h": Hook(after_speaker=stop)}
    result, _ = play(hooked("h", rounds=3), ["One."], hooks=hooks, session="s", store=store)
    assert result.speeches == [("Ann", "One.!")]
    assert result.outcome is not None
    assert result.outcome.reason is Reason.STOP_REQUESTED


async def test_a_hook_that_waits_holds_up_no_other_conversation() -> None:
    """L7: one that is not async runs in a thread."""
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
        return found.speeches[0][1]

    waits, speaks = Hook(after_speaker=wait), Hook(after_speaker=speak)
    heard, one = await asyncio.gather(said_with(waits), said_with(speaks))
    assert (heard, one) == ("Heard: True", "One.")


def test_a_session_with_hooks_is_replayed_without_a_model() -> None:
    """The hooks run again, on the answers that were recorded."""
    store = f"memory:{uuid4().hex}"
    hook = Hook(
        before_speaker=lambda turn: HumanMessage(f"({turn.heard})"),
        after_speaker=lambda turn, reply: AIMessage(f"{reply.text}!"),
        after_tool=lambda turn, call, result: ToolMessage("three", tool_call_id=""),
    )
    registered: Any = {"hooks": {"h": hook}, "tools": [adding()]}
    script: list[Said] = ["", calling(1, 2, text="Hm."), "Sum.", "Ok."]
    first, _ = play(hooked("h"), script, session="one", store=store, **registered)
    assert replay("one", store=store, **registered).speeches == first.speeches


def shortened(context: dict[str, Any]) -> Result:
    """Ann's history is cut, and a hook puts what she hears into brackets."""
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


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_hook_is_given_what_was_heard_and_not_what_a_short_history_puts_before_it(
    limit: int,
) -> None:
    """L7: what is pinned stands in front of the newest line, and is not heard anew."""
    result = shortened({"kind": "last", "limit": limit})
    heard = [message.text for message in of_kind(result, Kind.HEARD)]
    assert heard[0] == f"(You like beans.\n\n{speaking.BEGIN})"
    assert heard[1:] == [f"(Bob says {word}.)" for word in ("one", "two", "three", "four", "five")]


def test_hooks_that_are_not_registered_show_before_any_call() -> None:
    with pytest.raises(
        SpecError, match=r"speakers\.0\.hooks: there is no hook 'sing'; did you mean 'sign'"
    ):
        converse(
            hooked("sing"),
            hooks={"sign": Hook()},
            tools=[adding()],
            model=never(),
            store="memory:unknown-hook",
        )
