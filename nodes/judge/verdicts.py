"""Reading a judge's answer in words: yes or no, or a line for each criterion.

Pure functions. The first word of a verdict's line decides, never a word somewhere in it. Where they
cannot be sure they read nothing: the judge is asked again.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from ...graphs.spec.judges import Finding
from .doubts import is_doubtful

T = TypeVar("T")

_SIGNS: Final = r"[^\w\n]*"

_LABEL: Final = re.compile(
    r"(?:(?:the|my|so|final|short|one-word|overall|task)\W+)*"
    r"(?:answer|verdict|reply|response|result|conclusion|complete)(?:\W+is\b)?(?:\W*:)?\W+"
)
"""What may stand before a word: "The answer is", "Verdict:"."""

_INTRODUCES: Final = re.compile(r"\W*\Z|[\W\d]*#|.*[:?][\"'*`_)\]\s]*\Z|\W*```\w*\Z")
"""A line that the word may come after: "Here is my answer:", the question again, a heading."""

_TAKEN_BACK: Final = re.compile(
    r"\s*\?"
    r"|\W*(?:\b(?:and|or)\b\W*)?(?:no\W*\Z|not\b)"
    r"|\W*\b(?:and|or)\b\W*no\b"
)
"""The words that take a good verdict back if they come next: "Yes and no", "Met?"."""

_REFUSES: Final = re.compile(
    r"\W*\Z|\s*[^\w\s'-]|\s+[-'](?!\w)|\s+(?:it|its|the|my|our|this|that|i|we|not|there|because)\b"
)
"""What comes after a "no" that is the answer, and not the begin of "no idea" or "no-one"."""

_ANSWER: Final = re.compile(r"(yes|no)(?![\w]|['-]\w)")


def yes_or_no(text: str) -> bool | None:
    """Read the answer to a question for one word, whatever follows the word.

    "I do not know", "None" and "nothing left" are no answer (Yacana's substring test reads a "no"
    in each).
    """
    lines = [line for line in _lines(text) if line.strip()]
    while len(lines) > 1 and _answer(lines[0]) is None and _INTRODUCES.match(lines[0]):
        del lines[0]
    if not lines or _answer(lines[0]) is None:
        return None
    return _agreed(_answer(line) for line in lines)


def _answer(line: str) -> bool | None:
    bare = re.sub(rf"\A{_SIGNS}", "", line)
    label = _LABEL.match(bare)
    found = _ANSWER.match(bare, label.end() if label else 0)
    if found is None:
        return None
    rest = bare[found.end() :]
    if found[1] == "yes":
        return None if _TAKEN_BACK.match(rest) or is_doubtful(rest, is_yes=True) else True
    is_both = re.match(r"\W*(?:\b(?:and|or)\b\W*)?yes\b\W*\Z", rest)
    return False if _REFUSES.match(rest) and not is_both else None


_FINDING: Final = re.compile(r"(not[\s-]+met|met|inconclusive)\b(?!['-]\w)")


def read_lines(text: str, criteria: Sequence[str]) -> dict[str, Finding] | None:
    """Read an answer of a line for each criterion; other lines say nothing."""
    lines = [*_lines(text)]
    found = {
        criterion: _agreed(_finding(line, number, criterion) for line in lines)
        for number, criterion in enumerate(criteria, start=1)
    }
    read = {criterion: finding for criterion, finding in found.items() if finding is not None}
    return read if len(read) == len(criteria) else None


def _finding(line: str, number: int, criterion: str) -> Finding | None:
    """What a line says of a criterion, whose text it may repeat."""
    numbered = re.match(rf"{_SIGNS}(?:(criterion)\W*)?(\d{{1,3}})(\W+)", line)
    if numbered is None or int(numbered[2]) != number:
        return None
    # "2 met, 1 not met" tells how many.
    if not (numbered[1] or numbered[3].strip()):
        return None
    bare = line[numbered.end() :]
    repeated = " ".join(_lines(criterion)).strip(" .:;!?\"'`*")
    if repeated and bare.startswith(repeated):
        bare = re.sub(r"\A\W+", "", bare[len(repeated) :])
    found = _FINDING.match(bare)
    if found is None:
        return None
    finding = Finding("_".join(re.findall(r"\w+", found[1])))
    rest = bare[found.end() :]
    is_unsure = _TAKEN_BACK.match(rest) or is_doubtful(rest, is_yes=False)
    return None if finding is Finding.MET and is_unsure else finding


def _lines(text: str) -> list[str]:
    """The lines of a text, with the signs and widths of all languages made one."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    signs = str.maketrans({"_": " ", "。": ".", "、": ",", "’": "'", "–": "-", "؟": "?"})  # noqa: RUF001
    return plain.translate(signs).splitlines()


def _agreed(found: Iterator[T | None]) -> T | None:
    """What all that was found is. None: nothing, or things that differ."""
    different = {one for one in found if one is not None}
    return different.pop() if len(different) == 1 else None
