"""Messages on a terminal: plain while they stream, then as Markdown block by block.

A block is the text between blank lines, or fenced code. The words of a block are written as they
arrive. When a block is complete and has any markup, it is erased and written again as Markdown. So
each part of the screen changes at most once.
"""

from rich.console import Console
from rich.segment import SegmentLines

from ...common.sanitize import clean
from ...text.structures import MARKS
from .console import Flow, erase_lines


class Reply:
    """A writer that prints a message on a terminal, as the message arrives or whole."""

    def __init__(self, console: Console, *, whole: bool = False) -> None:
        self.lines = 0
        """Number of finished lines."""
        self._console = console
        self._is_whole = whole
        self._held = ""  # the possible beginning of a line break or a fence
        self._line = ""  # the written part of the line
        self._block = ""
        self._flow: Flow | None = None
        self._fence = ""
        self._gap = 0

    def write(self, text: str) -> None:
        """Write a piece of the text."""
        text = self._held + text
        back = len(text) - len(text.removesuffix("\r"))
        self._held = text[len(text) - back :]
        for line in clean(text[: len(text) - back]).splitlines(keepends=True):
            if line.endswith("\n"):
                self._ends(line)
            elif not self._line and _may_be_a_fence(line):
                self._held = line + self._held
            else:
                self._put(line)
                self._line += line

    def end(self) -> None:
        """Write the rest of the text, and end the line."""
        held, self._held = self._held, ""
        if held or self._line:
            self._ends(clean(held) + "\n")
        self._close()

    def _ends(self, rest: str) -> None:
        """Process the end of a line."""
        line, self._line = (self._line + rest).strip(), ""
        if self._fence:
            self._put(rest)
            if line.startswith(self._fence) and not line.strip(self._fence[0]):
                self._close()
        elif mark := _opens(line):
            self._close()
            self._fence = mark
            self._put(rest)
        elif line:
            self._put(rest)
        else:
            self._close()
            self._gap += 1

    def _put(self, text: str) -> None:
        if self._flow is None:
            if self.lines:
                # There may be no blank line before or after code.
                gap = max(1, self._gap)
                self._console.print("\n" * gap, end="")
                self.lines += gap
            self._gap = 0
            self._flow = Flow(self._console)
        self._block += text
        if not self._is_whole:
            self._flow.write(text)

    def _close(self) -> None:
        """End the current block, and write it as Markdown if it has any markup."""
        flow, block, self._flow, self._block, self._fence = self._flow, self._block, None, "", ""
        if flow is None:
            return
        # Imported late: rich's Markdown and Pygments are needed only on a terminal.
        from .markdown import rendered

        lines = rendered(block, self._console)
        if self._is_whole and lines is None:
            flow.write(block)
        # In one write, so that the screen never shows the erased block.
        with self._console:
            flow.end()
            if lines is None or not erase_lines(self._console, flow.lines):
                self.lines += flow.lines
                return
            self._console.print(SegmentLines(lines, new_lines=True), end="")
            self.lines += len(lines)


def _may_be_a_fence(line: str) -> bool:
    """Return whether the beginning of a line may become the opening of a fence."""
    begun = line.lstrip()
    return any(mark.startswith(begun) or begun.startswith(mark) for mark in MARKS)


def _opens(line: str) -> str:
    """Return the mark of a line that opens a fence, or an empty text."""
    for mark in MARKS:
        if line.startswith(mark):
            rest = line.lstrip(mark[0])
            return "" if "`" in rest else line[: len(line) - len(rest)]
    return ""
