"""Serves the stop rule of another library over JSON lines, in an environment with that library.

Usage: `python serve.py MODULE:VARIANT DISTRIBUTION`. The first line of the output contains the
version. After that each line of the input has a line of output: `{"begin": …}` is answered by
`{"applies": …}`, and `{"turn": …}` by `{"reason": …}`. Only the standard library is imported here.
"""

import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Header = dict[str, Any]
"""What is known before a dialogue: speakers, words, tools, and the order of the speakers."""
Turn = dict[str, Any]
"""A turn: speaker, text and calls."""
Rule = Callable[[Turn], str | None]
"""A rule for one dialogue. It is called with each turn, in order."""


def main() -> None:
    """Answer each line of the input."""
    # Libraries print when they are imported; their lines go to the error output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path.insert(0, str(Path(__file__).parent))
    module, _, variant = sys.argv[1].partition(":")
    begin = importlib.import_module(module).begin

    def write(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    write({"version": importlib.metadata.version(sys.argv[2])})
    rule: Rule | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "begin" in request:
            rule = begin(variant, request["begin"])
            write({"applies": rule is not None})
        else:
            assert rule is not None
            write({"reason": rule(request["turn"])})


if __name__ == "__main__":
    main()
