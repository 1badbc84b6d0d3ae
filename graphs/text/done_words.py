"""Recognition of done tokens, the words that end a conversation, and of sentences about words.

In doubt the result is False: an end that comes too late costs a few calls, one that comes too early
loses the result. In a doubtful sentence a word counts as a mention, which ends nothing.
``mentions.toml`` contains the phrases. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from .doubts import is_doubtful
from .phrases import has_phrase, last_phrase_length, load_phrases, load_words, phrase_length
from .sentences import (
    CLOSERS,
    EMPHASIS,
    JOINTS,
    PAIRS,
    content_end,
    content_start,
    hidden_parts,
    is_decorative,
    is_farewell,
    is_hidden,
    is_unseen,
    last_sentence,
    line_start,
    unlabelled,
)
from .spellings import Spelling, html_start, is_ordinary, spelling, unify
from .structures import Span, hide
from .thoughts import thoughts
from .words import DENSE, fold, words_of

_CLAUSE: Final = re.compile(r"[,;，；、،]|\s[-–—]+\s|[–—]")  # noqa: RUF001
_OPEN: Final = " \t,;，；、،–—-"  # noqa: RUF001
"""The characters that may separate a clause from the word after it."""

_ITEM: Final = re.compile(r"\s*(?:[-*+•–]|\(?\d{1,2}[.)])\s*")  # noqa: RUF001
_COLON: Final = re.compile(r"[:：]\s*\Z")  # noqa: RUF001

_INNER_COLON: Final = re.compile(r"[:：](?=\s)")  # noqa: RUF001


def is_mention(sentence: str) -> bool:
    """Return whether a sentence that ends before a word asks about the word or names it.

    The result is also true if the sentence denies, plans or shows the word.
    """
    # Imported here: it loads libraries for comparing texts, and few conversations need it.
    from .similarity import asks

    if _COLON.search(sentence):
        return is_shown(sentence)
    if _ITEM.fullmatch(sentence) or asks(sentence):
        return True
    # A new sentence begins after a colon.
    sentence = _INNER_COLON.split(sentence)[-1]
    clauses = _CLAUSE.split(sentence.rstrip(_OPEN))
    words, begin = words_of(sentence), words_of(clauses[0])
    is_about = bool(
        _is_object(words)
        or has_phrase(words, _load_phrases("anywhere"))
        # "Si, ..." can be a yes written without its accent.
        or (
            phrase_length(words, 0, _load_phrases("first"))
            and not (len(clauses) > 1 and len(begin) < 2)
        )
        or (words and _load_words("connectives").issuperset(words))
    )
    # "I don't need more, thanks" talks about something else.
    return is_about and not (is_farewell(sentence) or is_farewell(clauses[-1]))


def is_shown(before: str) -> bool:
    """Return whether a text announces the word directly after it, on the same or the next line."""
    words = words_of(before)
    if _COLON.search(before) and not _load_words("shown").isdisjoint(words):
        return True
    return _is_object(words) and not is_farewell(before)


def _load_phrases(name: str) -> frozenset[tuple[str, ...]]:
    return load_phrases("mentions.toml", name)


def _load_words(name: str) -> frozenset[str]:
    return load_words("mentions.toml", name)


def _is_object(words: Sequence[str]) -> bool:
    """Return whether the last of these words governs the next one, as in "reply with the word"."""
    end = len(words)
    while end:
        size = last_phrase_length(words[:end], _load_phrases("before"))
        if size and not _is_noun(words[:end]):
            return True
        if words[end - 1] not in _load_words("fillers"):
            return False
        end -= 1
    return False


def _is_noun(words: Sequence[str]) -> bool:
    """Return whether the last of these words is a noun, as in "thanks for your answer"."""
    size = last_phrase_length(words, _load_phrases("nouns"))
    return 0 < size < len(words) and words[-size - 1] in _load_words("determiners")


NEAR: Final = 300
"""Maximum number of characters before a word that are examined."""

_ASKED: Final = re.compile(r"[^.!?。！？\n]{0,300}[?？؟]")  # noqa: RUF001
"""The rest of a question, up to its question mark."""

_GLUE: Final = re.compile(rf"[,;–—…，；、]|{DENSE}")  # noqa: RUF001
"""The characters after which a token needs no space."""

_LEADING: Final = JOINTS.union("([{<")
"""Signs before a token that mean nothing without it."""


class Part(NamedTuple):
    """A part of a text that others do not hear: a token and the punctuation around only it."""

    start: int
    end: int
    token: Span
    """The token's position."""
    kept: str = ""
    """Closing brackets and quotation marks within this part that were opened before it. They stay
    in the text.
    """


def find_everywhere(word: Spelling, text: str) -> Iterator[Part]:
    """Yield the places of a word, except those in questions."""
    for found in word.exact.finditer(text):
        start, end = found.span()
        if _ASKED.match(text, end) is None:
            while start and text[end : end + 1] and text[start - 1] == text[end] in EMPHASIS:
                start, end = start - 1, end + 1
            yield Part(start, end, found.span())


