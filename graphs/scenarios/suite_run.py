"""Running a suite of scenarios as a batch: its agent, its judge, and its driver."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, Unpack, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from pydantic import JsonValue

from ...tools.registry.functions import import_object
from ..batch.driver import CONCURRENCY, BatchSettings, Driver
from ..batch.limiter import PATIENCE
from ..batch.run import batch_name, open_driver
from ..batch.scores import MissingScoreError
from ..batch.values import canonical_json
from ..common.errors import InconclusiveResult, hide_frames
from ..common.model_help import check_options, list_options
from ..common.threads import in_background
from ..conversation.judges import Finding, FindingReason, SeparateJudge, Verdict
from ..session.listing import known_store
from ..session.options import Options
from ..session.session import Result
from ..session.stored_session import LaterVerdict, hash_log
from .http_agent import ModelServer
from .judging import (
    find_stored_checks,
    name_checks,
    name_judges,
    read_criteria,
    read_simulation,
    try_check,
)
from .result import SimulationResult, classify_end
from .scenario import Scenario
from .simulate import SimulateOptions, add_objects
from .suite import AGENT, SCENARIO, Suite, load_suite
from .suite_report import SuiteReport, read_suite
from .tested_agent import AgentSource, TestedAgent
from .world import name_of, open_world

_log: Final = logging.getLogger("duologue")


class _Trial(NamedTuple):
    """The agent and the world of one session."""

    agent: Any
    """The agent, as `simulate` accepts it."""
    world: Any
    """The world. None if the scenario has none."""
    tested: TestedAgent
    """The agent with its thread and state."""


@dataclass
class SuiteAgent(AgentSource):
    """The agent under test in many sessions, each with its own thread, state and world."""

    trials: dict[str, _Trial] = field(default_factory=dict, repr=False)
    """The sessions that run now."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the agent by its reference, because many agents can't be pickled."""
        fields = (self.is_made, self.on_interrupt, self.timeout, self.reference, self.server)
        if self.reference is None:
            return type(self), (self.agent, *fields)
        return _load_agent, fields

    @property
    def name(self) -> str:
        """Return the name of the agent, or of the function that makes it."""
        return name_of(self.agent) if self.is_made else self.test(self.agent).name

    def runnable(self) -> Runnable[Any, Any]:
        """Return the Runnable that is registered as the agent of all sessions."""
        return RunnableLambda(self.areply, name=self.name)

    async def areply(self, messages: list[BaseMessage], config: RunnableConfig) -> Any:  # noqa: ANN401
        """Return the agent's answer in the session of the configuration."""
        session = str(config.get("configurable", {}).get("thread_id"))
        trial = self.trials[session]
        try:
            return await trial.tested.areply(messages, config)
        except BaseException:
            # The thread of a reply that has failed may contain a part of it.
            # A cancelled reply may end after its session.
            if session in self.trials:
                self.trials[session] = trial._replace(tested=self.test(trial.agent))
            raise

    @asynccontextmanager
    async def open_trial(
        self, session: str, make_world: Callable[[], Any] | None
    ) -> AsyncIterator[None]:
        """Make the world and the agent of a session, and close the world at the end."""
        async with open_world(make_world) as world:
            agent = await self.make(world)
            self.trials[session] = _Trial(agent, world, self.test(agent))
            try:
                yield
            finally:
                del self.trials[session]


def _load_agent(is_made: bool, *fields: Any) -> SuiteAgent:  # as pickle passes them
    agent = import_object(fields[2], "make_agent" if is_made else "agent")
    return SuiteAgent(agent, is_made, *fields)


