"""Checks of a reply: the done token, marks, another speaker's part, blank text, verdicts."""

import pytest
from langchain_core.messages import AnyMessage
from pydantic import BaseModel

from duologue.graphs.conversation.conversation import Conversation
from duologue.graphs.ends.end_chat import EndChat
from duologue.graphs.ends.events import DoneToken
from duologue.graphs.kinds.role_play import INSTRUCTION, SOLUTION, role_play
from duologue.graphs.log.marks import plays, read_marks
from duologue.graphs.speakers.formats import (
    BlockFormat,
    CodeFormat,
    Format,
    LabelledFormat,
    SchemaFormat,
)
from duologue.graphs.speakers.speaker import Speaker
from duologue.nodes.judge.self_judge import yes_or_no
from duologue.nodes.turn.checks import check_reply, has_done_token
from support.log import make_line
from support.tables import each_row

DONE = "<CAMEL_TASK_DONE>"
ROLE_PLAY = role_play("Build a bot", "Stock Trader", "Python Programmer")
TRADER, PROGRAMMER = ROLE_PLAY.speakers


@each_row("the_done_token_counts_as_the_whole_message_or_its_last_line")
def test_the_done_token_counts_as_the_whole_message_or_its_last_line(text: str) -> None:
    assert has_done_token(ROLE_PLAY, TRADER, text)
    heard = [speech(0, PROGRAMMER.name, "Solution: Done. Next request.")]
    assert check_reply(ROLE_PLAY, TRADER, text, heard).problem is None


@each_row("a_mention_of_the_done_token_ends_nothing")
def test_a_mention_of_the_done_token_ends_nothing(text: str) -> None:
    assert not has_done_token(ROLE_PLAY, TRADER, text)


def test_only_the_speaker_who_may_says_the_done_token() -> None:
    """Z4: only the user may say the token; from the assistant it makes the reply a rejected one."""
    assert not has_done_token(ROLE_PLAY, PROGRAMMER, DONE)
    problem = check_reply(ROLE_PLAY, PROGRAMMER, DONE, []).problem
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
        assert has_done_token(conversation, speaker, f"Fine.\n{token}")
        assert not has_done_token(conversation, speaker, f"Then I say {token}")


def test_without_a_done_token_nothing_is_one() -> None:
    conversation = talk(None)
    assert not has_done_token(conversation, conversation.speakers[0], "")
    assert not has_done_token(conversation, conversation.speakers[0], DONE)


@each_row("a_verdict_is_read_as_a_word_never_as_a_substring")
def test_a_verdict_is_read_as_a_word_never_as_a_substring(text: str, read: bool | None) -> None:
    assert yes_or_no(text) is read


