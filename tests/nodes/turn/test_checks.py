"""The rules by which a reply is read: done tokens, marks, parts of others, stops, joined parts."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from langchain_core.messages import AIMessage, AnyMessage
from pydantic import BaseModel

from duologue.graphs import Conversation, LabelledFormat, role_play
from duologue.graphs.log.marks import plays, read_marks
from duologue.graphs.log.parsing import Mended, mend, parse
from duologue.graphs.text.similarity import is_placeholder, repeats
from duologue.graphs.text.words import join_parts
from duologue.nodes.models.stops import is_stop, read_stop
from duologue.nodes.turn.checks import ReplyCheck
from support.log import make_line
from support.shape_help import talk
from support.tables import each_row

Fields = dict[str, Any]

DONE = "<CAMEL_TASK_DONE>"
ROLE_PLAY = role_play("Build a bot", "Stock Trader", "Python Programmer")
TRADER, PROGRAMMER = ROLE_PLAY.speakers


def speech(number: int, name: str, text: str, kind: str = "speech") -> AnyMessage:
    audience = () if kind == "draft" else None
    return make_line(number, text, kind, speaker=name, audience=audience)


def flaw_of(conversation: Conversation, text: str, *log: AnyMessage, **more: Any) -> str | None:
    """Return the flaw of a reply of the first speaker."""
    check = ReplyCheck(conversation, conversation.speakers[0], log, **more)
    problem = check.check(text).problem
    return None if problem is None else problem.flaw


# Done tokens.


@each_row("the_done_token_counts_as_the_whole_message_or_its_last_line")
def test_the_done_token_counts_as_the_whole_message_or_its_last_line(
    text: str, counts: bool
) -> None:
    assert ReplyCheck(ROLE_PLAY, TRADER).has_done_token(text) is counts
    if counts:
        assert flaw_of(ROLE_PLAY, text, speech(0, PROGRAMMER.name, "Solution: Done.")) is None


def test_only_the_speaker_who_may_says_the_done_token() -> None:
    """Z3, Z4: from the assistant it makes the reply a rejected one; the request has the reason."""
    check = ReplyCheck(ROLE_PLAY, PROGRAMMER)
    assert not check.has_done_token(DONE)
    problem = check.check(DONE).problem
    assert problem is not None
    assert problem.flaw == "form"
    assert "'Solution:'" in problem.text
    assert "'Next request.'" in problem.text


@pytest.mark.parametrize("token", ["DONE", "*done*", "_end_", "好了", "~~"])
def test_a_done_token_of_nobody_in_particular_is_anyones(token: str) -> None:
    """Z4: a token without a speaker counts from any speaker, even if it looks like markup."""
    conversation = talk(end_chat={"when": {"kind": "done_token", "token": token}})
    for speaker in conversation.speakers:
        assert ReplyCheck(conversation, speaker).has_done_token(f"Fine.\n{token}")
        assert not ReplyCheck(conversation, speaker).has_done_token(f"Then I say {token}")
        for text in ("", DONE):
            assert not ReplyCheck(talk(), speaker).has_done_token(text)


# Marks, and the parts of other speakers.


@each_row("marks_are_found_where_they_belong")
def test_marks_are_found_where_they_belong(marks: Fields, text: str, carried: bool) -> None:
    form = LabelledFormat.model_validate(marks)
    assert (read_marks(form.lines, form.end, text) is not None) is carried


@each_row("what_a_form_lacks_is_added_if_it_is_known")
def test_what_a_form_lacks_is_added_if_it_is_known(
    marks: Fields, text: str, made: str | None, opened: bool | None
) -> None:
    """R8, R15."""
    expected = None if made is None else Mended(made, is_opened=opened is True)
    assert mend(LabelledFormat.model_validate(marks), text) == expected


@pytest.mark.parametrize("text", ["", " ", "\n", ":", "**", "```", "None", "Coder:", "Coder: "])
def test_r8_odd_texts_are_read_without_a_fault(text: str) -> None:
    claim = LabelledFormat(lines=("Claim:", "Source:"), end="Over.", optional=("Source:",))
    for marks in (TRADER.format, PROGRAMMER.format, claim):
        assert isinstance(marks, LabelledFormat)
        found = mend(marks, text, "Coder")
        assert found is None or parse(marks, found.text).problem is None


@each_row("a_reply_that_speaks_anothers_part_is_seen")
def test_a_reply_that_speaks_anothers_part_is_seen(
    speaker: str, text: str, played: str | None
) -> None:
    assert plays(ROLE_PLAY, ROLE_PLAY.speaker(speaker), text) == played


@each_row("among_many_a_name_in_front_may_be_who_is_spoken_to")
def test_among_many_a_name_in_front_may_be_who_is_spoken_to(text: str, flipped: str | None) -> None:
    conversation = talk("Ann", "Ben", "Cy")
    assert plays(conversation, conversation.speakers[0], text) == flipped


@pytest.mark.parametrize(
    ("ann", "bob"),
    [({"lines": ["Say:"]}, {"lines": ["Say:"]}), ({"begin": "Say:", "end": "Over."}, None)],
    ids=["shared marks", "no marks"],
)
def test_marks_that_are_not_those_of_one_speaker_are_nobodys_part(
    ann: Fields, bob: Fields | None
) -> None:
    named = {"Ann": ann, "Bob": bob}
    conversation = talk(*({"name": name, "format": form} for name, form in named.items()))
    for speaker in conversation.speakers:
        assert plays(conversation, speaker, "Say: hello Over.") is None


# Problems.


@each_row("problems_of_a_reply_are_named")
def test_problems_of_a_reply_are_named(text: str, log: list[list[str]], flaw: str | None) -> None:
    heard = [speech(number, *line) for number, line in enumerate(log)]
    assert flaw_of(talk(), text, *heard) == flaw


class Plan(BaseModel):
    goal: str


@each_row("a_reply_is_held_to_the_format_of_its_speaker")
def test_a_reply_is_held_to_the_format_of_its_speaker(
    form: Fields, text: str, told: str | None
) -> None:
    """L5: the request to rewrite contains the reason."""
    ann = {"name": "Ann", "format": form, "model_settings": {"stop": ["<stop>"]}}
    conversation = talk(ann, "Bob")
    problem = ReplyCheck(conversation, conversation.speakers[0], schema=Plan).check(text).problem
    assert (problem and problem.flaw) == (told and "form")
    assert (told or "") in (problem.text if problem is not None else "")


@each_row("placeholders_are_no_content")
def test_r15_placeholders_are_no_content(text: str, found: bool) -> None:
    assert is_placeholder(text, "Solution: <solution>\n", ["Solution:"]) is found


@each_row("a_sentence_of_a_prompt_is_no_content")
def test_r15_a_sentence_of_a_prompt_is_no_content(text: str, found: bool) -> None:
    prompt = """Be kind. You give one instruction at a time. You never carry one out.
