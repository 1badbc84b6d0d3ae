"""Templates, and the system prompts made from them."""

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from duologue.graphs import (
    BlockFormat,
    CodeFormat,
    Conversation,
    LabelledFormat,
    SchemaFormat,
    load_conversation,
)
from duologue.graphs.prompts import prompts
from duologue.graphs.speakers.formats import Format, describe_format


def test_only_the_given_names_are_replaced() -> None:
    assert prompts.fill_template("{a} {b} {a} {} {c", a=1, b="x") == "1 x 1 {} {c"
    assert prompts.fill_template('{"json": {a}}', a="x") == '{"json": x}'


@given(one=st.text("{}ab", max_size=6), other=st.text("{}ab", max_size=6))
def test_values_are_put_in_once_whatever_they_hold(one: str, other: str) -> None:
    assert prompts.fill_template("<{a}|{b}|{a}>", a=one, b=other) == f"<{one}|{other}|{one}>"


def talk(**ann: object) -> Conversation:
    people = [{"name": "Ann"} | ann, {"name": "Bob"}, {"name": "Cy"}]
    return load_conversation({"task": "Plan.", "speakers": people})


def prompt(conversation: Conversation, task: str | None = "Plan it well.") -> str:
    return conversation.system_prompt(conversation.speakers[0], task)


def test_without_a_role_prompt_the_participants_are_named() -> None:
    text = prompt(talk())
    assert "You are Ann" in text
    assert "Bob and Cy" in text
    assert text.endswith("The task: Plan it well.")


def test_the_task_stands_where_the_prompt_wants_it_or_behind() -> None:
    assert prompt(talk(system_prompt="Do {task} now.")) == "Do Plan it well. now."
    assert prompt(talk(system_prompt="Be {kind}.")) == "Be {kind}.\n\nThe task: Plan it well."
    assert prompt(talk(system_prompt="Be kind."), task=None) == "Be kind."


def test_a_speakers_own_task_is_told_to_it_alone() -> None:
    conversation = talk(task="Win.")
    assert prompt(conversation).endswith("Your own task: Win.")
    assert "Win." not in conversation.system_prompt(conversation.speakers[1], "Plan.")


def test_a_task_that_was_asked_in_the_opening_is_not_told_again() -> None:
    people = [{"name": "Ann", "task": "Win."}, {"name": "Bob", "task": "Draw."}]
    conversation = load_conversation({"speakers": people, "opening": {"answers": True}})
    assert "Win." not in prompt(conversation, task=None)


@pytest.mark.parametrize("names", [("Ann", "Bob"), ("Ann", "Bob", "Cy")])
def test_the_request_for_a_task_names_task_limit_and_a_pair(names: tuple[str, ...]) -> None:
    text = prompts.build_task_request("Plan {limit}.", names, 50, talk().render_prompt)
    assert "Plan {limit}." in text
    assert "at most 50 words" in text
    assert ("Ann" in text and "Bob" in text) == (len(names) == 2)


class Plan(BaseModel):
    goal: str


LAGENT = BlockFormat(begin="```python\n", end="\n```\n", tool_type="code interpreter")

FORMS: list[tuple[Format, list[str]]] = [
    (LabelledFormat(lines=("A:", "B:"), end="End."), ["'A:'", "'B:'", "'End.'"]),
    (LAGENT, ["'code interpreter'", "'```python'", "'```'", "on its own line"]),
    (
        BlockFormat(begin="<do>", end="</do>", required=True),
        ["must contain a block", "'<do>'", "'</do>'"],
    ),
    (CodeFormat(), ["```"]),
    (
        CodeFormat(languages=("sh", "python"), required=True),
        ["must contain", "```", "'sh' or 'python'"],
    ),
    (SchemaFormat(name="Plan", form="text"), ["JSON", '"goal"', '"string"']),
]


@pytest.mark.parametrize(("form", "told"), FORMS)
def test_the_form_of_a_reply_is_told_in_a_sentence_with_every_mark(
    form: Format, told: list[str]
) -> None:
    """L5: the system prompt and a correction request describe the format with every mark."""
    sentence = describe_format(form, Plan)
    assert [part for part in told if part not in sentence] == []
    assert "\n" not in sentence
    assert "\\n" not in sentence
    conversation = talk(format=form)
    text = conversation.system_prompt(conversation.speakers[0], "Plan.", Plan)
    assert text.endswith(f"\n\n{sentence}")
    assert sentence not in conversation.system_prompt(conversation.speakers[1], "Plan.", Plan)


def test_a_schema_whose_class_is_not_at_hand_is_told_by_its_name() -> None:
    assert "'Plan'" in describe_format(SchemaFormat(name="Plan", form="text"))


@pytest.mark.parametrize(
    ("form", "system_prompt"),
    [
        (LabelledFormat(lines=("A:", "B:")), "Say A: this."),
        (LAGENT, "Write ```python to begin code."),
        (CodeFormat(), "Put code into ``` fences."),
        (SchemaFormat(name="Plan"), "Make a plan."),
    ],
)
def test_a_form_that_the_prompt_tells_or_the_model_is_held_to_is_not_told_again(
    form: Format, system_prompt: str
) -> None:
    conversation = talk(format=form, system_prompt=system_prompt)
    assert conversation.system_prompt(conversation.speakers[0], None, Plan) == system_prompt
