"""Where code runs and what it may use there, as data. The running itself is in `duologue.tools`."""

import secrets
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from ..common.data import Data, Spec

Level: TypeAlias = Literal["monty", "bubblewrap", "host"]
"""How code is kept apart. ``monty``: a subset of Python without files, network or processes, on
any system. ``bubblewrap``: full Python and a shell in namespaces of their own, on Linux.
``host``: a plain process, which may do whatever the user may."""

Language: TypeAlias = Literal["python", "shell"]
"""What code is written in."""

CODE_KIB = 100
"""The longest code that is run, in KiB of UTF-8."""


HOST_WARNING: Final = (
    "Code of this conversation runs on this machine without a sandbox, with all the rights of "
    "the user who started it."
)
"""What is shown where a conversation names the level ``host``."""


def read_level(given: object) -> object:
    """Read a level given as a bare word as ``{"level": …}``."""
    return {"level": given} if isinstance(given, str) else given


class Sandbox(Spec):
    """Where the code of a conversation runs, and what one call may use.

    A bare word is its level.
    """

    level: Literal["auto", "monty", "bubblewrap", "host"] = Field(default="auto", kw_only=False)
    """How code is kept apart. ``auto``: Python in ``bubblewrap`` where it works and else in
    ``monty``, a shell in ``bubblewrap`` or nowhere; never on the host."""
    seconds: float = Field(default=60, gt=0, le=3600, allow_inf_nan=False)
    """Seconds that one call may take, then it is ended with all its children."""
    memory_mib: int = Field(default=512, ge=32, le=65536)
    """MiB of memory for all processes of a call together, looked at every 50 ms. What it writes to
    files comes on top: 64 MiB each in ``/work``, ``/tmp`` and ``/dev/shm``. Without a cgroup, which
    this library doesn't ask for, some of the kernel's can't be counted: shared memory that was
    unmapped in part, and what stands in pipes and in TCP's larger buffers."""
    output_kib: int = Field(default=64, ge=1, le=1024)
    """KiB of output that are kept of a call: the first and the last half of them."""

    @model_validator(mode="before")
    @classmethod
    def _by_level(cls, given: object) -> object:
        return read_level(given)

    @property
    def languages(self) -> tuple[Language, ...]:
        """What it may run; with ``auto`` a shell only where there is one."""
        return ("python",) if self.level == "monty" else get_args(Language)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever runs the conversation should know."""
        return (HOST_WARNING,) if self.level == "host" else ()


class Kept(Data):
    """What a session keeps of its interpreter between two calls, as plain data."""

    key: str = Field(min_length=1, max_length=200)
    """Names the interpreter: random, and another one in each life of a session."""
    memory: str | None = None
    """The interpreter's variables, in base64, where the level can write them down (``monty``)."""
    runs: int = Field(default=0, ge=0)
    """How often code ran under this key: an interpreter that counts otherwise is not this one's."""
    started: bool = False
    """Whether code ran under this key before."""

    def after_run(self, memory: str | None) -> "Kept":
        """Give what is kept after one more run."""
        return self.model_copy(update={"memory": memory, "started": True, "runs": self.runs + 1})

    def without_key(self) -> "Kept":
        """Give the same as it may leave the store: nobody else comes to this interpreter by it."""
        return self.model_copy(update={"key": "none"})

    def under(self, key: str) -> dict[str, Any]:
        """Return the same for another session, as plain values: with a key of its own."""
        return self.model_copy(update={"key": key}).model_dump(mode="json", exclude_defaults=True)


def new_key() -> str:
    """Make up the key of a session's interpreter, which nobody can guess."""
    return secrets.token_hex(16)
