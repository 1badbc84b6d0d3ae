"""Text of the embedded model's grammar, translated into a regular expression."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from duologue.nodes.models.adapters.embedded import EmbeddedServer, grammar
from support.tables import each_row

ROWS = tomllib.loads(Path(__file__).with_name("grammar.toml").read_text("utf-8"))

_TOKEN = re.compile(
    r"""(?P<literal>"(?:\\.|[^"\\])*")|(?P<set>\[(?:\\.|[^\]\\])*\])|(?P<name>[a-z]+)"""
    r"""|(?P<operator>\{\d+,\d+\}|[()|?*+])|(?P<space>\s+)"""
)
_ESCAPE = re.compile(r"\\(U[0-9A-F]{8}|x[0-9A-F]{2}|.)")

marks = st.text(min_size=1, max_size=20).filter(str.isprintable)


def unescaped(text: str) -> str:
    """Decode the body of a GBNF literal."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if code[0] in "Ux" else {"n": "\n"}.get(code, code)

    return _ESCAPE.sub(one, text)


def as_regex(gbnf: str) -> re.Pattern[str]:
    """Translate a grammar without recursion, by substituting its rules."""
    rules = dict(line.split(" ::= ", 1) for line in gbnf.splitlines() if line)

    def body(rule: str) -> str:
        out, position = "", 0
        while position < len(rule):
            match = _TOKEN.match(rule, position)
            assert match is not None, rule[position:]
            position = match.end()
            kind, text = match.lastgroup, match[0]
            if kind == "literal":
                out += f"(?:{re.escape(unescaped(text[1:-1]))})"
            elif kind == "name":
                out += f"(?:{body(rules[text])})"
            elif kind != "space":
                out += text
        return out

    return re.compile(body(rules["root"]))


USER = as_regex(grammar(("Instruction:", "Input:"), None))
ASSISTANT = as_regex(grammar(("Solution:",), "Next request."))


@each_row("a_users_well_formed_reply_is_in_the_grammar")
def test_a_users_well_formed_reply_is_in_the_grammar(reply: str) -> None:
    assert USER.fullmatch(reply)


@pytest.mark.parametrize(
    "reply",
    ROWS["a_users_broken_reply_is_not"],
)
def test_a_users_broken_reply_is_not(reply: str) -> None:
    assert not USER.fullmatch(reply)


def test_an_assistants_reply_ends_with_the_closing_words() -> None:
    assert ASSISTANT.fullmatch("Solution: It is written now. Next request.")
    assert not ASSISTANT.fullmatch("Solution: It is written now.")
    assert not ASSISTANT.fullmatch("Solution: Next request.")
    assert not ASSISTANT.fullmatch("Solution: What should it be about? Next request.")


def test_a_reply_is_bounded() -> None:
    sentence = "Word" + " word" * 29 + "."
    assert ASSISTANT.fullmatch(f"Solution: {sentence} {sentence} Next request.")
    assert not ASSISTANT.fullmatch(f"Solution: Word{' word' * 30}. Next request.")
    assert not ASSISTANT.fullmatch(f"Solution: {sentence} {sentence} {sentence} Next request.")
    assert not ASSISTANT.fullmatch(f"Solution: It is {'o' * 200} now. Next request.")


@given(st.lists(marks, min_size=1, max_size=3), st.none() | marks)
def test_any_printable_mark_is_held_literally(lines: list[str], end: str | None) -> None:
    gbnf = grammar(lines, end)
    assert gbnf.isascii()
    held = as_regex(gbnf)
    first, *rest = lines
    reply = f"{first} Some plain text." + "".join(f"\n{mark} None" for mark in rest)
    reply += "" if end is None else f" {end}"
    assert held.fullmatch(reply)
    assert not held.fullmatch(f"{reply}\n{first}")


def test_the_key_of_the_child_is_not_in_its_repr() -> None:
    server = EmbeddedServer(url="u", api_key="secret", pid=1, model="m")
    assert "secret" not in repr(server)
