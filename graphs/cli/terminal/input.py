"""Lines that a person enters, from a terminal, a pipe or a file.

`graphs.cli.ask` asks the questions and interprets the lines.
"""

import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType

from rich.console import Console
from rich.text import Text

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
    def typed(self) -> bool:
        """Return whether a person types the lines; otherwise they come from a pipe or a file."""
        return sys.stdin is not None and sys.stdin.isatty()

    @property
    def echoed(self) -> bool:
        """Return whether stdin and stdout are terminals, so that the output shows typed text."""
        return self.typed and sys.stdout is not None and sys.stdout.isatty()

    @property
    def console(self) -> Console:
        """The console for questions: stderr if stdout is redirected."""
        return self._out if self.echoed else self._err

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
                return self._typed(prompt, prefilled, keep) if self.echoed else self._given(prompt)
            except EOFError:
                self._ended = True
                if self.typed:
                    # The cursor is after the prompt.
                    self.console.print()
                raise

    def _typed(self, prompt: Text, prefilled: str, keep: bool) -> str:
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

    def _given(self, prompt: Text) -> str:
        if self.typed:
            self._err.print(prompt, end="", soft_wrap=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")


@cache
def _line_editing() -> ModuleType | None:
    """Return the readline module with its automatic history off, or None if there is none."""
    try:
        import readline
    except ImportError:  # as on Windows, whose console edits lines
        return None
    readline.set_auto_history(False)
    return readline