@dataclass(frozen=True)
class SuiteJudge:
    """The functions of a suite's batch that judge in code, and compute whether a trial passed."""

    scenarios: Mapping[str, Scenario]
    """The scenarios, by name."""
    agent: SuiteAgent
    """The agent under test."""
    judges: Sequence[str | None] = ()
    """The names of the models of two judges. Empty if there is one judge."""

    @asynccontextmanager
    async def enclose(
        self, session: str, values: Mapping[str, JsonValue], known: Result | None
    ) -> AsyncIterator[bool]:
        """Run and judge a session with its agent and its world.

        Yields:
            Whether the session begins again, because the world or the state was lost with the
            process that knew it.
        """
        scenario = self.scenarios[str(values[SCENARIO])]
        lost = None if known is None else self._find_loss(scenario, known)
        if known is not None and known.outcome is not None and lost is None:
            # Nothing is left that needs the agent or the world.
            yield False
            return
        if lost is not None:
            _log.warning(
                "%s runs again from its first message: %s was lost with the process that ran it",
                session,
                lost,
            )
        async with self.agent.open_trial(session, scenario.world):
            yield lost is not None

    def _find_loss(self, scenario: Scenario, known: Result) -> str | None:
        """Return the part of an interrupted simulation that can't be restored, or None."""
        has_ended = known.outcome is not None
        names = name_checks(scenario)
        if has_ended and (not names or find_stored_checks(known, names) is not None):
            return None
        if scenario.world is not None:
            return "its world"
        has_state = self.agent.is_made or isinstance(self.agent.agent, Runnable)
        return "the agent's state" if has_ended and has_state else None

    async def examine(self, result: Result, values: Mapping[str, JsonValue]) -> LaterVerdict | None:
        """Run the checks of a session that has ended, unless their verdict is stored already."""
        scenario = self.scenarios[str(values[SCENARIO])]
        names = name_checks(scenario)
        if not names or find_stored_checks(result, names) is not None:
            return None
        judged = read_criteria(result, scenario, self.judges)
        trial = self.agent.trials.get(result.session_id)
        state, world = (None, None) if trial is None else (trial.tested.state, trial.world)
        found = SimulationResult(scenario, result, classify_end(result), state, judged, world)
        checks = zip(names, scenario.checks, strict=True)
        verdicts = {name: await try_check(check, found) for name, check in checks}
        judge = SeparateJudge(names, with_reasons=True)
        verdict = Verdict(
            speaker=result.conversation.names[1],
            complete=all(one.finding is Finding.MET for one in verdicts.values()),
            findings={name: one.finding for name, one in verdicts.items()},
            reasons={
                name: FindingReason(text=one.reason, message=one.message)
                for name, one in verdicts.items()
                if one.reason
            },
        )
        return LaterVerdict(
            judge=judge,
            log=hash_log(result.messages, judge),
            answer="",
            verdict=verdict,
            created_at=datetime.now(UTC),
        )

    def passed(self, result: Result, values: Mapping[str, JsonValue]) -> bool:
        """Return whether a trial passed.

        Raises:
            MissingScoreError: The trial is inconclusive.
        """
        scenario = self.scenarios[str(values[SCENARIO])]
        found = read_simulation(result, scenario, name_checks(scenario), self.judges)
        try:
            return found.passed
        except InconclusiveResult as error:
            raise MissingScoreError(str(error)) from None


SuiteLike: TypeAlias = Suite | Mapping[str, Any] | str | Path
"""A suite, or a dict or file that contains it."""


