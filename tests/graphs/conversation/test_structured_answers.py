"""R4: structured answers are requested strictly and parsed leniently, all in one place."""

import json
from contextlib import suppress
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import example, given, strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from duologue.graphs.conversation.judges import Finding
from duologue.graphs.speakers.structured_answers import OwnAnswer, read_structured
from duologue.graphs.text.structures import UnreadableJsonError, find_objects, is_equal
from support.tables import each_row, read_rows

# Ways in which models write the requested object.
AROUND = read_rows(__file__, "around")


class Judged(OwnAnswer):
    left: list[str]
    complete: bool


class Criteria(OwnAnswer):
    criterion_1: Finding
    criterion_2: Finding


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize(
    "written",
    read_rows(__file__, "r4_the_one_object_of_an_answer_is_found"),
)
def test_r4_the_one_object_of_an_answer_is_found(around: str, written: str) -> None:
    found = read_structured(Judged, around.format(written))
    assert (found.left, found.complete) == (["the day"], False)


def test_r4_braces_and_quotes_in_strings_change_nothing() -> None:
    for text in ("}", "{", '"', '\\"', "{}", "}{", "\\", "a\nb", "```", "{'x'}", "\u00e4"):
        written = json.dumps({"left": [text], "complete": False})
        for around in AROUND.values():
            assert read_structured(Judged, around.format(written)).left == [text]
    # Models do not escape line breaks.
    assert read_structured(Judged, '{"left": ["a\nb"], "complete": false}').left == ["a\nb"]


@each_row("r4_null_and_a_missing_list_are_empty")
def test_r4_null_and_a_missing_list_are_empty(text: str) -> None:
    found = read_structured(Judged, text)
    assert (found.left, found.complete) == ([], True)


@pytest.mark.parametrize(
    ("met", "not_met"),
    [
        *(("Met", "Not met"), ("MET", "NOT_MET"), ("met", "not-met"), (" met ", "Not  Met")),
        *(("met", "notMet"), ("Met", "not_met")),
    ],
)
@pytest.mark.parametrize(
    "keys",
    [
        *(("criterion_1", "criterion_2"), ("Criterion 1", "Criterion 2")),
        *(("criterion-1", "CRITERION_2"), ("criterion1", "criterion 2")),
    ],
)
def test_r4_case_spaces_hyphens_and_underscores_do_not_count(
    met: str, not_met: str, keys: tuple[str, str]
) -> None:
    found = read_structured(Criteria, json.dumps(dict(zip(keys, (met, not_met), strict=True))))
    assert (found.criterion_1, found.criterion_2) == (Finding.MET, Finding.NOT_MET)


YES, NO = '{"left": [], "complete": true}', '{"left": ["the day"], "complete": false}'
BOTH = '{"criterion_1": "met", "criterion_2": "met", %s}'


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *(
            (Judged, text)
            for text in ("", "Yes.", "{}", "[]", "null", '"{}"', "{complete}", "{} {}")
        ),
        *((Judged, text) for text in (YES[:-1], f"{YES} {NO[:-1]}", f"{NO[:-9]} {YES}")),
        *((Judged, text) for text in (f"{YES}\n{NO}", f"{NO}\n```json\n{YES}\n```")),
        *((Judged, text) for text in (f'{YES} {{"complete": true}}', f"[{YES}, {NO}]")),
        (Judged, '{"complete": null}'),
        (Judged, '{"complete": "maybe"}'),
        (Judged, '{"left": [], "reason": "complete"}'),
        (Judged, '{"complete": true, "complete": false}'),
        (Judged, '{"complete": true, "Complete": false}'),
        (Judged, f"```python\n{YES}\n```"),
        (Judged, "{" * 50_000),
        (Judged, '{"left":' * 50_000),
        (Criteria, '{"criterion_1": "met"}'),
        (Criteria, '{"criterion_1": "met", "criterion_2": "nearly met"}'),
        (Criteria, BOTH % '"criterion_1": "not_met"'),
        (Criteria, BOTH % '"Criterion 2": "not met"'),
        (Criteria, BOTH % '"criterion2": "inconclusive"'),
    ],
)
def test_r4_what_says_two_things_or_nothing_is_unreadable(
    model: type[BaseModel], text: str
) -> None:
    with pytest.raises((ValidationError, UnreadableJsonError)):
        read_structured(model, text)


# A user's own models.


class Colour(Enum):
    DARK_RED = "dark-red"
    BLUE = "Blue"


