"""A page as HTML: one file that loads nothing else and runs only its own script.

The templates escape all text. The content security policy in the page's head allows only the style
and the script whose hashes it contains.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..common.display import TEMPLATES
from .charts import colour
from .markdown import as_html, editable_json, exact, exact_json, shown
from .page_data import Ending, Line, Page


def render(page: Page) -> str:
    """Return a page as HTML."""
    known = templates()
    style, script = style_of(known, len(page.players)), script_of(known, "page.js")
    policy = policy_of(style, script, form_action="'none'")
    drawn = known.get_template("page.html")
    return drawn.render(page=page, style=style, script=script, policy=policy)


def style_of(known: Environment, many: int, *more: str) -> Markup:
    """Return the style of a page for a number of speakers, followed by more style sheets."""
    sheets = [known.get_template("page.css").render(many=many)]
    sheets += [known.get_template(name).render() for name in more]
    # The sheets are our own; the only inserted values are numbers.
    return Markup("\n".join(sheets))  # noqa: S704


def script_of(known: Environment, *names: str) -> Markup:
    """Return the script of a page."""
    parts = (known.get_template(name).render() for name in names)
    return Markup("\n".join(parts))  # noqa: S704  # our own, too


def policy_of(style: str, script: str, **more: str) -> str:
    """Return a content security policy that allows a style, a script and the named sources."""
    allowed = {
        "default-src": "'none'",
        "style-src": f"'{_hash(style)}'",
        "script-src": f"'{_hash(script)}'" if script else "'none'",
        # The files of messages, which are a part of the page.
        "img-src": "data:",
        "media-src": "data:",
        "base-uri": "'none'",
        **{name.replace("_", "-"): what for name, what in more.items()},
    }
    return "; ".join(f"{name} {what}" for name, what in allowed.items())


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
    found.filters |= {"markdown": as_html, "shown": shown, "colour": colour}
    found.filters |= {"exact": exact, "exact_json": exact_json, "editable": editable_json}
    return found
