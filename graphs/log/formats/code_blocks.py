"""Code in messages: which fenced blocks can be run, and in which language. Pure functions."""

import ast
import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, TypeAlias

from ...speakers.speaker import Speaker
from ...spec.conversation import Conversation
from ...spec.sandbox import Language
from ...text.fences import Fence, fences

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


Languages: TypeAlias = Collection[Language] | None
"""The languages that a fence must be marked with. None: any fence holds code."""


def languages_run(conversation: Conversation, speaker: Speaker) -> Languages:
    """Give the languages whose fences a speaker runs."""
    is_marked = speaker.code is not None and speaker.code.fences == "marked"
    return conversation.sandbox.languages if is_marked else None


def code_blocks(text: str, languages: Languages = None) -> list[RunnableBlock]:
    """Find the fenced code of a message that is to be run (AutoGen)."""
    return [_block(fence) for fence in _with_code(text, languages) if fence.is_closed]


def open_blocks(text: str, languages: Languages = None) -> list[RunnableBlock]:
    """Find the code of a message whose fence is not closed: it may be a part, and is not run."""
    return [_block(fence) for fence in _with_code(text, languages) if not fence.is_closed]


def holds_code(text: str, languages: Languages = None) -> bool:
    """Whether a message holds fenced code, whole or not."""
    return any(True for _ in _with_code(text, languages))


def _with_code(text: str, languages: Languages) -> Iterator[Fence]:
    for fence in fences(text)[1]:
        is_begun = fence.language is not None and not fence.is_closed
        label = _LABELS.get(fence.language or "")
        is_code = languages is None or label in languages
        if is_code and (fence.content.strip() or is_begun):
            yield fence


def _block(fence: Fence) -> RunnableBlock:
    return RunnableBlock(_language(fence.language, fence.content), fence.content)


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
