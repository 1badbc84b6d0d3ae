"""Sentences: their ends, quotations and decoration, and those that are only farewells.

A farewell contains only thanks, farewells, closings and pleasantries. `courtesies.toml` contains
the phrases, and describes how they combine. Reading stops at the first sentence that contains
anything else. It takes time linear in the length of the text.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from .phrases import Kind, Part, courtesies, load_entries, parts_by_spelling
from .structures import Span, fenced_spans, hide
from .words import DENSE, any_case, words_and_commas, words_in, words_of

_LONGEST = 100_000
"""Maximum length of a farewell, in characters. Reading 16 MiB would take many seconds."""

_BEGIN = 2000
"""Number of characters of a long text that are read first. Most texts are no farewell from their
first sentence on.
"""

_TOPIC_WORDS = 6
"""Maximum number of words that name the reason for thanks."""

_SIGNATURE_WORDS = 5
"""Maximum number of words of a signature."""

FACE = re.compile(r"[:;]['-]?[()]|<3")
"""An emoticon, typed in ASCII characters."""

_NOT_COURTESY = re.compile(r"[\d?؟`{}=<>|\\@$€£%^]|\(\)|://")
_CLAUSE = re.compile(r"[^.!;:。।۔\n()\[\]\"“”«»„¡¿—–…/]+")  # noqa: RUF001
_DASH = re.compile(r"\s-+\s")
_PLACEHOLDER = re.compile(
    r"\[[^\[\]\n]{0,20}\b(?:name|signature)\b[^\[\]\n]{0,20}\]", re.IGNORECASE
)
_HONORIFIC = re.compile(
    r"\b(?=[DFHMPSdfhmps])"  # makes the search three times as fast
    r"(?i:dr|mr|mrs|ms|mx|prof|professor|doctor|herr|frau|monsieur|madame|sr|sra|signor|signora)"
    r"\b\.? [A-ZÀ-Þ]\w+"
)
_EMPHASIS = re.compile(r"[*_~#]+")
_QUOTE_SIGN = re.compile(r"(?m)^[ \t]*>+")
_LETTER = re.compile(r"[^\W_]")
_IS_DENSE = re.compile(DENSE).match
_WORDS_ALONE = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)*")


def is_farewell(text: str, names: Sequence[str] = (), marks: Sequence[str] = ()) -> bool:
    """Return whether a text contains nothing but thanks, farewells, closings and pleasantries.

    Args:
        text: The text.
        names: Names of speakers. They may occur anywhere in the text.
        marks: Marks of the speaker's format. They are ignored.
    """
    if len(text) > _LONGEST:
        return False
    around = _around(tuple(names), tuple(marks))
    if len(text) > 2 * _BEGIN and _begins_otherwise(text[:_BEGIN], around):
        return False
    shown = _without(text, around)
    if _NOT_COURTESY.search(shown):
        return False
    found = False
    if not shown.isascii():
        emoji = {sign for sign in set(shown) if unicodedata.category(sign) in ("So", "Cn", "Co")}
        if not emoji <= load_entries("phrases.toml", "smiles", "decoration"):
            return False
        found = not emoji.isdisjoint(load_entries("phrases.toml", "smiles"))
    negated = assents = closes = False
    for sentence in _sentences(_unsigned(shown)):
        courtesy = _read(words_and_commas(sentence), around.words, negated=negated)
        if courtesy is None:
            return False
        negated = courtesy.negated
        found = found or courtesy.found
        assents, closes = assents or courtesy.assents, closes or courtesy.closes
    return found and not negated and (closes or not assents)


def _begins_otherwise(text: str, around: "_Around") -> bool:
    """Return whether the beginning of a text has a sentence that is not part of a farewell."""
    shown, negated = _without(text, around), False
    # The end of the text may split a mark or a name, and the half splits a sentence, the last one.
    for sentence, _ in pairwise(_sentences(shown[: len(shown) // 2])):
        if _LETTER.search(sentence):
            courtesy = _read(words_and_commas(sentence), around.words, negated=negated)
            if courtesy is None:
                return True
            negated = courtesy.negated
    return False


class _Around(NamedTuple):
    """The names and marks that a farewell may contain besides its courtesies."""

    words: frozenset[str]
    """The words of the names."""
    marks: re.Pattern[str] | None
    names: re.Pattern[str] | None
    """Names that contain characters other than letters, such as "Agent 2"."""


@lru_cache
def _around(names: tuple[str, ...], marks: tuple[str, ...]) -> _Around:
    shown = [name for each in names if (name := _without_emphasis(each).strip())]
    # Names such as "A" and "You" are also words of phrases.
    signed = [re.escape(name) for name in shown if not _WORDS_ALONE.fullmatch(name)]
    shown = [mark for each in marks if (mark := _without_emphasis(each).strip())]
    none = r"(?:[ \t]*(?:none|n/a)\b)?"
    marked = [re.escape(mark) + (none if mark.endswith(":") else "") for mark in shown]
    return _Around(
        frozenset(word for name in names for word in words_of(name)),
        re.compile("|".join(marked), re.IGNORECASE) if marked else None,
        re.compile(rf"(?<!\w)(?:{'|'.join(signed)})(?!\w)", re.IGNORECASE) if signed else None,
    )


def _without_emphasis(text: str) -> str:
    return _EMPHASIS.sub("", unicodedata.normalize("NFKC", text))


def _without(text: str, around: _Around) -> str:
    """Return a text without marks, `names`, quotes, placeholders, honorifics, faces, emphasis."""
    shown = _without_emphasis(text)
    if around.marks is not None:
        shown = around.marks.sub("\n", shown)
    if around.names is not None:
        shown = around.names.sub(" ", shown)
    shown = _QUOTE_SIGN.sub("", shown)
    shown = _PLACEHOLDER.sub(" ", shown)
    shown = _HONORIFIC.sub(" ", shown)
    return FACE.sub(" ", shown)


def _unsigned(text: str) -> str:
    """Return a text without the signature below a line such as "Kind regards,"."""
    lines = text.splitlines()
    if len(lines) < 2:
        return text
    lines = [line for line in lines if _LETTER.search(line)]
    for below in (1, 2):
        if len(lines) > below and " ".join(words_of(lines[-below - 1])).endswith(
            courtesies().sign_offs
        ):
            signature = " ".join(lines[-below:]).split()
            if len(signature) <= _SIGNATURE_WORDS and all(word[0].isupper() for word in signature):
                return "\n".join(lines[:-below])
    return "\n".join(lines)


def _sentences(text: str) -> Iterator[str]:
    for clause in _CLAUSE.finditer(text):
        yield from _DASH.split(clause[0])


class _Courtesy(NamedTuple):
    """A sentence, or a part of one, that contains only parts of a farewell."""

    found: bool
    """Whether the sentence contains a courtesy, such as thanks."""
    negated: bool
    """Whether the sentence ends after a negation that no courtesy has followed yet."""
    assents: bool
    """Whether the sentence accepts something, as in "Sounds good"."""
    closes: bool
    """Whether the sentence has a courtesy other than thanks, or thanks with a reason."""


def _read(words: list[str], names: frozenset[str], *, negated: bool) -> _Courtesy | None:
    """Return the courtesy of a sentence, or None if it contains anything but parts of a farewell.

    Each word must belong to a phrase, be a name, be in the tail of one of the sentence's phrases,
    or belong to a topic.
    """
    pieces = _pieces_of(words, names)
    if pieces is None:
        return None
    stops, thanks = courtesies().stops, courtesies().thanks
    tail, topic, others = set[str](), set[str](), set[str]()
    found, begun, left = False, False, 0.0
    assents, ends = False, False
    for start, end, part in pieces:
        if part is None:
            word = words[start]
            if word == ",":
                if begun:
                    return None
                left = 0
            elif word in topic and not _IS_DENSE(word):
                left, ends = _TOPIC_WORDS, True
            elif left > 0 and word not in stops:
                left -= 0 if word in tail else words_in(word)
                ends = ends or word not in tail
            else:
                others.add(word)
        elif part.kind <= Kind.ASSENT or (part.kind is Kind.PREFIX and left > 0):
            assents, ends = assents or part.kind is Kind.ASSENT, ends or left > 0
            left = 0 if end == start + 1 and words[start] in stops else left
        elif part.kind is Kind.NEGATION and not tail.isdisjoint(words[start:end]):
            # In Portuguese, "no" after a wish means "in the".
            left = 0
        else:
            tail |= part.tail
            topic |= part.topic
            left = _TOPIC_WORDS if words[end - 1] in part.topic else left
            closes = part.kind is Kind.OPENER or (part.kind is Kind.ANSWER and negated)
            found = found or closes
            ends = ends or (closes and thanks.isdisjoint(words[start:end]))
            begun = part.kind is Kind.PREFIX or (begun and not closes)
            negated = not closes and (negated or part.kind is Kind.NEGATION)
    is_known = others <= tail | names and not begun
    return _Courtesy(found, negated, assents, ends) if is_known else None


def _pieces_of(
    words: list[str], names: frozenset[str]
) -> list[tuple[int, int, Part | None]] | None:
    """Split a sentence into its longest phrases and the words between them.

    Each piece contains its first index, the index after it, and its part. The part is None for a
    word between phrases. The result is None if an unknown word comes before the first phrase.
    """
    known = courtesies()
    pieces = list[tuple[int, int, Part | None]]()
    place, size, opened = 0, len(words), False
    while place < size:
        if not (opened or words[place] in known.words or words[place] in names):
            return None
        part, end = None, place + 1
        if words[place] in known.phrases:
            parts, longest = parts_by_spelling(words[place])
            for after in range(min(place + longest, size), place, -1):
                if (part := parts.get((*words[place:after],))) is not None:
                    end = after
                    break
        opened = opened or part is not None
        pieces.append((place, end, part))
        place = end
    return pieces


EMPHASIS: Final = "*_~"
"""Markdown's emphasis characters."""

