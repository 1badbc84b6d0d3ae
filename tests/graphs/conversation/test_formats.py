"""Output formats as data (L5): readable from any file, and refused if ambiguous."""

import json
from typing import Any

import pytest

from duologue.graphs import (
    BlockFormat,
    CodeFormat,
    Conversation,
    LabelledFormat,
    SchemaFormat,
    Speaker,
    SpecError,
    load_conversation,
)
from support.tables import read_rows

LAGENT = {"begin": "```python\n", "end": "\n```\n", "tool_type": "code interpreter"}
Format = LabelledFormat | BlockFormat | CodeFormat | SchemaFormat


def talk(**ann: object) -> Conversation:
    people = [{"name": "Ann"} | ann, {"name": "Bob"}]
    return load_conversation({"task": "Plan.", "speakers": people})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        pytest.param(
            {"lines": ["A:"]}, LabelledFormat(lines=("A:",)), id="L5-marks-without-a-kind"
        ),
        pytest.param(
            {"kind": "lines", "lines": ["A:"]}, LabelledFormat(lines=("A:",)), id="L5-marks"
        ),
        pytest.param(LAGENT, BlockFormat.model_validate(LAGENT), id="L5-blocks-by-their-begin"),
        pytest.param(
            {"kind": "blocks"} | LAGENT, BlockFormat.model_validate(LAGENT), id="L5-blocks-by-kind"
        ),
        pytest.param("code", CodeFormat(), id="L5-a-word"),
        pytest.param(
            {"languages": ["sh"]}, CodeFormat(languages=("sh",)), id="L5-code-by-languages"
        ),
        pytest.param({"name": "Plan"}, SchemaFormat(name="Plan"), id="L5-schema-by-its-name"),
        pytest.param(CodeFormat(required=True), CodeFormat(required=True), id="L5-as-an-object"),
    ],
)
def test_a_format_is_known_by_its_kind_or_a_field_of_its_own(given: Any, read: Format) -> None:  # noqa: ANN401
    assert talk(format=given).speakers[0].format == read


@pytest.mark.parametrize(
    "form",
    [
        LabelledFormat(lines=("A:", "B:"), end="C."),
        BlockFormat(begin="```python\n", end="\n```\n", required=True),
        BlockFormat(begin=" <a\t>", end="\r\n</a> "),
        CodeFormat(languages=("python",)),
        SchemaFormat(name="Plan", form="text"),
    ],
)
def test_a_format_is_written_with_its_kind_and_read_back_to_the_letter(form: Format) -> None:
    """L5: marks of blocks keep their line breaks and spaces in JSON and in Python."""
    conversation = talk(format=form)
    written = conversation.stored()["speakers"][0]["format"]
    assert written["kind"] == form.kind
    assert talk(format=written) == conversation
    assert load_conversation(json.loads(conversation.model_dump_json())) == conversation


REFUSED: list[tuple[object, str]] = read_rows(__file__, "refused")


@pytest.mark.parametrize(("form", "said"), REFUSED, ids=[f"L5-{said[:40]}" for _, said in REFUSED])
def test_a_format_that_can_t_be_read_is_refused_when_built(form: object, said: str) -> None:
    """L5: an invalid format is refused in a sentence that names the field."""
    with pytest.raises(SpecError) as caught:
        talk(format=form)
    assert str(caught.value).startswith(f"speakers.0.{said}")


def test_an_error_quotes_what_was_given_once() -> None:
    with pytest.raises(SpecError) as caught:
        talk(format={"lines": ["A:"], "end": "a: b"})
    assert str(caught.value).count("'a: b'") == 1


@pytest.mark.parametrize(
    ("ann", "bob"),
    [
        (LabelledFormat(lines=("Say:",)), LabelledFormat(lines=("Say:", "Why:"))),
        (BlockFormat(begin="<a>", end="</a>"), BlockFormat(begin="</a>", end="<a>")),
    ],
)
def test_speakers_may_share_their_marks(ann: Format, bob: Format) -> None:
    people = (Speaker(name="Ann", format=ann), Speaker(name="Bob", format=bob))
    assert Conversation(task="Plan.", speakers=people).speakers == people


def test_who_is_held_to_a_schema_has_no_tools() -> None:
    """L5: a strict schema excludes tools, and the error recommends the form "text"."""
    with pytest.raises(SpecError, match=r'speakers\.0\.tools: .* set format\.form = "text"'):
        talk(format={"name": "Plan"}, tools=["weather"])
    assert talk(format={"name": "Plan", "form": "text"}, tools=["weather"])
    assert talk(format={"name": "Plan"})


def test_a_format_can_t_be_changed() -> None:
    with pytest.raises(SpecError, match=r"^required: a CodeFormat can't be changed"):
        CodeFormat().required = True  # type: ignore[misc]
