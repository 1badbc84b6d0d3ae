"""The exit codes of the command line, and its one-line errors."""

import os
import sys
from enum import IntEnum

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
from .terminal.console import on_screen, one_line, stderr


class ExitCode(IntEnum):
    """What the command tells the shell."""

    DONE = 0, "ended by its rules"
    FAILED = 1, "an unexpected error"
    BAD_INPUT = 2, "bad input: arguments, a conversation, its file, a setting"
    MODEL = 3, "a model can't be had or did not answer"
    SESSION = 4, "a session, or the place where sessions are kept, can't be used"
    WAITING = 5, "the session waits for a person's answer"
    UNFINISHED = 6, "a batch has cells that failed, wait for a person, or were held back"
    INTERRUPTED = 130, "interrupted (Ctrl-C); the session can be resumed"
    CLOSED_PIPE = 141, "the reader of the output closed the pipe; the session can be resumed"
    TERMINATED = 143, "terminated (SIGTERM); the session can be resumed"

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> "ExitCode":
        """Make a member of its number and what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


EXIT_CODES = "\b\nExit codes:\n" + "".join(f"  {code:<4} {code.meaning}\n" for code in ExitCode)
"""What help says of them."""


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
