"""Configuration of the site; CONTRIBUTING.md has the command that builds it.

Sphinx reads the README and the pages in their places, so that links are the same on the site and in
the repository. When a page is read, this module adds the parts that only the site has: the menu,
pictures, docstrings, and the pages of the gallery's conversations, which run during the build.
"""

import logging
import re
import sys
from pathlib import Path
from typing import Final

from docutils.nodes import Element
from mermaidx import render  # type: ignore[import-untyped]
from sphinx.addnodes import desc_annotation
from sphinx.application import Sphinx

from duologue import __version__, graphs, tools
from duologue.graphs.common.data import Data
from duologue.graphs.common.model_help import own_doc

project = "duologue"
version = release = __version__
author = copyright = "The duologue authors"  # noqa: A001
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/measurements/*.md"]
exclude_patterns = [".*", "build", "graphs", "nodes", "notebooks", "tests", "tools"]
myst_heading_anchors = 4
default_role = "py:obj"
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "model_config, __init__, __new__", "members": True}
autodoc_typehints_format = "short"
# Several classes have a field with the same name, such as `lines`.
suppress_warnings = ["ref.python"]
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_title = f"duologue {version}"

_ROOT: Final = Path(__file__).parent.parent
_GALLERY: Final = "docs/gallery"
sys.path.insert(0, str(_ROOT / _GALLERY))
from play import name_of, write_pages  # noqa: E402

_aside: dict[str, list[str]] = {}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the parts to a page that only the site has."""
    text = re.sub(r"^```mermaid\n(.*?)^```$", _picture, source[0], flags=re.M | re.S)
    # The site has no page for a folder.
    text = re.sub(r"\[([^]]*)\]\(([\w./-]*)\)", lambda link: _linked(link, page), text)
    if page == root_doc:
        text += _menu()
    if page == "docs/reference":
        text = re.sub(r"^(`\w+`(, )?)+$", _documented, text, flags=re.M)
    if page == _GALLERY:
        text = re.sub(r"^## (.*?)\n.*?(?=^## |\Z)", _played, text, flags=re.M | re.S)
    source[0] = text


def _picture(mermaid: re.Match[str]) -> str:
    return f'```{{raw}} html\n<div class="picture">{render(mermaid[1]).svg()}</div>\n```'


def _linked(link: re.Match[str], page: str) -> str:
    is_folder = (_ROOT / page).parent.joinpath(link[2]).is_dir()
    return link[1] if is_folder else link[0]


def _played(section: re.Match[str]) -> str:
    """Add the page of a conversation to its section."""
    page = f"gallery/{name_of(section[1])}.html"
    look = "width: 100%; height: 32rem; border: 1px solid #8886; border-radius: 0.5rem"
    shown = f'<iframe src="{page}" title="{section[1]}" loading="lazy" style="{look}"></iframe>'
    link = f'<p><a href="{page}">The page of this conversation</a></p>'
    return f"{section[0]}\n```{{raw}} html\n{shown}{link}\n```\n\n"


def _menu() -> str:
    """Build the menu from the lists of docs/README.md, with the same headings."""
    index = (_ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    menu = [_part("Documentation", ["docs/README"])]
    for part in index.split("\n**")[1:]:
        heading, _, listed = part.partition("**")
        menu.append(
            _part(heading, [f"docs/{name}" for name in re.findall(r"\]\(([\w/-]+)\.md\)", listed)])
        )
    return "\n".join([*menu, _part("The project", ["CONTRIBUTING", "CHANGELOG"])])


def _part(caption: str, pages: list[str]) -> str:
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])


def _documented(names: re.Match[str]) -> str:
    """Add the docstrings of the names on a line."""
    entries = "".join(map(_entry, re.findall(r"\w+", names[0])))
    return f"{names[0]}\n\n```{{eval-rst}}\n{entries}```"


def _entry(name: str) -> str:
    module = graphs if name in graphs.__all__ else tools
    found = getattr(module, name)
    kind = "class" if isinstance(found, type) else "function" if callable(found) else "data"
    inherited = "   :inherited-members:\n" if name in ("Result", "Session") else ""
    return f".. auto{kind}:: {module.__name__}.{name}\n{inherited}"


def _set_aside(
    app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]
) -> None:
    """Hide a field's docstring from napoleon, which reads the words before a colon as a type.

    Remove the list of fields from a model's docstring, because the fields follow it.
    """
    if isinstance(found, type) and issubclass(found, Data):
        lines[:] = [*own_doc(found).splitlines(), ""]
    if what == "attribute":
        _aside[name] = lines[:]
        lines.clear()


def _put_back(
    app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]
) -> None:
    if what == "attribute":
        lines[:] = _aside.pop(name)


def _plain_types(app: Sphinx, domain: str, kind: str, content: Element) -> None:
    """Remove types that contain pydantic's annotations."""
    for type_ in content.parent.findall(desc_annotation):
        if re.search(r"Annotated\[|\)", type_.astext()):
            type_.parent.remove(type_)


def _finish(app: Sphinx, failure: Exception | None) -> None:
    """Write the gallery's pages and the first page of the site, index.html."""
    if failure is None:
        # A library of the theme enables all log messages.
        logging.getLogger("duologue").setLevel(logging.WARNING)
        write_pages(app.outdir / _GALLERY)
        (app.outdir / "index.html").write_bytes((app.outdir / "README.html").read_bytes())


def setup(app: Sphinx) -> None:
    """Connect the functions of this module to the build."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _set_aside, priority=400)
    app.connect("autodoc-process-docstring", _put_back, priority=600)
    app.connect("object-description-transform", _plain_types)
    app.connect("build-finished", _finish)
