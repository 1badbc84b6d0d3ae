"""How Monty's process is started: a subset of Python, on any system, without files or network.

The process is `tools.sandbox.monty_worker`; one serves many sessions, since nothing stays in it.
"""

import os
import sys
from importlib.util import find_spec

from .launch import Launch, StartError


def launch() -> Launch:
    """Say how to start it. Blocks."""
    if find_spec("pydantic_monty") is None:
        raise StartError("pydantic-monty is not installed")
    # The interpreter reads none of it, and its process needs nothing of it but where to find it.
    named = ("PATH", "SYSTEMROOT", "MONTY_BIN")
    return Launch(
        command=[sys.executable, "-P", "-B"],
        worker="monty_worker",
        environment={name: os.environ[name] for name in named if name in os.environ},
        group=True,
        own_mib=128,
        grace=3,
    )
