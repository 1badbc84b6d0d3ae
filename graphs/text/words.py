"""Words: counting, comparing, cutting and joining them, and reading the names among them.

Phrases of many languages are read from three files at their first use. Pure functions.

``courtesies.toml`` contains the phrases of thanks, farewells and closings, and describes how to add
a language. ``phrases.toml`` contains emoji of farewells, words that change a reply, and words of
denial. ``remarks.toml`` contains the phrases with which models announce or
describe a message instead of writing it.
"""

import json
import re
import string
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain, filterfalse, product
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage

from ..common.content import tokens_of_files
from .structures import Json, UnreadableJsonError, fences, find_objects

# ruff: noqa: RUF001


APOSTROPHES = "'’‘ʼ`´′"
"""The characters that are typed as apostrophes. Words with and without them are equal."""

WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+"
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
_CHUNK = re.compile(r"(?:[^\s()]|\([^()]*\))+")
_BRACKETS = re.compile(r"\(([^()]*)\)")


class Remarks(NamedTuple):
    """The phrases with which models describe a message instead of writing it, each as its words."""

    acknowledgements: frozenset[tuple[str, ...]]
    """Phrases that acknowledge a request or apologize."""
    acknowledging: frozenset[str]
    """Words that may accompany an acknowledgement."""
    announcements: frozenset[tuple[str, ...]]
    """Phrases that announce a new version of a message."""
    announcing: frozenset[str]
    """Words that may accompany an announcement."""
    openers: frozenset[tuple[str, ...]]
    """The phrases of acknowledgements and announcements."""
    spelled: frozenset[str]
    """All words in the table ``remarks`` of ``remarks.toml``, in lower case."""
    messages: frozenset[str]
    """Words of tasks that ask for messages to be written."""
    rewriting: frozenset[tuple[str, ...]]
    """Phrases about rewriting a task."""
    owners: frozenset[tuple[str, ...]]
    """Phrases of a placeholder that name its owner, or ask to fill it in."""
    things: frozenset[tuple[str, ...]]
    """Placeholders that consist of a single noun."""


class Phrases(NamedTuple):
    """The contents of ``phrases.toml``."""

    smiles: frozenset[str]
    """Emoji that are a courtesy without words."""
    emoji: frozenset[str]
    """All emoji that a courtesy may contain."""
    telling: frozenset[str]
    """Words that change the meaning of an otherwise equal reply, such as "not"."""
    denials: frozenset[str]
    """Words that deny."""


class Kind(IntEnum):
    """The function of a phrase in a farewell. For a shared phrase, the higher kind applies."""

    FILLER = 0
    """Accompanies a courtesy, but is not a courtesy alone."""
    NEGATION = 1
    """Requires a courtesy after it."""
    ANSWER = 2
    """A courtesy after a negation, otherwise a filler."""
    OPENER = 3
    """A courtesy alone."""
    PREFIX = 4
    """Requires a courtesy after it in the same clause."""


class Part(NamedTuple):
    """The function of a phrase, and the words that may surround it in its sentence."""

    kind: Kind
    tail: frozenset[str] = frozenset()
    """Words that may surround the phrase, in any order."""
    topic: frozenset[str] = frozenset()
    """Words after which a few words of any kind name the subject of the courtesy."""


class Node:
    """A node in the tree of phrases, reached by a sequence of words."""

    __slots__ = ("following", "part")

    def __init__(self) -> None:
        self.following: dict[str, Node] = {}
        self.part: Part | None = None
        """The part for this sequence of words. None if it is no whole phrase."""


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
    """Read ``remarks.toml`` at its first use."""
    found = load_table("remarks.toml")
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
    """Read ``phrases.toml`` at its first use."""
    found = load_table("phrases.toml")
    return Phrases(
        smiles=frozenset(found["smiles"]),
        emoji=frozenset(found["smiles"] + found["decoration"]),
        telling=frozenset(found["telling"].casefold().split()),
        denials=frozenset(words_of(found["denials"])),
    )


@cache
def courtesies() -> Courtesies:
    """Read ``courtesies.toml`` at its first use."""
    root, words = Node(), {","}
    stops, sign_offs = set[str](), list[str]()
    for language in load_table("courtesies.toml")["languages"]:
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
        yield Part(Kind.PREFIX, tail, topic), courtesy.get("prefixes", ())


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


def load_table(name: str) -> dict[str, Any]:
    """Read a file of phrases in this folder."""
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


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


