"""Texts that repeat others: equal and similar messages, echoes, and replies without content.

Pure rules, without a model. In doubt the result is False: a guard that ends a conversation too late
costs a few calls, one that ends it too early loses its result.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from string import digits
from typing import Final

from rapidfuzz import process
from rapidfuzz.distance import Indel, Levenshtein

from .phrases import has_phrase, load_entries, load_phrases, load_table, load_words, phrase_length
from .sentences import FACE, is_farewell
from .words import APOSTROPHES, words_in, words_of

SHORT_WORDS = 5
"""Replies with fewer words may be repeated, such as "higher" in a game."""

NEARLY = 0.95
"""The similarity from which two texts are nearly equal."""

_NEAR = 0.9
"""The similarity from which two arguments of a tool are nearly equal."""

_BEGIN = 100
"""Number of characters by which most texts are recognised as not blank, and as not short."""

_LONG = 10_000
"""Longer texts, in characters, are compared word by word."""

_QUESTION_END = re.compile(
    # The characters in question first, which makes the search three times as fast.
    r"(?=[?？؟՞\u037e;か吗嗎])(?:[?？؟՞\u037e]"  # noqa: RUF001
    # Ends of questions without a question mark: in Greek a character that looks like a semicolon,
    # in Japanese and Chinese a particle.
    r"|(?<=[\u0370-\u03ff\u1f00-\u1fff]);"
    r"|[か吗嗎](?=[」』”\"')）\s]*(?:[。．.…\n]|\Z)))"  # noqa: RUF001
)

_HOLLOW = frozenset("+<=>|~\u2800\u3164\u115f\u1160\uffa0\ufffd")
"""Invisible or decorative characters that Unicode does not mark as such."""

_SIGN = re.compile(r"[^\w\s]|_")
_CLAUSE_END = re.compile(r"[.!?:;…。\n]+")
_CODE = re.compile(r"```(.*?)(?:```|\Z)|`([^`\n]+)`", re.DOTALL)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|«([^»\n]+)»|„([^“”\n]+)[“”]|「([^」\n]+)」")
_NAME = re.compile(r"(?<=[a-z,;] )[A-ZÀ-Þ]\w+")
# Operators between numbers count: "7 + 5" is not "7 - 5".
_NUMBER = re.compile(
    # The possible first characters make the search three times as fast.
    r"(?=[-−–\d])(?:(?<![\w)])[-−–]?\d+(?:[.,:/]\d+)*(?:\s*[-+*/^×÷−–<>=%]+(?=\s*[-(]?\d))?"  # noqa: RUF001
    r"|\d+(?:[.,:/]\d+)*)"
)
# Emoji that plain text keeps, and numerals that are letters.
_SYMBOL = re.compile(r"[^\w\s]|[零〇一二三四五六七八九十百千万億]")
_LABEL = re.compile(r"(?=[B-HJ-Z])(?<!['’])\b[B-HJ-Z]\b(?!['’])")  # noqa: RUF001

_DENSE_GAP = re.compile(r"(?<=[\u3005-\u30ff\u3400-\u9fff]) +(?=[\u3005-\u30ff\u3400-\u9fff])")


def asks(text: str) -> bool:
    """Return whether a text contains the end of a question."""
    # In ASCII, only one character ends a question, and finding it takes a hundredth of the time.
    return "?" in text if text.isascii() else _QUESTION_END.search(text) is not None


def has_digit(text: str) -> bool:
    """Return whether a text may contain a digit."""
    return not text.isascii() or any(map(text.__contains__, digits))


def is_blank(text: str) -> bool:
    """Return whether a text is blank: white space, invisible characters, punctuation, Markdown."""
    if not all(map(_is_hollow, text[:_BEGIN])):
        return False
    return FACE.search(text) is None and all(map(_is_hollow, set(text)))


def is_same(one: str, other: str) -> bool:
    """Return whether two replies of one speaker are equal, or nearly equal."""
    if is_short(one) or is_short(other):
        return False
    first, second = plain(one), plain(other)
    if first == second:
        return _is_equal(one, other)
    # The cheap check comes first: the lengths limit the similarity.
    if 2 * min(len(first), len(second)) < NEARLY * (len(first) + len(second)):
        return False
    if not _is_near(first, second):
        return False
    return _facts(one) == _facts(other) and not _moved(one, other)


class Texts:
    """A collection of texts that finds equal ones without comparing every pair."""

    def __init__(self) -> None:
        # Equal texts have the same words, or similar words and the same facts.
        self._by_words = defaultdict[str, dict[str, None]](dict)
        self._by_facts = defaultdict[Hashable, dict[str, str | None]](dict)

    def add(self, text: str) -> None:
        """Add a text."""
        if is_short(text):
            return
        bare = plain(text)
        self._by_words[bare][text] = None
        # Long texts are compared word by word, and so are texts of about that length.
        self._by_facts[_facts(text)][text] = None if len(bare) > NEARLY**2 * _LONG else bare

    def same_as(self, text: str) -> list[str]:
        """Return the added texts that `is_same` accepts as equal to a text, without duplicates."""
        if is_short(text):
            return []
        bare, known = plain(text), self._by_facts.get(_facts(text), {})
        scorer = Indel.normalized_similarity
        near = process.extract(bare, known, scorer=scorer, score_cutoff=NEARLY, limit=None)
        found = [*self._by_words.get(bare, ()), *(one for _, _, one in near)]
        found += [one for one, its in known.items() if its is None]
        return [one for one in dict.fromkeys(found) if is_same(one, text)]


def is_same_move(one: str, other: str) -> bool:
    """Return whether two texts contain the same numbers and options, unlike two moves of a game.

    The same answer to another guess, such as "Too high, try a lower number.", is no repetition.
    """
    return _moves(one) == _moves(other)


def is_equal(one: str, other: str) -> bool:
    """Return whether two texts are equal except for case, white space, punctuation and Markdown."""
    return plain(one) == plain(other) and _is_equal(one, other)


@lru_cache(maxsize=1024)
def key_of(text: str) -> Hashable:
    """Return a key that texts with the same words and the same code share."""
    return plain(text), *map(tuple, (*_moves(text), _code(text)))


def is_near(one: str, other: str) -> bool:
    """Return whether two arguments of a tool differ in less than a tenth.

    A text with another number, or with other words in place of as many words, is another search.
    """
    if _moves(one)[0] != _moves(other)[0] or not _is_near(one, other, _NEAR):
        return False
    changes = Levenshtein.opcodes(plain(one).split(), plain(other).split())
    return all(change.tag != "replace" for change in changes)


def is_short(text: str) -> bool:
    """Return whether a text has fewer than `SHORT_WORDS` words, as `words_in` counts them."""
    return _words(text[:_BEGIN]) < SHORT_WORDS and _words(text) < SHORT_WORDS


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    """Normalize a text for comparison: no case, punctuation, Markdown or extra white space."""
    if text.isascii():
        return " ".join(text.lower().translate(_ascii_signs()).split())
    folded = unicodedata.normalize("NFKC", text).casefold()
    signs = {ord(sign): _plain_sign(sign) for sign in set(_SIGN.findall(folded))}
    words = " ".join(folded.translate(signs).split())
    return _DENSE_GAP.sub("", words)


@cache
def _ascii_signs() -> dict[int, str]:
    return {ord(sign): _plain_sign(sign) for sign in map(chr, range(128)) if _SIGN.match(sign)}


@lru_cache(maxsize=1024)
def _words(text: str) -> float:
    return words_in(plain(text))


@lru_cache(maxsize=4096)
def _plain_sign(sign: str) -> str:
    category = unicodedata.category(sign)
    if sign in APOSTROPHES or category == "Cf" or "\ufe00" <= sign <= "\ufe0f":
        return ""
    emoji = load_entries("phrases.toml", "smiles", "decoration")
    kept = category[0] == "M" or (category in ("So", "Cn") and sign not in emoji)
    return sign if kept else " "


@lru_cache(maxsize=4096)
def _is_hollow(sign: str) -> bool:
    category = unicodedata.category(sign)
    if category == "Sk":
        return sign < "\U0001f000"  # above this are the skin tones of emoji
    if sign in _HOLLOW or category[0] in "ZP" or category in ("Cc", "Cf", "Cs"):
        return True
    box = "\u2500" <= sign <= "\u259f"
    return box or (category[0] == "M" and sign != "\u20e3")


def _is_equal(one: str, other: str) -> bool:
    """Return whether two texts with the same words also have the same numbers, labels and code."""
    code = _code(one), _code(other)
    return _moves(one) == _moves(other) and (code[0] == code[1] or not all(code))


@lru_cache(maxsize=1024)
def _moves(text: str) -> tuple[list[str], list[str]]:
    shown = unicodedata.normalize("NFKC", text)
    found = _NUMBER.findall(shown) if has_digit(shown) else ()
    return [re.sub(r"\s", "", number) for number in found], _LABEL.findall(shown)


def _code(text: str) -> list[str]:
    found = (fence or inline for fence, inline in _CODE.findall(text))
    return [" ".join(code.split()) for code in found]


@lru_cache(maxsize=1024)
def _facts(text: str) -> Hashable:
    """Return the facts that nearly equal texts must share."""
    bare, telling = plain(text), load_entries("phrases.toml", "telling")
    return (
        *map(tuple, _moves(text)),
        tuple(_code(text)),
        tuple(plain("".join(found)) for found in _QUOTED.findall(text)),
        frozenset(Counter(_NAME.findall(text)).items()),
        # In ASCII, plain text keeps no sign.
        () if bare.isascii() else tuple(_SYMBOL.findall(bare)),
        frozenset(Counter(word for word in bare.split() if word in telling).items()),
    )


def _is_near(one: str, other: str, least: float = NEARLY) -> bool:
    is_long = len(one) + len(other) > 2 * _LONG
    some, others = (one.split(), other.split()) if is_long else (one, other)
    # Each word of only one text is a difference, and counting these is faster than an alignment.
    if is_long and 1 - len({*some} ^ {*others}) / (len(some) + len(others)) < least:
        return False
    return Indel.normalized_similarity(some, others, score_cutoff=least) >= least


def _moved(one: str, other: str) -> bool:
    """Return whether two nearly equal texts differ in a whole sentence.

    In a game, for example, "Thank you, my next question is this: does it have fur?" has a sentence
    that is always the same, and a question that is a new move.
    """
    sentences = [Counter(map(plain, _CLAUSE_END.split(text))) for text in (one, other)]
    rest, others = (
        " ".join(left.elements())
        for left in (sentences[0] - sentences[1], sentences[1] - sentences[0])
    )
    words = [Counter(text.split()) for text in (rest, others)]
    # An added or missing word is no move, but a replaced word is one.
    if not (words[0] - words[1] and words[1] - words[0]):
        return False
    return not _is_near(rest, others)


_PLACEHOLDER = re.compile(
    r"<{1,2}[^<>\n]{1,200}>{1,2}|\[{1,2}[^\[\]\n]{1,200}\]{1,2}|\{{1,2}[^{}\n]{1,200}\}{1,2}"
    r"|\([^()\n]{1,200}\)|＜[^＜＞\n]{1,200}＞|【[^【】\n]{1,200}】|（[^（）\n]{1,200}）"  # noqa: RUF001
)
_BEGINS_IN_BRACKETS = re.compile(r"(?:[^\w<\[{(＜【（]|_)*[<\[{(＜【（]")  # noqa: RUF001
_DATA = re.compile(r"[=\\$%|\"“”\d]|://|(?<!\w)'|'(?!\w)")
"""Characters of data, code and links. No placeholder contains any of them."""
# "<your solution>", but no tag such as "<p>" or "<a href=x>", and no message in brackets.
_WORDS = re.compile(r"<[^\W\d_]+(?:[ ,.:;'’-]+\w+){1,9}[.…]*>")  # noqa: RUF001
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)*_]*\s+|(?<=[。！？])|\n+")  # noqa: RUF001
_HEAD = re.compile(r"[^:：\n]{1,200}[:：](?!//)\s*")  # noqa: RUF001
"""Text up to a colon, such as the announcement of a message."""
_WORD = re.compile(r"\w+\b")
_ASKS = re.compile(
    r"\b(?:repeat|recite|echo(?:es)?\b|dictat|(?:say|speak) after me|word for word|verbatim|quote"
    r"|aloud|out loud|reading lesson|pronunciation|pronounce|proofread|laut vor|vorles|aussprache"
    r"|wiederhol|nachsprech|sprich mir|wörtlich|diktat|zitier|r[ée]p[éèe]t|mot pour mot"
    r"|à voix haute|prononc|en voz alta|pronunci|ad alta voce|em voz alta|вслух|произно"
    r"|dict[ée]e|repite|repit|palabra por palabra|ripet|parola per parola|repit[ae]|palavra por"
    r"|повтор|дослівно|дословно|слово в слово)"
    r"|朗读|朗讀|发音|發音|音読|発音|소리 내어|발음"
    r"|重复|重復|重複|复述|複述|跟我(?:读|说|念|讀|說|唸)|一字不[差漏]|繰り返|復唱|따라\s?(?:하|해|말)|반복",
    re.IGNORECASE,
)

_LONGEST_MOVE = 10
"""From this number of words on, a line with a number or an option is no move of a game."""

_FIRST = 30
"""Number of characters that are searched for the first words."""

_DENSE: Final = "\u3000"
"""The first character of the scripts without spaces."""

_LONGEST_REMARK: Final = 40
"""Maximum length of a remark about a message, in words."""

_LONGEST_ANNOUNCEMENT: Final = 300
"""Maximum length of an announcement, in characters."""

_LONGEST_PLACEHOLDER: Final = 1_000
"""Maximum length of one or several placeholders, in characters."""

_LONGEST_OWNED: Final = 8
"""Maximum length of a placeholder in brackets, in words."""

_NEARLY_ASKED: Final = 0.8
"""Minimum similarity, word by word, of a sentence that repeats a sentence of a request."""

_RUN: Final = 5
"""Number of consecutive words of a request from which a text counts as copied."""

_MOSTLY: Final = 0.75
"""Minimum share of copied words in a sentence that repeats a request."""


def is_placeholder(text: str, prompt: str = "", marks: Iterable[str] = ()) -> bool:
    """Return whether a text contains nothing but placeholders.

    Args:
        text: The text.
        prompt: The speaker's instructions. A text in brackets that they contain elsewhere is no
            placeholder.
        marks: The marks that precede placeholders in the prompt.
    """
    if _BEGINS_IN_BRACKETS.match(text) is None or len(text) > _LONGEST_PLACEHOLDER:
        return False
    found = _PLACEHOLDER.findall(text)
    if not found or not is_blank(_PLACEHOLDER.sub("", text)):
        return False
    marks = [*marks]
    return all(
        any(f"{mark} {one}" in prompt for mark in marks)
        or _is_left_open(one, marks)
        or (_WORDS.fullmatch(one) is not None and one not in prompt)
        for one in found
    )


def _is_left_open(bracketed: str, marks: Sequence[str]) -> bool:
    """Return whether a text in brackets names something to fill in, in any known language."""
    inner = bracketed.strip("<>[]{}()＜＞【】（）")  # noqa: RUF001
    words = tuple(words_of(inner))
    # "<YOUR_SOLUTION>" is a placeholder; "[a for a in your_list]" is code.
    is_code = _DATA.search(inner) is not None or ("_" in inner and " " in inner.strip())
    if not words or len(words) > _LONGEST_OWNED or is_code:
        return False
    things, owners = (load_phrases(_REMARKS, name) for name in ("things", "owners"))
    if bracketed[0] in "(（":  # noqa: RUF001
        # Round brackets also contain remarks, such as "(your turn)".
        return has_phrase(words, owners) and has_phrase(words, things)
    # In a template, double brackets around a name represent its value.
    is_name = words in things or words in {tuple(words_of(mark)) for mark in marks}
    return has_phrase(words, owners) or (is_name and bracketed[1] != bracketed[0])


_REMARKS: Final = "remarks.toml"
_ACKNOWLEDGED: Final = "acknowledgements"
_ANNOUNCED: Final = "announcements"


@cache
def _remark_words() -> frozenset[str]:
    """Return all words of the file, in lower case."""
    parts = load_table(_REMARKS).values()
    lines = (line for part in parts for line in ([part] if isinstance(part, str) else part))
    return frozenset(re.findall(r"\w+", "\n".join(lines).casefold()))


def is_acknowledgement(text: str) -> bool:
    """Return whether a text only acknowledges a request or apologizes."""
    known, words = load_phrases(_REMARKS, _ACKNOWLEDGED), load_words(_REMARKS, "acknowledging")
    sentences = _sentences(text)
    return bool(sentences) and all(_is_made_of(one, known, words) for one in sentences)


def puts_off(text: str) -> bool:
    """Return whether a short answer only accepts, denies or postpones, as "Sure, one moment"."""
    return _remark_words().issuperset(_WORD.findall(text.casefold()))


def is_announcement(sentence: str) -> bool:
    """Return whether a sentence only announces another version of a message."""
    words = load_words(_REMARKS, "acknowledging") | load_words(_REMARKS, "announcing")
    return has_phrase(words_of(sentence), load_phrases(_REMARKS, _ANNOUNCED)) and _is_made_of(
        sentence, load_phrases(_REMARKS, _ACKNOWLEDGED, _ANNOUNCED), words
    )


def _is_made_of(sentence: str, phrases: frozenset[tuple[str, ...]], words: frozenset[str]) -> bool:
    """Return whether a sentence has only these phrases and words, and at least one phrase."""
    said = words_of(sentence)
    if len(said) > _LONGEST_REMARK:
        return False
    place, found = 0, False
    while place < len(said):
        size = phrase_length(said, place, phrases)
        if not size and said[place] not in words:
            return False
        found = found or bool(size)
        place += size or 1
    return found


def is_about_messages(text: str) -> bool:
    """Return whether a text, such as a task, is about messages or their wording."""
    return not load_words(_REMARKS, "messages").isdisjoint(words_of(text))


def only_announces(text: str) -> bool:
    """Return whether a text only announces a message."""
    # The cheap check comes first: most texts are longer, or begin with other words.
    if len(text) > _LONGEST_ANNOUNCEMENT:
        return False
    begun = _WORD.findall(text.casefold(), 0, 2 * _FIRST)[:2]
    is_dense = bool(begun) and begun[0] >= _DENSE
    if not is_dense and not _remark_words().issuperset(begun):
        return False
    sentences = _sentences(text)
    return any(map(is_announcement, sentences)) and all(
        is_announcement(one) or is_acknowledgement(one) for one in sentences
    )


def remark_places(text: str, request: str, *, announced: bool) -> Iterator[tuple[int, int]]:
    """Yield the places in a text that repeat a request or respond to it.

    Args:
        text: A text without code.
        request: The request for another attempt.
        announced: Whether announcements of the message count, too.
    """
    start, waiting = 0, list[tuple[int, int]]()
    for end, behind in (*(one.span() for one in _SENTENCE_END.finditer(text)), (len(text),) * 2):
        sentence = text[start:end]
        first = start + len(sentence) - len(sentence.lstrip())
        length = _remark_in(sentence.strip(), request, announced=announced)
        if length:
            yield from waiting
            waiting = []
            # The line break is kept, because the next line may begin with a mark.
            is_whole = first + length >= end
            yield (
                first,
                behind - len(text[end:behind].lstrip(" \t")) if is_whole else first + length,
            )
        elif is_blank(sentence) or (announced and is_acknowledgement(sentence)):
            # The sentences of "Sure! Here is my new message:" belong together.
            waiting.append((first, end))
        else:
            waiting = []
        start = behind


def _remark_in(sentence: str, request: str, *, announced: bool) -> int:
    """Return the length of a sentence's beginning that is no part of the message."""
    if is_blank(sentence):
        return 0
    if repeats_request(sentence, request) or (announced and is_announcement(sentence)):
        return len(sentence)
    head = _HEAD.match(sentence) if announced else None
    return head.end() if head is not None and is_announcement(head[0]) else 0


