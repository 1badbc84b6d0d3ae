"""R3: a reply that ends at its token limit is marked, and continued if configured so."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from duologue.graphs import (
    Conversation,
    Result,
    Session,
    SpecError,
    coder,
    load_conversation,
    stream,
    user_proxy,
)
from duologue.graphs.events import CodeStarted, Event, MessageSaid, ReplyRejected
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook
from support.cli_help import duologue, isolate
from support.log import fields_of, kind_of
from support.people_help import Played, play
from support.results import outcome_of
from support.shape_help import tokens_by_message
from support.tables import each_row

MARKS = {"lines": ["Instruction:", "Input:"], "end": "Next."}


def cut(text: str, *called: ScriptedToolCall) -> Reply:
    return Reply(text=text, tool_calls=called, finish_reason="length")


def talk(rounds: int = 1, **ann: Any) -> Conversation:
    people = [{"name": "Ann"} | ann, {"name": "Bob"}]
    end_chat = {"max_iterations": rounds}
    return load_conversation({"task": "Plan.", "speakers": people, "end_chat": end_chat})


def asked(played: Played) -> list[str]:
    """Return the last line of each prompt."""
    return [prompt[-1]["content"] for prompt in played.prompts]


def cut_off(result: Result) -> list[bool]:
    return [fields_of(one).cut_off for one in result.messages if kind_of(one) == "speech"]


def events_of(conversation: Conversation, *script: Line) -> list[Event]:
    return [*stream(conversation, model=ScriptedChatModel(script=[*script]), store="memory:")]


def drafts(result: Result) -> list[str]:
    return [one.text for one in result.messages if kind_of(one) == "draft"]


def test_it_is_marked_in_the_log_and_the_events_and_no_view_changes() -> None:
    """R3."""
    script: list[Line] = [cut("Once upon a ti"), "Fine."]
    played = play(talk(), script)
    result = played.result
    assert cut_off(result) == [True, False]
    assert played.transcript == [("Ann", "Once upon a ti"), ("Bob", "Fine.")]
    said = [one for one in events_of(talk(), *script) if isinstance(one, MessageSaid)]
    assert [one.cut_off for one in said] == [True, False]
    # It did not cause the end.
    assert [cause.kind.value for cause in result.why()] == ["reason"]
    plain = play(talk(), ["Once upon a ti", "Fine."])
    for name in ("Ann", "Bob"):
        shown = [[one.text for one in each.result.viewpoint(name)] for each in (played, plain)]
        assert shown[0] == shown[1]
    assert played.prompts == plain.prompts


def test_the_transcript_and_the_page_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3."""
    isolate(monkeypatch, tmp_path)
    script: list[Line] = [cut("Once upon a ti"), cut("Once up"), "Fine."]
    played = play(talk(on_length="retry"), script, store=tmp_path / "sessions.db")
    shown = duologue("show", "s").stdout
    assert "(Cut off at the token limit and asked again: Your message was cut off" in shown
    assert shown.count("(Cut off at the token limit.)") == 1
    page = played.result.session.export(format="markdown")
    assert "*Cut off at the token limit and asked again: Your message was cut off" in page
    assert page.count("*Cut off at the token limit*") == 1


def test_the_rest_is_asked_for_once_and_both_parts_are_one_message() -> None:
    """R3."""
    played = play(talk(on_length="continue"), [cut("It is forty-t"), "wo, I think.", "Fine."])
    assert played.transcript == [("Ann", "It is forty-two, I think."), ("Bob", "Fine.")]
    assert drafts(played.result) == ["It is forty-t"]
    assert cut_off(played.result) == [False, False]
    assert "Write only the rest of it" in asked(played)[1]
    assert played.prompts[1][-2] == {"role": "assistant", "content": "It is forty-t"}
    assert played.outcome.total.calls == 3


@pytest.mark.parametrize(
    ("how", "rest", "said"),
    [
        ("continue", cut("ee fo"), "One two three fo"),
        ("continue", " ", "One two thr"),
        ("retry", " ", "One two thr"),
    ],
)
def test_a_rest_that_is_cut_off_or_blank_leaves_what_came(how: str, rest: Line, said: str) -> None:
    """R3."""
    played = play(talk(on_length=how), [cut("One two thr"), rest, "Fine."])
    assert played.transcript[0] == ("Ann", said)
    assert cut_off(played.result) == [True, False]


def test_a_shorter_one_is_asked_for_once_and_said() -> None:
    """R3."""
    script: list[Line] = [cut("Once upon a time the"), "Once.", "Fine."]
    played = play(talk(on_length="retry"), script)
    assert played.transcript == [("Ann", "Once."), ("Bob", "Fine.")]
    assert "Say it again in fewer words" in asked(played)[1]
    events = events_of(talk(on_length="retry"), *script)
    rejected = [one for one in events if isinstance(one, ReplyRejected)]
    assert [(one.text, one.cut_off) for one in rejected] == [("Once upon a time the", True)]


