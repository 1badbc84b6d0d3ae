"""Where the command line prints: results to stdout, notices and errors to stderr."""

import sys
from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.text import Text

from ...common.sanitize import clean, escape_invisible_json
from .text import Flow, one_line


class _Console(Console):
    """A console to which no text brings control or direction characters.

    Writers fit text to columns, by `one_line` and `cell`; what one forgets is escaped here.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render it, with all of its text escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else clean(text), style, control)

    def on_broken_pipe(self) -> NoReturn:
        # The run has to be cancelled, not the process ended on the spot.
        raise BrokenPipeError


def stdout() -> Console:
    """Give the console for results; rich's markup is off."""
    return _Console(markup=False, highlight=False, emoji=False)


def stderr() -> Console:
    """Give the console for notices and errors."""
    return _Console(stderr=True, markup=False, highlight=False, emoji=False)


def on_screen(console: Console) -> bool:
    """Whether it is a real terminal, on which the cursor can be moved and lines are cut to fit."""
    # Colours can be forced into a pipe or a log, where moving the cursor makes no sense.
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def plain(console: Console, text: str, style: StyleType = "") -> None:
    """Print text wrapped by the terminal alone, so that it can be copied as it is."""
    console.print(Text(text, style), soft_wrap=True)


def json_line(text: str) -> None:
    """Print JSON on one line, at once."""
    sys.stdout.write(escape_invisible_json(text) + "\n")
    sys.stdout.flush()


def prose(console: Console, text: str, style: StyleType = "") -> None:
    """Print a sentence, wrapped between words on a terminal."""
    console.print(Text(one_line(text), style), soft_wrap=not on_screen(console))


def whole(console: Console, text: str, style: StyleType = "") -> None:
    """Print a whole text, wrapped between words on a terminal."""
    if not on_screen(console):
        plain(console, clean(text).strip("\n"), style)
        return
    flow = Flow(console, style)
    flow.write(text)
    flow.end()
