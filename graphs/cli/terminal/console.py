"""The terminal: results to stdout, notices to stderr, text fitted to the width, and typed lines.

Rich's markup is off, so that no text of a model or a user is read as markup.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import NoReturn

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.style import StyleType
from rich.text import Text

from ...common.sanitize import clean, escape_invisible, escape_invisible_json

_ESCAPES = re.compile(r"(?:\x1b\[[0-9;]*m)+")


class Lines:
    """A reader of lines, which shows a prompt if a person types them."""

    def __init__(
        self, out: Console, err: Console, listening: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._out = out
        self._err = err
        self._listening = listening
        self._ended = False

    @property
    def is_typed(self) -> bool:
        """Return whether a person types the lines; otherwise they come from a pipe or a file."""
        return sys.stdin is not None and sys.stdin.isatty()

    @property
    def is_echoed(self) -> bool:
        """Return whether stdin and stdout are terminals, so that the output shows typed text."""
        return self.is_typed and sys.stdout is not None and sys.stdout.isatty()

    @property
    def console(self) -> Console:
        """The console for questions: stderr if stdout is redirected."""
        return self._out if self.is_echoed else self._err

    def read(self, prompt: Text, prefilled: str = "", *, keep: bool = False) -> str:
        """Read a line, and block until it has been entered.

        Args:
            prompt: The text in front of the line.
            prefilled: A text that the person can edit. Used only on a terminal.
            keep: Whether the arrow keys bring the line back at later prompts of this command.

        Raises:
            EOFError: The input has ended.
        """
        if self._ended or sys.stdin is None:
            raise EOFError
        with self._listening():
            try:
                if self.is_echoed:
                    return self._read_typed(prompt, prefilled, keep)
                if self.is_typed:
                    self._err.print(prompt, end="", soft_wrap=True)
                if line := sys.stdin.readline():
                    return line.removesuffix("\n")
                raise EOFError
            except EOFError:
                self._ended = True
                if self.is_typed:
                    # The cursor is after the prompt.
                    self.console.print()
                raise

    def _read_typed(self, prompt: Text, prefilled: str, keep: bool) -> str:
        editing = _line_editing()
        with self._out.capture() as captured:
            self._out.print(prompt, end="", soft_wrap=True)
        shown = captured.get()
        if editing is None:
            return input(shown)
        if prefilled:
            editing.set_startup_hook(lambda: editing.insert_text(prefilled))
        try:
            # Escape sequences are marked as having no width, or the cursor is misplaced in long
            # lines.
            line = input(_ESCAPES.sub("\x01\\g<0>\x02", shown))
        finally:
            editing.set_startup_hook(None)
        if keep and line.strip():
            editing.add_history(line)
        return line


@cache
def _line_editing() -> ModuleType | None:
    """Return the readline module with its automatic history off, or None if there is none."""
    try:
        import readline
    except ImportError:  # as on Windows, whose console edits lines
        return None
    readline.set_auto_history(False)
    return readline


_CELL = 128
"""Maximum columns of a cell. The longest id of a session fits."""


def one_line(text: str, width: int | None = None) -> str:
    """Return prose on one line, cut to a width in columns if it is given."""
    line = " ".join(clean(text).split())
    if width is None or cell_len(line) <= width:
        return line
    return set_cell_size(line, max(0, width - 1)).rstrip() + "…"


def cut_text(text: str, most: int) -> str:
    """Return a text cut after a number of characters, with its full length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def cell(text: str) -> str:
    """Return an id, a name or a reason for a column. Different texts never look the same."""
    shown = escape_invisible(text)
    return shown if cell_len(shown) <= _CELL else one_line(shown, _CELL)


