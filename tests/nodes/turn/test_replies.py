"""A2, A10: the reply sources of a speaker: functions, a model, a fixed text, tried in order."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from duologue.graphs import (
    Conversation,
    FunctionReply,
    ModelReply,
    Reason,
    Result,
    Session,
    SpecError,
    TextReply,
    converse,
    load_conversation,
    stream,
)
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import Line as Said, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.log import Source, fields_of, of_kind
from support.prompts import PROMPTS, fill
from support.results import outcome_of
from support.shape_help import never, play, talk
from support.tables import each_row

MODEL = "model"
FIXED = {"kind": "text", "text": "The fixed words."}


def function(name: str) -> dict[str, str]:
    return {"kind": "function", "name": name}


def proxy(*replies: dict[str, str] | str, rounds: int = 1, **fields: Any) -> Conversation:
    """Return a conversation of Ann, who has a model, and Bob, who has these reply sources."""
    bob = {"name": "Bob", "replies": replies} | fields.pop("bob", {})
    return talk("Ann", bob, rounds=rounds, **fields)


def sources(result: Result) -> list[Source]:
    return [fields_of(message).source for message in of_kind(result.messages, "speech")]


def gives(text: str | None) -> Callable[[Turn], str | None]:
    return lambda turn: text


def gives_later(text: str | None) -> Callable[[Turn], Any]:
    async def slowly(turn: Turn) -> str | None:
        return text

    return slowly


# Tried in order.


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("one", "two", "last", "said", "source"),
    [
        pytest.param("One.", "Two.", MODEL, "One.", Source.FUNCTION, id="A10-the-first"),
        pytest.param(None, "Two.", MODEL, "Two.", Source.FUNCTION, id="A10-falls-through"),
        pytest.param(None, None, MODEL, "From a model.", Source.MODEL, id="A2-the-model"),
        pytest.param(None, None, FIXED, "The fixed words.", Source.TEXT, id="A2-the-default-text"),
        pytest.param("", "Two.", FIXED, "", Source.FUNCTION, id="A10-an-empty-text-is-a-reply"),
        pytest.param("\ud83d!", "Two.", FIXED, "?!", Source.FUNCTION, id="A10-half-a-character"),
    ],
)
def test_replies_are_tried_in_order_until_one_gives_words(
    later: bool,
    one: str | None,
    two: str | None,
    last: dict[str, str] | str,
    said: str,
    source: Source,
) -> None:
    """A2, A10: registered functions are tried in order, before the model or the fixed text."""
    give = gives_later if later else gives
    script = ["Hello.", *(["From a model."] if source is Source.MODEL else [])]
    spec = proxy(function("one"), function("two"), last)
    result, _ = play(spec, script, functions={"one": give(one), "two": give(two)})
    assert result.transcript == [("Ann", "Hello."), ("Bob", said)]
    assert sources(result) == [Source.MODEL, source]


def test_what_stands_behind_the_one_that_gives_words_is_not_called() -> None:
    """A10."""
    called: list[str] = []

    def one(turn: Turn) -> str | None:
        called.append("one")
        return "One." if len(called) == 1 else None

    def two(turn: Turn) -> str:
        called.append("two")
        return "Two."

    spec = proxy(function("one"), function("two"), rounds=2)
    result, _ = play(spec, ["Hello.", "And now?"], functions={"one": one, "two": two})
    assert [text for name, text in result.transcript if name == "Bob"] == ["One.", "Two."]
    assert called == ["one", "one", "two"]


def test_where_nothing_gives_words_the_reply_is_blank_and_the_guard_counts_it() -> None:
    """A2, A10: no source can be asked for such a reply again."""
    silent = {"replies": [function("none")]}
    spec = talk({"name": "Ann", **silent}, {"name": "Bob", **silent}, rounds=5)
    result, _ = play(spec, [], functions={"none": gives(None)})
    assert result.transcript == [("Ann", ""), ("Bob", "")]
    assert outcome_of(result).reasons[0] is Reason.BLANK_REPLIES
    assert of_kind(result.messages, "draft") == []


def test_a_function_is_given_the_turn_as_its_speaker_sees_it() -> None:
    """A10: it gets the session, the speaker, its view, and the messages since its last turn."""
    turns: list[Turn] = []

    def note(turn: Turn) -> str:
        turns.append(turn)
        return f"Answer {len(turns)}."

    spec = talk(
        {"name": "Ann", "task": "Keep the secret."},
        {"name": "Bob", "replies": [function("note")], "private_opening": {"lines": ["Psst."]}},
        "Cid",
        rounds=2,
    )
    said = ["Ann's first.", "Cid's first.", "Ann's second.", "Cid's second."]
    result, _ = play(spec, said, functions={"note": note}, session="s1")
    assert [(turn.session, turn.speaker) for turn in turns] == [("s1", "Bob")] * 2
    first, second = turns
    system, *view = first.messages
    assert isinstance(system, SystemMessage)
    assert system.text.startswith("You are Bob")
    turn_of_bob = fill(PROMPTS["your_turn"], name="Bob")
    heard = f"Psst.\n\nAnn: Ann's first.\n\n{turn_of_bob}"
    assert [(message.type, message.text) for message in view] == [("human", heard)]
    assert first.heard == heard
    assert second.heard == f"Cid: Cid's first.\n\nAnn: Ann's second.\n\n{turn_of_bob}"
    assert second.messages[:2] == first.messages
    assert second.messages[2].text == "Answer 1."
    assert "secret" not in str(turns)
    assert list(second.messages[1:]) == result.viewpoint("Bob")[1:4]


def test_what_a_function_does_to_what_it_is_given_changes_nothing() -> None:
    """A10: it gets copies, down to the arguments of calls."""

    def meddle(turn: Turn) -> None:
        for message in turn.messages:
            message.content = "mangled"
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    call["args"]["where"].append("mangled")

    call = ScriptedToolCall(name="look", args={"where": ["shed"]}, id="c1")
    spec = talk(
        {"name": "Ann", "replies": [function("meddle"), MODEL], "tools": ["look"]}, "Bob", rounds=2
    )
    script: list[Said] = [Reply(tool_calls=[call]), "Seen.", "Well?", "So.", "Fine."]
    result, model = play(spec, script, functions={"meddle": meddle}, tools=[look()])
    assert "mangled" not in str([call.messages for call in model.calls])
    assert "mangled" not in str(result.messages)


def look() -> Any:  # noqa: ANN401
    from langchain_core.tools import tool

    @tool("look")
    def looking(where: list[str]) -> str:
        """Look."""
        return f"Looked: {where}"

    return looking


def test_half_a_character_that_a_model_or_a_person_says_is_a_question_mark() -> None:
    """L1: a lone surrogate has no encoding; the rest of the text stays."""
    spec = talk("Ann", {"name": "Bob", "replies": ["human"]})
    result, _ = play(spec, ["Half: \ud83d"], answer=lambda question: "So: \ude00")
    assert result.transcript == [("Ann", "Half: ?"), ("Bob", "So: ?")]


# Failures.


def exits(turn: Turn) -> str:
    raise SystemExit(3)


def interrupts(turn: Turn) -> str:
    raise KeyboardInterrupt


class Outcome(BaseException):
    """An error of the kind that test runners raise."""


async def is_over(turn: Turn) -> str:
    raise Outcome("over")


async def gives_up(turn: Turn) -> str:
    raise asyncio.CancelledError


MUST = "it must return text or None, not"


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        pytest.param(lambda turn: 7, f"{MUST} int", id="int"),
        pytest.param(lambda turn: AIMessage("Hi."), f"{MUST} AIMessage", id="message"),
        pytest.param(lambda turn: turn.messages[99], "IndexError: ", id="raises"),
        pytest.param(gives_later(b"bytes"), f"{MUST} bytes", id="async"),  # type: ignore[arg-type]
        pytest.param(exits, "SystemExit: 3", id="exits"),
        pytest.param(interrupts, "KeyboardInterrupt: ", id="interrupts"),
        pytest.param(is_over, "Outcome: over", id="no-exception"),
        pytest.param(gives_up, "CancelledError: ", id="cancels-itself"),
    ],
)
def test_a_function_that_fails_is_one_clear_error_and_loses_nothing(
    broken: Any,  # noqa: ANN401
    words: str,
    tmp_path: Path,
) -> None:
    """A10: existing answers stay, and a resumed run continues at the function."""
    model = ScriptedChatModel(script=["Hello.", "Bye."])
    session = Session("s", store=tmp_path / "s.db")
    spec = proxy(function("f"), rounds=2)
    for _ in range(2):
        with pytest.raises(SpecError) as caught:
            converse(spec, session=session, model=model, functions={"f": broken})
        assert str(caught.value).startswith(f"the function 'f' failed: {words}")
    stored = session.state()
    assert stored.transcript == [("Ann", "Hello.")]
    assert stored.outcome is None
    said = iter(["One.", "Two."])
    result = session.resume(model=model, functions={"f": lambda turn: next(said)})
    assert [text for _, text in result.transcript] == ["Hello.", "One.", "Bye.", "Two."]
    assert len(model.calls) == 2


# Speakers without a model need none.


def test_a_speaker_without_a_model_needs_none() -> None:
    """A2: no model is looked up, asked, or required to have a price."""
    spec = talk(
        {"name": "Ann", "model": "no-such-model", "replies": [function("f")]},
        {"name": "Bob", "replies": [FIXED]},
        model="nor-this-one",
        prices={"another": {"input": 1, "output": 1}},
        rounds=2,
    )
    assert spec.model_names == []
    lines = iter(["Line one.", "Line two."])
    result = converse(spec, functions={"f": lambda turn: next(lines)}, store="memory:modelless")
    assert [text for _, text in result.transcript] == [
        *("Line one.", "The fixed words.", "Line two.", "The fixed words."),
    ]
    assert outcome_of(result).total.calls == 0
    assert outcome_of(result).usage == {}


def test_the_verdict_of_a_speaker_without_a_model_still_needs_one() -> None:
    bob = {"name": "Bob", "replies": [FIXED], "model": "bobs", "checks_completion": True}
    capped = talk("Ann", bob)
    assert capped.model_names == [None]
    judged = talk("Ann", bob, end_chat={"mode": "end_chat_after_first_completion"})
    assert judged.model_names == [None, "bobs"]


# Checks of a reply.


LONG = "Please go on with what you were about to do for us."
TEXT = {"kind": "text", "text": LONG}
LINES = [f"Line {word} of them all." for word in ("one", "two", "three", "four", "five")]


@pytest.mark.parametrize(
    ("replies", "given", "said", "rounds", "ends"),
    [
        ([TEXT], [], LINES, 5, ("max_iterations", None)),
        ([function("f")], [LONG] * 4, ["So.", *["Well."] * 3], 5, ("same_replies", "Bob")),
        ([function("f"), TEXT], [None, None, LONG], LINES[:3], 3, ("max_iterations", None)),
    ],
    ids=["A2-a-fixed-text", "A10-a-function", "A2-a-function-after-a-fixed-text"],
)
def test_only_a_reply_that_could_be_another_counts_as_the_same(
    replies: list[Any],
    given: list[str | None],
    said: list[str],
    rounds: int,
    ends: tuple[str, str | None],
) -> None:
    """A function could return another reply. A model's same words would end the conversation."""
    texts = iter(given)
    functions = {"f": lambda turn: next(texts)}
    result, _ = play(proxy(*replies, rounds=rounds), said, functions=functions)
    assert (outcome_of(result).reasons[0], outcome_of(result).by) == ends