@pytest.mark.parametrize(
    ("marks", "text", "carried"),
    [
        pytest.param(INSTRUCTION, "Instruction: sum\nInput: 1, 2", True, id="Z3-instruction"),
        pytest.param(INSTRUCTION, "Instruction: sum\nInput: None", True, id="Z3-input-none"),
        pytest.param(INSTRUCTION, "\nInstruction:\nsum\n\nInput:\n1", True, id="Z3-own-lines"),
        pytest.param(INSTRUCTION, "**Instruction:** sum\n**Input:** 1", True, id="Z3-bold"),
        pytest.param(INSTRUCTION, "**Instruction**: sum\n- x\n### Input: 1", True, id="Z3-odd"),
        pytest.param(INSTRUCTION, "INSTRUCTION: sum\ninput: 1", True, id="Z3-case"),
        pytest.param(INSTRUCTION, "Instruction: sum", False, id="Z3-no-input"),
        pytest.param(INSTRUCTION, "Instruction: sum Input: 1", False, id="Z3-one-line"),
        pytest.param(INSTRUCTION, "Input: 1\nInstruction: sum", False, id="Z3-wrong-order"),
        pytest.param(INSTRUCTION, "Sure!\nInstruction: sum\nInput: 1", False, id="Z3-preface"),
        pytest.param(INSTRUCTION, "Input: 1", False, id="Z3-input-only"),
        pytest.param(INSTRUCTION, "", False, id="Z3-blank"),
        pytest.param(SOLUTION, "Solution: 3\nNext request.", True, id="Z3-solution"),
        pytest.param(SOLUTION, "Solution: 3. Next request.", True, id="Z3-end-on-the-line"),
        pytest.param(SOLUTION, "Solution: 3\n**Next request.**\n", True, id="Z3-end-bold"),
        pytest.param(SOLUTION, "Solution: 3\nNEXT REQUEST.", True, id="Z3-end-case"),
        pytest.param(SOLUTION, "Solution: 3", False, id="Z3-no-end"),
        pytest.param(SOLUTION, "Solution: 3\nNext request. Yes?", False, id="Z3-end-inside"),
        pytest.param(SOLUTION, "The Solution: 3\nNext request.", False, id="Z3-not-first"),
        pytest.param(LabelledFormat(lines=("A:", "B:")), "A: B: 1", False, id="Z3-a-line-for-each"),
        pytest.param(
            LabelledFormat(lines=("### A:",)), "### A: 1", True, id="Z3-a-heading-as-a-mark"
        ),
        pytest.param(
            LabelledFormat(lines=("A:",), end="**End**"), "A: 1\n**End**", True, id="Z3-bold-end"
        ),
        pytest.param(
            LabelledFormat(lines=("A:",), end="C#"), "A: 1 in C#", True, id="Z3-end-in-a-sign"
        ),
        pytest.param(
            LabelledFormat(lines=("A:",), end="C#"), "A: 1 in C", False, id="Z3-end-cut-short"
        ),
        pytest.param(
            LabelledFormat(lines=("A B",), end="B"), "A B", False, id="Z3-end-within-a-mark"
        ),
    ],
)
def test_marks_are_found_where_they_belong(marks: LabelledFormat, text: str, carried: bool) -> None:
    assert (read_marks(marks.lines, marks.end, text) is not None) is carried


@pytest.mark.parametrize(
    ("speaker", "text", "played"),
    [
        pytest.param(PROGRAMMER, "Instruction: sum", TRADER, id="Z3-instructs"),
        pytest.param(PROGRAMMER, "Solution: 3\n**Instruction:** go", TRADER, id="Z3-also"),
        pytest.param(PROGRAMMER, "Stock Trader: sell", TRADER, id="Z3-by-name"),
        pytest.param(TRADER, "Solution: 3\nNext request.", PROGRAMMER, id="Z3-solves"),
        pytest.param(TRADER, "> python programmer: ok", PROGRAMMER, id="Z3-any-case"),
        pytest.param(PROGRAMMER, "Solution: 3\nNext request.", None, id="Z3-own-part"),
        pytest.param(TRADER, "Instruction: sum\nInput: 1", None, id="Z3-own-marks"),
        pytest.param(PROGRAMMER, "Solution: the Instruction: was clear", None, id="Z3-inside"),
        pytest.param(PROGRAMMER, "Solution: 3\nInput: 4", None, id="Z3-only-the-first-mark"),
        pytest.param(
            PROGRAMMER, "Solution:\n```\nInstruction: x\n```\nNext request.", None, id="Z3-in-code"
        ),
        pytest.param(PROGRAMMER, "~~~\nInstruction: x\n~~~\nIt is.", None, id="Z3-in-tildes"),
        pytest.param(
            PROGRAMMER, "````\n```\nInstruction: x\n```\n````", None, id="Z3-in-a-longer-fence"
        ),
        pytest.param(PROGRAMMER, "> ```\n> Instruction: x\n> ```", None, id="Z3-in-quoted-code"),
        pytest.param(PROGRAMMER, "```\nx\n```\nInstruction: sum", TRADER, id="Z3-behind-code"),
        pytest.param(PROGRAMMER, "", None, id="Z3-blank"),
        pytest.param(PROGRAMMER, "\nStock Trader: sell", TRADER, id="Z3-by-name-behind-a-blank"),
        pytest.param(
            PROGRAMMER, "Solution: a play\nStock Trader: sell\nNext request.", None, id="Z3-quoted"
        ),
        pytest.param(
            PROGRAMMER,
            "Solution: One row of the data is\nInstruction: Add.\nInput: 2, 3\nNext request.",
            None,
            id="R8-any-text-within-its-form",
        ),
        pytest.param(
            PROGRAMMER,
            "Solution: 3\n**Next request.**\n\nInstruction: Test it.\nInput: None\nNext request.",
            TRADER,
            id="R8-behind-its-form",
        ),
        pytest.param(
            PROGRAMMER,
            "Solution: Done.\nInstruction: Test it.\nSolution: It works.\nNext request.",
            TRADER,
            id="R8-both-parts",
        ),
        pytest.param(
            PROGRAMMER, "Solution: Done.\nInstruction: Test it.", TRADER, id="R8-no-whole-form"
        ),
    ],
)
def test_a_reply_that_speaks_anothers_part_is_seen(
    speaker: Speaker, text: str, played: Speaker | None
) -> None:
    assert plays(ROLE_PLAY, speaker, text) == (played and played.name)


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


