"""The one-line errors of the command line, each with its exit code."""

import os
import sys

from rich.text import Text

from ..common.errors import (
    AnswerError,
    BatchError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
    StoreError,
)
from .exit_code import ExitCode
from .terminal.console import on_screen, stderr
from .terminal.text import one_line

_CODES: dict[type[DuologueError], ExitCode] = {
    SpecError: ExitCode.BAD_INPUT,
    AnswerError: ExitCode.BAD_INPUT,
    ModelError: ExitCode.MODEL,
    BatchError: ExitCode.SESSION,
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
    console = stderr()
    console.print(text, soft_wrap=not on_screen(console))
    codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(codes, ExitCode.FAILED)
