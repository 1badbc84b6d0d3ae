"""Marks are compared only with the ends of a text; a slow reading of the whole text agrees."""

import re
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import strategies as st

from duologue.graphs.log.marks import begins, end_of, length_of, read_marks
from duologue.graphs.speakers.formats import BEFORE_COLON, EMPHASIS, LEADING, WIDE, normalize_mark
from support.cases import drawn_cases

MARKS = ("Instruction:", "Input:", "Solution:", "Straße:", "# Plan", "İ ː:", "a", "：x", "ab c :")  # noqa: RUF001
ENDS = ("Next request.", "Next request", "done:", "ss", "。", "# end", "(End)", "İ", "* fin *")

GLUE = ("", " ", "  ", "\t", "\u00a0", "**", "_", "`", "*  *", " ** ", "# ", "> ", " :", "：", ":")  # noqa: RUF001
FAR = (" " * 300, "*" * 300, "# " * 150, "> " * 200, "\u00a0" * 200, " *" * 150, "`" * 70)
STEMS = tuple(mark.rstrip(":： ") for mark in (*MARKS, *ENDS) if mark.rstrip(":： "))  # noqa: RUF001
WORDS = ("soil", "ß", "SS", "İ", "ﬁn", ".", "!", '"', ")", "…", "I wait for the", "x" * 200, "-")
BREAKS = ("\n", "\r\n", "\r", "\n\n", "\u2028", "\x0b", "\x1c")

pieces = st.one_of(
    st.sampled_from((*MARKS, *ENDS)),
    st.sampled_from(GLUE),
    st.sampled_from(FAR),
    st.tuples(st.sampled_from(STEMS), st.sampled_from(FAR), st.sampled_from(":：")).map("".join),  # noqa: RUF001
    st.sampled_from(WORDS),
    st.sampled_from(BREAKS),
    st.sampled_from([*"SsIiNn.:*_#> \n"]),
    st.sampled_from((*MARKS, *ENDS)).map(lambda mark: "**".join([*mark])),
    st.sampled_from((*MARKS, *ENDS)).map(str.swapcase),
)
texts = st.lists(pieces, max_size=12).map("".join)
lines = texts.map(lambda text: re.sub(r"[\r\n]", "", text))
marks = st.sampled_from(MARKS)
ends = st.sampled_from(ENDS)


def slow_folded(text: str) -> tuple[str, list[int]]:
    """Return a text in the form in which marks are compared, and the origin of each character."""
    spaces = {place for found in BEFORE_COLON.finditer(text) for place in range(*found.span())}
    pairs = [
        (sign, place)
        for place, given in enumerate(text)
        if given not in EMPHASIS and place not in spaces
        for sign in given.translate(WIDE).casefold()
    ]
    return "".join(sign for sign, _ in pairs), [place for _, place in pairs]


def slow_begins(line: str, mark: str) -> bool:
    return normalize_mark(line).startswith(normalize_mark(mark))


def slow_length_of(mark: str, line: str) -> tuple[int, str]:
    signs, places = slow_folded(line)
    leading = LEADING.match(signs)
    skipped = leading.end() if leading else 0
    first, last = places[skipped], places[skipped + len(normalize_mark(mark)) - 1]
    opening = re.compile(f"[{re.escape(EMPHASIS)}]*$").search(line, 0, first)
    closing = opening[0][::-1] if opening else ""
    if line.startswith(closing, last + 1):
        return last + 1 + len(closing), ""
    return last + 1, closing


def slow_end_of(end: str, text: str) -> tuple[int, int] | None:
    signs_of_emphasis = re.escape(EMPHASIS)
    sentence_end = re.compile(
        rf"(?:\A|[\r\n.!?:…。！？：])[{signs_of_emphasis}\s\"'”)\]]*\Z"  # noqa: RUF001
    )

    def unsigned(text: str) -> str:
        return "".join(sign for sign in text if sign not in EMPHASIS).translate(WIDE)

    for behind in (f"{EMPHASIS} \t\r\n", f"{EMPHASIS} \t\r\n#>"):
        body = text.rstrip(behind)
        signs, places = slow_folded(body)
        if not signs.endswith(normalize_mark(end)):
            continue
        start = places[len(signs) - len(normalize_mark(end))]
        is_written = unsigned(end).endswith(unsigned(body[start:]))
        if not is_written and sentence_end.search(text, 0, start) is None:
            continue
        line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
        if not normalize_mark(text[line:start]):
            return line, start
        closing = re.compile(f"[{signs_of_emphasis}]*").match(text, len(body))
        opening = closing[0][::-1] if closing else ""
        return (start - len(opening) if text.endswith(opening, 0, start) else start), start
    return None


