"""Starting an interpreter on the bare host: a plain process in a new folder.

The code is not isolated and may do anything that the user may do. Only its time, its output and, on
Linux, its memory are limited.
"""

import os
import sys
import tempfile
from pathlib import Path

from .launch import Launch, StartError


def launch() -> Launch:
    """Create a folder, and return the parameters of an interpreter in it. Blocks."""
    if sys.platform == "win32":
        raise StartError("it needs Linux or macOS")
    return Launch(
        command=[sys.executable, "-P", "-B", "-u", "-X", "utf8"],
        worker="sandbox_worker",
        environment=os.environ,
        shell="/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
        folder=tempfile.mkdtemp(prefix="duologue-"),
        group=True,
    )