SAME = "one two three four five"


@pytest.mark.parametrize(
    ("text", "log", "flaw"),
    [
        pytest.param("", [], "blank", id="blank"),
        pytest.param(" \n\t", [], "blank", id="white-space"),
        pytest.param(SAME, [speech(0, "Ann", SAME)], "repeated", id="same-again"),
        pytest.param(
            "One  two three\nFOUR five", [speech(0, "Ann", SAME)], "repeated", id="same-words"
        ),
        pytest.param(
            SAME,
            [speech(0, "Ann", SAME), speech(1, "Bob", "no")],
            "repeated",
            id="another-between",
        ),
        pytest.param(SAME, [speech(0, "Bob", SAME)], "echo", id="R16-echo-of-another"),
        pytest.param(SAME, [speech(0, "Ann", SAME, "draft")], None, id="as-rejected"),
        pytest.param(
            SAME, [speech(0, "Ann", SAME), speech(1, "Ann", "else")], None, id="not-the-last"
        ),
        pytest.param(
            "one two three four", [speech(0, "Ann", "one two three four")], None, id="short"
        ),
        pytest.param("Bob: hello", [], "role_flip", id="another's-part"),
        pytest.param("Hello.", [], None, id="fine"),
    ],
)
def test_problems_of_a_reply_are_named(text: str, log: list[AnyMessage], flaw: str | None) -> None:
    conversation = talk(None)
    problem = check_reply(conversation, conversation.speakers[0], text, log).problem
    assert (problem and problem.flaw) == flaw


def test_a_broken_form_is_told_with_the_form_asked_for() -> None:
    """Z3: the request to rewrite contains the reason."""
    problem = check_reply(ROLE_PLAY, PROGRAMMER, "Three.", []).problem
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
    assert check_reply(conversation, conversation.speakers[0], hint, log).problem is None
    log[2] = speech(2, "B", "Why?")
    log[0] = speech(0, "B", "How so?")
    problem = check_reply(conversation, conversation.speakers[0], hint, log).problem
    assert problem is not None
    assert problem.flaw == "repeated"


class Plan(BaseModel):
    goal: str


@pytest.mark.parametrize(
    ("form", "text", "told"),
    [
        pytest.param(BlockFormat(begin="<do>", end="</do>"), "<do>1</do>", None, id="L5-block"),
        pytest.param(
            BlockFormat(begin="<do>", end="</do>"), "<do>1", "not closed", id="L5-open-block"
        ),
        pytest.param(BlockFormat(begin="<do>", end="<stop>"), "<do>1", None, id="L5-stopped-block"),
        pytest.param(CodeFormat(required=True), "Hello.", "must contain code", id="L5-no-code"),
        pytest.param(CodeFormat(), "Hello.", None, id="L5-code-may-be-missing"),
        pytest.param(SchemaFormat(name="Plan"), '{"goal": "x"}', None, id="L5-schema"),
        pytest.param(SchemaFormat(name="Plan"), "{}", "goal: is missing", id="L5-field"),
    ],
)
def test_a_reply_is_held_to_the_format_of_its_speaker(
    form: Format, text: str, told: str | None
) -> None:
    """L5: the request to rewrite contains the reason."""
    ann = {"name": "Ann", "format": form, "model_settings": {"stop": ["<stop>"]}}
    conversation = Conversation.model_validate({"task": "Talk.", "speakers": [ann, {"name": "B"}]})
    problem = check_reply(conversation, conversation.speakers[0], text, [], Plan).problem
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
