"""Words and phrases: counting, comparing, cutting and joining them. Pure functions.

Phrases of many languages are read from three files at their first use.

``courtesies.toml`` has the phrases of thanks, farewells and closings, and says how to add a
language. ``phrases.toml`` has emoji of farewells, words that change a reply, and phrases that make
a verdict doubtful. ``remarks.toml`` has the phrases with which models announce or describe a
message instead of writing it.
"""

import json
import re
import tomllib
import unicodedata

# ruff: noqa: RUF001
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain, filterfalse, product
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage

from .fences import fences

APOSTROPHES = "'’‘ʼ`´′"
"""The characters that are typed for an apostrophe; words are the same with and without."""

WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+"
"""The pattern of a word. In a script without spaces each sign is a word."""

_WORD = re.compile(WORD)
_WORD_OR_COMMA = re.compile(f"{WORD}|,")
_OTHER_COMMA = re.compile("[،、]")
# A Turkish letter, too, that is another one in capitals.
_NO_APOSTROPHES = str.maketrans("ı", "i", APOSTROPHES)
_CHUNK = re.compile(r"(?:[^\s()]|\([^()]*\))+")
_BRACKETS = re.compile(r"\(([^()]*)\)")


class Doubts(NamedTuple):
    """The phrases that make a judge's "yes" or "met" doubtful, each as its words."""

    conditions: frozenset[tuple[str, ...]]
    """Anywhere in its first sentence: a condition."""
    harmless: frozenset[tuple[str, ...]]
    """Phrases with the same words that are none."""
    partly: frozenset[tuple[str, ...]]
    """At the beginning of a clause: only a part, or not yet."""
    denied: frozenset[tuple[str, ...]]
    """At the beginning of a clause: a part is not."""
    denied_last: frozenset[tuple[str, ...]]
    """At the end of a clause: the same."""
    left: frozenset[tuple[str, ...]]
    """Anywhere in a clause, unless it is denied: something is left."""
    going_on: frozenset[tuple[str, ...]]
    """Anywhere in a clause, unless it is denied: the speaker goes on."""
    denials: frozenset[str]
    """Words that deny."""
    joins: frozenset[str]
    """Words that a clause may begin with, whatever it says."""
    topics: frozenset[str]
    """Words after which a "yes" is about a part."""
    whole: frozenset[str]
    """Words that make this part the whole."""


class Remarks(NamedTuple):
    """The phrases with which models talk about a message and do not write it, each as its words."""

    acknowledgements: frozenset[tuple[str, ...]]
    """Phrases that acknowledge a request or apologize."""
    acknowledging: frozenset[str]
    """Words that may stand beside one."""
    announcements: frozenset[tuple[str, ...]]
    """Phrases that announce a message which is written anew."""
    announcing: frozenset[str]
    """Words that may stand beside one."""
    openers: frozenset[tuple[str, ...]]
    """The phrases of both kinds."""
    spelled: frozenset[str]
    """All words of both kinds, as they are written in lower case."""
    messages: frozenset[str]
    """Words of tasks in which the work itself is to write messages."""
    rewriting: frozenset[tuple[str, ...]]
    """Phrases that speak of rewriting a task."""
    owners: frozenset[tuple[str, ...]]
    """Phrases of a placeholder: whose it is, or that it is to be put there."""
    things: frozenset[tuple[str, ...]]
    """What a placeholder of one word stands for."""


class Phrases(NamedTuple):
    """The contents of ``phrases.toml``."""

    smiles: frozenset[str]
    """Emoji that are a courtesy by themselves."""
    emoji: frozenset[str]
    """All that may stand in a courtesy."""
    telling: frozenset[str]
    """Words that make another statement of a reply that is otherwise the same, such as "not"."""
    doubts: Doubts
    """The phrases that make a verdict doubtful."""


class Kind(IntEnum):
    """What a phrase does in a farewell. If two languages share a phrase, the higher kind counts."""

    FILLER = 0
    """Stands beside a courtesy, and is none by itself."""
    NEGATION = 1
    """Needs a courtesy after it."""
    ANSWER = 2
    """A courtesy after a negation, otherwise a filler."""
    OPENER = 3
    """A courtesy by itself."""


class Part(NamedTuple):
    """What a phrase does, and which words may be around it in its sentence."""

    kind: Kind
    tail: frozenset[str] = frozenset()
    """Words that may be around the phrase, in any order."""
    topic: frozenset[str] = frozenset()
    """Words after which a few words of any kind name what the courtesy is about."""


class Node:
    """A place in the tree of phrases, reached by the words on the way."""

    __slots__ = ("following", "part")

    def __init__(self) -> None:
        self.following: dict[str, Node] = {}
        self.part: Part | None = None
        """The part that the words on the way make, if they are a whole phrase."""


class Courtesies(NamedTuple):
    """The phrases of all languages."""

    phrases: Node
    """The root of the tree of phrases."""
    words: frozenset[str]
    """All words of phrases, tails and topics, and the comma."""
    stops: frozenset[str]
    """Words that end a topic."""
    sign_offs: tuple[str, ...]
    """Endings of the line above a signature."""


