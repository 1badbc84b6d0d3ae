"""Words of a text: counting, comparing, cutting and joining. Pure functions."""

import json
import re

# ruff: noqa: RUF001
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from .fences import fences

# Scripts without spaces: about so many letters make a word.
_DENSE = (
    (re.compile(r"[\u3005\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 2),
    (re.compile(r"[\u3040-\u30ff]"), 3),
    (re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), 5),
)

_END = re.compile(r"[.!?](?=\s|$)|[。！？]")


def words_in(text: str) -> float:
    """Count the words of a text; letters make words where spaces do not."""
    words = 0.0
    for letters, per_word in _DENSE:
        text, count = letters.subn(" ", text)
        words += count / per_word
    return words + len(text.split())


def cut(text: str, limit: int) -> str:
    """Cut text to a number of words, at the end of a sentence where there is one."""
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
    """What of a word that is a whole text, in a script without spaces, is not too long."""
    sizes = range(len(word), 0, -1)
    return next((word[:size] for size in sizes if words_in(word[:size]) <= limit), "")


def phrase_length(words: Sequence[str], place: int, phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase that begins at a place, or 0."""
    sizes = range(min(_longest(phrases), len(words) - place), 0, -1)
    return next((size for size in sizes if (*words[place : place + size],) in phrases), 0)


def last_phrase_length(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase that some words end with, or 0."""
    sizes = range(min(_longest(phrases), len(words)), 0, -1)
    return next((size for size in sizes if (*words[-size:],) in phrases), 0)


def has_phrase(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> bool:
    """Return whether some words contain one of these phrases."""
    return any(phrase_length(words, place, phrases) for place in range(len(words)))


@lru_cache
def _longest(phrases: frozenset[tuple[str, ...]]) -> int:
    return max(map(len, phrases), default=0)


_LONGEST: Final = 2_000
"""How much of the end of the first part is looked for at the beginning of the second."""

_WORDS: Final = re.compile(r"(?:^|(?<=\s))\S")
"""Where the words of a text begin."""

_REOPENED: Final = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\w[^\r\n]*\r?\n")
"""A fence with a label, which opens code and closes none."""


def join_parts(first: str, rest: str, *, begins_word: bool = False) -> str:
    """Join what was said before a text was cut off and what was said after it.

    The second part may begin in the middle of a word, with the word or the line at which the first
    one ends, or with the whole of it. The result always begins with the first part.

    Args:
        first: What was said before.
        rest: What was said after it.
        begins_word: Whether that is known to begin with a word.
    """
    in_code = any(not fence.is_closed for fence in fences(first)[1])
    if in_code and not rest.startswith(first):
        rest = _REOPENED.sub("", rest, count=1) if _REOPENED.match(rest) else rest
    again = _overlap(first, rest)
    if again:
        return first + rest[again:]
    goes_on = first[-1:].islower() or first[-1:] in ".!?:;,)"
    is_new = (begins_word or rest[:1].isupper()) and goes_on
    return f"{first} {rest}" if is_new and not in_code else first + rest


def _overlap(first: str, rest: str) -> int:
    """How much of the second part was said at the end of the first, from some word on."""
    if rest.startswith(first):
        return len(first)
    begun = rest.lstrip()
    space, end = len(rest) - len(begun), first[-_LONGEST:]
    for word in _WORDS.finditer(end):
        again = end[word.start() :]
        # Behind a space a word is a new one, which may well begin like the last.
        is_part = space and re.match(r"\w", begun[len(again) :])
        if begun.startswith(again) and re.search(r"\w", again) and not is_part:
            return space + len(again)
    return 0


_PAIRS: Final = (
    # Cyrillic, Greek, Armenian and Cherokee letters, each under the Latin one that it looks like.
    ("АВЕЅІЈКМНОРСТУХҮԌԚԜ", "ABESIJKMHOPCTYXYGQW"),
    ("аеорсухѕіјһԁԛԝѵ", "aeopcyxsijhdqwv"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳο\u03bdρϲ", "ABEZHIKMNOPTYXCjovpc"),
    ("ՕօոսհԼ", "OonuhL"),
    ("ᎪᏴᎬᎻᏆᎫᏦᎷᏢᎡᏚᎢᏔᏃ", "ABEHIJKMPRSTWZ"),
    ("ıɑɡ", "iag"),
    ("‐‑‒–—−’ʼ", "------''"),
)
_LATIN: Final = {ord(one): latin for pair in _PAIRS for one, latin in zip(*pair, strict=True)}

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5")
"""Characters that show nothing, though their category says otherwise."""


def normalize_look(name: str) -> tuple[str, str]:
    """Give what a name is the same by: its letters without case, and how these look."""
    # Format characters, such as a zero-width space, show nothing either.
    seen = "".join(sign for sign in name if sign not in _UNSEEN and not _is_unseen(sign))
    shown = " ".join(unicodedata.normalize("NFKC", seen).split())
    return shown.casefold(), shown.translate(_LATIN).casefold()


def _is_unseen(sign: str) -> bool:
    return unicodedata.category(sign) == "Cf" or "\ufe00" <= sign <= "\ufe0f"


MESSAGE_TOKENS = 8
"""What a message takes beside its text: the marks around it, its role and its name."""

_BYTES = 3


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text.

    A token for every three bytes of UTF-8: a Chinese character is three bytes and about one token,
    and an English token is four bytes or more, so that the estimate is rather too high there.
    """
    return -(-len(text.encode("utf-8", "replace")) // _BYTES)


def tokens_of_message(message: BaseMessage, label: str = "") -> int:
    """Estimate the tokens of a message in a prompt, its calls of tools included."""
    tokens = MESSAGE_TOKENS + tokens_of(label + message.text)
    if isinstance(message, AIMessage):
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            args = call["args"]
            written = args if isinstance(args, str) else json.dumps(args)
            tokens += MESSAGE_TOKENS + tokens_of(f"{call['name']}{call['id']}{written}")
    return tokens


def tokens_of_texts(texts: Iterable[str]) -> int:
    """Estimate the tokens of texts that are a message each."""
    return sum(MESSAGE_TOKENS + tokens_of(text) for text in texts)