def find_last_line(word: Spelling, text: str, name: str | None) -> Part | None:
    """Return the last line of a text if it is the word, in any case and decorated."""
    begin = line_start(text, content_end(text, word.core))
    found = [one.span() for one in word.loose.finditer(text, begin)]
    if len(found) != 1 or found[0][0] - begin > NEAR:
        return None
    start, end = found[0]
    rest = f"{unlabelled(text[begin:start], name)} {text[end:]}"
    if not is_decorative(rest) or is_announced(text, begin):
        return None
    _, closing = _unpaired(text, start, end)
    return Part(len(text[:begin].rstrip()), len(text), (start, end), _opened(closing, text[:begin]))


def find_closing(word: Spelling, text: str) -> Part | None:
    """Return the word at the end of a text, if the last sentence says it.

    The word must be a separate sentence, decorated or quoted, or follow a sentence that does not
    talk about it.
    """
    end = content_end(text, word.core)
    near = [one.span() for one in word.exact.finditer(text, max(0, end - NEAR - len(word.word)))]
    start, after = near[-1] if near else (0, 0)
    if not after or after < end:
        return None
    span = start, after
    # The first of the last equal words with nothing but signs between.
    for begin, behind in reversed(near[:-1]):
        if not all(is_unseen(sign) or sign in ".!" for sign in text[behind:start]):
            break
        start = begin
    bare = start
    while bare and text[bare - 1] in PAIRS:
        bare -= 1
    sentence = last_sentence(text[max(0, bare - NEAR) : bare], text[start])
    if not sentence.strip():
        is_about = line_start(text, bare) == bare - len(sentence) and is_announced(text, bare)
    else:
        is_about = not _is_bare(text, bare, start) or is_mention(sentence)
    if is_about:
        return None
    start, closing = _unpaired(text, start, after)
    while start and (text[start - 1] in _LEADING or is_unseen(text[start - 1])):
        start -= 1
    return Part(start, len(text), span, _opened(closing, text[:start]))


def _is_bare(text: str, bare: int, start: int) -> bool:
    """Return whether a word is not quoted, in brackets, or glued to the text before it.

    Args:
        text: The text.
        bare: The index of the first punctuation mark directly before the word.
        start: The index of the word.
    """
    if not set(text[bare:start]) <= set(EMPHASIS):
        return False
    before = text[bare - 1] if bare else " "
    if is_unseen(before) or _GLUE.match(before):
        return True
    return not text[start].isalnum() and (before.isalnum() or before == ".")


def _unpaired(text: str, start: int, end: int) -> tuple[int, str]:
    """Find the pairs of brackets and quotation marks around a part of a text.

    Returns:
        The index of the outermost opening character, and the unpaired closing characters after the
        part.
    """
    closing = []
    for sign in text[end:]:
        if start and sign in PAIRS.get(text[start - 1], ""):
            start -= 1
        elif sign in CLOSERS:
            closing.append(sign)
    return start, "".join(closing)


def _opened(closing: str, before: str) -> str:
    """Return the closing brackets and quotation marks whose opening characters occur in a text."""
    known = {one for one in set(closing) if any(sign in before for sign in CLOSERS[one])}
    return "".join(one for one in closing if one in known)


def is_announced(text: str, start: int) -> bool:
    """Return whether the line above a place announces the word at this place."""
    begin = line_start(text, start)
    above = text[max(0, begin - NEAR) : begin].rstrip()
    sentence = last_sentence(above, " ")
    return bool(sentence) and is_shown(sentence)


Match: TypeAlias = Literal["alone", "last", "anywhere"]
"""The positions in which a done token counts."""

_HELD: Final = frozenset((*PAIRS, *CLOSERS, *JOINTS, *":;"))
"""Signs that may belong to a done token."""

_AROUND: Final = frozenset((*CLOSERS, *".!"))
"""Signs directly after a token that belong to it."""

LONGEST_GOODBYE: Final = 200
"""Maximum number of characters of farewells and stage directions after a token."""

_FACE_BEGUN: Final = ":;'\"-<"
"""Signs that may be the beginning of an emoticon, or of another quotation."""


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
            counts at the end of a text that does not talk about it, also before a farewell or a
            stage direction. ``anywhere``: it counts at any place.
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
    exact, text, other = spelling(token).exact, unify(text, token), unify(other, token)
    found = [*exact.finditer(text)]
    before = text[: found[-1].start()] if found else ""
    clause, words = _last_clause(before), _words_in(before)
    if not words:
        return False
    for one in exact.finditer(other):
        said = other[: one.start()]
        last = _words_in(said)[-_NEAREST:]
        if clause and clause == _last_clause(said):
            return True
        if len(last) == _NEAREST and words[-_NEAREST:] == last:
            return True
    whole = _words_in(exact.sub(" ", other))
    return len(whole) >= _WHOLE and words[-len(whole) :] == whole


