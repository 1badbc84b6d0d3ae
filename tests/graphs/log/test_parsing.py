"""Replies parsed by the speaker's format (L5), and the code in them that is run (A7)."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from pydantic import BaseModel, Field, RootModel

from duologue.graphs import BlockFormat, CodeFormat, LabelledFormat, SchemaFormat
from duologue.graphs.kinds.role_play import INSTRUCTION, SOLUTION
from duologue.graphs.log.messages import storable
from duologue.graphs.log.parsing import (
    RunnableBlock,
    code_blocks,
    infer_language,
    open_blocks,
    parse,
)
from duologue.graphs.speakers.formats import Format, ParsedBlock, ParseStatus
from duologue.graphs.text.structures import without_fences
from support.tables import each_row

LAGENT = BlockFormat(begin="```python\n", end="\n```\n", tool_type="code interpreter")
TAGS = BlockFormat(begin="<do>", end="</do>")


def blocks(form: Format, text: str, stop: Sequence[str] = ()) -> list[ParsedBlock]:
    """Return the blocks of a reply, even if it has problems."""
    value = parse(form, text, stop=stop).value
    assert isinstance(value, list)
    return [ParsedBlock.model_validate(one) for one in value]


def short(form: Format, text: str, stop: Sequence[str] = ()) -> list[tuple[str, str | None, int]]:
    return [(one.thought, one.action, one.status) for one in blocks(form, text, stop)]


Rows = list[list[str | int]]


def as_rows(found: Iterable[Sequence[str | int | None]]) -> Rows:
    """Return blocks as the tables write them: "-" is None."""
    return [["-" if part is None else part for part in one] for one in found]


# Marks


@each_row("marked")
def test_what_stands_behind_each_mark_is_read(
    marks: list[str], text: str, value: list[str]
) -> None:
    known = {"Instruction:": INSTRUCTION, "Solution:": SOLUTION}
    found = parse(known.get(marks[0]) or LabelledFormat(lines=tuple(marks)), text)
    assert found.value == dict(zip(marks, value, strict=True))
    assert found.problem is None


def test_missing_marks_are_told_with_the_form_asked_for() -> None:
    found = parse(SOLUTION, "Three.")
    assert found.value is None
    assert found.problem == "Your message must begin with 'Solution:' and end with 'Next request.'."


@each_row("stopped_replies")
def test_a_stop_text_ends_the_reply_where_it_is_the_end_mark(
    text: str, stop: str, value: str | None
) -> None:
    found = parse(SOLUTION, text, stop=("END", stop))
    assert found.value == (None if value is None else {"Solution:": value})
    assert (found.problem is None) is (value is not None)
    assert value is None or found.text is None


@each_row("where_no_stop_text_is_the_end_mark_it_is_added")
def test_where_no_stop_text_is_the_end_mark_it_is_added(stop: str) -> None:
    found = parse(SOLUTION, "Solution: 3", stop=("END", stop))
    assert found.value == {"Solution:": "3"}
    assert found.text == "Solution: 3\nNext request."


words = st.text("ab c.\n", max_size=9).map(str.strip)


@given(said=st.lists(words, min_size=3, max_size=3), decorated=st.booleans())
def test_what_was_put_behind_marks_is_what_is_read(said: list[str], decorated: bool) -> None:
    marks = LabelledFormat(lines=("One:", "Two:", "Three:"), end="Over!")
    shown = [f"**{mark}**" if decorated else mark for mark in marks.lines]
    text = "\n".join(f"{mark} {value}" for mark, value in zip(shown, said, strict=True))
    assert parse(marks, f"{text}\nOver!").value == dict(zip(marks.lines, said, strict=True))


# Blocks between marks

SOLVED = """Both numbers are divisors of 63, and multiples of it: 63 and -63.

```python
print(63 * -63)"""


def test_the_parsed_solution_of_lagent() -> None:
    """L5: the last block may lack its end mark, at which generation stops."""
    (found,) = blocks(LAGENT, SOLVED, stop=("\n```\n",))
    assert found == ParsedBlock(
        thought="Both numbers are divisors of 63, and multiples of it: 63 and -63.\n\n",
        action="print(63 * -63)",
        tool_type="code interpreter",
        status=ParseStatus.VALID,
    )
    assert (ParseStatus.VALID, ParseStatus.NONE, ParseStatus.BROKEN) == (1, 0, -1)


@each_row("between_tags")
def test_blocks_are_read_in_order_with_the_prose_before_each(text: str, read: Rows) -> None:
    """L5: all blocks are kept, whereas Lagent keeps only the first."""
    assert as_rows(short(TAGS, text)) == read


@each_row("between_lines")
def test_line_breaks_belong_to_the_marks(text: str, read: Rows) -> None:
    assert as_rows(short(LAGENT, text)) == read


@each_row("stopped_blocks")
def test_a_stop_text_ends_the_last_block_where_it_is_the_end(
    rest: str, stop: str, action: str | None
) -> None:
    (found,) = blocks(LAGENT, f"```python\n{rest}", (stop,))
    assert (found.status, found.action) == (
        (ParseStatus.BROKEN, rest) if action is None else (ParseStatus.VALID, action)
    )


