"""Systems that decide when dialogues end: duologue, your function or class, other libraries.

Another library runs in a process and an environment of its own, since two of them have the same
distribution name, and is fed over JSON lines. `systems.toml` has their versions.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from endings.adapter import Adapter, Rules
from endings.dialogue import Dialogue, Turn

OURS = "duologue"
FOLDER = Path(__file__).parent


class UnavailableError(Exception):
    """A library that can't be installed or started here."""


@dataclass(frozen=True)
class System:
    """A way to decide when dialogues end."""

    name: str
    title: str
    version: str
    begin: Callable[[Dialogue], Adapter | None]
    """Returns the adapter of a dialogue. None if the system can't have such a dialogue."""


class Library(BaseModel):
    """A stop rule of another library, as in `systems.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    environment: str
    packages: tuple[str, ...]
    version: str
    worker: str


def read_libraries() -> dict[str, Library]:
    """Read the stop rules of other libraries, by name."""
    found = tomllib.loads((FOLDER / "systems.toml").read_text(encoding="utf-8"))
    return {name: Library.model_validate(row) for name, row in found.items()}


@contextlib.contextmanager
def open_system(name: str, cache: Path, *, answered: bool = False) -> Iterator[System]:
    """Open a system.

    Args:
        name: `duologue`, a name in `systems.toml`, or `module:name` of a function or a class.
        cache: A folder outside the repository, for environments of other libraries.
        answered: Whether duologue's done tokens count only once they are answered.

    Raises:
        ValueError: There is no such system.
        UnavailableError: The library can't be installed or started here.
    """
    libraries = read_libraries()
    if name == OURS:
        yield System(name, "duologue", version("duologue"), partial(Rules, answered=answered))
    elif name in libraries:
        library = libraries[name]
        python = make_environment(library, cache)
        with Worker(library, python) as worker:
            yield System(name, library.title, worker.version, worker.begin)
    elif ":" in name:
        yield System(name, f"`{name}`", "", load_adapter(name))
    else:
        known = ", ".join([OURS, *libraries])
        raise ValueError(
            f"--system: there is no system '{name}'; choose {known}, or pass module:name of a "
            "function or a class"
        )


class FunctionAdapter:
    """A function `stops(messages) -> reason | None` as an adapter."""

    calls = 0
    tokens = 0

    def __init__(
        self, function: Callable[[Sequence[Turn]], str | None], dialogue: Dialogue
    ) -> None:
        self._function = function

    def stops(self, messages: Sequence[Turn]) -> str | None:
        """Return the function's result."""
        return self._function(messages)


def load_adapter(name: str) -> Callable[[Dialogue], Adapter]:
    """Import a user's function or class, from the current folder too.

    Raises:
        ValueError: The module or the name can't be imported, or is no function and no class.
    """
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--system: '{name}' can't be imported: {error}; name a module in the current folder "
            "or an installed module, and its function or class"
        ) from error
    if isinstance(found, type):
        return found
    if callable(found):
        return partial(FunctionAdapter, found)
    raise ValueError(f"--system: '{name}' is no function and no class; write stops(messages)")


def make_environment(library: Library, cache: Path) -> Path:
    """Make a library's environment, unless the cache has it, and return its Python.

    Raises:
        UnavailableError: The installation fails.
    """
    folder = cache / library.environment
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = folder / "endings.json"
    wanted = json.dumps(library.packages)
    if done.is_file() and done.read_text(encoding="utf-8") == wanted:
        return python
    program = shutil.which("uv")
    if program is None and importlib.util.find_spec("uv") is None:
        raise UnavailableError("uv is missing; install it with `python -m pip install uv`")
    uv = [program] if program else [sys.executable, "-m", "uv"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [*uv, "venv", "--clear", "--python", sys.executable, str(folder)],
        [*uv, "pip", "install", "--python", str(python), *library.packages],
    ):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            raise UnavailableError(_last_line(found.stderr))
    done.write_text(wanted, encoding="utf-8")
    return python


class Worker:
    """A process with another library, which is fed over JSON lines."""

    def __init__(self, library: Library, python: Path) -> None:
        # A file, since a pipe that nobody reads would fill.
        self._errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        # The library sees no key of the user: no model is called.
        kept = ("PATH", "SYSTEMROOT", "TMPDIR", "LANG")
        self._process = subprocess.Popen(
            [str(python), "-I", str(FOLDER / "others/serve.py"), library.worker, library.version],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=python.parent,
            env={key: os.environ[key] for key in kept if key in os.environ}
            | {"HOME": str(python.parent), "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )

    def __enter__(self) -> "Worker":
        try:
            self.version = str(self._read()["version"])
        except UnavailableError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def begin(self, dialogue: Dialogue) -> Adapter | None:
        """Return the adapter of a dialogue, or None if the rule does not apply to it."""
        header = {
            "speakers": dialogue.names,
            "words": [word._asdict() for word in dialogue.words],
            "tools": [tool._asdict() for tool in dialogue.tools],
            "order": [(turn.speaker, bool(turn.calls)) for turn in dialogue.turns],
        }
        return _WorkerAdapter(self) if self.ask({"begin": header})["applies"] else None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a line, and return the answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise UnavailableError(_last_line(self._errors.read()))
        answer: dict[str, Any] = json.loads(line)
        return answer


class _WorkerAdapter:
    calls = 0
    tokens = 0

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._read = 0
        self._reason: str | None = None

    def stops(self, messages: Sequence[Turn]) -> str | None:
        for turn in messages[self._read :]:
            self._read += 1
            self._reason = self._reason or self._worker.ask({"turn": _sent(turn)})["reason"]
        return self._reason


def _sent(turn: Turn) -> dict[str, Any]:
    sent = asdict(turn)
    for call in sent["calls"]:
        call["arguments"] = json.dumps(call["arguments"], default=str)
    return sent


def _last_line(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a message"
