"""Words: folding, counting, cutting and joining them, and estimates of tokens. Pure functions."""

import json
import re
import unicodedata
from collections.abc import Iterable
from itertools import filterfalse
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from ..common.content import tokens_of_files
from .structures import is_in_open_fence

# ruff: noqa: RUF001


APOSTROPHES = "'’‘ʼ`´′"
"""The characters that are typed as apostrophes. Words with and without them are equal."""

WORD = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+"
"""The pattern of a word. In a script without spaces, each character is a word."""

DENSE: Final = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"
"""The pattern of a character of a script without spaces, in which words may touch."""

_WORD = re.compile(WORD)
_WORD_OR_COMMA = re.compile(f"{WORD}|,")
_OTHER_COMMA = re.compile("[،、]")
# The Turkish dotless i is replaced as well, because its capital is "I".
_NO_APOSTROPHES = str.maketrans("ı", "i", APOSTROPHES)
_SHORT = rf"(?:[{APOSTROPHES}](?:re|s|ll|ve|m|d)|n[{APOSTROPHES}]t)\b"
_APART = re.compile(rf"(?<=\w)[ \t]+(?={_SHORT}(?![{APOSTROPHES}]))", re.IGNORECASE)
"""Spaces within "you 're" and "do n't", as tokenizers write them."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, without case, accents and apostrophes."""
    return _WORD.findall(fold(text))


def words_and_commas(text: str) -> list[str]:
    """Return the words of a text like `words_of`, and its commas as ","."""
    return _WORD_OR_COMMA.findall(_OTHER_COMMA.sub(",", fold(text)))


def fold(text: str) -> str:
    """Return a text without case, accents and apostrophes. Tokenized endings are joined."""
    text = _APART.sub("", text).translate(_NO_APOSTROPHES)
    if not text.isascii():
        text = "".join(filterfalse(unicodedata.combining, unicodedata.normalize("NFKD", text)))
    return text.casefold()


_CASES: Final = {
    **dict.fromkeys("iıİI", "[iıİI]\u0307?"),
    **dict.fromkeys("ßẞ", "(?:ss|[ßẞ])"),
}
"""Letters with other case variants than those of `re.IGNORECASE`, each with its pattern."""


def any_case(letters: str) -> str:
    """Return a pattern for letters in any case, to be used with `re.IGNORECASE`.

    The dotted and the dotless i are equal, and so are "ß" and "ss".
    """
    parts = re.split("(ss)", letters, flags=re.IGNORECASE)
    ss = _CASES["ß"]
    return ss.join(
        "".join(_CASES.get(sign, re.escape(sign)) for sign in part) for part in parts[::2]
    )


# The average number of letters in a word, for scripts without spaces.
_DENSE = (
    (re.compile(r"[\u3005\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 2),
    (re.compile(r"[\u3040-\u30ff]"), 3),
    (re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), 5),
)

_END = re.compile(r"[.!?](?=\s|$)|[。！？]")


def words_in(text: str) -> float:
    """Count the words of a text. In scripts without spaces, the number is estimated by letters."""
    words = 0.0
    for letters, per_word in _DENSE:
        text, count = letters.subn(" ", text)
        words += count / per_word
    return words + len(text.split())


def cut(text: str, limit: int) -> str:
    """Cut a text to a number of words, at the end of a sentence if possible."""
    if words_in(text) <= limit:
        return text
    kept, left = "", float(limit)
    for word in text.split():
        length = words_in(word)
        if length > left:
            kept = f"{kept} {_begin(word, left)}".strip()
            break
        kept, left = f"{kept} {word}".strip(), left - length
    ends = [found.end() for found in _END.finditer(kept)]
    return kept[: ends[-1]] if ends else kept


def _begin(word: str, limit: float) -> str:
    """Return the longest prefix within the limit of a "word" in a script without spaces."""
    sizes = range(len(word), 0, -1)
    return next((word[:size] for size in sizes if words_in(word[:size]) <= limit), "")


_LONGEST: Final = 2_000
"""Maximum number of characters of the first part that are compared with the second part."""

_WORDS: Final = re.compile(r"(?:^|(?<=\s))\S")
"""The beginnings of the words of a text."""

_REOPENED: Final = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\w[^\r\n]*\r?\n")
"""A fence with a label, which opens code and cannot close it."""


def join_parts(first: str, rest: str, *, begins_word: bool = False) -> str:
    """Join a text that was cut off and its continuation.

    The second part may begin in the middle of a word. It may repeat the first part's last word, its
    last line, or all of it. The result always begins with the first part.

    Args:
        first: The text that was cut off.
        rest: The continuation.
        begins_word: Whether the continuation is known to begin with a whole word.
    """
    in_code = is_in_open_fence(first)
    if in_code and not rest.startswith(first):
        rest = _REOPENED.sub("", rest, count=1) if _REOPENED.match(rest) else rest
    again = _overlap(first, rest)
    if again:
        return first + rest[again:]
    goes_on = first[-1:].islower() or first[-1:] in ".!?:;,)"
    is_new = (begins_word or rest[:1].isupper()) and goes_on
    return f"{first} {rest}" if is_new and not in_code else first + rest


def _overlap(first: str, rest: str) -> int:
    """Return the length of the second part's beginning that repeats the end of the first."""
    if rest.startswith(first):
        return len(first)
    begun = rest.lstrip()
    space, end = len(rest) - len(begun), first[-_LONGEST:]
    for word in _WORDS.finditer(end):
        again = end[word.start() :]
        # After a space, the word is a new one, which may begin with the same letters.
        is_part = space and re.match(r"\w", begun[len(again) :])
        if begun.startswith(again) and re.search(r"\w", again) and not is_part:
            return space + len(again)
    return 0


MESSAGE_TOKENS = 8
"""Estimated tokens of a message in addition to its text: separators, role and name."""

BYTES_PER_TOKEN = 3
"""Estimated bytes of a token, in UTF-8."""


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text.

    The estimate is a token for every three bytes of UTF-8. A Chinese character has three bytes and
    is about one token. An English token has four bytes or more, so the estimate for English is too
    high.
    """
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def tokens_of_message(message: BaseMessage, label: str = "") -> int:
    """Estimate the tokens of a message in a prompt, including its tool calls and its files."""
    tokens = MESSAGE_TOKENS + tokens_of(label + message.text)
    if not isinstance(message.content, str):
        tokens += tokens_of_files(message.content)
    if isinstance(message, AIMessage):
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            args = call["args"]
            written = args if isinstance(args, str) else json.dumps(args)
            tokens += MESSAGE_TOKENS + tokens_of(f"{call['name']}{call['id']}{written}")
    return tokens


def tokens_of_texts(texts: Iterable[str]) -> int:
    """Estimate the tokens of several messages with these texts."""
    return sum(MESSAGE_TOKENS + tokens_of(text) for text in texts)
