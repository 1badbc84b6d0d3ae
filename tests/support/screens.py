"""A console that writes to memory but behaves like a terminal. No tests here."""

import io

from rich.console import Console


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(width: int = 40) -> Console:
    return Console(
        file=Screen(), force_terminal=True, width=width, height=24, color_system=None, _environ={}
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
