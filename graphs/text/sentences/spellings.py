"""How a word may be written where it is looked for. Pure functions."""

import re
import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

from .decoration import is_decorative

# Scripts without spaces, in which a word may touch the next one.
DENSE: Final = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"

_IN_BRACKETS: Final = re.compile(r"([<\[{(]+)([^<>\[\]{}()]+)([>\]})]+)")

_UNSEEN: Final = r"(?:[^\S\n]|[\u200b-\u200f\u2060\ufeff])*"

_LAST: Final = 200
"""How many characters at the end of a text are looked at for a word in another case."""


class Spelling(NamedTuple):
    """What finds a word in a text."""

    word: str
    """The word."""
    exact: re.Pattern[str]
    """It in just this case, as a whole word."""
    loose: re.Pattern[str]
    """It in any case."""
    line: re.Pattern[str]
    """A line with nothing else, in just this case."""
    core: str
    """The part that no text without it says: the word, or it without its brackets."""

    def may_be_in(self, text: str) -> bool:
        """Return whether a text may have it at all; much faster than to look for it."""
        return self.core in text or self.core.lower() in text.rstrip()[-_LAST:].lower()

    def is_all_of(self, text: str) -> bool:
        """Return whether a text is the word in any case, decorated."""
        return self.loose.search(text) is not None and is_decorative(self.loose.sub(" ", text))


def is_ordinary(word: str) -> bool:
    """Return whether a word has nothing but letters and digits."""
    # Vowel signs are marks, and belong to words.
    return all(unicodedata.category(sign)[0] in "LMN" for sign in word)


@lru_cache
def spelling(word: str) -> Spelling:
    """Return what finds a word.

    One in brackets is also found without them unless it is then an ordinary word: "TASK_DONE" is
    "<TASK_DONE>", but "done" is not "<done>".
    """
    written, core = _as_whole(word), word
    in_brackets = _IN_BRACKETS.fullmatch(word)
    if in_brackets is not None and not is_ordinary(in_brackets[2].strip()):
        opening, core, closing = in_brackets.groups()
        # Of a pair one may be missing, as in an answer that a stop sequence has cut.
        bare = f"(?:{re.escape(opening)})?{re.escape(core)}(?:{re.escape(closing)})?"
        written = rf"(?:{written}|(?<!\w){bare}(?!\w))"
    return Spelling(
        word,
        re.compile(written),
        re.compile(written, re.IGNORECASE),
        re.compile(rf"^{_UNSEEN}({written}){_UNSEEN}$", re.MULTILINE),
        core,
    )


def _as_whole(word: str) -> str:
    """Return the pattern of a word that is not just a piece of a longer one."""
    # An underscore may be emphasis, but within a word it belongs to it.
    begin = "" if _is_open(word[:1]) else rf"(?:(?<![^\W_])(?<![^\W_]_)|(?<={DENSE}))"
    end = "" if _is_open(word[-1:]) else rf"(?:(?![^\W_])(?!_[^\W_])|(?={DENSE}))"
    return f"{begin}{re.escape(word)}{end}"


def _is_open(sign: str) -> bool:
    """Return whether a word that begins or ends with this character may touch another one."""
    return re.fullmatch(rf"\W|{DENSE}", sign) is not None
