"""The finished trials of runs of pytest, which a later run can skip.

Each trial is a file in the folder of its run. It contains the report of the trial, and digests of
the scenarios and the agent's version, by which a later run notices that they have changed.
"""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from time import localtime, strftime
from typing import Any, Final

from pydantic import BaseModel

from ..common.files import write_file
from .scenario import Scenario

LAST: Final = "last"
"""The name that means the newest run."""

_KEPT: Final = 20
"""Number of runs that are kept."""


class SimulatedScenario(BaseModel):
    """A simulation of a trial: digests of the scenario's fields, and the agent's version."""

    fields: dict[str, str]
    """The digests, by the fields' names."""
    agent_version: str | None = None
    """The version. None if the test sets none."""

    @classmethod
    def of(cls, scenario: Scenario, agent_version: str | None) -> "SimulatedScenario":
        """Return the digests of a scenario."""
        values = {name: getattr(scenario, name) for name in type(scenario).model_fields}
        fields = {name: _digest(_describe(value)) for name, value in values.items()}
        return cls(fields=fields, agent_version=agent_version)

    def first_change(self, now: "SimulatedScenario") -> str | None:
        """Return the name of the first field that differs, or None."""
        for name in dict.fromkeys((*self.fields, *now.fields)):
            if self.fields.get(name) != now.fields.get(name):
                return f"scenario.{name}"
        return None if self.agent_version == now.agent_version else "agent_version"


class FinishedTrial(BaseModel):
    """A trial that passed, failed or was inconclusive."""

    test: str
    """The id of the test."""
    source: str
    """The digest of the test's file."""
    scenarios: list[SimulatedScenario]
    """The simulations, in the order of their beginnings."""
    report: dict[str, Any]
    """The report, as pytest serializes it."""

    def find_change(self, now: SimulatedScenario, source: str) -> str | None:
        """Return the part of the test that has changed since the trial, or None.

        Args:
            now: The first simulation of the test as it is now.
            source: The digest of the test's file as it is now.
        """
        if (change := self.scenarios[0].first_change(now)) is not None:
            return change
        # The scenarios after the first are only known when the test runs.
        return "the test's file" if len(self.scenarios) > 1 and self.source != source else None


def digest_file(path: Path) -> str:
    """Return a digest of a file. Empty if it can't be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def make_run_name() -> str:
    """Return a new name of a run, which begins with the time."""
    return f"{strftime('%Y%m%d-%H%M%S', localtime())}-{token_hex(2)}"


def list_runs(folder: Path) -> list[str]:
    """Return the names of the runs in a folder, newest first."""
    names = [one.name for one in folder.iterdir() if one.is_dir()] if folder.is_dir() else []
    return sorted(names, reverse=True)


class TrialStore:
    """The finished trials of one run.

    Args:
        folder: The folder of the run. It is made when the first trial is stored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, test: str, trial: int) -> FinishedTrial | None:
        """Return a finished trial. None if it is not finished, or its file is damaged."""
        try:
            text = self._path(test, trial).read_text(encoding="utf-8")
            return FinishedTrial.model_validate_json(text)
        except (OSError, ValueError):
            return None

    def write(self, trial: int, finished: FinishedTrial) -> None:
        """Store a finished trial. Older runs are deleted, except the newest."""
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in list_runs(self._folder.parent)[_KEPT:]:
                rmtree(self._folder.parent / name, ignore_errors=True)
        text = json.dumps(finished.model_dump(), default=str)
        write_file(self._path(finished.test, trial), text)

    def _path(self, test: str, trial: int) -> Path:
        return self._folder / f"{_digest(test)}-{trial}.json"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


def _describe(value: object) -> str:
    """Return a text that is the same in each process, with the source code of functions."""
    match value:
        case str() | int() | float() | None:
            return repr(value)
        case tuple() | list():
            return f"[{', '.join(map(_describe, _as_sequence(value)))}]"
    described = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    functions = [one for one in (value, *_parts(value)) if callable(one)]
    return f"{described} {' '.join(map(_source_of, functions))}"


def _as_sequence(value: Sequence[object]) -> Sequence[object]:
    return value


def _parts(value: object) -> list[object]:
    """Return the fields of an object, such as a step of a script."""
    return [*getattr(value, "__dict__", {}).values()]


def _source_of(function: Callable[..., object]) -> str:
    try:
        return getsource(function)
    except (OSError, TypeError):
        return getattr(function, "__qualname__", type(function).__qualname__)
