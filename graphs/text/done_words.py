"""Whether a text says the word that ends a conversation. Pure functions.

Where they cannot be sure they say no: an end that comes too late costs a few calls, one that comes
too early loses the result.
"""

from typing import Final, Literal, TypeAlias

from .fences import Span
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
from .thoughts import thoughts

Match: TypeAlias = Literal["alone", "last", "anywhere"]
"""Where a done token counts."""

_HELD: Final = frozenset((*PAIRS, *CLOSERS, *JOINTS, *":;"))
"""Signs that a done token may take along."""

_FACE_BEGUN: Final = ":;'-<"
"""Signs of a face that may go on."""


def default_match(token: str) -> Match:
    """Return where a token counts unless set: an ordinary word alone, any other one last, too."""
    return "alone" if is_ordinary(token) else "last"


def may_say(token: str, text: str) -> bool:
    """Return whether a text may say a token; much faster than `says`."""
    return spelling(token).may_be_in(text)


def says(token: str, text: str, match: Match = "alone", name: str | None = None) -> bool:
    """Whether a text says a token; code, quotations, questions about it and thoughts say nothing.

    Args:
        token: The token. Its case does not matter if it is the whole text or its whole last line.
        text: The text.
        match: ``alone``: it is the text, or alone on a line. ``last``: or it ends the text, which
            does not talk about it. On a line in the middle it does not count. ``anywhere``: it
            counts wherever it is.
        name: Whose text it is. This name and a colon may come before the token.
    """
    return bool(_parts(token, text, match, name))


def without(
    token: str,
    text: str,
    match: Match = "alone",
    name: str | None = None,
    shown: str | None = None,
) -> str:
    """Return a text without the token that it says, and without what surrounded only this token.

    Args:
        token: The token.
        text: The text.
        match: As for `says`.
        name: As for `says`.
        shown: The text in which the token is looked for, with white space for some of its parts.
            All of it if None.
    """
    seen = text if shown is None else shown
    parts = _parts(token, seen, match, name)
    for begin, end, place, kept in reversed(parts):
        start, end = _within_shown(text, seen, begin, end, place)
        before, after = text[:start].rstrip(" \t"), text[end:]
        # A line of its own goes as a whole.
        after = after.lstrip("\r\n") if before[-1:] in ("", "\n") and not kept else after
        text = before + kept + after
        text = text.rstrip() if not after.strip() else text
    return "" if parts and is_decorative(unlabelled(text, name)) else text


def _within_shown(text: str, shown: str, start: int, end: int, token: Span) -> Span:
    """Return a part of a text without what is not shown around its token: this stays."""
    start = max((at + 1 for at in range(start, token[0]) if shown[at] != text[at]), default=start)
    end = min((at for at in range(token[1], end) if shown[at] != text[at]), default=end)
    while token[1] < end < len(text) and text[end - 1].isspace():
        end -= 1
    return start, end


def settled(
    token: str, text: str, match: Match = "alone", since: int = 0, name: str | None = None
) -> int:
    """Return up to where a text that goes on says no token, and what follows may be none of it.

    Args:
        token: The token.
        text: The text, as far as it has come.
        match: As for `says`.
        since: Up to where it is known already.
        name: As for `says`.
    """
    at, line = _begun(token, text), line_start(text, len(text))
    if spelling(token).loose.search(text, since) is not None:
        # Signs of code on a line that goes on may turn out to be none, a face may have begun, and
        # so may the same token again, with which its lines before go, too.
        uncoded = text[:line] + text[line:].replace("`", " ")
        variants = text, uncoded, uncoded.rstrip(_FACE_BEGUN), text[:at]
        matches: tuple[Match, ...] = ("last", "alone") if match == "last" else (match,)
        parts = (_parts(token, one, how, name) for one in variants for how in matches)
        at = min([at, *(found[0].start for found in parts if found)])
    return max(_held_from(text, at, name), since)


def _begun(token: str, text: str) -> int:
    """Return from where on a text may have the begin of a token, as far as it has come."""
    written = (token.lower(), spelling(token).core.lower())
    end = text[-len(token) :].lower()
    begun = (
        size for one in written for size in range(len(one) - 1, 0, -1) if end.endswith(one[:size])
    )
    return len(text) - max(begun, default=0)


def _held_from(text: str, at: int, name: str | None) -> int:
    """Return from where on what comes before a place may only surround a token."""
    while True:
        before, begin = at, line_start(text, at)
        if at - begin <= NEAR and _may_surround(text[begin:at], name):
            at = begin
        while at and (text[at - 1] in _HELD or is_unseen(text[at - 1])):
            at -= 1
        if at == before:
            return at


def _may_surround(line: str, name: str | None) -> bool:
    """Whether the begin of a line has nothing of its own: decoration, or the speaker's label."""
    bare = unlabelled(unlabelled(line, name), name).strip(_FACE_BEGUN)
    if name is None or is_decorative(bare):
        return is_decorative(bare)
    return name.lower().startswith(bare[content_start(bare) : content_end(bare)].lower())


def _parts(token: str, text: str, match: Match, name: str | None) -> list[Part]:
    """Return where a text says a token, in order."""
    word = spelling(token)
    if not word.may_be_in(text):
        return []
    # All keeps its place.
    whole = _with_line_feeds(_without_thoughts(text))
    shown = unlabelled(whole, name)
    last = find_last_line(word, shown, name)
    if last is None and match == "last":
        last = find_closing(word, shown)
    others = [*(find_everywhere(word, shown) if match == "anywhere" else find_lines(word, whole))]
    if last is None and not (others and match != "last"):
        return []
    # Around the whole of a line or a sentence the signs of code and quotations are decoration.
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
    """Return a text with white space for its thoughts."""
    pieces, at = [], 0
    for start, end in thoughts(text):
        pieces += [text[at:start], " " * (end - start)]
        at = end
    return "".join([*pieces, text[at:]])