@each_row("what_no_model_said_is_not_asked_for_again")
def test_what_no_model_said_is_not_asked_for_again(source: str, said: str) -> None:
    """A10: only a model can repair a reply; a model's same reply is requested again."""
    reply = function("f") if source == "function" else {"kind": "text", "text": said}
    bob = {"format": {"lines": ["Note:"]}}
    result, _ = play(proxy(reply, bob=bob), ["Hello."], functions={"f": gives(said)})
    assert of_kind(result.messages, "draft") == []
    by_model, _ = play(proxy(MODEL, bob=bob), ["Hello.", said, "Note: So be it."])
    assert len(of_kind(by_model.messages, "draft")) == 1


class Offer(BaseModel):
    price: int


@each_row("what_no_model_said_is_read_by_the_speakers_format")
def test_what_no_model_said_is_read_by_the_speakers_format(
    wanted: dict[str, Any],
    said: str,
    parsed: object,
    flaw: str | None,
) -> None:
    """L5, A10: a reply that cannot be parsed is noted, and said anyway."""
    spec = proxy(function("f"), bob={"format": wanted})
    options: dict[str, Any] = {"functions": {"f": gives(said)}, "schemas": {"offer": Offer}}
    result, _ = play(spec, ["Hello."], **options)
    about = fields_of(result.messages[-1])
    assert (about.parsed, about.flaw) == (parsed, flaw)
    assert (about.problem is None) is (flaw is None)
    events = stream(spec, model=ScriptedChatModel(script=["Hello."]), store="memory:f", **options)
    told = [event for event in events if isinstance(event, MessageSaid)]
    assert [event.parsed for event in told] == [None, parsed]
    assert (told[-1].problem is None) is (flaw is None)
    assert told[-1].text == said


