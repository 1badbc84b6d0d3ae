"""Markdown as HTML, in which no text of a model or a person becomes code.

HTML in a text is shown literally, no image is loaded, and links lead only to the web. Long code is
folded. Every character is visible in texts that a person approves or copies.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from ..common.sanitize import clean, dump_exact_json, escape_invisible

_FOLDED: Final = 10
"""Minimum number of lines of a code block that is folded."""

_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


def as_html(text: str) -> Markup:
    """Return Markdown as HTML."""
    # The renderer escapes all text, and HTML is switched off.
    return Markup(_MARKDOWN.render(shown(text)))  # noqa: S704


def shown(text: str) -> str:
    """Escape control characters, except those for the direction of text, which texts need."""
    return _CONTROLS.sub(lambda found: clean(found[0]), text)


_CONTROLS: Final = re.compile("\r\n|[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _code(tokens: Sequence[Token], place: int) -> str:
    # In code, no character may look like another one.
    text = clean(tokens[place].content)
    language = (tokens[place].info.split() or [""])[0]
    lines = text.count("\n")
    block = f'<pre tabindex="0" dir="ltr"><code>{escape(text)}</code></pre>\n'
    if lines < _FOLDED:
        return block
    title = f"{language or 'code'}, {lines} lines"
    return f'<details class="code"><summary>{escape(title)}</summary>{block}</details>\n'


class _Renderer(RendererHTML):
    """A renderer that fits code and tables to a narrow page, with headings below the page's own."""

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Render fenced code."""
        return _code(tokens, idx)

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Render indented code."""
        return _code(tokens, idx)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Render code within a line."""
        return f"<code>{escape(clean(tokens[idx].content))}</code>"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a heading."""
        return f"<{_below(tokens[idx])}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Close a heading."""
        return f"</{_below(tokens[idx])}>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a table, which scrolls inside its own box."""
        return '<div class="wide" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Close a table."""
        return "</table></div>\n"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a link that sends no referrer."""
        address = escape(str(tokens[idx].attrs.get("href", "")))
        return f'<a href="{address}" rel="noopener noreferrer nofollow" title="{address}">'


def _below(heading: Token) -> str:
    # The page's own headings go down to h3.
    return f"h{min(6, int(heading.tag[1]) + 3)}"


class _Markdown(MarkdownIt):
    """Markdown in which all links, also addresses in angle brackets, lead to the web."""

    def validateLink(self, url: str) -> bool:  # noqa: N802  # the name in markdown-it
        """Return whether an address may be linked to."""
        return _WEB.match(url) is not None


_MARKDOWN: Final = (
    _Markdown("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer)
    .enable(["table", "strikethrough"])
    .disable("image")
)


_STRING: Final = re.compile(r'("(?:[^"\\]|\\.)*")')


def exact(text: object) -> str:
    """Escape every invisible character of a name, an id or a text, except line breaks."""
    return escape_invisible(str(text), keep="\n")


def exact_json(value: object) -> Markup:
    """Return a value as JSON for an element with the direction left to right.

    Browsers would draw neighbouring strings in Hebrew or Arabic, and the numbers between them, from
    right to left. Each string gets its own direction, so that the order is kept.
    """
    parts = _STRING.split(dump_exact_json(value, indent=2))
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def editable_json(value: object) -> str:
    """Return a value as JSON that a person can edit and that is read back as the same value."""
    return dump_exact_json(value, indent=2)