def test_a_kill_behind_the_first_part_asks_for_the_rest_alone(tmp_path: Path) -> None:
    """R3: the first part is a step, so a resumed run repeats no completed call."""
    store = f"sqlite:///{tmp_path}/sessions.db"
    script: list[Line] = [cut("One two thr"), RuntimeError("killed")]
    with pytest.raises(RuntimeError, match="killed"):
        play(talk(on_length="continue"), script, store=store)
    model = ScriptedChatModel(script=["ee.", "Fine."])
    result = Session("s", store=store).resume(model=model)
    assert result.transcript == [("Ann", "One two three."), ("Bob", "Fine.")]
    assert outcome_of(result).total.calls == 3


@pytest.mark.part(1)
@each_row("what_was_joined_is_mended")
def test_what_was_joined_is_mended(first: str, rest: str, whole: str) -> None:
    form = MARKS | {"optional": ["Input:"]}
    played = play(talk(format=form, on_length="continue"), [cut(first), rest, "So."])
    assert played.transcript[0] == ("Ann", whole)


def test_what_is_cut_off_again_with_half_of_the_history_is_said() -> None:
    """R3: the context seemed to be full."""
    before = [f"This is the line number {number}." for number in range(6)]
    played = play(talk(4), [*before, cut("By"), cut("By the"), "So."])
    assert played.transcript[6] == ("Ann", "By the")
    kinds = [kind_of(one) for one in played.result.messages]
    assert kinds.count("summary") == 1


def test_tokens_are_whole_where_the_history_is_shortened_meanwhile() -> None:
    """R3, R15: the added mark is streamed, too."""
    form = {"lines": ["Say:"], "end": "Over."}
    script: list[Line] = ["Say: Plant them.", "Where?", cut("Say: By"), "Say: By it.", "So."]
    events = events_of(talk(2, format=form), *script)
    said = [one.text for one in events if isinstance(one, MessageSaid)]
    assert tokens_by_message(events) == said
    assert said[-2] == "Say: By it.\nOver."


def test_it_happens_once_a_turn_beside_a_reply_that_is_rejected() -> None:
    """R3: the joined parts are checked as one message; each request is made at most once."""
    conversation = talk(format={"lines": ["Plan:"]}, on_length="continue")
    script: list[Line] = [cut("No pl"), "an.", cut("Plan: r"), "Fine."]
    played = play(conversation, script)
    assert played.transcript == [("Ann", "Plan: r"), ("Bob", "Fine.")]
    assert drafts(played.result) == ["No pl", "No plan."]
    script = ["No plan.", cut("Plan: r"), "un.", "Fine."]
    played = play(conversation, script)
    assert played.transcript[0] == ("Ann", "Plan: run.")
    assert drafts(played.result) == ["No plan.", "Plan: r"]


@pytest.mark.part(3)
@each_row("its_missing_end_is_no_reason_to_ask_again")
def test_its_missing_end_is_no_reason_to_ask_again(form: dict[str, Any], text: str) -> None:
    """R3."""
    played = play(talk(format=form), [cut(text), "Fine."])
    assert played.transcript[0] == ("Ann", text)
    assert drafts(played.result) == []
    said = next(one for one in played.result.messages if kind_of(one) == "speech")
    assert fields_of(said).problem is None
    # The same text, ended by the model itself, is requested again.
    again = play(talk(format=form), [text, text, "Fine."])
    assert drafts(again.result) == [text]


def test_a_missing_beginning_still_is() -> None:
    """R3, Z3."""
    played = play(talk(format=MARKS), [cut("Go and"), "Instruction: Go.\nInput: No. Next.", "Ok."])
    assert drafts(played.result) == ["Go and"]


@pytest.mark.parametrize("form", ["structured", "text"])
def test_json_that_was_cut_off_is_told_in_one_sentence(form: str) -> None:
    """R3."""
    from pydantic import BaseModel

    class Plan(BaseModel):
        steps: list[str]

    conversation = talk(format={"kind": "schema", "name": "Plan", "form": form})
    script: list[Line] = [cut('{"steps": ["dig", "pl'), '{"steps": ["dig"]}', "Fine."]
    played = play(conversation, script, schemas={"Plan": Plan})
    problem = "Your message must be JSON, but it was too long and was cut off. Use fewer words."
    (draft,) = (one for one in played.result.messages if kind_of(one) == "draft")
    assert fields_of(draft).problem == problem
    assert played.result.parsed("Ann") == [{"steps": ["dig"]}]


