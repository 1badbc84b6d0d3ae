"""CAMEL's two ways to find a finished task.

`check` is the condition in `RolePlayingWorker`, a part of a method that calls models. It is read
from the library's source, and the dialogue's word takes the place of CAMEL_TASK_DONE. `words` is
`ResponseWordsTerminator`, by which an agent of CAMEL ends.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import camel
from camel.messages import BaseMessage
from camel.terminators import ResponseWordsTerminator
from camel.types import RoleType

Rule = Callable[[dict[str, Any]], str | None]

DONE = "CAMEL_TASK_DONE"
WORKER = "societies/workforce/role_playing_worker.py"


def begin(variant: str, header: dict[str, Any]) -> Rule:
    """Return the rule for a dialogue."""
    words = [
        (DONE if DONE in word["token"] else word["token"], word["by"]) for word in header["words"]
    ]
    holds = _ends_by_terminator(words) if variant == "words" else _ends_by_check

    def stops(turn: dict[str, Any]) -> str | None:
        for token, by in words:
            if by in (None, turn["speaker"]) and holds(token, turn):
                return f"{token} in the message"
        return None

    return stops


def _ends_by_terminator(
    words: list[tuple[str, str | None]],
) -> Callable[[str, dict[str, Any]], bool]:
    terminators = {token: ResponseWordsTerminator({token: 1}) for token, _ in words}

    def holds(token: str, turn: dict[str, Any]) -> bool:
        message = BaseMessage(turn["speaker"], RoleType.DEFAULT, None, turn["text"])
        return bool(terminators[token].is_terminated([message])[0])

    return holds


def _ends_by_check(token: str, turn: dict[str, Any]) -> bool:
    response = SimpleNamespace(msg=SimpleNamespace(content=turn["text"]))
    return bool(eval(_check(token), {"user_response": response}))  # noqa: S307


_CHECKS: dict[str, CodeType] = {}


def _check(token: str) -> CodeType:
    """Return the condition in the library's source with this word, compiled."""
    if token not in _CHECKS:
        # Not imported: the module needs optional dependencies in certain versions.
        source = Path(camel.__file__).parent / WORKER
        tree = ast.parse(source.read_text(encoding="utf-8"))
        (found,) = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Constant)
            and node.left.value == DONE
        )
        found.left = ast.copy_location(ast.Constant(token), found.left)
        _CHECKS[token] = compile(ast.Expression(found), WORKER, "eval")
    return _CHECKS[token]
