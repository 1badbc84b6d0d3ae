"""Reading of verdicts in words, and of words that withdraw them. Pure functions.

The first word of a verdict's line decides, never a word in the middle. A doubtful answer counts as
unreadable, and the judge is asked again. The phrases are in ``phrases.toml``.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from ...graphs.conversation.judges import Finding
from ...graphs.text.words import Doubts, last_phrase_length, phrase_length, phrases, words_of

_ENDS: Final = re.compile(r"(?<!\d)[.!?]+|[.!?]+(?!\d)")
"""The end of a sentence, except the point in a number."""

_CLAUSE_ENDS: Final = re.compile(r"[,;:()\[\]—…|\"“”«»،]|\s-+\s")


def is_doubtful(rest: str, *, is_yes: bool) -> bool:
    """Return whether a "yes" or "met" is doubtful because of the first sentence's rest.

    Args:
        rest: The text after the "yes" or "met" in the verdict's line.
        is_yes: Whether the verdict is a "yes". The word "met" may be followed by its occasion, as
            in "met on Friday".
    """
    known = phrases().doubts
    sentence = next(filter(words_of, _ENDS.split(rest)), "")
    clauses = [words for clause in _CLAUSE_ENDS.split(sentence) if (words := words_of(clause))]
    if not clauses:
        return False
    is_topical = is_yes and rest.startswith(" ") and _is_about_a_part(clauses[0], known)
    return is_topical or any(_is_doubtful_clause(words, known) for words in clauses)


def _is_about_a_part(words: Sequence[str], known: Doubts) -> bool:
    return len(words) > 1 and words[0] in known.topics and words[1] not in known.whole


def _is_doubtful_clause(words: Sequence[str], known: Doubts) -> bool:
    said = words[1:] if len(words) > 1 and words[0] in known.joins else words
    harmless = {at for at in range(len(words)) if phrase_length(words, at, known.harmless)}
    if any(phrase_length(words, at, known.conditions) for at in {*range(len(words))} - harmless):
        return True
    if phrase_length(words, 0, known.partly) and 0 not in harmless:
        return True
    if phrase_length(said, 0, known.denied):
        return True
    denied = next((at for at, word in enumerate(words) if word in known.denials), len(words))
    if denied > 0 and last_phrase_length(words, known.denied_last):
        return True
    # "Nothing is left", and "no need to go on".
    phrases_of_more = (known.left, known.going_on)
    return any(phrase_length(words, at, some) for some in phrases_of_more for at in range(denied))


T = TypeVar("T")

_SIGNS: Final = r"[^\w\n]*"

_LABEL: Final = re.compile(
    r"(?:(?:the|my|so|final|short|one-word|overall|task)\W+)*"
    r"(?:answer|verdict|reply|response|result|conclusion|complete)(?:\W+is\b)?(?:\W*:)?\W+"
)
"""Introductions of a verdict: "The answer is", "Verdict:"."""

_INTRODUCES: Final = re.compile(r"\W*\Z|[\W\d]*#|.*[:?][\"'*`_)\]\s]*\Z|\W*```\w*\Z")
"""Lines that may precede the verdict: "Here is my answer:", the question again, a heading."""

_TAKEN_BACK: Final = re.compile(
    r"\s*\?"
    r"|\W*(?:\b(?:and|or)\b\W*)?(?:no\W*\Z|not\b)"
    r"|\W*\b(?:and|or)\b\W*no\b"
)
"""Words that withdraw a "yes" or "met" if they come next: "Yes and no", "Met?"."""

_REFUSES: Final = re.compile(
    r"\W*\Z|\s*[^\w\s'-]|\s+[-'](?!\w)|\s+(?:it|its|the|my|our|this|that|i|we|not|there|because)\b"
)
"""Text after a "no" that is the answer, not the beginning of "no idea" or "no-one"."""

_ANSWER: Final = re.compile(r"(yes|no)(?![\w]|['-]\w)")


def yes_or_no(text: str) -> bool | None:
    """Return the answer to a yes-or-no question, or None if it can't be read.

    "I do not know", "None" and "nothing left" are not answers (Yacana's substring test reads a "no"
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
    """Return the finding for each criterion, or None if a finding is missing.

    Each finding is on its own line.
    """
    lines = [*_lines(text)]
    found = {
        criterion: _agreed(_finding(line, number, criterion) for line in lines)
        for number, criterion in enumerate(criteria, start=1)
    }
    read = {criterion: finding for criterion, finding in found.items() if finding is not None}
    return read if len(read) == len(criteria) else None


def _finding(line: str, number: int, criterion: str) -> Finding | None:
    """Return the finding of a line for a criterion, whose text the line may repeat."""
    numbered = re.match(rf"{_SIGNS}(?:(criterion)\W*)?(\d{{1,3}})(\W+)", line)
    if numbered is None or int(numbered[2]) != number:
        return None
    # "2 met, 1 not met" is a count.
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
    """Return the lines of a text, with the punctuation and widths of all languages unified."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    signs = str.maketrans({"_": " ", "。": ".", "、": ",", "’": "'", "–": "-", "؟": "?"})  # noqa: RUF001
    return plain.translate(signs).splitlines()


def _agreed(found: Iterator[T | None]) -> T | None:
    """Return the only value found, or None if there is no value or several."""
    different = {one for one in found if one is not None}
    return different.pop() if len(different) == 1 else None
