"""A page as HTML: one file that loads nothing else and runs only its own script.

The templates escape all text. The content security policy in the page's head allows only the style
and the script whose hashes it contains. HTML in Markdown is shown literally, no image is loaded,
and links lead only to the web. Long code is folded. Every character is visible in texts that a
person approves or copies.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from ..common.display import TEMPLATES
from ..common.sanitize import clean, dump_exact_json, escape_invisible
from ..rules.questions import call_shown
from .ending import colour, tone_of
from .page_data import Ending, Line, Page

_FOLDED: Final = 10
"""Minimum number of lines of a code block that is folded."""

_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


def as_html(text: str) -> Markup:
    """Return Markdown as HTML."""
    # The renderer escapes all text, and HTML is switched off.
    return Markup(_MARKDOWN.render(show_text(text)))  # noqa: S704


def show_text(text: str) -> str:
    """Escape control characters, except those for the direction of text, which texts need."""
    return _CONTROLS.sub(lambda found: clean(found[0]), text)


_CONTROLS: Final = re.compile("\r\n|[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class _Renderer(RendererHTML):
    """A renderer that fits code and tables to a narrow page, with headings below the page's own."""

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Render fenced or indented code. Long code is folded."""
        # In code, no character may look like another one.
        text = clean(tokens[idx].content)
        language = (tokens[idx].info.split() or [""])[0]
        lines = text.count("\n")
        block = f'<pre tabindex="0" dir="ltr"><code>{escape(text)}</code></pre>\n'
        if lines < _FOLDED:
            return block
        title = f"{language or 'code'}, {lines} lines"
        return f'<details class="code"><summary>{escape(title)}</summary>{block}</details>\n'

    code_block = fence

    def code_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Render code within a line."""
        return f"<code>{escape(clean(tokens[idx].content))}</code>"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Open a heading."""
        return f"<{_heading_tag(tokens[idx])}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: ANN401
        """Close a heading."""
        return f"</{_heading_tag(tokens[idx])}>\n"

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


def _heading_tag(heading: Token) -> str:
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


def describe_call(call: Mapping[str, Any]) -> str:
    """Return the description of a call to approve, with its name, without quoted arguments."""
    name = str(call["name"])
    before, quoted, _ = str(call.get("description") or "").partition(call_shown(name, call["args"]))
    return exact(f"{before}{name}" if quoted else f"{before} ({name})".lstrip())


class Drawn(NamedTuple):
    """A page and its content security policy."""

    html: str
    """The HTML."""
    policy: str
    """The content security policy."""


def draw_page(
    template: str,
    *scripts: str,
    folder: Path | None = None,
    sheet: str | None = None,
    many: int = 0,
    sources: Mapping[str, str] = MappingProxyType({"form-action": "'none'"}),
    **values: Any,  # any value that a template can insert
) -> Drawn:
    """Draw a page with its style and its script.

    Args:
        template: The template of the page.
        *scripts: The templates of the page's script.
        folder: The folder of further templates.
        sheet: The template of a style sheet that follows the one of all pages.
        many: Number of speakers.
        sources: The sources that the content security policy allows besides the style, the script
            and the files of messages, which are a part of the page.
        **values: The values that the template inserts.
    """
    known = templates(*([] if folder is None else [folder]))
    # The sheets and scripts are our own; the only inserted values are numbers.
    sheets = [known.get_template("page.css").render(many=many)]
    sheets += [] if sheet is None else [known.get_template(sheet).render()]
    style = Markup("\n".join(sheets))  # noqa: S704
    script = Markup("\n".join(known.get_template(one).render() for one in scripts))  # noqa: S704
    allowed = {
        "default-src": "'none'",
        "style-src": f"'{_hash(style)}'",
        "script-src": f"'{_hash(script)}'" if script else "'none'",
        "img-src": "data:",
        "media-src": "data:",
        "base-uri": "'none'",
        **sources,
    }
    policy = "; ".join(f"{name} {source}" for name, source in allowed.items())
    page = known.get_template(template)
    return Drawn(page.render(style=style, script=script, policy=policy, **values), policy)


def render(page: Page) -> str:
    """Return a page as HTML."""
    return draw_page("page.html", "page.js", many=len(page.players), page=page).html


def render_brief(lines: Sequence[Line], left_out: int, ending: Ending) -> str:
    """Return a session as HTML for a notebook."""
    drawn = templates().get_template("result.html")
    return drawn.render(lines=lines, left_out=left_out, ending=ending)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def templates(*more: Path) -> Environment:
    """Return the environment with the templates of this folder and of the given other folders."""
    found = Environment(
        loader=FileSystemLoader([Path(__file__).parent / "templates", TEMPLATES, *more]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"markdown": as_html, "shown": show_text, "colour": colour}
    # A person can edit this JSON, which is read back as the same value.
    editable = partial(dump_exact_json, indent=2)
    found.filters |= {"exact": exact, "exact_json": exact_json, "editable": editable}
    found.filters |= {"tone": tone_of, "describe_call": describe_call}
    return found