@cache
def remarks() -> Remarks:
    """Return what models say about their messages. It is read once, when it is first needed."""
    found = _loaded("remarks.toml")
    about, places = found["remarks"], found["placeholders"]
    acknowledgements, announcements = (
        frozenset(spellings(about[name])) for name in ("acknowledgements", "announcements")
    )
    acknowledging = frozenset(words_of(about["acknowledging"]))
    return Remarks(
        acknowledgements,
        acknowledging,
        announcements,
        acknowledging | frozenset(words_of(about["announcing"])),
        acknowledgements | announcements,
        frozenset(
            word
            for part in about.values()
            for line in ([part] if isinstance(part, str) else part)
            for word in re.findall(r"\w+", line.casefold())
        ),
        frozenset(words_of(about["messages"])),
        frozenset(spellings(about["rewriting"])),
        frozenset(spellings(places["owners"])),
        frozenset(tuple(words_of(thing)) for thing in places["things"].split()),
    )


@cache
def phrases() -> Phrases:
    """Read ``phrases.toml``, once."""
    found = _loaded("phrases.toml")
    return Phrases(
        smiles=frozenset(found["smiles"]),
        emoji=frozenset(found["smiles"] + found["decoration"]),
        telling=frozenset(found["telling"].casefold().split()),
        doubts=_doubts_of(found["doubts"]),
    )


def _doubts_of(found: Mapping[str, Any]) -> Doubts:
    def known(name: str) -> frozenset[tuple[str, ...]]:
        return frozenset(spellings(found[name]))

    def words(name: str) -> frozenset[str]:
        return frozenset(words_of(found[name]))

    return Doubts(
        conditions=known("conditions"),
        harmless=known("harmless"),
        partly=known("partly"),
        denied=known("denied"),
        denied_last=known("denied_last"),
        left=known("left"),
        going_on=known("going_on"),
        denials=words("denials"),
        joins=words("joins"),
        topics=words("topics"),
        whole=words("whole"),
    )


@cache
def courtesies() -> Courtesies:
    """Read ``courtesies.toml``, once."""
    root, words = Node(), {","}
    stops, sign_offs = set[str](), list[str]()
    for language in _loaded("courtesies.toml")["languages"]:
        for part, phrases in _parts_of(language):
            words |= part.tail | part.topic
            for phrase in phrases:
                _add(root, words, phrase, part)
        stops.update(words_of(language.get("stops", "")))
        sign_offs += (" ".join(words_of(each)) for each in language.get("sign_offs", ()))
    return Courtesies(root, frozenset(words), frozenset(stops), tuple(sign_offs))


def _parts_of(language: dict[str, Any]) -> Iterable[tuple[Part, Iterable[str]]]:
    """Yield each part of a language with its phrases."""
    yield Part(Kind.FILLER), language.get("fillers", ())
    yield Part(Kind.FILLER), language.get("filler_words", "").split()
    closing = language.get("closing", {})
    tail = frozenset(words_of(closing.get("tail", "")))
    yield Part(Kind.NEGATION), closing.get("negations", ())
    yield Part(Kind.ANSWER, tail), closing.get("answers", ())
    yield Part(Kind.OPENER, tail), closing.get("openers", ())
    for courtesy in language["courtesies"]:
        topic = frozenset(words_of(courtesy.get("topic", "")))
        tail = frozenset(words_of(courtesy.get("tail", "")))
        yield Part(Kind.OPENER, tail, topic), courtesy["openers"]


def _add(root: Node, words: set[str], phrase: str, part: Part) -> None:
    """Add every spelling of a phrase to the tree."""
    places = {id(root): root}
    for choices in spellings_by_chunk(phrase, words_and_commas):
        reached: dict[int, Node] = {}
        for place in places.values():
            for choice in choices:
                node = place
                for word in choice:
                    node = node.following.setdefault(word, Node())
                reached[id(node)] = node
        places = reached
        words.update(word for choice in choices for word in choice)
    for node in places.values():
        if node is not root:
            node.part = _merged(node.part, part)


def _merged(known: Part | None, part: Part) -> Part:
    """Return the part of a phrase that several languages share."""
    if known is None or known == part:
        return part
    return Part(max(known.kind, part.kind), known.tail | part.tail, known.topic | part.topic)


def _loaded(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


def words_of(text: str) -> list[str]:
    """Return the words of a text, without case, accents and apostrophes."""
    return _WORD.findall(fold(text))


def words_and_commas(text: str) -> list[str]:
    """Return the words of a text as `words_of` does, with a comma for each comma."""
    return _WORD_OR_COMMA.findall(_OTHER_COMMA.sub(",", fold(text)))


def fold(text: str) -> str:
    """Return a text without case, accents and apostrophes."""
    text = text.translate(_NO_APOSTROPHES)
    if not text.isascii():
        text = "".join(filterfalse(unicodedata.combining, unicodedata.normalize("NFKD", text)))
    return text.casefold()


def spellings(found: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield every way to spell out the alternatives of these phrases, in words."""
    for phrase in found:
        for choice in product(*spellings_by_chunk(phrase)):
            words = tuple(chain.from_iterable(choice))
            if words:
                yield words


def spellings_by_chunk(
    phrase: str, split: Callable[[str], list[str]] = words_of
) -> Iterator[list[list[str]]]:
    """Yield the alternatives of each chunk of a phrase, in words.

    A chunk ends at a space outside of brackets: "(a|) good obrigad(o|a)" has three.
    """
    for chunk in _CHUNK.findall(phrase):
        parts = _BRACKETS.split(chunk)
        choices = (part.split("|") if place % 2 else [part] for place, part in enumerate(parts))
        yield [split("".join(choice)) for choice in product(*choices)]


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