def test_a_block_without_an_end_is_a_problem_and_still_given() -> None:
    found = parse(LAGENT, "a\n```python\nx")
    assert found.problem == "A block in your message is not closed. End it with '```'."
    assert found.value == [
        {"thought": "a\n", "action": "x", "tool_type": "code interpreter", "status": -1}
    ]


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize(
    "form",
    [BlockFormat(begin="<do>", end="</do>"), CodeFormat(), CodeFormat(languages=("python", "sh"))],
)
def test_a_reply_without_a_block_is_a_problem_where_one_is_required(
    form: BlockFormat | CodeFormat, required: bool
) -> None:
    found = parse(form.model_copy(update={"required": required}), "Hello.")
    assert found.value == [{"thought": "Hello.", "action": None, "tool_type": None, "status": 0}]
    assert (found.problem is not None) is required
    assert (
        parse(form.model_copy(update={"required": True}), "<do>x</do>\n```sh\nx\n```").problem
        is None
    )


PIECES = ["```python\n", "\n```\n", "<do>", "</do>", "```", "~~~", "\n", "\r\n", "> ", "- ", "   "]
replies = st.lists(st.sampled_from([*PIECES, "sh", "x", "é\u2028", "\0"]), max_size=16).map("".join)
unmarked = st.text(st.characters(codec="utf-8", exclude_characters="<>\0"), max_size=20)
said = unmarked.filter(lambda text: bool(text.strip()))


@given(parts=st.lists(st.tuples(said, unmarked), max_size=4), rest=st.just("") | said)
def test_blocks_that_were_joined_are_parted_again(parts: list[tuple[str, str]], rest: str) -> None:
    text = "".join(f"{thought}<do>{action}</do>" for thought, action in parts) + rest
    whole = [(thought, action, 1) for thought, action in parts]
    assert short(TAGS, text) == whole + ([(rest, None, 0)] if rest else [])


@pytest.mark.parametrize("form", [LAGENT, TAGS, BlockFormat(begin="[[", end="]]\n")])
@given(text=replies)
def test_nothing_of_a_reply_is_lost_between_marks(form: BlockFormat, text: str) -> None:
    left = storable(text.replace("\r\n", "\n"))
    for block in blocks(form, left):
        assert left.startswith(block.thought)
        left = left.removeprefix(block.thought)
        if block.action is None:
            continue
        assert left.startswith(form.begin + block.action)
        left = left.removeprefix(form.begin + block.action)
        if block.status is ParseStatus.VALID:
            # In an empty block two line breaks count as one; the text's end is the last one.
            ends = [form.end, form.end.rstrip("\n")]
            ends += [end.removeprefix("\n") for end in ends if not block.action]
            end = next(end for end in ends if left.startswith(end))
            left = left.removeprefix(end)
    assert not left.strip()


# Fenced code


@each_row("fenced")
def test_fenced_code_is_read_in_order(text: str, read: Rows) -> None:
    found = blocks(CodeFormat(), text)
    assert as_rows((one.thought, one.action, one.tool_type) for one in found) == read
    assert {one.status for one in found} <= {ParseStatus.VALID, ParseStatus.NONE}


def test_code_in_another_language_is_prose() -> None:
    """L5: code in another language, or without a language, is prose."""
    text = "```\na\n```\n```JSON\nb\n```\n```python\nc\n```\n"
    form = CodeFormat(languages=("Python",), required=True)
    assert short(form, text) == [("```\na\n```\n```JSON\nb\n```\n", "c", 1)]
    problem = parse(form, "```\na\n```").problem
    assert problem is not None
    assert "'Python'" in problem


@each_row("open_fences")
def test_a_fence_that_is_not_closed_is_broken(
    text: str, stop: tuple[str, ...], status: int
) -> None:
    assert blocks(CodeFormat(), text, stop)[0].status == status
    assert (parse(CodeFormat(), text, stop=stop).problem is not None) is (status == -1)


lines = st.lists(st.text("x y", max_size=5), max_size=3).map("\n".join)


@given(
    parts=st.lists(st.tuples(lines, lines), min_size=1, max_size=3),
    language=st.sampled_from(["", "sh"]),
)
def test_fences_that_were_joined_are_parted_again(
    parts: list[tuple[str, str]], language: str
) -> None:
    text = "".join(f"{said}\n```{language}\n{code}\n```\n" for said, code in parts)
    assert short(CodeFormat(), text) == [(f"{said}\n", code, 1) for said, code in parts]


indents = st.sampled_from(["", "  ", "    ", "> ", "- ", "1. "])
signs = st.sampled_from(["word", "word", "", "```", "```sh", "````", "~~~"])


