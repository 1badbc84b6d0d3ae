"""Whether a text says the word that ends a conversation. Pure functions.

Where they cannot be sure they say no: an end that comes too late costs a few calls, one that comes
too early loses the result.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from .code_places import Span
from .farewells import FACE
from .fences import fences
from .thoughts import thoughts

Match: TypeAlias = Literal["alone", "last", "anywhere"]
"""Where a done token counts."""

_EMPHASIS = "*_`~\"'"
"""What may stand around a token, which can itself begin with one of these signs."""

_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`]+\1(?!`)")
_IN_QUOTES = re.compile(
    # Straight quotation marks are no inches, and no apostrophes.
    r'(?<![0-9A-Za-z])"(?=\S)(?:[^"\n]|\n(?![^\S\n]*\n))+"(?![0-9A-Za-z])'
    r"|(?<!\w)'(?=\S)[^'\n]+'(?!\w)"
    r"|“[^”“]+[”“]|„[^“”„]+[“”]|«[^»«]+»|»[^«»]+«|‹[^›‹]+›"  # noqa: RUF001
    r"|「[^」]+」|『[^』]+』|《[^》]+》|(?<!\w)‘[^’\n]+’(?!\w)"  # noqa: RUF001
)
_QUOTED_LINE = re.compile(r"^[^\S\n]*(>.*)$", re.MULTILINE)

# Scripts without spaces, in which a word may touch the next one.
_DENSE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)

_NEAR = 200
"""How many characters before a token are looked at for a sentence's end."""

_OPEN_POINT = re.compile(
    # Behind these points a sentence goes on, and so it does behind the number of a list's item.
    r"(?<!\w)(?:e\. ?g|i\. ?e|z\. ?B|d\. ?h|p\. ?ex|p\. ?ej|cf|viz|vs|bzw)\.\Z"
    r"|(?<!\w)(?:т\. ?е|напр)\.\Z"  # noqa: RUF001
    r"|(?:\n|[.!?:;]\s)\s*\(?\d{1,2}[.)]\Z",
    re.IGNORECASE,
)


def default_match(token: str) -> Match:
    """Give where a token counts unless told: an ordinary word alone, any other one last, too."""
    # Vowel signs are marks, and belong to words.
    ordinary = all(unicodedata.category(sign)[0] in "LMN" for sign in token)
    return "alone" if ordinary else "last"


def says(token: str, text: str, match: Match = "alone") -> bool:
    """Whether a text says a token; code, quotations and thoughts say nothing.

    Args:
        token: The token, in just this case.
        text: The text.
        match: ``alone``: it is the text, or stands alone on a line of it. ``last``: or it ends the
            text as a sentence of its own. ``anywhere``: it stands anywhere in it.
    """
    return any(True for _ in _said(token, text, match))


def without(token: str, text: str, match: Match = "alone", shown: str | None = None) -> str:
    """Leave a token out of a text where it says it, with the emphasis around it.

    Args:
        token: The token.
        text: The text.
        match: As for `says`.
        shown: The text in which it is looked for, with white space for some of its parts. None: all
            of it.
    """
    for start, end in reversed([*_said(token, text if shown is None else shown, match)]):
        while start and text[end : end + 1] and text[start - 1] == text[end] in _EMPHASIS:
            start, end = start - 1, end + 1
        before, behind = text[:start].rstrip(" \t"), text[end:]
        # A line of its own goes as a whole.
        text = before + (behind.lstrip("\r\n") if before.endswith("\n") else behind)
        text = text.rstrip() if not behind.strip() else text
    return text


def settled(token: str, text: str, match: Match = "alone", since: int = 0) -> int:
    """Give up to where a text that goes on says no token, and what follows may be none of it.

    Args:
        token: The token.
        text: The text, as far as it has come.
        match: As for `says`.
        since: Up to where it is known already.
    """
    at = next(_may_say(token, text, match, since), None)
    if at is None:
        begun = (size for size in range(len(token) - 1, 0, -1) if text.endswith(token[:size]))
        at = len(text) - next(begun, 0)
    # What stands around a token goes with it.
    while at > since and (_is_unseen(text[at - 1]) or text[at - 1] in _EMPHASIS):
        at -= 1
    return max(at, since)


def _may_say(token: str, text: str, match: Match, since: int) -> Iterator[int]:
    """Where a text says a token, were it over there."""
    for found in re.compile(re.escape(token)).finditer(text, since):
        # Whether it stands in a quotation or in code is known only when more has come.
        line = text.find("\n", found.end())
        end = found.end() if match == "anywhere" else line if line >= 0 else len(text)
        shown = [text]
        if line < 0:
            # Signs of code on a line that goes on may turn out to be none.
            begin = text.rfind("\n", 0, found.start()) + 1
            shown.append(text[:begin] + text[begin:].replace("`", " "))
        if any(says(token, one[:end], match) for one in shown):
            yield found.start()


def ends_with(word: str, text: str) -> bool:
    """Whether a word ends a text, in just this case; signs may come after it, no letters.

    In code, a quotation or a thought it ends nothing.
    """
    if word not in text:
        return False
    shown = _without_thoughts(text)
    found = re.search(rf"(?<!\w){re.escape(word)}[^\w]*\Z", shown)
    span = (found.start(), found.start() + len(word)) if found else None
    return span is not None and not _is_hidden(span, _hidden(shown, word))