Then say what I say to you:
It is a fine day today."""
    assert repeats(text, prompt) is found


# Replies that stopped early (R3, R29).


@each_row("a_reason_is_found_in_each_form")
def test_a_reason_is_found_in_each_form(reason: str, cause: str) -> None:
    for key in ("finish_reason", "stop_reason", "stopReason", "done_reason"):
        stop = read_stop(AIMessage("", response_metadata={key: reason}))
        assert stop is not None
        assert stop.cause == cause
        assert stop.word.casefold() in reason.casefold()


@pytest.mark.parametrize(
    "reason",
    [None, "", 0, [], "stop", "STOPSTOP", "end_turn", "eos_token", "stop_sequence", "COMPLETE"],
)
def test_any_other_reason_means_a_complete_reply(reason: object) -> None:
    assert not is_stop(reason)
    assert read_stop(AIMessage("Hi.", response_metadata={"finish_reason": reason})) is None


@pytest.mark.parametrize("block", [None, "", 0, "BLOCKED_REASON_UNSPECIFIED"])
def test_a_prompt_that_is_not_blocked_has_no_stop(block: object) -> None:
    feedback = {"prompt_feedback": {"block_reason": block}}
    assert read_stop(AIMessage("", response_metadata=feedback)) is None


@each_row("two_parts_are_joined")
def test_two_parts_are_joined(first: str, rest: str, whole: str) -> None:
    assert join_parts(first, rest) == whole
    # Some models repeat the first part.
    assert join_parts(first, whole) == whole


TEXTS = st.text(alphabet="ab A.\n`é你", max_size=20)


@given(TEXTS, TEXTS)
def test_the_first_part_stays_as_it_was_said(first: str, rest: str) -> None:
    """Joining the first part and the whole message therefore returns the whole message."""
    whole = join_parts(first, rest)
    assert whole.startswith(first)
    assert join_parts(first, whole) == whole
