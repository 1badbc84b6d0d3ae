"""R15: repairs keep good replies: completed marks, replies that are no repair, the better try."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from duologue.graphs import LabelledFormat, Result, astream, role_play
from duologue.graphs.events import MessageSaid, MessageStarted, MessageToken
from duologue.graphs.log.parsing import Mended, mend
from duologue.graphs.prompts import prompts
from duologue.graphs.text.similarity import is_placeholder, repeats
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.tools import Hook
from support.log import Flaw, fields_of, kind_of, rejections
from support.shape_help import play, talk
from support.tables import each_row

CODE = "```python\ndef add(a, b):\n    return a + b\n```"
ORDER = "Instruction: Write a function that adds two numbers.\nInput: None"
ROLE_PLAY = role_play("Add up", "Lead", "Coder", specify_task=False, max_iterations=1)
CLAIM = LabelledFormat(lines=("Claim:", "Proof:"), end="Over.")


def played(*tries: Line, **options: Any) -> tuple[Result, ScriptedChatModel]:
    """Run a solver's model with these answers; return the result and the model."""
    return play(options.pop("talk", ROLE_PLAY), [ORDER, *tries], **options)


def kinds(result: Result) -> list[str]:
    return [kind_of(message) for message in result.messages[2:]]


@each_row("r15_a_missing_closing_mark_is_added")
def test_r15_a_missing_closing_mark_is_added(marks: dict[str, Any], text: str, made: str) -> None:
    assert mend(LabelledFormat.model_validate(marks), text) == Mended(made, is_opened=False)


@each_row("r15_a_missing_opening_mark_can_be_added")
def test_r15_a_missing_opening_mark_can_be_added(
    marks: dict[str, Any], text: str, made: str
) -> None:
    assert mend(LabelledFormat.model_validate(marks), text) == Mended(made, is_opened=True)


@each_row("r15_nothing_is_made_up_where_what_belongs_is_not_known")
def test_r15_nothing_is_made_up_where_what_belongs_is_not_known(
    marks: dict[str, Any], text: str
) -> None:
    assert mend(LabelledFormat.model_validate(marks), text) is None


def test_r15_a_missing_closing_mark_costs_no_call_and_is_heard() -> None:
    result, _ = played(f"Solution:\n{CODE}")
    assert result.last_message("Coder") == f"Solution:\n{CODE}\nNext request."
    assert result.parsed("Coder") == [{"Solution:": CODE}]
    assert kinds(result) == ["speech"]
    assert result.why()[0].kind.value == "reason"


@pytest.mark.part(4)
@each_row("r15_real_code_without_a_mark_is_said_where_the_second_try_is_no_reply")
def test_r15_real_code_without_a_mark_is_said_where_the_second_try_is_no_reply(
    second: str,
) -> None:
    result, model = played(CODE, second)
    assert result.last_message("Coder") == f"Solution:\n{CODE}\nNext request."
    assert result.parsed("Coder") == [{"Solution:": CODE}]
    said = fields_of(result.messages[-1])
    assert said.kind == "speech"
    assert (said.flaw, said.problem) == (None, None)
    # The second try stays in the log, unheard.
    assert kinds(result) == ["draft", "unheard_reply", "speech"]
    assert result.messages[-2].text == second
    assert [one.type for one in result.viewpoint("Lead")] == ["system", "human", "ai", "human"]
    assert len(rejections(result)) == 1
    assert model.calls[-1].messages[-2].text == CODE


@each_row("r15_of_two_tries_the_better_one_is_said")
def test_r15_of_two_tries_the_better_one_is_said(
    first: str, second: str, said: str, flaw: str | None
) -> None:
    result, _ = played(first, second)
    assert result.last_message("Coder") == said
    assert fields_of(result.messages[-1]).flaw == flaw
    assert kinds(result) == ["draft", "speech"]


def free_talk(*lines: Line) -> Result:
    """Return a conversation of two speakers without any format."""
    result, _ = play(talk("Ann", {"name": "Bob", "system_prompt": PROMPT}, rounds=2), lines)
    return result


PROMPT = """You buy a boat and pay little. Never say more than two sentences.
Answer with <your offer> or <no deal>. Greet with these words:
Good day to you, dear neighbour!"""
SAME = "I would like to have the boat."


@each_row("r15_an_echo_of_what_it_was_told_is_said_by_nobody")
def test_r15_an_echo_of_what_it_was_told_is_said_by_nobody(echo: str) -> None:
    result = free_talk("A boat!", SAME, "Forty?", SAME, echo)
    assert result.transcript[-1] == ("Bob", SAME)
    assert fields_of(result.messages[-1]).flaw is Flaw.REPEATED


@pytest.mark.part(3)
@each_row("r15_what_a_prompt_lets_it_say_is_a_reply")
def test_r15_what_a_prompt_lets_it_say_is_a_reply(reply: str) -> None:
    result = free_talk("A boat!", reply, "Forty?", "No.")
    assert result.transcript[1] == ("Bob", reply)
    assert fields_of(result.messages[2]).flaw is None


def test_r15_hooks_see_the_try_that_is_said() -> None:
    seen: list[str] = []

    def loud(turn: object, reply: AIMessage) -> AIMessage:
        seen.append(reply.text)
        return AIMessage(reply.text.upper())

    fields = ROLE_PLAY.model_dump(exclude_defaults=True)
    fields["speakers"][1]["hooks"] = ["loud"]
    hooks = {"loud": Hook(after_speaker=loud)}
    result, _ = played(CODE, "<your solution>", talk=fields, hooks=hooks)
    assert seen == [f"Solution:\n{CODE}\nNext request."]
    assert kinds(result) == ["draft", "unheard_reply", "unheard_reply", "speech"]


async def test_r15_who_follows_the_stream_sees_the_try_that_is_said() -> None:
    model = ScriptedChatModel(script=[ORDER, CODE, "<your solution>"])
    shown = ""
    async for event in astream(ROLE_PLAY, model=model, store="memory:"):
        match event:
            case MessageStarted():
                shown = ""
            case MessageToken():
                shown += event.text
            case MessageSaid():
                assert shown == event.text
    assert shown == f"Solution:\n{CODE}\nNext request."


def test_r15_a_reply_that_was_cut_off_is_left_as_it_is() -> None:
    """Its missing last mark is neither requested nor added."""
    cut_off = Reply(text="Solution: one, two, th", finish_reason="length")
    result, _ = played(cut_off)
    assert result.last_message("Coder") == cut_off.text


def test_r15_how_a_reply_is_asked_for_again_does_not_contradict_itself() -> None:
    told = prompts.fill_template(prompts.REWRITE_REPLY, problem=prompts.REPEATED_REPLY)
    assert told.startswith("You already sent this message. Say something new.")
    assert "say it again" not in told


@each_row("r15_placeholders")
def test_r15_placeholders(text: str, found: bool) -> None:
    assert is_placeholder(text, "Solution: <solution>\n", ["Solution:"]) is found


@each_row("r15_sentences_of_a_prompt")
def test_r15_sentences_of_a_prompt(text: str, found: bool) -> None:
    prompt = """Be kind. You give one instruction at a time. You never carry one out.
Then say what I say to you:
It is a fine day today."""
    assert repeats(text, prompt) is found