def _said(token: str, text: str, match: Match) -> Iterator[Span]:
    """Where a text says a token, in order."""
    if token not in text:
        return
    shown = _without_thoughts(text)
    if match == "anywhere":
        found = [span for span in _occurrences(token, shown) if _is_whole(shown, span)]
        hidden = _hidden(shown) if found else []
        yield from (span for span in found if not _is_hidden(span, hidden))
        return
    # Quotation marks around nothing but a token that has its own line are decoration.
    lone = [*_lone(token, shown)]
    hidden = _hidden(shown, token) if lone else []
    yield from (span for span in lone if not _is_hidden(span, hidden))
    last = _last(token, shown) if match == "last" else None
    if last is None or last in lone or not _ends_a_sentence(shown[: last[0]], shown[last[0]]):
        return
    if not _is_hidden(last, _hidden(shown)):
        yield last


def _occurrences(token: str, text: str) -> Iterator[Span]:
    return (found.span() for found in re.finditer(re.escape(token), text))


def _lone(token: str, text: str) -> Iterator[Span]:
    """Where a token stands alone on a line."""
    at = 0
    for one in text.splitlines(keepends=True):
        # As it stands too: the token may itself begin with a sign of emphasis.
        if token in (_bare(one), _bare(one, _EMPHASIS)):
            start = at + one.index(token)
            yield start, start + len(token)
        at += len(one)


def _last(token: str, text: str) -> Span | None:
    """Where a token stands with nothing behind it."""
    for kept in (_bare(text), _bare(text, _EMPHASIS)):
        if kept.endswith(token):
            start = text.rindex(token)
            return start, start + len(token)
    return None


def _bare(text: str, signs: str = "") -> str:
    """A text without white space, invisible characters and these signs around it."""
    first, end = 0, len(text)
    while first < end and (_is_unseen(text[first]) or text[first] in signs):
        first += 1
    while end > first and (_is_unseen(text[end - 1]) or text[end - 1] in signs):
        end -= 1
    return text[first:end]


def _is_unseen(sign: str) -> bool:
    return sign.isspace() or unicodedata.category(sign) == "Cf"


def _is_whole(text: str, span: Span) -> bool:
    """Whether a part of a text is not just a piece of a longer word."""
    start, end = span
    edges = text[max(start - 1, 0) : start + 1], text[end - 1 : end + 1]
    return not any(re.fullmatch(r"\w\w", edge) and not _DENSE.search(edge) for edge in edges)


def _ends_a_sentence(before: str, first: str) -> bool:
    """Whether a sentence ends with a text, where what follows begins with this character."""
    near = before[-_NEAR:]
    found = _sentence_end().search(near)
    if found is None:
        return False
    # "config.DONE" is one word.
    if near[-1] in ".!?" and first.isalnum():
        return False
    return _OPEN_POINT.search(near[: found.start() + 1]) is None


@cache
def _sentence_end() -> Any:  # noqa: ANN401  # regex has no types
    # It costs more to load than a conversation to run, and is needed by few.
    import regex  # type: ignore[import-untyped]

    emoji = r"(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f)"
    return regex.compile(
        # Any script's, but no ellipsis, which leaves a sentence open. A semicolon asks in Greek;
        # Tibetan has a stroke, Thai a polite word.
        rf"(?:(?<!\.)(?:\p{{STerm}}|[།༎\u037e]|(?<=\p{{Greek}});)|{emoji}"
        rf"|ค่ะ|คะ|ครับ|จ้ะ|จ้า|{FACE.pattern})"
        # Brackets and quotation marks close behind it, and emphasis opens.
        rf"(?:[\p{{Pe}}\p{{Pf}}\p{{Pi}}\p{{Cf}}\p{{Emoji_Modifier}}\ufe0f\s{_EMPHASIS}]|{emoji})*\Z"
    )


def _without_thoughts(text: str) -> str:
    """A text with white space for its thoughts, so that all else keeps its place."""
    for start, end in thoughts(text):
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return text


def _hidden(text: str, token: str | None = None) -> list[Span]:
    """Where code and quotations stand, in order, but for those that hold nothing but a token."""
    blocks = _blocks(text)
    pieces, at = [], 0
    for start, end in blocks:
        pieces += [text[at:start], "\n" * (end - start)]
        at = end
    rest = "".join([*pieces, text[at:]])
    found = (one.span() for pattern in (_INLINE, _IN_QUOTES) for one in pattern.finditer(rest))
    kept = (one for one in found if token is None or _bare(rest[slice(*one)], _EMPHASIS) != token)
    return _merged([*blocks, *kept])


def _blocks(text: str) -> list[Span]:
    """Where fenced code and quoted lines stand, in order."""
    spans = [found.span(1) for found in _QUOTED_LINE.finditer(text)] if ">" in text else []
    if "```" in text or "~~~" in text:
        lines, found = fences(text)
        ends = [0, *accumulate(map(len, lines))]
        spans += [(ends[one.first], ends[min(one.behind, len(lines))]) for one in found]
    return _merged(spans)


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found


def _is_hidden(span: Span, hidden: list[Span]) -> bool:
    """Whether a part of a text stands within one of these, which are in order."""
    place = bisect_right(hidden, (span[0], 0)) - 1
    # What a token itself is made of hides nothing.
    return place >= 0 and hidden[place][0] < span[0] and span[1] <= hidden[place][1]
