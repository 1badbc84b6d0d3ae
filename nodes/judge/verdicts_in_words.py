"""Verdicts in words: the answer to a yes-or-no question, and a line for each criterion.

The first word of a verdict's line decides, never a word in the middle. A doubtful "yes" or "met" is
unreadable: ``graphs/text/doubts.py``.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from ...graphs.conversation.judges import Finding
from ...graphs.text.doubts import is_doubtful, is_vague

T = TypeVar("T")

_SIGNS: Final = r"[^\w\n]*"

_LABEL: Final = re.compile(
    r"(?:\d{1,2}\W*[.:)]\W*)?"
    r"(?:(?:(?:the|my|so|final|short|one-word|overall|task)\W+)*"
    r"(?:answer|verdict|reply|response|result|conclusion|complete)(?:\W+is\b)?(?:\W*:)?\W+)?"
)
"""Introductions of a verdict: "The answer is", "Verdict:", "1:"."""

_INTRODUCES: Final = re.compile(r"\W*\Z|[\W\d]*#|.*[:?][\"'*`_)\]\s]*\Z|\W*```\w*\Z")
"""Lines that may precede the verdict: "Here is my answer:", the question again, a heading."""

_TAKEN_BACK: Final = re.compile(
    r"\s*\?"
    r"|\W*(?:\b(?:and|or)\b\W*)?(?:no\W*(?:\Z|\n)|not\b)"
    r"|\W*\b(?:and|or)\b\W*no\b"
)
"""Words that withdraw a "yes" or "met" if they come next: "Yes and no", "Met?"."""

_REFUSES: Final = re.compile(
    r"\W*(?:\Z|\n)|\s*[^\w\s'-]|\s+[-'](?!\w)|\s+(?:it|its|the|my|our|this|that|i|we|not|there|because)\b"
)
"""Text after a "no" that is the answer, not the beginning of "no idea" or "no-one"."""

_ASKED: Final = re.compile(
    r"([^?\n]*\b(?:complete|completed|done|finished)\b[^?\n]*)\?\W*(?=yes|no)"
)
"""The question again, before its answer in the same line."""

_ANSWER: Final = re.compile(r"(yes|no)(?![\w]|['-]\w)")


def yes_or_no(text: str) -> bool | None:
    """Return the answer to a yes-or-no question, or None if it can't be read.

    "I do not know", "None" and "nothing left" are not answers (Yacana's substring test reads a "no"
    in each).
    """
    lines = [line for line in _split_lines(text) if line.strip()]
    while len(lines) > 1 and _read_answer(lines[0]) is None and _INTRODUCES.match(lines[0]):
        del lines[0]
    if not lines or _read_answer("\n".join(lines)) is None:
        return None
    return _find_only_value(map(_read_answer, lines))


def _read_answer(text: str) -> bool | None:
    bare = re.sub(rf"\A{_SIGNS}", "", text)
    asked = _ASKED.match(bare)
    if asked is not None and not is_doubtful(asked[1], is_yes=True):
        bare = bare[asked.end() :]
    label = _LABEL.match(bare)
    found = _ANSWER.match(bare, label.end() if label else 0)
    if found is None:
        return None
    rest = bare[found.end() :]
    if found[1] == "yes":
        is_unclear = is_doubtful(rest, is_yes=True) or is_vague(rest)
        return None if _TAKEN_BACK.match(rest) or is_unclear else True
    return False if _is_refusal(rest) else None


def _is_refusal(rest: str) -> bool:
    """Return whether a "no" before this text is an answer, and no part of "no and yes"."""
    is_both = re.match(r"\W*(?:\b(?:and|or)\b\W*)?yes\b\W*(?:\Z|\n)", rest)
    return _REFUSES.match(rest) is not None and not is_both


_FINDING: Final = re.compile(
    r"(not[\s-]+met|met|inconclusive|yes|true|no|false)\b(?!['-]\w|\"\s*:)"
)
_FINDINGS: Final = {
    "met": Finding.MET,
    "yes": Finding.MET,
    "true": Finding.MET,
    "no": Finding.NOT_MET,
    "false": Finding.NOT_MET,
    "inconclusive": Finding.INCONCLUSIVE,
}
_NEXT_FIELD: Final = re.compile(r",(?=\s*\"(?:criterion )?\d)")
"""The end of a finding in a line of JSON with several findings."""


def read_lines(text: str, criteria: Sequence[str]) -> dict[str, Finding] | None:
    """Return the finding for each criterion, or None if a finding is missing.

    Each finding is on its own line.
    """
    lines = [part for line in _split_lines(text) for part in _NEXT_FIELD.split(line)]
    found = {
        criterion: _find_only_value(_read_finding(line, number, criterion) for line in lines)
        for number, criterion in enumerate(criteria, start=1)
    }
    read = {criterion: finding for criterion, finding in found.items() if finding is not None}
    return read if len(read) == len(criteria) else None


def _read_finding(line: str, number: int, criterion: str) -> Finding | None:
    """Return the finding of a line for a criterion, whose text the line may repeat."""
    numbered = re.match(rf"{_SIGNS}(?:(criterion)\W*)?(\d{{1,3}})(\W+)", line)
    if numbered is None or int(numbered[2]) != number:
        return None
    # "2 met, 1 not met" is a count.
    if not (numbered[1] or numbered[3].strip()):
        return None
    bare = line[numbered.end() :]
    repeated = " ".join(_split_lines(criterion)).strip(" .:;!?\"'`*")
    if repeated and bare.startswith(repeated):
        bare = re.sub(r"\A\W+", "", bare[len(repeated) :])
    found = _FINDING.match(bare)
    if found is None:
        return None
    finding, rest = _FINDINGS.get(found[1], Finding.NOT_MET), bare[found.end() :]
    if finding is Finding.MET:
        return None if _TAKEN_BACK.match(rest) or is_doubtful(rest, is_yes=False) else finding
    return finding if found[1] != "no" or _is_refusal(rest) else None


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text, with the punctuation and widths of all languages unified."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    signs = str.maketrans({"_": " ", "。": ".", "、": ",", "’": "'", "–": "-", "؟": "?"})  # noqa: RUF001
    return plain.translate(signs).splitlines()


def _find_only_value(found: Iterator[T | None]) -> T | None:
    """Return the only value found, or None if there is no value or several."""
    different = {one for one in found if one is not None}
    return different.pop() if len(different) == 1 else None
