"""A suite of scenarios as data, reading it from a file, and the batch that runs it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, JsonValue, NonNegativeInt, model_validator

from ...tools.registry.functions import import_object
from ..batch.grid import set_values
from ..batch.spec import Batch, BatchLimits
from ..batch.values import canonical_json
from ..common.content_input import move_path
from ..common.data import Accepts, Cap, Fields, Name, Spec, Text, default
from ..common.errors import SpecError, hide_frames, name_type
from ..common.files import read_fields
from ..common.validation import validate
from .scenario import Scenario, check_alike_files

AGENT: Final = "agent"
"""The name under which the agent under test is registered."""

SCENARIO: Final = "labels.scenario"
"""The path of the label with the name of a scenario."""

PERSONA: Final = "labels.persona"
"""The path of the label with the name of a persona."""

_OF_SCENARIO: Final = ("goal", "knows", "must_not_say", "language")
_LIMITS: Final = ("max_iterations", "temperature")


class Suite(Spec):
    """Scenarios that are run together: each scenario with each persona, several times.

    Raises:
        SpecError: A field is missing, unknown or wrong; names it.
    """

    scenarios: Accepts[dict[Name, Scenario], Mapping[str, Scenario | Fields]] = Field(
        min_length=1, kw_only=False
    )
    """The scenarios, each under a short name."""
    personas: Accepts[dict[Name, Text], Mapping[str, str]] = default({})
    """The personas, each under a short name. If there are personas, each scenario runs with each of
    them, and no scenario has its own. If there are none, each scenario has its own persona."""
    trials: Cap = 1
    """Number of simulations of each scenario with each persona. Each has a different seed."""
    seed: NonNegativeInt | None = None
    """The seed of the first trial; each further trial adds 1. The models choose if None."""
    limits: Accepts[BatchLimits, BatchLimits | Fields] = default(BatchLimits())
    """Limits over all simulations together."""

    @model_validator(mode="after")
    def _check_scenarios(self) -> Self:
        check_alike_files({name: one.files for name, one in self.scenarios.items()})
        for name, scenario in self.scenarios.items():
            if scenario.script is not None:
                raise ValueError(
                    f"scenarios.{name}.script: a suite can't resume a script; pass this scenario "
                    "to simulate"
                )
            if self.personas and scenario.persona is not None:
                raise ValueError(
                    f"scenarios.{name}.persona: the suite has personas, which replace it; remove "
                    "one of them"
                )
        return self

    def conversation(self) -> dict[str, Any]:
        """Return the conversation of all scenarios, as data. Each scenario replaces its values."""
        return {"kind": "simulation", "goal": "-", "agent": AGENT, "user": {"name": "User"}}

    def batch(self, judge_model: str | None = None) -> Batch:
        """Return the batch that runs the suite.

        Its conversations name the agent under test `AGENT`. Labels contain the names of the
        scenario and of the persona.

        Args:
            judge_model: The name of the model that judges. The default model if None.
        """
        judge = {} if judge_model is None else {"model": judge_model}
        paths = (SCENARIO, *_OF_SCENARIO, *_LIMITS, "tools", "criteria", "user.model", "judge")
        own_persona = () if self.personas else ("persona",)
        rows = [
            [
                name,
                *(set_values(getattr(one, field)) for field in (*_OF_SCENARIO, *_LIMITS)),
                set_values(one.user_tools),
                set_values(one.judged),
                one.model,
                judge if one.judged else {},
                *(getattr(one, field) for field in own_persona),
            ]
            for name, one in self.scenarios.items()
        ]
        vary: dict[str, Any] = {", ".join((*paths, *own_persona)): rows}
        if self.personas:
            vary[f"{PERSONA}, persona"] = [[*pair] for pair in self.personas.items()]
        return Batch(
            self.conversation(),
            vary=vary,
            trials=self.trials,
            seed=self.seed,
            limits=self.limits,
            score="passed",
            judge_at_end=any(one.judged for one in self.scenarios.values()),
        )

    def facts(self) -> dict[str, JsonValue]:
        """Return the scenarios and the personas as JSON, with the names of checks."""
        scenarios: dict[str, JsonValue] = {
            name: {field: set_values(getattr(one, field)) for field in sorted(one.model_fields_set)}
            for name, one in self.scenarios.items()
        }
        return {"scenarios": scenarios, "personas": {**self.personas}}


@hide_frames
def load_suite(source: Mapping[str, Any] | str | Path) -> Suite:
    """Read a suite.

    In a file, each check and each world is named as ``module:function``, and so can be each tool. A
    check can also be a table, such as ``{ called = "refund", arguments = { number = 7 } }`` or
    ``{ not_called = "refund" }``. Paths in a file are relative to the file's folder; paths in a
    dict are relative to the working folder.
    Each scenario has the fields of a `Scenario`, and those of the table ``shared`` that it does not
    set.

    Args:
        source: A dict, or the path of a ``.toml`` or ``.json`` file.

    Raises:
        TypeError: ``source`` is neither a dict nor a path.
        SpecError: The file can't be read, a field is not valid, or a check can't be imported; the
            message names the file and the field.
    """
    if isinstance(source, Mapping):
        return validate(Suite, _with_shared(source))
    if not isinstance(source, str | Path):
        raise TypeError(
            f"a suite must be a Suite, a dict or a file, not {name_type(source)}; write "
            "{'scenarios': {'NAME': scenario}}"
        )
    path = Path(source)
    fields = read_fields(path, "suite of scenarios")
    if "scenarios" not in fields:
        raise SpecError(
            f"{path}: scenarios: is missing; add a table [scenarios.NAME] for each scenario"
        )
    try:
        return validate(Suite, _with_shared(fields, path.parent), f"{path}: ")
    except SpecError as error:
        text = str(error)
        raise SpecError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from error


def _with_shared(fields: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Return the fields of a suite, with shared fields in each scenario and functions imported."""
    given = {**fields}
    shared = given.pop("shared", {})
    scenarios = given.get("scenarios")
    if not isinstance(shared, Mapping):
        raise SpecError("shared: must be a table with fields of a scenario")
    if isinstance(scenarios, Mapping):
        given["scenarios"] = {
            name: _import_functions({**shared, **one}, f"scenarios.{name}", folder)
            if isinstance(one, Mapping)
            else one
            for name, one in scenarios.items()
        }
    return given


