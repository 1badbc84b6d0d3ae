"""Code in messages: which fenced blocks can be run, and in which language. Pure functions."""

import ast
import re
from typing import Final, NamedTuple

from ...spec.sandbox import Language
from ...text.fences import fences

_LABELS: Final[dict[str, Language]] = {
    **dict.fromkeys(("python", "py", "python3", "py3", "ipython", "pycon"), "python"),
    **dict.fromkeys(("shell", "sh", "bash", "zsh", "console"), "shell"),
}

_COMMAND = re.compile(
    r"(?:\$ )?(?:apt|apt-get|awk|bash|cat|cd|chmod|cp|curl|cut|date|df|du|echo|env|export|find|git|"
    r"grep|head|kill|ls|make|mkdir|mv|node|npm|pip3?|printf|ps|pwd|python3?|rm|rmdir|sed|seq|sh|sleep|"
    r"sort|tail|tar|tee|test|touch|tr|uname|uniq|uv|wc|wget|which|xargs)"
    # What follows must not be read as Python: a sum, a comparison, an assignment.
    r"(?:\s+(?![=+*/%&|^<>]|-\s|in\b|is\b|if\b|and\b|or\b)|$)"
)
"""How a shell command begins that Python might read, too."""


class RunnableBlock(NamedTuple):
    """Fenced code of a message."""

    language: str
    """A `Language`, or the label of one that can't be run; empty where none can be made out."""
    code: str
    """What is run."""


def code_blocks(text: str) -> list[RunnableBlock]:
    """Find the fenced code of a message that is to be run (AutoGen)."""
    return _found(text, closed=True)


def open_blocks(text: str) -> list[RunnableBlock]:
    """Find the code of a message whose fence is not closed: it may be a part, and is not run."""
    return _found(text, closed=False)


def _found(text: str, *, closed: bool) -> list[RunnableBlock]:
    return [
        RunnableBlock(_language(fence.language, fence.content), fence.content)
        for fence in fences(text)[1]
        if fence.is_closed is closed and (fence.content.strip() or (fence.language and not closed))
    ]


def _language(label: str | None, code: str) -> str:
    if label is not None:
        return _LABELS.get(label, label)
    return inferred(code)


def inferred(code: str) -> str:
    """Make out the language of code that has no label."""
    first = code.lstrip().splitlines()[0]
    if first.startswith("#!"):
        return "python" if "python" in first else "shell"
    if _COMMAND.match(first):
        return "shell"
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return "python"
