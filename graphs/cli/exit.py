"""The exit codes of the command line, and its one-line errors."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from enum import IntEnum

import typer
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
    """The exit codes, each with its meaning."""

    DONE = 0, "the conversation ended under its rules, or the command succeeded"
    FAILED = 1, "an unexpected error, or a simulation failed"
    BAD_INPUT = 2, "bad input: an argument, a conversation, its file or a setting"
    MODEL = 3, "a model is not available or did not answer"
    SESSION = 4, "a session or its store can't be used"
    WAITING = 5, "the session waits for a person's answer"
    UNFINISHED = 6, "cells of a batch failed, wait for a person, or were paused"
    INCONCLUSIVE = 7, "no simulation failed, but one neither passed nor failed"
    INTERRUPTED = 130, "interrupted (Ctrl-C); the session can be resumed"
    CLOSED_PIPE = 141, "the reader of the output closed the pipe; the session can be resumed"
    TERMINATED = 143, "terminated (SIGTERM); the session can be resumed"

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> "ExitCode":
        """Return a member with its number and its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


EXIT_CODES = "\b\nExit codes:\n" + "".join(f"  {code:<4} {code.meaning}\n" for code in ExitCode)
"""The exit codes, as the help shows them."""


_CODES: dict[type[DuologueError], ExitCode] = {
    SpecError: ExitCode.BAD_INPUT,
    AnswerError: ExitCode.BAD_INPUT,
    ModelError: ExitCode.MODEL,
    BatchError: ExitCode.SESSION,
    SessionError: ExitCode.SESSION,
    StoreError: ExitCode.SESSION,
}


def run_to_exit(command: Coroutine[None, None, ExitCode]) -> None:
    """Run a command in an event loop, and exit with its code unless it is done."""
    code = asyncio.run(command)
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


def explain(error: Exception) -> ExitCode:
    """Print an error on one line of stderr, and return its exit code."""
    if isinstance(error, BrokenPipeError):
        # Python flushes stdout again at exit, which must not fail.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return ExitCode.CLOSED_PIPE
    text = Text.assemble(("Error:", "bold red"), " ", one_line(str(error)))
    console = stderr()
    console.print(text, soft_wrap=not on_screen(console))
    codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(codes, ExitCode.FAILED)
