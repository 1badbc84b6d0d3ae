"""Hooks around a speaker and its tools: the data they see, change and return, and the log."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from pydantic import BaseModel

from duologue.graphs import Reason, Session, SpecError, converse
from duologue.nodes.testing import Line as Said, ScriptedChatModel
from duologue.tools import Hook, Turn
from support.log import Source, fields_of, of_kind, place_of, without_ids
from support.prompts import PROMPTS, fill
from support.results import outcome_of
from support.shape_help import kinds, shown, talk, texts
from support.tables import each_row

from .hooks_help import BEGIN, adding, calling, either, hooked, in_form, play, raising

# Before a speaker.


@either
def test_a_hook_changes_what_its_speaker_hears(form: str) -> None:
    """L7: the change applies to all later prompts of this speaker, and to no other speaker's."""

    def whisper(turn: Turn) -> HumanMessage:
        return HumanMessage(f"({turn.heard})")

    spec = talk("Ann", {"name": "Bob", "hooks": ["whisper"]}, rounds=2)
    said = ["Beans?", "Which?", "Runner beans.", "Good."]
    result, model = play(spec, said, hooks={"whisper": in_form(Hook(before_speaker=whisper), form)})
    assert texts(model.calls[1]) == ["u:(Beans?)"]
    assert texts(model.calls[3]) == ["u:(Beans?)", "a:Which?", "u:(Runner beans.)"]
    assert shown(result.viewpoint("Bob")[1:]) == [*texts(model.calls[3]), "a:Good."]
    assert [text for _, text in result.transcript] == said
    assert shown(result.viewpoint("Ann")[1:]) == [
        *(f"u:{BEGIN}", "a:Beans?", "u:Which?", "a:Runner beans.", "u:Good."),
    ]
    # The log keeps the original message and the speaker's version of it.
    first, second = of_kind(result.messages, "hook_version")
    assert [first.text, second.text] == ["(Beans?)", "(Runner beans.)"]
    assert [fields_of(one).audience for one in (first, second)] == [("Bob",)] * 2
    ids = {str(message.text): place_of(message) for message in of_kind(result.messages, "speech")}
    assert [fields_of(one).instead_of for one in (first, second)] == [
        *((ids["Beans?"],), (ids["Runner beans."],)),
    ]


def test_what_all_said_since_and_what_the_speaker_is_told_is_changed_as_one() -> None:
    """L7: the speaker hears labels and its prefix, so hooks see them, too."""

    def loud(turn: Turn) -> HumanMessage:
        return HumanMessage(turn.heard.upper())

    spec = talk(
        "Ann", "Bob", {"name": "Cid", "hooks": ["loud"], "prefixes": {"Bob": "Mark this: "}}
    )
    _, model = play(spec, ["One.", "Two.", "Three."], hooks={"loud": Hook(before_speaker=loud)})
    told = fill(PROMPTS["your_turn"], name="Cid")
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
    assert seen == [BEGIN]
    assert without_ids(result.messages) == without_ids(plain.messages)
    assert texts(model.calls[0]) == [f"u:{BEGIN}"]


@either
def test_a_hook_gives_the_reply_instead(form: str) -> None:
    """A10: no model is asked, no later hook runs, and the reply is read by the format."""
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
    assert result.transcript == [("Ann", "Note: ten"), ("Bob", "Hi.")]
    spoken = fields_of(of_kind(result.messages, "speech")[0])
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
    said = f"You say: {BEGIN} Now!"
    assert result.transcript[0] == ("Ann", f"{said} (signed)")
    assert kinds(result) == ["instruction", "hook_version", "unheard_reply", "speech", "speech"]
    assert of_kind(result.messages, "unheard_reply")[0].text == said


# After a speaker.