def all_repeat(text: str, request: str) -> bool:
    """Return whether each sentence of a text repeats a sentence of a request."""
    sentences = _sentences(text)
    return bool(sentences) and all(repeats_request(one, request) for one in sentences)


def repeats_request(sentence: str, request: str) -> bool:
    """Return whether a sentence repeats one of a request, perhaps in part or slightly reworded."""
    said = words_of(sentence)
    # A single word, such as a name, is no copy. A Thai word consists of many words of `words_of`.
    if words_in(" ".join(said)) < 2:
        return False
    if process.extractOne(
        said,
        _words_asked(request),
        scorer=Indel.normalized_similarity,
        score_cutoff=_NEARLY_ASKED,
    ):
        return True
    runs, taken = _runs(request), set[int]()
    for place in range(len(said) - _RUN + 1):
        if (*said[place : place + _RUN],) in runs:
            taken.update(range(place, place + _RUN))
    return len(taken) >= _MOSTLY * len(said)


@lru_cache(maxsize=64)
def _words_asked(request: str) -> list[tuple[str, ...]]:
    """Return the sentences of a request, in words."""
    return [tuple(words_of(one)) for one in _sentences(request)]


@lru_cache(maxsize=64)
def _runs(request: str) -> frozenset[tuple[str, ...]]:
    words = words_of(request)
    return frozenset((*words[at : at + _RUN],) for at in range(len(words) - _RUN + 1))


