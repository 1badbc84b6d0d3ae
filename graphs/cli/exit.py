"""The exit codes of the command line, and its one-line errors."""

import os
import sys
from enum import IntEnum

from rich.console import Console
from rich.text import Text

from ..common.errors import (
    AnswerError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
    StoreError,
)
from .terminal.text import one_line


class ExitCode(IntEnum):
    """What the command tells the shell."""

    DONE = 0
    """The conversation ended by its rules, or the command did what it was asked for."""
    FAILED = 1
    """Anything unforeseen, such as output that can't be written."""
    BAD_INPUT = 2
    """The arguments, the conversation, its file or a setting are not valid."""
    MODEL = 3
    """A model can't be had or did not answer."""
    SESSION = 4
    """A session, or the place where sessions are kept, can't be used."""
    WAITING = 5
    """The session waits for a person's answer."""
    INTERRUPTED = 130
    """Ctrl-C."""
    CLOSED_PIPE = 141
    """Whoever read the output went away."""
    TERMINATED = 143
    """SIGTERM."""


_CODES: dict[type[DuologueError], ExitCode] = {
    SpecError: ExitCode.BAD_INPUT,
    AnswerError: ExitCode.BAD_INPUT,
    ModelError: ExitCode.MODEL,
    SessionError: ExitCode.SESSION,
    StoreError: ExitCode.SESSION,
}


def explain(error: Exception) -> ExitCode:
    """Tell the user what went wrong, on one line of stderr."""
    if isinstance(error, BrokenPipeError):
        # Python writes out its buffer once more at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return ExitCode.CLOSED_PIPE
    text = Text.assemble(("Error:", "bold red"), " ", one_line(str(error)))
    Console(stderr=True).print(text, soft_wrap=True)
    codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(codes, ExitCode.FAILED)