_OPENING: Final = "\"'`“„«»‹›‘「『《([{<（［【〈*_~"  # noqa: RUF001
_CLOSING: Final = "\"'`”“»«›‹’」』》)]}>）］】〉*_~"  # noqa: RUF001
PAIRS: Final = dict(zip(_OPENING, _CLOSING, strict=True)) | {"“": "”", "„": "“”"}
"""The characters that open an emphasis, a quotation or a bracket, with their closing characters."""

CLOSERS: Final = {
    sign: tuple(opening for opening, closing in PAIRS.items() if sign in closing)
    for sign in "".join(PAIRS.values())
}
"""The closing characters, each with its opening characters."""

JOINTS: Final = frozenset(",،、，–—-")  # noqa: RUF001
"""Punctuation within a sentence that leads to the next word."""

_FINAL: Final = frozenset(".!¡…。！．｡।॥۔։።။།༎‧#")  # noqa: RUF001
"""Punctuation that ends a sentence without asking, and the character that begins a heading."""

_PLAIN: Final = _FINAL.union(PAIRS, CLOSERS)

_ASKS: Final = frozenset("❓❔⁉")
"""Emoji that express a question."""

_FACE_LAST: Final = re.compile(rf"(?:{FACE.pattern})\Z")
_LONGEST_FACE: Final = 3