def _last_clause(text: str) -> list[str]:
    """Return the words of the last clause of a text that has any."""
    clauses = (words for part in reversed(_CLAUSE_END.split(text)) if (words := _words_in(part)))
    return next(clauses, [])


def _words_in(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def defuse(token: str, text: str) -> str:
    """Replace a token in a text by words that nobody can take for it, unless it is ordinary."""
    if is_ordinary(token) or not may_say(token, text):
        return text
    for found in reversed([*spelling(token).loose.finditer(unify(text, token))]):
        text = f"{text[: found.start()]}(stop word){text[found.end() :]}"
    return text


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
    # Earlier lines are settled. A long line is read from its unsettled part on.
    begin = line_start(text, since)
    begin = begin if since - begin <= NEAR else since
    text, name = text[:begin] + unify(text[begin:], token), name and unify(name)
    at, line = _begun(token, text[: html_start(text)]), line_start(text, len(text))
    if spelling(token).loose.search(text, since) is not None:
        if is_decorative(unlabelled(spelling(token).loose.sub(" ", text[:at]), name)):
            # Another token may follow, after which nothing of the message is left.
            return since
        # On an unfinished line, backticks may turn out not to mark code. An emoticon may have
        # begun. The same token may come again, and then the lines before it are removed, too.
        uncoded = text[:line] + text[line:].replace("`", " ")
        variants = [text, uncoded, uncoded.rstrip(_FACE_BEGUN), text[:at]]
        # A farewell after the token may go on.
        *_, end = (one.end() for one in spelling(token).loose.finditer(text, since))
        if match == "last" and len(text) - end <= LONGEST_GOODBYE:
            variants.append(text[:end])
        parts = (_parts(token, one, match, name) for one in variants)
        at = min([at, *(found[0].start for found in parts if found)])
    return max(_held_from(text, at, name), since)


def _begun(token: str, text: str) -> int:
    """Return the index from which a text may contain the beginning of a token."""
    # A spelling is at most twice as long as the token, and has two spaces.
    found = spelling(token).begun.search(text, max(0, len(text) - 2 * len(token) - 2))
    return len(text) if found is None else found.start()


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
    return fold(name).startswith(fold(bare[content_start(bare) : content_end(bare)]))


def _parts(token: str, text: str, match: Match, name: str | None) -> list[Part]:
    """Return the parts of a text that say a token, in order."""
    word = spelling(token)
    if not word.may_be_in(text):
        return []
    # Every step replaces characters by others, so that all indices stay the same.
    text = hide(text, thoughts(text), " ")
    for end, plain in (("\r\n", " \n"), ("\r", "\n"), ("\u2028", "\n"), ("\u2029", "\n")):
        text = text.replace(end, plain)
    whole, name = unify(text, token), name and unify(name)
    shown = unlabelled(whole, name)
    last = find_last_line(word, shown, name)
    if last is None and match == "last":
        last = find_closing(word, shown)
        if last is None and (goodbye := _goodbye_start(word, shown, name)) is not None:
            before = shown[:goodbye]
            last = find_last_line(word, before, name) or find_closing(word, before)
    if match == "anywhere":
        others = [*find_everywhere(word, shown)]
    else:
        lines = (found.span(1) for found in word.line.finditer(whole))
        others = [Part(*place, place) for place in lines]
    if last is None and not others:
        return []
    # Backticks and quotation marks around a whole line or sentence are decoration.
    if last is not None and is_hidden(last.token, hidden_parts(shown, word.is_all_of)):
        last = None
    hidden = hidden_parts(shown) if others else []
    others = [one for one in others if not is_hidden(one.token, hidden)]
    if last is not None:
        return [*(one for one in others if one.end <= last.start), last]
    is_said = match == "anywhere" or not all(is_announced(shown, one.start) for one in others)
    return others if is_said else []


_DIRECTION: Final = re.compile(r"\(([^()\n]+)\)|\[([^\[\]\n]+)\]|\*+([^*\n]+)\*+|_+([^_\n]+)_+")
"""A stage direction, such as "*hangs up*"."""


def _goodbye_start(word: Spelling, text: str, name: str | None) -> int | None:
    """Return the index of the farewells and stage directions after the last word, or None."""
    near = len(text) - LONGEST_GOODBYE
    found = [*word.loose.finditer(text, max(0, near - 2 * len(word.word)))]
    if not found:
        return None
    begin = found[-1].end()
    while begin < len(text) and text[begin] in _AROUND:
        begin += 1
    after = text[begin:]
    directions = [one[one.lastindex or 0] for one in _DIRECTION.finditer(after)]
    rest = _DIRECTION.sub(" ", after)
    is_goodbye = begin >= near and (
        is_farewell(rest, (name,) if name else ()) or (directions and is_decorative(rest))
    )
    is_clear = not any(is_doubtful(one, is_yes=True) for one in directions)
    return begin if is_goodbye and is_clear else None