def spellings(found: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield every spelling of these phrases, in words."""
    for phrase in found:
        for choice in product(*spellings_by_chunk(phrase)):
            words = tuple(chain.from_iterable(choice))
            if words:
                yield words


def spellings_by_chunk(
    phrase: str, split: Callable[[str], list[str]] = words_of
) -> Iterator[list[list[str]]]:
    """Yield the alternatives of each chunk of a phrase, in words.

    A chunk ends at a space outside brackets: "(a|) good obrigad(o|a)" has three chunks.
    """
    for chunk in _CHUNK.findall(phrase):
        parts = _BRACKETS.split(chunk)
        choices = (part.split("|") if place % 2 else [part] for place, part in enumerate(parts))
        yield [split("".join(choice)) for choice in product(*choices)]


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


def phrase_length(words: Sequence[str], place: int, phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase at a place, or 0."""
    sizes = range(min(_longest(phrases), len(words) - place), 0, -1)
    return next((size for size in sizes if (*words[place : place + size],) in phrases), 0)


def last_phrase_length(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase at the end of some words, or 0."""
    sizes = range(min(_longest(phrases), len(words)), 0, -1)
    return next((size for size in sizes if (*words[-size:],) in phrases), 0)


def has_phrase(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> bool:
    """Return whether some words contain one of these phrases."""
    return any(phrase_length(words, place, phrases) for place in range(len(words)))


@lru_cache
def _longest(phrases: frozenset[tuple[str, ...]]) -> int:
    return max(map(len, phrases), default=0)


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


_PAIRS: Final = (
    # Cyrillic, Greek, Armenian and Cherokee letters, each with the Latin letter that looks like it.
    ("АВЕЅІЈКМНОРСТУХҮԌԚԜ", "ABESIJKMHOPCTYXYGQW"),
    ("аеорсухѕіјһԁԛԝѵ", "aeopcyxsijhdqwv"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳο\u03bdρϲ", "ABEZHIKMNOPTYXCjovpc"),
    ("ՕօոսհԼ", "OonuhL"),
    ("ᎪᏴᎬᎻᏆᎫᏦᎷᏢᎡᏚᎢᏔᏃ", "ABEHIJKMPRSTWZ"),
    ("ıİɑɡ", "iIag"),
    ("‐‑‒–—−’ʼ", "------''"),
)
_LATIN: Final = {ord(one): latin for pair in _PAIRS for one, latin in zip(*pair, strict=True)}

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5")
"""Invisible characters that Unicode does not mark as such."""


def normalize_look(name: str) -> tuple[str, str]:
    """Return a name's letters without case, and their Latin look-alikes.

    Two names look alike if they share one of these two values.
    """
    # Format characters, such as a zero-width space, are invisible, too.
    seen = "".join(sign for sign in name if sign not in _UNSEEN and not _is_unseen(sign))
    shown = " ".join(unicodedata.normalize("NFKC", seen).split())
    return shown.casefold(), shown.translate(_LATIN).casefold()


def _is_unseen(sign: str) -> bool:
    return unicodedata.category(sign) == "Cf" or "\ufe00" <= sign <= "\ufe0f"


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


_OWNER: Final = re.compile(r"['’]s\b")
_MARKS: Final = string.whitespace + "*_`\"'.:!#>@,()[]<>“”«»"
"""The characters that may surround a name."""
_NUMBER: Final = re.compile(r"\W*(?:[^\W\d]+\W+)?(\d{1,3})\W*")
"""An answer that is only a number, such as "2." or "Option 2"."""
_NUMBERED: Final = re.compile(r"[^\w\n]*(\d{1,3})[.):]\s+(.*)")
"""A line of a numbered list."""
_LABEL: Final = re.compile(
    r"(?:\A|[.!?。！？\n])[^\w\n]*(?:\d{1,3}[.):])?[^\w\n]*([^\n.!?]*:)?[^\w\n]*\Z"
)
"""The text before a name that is a sentence of its own: a mark of a list, or a label."""
_ENDED: Final = re.compile(r"[^\w\n.!?]*(?:[.!。！\n]|\Z)")
"""The text after such a name."""
_LETTER: Final = r"[^\W_\u1100-\u11ff\u3040-\u9fff]"
"""A letter of a script with spaces between words. A name in a text is no part of a longer word."""
_CLAUSE_END: Final = re.compile(r"[.!?;,。！？，；\n]")
_EXCLUDED: Final = re.compile(
    r"\b(?:(?:is|are|was|were|do|does|did|has|have|wo|would|should|could|must|need)nt|except|besides|"
    r"instead of|(?:rather|other) than|(?:(?:any|every)(?:one|body)|all) but)\b"
)
"""Words that deny a name, in a folded text."""
_REACH: Final = 3
"""Number of words after a name in which a denial refers to it."""


def read_name(
    text: str, names: Sequence[str], others: Sequence[str] = (), *, listed: str = ""
) -> str | None:
    """Return the one name that an answer chooses, or None if it chooses none or several.

    Case and marks around a name do not matter, and the longest matching name counts. An answer is
    read by the first of these rules that applies:

    1. It is only a name, or only the number of a name in a numbered list of the prompt.
    2. It is or contains JSON: one value is only a name, or one value with "next" in its key. A
       single value may be a sentence.
    3. One name is a sentence or a line of its own, apart from a list marker or a label ("Next:").
    4. It mentions one name, and does not deny it ("anyone but Ann").

    Args:
        text: The answer, without thoughts.
        names: The names that may be chosen.
        others: Names that can't be chosen. An answer that mentions them may be ambiguous.
        listed: The prompt, which may number the names.
    """
    if text in names:
        return text
    found = _Reader(tuple(dict.fromkeys((*names, *others))), listed).read(text)
    return found if found in names else None


@lru_cache(256)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern that finds the longest of these names in a folded text."""
    written = sorted(filter(None, map(_write_pattern, names)), key=len, reverse=True)
    return re.compile("|".join(written)) if written else None


def _write_pattern(name: str) -> str:
    """Return the pattern of a name in a folded text, with any spaces or joins between its words."""
    folded = _fold(name)
    words = [*_WORD.finditer(folded)]
    pattern, end = "", None
    for word in words:
        if end is not None:
            pattern += f"(?:{re.escape(folded[end : word.start()])}|[ \t_-]*)"
        pattern, end = pattern + word.group(), word.end()
    return f"(?<!{_LETTER}){pattern}(?!{_LETTER})" if words else ""


def _fold(text: str) -> str:
    return fold(_OWNER.sub(" ", text))


def _make_key(text: str) -> str:
    return "".join(words_of(_OWNER.sub(" ", text)))


class _Reader:
    """A reader of answers that choose among these names."""

    def __init__(self, names: tuple[str, ...], listed: str = "") -> None:
        self._names = names
        self._keys: dict[str, str | None] = {}
        for name in names:
            # Names that differ only in their marks, such as C and C++, must be written exactly.
            key = _make_key(name)
            self._keys[key] = None if key in self._keys else name
        self._numbers: dict[str, str | None] = {}
        for line in listed.splitlines():
            numbered = _NUMBERED.fullmatch(line)
            first = next(self._find_mentions(numbered[2]), None) if numbered else None
            if numbered and first and not _make_key(first[0]):
                number, found = numbered[1].lstrip("0"), first[1]
                is_known = self._numbers.get(number, found) == found
                self._numbers[number] = found if is_known else None

    def read(self, text: str) -> str | None:
        """Return the name that an answer chooses, or None."""
        contents = [fence.content for fence in fences(text)[1]]
        text = contents[0] if len(contents) == 1 else text
        alone = self._match_whole(text)
        if alone is not None:
            return alone
        try:
            values = _read_json(text)
        except (UnreadableJsonError, RecursionError):
            return None
        return self._choose_in_text(text) if values is None else self._choose_in_json(values)

    def _match_whole(self, text: str) -> str | None:
        """Return the name or the number that a text consists of, or None."""
        for exact in (text.strip(), text.strip(_MARKS)):
            if exact in self._names:
                return exact
        if (key := _make_key(text)) and key in self._keys:
            return self._keys[key]
        number = _NUMBER.fullmatch(text)
        return self._numbers.get(number[1].lstrip("0")) if number else None

    def _choose_in_json(self, values: Sequence[tuple[str, str]]) -> str | None:
        following = [text for path, text in values if "next" in path.casefold()]
        for texts in (following, [text for _, text in values]):
            chosen = {name for text in texts if (name := self._match_whole(text)) is not None}
            if chosen:
                return chosen.pop() if len(chosen) == 1 else None
        return self._choose_in_text(values[0][1]) if len(values) == 1 else None

    def _choose_in_text(self, text: str) -> str | None:
        found = [*self._find_mentions(text)]
        alone = {name for before, name, after in found if self._is_apart(before, after)}
        if len(alone) == 1:
            return alone.pop()
        named = {name for _, name, _ in found}
        if len(named) != 1 or any(_is_denied(before, after) for before, _, after in found):
            return None
        return named.pop()

    def _is_apart(self, before: str, after: str) -> bool:
        """Return whether the name between two texts is a sentence or a line of its own."""
        label = _LABEL.search(before)
        if label is None or not _ENDED.match(after):
            return False
        words = label[1] or ""
        return not (_denies(words) or next(self._find_mentions(words), None))

    def _find_mentions(self, text: str) -> Iterator[tuple[str, str | None, str]]:
        """Yield each name in a text, with the text before it and after it."""
        pattern, folded = _pattern(self._names), _fold(text)
        for one in pattern.finditer(folded) if pattern else ():
            name = self._keys.get(_make_key(one.group()), None)
            yield folded[: one.start()], name, folded[one.end() :]


def _is_denied(before: str, after: str) -> bool:
    """Return whether the clause around a name denies the name."""
    rest = " ".join(_CLAUSE_END.split(after)[0].split()[:_REACH])
    return _denies(_CLAUSE_END.split(before)[-1]) or _denies(rest)


def _denies(text: str) -> bool:
    denials = phrases().denials
    return _EXCLUDED.search(text) is not None or any(word in denials for word in words_of(text))


def _read_json(text: str) -> list[tuple[str, str]] | None:
    """Return the texts and numbers in an answer's JSON, each with its keys. None for no JSON."""
    # Empty braces in prose are no object.
    value: Json = [*filter(None, find_objects(text))]
    if not value:
        try:
            value = json.loads(text)
        except ValueError:
            return None
    return [*_list_leaves(value)]


def _list_leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _list_leaves(one, f"{path}/{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _list_leaves(one, path)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield path, str(value)