@cache
def is_unseen(sign: str) -> bool:
    """Return whether a character is white space or invisible."""
    return sign.isspace() or unicodedata.category(sign) == "Cf"


@cache
def is_decoration(sign: str) -> bool:
    """Return whether a character is space, emphasis, a bracket, an emoji or a sentence end."""
    if sign in _PLAIN or is_unseen(sign) or "\ufe00" <= sign <= "\ufe0f":
        return True
    category = unicodedata.category(sign)
    return category in ("Ps", "Pe", "Pi", "Pf", "So", "Sk") and sign not in _ASKS


def is_decorative(text: str) -> bool:
    """Return whether a text consists of decoration alone."""
    return all(map(is_decoration, FACE.sub("", text)))


def content_start(text: str) -> int:
    """Return the index after the decoration at the beginning of a text."""
    return next((at for at, sign in enumerate(text) if not is_decoration(sign)), len(text))


def content_end(text: str, word: str = "") -> int:
    """Return the index at which the decoration at the end of a text begins.

    Args:
        text: The text.
        word: A word to keep, even if it consists of decoration.
    """
    is_part = is_unseen if word and is_decorative(word) else is_decoration
    at = len(text)
    while at:
        face = None if is_part is is_unseen else _FACE_LAST.search(text, at - _LONGEST_FACE, at)
        if face is not None:
            at = face.start()
        elif is_part(text[at - 1]):
            at -= 1
        else:
            break
    return at


def line_start(text: str, at: int) -> int:
    """Return the index at which the line of a place begins."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


@lru_cache
def _label(name: str) -> re.Pattern[str]:
    """Return a pattern for a speaker's name and a colon at the beginning of a text."""
    signs = rf"[{re.escape(EMPHASIS)}\"'`(\[\s]*"
    return re.compile(
        rf"{signs}{any_case(name)}[{re.escape(EMPHASIS)}\"'`)\]]*\s*[:：][{re.escape(EMPHASIS)}]*",  # noqa: RUF001
        re.IGNORECASE,
    )


def unlabelled(text: str, name: str | None) -> str:
    """Return a text with the speaker's label at its beginning replaced by spaces."""
    found = None if name is None else _label(name).match(text)
    return text if found is None else " " * found.end() + text[found.end() :]


