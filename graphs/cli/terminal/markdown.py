"""Blocks of Markdown, rendered for a terminal without hiding any part of the text.

`graphs.cli.terminal.events` streams them.
"""

from collections.abc import Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.theme import Theme

# Markup that hides a part of the text, such as tags, addresses behind words and backslashes, is
# shown literally.
_PARSER = (
    MarkdownIt("commonmark")
    .enable("table")
    .disable(["autolink", "code", "entity", "escape", "html_block", "html_inline", "image"])
    .disable(["lheading", "link", "reference"])
)

_CODE = ANSISyntaxTheme(
    {
        Comment: Style(dim=True),
        Keyword: Style(color="magenta"),
        Operator.Word: Style(color="magenta"),
        Name.Function: Style(color="blue"),
        Name.Class: Style(color="blue"),
        Name.Decorator: Style(color="yellow"),
        String: Style(color="green"),
        Number: Style(color="cyan"),
    }
)
"""Colours of the terminal's own palette, legible on a light and on a dark background."""

_THEME = Theme(
    {
        "markdown.code": "bold cyan",
        "markdown.block_quote": "italic",
        "markdown.hr": "dim",
        "markdown.item.bullet": "none",
        "markdown.item.number": "none",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        **{f"markdown.h{level}": "bold" for level in range(1, 7)},
    }
)


class _Heading(markdown.Heading):
    """A heading, aligned to the left."""

    LEVEL_ALIGN: ClassVar = {}


class _Code(markdown.CodeBlock):
    """A block of code that can be copied unchanged, because no border is drawn next to it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        syntax = Syntax(code, self.lexer_name, theme=_CODE)
        # Padding would be copied as well.
        for line in syntax.highlight(code).wrap(console, options.max_width, tab_size=4):
            line.rstrip()
            yield line


class _Item(markdown.ListItem):
    """An item of a list, with its bullet or number."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> "_Item":
        """Return an item for a token."""
        return cls("•" if token.markup in ("-", "*") else f"{token.info}{token.markup}")

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the segments of the item after its mark."""
        mark = f" {self._mark} "
        inner = options.update(width=options.max_width - len(mark))
        lines = console.render_lines(self.elements, inner, style=self.style, pad=False)
        for place, line in enumerate(lines):
            yield Segment(mark if place == 0 else " " * len(mark))
            yield from line
            yield Segment.line()

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        """Yield the segments of the item after its number."""
        return self.render_bullet(console, options)


class _Markdown(markdown.Markdown):
    """A block of Markdown."""

    elements: ClassVar = {
        **markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "list_item_open": _Item,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("")
        self.parsed = tokens


_PLAIN = {"paragraph_open", "inline", "paragraph_close", "text", "softbreak", "hardbreak"}


def render_block(text: str, console: Console) -> list[list[Segment]] | None:
    """Render a block of Markdown as lines.

    Args:
        text: The block, without control characters.
        console: The terminal on which the block is shown.

    Returns:
        The lines. None if the block has no markup, or begins with an indent.
    """
    if text[:1].isspace():
        # The indent belongs to a list before the block, or the writer intended it.
        return None
    tokens = _PARSER.parse(text)
    for token in tokens:
        token.children = list(_inline(token.children or []))
    found = {one.type for token in tokens for one in (token, *(token.children or []))}
    if found <= _PLAIN:
        return None
    with console.use_theme(_THEME):
        return _trim_lines(console.render_lines(_Markdown(tokens), pad=False))


def _inline(tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens. Line breaks are kept; names and formulas contain no emphasis."""
    literal: list[bool] = []
    for place, token in enumerate(tokens):
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.nesting:
            if token.nesting > 0:
                literal.append("_" in token.markup or _is_within_word(tokens, place))
            if literal[-1]:
                token = Token("text", "", 0, content=token.markup)
            if tokens[place].nesting < 0:
                literal.pop()
        yield token


def _is_within_word(tokens: list[Token], opening: int) -> bool:
    """Return whether emphasis begins or ends inside a word, as in ``2*3*4``."""
    level = tokens[opening].level
    closing = next(
        place
        for place in range(opening + 1, len(tokens))
        if tokens[place].nesting < 0 and tokens[place].level == level
    )
    before = tokens[opening - 1].content[-1:] if opening else ""
    behind = "".join(token.content for token in tokens[closing + 1 : closing + 2])[:1]
    return any(sign.isascii() and sign.isalnum() for sign in before + behind)


def _trim_lines(lines: list[list[Segment]]) -> list[list[Segment]]:
    """Return lines without white space at their ends and without empty lines around the block."""
    for line in lines:
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
    full = [place for place, line in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []
