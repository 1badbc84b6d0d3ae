"""A page drawn as HTML: one file that needs nothing else and runs nothing but its own script.

All that is written into the templates is escaped, whatever it is; a browser runs and loads only
what the policy in the page's head names by its hash.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .charts import colour
from .contents import Page
from .markdown import as_html, shown


def render(page: Page) -> str:
    """Draw a page."""
    templates = _templates()
    # Of our own making: nothing of a session stands in them but numbers.
    style = Markup(templates.get_template("page.css").render(many=len(page.players)))  # noqa: S704
    script = Markup(templates.get_template("page.js").render())  # noqa: S704
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    drawn = templates.get_template("page.html")
    return drawn.render(page=page, style=style, script=script, policy=policy)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"markdown": as_html, "shown": shown, "colour": colour}
    return found