@either
def test_a_hook_changes_what_is_said(form: str) -> None:
    """L7: all speakers hear the hook's version; the log keeps both, each under its own kind."""

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(f"{reply.text} — {turn.speaker}")

    hooks = {"sign": in_form(Hook(after_speaker=sign), form)}
    said = ["Beans?", "Which?", "Runner.", "Good."]
    result, model = play(hooked("sign", rounds=2), said, hooks=hooks)
    assert [text for name, text in result.transcript if name == "Ann"] == [
        *("Beans? — Ann", "Runner. — Ann"),
    ]
    assert texts(model.calls[1]) == ["u:Beans? — Ann"]
    assert texts(model.calls[2])[1:] == ["a:Beans? — Ann", "u:Which?"]
    answers = of_kind(result.messages, "unheard_reply")
    assert [message.text for message in answers] == ["Beans?", "Runner."]
    assert [fields_of(message).audience for message in answers] == [(), ()]
    for name in ("Ann", "Bob"):
        view = shown(result.viewpoint(name))
        assert not any(text in {"a:Beans?", "u:Beans?"} for text in view)
    assert outcome_of(result).messages == 4


def test_the_hooks_behind_a_speaker_see_what_each_other_made_of_it_in_their_order() -> None:
    """L7: hooks run in the order in which the speaker names them."""

    def adds(letter: str) -> Hook:
        return Hook(
            before_speaker=lambda turn: HumanMessage(turn.heard + letter),
            after_speaker=lambda turn, reply: AIMessage(reply.text + letter),
        )

    hooks = {letter: adds(letter) for letter in "xyz"}
    result, model = play(hooked("z", "x", "y"), ["Hello ", "Hi."], hooks=hooks)
    assert texts(model.calls[0]) == [f"u:{BEGIN}zxy"]
    assert result.transcript[0] == ("Ann", "Hello zxy")


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
    assert kinds(result) == ["instruction", "hook_version", "unheard_reply", "speech", "speech"]


def test_what_all_hear_is_what_counts() -> None:
    """A done token that a hook removes ends nothing; one that a hook adds ends the conversation."""
    end_chat = {"when": {"kind": "done_token", "token": "DONE"}, "allow_unanswered_end": True}
    spec = hooked("mend", rounds=3, end_chat=end_chat)

    def mend(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage({"DONE": "Not yet.", "Then:": "DONE"}.get(reply.text, reply.text))

    result, _ = play(spec, ["DONE", "Why?", "Then:"], hooks={"mend": Hook(after_speaker=mend)})
    assert [text for _, text in result.transcript] == ["Not yet.", "Why?", "DONE"]
    assert outcome_of(result).reasons[0] is Reason.DONE_TOKEN


def test_hooks_see_no_rejected_draft_but_the_reply_that_mends_it() -> None:
    """L7: a message that was changed for the speaker stays changed in the second request."""
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
    assert result.transcript[0] == ("Ann", "Note: ten!")
    assert kinds(result) == [
        "instruction",
        "hook_version",
        "draft",
        "unheard_reply",
        "speech",
        "speech",
    ]
    assert texts(model.calls[1])[:2] == ["u:Changed.", "a:ten"]
    assert fields_of(of_kind(result.messages, "speech")[0]).parsed == {"Note:": "ten!"}


@each_row("what_is_wrong_is_what_is_wrong_with_what_all_hear")
def test_what_is_wrong_is_what_is_wrong_with_what_all_hear(
    answers: list[Said], made: str | None, flaw: str | None
) -> None:
    """L7: the guards check the changed message, so a part that a hook repaired is not flipped."""

    def mend(turn: Turn, reply: AIMessage) -> AIMessage | None:
        return None if made is None else AIMessage(made)

    result, _ = play(hooked("h"), [*answers, "So."], hooks={"h": Hook(after_speaker=mend)})
    spoken = fields_of(of_kind(result.messages, "speech")[0])
    assert spoken.flaw == flaw
    assert (spoken.problem is None) is (flaw is None)


def halved(message: type[BaseMessage]) -> Any:  # noqa: ANN401
    """Return a message with a lone surrogate, which has no encoding."""
    return message(content="").model_copy(update={"content": "half: \ud83d"})


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("hook", "asked", "kind"),
    [
        (Hook(before_speaker=lambda turn: halved(HumanMessage)), 2, "hook_version"),
        (Hook(before_speaker=lambda turn: halved(AIMessage)), 1, "speech"),
        (Hook(after_speaker=lambda turn, reply: halved(AIMessage)), 2, "speech"),
    ],
    ids=["heard", "instead", "after"],
)
def test_half_a_character_that_a_hook_gives_is_shown_as_a_question_mark(
    hook: Hook, asked: int, kind: str
) -> None:
    """L7: the same applies to a model's half characters."""
    result, _ = play(hooked("h"), ["Hello.", "Hi."][-asked:], hooks={"h": hook})
    assert of_kind(result.messages, kind)[0].text == "half: ?"


