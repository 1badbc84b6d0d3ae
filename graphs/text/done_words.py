"""Recognition of done tokens, the words that end a conversation. Pure functions.

In doubt the result is False: an end that comes too late costs a few calls, one that comes too early
loses the result.
"""

import re
from typing import Final, Literal, TypeAlias

from .mentions import (
    NEAR,
    Part,
    find_closing,
    find_everywhere,
    find_last_line,
    find_lines,
    is_announced,
    is_ordinary,
    spelling,
)
from .sentences import (
    CLOSERS,
    JOINTS,
    PAIRS,
    content_end,
    content_start,
    hidden_parts,
    is_decorative,
    is_hidden,
    is_unseen,
    line_start,
    unlabelled,
)
from .structures import Span
from .thoughts import thoughts

Match: TypeAlias = Literal["alone", "last", "anywhere"]
"""The positions in which a done token counts."""

_HELD: Final = frozenset((*PAIRS, *CLOSERS, *JOINTS, *":;"))
"""Signs that may belong to a done token."""

_FACE_BEGUN: Final = ":;'-<"
"""Signs that may be the beginning of an emoticon."""


def default_match(token: str) -> Match:
    """Return a token's default match mode: `alone` for an ordinary word, `last` for any other."""
    return "alone" if is_ordinary(token) else "last"


def may_say(token: str, text: str) -> bool:
    """Return whether a text could say a token. This is much faster than `says`."""
    return spelling(token).may_be_in(text)


def says(token: str, text: str, match: Match = "alone", name: str | None = None) -> bool:
    """Return whether a text says a done token, and does not only mention it.

    Code, quotations, questions about the token and thoughts do not count.

    Args:
        token: The token. Its case does not matter if it is the whole text or its whole last line.
        text: The text.
        match: ``alone``: the token counts as the whole text, or alone on a line. ``last``: it also
            counts at the end of a text that does not talk about it, but not on a line in the
            middle. ``anywhere``: it counts at any place.
        name: The speaker of the text. This name and a colon may precede the token.
    """
    return bool(_parts(token, text, match, name))


_WORD: Final = re.compile(r"\w+")
_CLAUSE_END: Final = re.compile(r"[.!?:;,\n\"“”„«»。！？：；，、]")  # noqa: RUF001
_NEAREST: Final = 3
"""Number of words before a token that are compared with another text."""
_WHOLE: Final = 8
"""Minimum number of words of a text that counts as repeated before a token."""


def is_quoted(token: str, text: str, other: str) -> bool:
    """Return whether the last token in a text belongs to words that are taken from another text.

    That is the case if the same clause or the same last words precede the token in both, or if the
    whole other text precedes it. A text that is the token alone quotes nothing.
    """
    exact = spelling(token).exact
    found = [*exact.finditer(text)]
    before = text[: found[-1].start()] if found else ""
    clause, words = _last_clause(before), _words(before)
    if not words:
        return False
    for one in exact.finditer(other):
        said = other[: one.start()]
        last = _words(said)[-_NEAREST:]
        if clause and clause == _last_clause(said):
            return True
        if len(last) == _NEAREST and words[-_NEAREST:] == last:
            return True
    whole = _words(exact.sub(" ", other))
    return len(whole) >= _WHOLE and words[-len(whole) :] == whole


def _last_clause(text: str) -> list[str]:
    """Return the words of the last clause of a text that has any."""
    clauses = (words for part in reversed(_CLAUSE_END.split(text)) if (words := _words(part)))
    return next(clauses, [])


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def defuse(token: str, text: str) -> str:
    """Replace a token in a text by words that nobody can take for it, unless it is ordinary."""
    if is_ordinary(token) or not may_say(token, text):
        return text
    return spelling(token).loose.sub("(stop word)", text)


def without(
    token: str,
    text: str,
    match: Match = "alone",
    name: str | None = None,
    shown: str | None = None,
) -> str:
    """Remove the done token that a text says, and the punctuation that surrounds only the token.

    Args:
        token: The token.
        text: The text.
        match: As for `says`.
        name: As for `says`.
        shown: The text in which the token is searched, with spaces in place of some parts. The
            whole text if None.
    """
    seen = text if shown is None else shown
    parts = _parts(token, seen, match, name)
    for begin, end, place, kept in reversed(parts):
        start, end = _within_shown(text, seen, begin, end, place)
        before, after = text[:start].rstrip(" \t"), text[end:]
        # A line that contains only the token is removed with its line break.
        after = after.lstrip("\r\n") if before[-1:] in ("", "\n") and not kept else after
        text = before + kept + after
        text = text.rstrip() if not after.strip() else text
    return "" if parts and is_decorative(unlabelled(text, name)) else text


