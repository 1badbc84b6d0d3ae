"""Checks of a reply: the done token, marks, another speaker's part, blank text, verdicts."""

from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from pydantic import BaseModel

from duologue.graphs import (
    BlockFormat,
    Conversation,
    DoneToken,
    EndChat,
    LabelledFormat,
    Speaker,
    role_play,
)
from duologue.graphs.log.marks import plays, read_marks
from duologue.nodes.judge.verdicts_in_words import yes_or_no
from duologue.nodes.turn.checks import ReplyCheck
from support.log import make_line
from support.tables import each_row

Fields = dict[str, Any]

DONE = "<CAMEL_TASK_DONE>"
ROLE_PLAY = role_play("Build a bot", "Stock Trader", "Python Programmer")
TRADER, PROGRAMMER = ROLE_PLAY.speakers


@each_row("the_done_token_counts_as_the_whole_message_or_its_last_line")
def test_the_done_token_counts_as_the_whole_message_or_its_last_line(text: str) -> None:
    assert ReplyCheck(ROLE_PLAY, TRADER).has_done_token(text)
    heard = [speech(0, PROGRAMMER.name, "Solution: Done. Next request.")]
    assert ReplyCheck(ROLE_PLAY, TRADER, heard).check(text).problem is None


@each_row("a_mention_of_the_done_token_ends_nothing")
def test_a_mention_of_the_done_token_ends_nothing(text: str) -> None:
    assert not ReplyCheck(ROLE_PLAY, TRADER).has_done_token(text)


def test_only_the_speaker_who_may_says_the_done_token() -> None:
    """Z4: only the user may say the token; from the assistant it makes the reply a rejected one."""
    assert not ReplyCheck(ROLE_PLAY, PROGRAMMER).has_done_token(DONE)
    problem = ReplyCheck(ROLE_PLAY, PROGRAMMER).check(DONE).problem
    assert problem is not None
    assert problem.flaw == "form"


def talk(token: str | None) -> Conversation:
    return Conversation(
        task="Talk.",
        speakers=(Speaker(name="Ann"), Speaker(name="Bob")),
        end_chat=EndChat(when=None if token is None else DoneToken(token=token)),
    )


@pytest.mark.parametrize("token", ["DONE", "*done*", "_end_", "好了", "~~"])
def test_a_done_token_of_nobody_in_particular_is_anyones(token: str) -> None:
    """Z4: a token without a speaker counts from any speaker, even if it looks like markup."""
    conversation = talk(token)
    for speaker in conversation.speakers:
        assert ReplyCheck(conversation, speaker).has_done_token(f"Fine.\n{token}")
        assert not ReplyCheck(conversation, speaker).has_done_token(f"Then I say {token}")


def test_without_a_done_token_nothing_is_one() -> None:
    conversation = talk(None)
    assert not ReplyCheck(conversation, conversation.speakers[0]).has_done_token("")
    assert not ReplyCheck(conversation, conversation.speakers[0]).has_done_token(DONE)


@each_row("a_verdict_is_read_as_a_word_never_as_a_substring")
def test_a_verdict_is_read_as_a_word_never_as_a_substring(text: str, read: bool | None) -> None:
    assert yes_or_no(text) is read


@each_row("marks_are_found_where_they_belong")
def test_marks_are_found_where_they_belong(marks: Fields, text: str, carried: bool) -> None:
    form = LabelledFormat.model_validate(marks)
    assert (read_marks(form.lines, form.end, text) is not None) is carried


@each_row("a_reply_that_speaks_anothers_part_is_seen")
def test_a_reply_that_speaks_anothers_part_is_seen(
    speaker: str, text: str, played: str | None
) -> None:
    assert plays(ROLE_PLAY, ROLE_PLAY.speaker(speaker), text) == played


def test_marks_that_two_speakers_share_are_nobody_elses_part() -> None:
    marks = LabelledFormat(lines=("Say:",))
    conversation = Conversation(
        task="Talk.",
        speakers=(Speaker(name="Ann", format=marks), Speaker(name="Bob", format=marks)),
    )
    assert plays(conversation, conversation.speakers[0], "Say: hello") is None


def speech(number: int, name: str, text: str, kind: str = "speech") -> AnyMessage:
    audience = () if kind == "draft" else None
    return make_line(number, text, kind, speaker=name, audience=audience)


@each_row("problems_of_a_reply_are_named")
def test_problems_of_a_reply_are_named(text: str, log: list[list[str]], flaw: str | None) -> None:
    conversation = talk(None)
    heard = [speech(number, *line) for number, line in enumerate(log)]
    problem = ReplyCheck(conversation, conversation.speakers[0], heard).check(text).problem
    assert (problem and problem.flaw) == flaw


def test_a_broken_form_is_told_with_the_form_asked_for() -> None:
    """Z3: the request to rewrite contains the reason."""
    problem = ReplyCheck(ROLE_PLAY, PROGRAMMER).check("Three.").problem
    assert problem is not None
    assert problem.flaw == "form"
    assert "'Solution:'" in problem.text
    assert "'Next request.'" in problem.text


@each_row("among_many_a_name_in_front_may_be_who_is_spoken_to")
def test_among_many_a_name_in_front_may_be_who_is_spoken_to(text: str, flipped: str | None) -> None:
    names = ("Ann", "Ben", "Cy")
    conversation = Conversation(task="Plan", speakers=tuple(Speaker(name=name) for name in names))
    assert plays(conversation, conversation.speakers[0], text) == flipped


def test_the_same_answer_to_another_move_of_a_game_is_no_repetition() -> None:
    conversation = Conversation(task="Play", speakers=(Speaker(name="A"), Speaker(name="B")))
    hint = "Too high, try a lower number."
    log = [speech(0, "B", "90?"), speech(1, "A", hint), speech(2, "B", "80?")]
    assert ReplyCheck(conversation, conversation.speakers[0], log).check(hint).problem is None
    log[2] = speech(2, "B", "Why?")
    log[0] = speech(0, "B", "How so?")
    problem = ReplyCheck(conversation, conversation.speakers[0], log).check(hint).problem
    assert problem is not None
    assert problem.flaw == "repeated"


class Plan(BaseModel):
    goal: str


@each_row("a_reply_is_held_to_the_format_of_its_speaker")
def test_a_reply_is_held_to_the_format_of_its_speaker(
    form: Fields, text: str, told: str | None
) -> None:
    """L5: the request to rewrite contains the reason."""
    ann = {"name": "Ann", "format": form, "model_settings": {"stop": ["<stop>"]}}
    conversation = Conversation.model_validate({"task": "Talk.", "speakers": [ann, {"name": "B"}]})
    problem = ReplyCheck(conversation, conversation.speakers[0], schema=Plan).check(text).problem
    if told is None:
        assert problem is None
    else:
        assert problem is not None
        assert problem.flaw == "form"
        assert told in problem.text


def test_another_format_than_marks_is_nobody_elses_part() -> None:
    ann = Speaker(name="Ann", format=BlockFormat(begin="Say:", end="Over."))
    conversation = Conversation(task="Talk.", speakers=(ann, Speaker(name="Bob")))
    assert plays(conversation, conversation.speakers[1], "Say: hello") is None
    assert plays(conversation, ann, "Say: hello Over.") is None