def is_rewritten(task: str, text: str, request: str) -> bool:
    """Return whether a rewritten task adds something and does not repeat the request."""
    bare = task.rstrip(" .")
    added = text[len(bare) :] if text.startswith(bare) else text
    sentences = _sentences(added)
    if any(repeats_request(one, request) for one in sentences):
        return False
    if _speaks_of_rewriting(added) and not _speaks_of_rewriting(task):
        return False
    return not {*words_of(added)} <= {*words_of(task), *words_of(request)}


def _speaks_of_rewriting(text: str) -> bool:
    return any(
        has_phrase(words_of(one), load_phrases(_REMARKS, "rewriting")) for one in _sentences(text)
    )


def repeats(text: str, prompt: str) -> bool:
    """Return whether a prompt contains each sentence of a text."""
    # The cheap check comes first: most texts begin with other words.
    shown = prompt.casefold()
    if not all(word in shown for word in _WORD.findall(text.casefold(), endpos=_FIRST)):
        return False
    rules = {plain(rule) for rule in _rules(prompt)}
    return all(plain(one) in rules for one in _sentences(text)) and not is_short(text)


def _sentences(text: str) -> list[str]:
    return [one for one in _SENTENCE_END.split(text) if not is_blank(one)]


def _rules(prompt: str) -> Iterator[str]:
    """Yield the sentences of a prompt, except each line after a line that ends with a colon."""
    before = ""
    for line in prompt.splitlines():
        if not before.rstrip().endswith(":"):
            yield from _sentences(line)
        before = line


def asks_to_repeat(text: str) -> bool:
    """Return whether a text may ask for a repetition, such as a vow or a dictation."""
    return _ASKS.search(text) is not None


def is_echo(text: str, other: str) -> bool:
    """Return whether a text repeats another word for word.

    Short lines, moves of a game, thanks and farewells do not count.
    """
    if is_short(text) or not is_equal(text, other) or is_farewell(text):
        return False
    # "My guess is number 42." may be the move of both players.
    return is_same_move(text, "") or words_in(plain(text)) >= _LONGEST_MOVE
