"""The shape of a reply as a GBNF grammar, for models too weak to keep a format when asked to.

Pure text in, text out. What the format means and the check of a finished reply are elsewhere.
"""

from collections.abc import Sequence

# Bounds in words, so that a reply ends by itself; a bound that is hit cuts a sentence short.
_WORDS = 30

# Plain English: a sentence starts with a capital, and full stops stand only at its end or within a
# number. Nothing else is let in, so that no mark, token, list or emoji can start inside the text.
_TEXT = rf"""
sentence ::= [A-Z] letter{{0,19}} (","? " " word){{2,{_WORDS - 1}}} "."
word ::= letter{{1,20}} | "$"? [0-9]{{1,6}} ("." [0-9]{{1,3}})? "%"?
letter ::= [A-Za-z'\-]
"""


def grammar(lines: Sequence[str], end: str | None) -> str:
    r"""Build the grammar that holds a reply to its marks.

    Every mark starts a line and is followed by a space and text: one sentence of plain words, or up
    to two when there is only one line. The lines after the first may say `None`. The bounds count
    words, not tokens: a reply that rambles in figures can still reach `max_tokens`.
    """
    if not lines:
        raise ValueError("A format needs at least one mark; give lines=('Solution:',) or more.")
    first = f"{_literal(lines[0])} "
    # One line says all there is to say; one of several only its part.
    parts = [first + ('" " sentence' if lines[1:] else '(" " sentence){1,2}')]
    parts += [rf'"\n" {_literal(mark)} " " ("None" | sentence)' for mark in lines[1:]]
    if end is not None:
        parts.append(f'" " {_literal(end)}')
    reply = " ".join(parts)
    return f"root ::= {reply}{_TEXT}"


def _literal(text: str) -> str:
    """Quote a string; beyond printable ASCII it is escaped by code point."""
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} can't be a mark; give one line of printable characters.")
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isascii() else f"\\U{ord(character):08X}"