def test_a_hook_that_leaves_nothing_makes_a_blank_reply() -> None:
    spec = talk({"name": "Ann", "hooks": ["h"]}, {"name": "Bob", "hooks": ["h"]}, rounds=4)
    hook = Hook(after_speaker=lambda turn, reply: AIMessage(""))
    result, _ = play(spec, ["One.", "Two."], hooks={"h": hook})
    assert outcome_of(result).reasons[0] is Reason.BLANK_REPLIES


class Offer(BaseModel):
    price: int


def test_a_hook_changes_a_structured_reply_and_it_is_read_as_changed() -> None:
    hook = Hook(after_speaker=lambda turn, reply: AIMessage(reply.text.replace("10", "20")))
    spec = hooked("h", ann={"tools": [], "format": {"kind": "schema", "name": "offer"}})
    result, _ = play(spec, [Offer(price=10), "Fine."], hooks={"h": hook}, schemas={"offer": Offer})
    assert fields_of(of_kind(result.messages, "speech")[0]).parsed == {"price": 20}


# Copies.


def meddler() -> Hook:
    """Return a hook that changes all its arguments and returns nothing."""

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
    """L7: hooks get copies; only their return values count."""
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
    assert result.transcript == plain.transcript
    assert seen == ["Let me see.", "Sum.", "Again."]
    assert spec == hooked("meddler", "see", rounds=2, ann={"examples": examples})


# Taking hooks away.


def test_a_hook_that_is_given_as_none_is_gone() -> None:
    """L7: speakers that name the hook continue without it."""
    result, _ = play(
        hooked("sign", "other"), ["Hello.", "Hi."], hooks={"sign": None, "other": Hook()}
    )
    assert kinds(result) == ["instruction", "speech", "speech"]


@pytest.mark.part(1)
@pytest.mark.parametrize("event", ["answered", "ran"])
def test_a_session_that_waits_for_a_hook_goes_on_without_it(event: str, tmp_path: Path) -> None:
    """L7: this applies to a session resumed with None, and to one forked without hooks."""
    point = "after_speaker" if event == "answered" else "after_tool"
    script: list[Said] = [calling(1, 2), "Sum.", "Ok."] if event == "ran" else ["Sum.", "Ok."]
    model = ScriptedChatModel(script=script)
    store = tmp_path / "s.db"
    options: dict[str, Any] = {"model": model, "tools": [adding()]}
    hooks = {"h": Hook(**{point: raising("no")})}
    with pytest.raises(SpecError, match="no"):
        converse(hooked("h"), session="one", hooks=hooks, store=store, **options)
    calls = len(model.calls)
    Session("one", store=tmp_path / "s.db").fork(into="two", speakers={"Ann": {"hooks": []}})
    result = Session("one", store=store).resume(hooks={"h": None}, **options)
    assert len(model.calls) == len(script)
    again = ScriptedChatModel(script=script[calls:])
    forked = Session("two", store=store).resume(**options | {"model": again})
    assert result.transcript == forked.transcript == [("Ann", "Sum."), ("Bob", "Ok.")]
    if event == "ran":
        assert [one.text for one in of_kind(result.messages, "tool_result")] == ["3"]
