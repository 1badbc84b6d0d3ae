"""Where code runs and what it may use there, as data. The running itself is in `duologue.tools`."""

from typing import Literal, TypeAlias

from pydantic import Field

from duologue.graphs.data import Data

Level: TypeAlias = Literal["monty", "bubblewrap", "host"]
"""How code is kept apart. ``monty``: a subset of Python without files, network or processes, on
any system. ``bubblewrap``: full Python and a shell in namespaces of their own, on Linux.
``host``: a plain process, which may do whatever the user may."""

Language: TypeAlias = Literal["python", "shell"]
"""What code is written in."""

CODE_KIB = 100
"""The longest code that is run, in KiB of UTF-8."""


class Sandbox(Data):
    """Where the code of a conversation runs, and what one call may use."""

    level: Literal["auto"] | Level = "auto"
    """How code is kept apart. ``auto``: Python in ``bubblewrap`` where it works and else in
    ``monty``, a shell in ``bubblewrap`` or nowhere; never on the host."""
    seconds: float = Field(default=60, gt=0, le=3600, allow_inf_nan=False)
    """Seconds that one call may take, then it is ended with all its children."""
    memory_mib: int = Field(default=512, ge=32, le=65536)
    """MiB of memory for all processes of a call together. What it writes to files, of which there
    may be 64 MiB in ``/work`` and as much in ``/tmp``, comes on top."""
    output_kib: int = Field(default=64, ge=1, le=1024)
    """KiB of output that are kept of a call: the first and the last half of them."""


class Kept(Data):
    """What a session keeps of its interpreter between two calls, as plain data."""

    key: str = Field(min_length=1, max_length=200)
    """Names the interpreter: random, and another one in each life of a session."""
    memory: str | None = None
    """The interpreter's variables, in base64, where the level can write them down (``monty``)."""
    started: bool = False
    """Whether code ran under this key before."""