class Part(BaseModel):
    size: Literal["Small", "X-Large"]
    note: str = ""


class Order(BaseModel):
    colour: Colour
    parts: list[Part]
    tags: list[str | None] = []
    extra: dict[str, str] = {}
    by: Literal["Ann", "Bob"] | None = None


def order(**changes: Any) -> dict[str, Any]:
    return {"colour": "dark-red", "parts": [{"size": "Small"}]} | changes


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_l5_a_users_object_is_found(around: str) -> None:
    for given_ in (order(), order(tags=[None], extra={"A b": "}"}), order(colour="Dark Red")):
        found = read_structured(Order, around.format(json.dumps(given_)))
        assert found.colour is Colour.DARK_RED
        assert (found.tags, found.extra) == (given_.get("tags", []), given_.get("extra", {}))


@each_row("l5_keys_and_choices_of_a_users_model_are_folded_and_nothing_else", "given_", "expected")
def test_l5_keys_and_choices_of_a_users_model_are_folded_and_nothing_else(
    given_: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert read_structured(Order, json.dumps(given_)) == Order.model_validate(expected)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    names: list[str]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: Literal["Ann", "Bob"]


def test_l5_unknown_keys_are_as_the_users_model_says() -> None:
    with pytest.raises(ValidationError, match="reason"):
        read_structured(Closed, '{"names": [], "reason": "none"}')
    assert read_structured(Order, json.dumps(order(reason="x"))) == Order(**order())
    found = read_structured(Open, '{"name": "bob", "Name": "x", "Reason": [1.10]}')
    assert found.model_dump() == {"name": "Bob", "Name": "x", "Reason": [1.1]}


@pytest.mark.parametrize("text", ['{"names": null}', '{"names": [null]}', "{}", '[{"names": []}]'])
def test_l5_null_and_missing_lists_of_a_users_model_are_not_made_up(text: str) -> None:
    with pytest.raises(ValidationError):
        read_structured(Closed, text)


def test_l5_choices_that_differ_in_spelling_alone_are_not_guessed() -> None:
    class Alike(BaseModel):
        name: Literal["a b", "A-B", "c"]

    model = Alike
    assert read_structured(model, '{"name": "C"}').model_dump() == {"name": "c"}
    assert read_structured(model, '{"name": "A-B"}').model_dump() == {"name": "A-B"}
    with pytest.raises(ValidationError):
        read_structured(model, '{"name": "a_b"}')


@pytest.mark.parametrize("number", ["1.10", "0.1", "12345678901234567890", "1e3", "-0"])
def test_l5_a_folded_answer_keeps_its_numbers(number: str) -> None:
    class Priced(BaseModel):
        amount: str = Field(coerce_numbers_to_str=True)
        unit: Literal["EUR", "USD"]

    as_written = read_structured(Priced, f'{{"amount": {number}, "unit": "EUR"}}')
    folded = read_structured(Priced, f'So: {{"amount": {number}, "unit": "eur"}}')
    assert folded == as_written


def test_l5_two_different_objects_of_a_user_are_told() -> None:
    one, other = json.dumps(order()), json.dumps(order(colour="Blue"))
    with pytest.raises(UnreadableJsonError, match="two different JSON objects"):
        read_structured(Order, f"{one} or {other}")
    # A fence marks the right one.
    assert read_structured(Order, f"{one}, no:\n```json\n{other}\n```").colour is Colour.BLUE


def test_l5_a_model_of_something_else_is_read_as_before() -> None:
    assert read_structured(RootModel[list[int]], "[1, 2]").root == [1, 2]
    assert read_structured(RootModel[int], "```\n3\n```").root == 3


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), VALUES, min_size=1, max_size=3),
    st.sampled_from([*AROUND.values()]),
    st.booleans(),
)
@example({"}{": '"'}, "{}", True)
def test_r4_any_object_is_found_whatever_its_strings_hold(
    given_: dict[str, Any], around: str, is_ascii: bool
) -> None:
    written = json.dumps(given_, ensure_ascii=is_ascii)
    found = [one for one in find_objects(around.format(written)) if one]
    expected = find_objects(written)[0]
    assert any(is_equal(one, expected) for one in found)
    assert json.loads(json.dumps(expected), parse_float=float).keys() == given_.keys()


@given(st.text(alphabet='{}[]":,\\ \na1`'))
def test_r4_reading_an_answer_never_fails_otherwise(text: str) -> None:
    with suppress(ValidationError, UnreadableJsonError):
        read_structured(Judged, text)
