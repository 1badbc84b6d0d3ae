"""R8, R15: forms are read leniently, and repairs keep good replies: the better of two tries."""

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage

from duologue.graphs import Result, Session, SpecError, role_play, stream
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.tools import Hook
from support.log import fields_of, kind_of, rejections
from support.prompts import PROMPTS, fill
from support.shape_help import play, talk, tokens_by_message
from support.tables import each_row

CODE = "```python\ndef add(a, b):\n    return a + b\n```"
ORDER = "Instruction: Write a function that adds two numbers.\nInput: None"
ANSWER = "Solution: 3\nNext request."
ROLE_PLAY = role_play("Add up", "Lead", "Coder", specify_task=False, max_iterations=1)
MARKS = {"Lead": ("Instruction:", "Input:"), "Coder": ("Solution:",)}


def played(*lines: Line, **options: Any) -> Result:
    """Play a role-play of one round, on a script that must be used up."""
    result, _ = play(options.pop("talk", ROLE_PLAY), lines, **options)
    return result


def kinds(result: Result) -> list[str]:
    """Return the kinds of the messages after the instruction of the leader."""
    return [kind_of(message) for message in result.messages[2:]]


# Forms.


@each_row("r8_a_form_is_read_as_models_write_it")
def test_r8_a_form_is_read_as_models_write_it(
    text: str, heard: str | None, read: list[str]
) -> None:
    """What is missing is added without another request. Whole messages are heard as they are."""
    name, lines = ("Coder", (ORDER, text)) if len(read) == 1 else ("Lead", (text, ANSWER))
    result = played(*lines)
    assert result.last_message(name) == (heard or text)
    assert result.parsed(name) == [dict(zip(MARKS[name], read, strict=True))]
    assert not any(fields_of(one).flaw for one in result.messages)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{ORDER}\n\nInstruction: And then?\nInput: None", id="R8-two-pairs"),
        pytest.param(f"Lead: {ORDER}\n**Instruction:** And then?", id="R8-two-with-one-input"),
        pytest.param(
            "Instruction: Add. Input: 1 Instruction: And then? Input: 2", id="R8-two-on-one-line"
        ),
    ],
)
def test_r8_two_instructions_are_asked_for_again(text: str) -> None:
    result = played(text, ORDER, ANSWER)
    assert result.last_message("Lead") == ORDER
    assert rejections(result) == ["Your message must contain 'Instruction:' only once."]
    # If the second reply has two, too, it is said and not parsed.
    result = played(text, text, ANSWER)
    assert "And then?" in str(result.last_message("Lead"))
    assert result.parsed("Lead") == [None]
    assert next(fields_of(one).flaw for one in result.messages if kind_of(one) == "speech")


def test_r8_a_heading_of_a_solution_may_come_again() -> None:
    text = "Solution: First.\nSolution: Second.\nNext request."
    assert played(ORDER, text).last_message("Coder") == text


def test_r8_what_people_say_is_read_as_leniently_and_left_as_they_said_it() -> None:
    spec = role_play("Add up", "Lead", "Coder", specify_task=False, people=["Lead"])
    spec = spec.model_copy(update={"end_chat": ROLE_PLAY.end_chat})
    result = played(ANSWER, talk=spec, answer=lambda question: "lead: Instruction: Add up.")
    assert result.last_message("Lead") == "lead: Instruction: Add up."
    assert result.parsed("Lead") == [{"Instruction:": "Add up.", "Input:": "None"}]


@each_row("r8_what_can_t_be_missing_is_refused")
def test_r8_what_can_t_be_missing_is_refused(form: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=f"speakers.0.format.optional: {said}"):
        talk({"name": "Ann", "format": form}, "Bob")


def test_r8_a_stored_message_is_the_one_that_others_hear() -> None:
    store = f"memory:{uuid4().hex}"
    played("Lead: Instruction: Add up.", "Solution: 3", session="one", store=store)
    heard = [one.text for one in Session("one", store=store).state().viewpoint("Coder")]
    assert heard[1].endswith("Instruction: Add up.\nInput: None")
    assert heard[2] == ANSWER


# Repairs.


def test_r15_a_missing_closing_mark_costs_no_call_and_is_heard() -> None:
    result = played(ORDER, f"Solution:\n{CODE}")
    assert result.last_message("Coder") == f"Solution:\n{CODE}\nNext request."
    assert result.parsed("Coder") == [{"Solution:": CODE}]
    assert kinds(result) == ["speech"]
    assert result.why()[0].kind.value == "reason"


@pytest.mark.part(4)
@each_row("r15_real_code_without_a_mark_is_said_where_the_second_try_is_no_reply")
def test_r15_real_code_without_a_mark_is_said_where_the_second_try_is_no_reply(
    second: str,
) -> None:
    result, model = play(ROLE_PLAY, [ORDER, CODE, second])
    assert result.last_message("Coder") == f"Solution:\n{CODE}\nNext request."
    assert result.parsed("Coder") == [{"Solution:": CODE}]
    said = fields_of(result.messages[-1])
    assert (said.kind, said.flaw, said.problem) == ("speech", None, None)
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
    result = played(ORDER, first, second)
    assert result.last_message("Coder") == said
    assert fields_of(result.messages[-1]).flaw == flaw
    assert kinds(result) == ["draft", "speech"]


PROMPT = """You buy a boat and pay little. Never say more than two sentences.
Answer with <your offer> or <no deal>. Greet with these words:
Good day to you, dear neighbour!"""
FREE = talk("Ann", {"name": "Bob", "system_prompt": PROMPT}, rounds=2)
SAME = "I would like to have the boat."


@each_row("r15_an_echo_of_what_it_was_told_is_said_by_nobody")
def test_r15_an_echo_of_what_it_was_told_is_said_by_nobody(echo: str) -> None:
    result = played("A boat!", SAME, "Forty?", SAME, echo, talk=FREE)
    assert result.transcript[-1] == ("Bob", SAME)
    assert fields_of(result.messages[-1]).flaw == "repeated"


@pytest.mark.part(3)
@each_row("r15_what_a_prompt_lets_it_say_is_a_reply")
def test_r15_what_a_prompt_lets_it_say_is_a_reply(reply: str) -> None:
    result = played("A boat!", reply, "Forty?", "No.", talk=FREE)
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
    result = played(ORDER, CODE, "<your solution>", talk=fields, hooks=hooks)
    assert seen == [f"Solution:\n{CODE}\nNext request."]
    assert kinds(result) == ["draft", "unheard_reply", "unheard_reply", "speech"]


def test_r15_who_follows_the_stream_sees_the_try_that_is_said() -> None:
    model = ScriptedChatModel(script=[ORDER, CODE, "<your solution>"])
    events = [*stream(ROLE_PLAY, model=model, store="memory:")]
    said = [event.text for event in events if isinstance(event, MessageSaid)]
    assert said == [ORDER, f"Solution:\n{CODE}\nNext request."]
    told = tokens_by_message(events)
    assert [told[0], told[-1]] == said


def test_r15_a_reply_that_was_cut_off_is_left_as_it_is() -> None:
    """Its missing last mark is neither requested nor added."""
    cut_off = Reply(text="Solution: one, two, th", finish_reason="length")
    assert played(ORDER, cut_off).last_message("Coder") == cut_off.text


def test_r15_how_a_reply_is_asked_for_again_does_not_contradict_itself() -> None:
    told = fill(PROMPTS["rewrite_reply"], problem=PROMPTS["repeated_reply"])
    assert told.startswith("You already sent this message. Say something new.")
    assert "say it again" not in told
