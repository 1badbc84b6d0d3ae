"""The sandbox of a conversation's code, as data. `duologue.tools` runs the code."""

import secrets
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from ..common.data import Data, Spec

Level: TypeAlias = Literal["monty", "bubblewrap", "host"]
"""The isolation of code. ``monty`` is a subset of Python without files, network or processes, on
any system. ``bubblewrap`` is full Python and a shell in separate namespaces, on Linux. ``host`` is
a plain process with all rights of the user."""

Language: TypeAlias = Literal["python", "shell"]
"""The language of code."""

CODE_KIB = 100
"""Maximum length of code that is run, in KiB of UTF-8."""


HOST_WARNING: Final = (
    "Code of this conversation runs on this machine without a sandbox, with all the rights of "
    "the user who started it."
)
"""The warning shown for a conversation with the level ``host``."""


def read_level(given: object) -> object:
    """Convert a plain string, which is a level, to ``{"level": …}``."""
    return {"level": given} if isinstance(given, str) else given


class Sandbox(Spec):
    """The isolation of a conversation's code, and the limits of one call.

    A plain string is its level.
    """

    level: Literal["auto", "monty", "bubblewrap", "host"] = Field(default="auto", kw_only=False)
    """The isolation of code. ``auto`` runs Python in ``bubblewrap`` if that works and otherwise in
    ``monty``, and a shell only in ``bubblewrap``. It never uses the host."""
    seconds: float = Field(default=60, gt=0, le=3600, allow_inf_nan=False)
    """Maximum duration of one call, in seconds. The call and all its child processes are then
    stopped."""
    memory_mib: int = Field(default=512, ge=32, le=65536)
    """Maximum memory of all processes of a call together, in MiB, measured every 50 ms. Files that
    the call writes are not included: up to 64 MiB each in ``/work``, ``/tmp`` and ``/dev/shm``.
    Some kernel memory is not counted, because this library does not use cgroups: shared memory that
    was partly unmapped, and the contents of pipes and of TCP's larger buffers."""
    output_kib: int = Field(default=64, ge=1, le=1024)
    """Maximum output of a call that is kept, in KiB: half of it from the beginning, half from the
    end."""

    @model_validator(mode="before")
    @classmethod
    def _by_level(cls, given: object) -> object:
        return read_level(given)

    @property
    def languages(self) -> tuple[Language, ...]:
        """Return the possible languages; with ``auto``, a shell needs a working ``bubblewrap``."""
        return ("python",) if self.level == "monty" else get_args(Language)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings for the user who runs the conversation."""
        return (HOST_WARNING,) if self.level == "host" else ()


class Kept(Data):
    """The state of a session's interpreter that is stored between two calls, as plain data."""

    key: str = Field(min_length=1, max_length=200)
    """The id of the interpreter. It is random and changes each time a session is copied or
    restored."""
    memory: str | None = None
    """The interpreter's variables, in base64, if the level can serialize them (``monty``).
    Otherwise None."""
    runs: int = Field(default=0, ge=0)
    """Number of runs under this key. If an interpreter has another count, it belongs to another
    state."""
    started: bool = False
    """Whether code has run under this key."""

    def after_run(self, memory: str | None) -> "Kept":
        """Return the state after one more run."""
        return self.model_copy(update={"memory": memory, "started": True, "runs": self.runs + 1})

    def without_key(self) -> "Kept":
        """Return a copy without the key, which allows access to the interpreter.

        Only such a copy may leave the store.
        """
        return self.model_copy(update={"key": "none"})

    def under(self, key: str) -> dict[str, Any]:
        """Return a copy for another session, with another key, as plain values."""
        return self.model_copy(update={"key": key}).model_dump(mode="json", exclude_defaults=True)


def new_key() -> str:
    """Return a random key for a session's interpreter that can't be guessed."""
    return secrets.token_hex(16)