@given(parts=st.lists(st.tuples(indents, signs), max_size=12), end=st.sampled_from(["\n", "\r\n"]))
def test_nothing_of_a_reply_is_lost_around_code(parts: list[tuple[str, str]], end: str) -> None:
    """L5: every word is in a thought or an action, in order, with any fences."""
    numbered = [sign.replace("word", f"word{place}") for place, (_, sign) in enumerate(parts)]
    text = end.join(indent + sign for (indent, _), sign in zip(parts, numbered, strict=True))
    for form in (CodeFormat(), CodeFormat(languages=("sh",))):
        read = " ".join(f"{one.thought} {one.action or ''}" for one in blocks(form, text))
        assert re.findall(r"word\d+", read) == [sign for sign in numbered if "word" in sign]


# Code that is run (A7)


def fenced(code: str, label: str = "", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}\n{fence}"


@each_row("labels")
def test_a_label_names_the_language(label: str, language: str) -> None:
    """A7: the label of a code block determines its language."""
    assert code_blocks(fenced("print(1)", label)) == [RunnableBlock(language, "print(1)")]


@each_row("inferred")
def test_without_a_label_it_is_inferred(code: str, language: str) -> None:
    """A7: the language of unlabelled code is inferred from its content."""
    assert infer_language(code) == language
    assert code_blocks(fenced(code)) == [RunnableBlock(language, code)]


def test_all_blocks_come_in_order_wherever_they_stand() -> None:
    """A7: all code blocks are found in order, at any position in the text."""
    text = "\n\n".join(
        [
            "First:",
            fenced("a = 1", "python"),
            "then, in a list:\n\n1. " + fenced("b = 2", "py").replace("\n", "\n   "),
            "> " + fenced("c = 3", "py", "~~~").replace("\n", "\n> "),
            fenced("", "python"),
            "```python\nd = 4",
        ]
    )
    assert [block.code for block in code_blocks(text)] == ["a = 1", "b = 2", "c = 3"]
    assert [block.code for block in open_blocks(text)] == ["d = 4"]


@pytest.mark.parametrize(
    "text", ["", "print(1)", "`print(1)`", "Use python.", "    indented", "````"]
)
def test_what_is_not_fenced_is_not_code(text: str) -> None:
    """A7: text without a fence is not code."""
    assert code_blocks(text) == []


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    """A7: no text causes an error."""
    for block in code_blocks(text):
        assert block.code.strip()
    for block in code_blocks(fenced(text.replace("`", "'"))):
        assert block.language in ("python", "shell", "")


# Schemas


class Step(BaseModel):
    title: str
    hours: int = Field(gt=0)


class Plan(BaseModel):
    goal: str
    steps: list[Step]
    note: Any = None


PLAN = SchemaFormat(name="Plan")
GOOD: dict[str, Any] = {"goal": "Garden", "steps": [{"title": "Dig", "hours": 2}], "note": None}
WRITTEN = json.dumps(GOOD)


@pytest.mark.parametrize("form", [PLAN, SchemaFormat(name="Plan", form="text")])
@each_row("fitting_json")
def test_json_that_fits_is_read_as_plain_values(text: str, form: SchemaFormat) -> None:
    found = parse(form, text, schema=Plan)
    assert found.value == GOOD
    assert found.problem is None


@each_row("misfitting_json")
def test_json_that_does_not_fit_is_told_by_its_field(text: str, named: str) -> None:
    found = parse(PLAN, text, schema=Plan)
    assert found.value is None
    assert found.problem is not None
    assert found.problem.startswith("Your message must be JSON that fits its schema")
    assert named in found.problem
    assert "\n" not in found.problem


def test_a_schema_may_stand_for_more_than_an_object() -> None:
    assert parse(PLAN, "[1, 2]", schema=RootModel[list[int]]).value == [1, 2]
    assert parse(PLAN, "```\n3\n```", schema=RootModel[int]).value == 3


def test_numbers_that_json_does_not_have_are_none() -> None:
    value = parse(PLAN, '{"goal": "x", "steps": [], "note": [NaN, 1e999]}', schema=Plan).value
    assert isinstance(value, dict)
    assert value["note"] == [None, None]


def test_a_schema_needs_its_class() -> None:
    with pytest.raises(ValueError, match="schema: is missing; pass the model named 'Plan'"):
        parse(PLAN, WRITTEN)


@each_row("fenced_answers")
def test_only_a_fence_around_a_whole_answer_is_taken_away(text: str, left: str) -> None:
    """L5: a verdict quoted inside prose is no verdict."""
    assert without_fences(text) == left


# Arbitrary texts


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "form", [INSTRUCTION, SOLUTION, LAGENT, TAGS, CodeFormat(), CodeFormat(languages=("sh",)), PLAN]
)
@given(text=replies | st.text(st.characters(exclude_categories=[])))
@example("")
@example("\ud800")
@example("[" * 500)
@example("> " * 200 + "```")
def test_any_text_is_read_as_plain_values_or_gives_a_reason(form: Format, text: str) -> None:
    found = parse(form, text, stop=("\n```\n", "", "</do>"), schema=Plan)
    assert found.value is not None or found.problem
    assert json.loads(json.dumps(found.value, allow_nan=False)) == found.value
    json.dumps(found.value, ensure_ascii=False).encode("utf-8")
