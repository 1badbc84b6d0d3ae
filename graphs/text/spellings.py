"""Spellings of a done token: in another case, with spaces in it, escaped, or cut off at its end.

Widths, accents and HTML are unified before a text is searched. Pure functions.
"""

import html
import re
import unicodedata
from functools import lru_cache, reduce
from typing import Final, NamedTuple

from .sentences import is_decorative
from .words import DENSE, any_case, fold

_IN_BRACKETS: Final = re.compile(r"([<\[{(]+)([^<>\[\]{}()]+)([>\]})]+)")
_IN_SIGNS: Final = re.compile(r"([^\w\s]+)(\w(?:.*\w)?)([^\w\s]+)", re.DOTALL)
"""A token of words between signs, such as ``###STOP###``."""

_HTML: Final = re.compile(
    r"(?P<entities>(?:&(?:lt|gt|amp|quot|apos|nbsp|num|#\d{2,5}|#x[0-9a-f]{2,4});)+)"
    r"|</?(?:(?P<line>p|div|br|hr|li|ul|ol|h[1-6])|(?P<code>code|pre|tt)"
    r"|b|i|u|em|strong|small|big|mark|font|center|span)\b[^<>\n]{0,100}>",
    re.IGNORECASE,
)
"""Entities, and tags that only format a text."""

_HTML_BEGUN: Final = re.compile(r"(?:</?(?:[a-z][^<>\n]{0,107})?|&#?\w{0,8})\Z", re.IGNORECASE)
_BEFORE, _AFTER = "\u2061", "\u2060"
"""Invisible characters that fill the places before and after a shorter text."""
_GAP: Final = f"[ \t\u200b{_AFTER}]?{_BEFORE}*"

_ACCENTED: Final = re.compile(r"(?:[^\W_][\u0300-\u0345\u0360-\u036f]*)+")
"""A word, in which accents may be characters of their own."""


class _PlainSigns(dict[int, str]):
    """The plain form of each character: of usual width and without accents."""

    def __missing__(self, code: int) -> str:
        sign = unicodedata.normalize("NFKC", chr(code))
        sign = sign if len(sign) == 1 else chr(code)
        # Marks of a lower class, such as the voicing of kana, belong to the letter.
        first, *marks = [*unicodedata.normalize("NFD", sign)]
        sign = first if all(unicodedata.combining(mark) >= 200 for mark in marks) else sign
        self[code] = sign
        return self[code]


_PLAIN_SIGNS: Final = _PlainSigns()


def unify(text: str, token: str = "") -> str:
    """Return a text of the same length without accents, unusual widths and HTML.

    Args:
        text: The text.
        token: The token that is searched. If it contains HTML, all HTML is kept.
    """
    if ("<" in text or "&" in text) and not _HTML.search(token):
        text = _HTML.sub(_write_plainly, text)
    if text.isascii():
        return text
    if not unicodedata.is_normalized("NFC", text):
        text = _ACCENTED.sub(_move_accents, text)
    return text.translate(_PLAIN_SIGNS)


def _move_accents(found: re.Match[str]) -> str:
    """Return a word of the same length without accents that are characters of their own."""
    letters = "".join(sign for sign in found[0] if not unicodedata.combining(sign))
    return letters.rjust(len(found[0]), _BEFORE)


def _write_plainly(found: re.Match[str]) -> str:
    """Return text of the same length for entities or a tag. Code gets backticks."""
    written, size = found[0], len(found[0])
    if found["entities"]:
        signs, after = html.unescape(written), found.string[found.end() : found.end() + 1]
        return signs.rjust(size, _BEFORE) if after.isalnum() else signs.ljust(size, _AFTER)
    return "\n".ljust(size) if found["line"] else ("`" if found["code"] else " ").rjust(size)


def html_start(text: str) -> int:
    """Return the index of the tag or entity that may have begun at the end of a text."""
    found = _HTML_BEGUN.search(text, max(0, len(text) - 110))
    return len(text) if found is None else found.start()


_UNSEEN: Final = r"(?:[^\S\n]|[\u200b-\u200f\u2060\ufeff])*"

_LAST: Final = 200
"""Number of characters at the end of a text that are searched for a word in another case."""


class Spelling(NamedTuple):
    """The patterns that find a word in a text."""

    word: str
    """The word."""
    exact: re.Pattern[str]
    """The whole word, in this case."""
    loose: re.Pattern[str]
    """The whole word, in any case."""
    line: re.Pattern[str]
    """A line that contains nothing else, in this case."""
    begun: re.Pattern[str]
    """The beginning of the word at the end of a text, in any case."""
    core: str
    """The part that every match contains, in any case: the longest run of letters and digits."""

    def may_be_in(self, text: str) -> bool:
        """Return whether a text could contain the word. This is much faster than searching."""
        return self.core in text or fold(self.core) in fold(text.rstrip()[-_LAST:])

    def is_all_of(self, text: str) -> bool:
        """Return whether a text is only the word, in any case and decorated."""
        return self.loose.search(text) is not None and is_decorative(self.loose.sub(" ", text))


