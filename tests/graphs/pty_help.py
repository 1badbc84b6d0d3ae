"""A terminal of 80 columns in which a test runs the command, as a person does."""

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
import time
from contextlib import suppress

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
# The terminal becomes its own, so that Ctrl-C is a signal to it.
_COMMAND = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from duologue.graphs.cli.app import main
main()
"""
# A line that was written over, such as one with a spinner.
_ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
_PATIENCE = 60  # seconds


class Terminal:
    """Runs the command in a terminal of its own.

    Args:
        *arguments: Its arguments.
        stdout: Where its output goes, if not to the terminal.
    """

    def __init__(self, *arguments: str, stdout: int | None = None) -> None:
        self._screen, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments],
            start_new_session=True,
            stdin=end,
            stdout=end if stdout is None else stdout,
            stderr=end,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )
        os.close(end)
        self._seen = b""
        self._read = 0

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def sees(self, text: str) -> None:
        """Wait until a text is on the screen, behind what was waited for before."""
        until = time.monotonic() + _PATIENCE
        while (place := self._seen.find(text.encode(), self._read)) < 0:
            if time.monotonic() > until or not self._more():
                raise AssertionError(f"{text!r} is not on the screen: {self._seen.decode()}")
        self._read = place + len(text.encode())

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._screen, keys.encode())

    def sends(self, sent: str | signal.Signals) -> None:
        """Press keys, or send a signal."""
        if isinstance(sent, str):
            self.types(sent)
        else:
            self.process.send_signal(sent)

    def insists(self, sent: str | signal.Signals) -> None:
        """Press keys, or send a signal, until the command has ended.

        A signal that comes just before the terminal's own waiting begins is seen at the next key.
        """
        for _ in range(_PATIENCE):
            self.sends(sent)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
                return

    def ends(self) -> tuple[int, str]:
        """Wait for its end; give the exit code and the screen's text without colours."""
        while self._more():
            pass
        text = _ERASED.sub("", self._seen.decode())
        text = _ESCAPES.sub("", text).replace("\r", "")
        return self.process.wait(_PATIENCE), text

    def _more(self) -> bool:
        if not select.select([self._screen], [], [], _PATIENCE)[0]:
            return False
        try:
            found = os.read(self._screen, 65536)
        except OSError:  # the last one who had it is gone
            return False
        self._seen += found
        return bool(found)
