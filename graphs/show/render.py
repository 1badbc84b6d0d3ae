"""A page drawn as HTML: one file that needs nothing else and runs nothing but its own script.

All that is written into the templates is escaped, whatever it is; a browser runs and loads only
what the policy in the page's head names by its hash.
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
    """Draw a page."""
    known = templates()
    style, script = style_of(known, len(page.players)), script_of(known, "page.js")
    policy = policy_of(style, script, form_action="'none'")
    drawn = known.get_template("page.html")
    return drawn.render(page=page, style=style, script=script, policy=policy)


def style_of(known: Environment, many: int, *more: str) -> Markup:
    """Return the style of a page on which so many take part, and more sheets behind it."""
    sheets = [known.get_template("page.css").render(many=many)]
    sheets += [known.get_template(name).render() for name in more]
    # Of our own making: nothing of a session stands in them but numbers.
    return Markup("\n".join(sheets))  # noqa: S704


def script_of(known: Environment, *names: str) -> Markup:
    """Return the script of a page."""
    parts = (known.get_template(name).render() for name in names)
    return Markup("\n".join(parts))  # noqa: S704  # of our own making, too


def policy_of(style: str, script: str, **more: str) -> str:
    """Say what a browser may run and load: this style, this script, and what else is named."""
    allowed = {
        "default-src": "'none'",
        "style-src": f"'{_hash(style)}'",
        "script-src": f"'{_hash(script)}'" if script else "'none'",
        "base-uri": "'none'",
        **{name.replace("_", "-"): what for name, what in more.items()},
    }
    return "; ".join(f"{name} {what}" for name, what in allowed.items())


def render_brief(lines: Sequence[Line], left_out: int, ending: Ending) -> str:
    """Draw a session for a notebook."""
    drawn = templates().get_template("result.html")
    return drawn.render(lines=lines, left_out=left_out, ending=ending)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def templates(*more: Path) -> Environment:
    """Return the templates, and those in other folders that are made of them."""
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
