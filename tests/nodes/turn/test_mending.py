"""R15: repairs keep good replies: completed marks, replies that are no repair, the better try."""

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage

from duologue.graphs import Result, astream, converse, role_play
from duologue.graphs.events import MessageSaid, MessageStarted, MessageToken
from duologue.graphs.kinds.role_play import INSTRUCTION, SOLUTION
from duologue.graphs.log.parsing import Mended, mend
from duologue.graphs.prompts import prompts
from duologue.graphs.speakers.formats import LabelledFormat
from duologue.graphs.text.similarity import is_placeholder, repeats
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.tools import Hook
from support.log import Flaw, fields_of, kind_of, rejections
from support.tables import each_row

CODE = "```python\ndef add(a, b):\n    return a + b\n```"
ORDER = "Instruction: Write a function that adds two numbers.\nInput: None"
ROLE_PLAY = role_play("Add up", "Lead", "Coder", specify_task=False, max_iterations=1)
CLAIM = LabelledFormat(lines=("Claim:", "Proof:"), end="Over.")


def played(*tries: Line, **options: Any) -> tuple[Result, ScriptedChatModel]:
    """Run a solver's model with these answers; return the result and the model."""
    model = ScriptedChatModel(script=[ORDER, *tries])
    store = options.pop("store", f"memory:{uuid4().hex}")
    result = converse(options.pop("talk", ROLE_PLAY), model=model, store=store, **options)
    assert len(model.calls) == 1 + len(tries)
    return result, model


def kinds(result: Result) -> list[str]:
    return [kind_of(message) for message in result.messages[2:]]


@pytest.mark.parametrize(
    ("marks", "text", "made"),
    [
        pytest.param(SOLUTION, "Solution: 3", "Solution: 3\nNext request.", id="R15-no-end"),
        pytest.param(
            SOLUTION, f"Solution:\n{CODE}\n", f"Solution:\n{CODE}\nNext request.", id="R15-code"
        ),
        pytest.param(
            SOLUTION,
            "Solution: I wait for the next request",
            "Solution: I wait for the next request\nNext request.",
            id="R15-no-mark-in-a-sentence",
        ),
        pytest.param(
            SOLUTION,
            "Solution: It waits for the next request.",
            "Solution: It waits for the next request.\nNext request.",
            id="R15-no-mark-at-a-sentence's-end",
        ),
        pytest.param(
            INSTRUCTION,
            "- Instruction: Plant beans.\n- Input: None",
            "Instruction: Plant beans.\nInput: None",
            id="R8-in-a-list",
        ),
        pytest.param(
            INSTRUCTION,
            "1. Instruction: Plant beans.\n2. Input:\n- a spade\n- seeds",
            "Instruction: Plant beans.\nInput:\n- a spade\n- seeds",
            id="R8-numbered",
        ),
        pytest.param(
            SOLUTION,
            "Solution: They have two parts:\n- Solution: what is done\n- Next: what follows",
            "Solution: They have two parts:\n- Solution: what is done\n- Next: what follows"
            "\nNext request.",
            id="R15-a-list-stays",
        ),
        pytest.param(
            SOLUTION,
            "Solution: 3\nNext request. Yes?",
            "Solution: 3\nNext request. Yes?\nNext request.",
            id="R15-end-inside",
        ),
        pytest.param(CLAIM, "Claim: 1\nProof: 2", "Claim: 1\nProof: 2\nOver.", id="R15-two-marks"),
    ],
)
def test_r15_a_missing_closing_mark_is_added(marks: LabelledFormat, text: str, made: str) -> None:
    assert mend(marks, text) == Mended(made, is_opened=False)


@pytest.mark.parametrize(
    ("marks", "text", "made"),
    [
        pytest.param(SOLUTION, "3\nNext request.", "Solution: 3\nNext request.", id="R15-opening"),
        pytest.param(SOLUTION, "It is 3.", "Solution: It is 3.\nNext request.", id="R15-no-marks"),
        pytest.param(SOLUTION, CODE, f"Solution:\n{CODE}\nNext request.", id="R15-code"),
        pytest.param(
            SOLUTION,
            f"Sure!\n\n**Solution:** it is\n{CODE}",
            f"Solution: Sure!\n\nit is\n{CODE}\nNext request.",
            id="R15-preface",
        ),
        pytest.param(
            CLAIM, "I say so.\nProof: 2", "Claim: I say so.\nProof: 2\nOver.", id="R15-first-of-two"
        ),
    ],
)
def test_r15_a_missing_opening_mark_can_be_added(
    marks: LabelledFormat, text: str, made: str
) -> None:
    assert mend(marks, text) == Mended(made, is_opened=True)


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        pytest.param(CLAIM, "Claim: 1", id="R15-no-second-mark"),
        pytest.param(CLAIM, "Proof: 2", id="R15-second-mark-alone"),
        pytest.param(CLAIM, "Proof: 2\nClaim: 1", id="R15-wrong-order"),
        pytest.param(SOLUTION, "So.\nSolution: 3\nSolution: 4", id="R15-two-of-one"),
        pytest.param(SOLUTION, " \n", id="R15-blank"),
    ],
)
def test_r15_nothing_is_made_up_where_what_belongs_is_not_known(
    marks: LabelledFormat, text: str
) -> None:
    assert mend(marks, text) is None


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


@pytest.mark.parametrize(
    ("first", "second", "said", "flaw"),
    [
        pytest.param("Three.", "Solution: 3", "Solution: 3\nNext request.", None, id="Z3-mended"),
        pytest.param(
            "Three.", "It is 3.", "Solution: It is 3.\nNext request.", None, id="R15-both-bare"
        ),
        pytest.param(
            "Solution: <your solution>",
            "It is 3.",
            "Solution: It is 3.\nNext request.",
            None,
            id="R15-placeholder-first",
        ),
        pytest.param(
            "Solution: <your solution>", "", "", Flaw.BLANK, id="R15-of-equal-ones-the-second"
        ),
        pytest.param("", "Lead: so", "Lead: so", Flaw.ROLE_FLIP, id="R15-flips-still-count"),
    ],
)
def test_r15_of_two_tries_the_better_one_is_said(
    first: str, second: str, said: str, flaw: Flaw | None
) -> None:
    result, _ = played(first, second)
    assert result.last_message("Coder") == said
    assert fields_of(result.messages[-1]).flaw is flaw
    assert kinds(result) == ["draft", "speech"]


def free_talk(*lines: Line, **options: Any) -> Result:
    """Return a conversation of two speakers without any format."""
    bob = {"name": "Bob", "system_prompt": PROMPT}
    spec = {"task": "Talk.", "speakers": [{"name": "Ann"}, bob], "end_chat": {"max_iterations": 2}}
    model = ScriptedChatModel(script=lines)
    result = converse(spec | options, model=model, store=f"memory:{uuid4().hex}")
    assert len(model.calls) == len(lines)
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
