"""Parsing of JSON that clients and people write."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from duologue.graphs import AnswerError, ApprovalQuestion, ToolQuestion
from duologue.graphs.common import files
from duologue.graphs.common.files import parse_json
from duologue.graphs.rules.questions import read_answer

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\\n\u00e9[{,:\U0001f600'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\a'), inner),
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@given(JSON, st.booleans(), st.sampled_from((None, 2)), st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(
    value: object, is_ascii: bool, indent: int | None, is_text: bool
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    assert parse_json(text if is_text else text.encode()) == json.loads(text)


@given(JSON, st.integers(0, 60), st.integers(0, 60))
def test_only_bytes_outside_strings_count(value: object, most: int, start: int) -> None:
    text = json.dumps(value)
    # Strings count by their quotation marks alone.
    outside, marks = len(_STRING.sub("", text)), 2 * len(_STRING.findall(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_MOST_OUTSIDE", most)
        if max(outside, marks) <= most:
            assert parse_json(text) == value
        else:
            with pytest.raises(ValueError, match=f"more than {most} bytes outside its strings"):
                parse_json(text)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 30_000 + "1" + "}" * 30_000])
def test_deep_json_of_a_person_is_no_answer_and_no_crash(deep: str) -> None:
    approval = ApprovalQuestion(action_requests=(), review_configs=(), id="q")
    with pytest.raises(AnswerError, match="the answer is not JSON"):
        approval.read(deep)
    assert ToolQuestion(value=1, id="q").read(deep) == deep
    assert read_answer(deep) == deep
