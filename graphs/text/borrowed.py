"""Whether a text holds no words of its own: placeholders, what its speaker was told, an echo."""

import re
from collections.abc import Iterable, Iterator

from .farewells import is_farewell
from .wording import is_blank, is_equal, is_same_move, is_short, plain
from .words import words_in

_PLACEHOLDER = re.compile(r"<[^<>\n]+>")
# "<your solution>", but no tag such as "<p>" or "<a href=x>", and no message put in brackets.
_WORDS = re.compile(r"<[^\W\d_]+(?:[ ,.:;'’-]+\w+){1,9}[.…]*>")  # noqa: RUF001
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)*_]*\s+|(?<=[。！？])|\n+")  # noqa: RUF001
_WORD = re.compile(r"\w+\b")
_ASKS = re.compile(
    r"\b(?:repeat|recite|echo(?:es)?\b|dictat|(?:say|speak) after me|word for word|verbatim|quote"
    r"|proofread|wiederhol|nachsprech|sprich mir|wörtlich|diktat|zitier|r[ée]p[éèe]t|mot pour mot"
    r"|dict[ée]e|repite|repit|palabra por palabra|ripet|parola per parola|repit[ae]|palavra por"
    r"|повтор|дослівно|дословно|слово в слово)"
    r"|重复|重復|重複|复述|複述|跟我(?:读|说|念|讀|說|唸)|一字不[差漏]|繰り返|復唱|따라\s?(?:하|해|말)|반복",
    re.IGNORECASE,
)

_LONGEST_MOVE = 10
"""From this number of words on a line with a number or an option is no move of a game."""

_FIRST = 30
"""How many characters are the first words."""


def is_placeholder(text: str, prompt: str = "", marks: Iterable[str] = ()) -> bool:
    """Whether nothing but placeholders stands in a text.

    Args:
        text: The text.
        prompt: What its speaker was told; what this holds elsewhere may be said.
        marks: The marks that placeholders stand behind in the prompt.
    """
    found = _PLACEHOLDER.findall(text)
    if not found or not is_blank(_PLACEHOLDER.sub("", text)):
        return False
    return all(
        any(f"{mark} {one}" in prompt for mark in marks)
        or (_WORDS.fullmatch(one) is not None and one not in prompt)
        for one in found
    )


def repeats(text: str, prompt: str, request: str = "") -> bool:
    """Whether each sentence of a text stands in a prompt or, if only in part, in a request."""
    # Cheap first: most say something else with their first words.
    shown = f"{prompt} {request}".casefold()
    if not all(word in shown for word in _WORD.findall(text.casefold(), endpos=_FIRST)):
        return False
    said = _sentences(text)
    asked, rules = f" {plain(request)} ", {plain(rule) for rule in _rules(prompt)}
    kept = all(one in rules or f" {one} " in asked for one in map(plain, said))
    return kept and not is_short(text)


def _sentences(text: str) -> list[str]:
    return [one for one in _SENTENCE_END.split(text) if not is_blank(one)]


def _rules(prompt: str) -> Iterator[str]:
    """The sentences of a prompt, but for the lines that it introduces: those may be said."""
    before = ""
    for line in prompt.splitlines():
        if not before.rstrip().endswith(":"):
            yield from _sentences(line)
        before = line


def asks_to_repeat(text: str) -> bool:
    """Whether a text may ask for what was said to be said again, as a vow or a dictation does."""
    return _ASKS.search(text) is not None


def is_echo(text: str, other: str) -> bool:
    """Whether a text is another's word for word, and no short line, move, thanks or farewell."""
    if is_short(text) or not is_equal(text, other) or is_farewell(text):
        return False
    # "My guess is number 42." may be the move of two players.
    return is_same_move(text, "") or words_in(plain(text)) >= _LONGEST_MOVE
