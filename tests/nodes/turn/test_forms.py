"""R8: forms are read leniently: the accepted texts, the texts others hear, the rejected ones."""

from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import LabelledFormat, Result, Session, SpecError, load_conversation, role_play
from duologue.graphs.kinds.role_play import INSTRUCTION, SOLUTION
from duologue.graphs.log.marks import plays
from duologue.graphs.log.parsing import Mended, mend, parse
from duologue.nodes.testing import Line
from support.log import Flaw, fields_of, kind_of, rejections
from support.shape_help import play
from support.tables import each_row

ROLE_PLAY = role_play("Add up", "Lead", "Coder", specify_task=False, max_iterations=1)
ORDER = "Instruction: Add two numbers.\nInput: 1 and 2"
ANSWER = "Solution: 3\nNext request."
CLAIM = LabelledFormat(lines=("Claim:", "Source:", "Proof:"), end="Over.", optional=("Source:",))


def played(*lines: Line, **options: Any) -> Result:
    """Play a role-play of one round, on a script that must be used up."""
    result, _ = play(options.pop("spec", ROLE_PLAY), lines, **options)
    return result


@each_row("r8_what_a_solution_lacks_is_added_without_asking_again")
def test_r8_what_a_solution_lacks_is_added_without_asking_again(text: str, heard: str) -> None:
    result = played(ORDER, text)
    assert result.last_message("Coder") == heard
    assert result.parsed("Coder") == [
        {"Solution:": heard.split(":", 1)[1].split("Next")[0].strip()}
    ]
    assert fields_of(result.messages[-1]).flaw is None


@each_row("r8_what_is_whole_is_heard_as_it_was_said")
def test_r8_what_is_whole_is_heard_as_it_was_said(text: str) -> None:
    result = played(ORDER, text)
    assert result.last_message("Coder") == text
    assert result.parsed("Coder") == [{"Solution:": "3"}]


@each_row("r8_an_instruction_is_read_however_its_input_stands")
def test_r8_an_instruction_is_read_however_its_input_stands(
    text: str, heard: str, read: tuple[str, str]
) -> None:
    result = played(text, ANSWER)
    assert result.last_message("Lead") == heard
    assert result.parsed("Lead") == [dict(zip(INSTRUCTION.lines, read, strict=True))]


TWO = [
    pytest.param(f"{ORDER}\n\nInstruction: And then?\nInput: None", id="R8-two-pairs"),
    pytest.param(f"Lead: {ORDER}\n**Instruction:** And then?", id="R8-two-with-one-input"),
    pytest.param(
        "Instruction: Add. Input: 1 Instruction: Divide. Input: 2", id="R8-two-on-one-line"
    ),
]


@pytest.mark.parametrize("text", TWO)
def test_r8_two_instructions_are_asked_for_again(text: str) -> None:
    result = played(text, ORDER, ANSWER)
    assert result.last_message("Lead") == ORDER
    assert rejections(result) == ["Your message must contain 'Instruction:' only once."]


@pytest.mark.parametrize("text", TWO)
def test_r8_two_instructions_twice_are_said_and_not_read(text: str) -> None:
    result = played(text, text, ANSWER)
    assert "And then?" in (latest := str(result.last_message("Lead"))) or "Divide." in latest
    assert result.parsed("Lead") == [None]
    (said,) = [fields_of(one) for one in result.messages if kind_of(one) == "speech"][:1]
    assert said.flaw is Flaw.FORM


def test_r8_a_heading_of_a_solution_may_come_again() -> None:
    text = "Solution: First.\nSolution: Second.\nNext request."
    assert played(ORDER, text).last_message("Coder") == text


@each_row("r8_only_optional_lines_may_be_missing")
def test_r8_only_optional_lines_may_be_missing(text: str, made: str | None) -> None:
    expected = None if made is None else Mended(made, is_opened=False)
    if text.endswith("Over") and made is None:
        expected = Mended("Claim: 1\nSource: None\nProof: 2 Over\nOver.", is_opened=False)
    assert mend(CLAIM, text) == expected


def test_r8_what_people_say_is_read_as_leniently_and_left_as_they_said_it() -> None:
    spec = role_play("Add up", "Lead", "Coder", specify_task=False, people=["Lead"])
    spec = spec.model_copy(update={"end_chat": ROLE_PLAY.end_chat})
    result = played(ANSWER, spec=spec, answer=lambda question: "lead: Instruction: Add up.")
    assert result.last_message("Lead") == "lead: Instruction: Add up."
    assert result.parsed("Lead") == [{"Instruction:": "Add up.", "Input:": "None"}]


def test_r8_anothers_label_or_mark_is_still_anothers_part() -> None:
    lead, coder = ROLE_PLAY.speakers
    assert plays(ROLE_PLAY, coder, "Lead:go on") == "Lead"
    assert plays(ROLE_PLAY, coder, "Instruction:go on") == "Lead"
    assert plays(ROLE_PLAY, lead, "Lead: Instruction: go on") is None


@each_row("r8_what_can_t_be_missing_is_refused")
def test_r8_what_can_t_be_missing_is_refused(form: dict[str, Any], said: str) -> None:
    speakers = [{"name": "Ann", "format": form}, {"name": "Bob"}]
    with pytest.raises(SpecError, match=f"speakers.0.format.optional: {said}"):
        load_conversation({"task": "Talk.", "speakers": speakers})


def test_r8_a_stored_message_is_the_one_that_others_hear() -> None:
    store = f"memory:{uuid4().hex}"
    played("Lead: Instruction: Add up.", "Solution: 3", session="one", store=store)
    heard = [one.text for one in Session("one", store=store).state().viewpoint("Coder")]
    assert heard[1].endswith("Instruction: Add up.\nInput: None")
    assert heard[2] == ANSWER


@pytest.mark.parametrize("marks", [INSTRUCTION, SOLUTION, CLAIM])
@pytest.mark.parametrize("text", ["", " ", "\n", ":", "**", "```", "None", "Coder:", "Coder: "])
def test_r8_odd_texts_are_read_without_a_fault(marks: LabelledFormat, text: str) -> None:
    found = mend(marks, text, "Coder")
    assert found is None or parse(marks, found.text).problem is None