def test_what_is_held_to_a_schema_has_no_rest() -> None:
    """R3."""
    form = {"kind": "schema", "name": "Plan", "form": "structured"}
    with pytest.raises(SpecError, match=r'on_length: .* cannot be continued; set "retry"'):
        talk(format=form, on_length="continue")


@pytest.mark.parametrize("ending", ["length", "stop"])
def test_code_whose_fence_is_not_closed_never_runs(ending: str) -> None:
    """R3: it does not run if the model was cut off, and not if it left the fence open."""
    half = Reply(text="```python\nprint('first half')", finish_reason=ending)
    for conversation in (
        coder("Count.", sandbox={"level": "monty"}),
        user_proxy("Count.", human_input_mode="NEVER", sandbox={"level": "monty"}),
    ):
        events = events_of(conversation, half, "It is done. TERMINATE")
        told = [one.text for one in events if isinstance(one, MessageSaid)][-2]
        assert "first half" not in told
        assert told.startswith("Exit code: 1 (it failed)")
        assert "its fence is not closed" in told
        assert not any(isinstance(one, CodeStarted) for one in events)


def test_closed_code_in_front_of_a_part_runs() -> None:
    """R3."""
    text = "```python\nprint(6 * 7)\n```\nand\n```python\nprint('hal"
    played = play(coder("Count.", sandbox={"level": "monty"}), [cut(text), "It is 42."])
    told = played.transcript[1][1]
    assert "42" in told
    assert "its fence is not closed" in told
    assert "hal" not in told.replace("half", "")


def test_code_that_goes_on_runs_as_a_whole() -> None:
    """R3."""
    conversation = coder("Count.", sandbox={"level": "monty"})
    agent = conversation.speakers[1].model_copy(update={"on_length": "continue"})
    conversation = conversation.model_copy(update={"speakers": (conversation.speakers[0], agent)})
    parts: list[Line] = [cut("```python\nx = 6\nprint(x * "), "```python\nprint(x * 7)\n```"]
    played = play(conversation, [*parts, "It is 42."])
    assert played.transcript[0] == ("Coder", "```python\nx = 6\nprint(x * 7)\n```")
    assert "42" in played.transcript[1][1]


@pytest.mark.parametrize("how", ["continue", "retry"])
def test_what_goes_on_costs_no_history(how: str) -> None:
    """R3: without a known limit, a partial reply is no sign of a full context."""
    script: list[Line] = ["Plant them.", "Where?", cut("By the wall, in"), "By the wall.", "Fine."]
    played = play(talk(2, on_length=how), script)
    assert drafts(played.result) == ["By the wall, in"]
    assert [kind_of(one) for one in played.result.messages].count("summary") == 0
    assert played.prompts[3][1]["content"] == "Please begin."


def test_the_first_try_is_said_where_the_second_one_goes_on_and_is_worse() -> None:
    """R3, R15: the same applies with a part between the two tries."""
    script: list[Line] = ["Plant the beans now.", cut("Instruction: <what"), " is next>", "Fine."]
    form = {"lines": ["Instruction:"], "end": "Next."}
    played = play(talk(format=form, on_length="continue"), script)
    assert played.transcript[0] == ("Ann", "Instruction: Plant the beans now.\nNext.")
    assert [fields_of(one).flaw for one in played.result.messages if kind_of(one) == "speech"] == [
        None
    ] * 2


@pytest.mark.parametrize("hooks", [[], ["same"], ["loud"]])
def test_a_stop_text_never_ends_what_was_cut_off(hooks: list[str]) -> None:
    """R3: a hook that sees the reply first does not change this."""
    block = {"kind": "blocks", "begin": "[[", "end": "]]"}
    conversation = talk(format=block, model_settings={"stop": ["]]"]}, hooks=hooks)
    known = {
        "same": Hook(after_speaker=lambda turn, reply: None),
        "loud": Hook(after_speaker=lambda turn, reply: AIMessage(reply.text.upper())),
    }
    played = play(
        conversation, [cut("[[open the"), "Fine."], hooks={one: known[one] for one in hooks}
    )
    (blocks,) = played.result.parsed("Ann")
    assert isinstance(blocks, list)
    assert isinstance(blocks[0], dict)
    assert blocks[0]["status"] == -1


def test_tokens_are_those_of_the_whole_message() -> None:
    """R3: the tokens after the newest start are the message; a part alone is not a message."""
    events = events_of(talk(on_length="continue"), cut("It is forty-t"), "wo.", "Fine.")
    said = [one.text for one in events if isinstance(one, MessageSaid | ReplyRejected)]
    assert said == ["It is forty-t", "It is forty-two.", "Fine."]
    assert tokens_by_message(events) == said