def _import_functions(fields: dict[str, Any], where: str, folder: Path | None) -> dict[str, Any]:
    """Import the checks, the world and the tools that are written as ``module:function``.

    The paths of files become relative to the working folder.
    """

    def read(given: object, at: str, *, is_name: bool = False) -> object:
        if at.startswith("checks.") and isinstance(given, Mapping):
            return ToolCheck.read(given, f"{where}.{at}")
        is_reference = isinstance(given, str) and (":" in given or not is_name)
        return import_object(str(given), f"{where}.{at}") if is_reference else given

    for field in ("checks", "tools"):
        if isinstance(given := fields.get(field), list | tuple):
            fields[field] = [
                # A tool can also be a registered name.
                read(one, f"{field}.{place}", is_name=field == "tools")
                for place, one in enumerate(given)
            ]
    if folder is not None and isinstance(given := fields.get("files"), list):
        fields["files"] = [move_path(one, folder) for one in given]
    return fields | {"world": read(fields["world"], "world")} if "world" in fields else fields


class ToolCheck:
    """A check that the agent has called a tool, or that it has not."""

    def __init__(self, tool: str, arguments: Mapping[str, JsonValue], *, is_called: bool) -> None:
        self.tool, self.arguments, self.is_called = tool, {**arguments}, is_called
        # Verdicts are stored under this name, so a changed check is another one.
        what = f"{tool} with {canonical_json(self.arguments)}" if arguments else tool
        self.__name__ = f"called {what}" if is_called else f"not called {what}"

    def __call__(self, result: Any) -> None:  # noqa: ANN401  # a SimulationResult
        """Raise an AssertionError if the agent has not called the tool, or should not have."""
        if result.called(self.tool, **self.arguments) is not self.is_called:
            calls = (f"{name} with {canonical_json(args)}" for name, args in result.tool_calls())
            raise AssertionError(f"the agent called {'; '.join(calls) or 'no tool'}")

    @classmethod
    def read(cls, fields: Mapping[str, Any], where: str) -> Self:
        """Read a check from a table with ``called`` or ``not_called``, and ``arguments``.

        Raises:
            SpecError: A field is missing, unknown or wrong; names it.
        """
        kinds = [name for name in ("called", "not_called") if name in fields]
        unknown = [name for name in fields if name not in (*kinds, "arguments")]
        if len(kinds) != 1 or unknown:
            raise SpecError(
                f"{where}: must name a function as 'module:function', or have one of the fields "
                "called and not_called with the name of a tool, and optionally arguments"
            )
        (kind,) = kinds
        arguments = fields.get("arguments", {})
        if not isinstance(fields[kind], str) or not fields[kind].strip():
            raise SpecError(f"{where}.{kind}: must be the name of a tool")
        if not isinstance(arguments, Mapping):
            raise SpecError(f"{where}.arguments: must be a table with arguments of the tool")
        return cls(fields[kind], arguments, is_called=kind == "called")
