"""Runs of tau2-bench: the tasks of a checkout as a suite, scored as tau2-bench scores them.

The tools, the databases and the policy are those of the checkout, whose code is imported.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool

from ..common.data import NAME_LENGTH, Text
from ..common.errors import SpecError, list_names
from ..common.files import read_file
from ..common.sanitize import excerpt
from ..kinds.simulation import DONE, HAND_OVER, OUT_OF_SCOPE
from ..log.messages import metadata
from .http_recording import describe_difference
from .result import SimulationResult
from .scenario import Scenario
from .suite import Suite
from .world import get_world

_MOST_STEPS: Final = 100
"""Maximum number of rounds. tau2-bench allows 200 steps, and a round has two or more."""

_MOST_ERRORS: Final = 10
"""Number of failed tool calls at which tau2-bench ends a simulation without a reward."""


class Tau2Suite(Suite):
    """The tasks of a domain of tau2-bench."""

    user_prompt: Text
    """The system prompt of the simulated users."""

    def conversation(self) -> dict[str, Any]:
        """Return the conversation, which ends at once when the user says one of three words."""
        ends = [
            {"kind": "done_token", "token": token, "by": "User", "match": "anywhere"}
            for token in (DONE, HAND_OVER, OUT_OF_SCOPE)
        ]
        own = {"user_prompt": self.user_prompt, "end_chat": {"when": ends}}
        return super().conversation() | own


def load_tau2(folder: str | Path, domain: str) -> Suite:
    """Read the tasks of a domain of tau2-bench as a suite.

    The world of each task is a `Tau2World`: ``make_agent`` receives it, with the ``tools`` and the
    ``policy`` for the agent. tau2-bench is not installed, but the packages that its environments
    import must be.

    Args:
        folder: A checkout of tau2-bench.
        domain: A domain, such as ``retail``.

    Raises:
        SpecError: The folder is no checkout, there is no such domain, or it can't be read.
    """
    folder = Path(folder)
    sources = folder / "src" / "tau2" / "domains"
    known = sorted(one.parent.name for one in sources.glob("*/environment.py"))
    if domain not in known:
        problem = f"it has the domains {list_names(known)}" if known else "it is no checkout of it"
        raise SpecError(f"tau2: {folder} has no domain {domain!r} of tau2-bench; {problem}")
    _find_checkout(folder)
    try:
        # It logs each call of a tool.
        import_module("loguru").logger.disable("tau2")
        module = import_module(f"tau2.domains.{domain}.environment")
        environment = module.get_environment()
        tasks = module.get_tasks()
    except ModuleNotFoundError as error:
        raise SpecError(
            f"tau2: the checkout needs the package {error.name!r}; install it, or all of loguru, "
            "deepdiff, docstring-parser, addict, toml and python-dotenv"
        ) from error
    except Exception as error:
        why = excerpt(f"{type(error).__name__}: {error}")
        raise SpecError(f"tau2: the domain {domain!r} of {folder} can't be read: {why}") from error
    users = environment.user_tools
    tools = {} if users is None else {one.name: one for one in environment.get_user_tools()}
    of_user = {name: _make_tool(one, "user", get_world) for name, one in tools.items()}
    guidelines = f"simulation_guidelines{'_tools' if tools else ''}.md"
    prompt = read_file(folder / "data" / "tau2" / "user_simulator" / guidelines, str)
    found = [Tau2Task(module, task) for task in tasks]
    return Tau2Suite(
        scenarios={one.name: one.scenario(of_user) for one in found},
        user_prompt=prompt.replace("<PERSONA_GUIDELINES>", ""),
    )


def _find_checkout(folder: Path) -> None:
    """Let the modules of a checkout be imported without their package, which imports many."""
    path = str((folder / "src" / "tau2").resolve())
    package = sys.modules.get("tau2")
    if package is None:
        package = sys.modules["tau2"] = ModuleType("tau2")
        package.__path__ = [path]
    elif path not in map(str, package.__path__):
        raise SpecError(f"tau2: another checkout is in use: {package.__path__[0]}")


def _make_tool(tool: Any, requestor: str, find: Callable[[], "Tau2World"]) -> BaseTool:  # noqa: ANN401
    """Return a tool of tau2-bench, which receives the arguments of models unchanged."""
    told = tool.openai_schema["function"]

    def run(**arguments: Any) -> str:
        return find().call(tool.name, arguments, requestor)

    async def run_in_order(**arguments: Any) -> str:
        # Calls in the same message do not run in threads, whose order varies.
        return run(**arguments)

    return StructuredTool(
        name=told["name"],
        description=told["description"],
        args_schema=told["parameters"],
        func=run,
        coroutine=run_in_order,
    )


@dataclass
class Tau2World:
    """The world of one simulation of a task."""

    environment: Any
    """The environment, of tau2-bench's class."""
    history: Sequence[Any] = ()
    """The messages with which the task begins, of tau2-bench's classes. Most tasks have none."""
    calls: list[Any] = field(default_factory=list)
    """The tool calls of the agent and the user, of tau2-bench's class, oldest first."""
    errors: int = 0
    """Number of tool calls that failed."""
    _lock: RLock = field(default_factory=RLock, repr=False)

    @property
    def policy(self) -> str:
        """Return the policy for the agent."""
        policy: str = self.environment.get_policy()
        return policy

    @property
    def tools(self) -> list[BaseTool]:
        """Return the agent's tools. They change the databases of this world."""
        found = self.environment.get_tools()
        return [_make_tool(one, "assistant", lambda: self) for one in found]

    def call(self, name: str, arguments: Mapping[str, Any], requestor: str = "assistant") -> str:
        """Call a tool, and return its result or its error as text."""
        from_checkout = import_module("tau2.data_model.message")
        call = from_checkout.ToolCall(name=name, arguments={**arguments}, requestor=requestor)
        with self._lock:
            self.calls.append(call)
            answer = self.environment.get_response(call)
            self.errors += answer.error
        return str(answer.content)


