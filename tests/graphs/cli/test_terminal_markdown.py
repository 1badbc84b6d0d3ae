"""Messages are shown as Markdown on a terminal; no part of them is hidden or takes effect."""

import io
import re
from typing import Any

from hypothesis import given, strategies as st
from rich.cells import cell_len
from rich.console import Console

from duologue.graphs.cli.terminal.events import Reply
from support.screens import Screen
from support.tables import each_row

_ERASED = "\x1b[1A\x1b[2K"
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def written(text: str, width: int = 40, *, pieces: int = 0, height: int = 1000, **how: Any) -> str:
    """Return the output for a text that arrives in pieces of this length, or whole."""
    console = Console(
        file=Screen(), force_terminal=True, width=width, height=height, _environ={}, **how
    )
    reply = Reply(console, whole=not pieces)
    for start in range(0, len(text), pieces or len(text) or 1):
        reply.write(text[start : start + (pieces or len(text))])
    reply.end()
    assert isinstance(console.file, io.StringIO)
    assert reply.lines == on_screen(console.file.getvalue()).count("\n")
    return console.file.getvalue()


def on_screen(written: str) -> str:
    """Return the final content of the screen without styles."""
    lines: list[str] = []
    for part in _STYLES.sub("", written).splitlines(keepends=True):
        while part.startswith(_ERASED):
            lines.pop()
            part = part.removeprefix(_ERASED)
        lines.append(part)
    return "".join(lines)


def shown(text: str, width: int = 40) -> str:
    return on_screen(written(text, width)).removesuffix("\n")


@each_row("rendered", "text", "page")
def test_markdown_is_rendered_and_all_else_is_shown_as_it_is(text: str, page: str) -> None:
    assert shown(text) == page


MARKUP = st.text("ab \n*_`#>-|1.~漢\t\\[]()<", max_size=60)
WORDS = st.sampled_from(
    ["```", "\n```py\n", "\n\n", "- ", "1. ", "**a**", "\r\n", "\x1b[2J", "| a |\n| - |\n", "word "]
)


@given(st.one_of(MARKUP, st.lists(WORDS, max_size=15).map("".join)), st.integers(1, 9))
def test_a_text_that_streams_looks_in_the_end_as_if_it_came_whole(text: str, pieces: int) -> None:
    streamed = on_screen(written(text, 20, pieces=pieces))
    assert streamed == on_screen(written(text, 20))
    assert "\x1b" not in streamed
    assert all(cell_len(line) <= 20 for line in streamed.split("\n"))


def test_only_a_block_with_markup_is_written_again_and_once() -> None:
    plain, marked = "One two.\n\n", "**Three**\nfour.\n\n"
    assert _ERASED not in written(plain * 5, pieces=1)
    assert written(plain + marked + plain, pieces=1).count(_ERASED) == 2


def test_a_block_that_has_left_the_screen_is_not_written_again() -> None:
    code = "```\n" + "x\n" * 30 + "```"
    assert _ERASED not in written(code, pieces=5, height=24)
    assert _ERASED in written(code, pieces=5, height=40)


def test_code_has_the_terminals_own_colours_and_none_where_none_are_wanted() -> None:
    code = "```python\ndef f(): return 'x'\n```"
    coloured = written(code, color_system="standard")
    assert "\x1b[35mdef" in coloured
    assert "\x1b[4" not in coloured  # a background
    assert "\x1b[" not in written(code, color_system="standard", no_color="1")