def _within_shown(text: str, shown: str, start: int, end: int, token: Span) -> Span:
    """Shorten a part of a text so that it contains the token, but no hidden text around it."""
    start = max((at + 1 for at in range(start, token[0]) if shown[at] != text[at]), default=start)
    end = min((at for at in range(token[1], end) if shown[at] != text[at]), default=end)
    while token[1] < end < len(text) and text[end - 1].isspace():
        end -= 1
    return start, end


def settled(
    token: str, text: str, match: Match = "alone", since: int = 0, name: str | None = None
) -> int:
    """Return the index up to which a growing text says no token and may be shown.

    Args:
        token: The token.
        text: The text so far.
        match: As for `says`.
        since: The index that an earlier call returned for a shorter part of this text, or 0.
        name: As for `says`.
    """
    at, line = _begun(token, text), line_start(text, len(text))
    if spelling(token).loose.search(text, since) is not None:
        # On an unfinished line, backticks may turn out not to mark code. An emoticon may have
        # begun. The same token may come again, and then the lines before it are removed, too.
        uncoded = text[:line] + text[line:].replace("`", " ")
        variants = text, uncoded, uncoded.rstrip(_FACE_BEGUN), text[:at]
        matches: tuple[Match, ...] = ("last", "alone") if match == "last" else (match,)
        parts = (_parts(token, one, how, name) for one in variants for how in matches)
        at = min([at, *(found[0].start for found in parts if found)])
    return max(_held_from(text, at, name), since)


def _begun(token: str, text: str) -> int:
    """Return the index from which a text may contain the beginning of a token."""
    written = (token.lower(), spelling(token).core.lower())
    end = text[-len(token) :].lower()
    begun = (
        size for one in written for size in range(len(one) - 1, 0, -1) if end.endswith(one[:size])
    )
    return len(text) - max(begun, default=0)


def _held_from(text: str, at: int, name: str | None) -> int:
    """Return the index from which the text before a place may be decoration around a token."""
    while True:
        before, begin = at, line_start(text, at)
        if at - begin <= NEAR and _may_surround(text[begin:at], name):
            at = begin
        while at and (text[at - 1] in _HELD or is_unseen(text[at - 1])):
            at -= 1
        if at == before:
            return at


def _may_surround(line: str, name: str | None) -> bool:
    """Return whether a line begins with nothing but decoration or the speaker's label."""
    bare = unlabelled(unlabelled(line, name), name).strip(_FACE_BEGUN)
    if name is None or is_decorative(bare):
        return is_decorative(bare)
    return name.lower().startswith(bare[content_start(bare) : content_end(bare)].lower())


def _parts(token: str, text: str, match: Match, name: str | None) -> list[Part]:
    """Return the parts of a text that say a token, in order."""
    word = spelling(token)
    if not word.may_be_in(text):
        return []
    # Every step replaces characters by spaces, so that all indices stay the same.
    whole = _with_line_feeds(_without_thoughts(text))
    shown = unlabelled(whole, name)
    last = find_last_line(word, shown, name)
    if last is None and match == "last":
        last = find_closing(word, shown)
    others = [*(find_everywhere(word, shown) if match == "anywhere" else find_lines(word, whole))]
    if last is None and not (others and match != "last"):
        return []
    # Backticks and quotation marks around a whole line or sentence are decoration.
    if last is not None and is_hidden(last.token, hidden_parts(shown, word.is_all_of)):
        last = None
    hidden = hidden_parts(shown) if others else []
    others = [one for one in others if not is_hidden(one.token, hidden)]
    if last is not None:
        return [*(one for one in others if one.end <= last.start), last]
    is_said = match == "anywhere" or (
        match == "alone" and not all(is_announced(shown, one.start) for one in others)
    )
    return others if is_said else []


def _with_line_feeds(text: str) -> str:
    """Return a text in which each line ends with a line feed."""
    for end, plain in (("\r\n", " \n"), ("\r", "\n"), ("\u2028", "\n"), ("\u2029", "\n")):
        text = text.replace(end, plain)
    return text


def _without_thoughts(text: str) -> str:
    """Return a text with its thoughts replaced by spaces."""
    pieces, at = [], 0
    for start, end in thoughts(text):
        pieces += [text[at:start], " " * (end - start)]
        at = end
    return "".join([*pieces, text[at:]])
