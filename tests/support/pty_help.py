"""A terminal of 80 columns in which a test runs the command like a person."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from unittest.mock import patch

from duologue.graphs.cli.terminal import console
from support.cli_help import main

from .cli_help import main_thread_gets, signals_kept

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
# Make the terminal the controlling one, so that Ctrl-C sends a signal to the process.
_COMMAND = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from duologue.graphs.cli.app import main
main()
"""
# A line that was overwritten, for example a spinner.
_ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
_PATIENCE = 60  # seconds
_PRESSES, _PAUSE = 20, 3.0  # of Ctrl-C, and the seconds after each
WIDTH = 80
_SIZE = {"TERM": "xterm", "COLUMNS": str(WIDTH), "LINES": "24"}


class Terminal:
    """The screen and the keys of a terminal."""

    def __init__(self) -> None:
        self._screen, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        self._seen = b""
        self._read = 0

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._screen)

    def sees(self, text: str) -> None:
        """Wait until a text appears on the screen, after the text of the previous wait."""
        until = time.monotonic() + _PATIENCE
        while (place := self._seen.find(text.encode(), self._read)) < 0:
            if time.monotonic() > until or not self.reads(_PATIENCE):
                raise AssertionError(f"{text!r} is not on the screen: {self._seen.decode()}")
        self._read = place + len(text.encode())

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._screen, keys.encode())

    def reads(self, seconds: float) -> bool:
        """Wait at most this long for output; return whether there was some."""
        if not select.select([self._screen], [], [], seconds)[0]:
            return False
        try:
            found = os.read(self._screen, 65536)
        except OSError:  # the last process with the terminal has ended
            return False
        self._seen += found
        return bool(found)

    def interrupts(self, process: "subprocess.Popen[bytes]") -> None:
        """Press Ctrl-C until a process ends, and read its last output.

        If a press comes before the wait for a line, it takes effect at the next key.
        """
        left = _PRESSES
        while process.poll() is None and left:
            left -= 1
            self.types("\x03")
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PAUSE)
        if not left:
            # The process prints where its threads are.
            process.send_signal(signal.SIGABRT)
            process.wait()
        while self.reads(0):
            pass
        assert left, self.text

    @property
    def rows(self) -> list[str]:
        """Return the rows of the screen after all overwriting, without empty rows at the end.

        Text wider than the screen continues in the next row.
        """
        rows, row, column = [""], 0, 0
        for sign in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]", self._seen.decode()):
            if (moved := re.fullmatch(r"\x1b\[(\d*)([ABK])", sign)) is not None:
                count = int(moved[1] or 1)
                if moved[2] == "K":
                    rows[row] = ""
                else:
                    row = max(0, row + (count if moved[2] == "B" else -count))
            elif sign == "\r":
                column = 0
            elif sign == "\n" or (len(sign) == 1 and column == WIDTH):
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            if len(sign) == 1 and sign not in "\r\n":
                rows[row] = rows[row][:column].ljust(column) + sign + rows[row][column + 1 :]
                column += 1
        return "\n".join(one.rstrip() for one in rows).rstrip("\n").split("\n")

    @property
    def text(self) -> str:
        """Return the text of the screen without colours."""
        text = _ERASED.sub("", self._seen.decode())
        return _ESCAPES.sub("", text).replace("\r", "")


@contextmanager
def in_a_process(*arguments: str) -> Iterator[tuple[Terminal, "subprocess.Popen[bytes]"]]:
    """Run the command in a separate process whose input lines a person can edit."""
    with Terminal() as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments],
            start_new_session=True,
            stdin=terminal.end,
            stdout=terminal.end,
            stderr=terminal.end,
            env={**os.environ, **_SIZE, "PYTHONFAULTHANDLER": "1"},
        )
        os.close(terminal.end)
        try:
            yield terminal, process
        finally:
            process.kill()
            process.wait()


def at_terminal(
    *arguments: str,
    person: Callable[[Terminal], None],
    stdout: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run the command in this process and thread, and a person in another thread.

    Args:
        *arguments: Arguments of the command.
        person: Types and reads like a person.
        stdout: Destination of the command's output. The terminal if None.
        environ: Variables that override the terminal's environment.

    Returns:
        The exit code, and the screen's text without colours.
    """
    failed: list[BaseException] = []
    has_ended = threading.Event()

    def play(terminal: Terminal) -> None:
        try:
            person(terminal)
        except BaseException as error:
            failed.append(error)
            # End the input, so that the command does not wait for the person.
            terminal.types("\n\x04")
        while not has_ended.is_set():
            terminal.reads(0.05)

    with Terminal() as terminal, signals_kept():
        playing = threading.Thread(target=play, args=(terminal,))
        playing.start()
        try:
            code = _run(
                arguments, terminal.end, terminal.end if stdout is None else stdout, environ or {}
            )
        finally:
            has_ended.set()
            playing.join()
            os.close(terminal.end)
        while terminal.reads(0):
            pass
    if failed:
        raise failed[0]
    return code, terminal.text


def _run(arguments: tuple[str, ...], end: int, stdout: int, environ: Mapping[str, str]) -> int:
    with (
        open(end, closefd=False) as typed,  # a terminal has no path
        open(stdout, "w", closefd=False) as out,
        open(end, "w", closefd=False) as err,
        patch.multiple(sys, stdin=typed, stdout=out, stderr=err, argv=["duologue", *arguments]),
        patch.dict(os.environ, {**_SIZE, **environ}),
        # Otherwise it would read from the terminal of this process.
        patch.object(console, "_line_editing", lambda: None),
    ):
        try:
            main()
        except SystemExit as error:
            return int(error.code or 0)
    return 0


def leaves(terminal: Terminal, sent: str | signal.Signals) -> None:
    """Press keys while the command reads a line, or send it a signal.

    A signal that arrives just before the read has an effect only at the next key.
    """
    if isinstance(sent, str):
        terminal.types(sent)
        return
    time.sleep(0.1)
    main_thread_gets(sent)
    if not terminal.reads(5):
        terminal.types("\n")