def is_ordinary(word: str) -> bool:
    """Return whether a word consists of letters and digits alone."""
    # Vowel signs are marks, but belong to words.
    return all(unicodedata.category(sign)[0] in "LMN" for sign in word)


@lru_cache
def spelling(word: str) -> Spelling:
    """Return the patterns that find a word.

    These spellings of a word between signs count, too:

    - spaces at the signs, as in "### STOP ###";
    - a backslash before a sign, as Markdown needs it;
    - another joint between the parts: "###GIVE_UP###" matches "###GIVE-UP###";
    - without the signs at the end if it ends the line, as in an answer that a stop sequence has cut
      off, and at least two signs come first;
    - without its brackets unless the word inside is ordinary: "TASK_DONE" matches "<TASK_DONE>",
      but "done" does not match "<done>".
    """
    word = unicodedata.normalize("NFC", word).translate(_PLAIN_SIGNS)
    exact, loose = (_write(word, in_any_case=in_any_case) for in_any_case in (False, True))
    return Spelling(
        word,
        re.compile(exact, re.MULTILINE),
        re.compile(loose, re.MULTILINE | re.IGNORECASE),
        re.compile(rf"^{_UNSEEN}({exact}){_UNSEEN}$", re.MULTILINE),
        re.compile(_write_beginning(word), re.IGNORECASE),
        max(re.findall(r"[^\W_]+", word), key=len, default=word),
    )


def _write(word: str, *, in_any_case: bool) -> str:
    """Return a pattern for all spellings of a word."""

    def join(part: str, *, joints: bool = False) -> str:
        return "".join(_signs_of(part, joints=joints, in_any_case=in_any_case))

    begin, end = _bounds(word)
    written = [f"{begin}{join(word)}{end}"]
    if (parts := _IN_SIGNS.fullmatch(word)) is not None:
        opening, inner, closing = parts.groups()
        cut_off = f"{begin}{join(opening)}{join(inner, joints=True)}"
        written.append(
            f"{begin}{join(opening)}{_GAP}{join(inner, joints=True)}{_GAP}{join(closing)}{end}"
        )
        if len(opening) > 1:
            written.append(rf"{cut_off}(?=[^\w\n]*$)")
    in_brackets = _IN_BRACKETS.fullmatch(word)
    if in_brackets is not None and not is_ordinary(in_brackets[2].strip()):
        opening, inner, closing = map(join, in_brackets.groups())
        # One bracket may be missing, as in an answer that a stop sequence has cut off.
        written.append(rf"(?<!\w){_BEFORE}*(?:{opening}{_BEFORE}*)?{inner}(?:{closing})?(?!\w)")
    return f"(?<!{_BEFORE})(?:{'|'.join(written)}){_AFTER}*"


def _write_beginning(word: str) -> str:
    """Return a pattern for the beginning of any spelling of a word at the end of a text."""
    begun = [_signs_of(word, joints=False, in_any_case=True)]
    if (parts := _IN_SIGNS.fullmatch(word)) is not None:
        opening, inner, closing = (
            _signs_of(one, joints=True, in_any_case=True) for one in parts.groups()
        )
        begun += [[*opening, _GAP, *inner, _GAP, *closing], inner]
    nested = (reduce(lambda rest, sign: f"{sign}(?:{rest})?", reversed(one), "") for one in begun)
    return rf"(?:{'|'.join(nested)})\Z"


def _signs_of(word: str, *, joints: bool, in_any_case: bool) -> list[str]:
    """Return the patterns of the characters of a word. Markdown may escape each sign."""
    found, before = list[str](), ""
    for part in re.findall(r"ss|.", word, re.DOTALL | re.IGNORECASE):
        if found and part.isalnum() and not before.isalnum():
            found.append(f"{_BEFORE}*")
        before = part
        if joints and part in "-_ ":
            found += [r"\\?", "[-_ ]"]
        elif part.isalnum() or part.isspace():
            found.append(any_case(part) if in_any_case else re.escape(part))
        else:
            found += [r"\\?", re.escape(part)]
    return found


def _bounds(word: str) -> tuple[str, str]:
    """Return the patterns before and after a word that is not a part of a longer word."""
    # An underscore can be emphasis, but within a word it is a letter.
    begin = rf"(?:(?<![^\W_])(?<![^\W_]_)|(?<={DENSE}))"
    end = rf"(?:(?!_?{_BEFORE}*[^\W_])|(?={DENSE}))"
    if not word[:1].isalnum():
        has_words = re.search(r"[^\W_]", word) is not None
        begin = rf"(?:(?<![^\W\d_])|(?<={DENSE}))" if has_words else ""
    # A word of a script without spaces, or one that ends with a sign, may touch another word.
    is_dense, is_open = re.fullmatch(DENSE, word[:1]), re.fullmatch(rf"\W|{DENSE}", word[-1:])
    return f"{'' if is_dense else begin}{_BEFORE}*", "" if is_open else end