@dataclass(frozen=True)
class Tau2Task:
    """A task, with the checks for the reward."""

    module: ModuleType
    """The module of the domain's environment."""
    task: Any
    """The task, of tau2-bench's class."""

    @property
    def name(self) -> str:
        """Return the task's id as the name of a scenario."""
        task = str(self.task.id)
        digest = sha256(task.encode()).hexdigest()[:8]
        return task if len(task) <= NAME_LENGTH else f"{task[: NAME_LENGTH - 9]}-{digest}"

    def scenario(self, user_tools: Mapping[str, BaseTool]) -> Scenario:
        """Return the scenario."""
        own = getattr(self.task, "user_tools", None)
        goal = str(self.task.user_scenario)
        if history := self._initial("message_history"):
            said = "\n".join(f"{one.role}: {one.content}" for one in history if one.content)
            goal = f"{goal}\n\nThe conversation so far:\n{said}"
        basis = {one.value for one in self._criteria("reward_basis") or ()}
        judged = (self._criteria("nl_assertions") or ()) if "NL_ASSERTION" in basis else ()
        return Scenario(
            goal,
            world=self.open,
            tools=[tool for name, tool in user_tools.items() if own is None or name in own],
            checks=[*self._checks(basis)],
            criteria=[*dict.fromkeys(judged)],
            expected_ends=["done", "handed_over", "gave_up"],
            max_iterations=_MOST_STEPS,
            # As in tau2-bench, an error of the user does not change the reward.
            user_errors="ignore",
            temperature=0.0,
        )

    def open(self) -> Tau2World:
        """Make the world in the initial state of the task."""
        environment = self.module.get_environment()
        history = self._initial("message_history") or []
        names = ("initialization_data", "initialization_actions")
        own = {name: self._initial(name) for name in names}
        environment.set_state(**own, message_history=history)
        calls = [call for one in history for call in getattr(one, "tool_calls", None) or ()]
        return Tau2World(environment, history, calls)

    def _initial(self, name: str) -> Any:  # noqa: ANN401  # a field of tau2-bench
        return getattr(self.task.initial_state, name, None)

    def _criteria(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.task.evaluation_criteria, name, None)

    def _checks(self, basis: set[str]) -> Iterator[Callable[[SimulationResult], None]]:
        """Yield the checks of the task's reward."""
        yield self.tools_work
        expected = (self._criteria(name) for name in ("actions", "env_assertions"))
        if "DB" in basis and any(one is not None for one in expected):
            yield self.database
        if "ENV_ASSERTION" in basis:
            yield self.environment
        if "ACTION" in basis:
            yield self.actions
        if "COMMUNICATE" in basis:
            yield self.communicated

    def tools_work(self, result: SimulationResult) -> None:
        """Check that few tool calls have failed."""
        errors = result.world.errors
        _require(errors < _MOST_ERRORS, f"{errors} tool calls failed")

    def database(self, result: SimulationResult) -> None:
        """Check that the databases are as after the expected actions."""
        expected, world = self.open().environment, result.world.environment
        for one in self._criteria("actions") or ():
            # tau2-bench ignores an expected action that fails, too.
            with suppress(Exception):
                expected.make_tool_call(one.name, one.requestor, **one.arguments)
        for owner in ("tools", "user_tools"):
            wished, found = getattr(expected, owner), getattr(world, owner)
            if wished is not None and wished.get_db_hash() != found.get_db_hash():
                before, after = wished.db.model_dump(), found.db.model_dump()
                # 1 and 1.0 are different values there.
                is_type = before == after
                change = "a type is wrong" if is_type else describe_difference(before, after)
                raise AssertionError(f"the database differs: {change}")

    def environment(self, result: SimulationResult) -> None:
        """Check the assertions about the environment."""
        for one in self._criteria("env_assertions") or ():
            called = f"{one.func_name}({excerpt(repr(one.arguments))})"
            environment = result.world.environment
            try:
                is_met = environment.run_env_assertion(one, raise_assertion_error=False)
            except Exception as error:
                said = excerpt(f"{type(error).__name__}: {error}")
                raise SpecError(f"the assertion {called} raised {said}") from error
            _require(is_met, one.message or f"{called} is wrong")

    def actions(self, result: SimulationResult) -> None:
        """Check that each expected action was called."""
        for one in self._criteria("actions") or ():
            is_called = any(map(one.compare_with_tool_call, result.world.calls))
            _require(is_called, f"{one.get_func_format()} was not called")

    def communicated(self, result: SimulationResult) -> None:
        """Check that the agent has said each expected text."""
        agent = result.conversation.conversation.names[1]
        said = [str(one.content or "") for one in result.world.history if one.role == "assistant"]
        said += [
            one.text
            for one in result.conversation.messages
            if isinstance(one, AIMessage) and metadata(one).speaker == agent
        ]
        texts = [one.lower().replace(",", "") for one in said]
        for one in self._criteria("communicate_info") or ():
            _require(any(one.lower() in text for text in texts), f"{one!r} was not said")


def _require(is_met: bool, text: str) -> None:
    if not is_met:
        # Not by `assert`, which `python -O` leaves out.
        raise AssertionError(text)
