"""From Markdown to HTML: nothing that a model or a person writes becomes code.

HTML in a text is shown as written, no image is fetched, and links lead only to the web. Long code
is folded. In texts that a person approves or copies each character is visible.
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
"""From so many lines on code is folded."""

_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


def as_html(text: str) -> Markup:
    """Write Markdown as HTML."""
    # The renderer escapes all text, and HTML is switched off.
    return Markup(_MARKDOWN.render(shown(text)))  # noqa: S704


def shown(text: str) -> str:
    """Escape control characters; those that turn the direction stay, as texts need them."""
    return _CONTROLS.sub(lambda found: clean(found[0]), text)


_CONTROLS: Final = re.compile("\r\n|[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _code(tokens: Sequence[Token], place: int) -> str:
    # In code nothing may look like something else.
    text = clean(tokens[place].content)
    language = (tokens[place].info.split() or [""])[0]
    lines = text.count("\n")
    block = f'<pre tabindex="0" dir="ltr"><code>{escape(text)}</code></pre>\n'
    if lines < _FOLDED:
        return block
    title = f"{language or 'code'}, {lines} lines"
    return f'<details class="code"><summary>{escape(title)}</summary>{block}</details>\n'


class _Renderer(RendererHTML):
    """Draws code and tables for a narrow page, and headings below the page's own."""

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Draw fenced code."""
        return _code(tokens, idx)

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Draw indented code."""
        return _code(tokens, idx)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Draw code within a line."""
        return f"<code>{escape(clean(tokens[idx].content))}</code>"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a heading."""
        return f"<{_below(tokens[idx])}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Close a heading."""
        return f"</{_below(tokens[idx])}>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a table, which scrolls by itself."""
        return '<div class="wide" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Close a table."""
        return "</table></div>\n"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a link, which tells nobody where it was followed."""
        address = escape(str(tokens[idx].attrs.get("href", "")))
        return f'<a href="{address}" rel="noopener noreferrer nofollow" title="{address}">'


def _below(heading: Token) -> str:
    # The page's own go down to h3.
    return f"h{min(6, int(heading.tag[1]) + 3)}"


class _Markdown(MarkdownIt):
    """Markdown whose links, addresses in angle brackets among them, lead to the web alone."""

    def validateLink(self, url: str) -> bool:  # noqa: N802  # as it is called there
        """Whether an address may be linked to."""
        return _WEB.match(url) is not None


_MARKDOWN: Final = (
    _Markdown("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer)
    .enable(["table", "strikethrough"])
    .disable("image")
)


_STRING: Final = re.compile(r'("(?:[^"\\]|\\.)*")')


def exact(text: object) -> str:
    """Escape every character of a name, an id or a text that nobody can see but a line break."""
    return escape_invisible(str(text), keep="\n")


def exact_json(value: object) -> Markup:
    """Draw a value as JSON, for an element that is read from left to right.

    Browsers would draw neighbours in Hebrew or Arabic, and the numbers between them, from right to
    left: each string has a direction of its own, so that all of them stay in their order.
    """
    parts = _STRING.split(dump_exact_json(value, indent=2))
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def editable_json(value: object) -> str:
    """Write a value as JSON that can be edited; it is read back as the same value."""
    return dump_exact_json(value, indent=2)
