"""Starting Monty: a subset of Python, on any system, without files or network.

The process is `tools.sandbox.monty_worker`. One process serves many sessions, since it keeps no
state.
"""

import os
import sys
from importlib.util import find_spec

from .launch import Launch, StartError


def launch() -> Launch:
    """Return the parameters of Monty's process. Blocks."""
    if find_spec("pydantic_monty") is None:
        raise StartError("pydantic-monty is not installed")
    # The interpreter reads no variables; its process needs these to find the program.
    named = ("PATH", "SYSTEMROOT", "MONTY_BIN")
    return Launch(
        command=[sys.executable, "-P", "-B"],
        worker="monty_worker",
        environment={name: os.environ[name] for name in named if name in os.environ},
        group=True,
        own_mib=128,
        grace=3,
    )
