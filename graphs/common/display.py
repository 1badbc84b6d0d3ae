"""Display of results and specs in notebooks and consoles."""

from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, SupportsIndex, TypeVar, overload

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.tool import ToolCall
from pydantic import NonNegativeInt

from .data import Data
from .sanitize import clean, dump_exact_json, escape_invisible, escape_markdown

if TYPE_CHECKING:
    from IPython.lib.pretty import RepresentationPrinter
    from jinja2 import Template
    from rich.console import RenderableType


TEMPLATES: Final = Path(__file__).parent / "templates"
"""The folder of the templates and of the style for notebooks."""


class Panel(Data):
    """The content of a display.

    Its texts may come from anyone, so every output format escapes them.
    """

    title: str = ""
    """A title of one line."""
    tag: str = ""
    """The name of the displayed value in code, such as the reason of an end."""
    notes: tuple[str, ...] = ()
    """Further notes, one line each."""
    head: tuple[str, ...] = ()
    """The headings of the columns."""
    rows: tuple[tuple[str, ...], ...] = ()
    """The rows of the table."""
    left_out: NonNegativeInt = 0
    """Number of earlier rows that are not shown."""

    def html(self) -> str:
        """Return the panel as HTML that is readable without styles, too."""
        return _template().render(panel=self)

    def markdown(self) -> str:
        """Return the panel as Markdown."""
        tag = f" `{self.tag}`" if self.tag else ""
        parts = [f"**{_plain(self.title)}**{tag}"] if self.title else []
        parts += map(_plain, self._note_lines())
        if self.rows:
            lines = [self.head, ("---",) * len(self.head)]
            for row in self.rows:
                texts = (clean(text).splitlines() for text in row)
                lines.append(tuple("<br>".join(map(_plain, text)) for text in texts))
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        return "\n\n".join(parts) + "\n"

    def renderable(self) -> "RenderableType":
        """Return the panel in a form that rich can print."""
        # Imported here, because only a console needs rich.
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        tag = f"  {self.tag}" if self.tag else ""
        parts: list[RenderableType] = []
        if self.title:
            parts.append(Text.assemble((clean(self.title), "bold"), (tag, "dim")))
        parts += [Text(clean(one), "dim") for one in self._note_lines()]
        if self.rows:
            table = Table(
                *self.head, box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(self.head)
            )
            for row in self.rows:
                table.add_row(*(Text(clean(cell)) for cell in row))
            parts.append(table)
        return Group(*parts)

    def text(self) -> str:
        """Return the panel as text of at most 80 columns."""
        from rich.console import Console

        # Within a notebook's kernel, rich would also print to the notebook.
        console = Console(width=80, file=StringIO(), color_system=None, force_jupyter=False)
        with console.capture() as captured:
            console.print(self.renderable())
        return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip()

    def _note_lines(self) -> Iterator[str]:
        yield from self.notes
        if self.left_out:
            yield f"{self.left_out:,} earlier messages are not shown."


class Shown:
    """An object that is displayed as a panel."""

    def _panel(self) -> Panel:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._panel().html()

    def _repr_markdown_(self) -> str:
        return self._panel().markdown()

    def _repr_pretty_(self, printer: "RepresentationPrinter", cycle: bool) -> None:
        # Within a list or a dict, the plain representation of the object is shown.
        alone = len(printer.stack) == 1
        printer.text(self._panel().text() if alone else repr(self))  # type: ignore[no-untyped-call]

    def __rich__(self) -> "RenderableType":
        return self._panel().renderable()


def _plain(text: str) -> str:
    # Notebooks read text between dollar signs as mathematics.
    return escape_markdown(clean(text)).replace("$", r"\$")


@cache
def _template() -> "Template":
    # Imported here, because only a notebook needs jinja2.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["shown"] = clean
    return templates.get_template("panel.html")


MOST: Final = 60
"""Maximum number of rows shown: the newest ones."""


T = TypeVar("T")


class ShownList(Shown, list[T]):
    """A list that is displayed as a panel. Slices of the list are displayed as panels, too."""

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> T: ...

    @overload
    def __getitem__(self, place: slice, /) -> Self: ...

    def __getitem__(self, place: SupportsIndex | slice, /) -> "T | Self":
        found = super().__getitem__(place)
        return type(self)(found) if isinstance(place, slice) else found  # type: ignore[arg-type,return-value]


class Messages(ShownList[BaseMessage]):
    """Messages as a speaker sees them."""

    def _panel(self) -> Panel:
        rows = tuple(map(describe_message, self[-MOST:]))
        return Panel(head=("Role", "Text"), rows=rows, left_out=len(self) - len(rows))


_ROLES: Final = {"ai": "assistant", "human": "user"}


def describe_message(message: BaseMessage) -> tuple[str, str]:
    """Return the role of a message of a prompt, and its text with its tool calls."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    said = [message.text] if message.text else []
    return _ROLES.get(message.type, message.type), "\n".join([*said, *map(_call, calls)])


def _call(call: ToolCall) -> str:
    return f"calls {escape_invisible(call['name'])} with {dump_exact_json(call['args'])}"