def show_count(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an s unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def pad(text: str, width: int) -> str:
    """Return a cell padded with spaces to a width."""
    return text + " " * (width - cell_len(text))


def align_right(left: str, parts: Sequence[str], width: int) -> str:
    """Return a line with a text on the left and as many parts of a status on the right as fit."""
    for count in range(len(parts), 0, -1):
        right = " · ".join(parts[:count])
        gap = width - cell_len(left) - cell_len(right)
        if gap > 1:
            return f"{left}{' ' * gap}{right}"
    return left


class Flow:
    """A writer that prints a text on a terminal as the text arrives, wrapped between words.

    White space is written only when a word follows, so that no line and no text ends with it.
    """

    def __init__(self, console: Console, style: StyleType = "") -> None:
        self.lines = 0
        """Number of finished lines."""
        self._console = console
        self._style = style
        self._word = ""
        self._gap = ""
        self._return = ""
        self._column = 0
        self._begun = False

    def write(self, text: str) -> None:
        """Write a piece of the text."""
        text = self._return + text
        # A line break may be split between two pieces.
        self._return = "\r" if text.endswith("\r") else ""
        for character in clean(text.removesuffix(self._return)):
            if character.isspace():
                self._flush()
                self._gap += character
            elif cell_len(character) > 1:
                # Scripts with wide characters have no spaces: a line may break before each
                # character.
                self._flush()
                self._word = character
                self._flush()
            else:
                self._word += character

    def end(self) -> None:
        """Write the rest of the text, and a line break."""
        self._word += clean(self._return)
        self._flush()
        if self._begun:
            self._print("\n")
            self.lines += 1

    def _flush(self) -> None:
        word, gap = self._word, self._gap.expandtabs(4)
        if not word:
            return
        self._word = self._gap = ""
        indent = gap.rpartition("\n")[2]
        ends = gap.count("\n") if self._begun else 0
        if ends or not self._begun:
            self._column = 0
        elif self._column + cell_len(indent + word) > self._console.width:
            ends, indent, self._column = 1, "", 0
        self._begun = True
        self.lines += ends
        self._put("\n" * ends, indent + word)

    def _put(self, ends: str, text: str) -> None:
        width = self._console.width
        # A word longer than a line is cut, as a terminal would do.
        while self._column + cell_len(text) > width:
            room = _count_fitting(text, width - self._column)
            ends, text = ends + text[:room] + "\n", text[room:]
            self._column = 0
            self.lines += 1
        self._column += cell_len(text)
        self._print(ends + text)

    def _print(self, text: str) -> None:
        self._console.print(Text(text, self._style), end="", soft_wrap=True)


def _count_fitting(text: str, width: int) -> int:
    """Return the number of characters that fit into a width, at least one."""
    room = 1
    while room < len(text) and cell_len(text[: room + 1]) <= width:
        room += 1
    return room


def erase_lines(console: Console, count: int) -> bool:
    """Erase the last lines of the screen, and return whether that was possible."""
    if count >= console.height:
        return False
    up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * count
    console.control(Control(*up))
    return True


class _Console(Console):
    """A console that escapes control and direction characters in all text.

    Callers escape their text by `one_line` and `cell`; this is the second line of defence.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, with their text escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else clean(text), style, control)

    def on_broken_pipe(self) -> NoReturn:
        # Rich would end the process; the run must be cancelled instead.
        raise BrokenPipeError


def stdout() -> Console:
    """Return the console for results."""
    return _Console(markup=False, highlight=False, emoji=False)


def stderr() -> Console:
    """Return the console for notices and errors."""
    return _Console(stderr=True, markup=False, highlight=False, emoji=False)


def on_screen(console: Console) -> bool:
    """Return whether a console is a real terminal: the cursor moves, and lines are cut to fit."""
    # Colours can be forced in a pipe or a log, where moving the cursor makes no sense.
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def plain(console: Console, text: str, style: StyleType = "") -> None:
    """Print text that only the terminal wraps, so that it can be copied unchanged."""
    console.print(Text(text, style), soft_wrap=True)


def json_line(text: str) -> None:
    """Print JSON on one line, and flush it."""
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