@hide_frames
@list_options
async def arun_suite(
    suite: SuiteLike,
    agent: object = None,
    *,
    name: str | None = None,
    trials: int | None = None,
    concurrency: int = CONCURRENCY,
    retry_failed: bool = False,
    ray: str | None = None,
    **options: Unpack[SimulateOptions],
) -> SuiteReport:
    """Test an agent by many scenarios, as a batch, or resume such a run.

    Each scenario runs with each persona, ``trials`` times. Each simulation is an ordinary session
    of the batch ``name``. The same call again resumes the run: simulations that have ended
    do not run again, and an interrupted one continues at its next message. In it, the agent begins
    a new thread, which receives all messages so far. An interrupted simulation with a world, or
    whose checks read the agent's state, begins again, which a warning says.

    Args:
        suite: The suite, or a dict or file (``.toml``, ``.json``) that contains it.
        agent: The agent, as `simulate` accepts it. All simulations share an agent that
            ``make_agent`` does not make.
        name: The batch's name. If None, the file's name without its extension.
        trials: Number of simulations of each scenario with each persona. If None, the suite's.
        concurrency: Maximum number of simulations that run at once.
        retry_failed: Whether simulations that failed with an error run again.
        ray: The address of a Ray cluster, or ``auto``, as in `run_batch`.
        **options: The options of `simulate`, for all simulations.

    Returns:
        The report. Its simulations may have failed, or may be inconclusive or unfinished.

    Raises:
        TypeError: The agent or an option has a wrong type.
        SpecError: The suite is not valid, or the agent can't be imported.
        BatchError: The name belongs to a run with another agent, agent version or scenario; another
            process runs the batch; or many simulations in a row failed with the same error.
        ModelUnavailableError: A model is not available, which stops the run.
        StoreError: The store can't be opened or written.

    Example:
        >>> from duologue import Scenario
        >>> from duologue.graphs.scenarios import run_suite
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> def shop(messages):
        ...     return "Order 7 is refunded."
        >>> def answer(prompt):
        ...     is_first = not any(one["role"] == "assistant" for one in prompt)
        ...     return "Please refund order 7." if is_first else "###STOP###"
        >>> suite = {"scenarios": {"refund": Scenario("Get order 7 refunded")}}
        >>> model = ScriptedChatModel(answer)
        >>> report = run_suite(suite, shop, name="shop", trials=3, model=model, store="memory:docs")
        >>> report.verdict, report.passed
        ('passed', 3)
    """
    settings = BatchSettings(name, concurrency, retry_failed, ray, PATIENCE)
    async with open_suite(suite, agent, settings, options, trials=trials) as driver:
        row = await driver.run()
    async with known_store(options.get("store")) as store:
        return await read_suite(store, row.batch)


run_suite = in_background(arun_suite)


@asynccontextmanager
async def open_suite(
    source: SuiteLike,
    agent: object,
    settings: BatchSettings,
    options: SimulateOptions,
    *,
    trials: int | None = None,
) -> AsyncIterator[Driver]:
    """Check a suite and its agent, lease its batch, and yield the driver that runs it."""
    check_options(options, SimulateOptions, "name", "trials", "concurrency")
    given: dict[str, Any] = {**options}
    judges = name_judges(given.pop("judge_model", None), cast("Options", given))
    given.update(judges.options)
    judge_model, second_judge = (*judges.names, None)[:2]
    suite = source if isinstance(source, Suite) else load_suite(source)
    if trials is not None:
        suite = type(suite)(**dict(suite) | {"trials": trials})
    worldless = (f"scenario {name!r}" for name, one in suite.scenarios.items() if not one.world)
    version = given.get("agent_version")
    tested = SuiteAgent.take(agent, given, worldless=next(worldless, ""))
    tools = (tool for one in suite.scenarios.values() for tool in one.user_tools)
    add_objects(given, AGENT, tested.runnable(), tools)
    judge = SuiteJudge(suite.scenarios, tested, judges.names if second_judge else ())
    # As they are read from the store.
    facts = {
        **suite.facts(),
        "agent": str(tested.agent)
        if isinstance(tested.agent, ModelServer)
        else tested.reference or tested.name,
        "agent_version": version,
        "judge_model": [*judges.names] if second_judge else judge_model,
    }
    changed = {
        "name": settings.name or batch_name(None, source if isinstance(source, str | Path) else {}),
        "scores": {"passed": judge.passed},
        "facts": json.loads(canonical_json(facts)),
        "examine": judge.examine,
        "enclose": judge.enclose,
        "second_judge": second_judge,
        # Its report is named after the suite, not after the goal of one scenario.
        "title": "",
    }
    batch = suite.batch(judge_model)
    run = BatchSettings(**vars(settings) | changed)
    async with open_driver(batch, run, cast("Options", given)) as driver:
        yield driver