def test_what_code_gave_is_not_read_by_the_speakers_format() -> None:
    """L5, A7: it is parsed as exit code and outputs, and has no flaw."""
    bob = {"replies": ["code", "model"], "format": {"lines": ["Note:"]}}
    spec = talk({"name": "Ann"}, {"name": "Bob", **bob}, rounds=2)
    result, _ = play(spec, ["```python\nprint(1)\n```", "Well?", "Note: one"])
    assert result.parsed("Bob") == [{"exit_code": 0, "outputs": ["1\n"]}, {"Note:": "one"}]
    assert [fields_of(message).flaw for message in of_kind(result.messages, "speech")] == [None] * 4


def test_a_done_token_in_a_functions_reply_ends_it() -> None:
    """A10, Z4: it ends the conversation like any speaker's."""
    spec = proxy(
        function("f"), rounds=5, end_chat={"when": {"kind": "done_token", "token": "DEAL"}}
    )
    result, _ = play(spec, ["Forty?"], functions={"f": gives("Fine.\nDEAL")})
    assert (outcome_of(result).reasons[0], outcome_of(result).by) == (Reason.DONE_TOKEN, "Bob")


# Replies as data.


@each_row("replies_that_can_not_be_are_refused_when_read")
def test_replies_that_can_not_be_are_refused_when_read(replies: list[Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        proxy(*replies)
    assert str(caught.value).startswith(words)


def test_tools_without_a_model_are_refused() -> None:
    with pytest.raises(SpecError, match=r'speakers\.1\.tools: only a model calls tools; add "mod'):
        proxy(FIXED, bob={"tools": ["look"]})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"replies": [function("haggel")]}, "replies.0.name: there is no function 'haggel'; did y"),
        ({"hooks": ["haggel"]}, "hooks: there is no hook 'haggel'; did you mean 'haggle'"),
    ],
)
def test_a_name_that_is_not_registered_shows_before_any_call(
    fields: dict[str, Any], words: str
) -> None:
    known: dict[str, Any] = {"functions": {"haggle": gives("Ten.")}, "hooks": {"haggle": Hook()}}
    with pytest.raises(SpecError, match=rf"speakers\.1\.{words}"):
        converse(talk("Ann", {"name": "Bob"} | fields), model=never(), store="memory:", **known)
    order = {"kind": "function", "name": "by_age"}
    with pytest.raises(
        SpecError, match=r"turn_order\.name: there is no order 'by_age'; pass it in"
    ):
        converse(talk(turn_order=order), model=never(), store="memory:")


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_replies_are_written_to_files_and_read_again(suffix: str, tmp_path: Path) -> None:
    spec = proxy(function("one"), function("two"), FIXED)
    assert spec.speakers[1].replies == (
        FunctionReply(name="one"),
        FunctionReply(name="two"),
        TextReply(text="The fixed words."),
    )
    file = tmp_path / f"talk.{suffix}"
    file.write_text(spec.to_toml() if suffix == "toml" else spec.model_dump_json())
    assert load_conversation(file) == spec
    assert json.loads(json.dumps(spec.stored())) == spec.stored()
    # The default needs no name, and a kind without fields needs no table.
    assert proxy("model").speakers[1].replies == (ModelReply(),)
    assert "replies" not in proxy("model").to_toml()


def test_a_session_without_a_model_is_resumed_and_read_like_any_other(tmp_path: Path) -> None:
    spec = proxy(FIXED)
    result, _ = play(spec, ["Hello."], session="s", store=tmp_path / "s.db")
    assert Session("s", store=tmp_path / "s.db").state() == result
    assert [type(message) for message in result.viewpoint("Ann")[1:]] == [
        *(HumanMessage, AIMessage, HumanMessage)
    ]