_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`]+\1(?!`)")
_IN_QUOTES = re.compile(
    # Straight quotation marks can also be inch signs or apostrophes.
    r'(?<![0-9A-Za-z])"(?=\S)(?:[^"\n]|\n(?![^\S\n]*\n))+"(?![0-9A-Za-z])'
    r"|(?<!\w)'(?=\S)[^'\n]+'(?!\w)"
    r"|“[^”“]+[”“]|„[^“”„]+[“”]|«[^»«]+»|»[^»«]+«|‹[^›‹]+›"  # noqa: RUF001
    r"|「[^」]+」|『[^』]+』|《[^》]+》|(?<!\w)‘[^’\n]+’(?!\w)"  # noqa: RUF001
)
_QUOTED_LINE = re.compile(r"^[^\S\n]*(>.*)$", re.MULTILINE)


def hidden_parts(text: str, is_shown: Callable[[str], bool] | None = None) -> list[Span]:
    """Return the parts of a text that are code or quotations, in order.

    Args:
        text: The text.
        is_shown: A function that returns whether a part is left out of the result. If None, every
            part is returned.
    """
    blocks = _blocks(text)
    rest = hide(text, blocks, "\n")
    code = [found.span() for found in _INLINE.finditer(rest)]
    quoted = [found.span() for found in _IN_QUOTES.finditer(rest)]
    # If the quotation is the whole text, no sentence can be about it.
    if quoted and is_decorative(rest[: quoted[0][0]]) and is_decorative(rest[quoted[0][1] :]):
        quoted = quoted[1:]
    kept = (one for one in (*code, *quoted) if not (is_shown and is_shown(rest[slice(*one)])))
    return _merged([*blocks, *kept])


def is_hidden(span: Span, hidden: list[Span]) -> bool:
    """Return whether a part of a text is within one of the hidden parts, which are sorted."""
    place = bisect_right(hidden, (span[0], 0)) - 1
    # A part that only surrounds the token itself does not hide it.
    return place >= 0 and hidden[place][0] < span[0] and span[1] <= hidden[place][1]


def _blocks(text: str) -> list[Span]:
    """Return the parts of a text that are fenced code or quoted lines, in order."""
    spans = [found.span(1) for found in _QUOTED_LINE.finditer(text)] if ">" in text else []
    return _merged(spans + fenced_spans(text))


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found


_NEAR: Final = 300
"""Maximum number of characters before a place that are searched for the end of a sentence."""

_OPEN_POINT = re.compile(
    # A sentence continues after these abbreviations, and after the number of a list item.
    r"(?<!\w)(?:e\. ?g|i\. ?e|z\. ?B|d\. ?h|p\. ?ex|p\. ?ej|cf|viz|vs|bzw)\.\Z"
    r"|(?<!\w)(?:т\. ?е|напр)\.\Z"  # noqa: RUF001
    # The first of the two points in such an abbreviation.
    r"|(?<!\w)[deipzт]\.\Z"
    r"|(?:\n|[.!?:;]\s)\s*\(?\d{1,2}[.)]\Z",
    re.IGNORECASE,
)


def last_sentence(before: str, first: str) -> str:
    """Return the unfinished sentence at the end of a text. Empty if the text ends with a sentence.

    Args:
        before: The text.
        first: The character after the text.
    """
    near = before[-_NEAR:]
    begin = max(near.rfind(sign) for sign in "\n\r\u2028\u2029") + 1
    for found in _sentence_end().finditer(near, begin):
        if found.end() == len(near):
            # "config.DONE" is one word.
            is_end = not (near[-1] in ".!?" and first.isalnum())
        else:
            is_end = found[0][-1].isspace() or found[0][0] in "。！？｡"  # noqa: RUF001
        if is_end and _OPEN_POINT.search(near[: found.start() + 1]) is None:
            begin = found.end()
    return near[begin:]


@cache
def _sentence_end() -> Any:  # noqa: ANN401  # regex has no types
    # Imported here: loading it takes longer than a conversation, and few conversations need it.
    import regex  # type: ignore[import-untyped]

    emoji = r"(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f)"
    signs = re.escape(f"{EMPHASIS}`\"'")
    return regex.compile(
        # Sentence ends of every script, except an ellipsis, which leaves a sentence open. Greek
        # asks with a semicolon, Tibetan ends with a stroke, Thai with a polite word.
        rf"(?:(?<!\.)(?:\p{{STerm}}|[།༎\u037e]|(?<=\p{{Greek}});)(?!\.\.)|{emoji}"
        rf"|ค่ะ|คะ|ครับ|จ้ะ|จ้า|{FACE.pattern})"
        # Brackets and quotation marks may close after it, and emphasis may open.
        rf"(?:[\p{{Pe}}\p{{Pf}}\p{{Pi}}\p{{Cf}}\p{{Emoji_Modifier}}\ufe0f\s{signs}]|{emoji}|[!?])*"
    )