def slow_places(lines: Sequence[str], text: str) -> list[tuple[int, int, str]]:
    found, left, start = list[tuple[int, int, str]](), list(lines), 0
    for line in text.splitlines(keepends=True):
        if left and line.strip():
            if slow_begins(line, left[0]):
                length, closing = slow_length_of(left.pop(0), line)
                found.append((start, start + length, closing))
            elif len(left) == len(lines):
                break
        start += len(line)
    return found


def slow_read_marks(lines: Sequence[str], end: str | None, text: str) -> list[str] | None:
    places = slow_places(lines, text)
    if len(places) < len(lines):
        return None
    last = (len(text), len(text)) if end is None else slow_end_of(end, text)
    if last is None or places[-1][1] > last[1]:
        return None
    values = []
    until = [start for start, _, _ in places[1:]] + [last[0]]
    for (_, behind, closing), to in zip(places, until, strict=True):
        head, line_break, rest = text[behind:to].strip().partition("\n")
        if closing and head.count(closing) == 1 and head.rstrip().endswith(closing):
            head = head.rstrip().removesuffix(closing).rstrip()
        values.append(head + line_break + rest)
    return values


@drawn_cases(25, 4_000, line=texts, mark=marks)
def test_whether_a_text_begins_with_a_mark(line: str, mark: str) -> None:
    assert begins(line, mark) is slow_begins(line, mark)


@drawn_cases(25, 4_000, before=st.sampled_from((*GLUE, *FAR)), mark=marks, behind=lines)
def test_how_long_a_mark_is(before: str, mark: str, behind: str) -> None:
    line = f"{before}{mark}{behind}"
    if slow_begins(line, mark):
        assert length_of(mark, line) == slow_length_of(mark, line)


@drawn_cases(25, 4_000, before=texts, end=ends, behind=st.sampled_from((*GLUE, *FAR, "\n", "x")))
def test_where_an_end_mark_begins(before: str, end: str, behind: str) -> None:
    for text in (f"{before}{end}{behind}", f"{before}{end.upper()}{behind}", before):
        assert end_of(end, text) == slow_end_of(end, text)


@drawn_cases(
    25,
    4_000,
    given=st.lists(marks, min_size=1, max_size=3),
    end=st.none() | ends,
    values=st.lists(texts, min_size=3, max_size=3),
    breaks=st.sampled_from(BREAKS),
)
def test_what_comes_after_each_mark(
    given: list[str], end: str | None, values: list[str], breaks: str
) -> None:
    written = (f"{mark} {value}{breaks}" for mark, value in zip(given, values, strict=False))
    text = f"{''.join(written)}{end or ''}"
    for shown in (text, "".join(values), text.upper()):
        assert read_marks(given, end, shown) == slow_read_marks(given, end, shown)


@pytest.mark.part(1)
@pytest.mark.parametrize("mark", ["Straße:", "done:", "ab c :"])
def test_much_space_and_many_signs_around_a_mark_and_before_its_colon(mark: str) -> None:
    stem = mark.rstrip(":： ")  # noqa: RUF001
    for before, far, colon, value in product(("", *FAR), FAR, ":：", ("", " 3", "**", "*3*")):  # noqa: RUF001
        line = f"{before}{stem}{far}{colon}{value}"
        assert begins(line, mark) is slow_begins(line, mark), line
        assert end_of(mark, f"x\n{line}") == slow_end_of(mark, f"x\n{line}"), line
        if slow_begins(line, mark) and stem:
            assert length_of(mark, line) == slow_length_of(mark, line), line
