"""CPU time of whole processes at startup."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

_PROGRAM = Path(sys.executable).with_name("duologue")

LANGGRAPH = "import langgraph.graph"
IMPORT = "from duologue.graphs import converse"

# A stored conversation for `sessions` and `show`.
_KEPT = """
import sys
from duologue.graphs import Conversation, converse
from duologue.nodes.testing import ScriptedChatModel

speakers = [{"name": "Ann"}, {"name": "Bob"}]
talk = Conversation(task="Plan a garden", speakers=speakers, end_chat={"max_iterations": 1})
converse(talk, session="one", store=sys.argv[1], model=ScriptedChatModel(["Beans?", "Peas."]))
"""


def measured(rounds: int, store: Path) -> Mapping[str, float]:
    """Return the CPU seconds of each command, the median of rounds in which they take turns."""
    _spent([sys.executable, "-c", _KEPT, str(store)])
    commands = {
        LANGGRAPH: [sys.executable, "-c", LANGGRAPH],
        IMPORT: [sys.executable, "-c", IMPORT],
        "duologue --help": [str(_PROGRAM), "--help"],
        "duologue sessions": [str(_PROGRAM), "sessions", "--store", str(store)],
        "duologue show": [str(_PROGRAM), "show", "one", "--store", str(store)],
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():  # compiles the modules
        _spent(command)
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(_spent(command))
    return {name: median(spent) for name, spent in found.items()}


def _spent(command: list[str]) -> float:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime
