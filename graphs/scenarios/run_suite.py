"""Running a suite of scenarios as a batch."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast

from ..batch.driver import CONCURRENCY, BatchSettings, Driver
from ..batch.limiter import PATIENCE
from ..batch.run import batch_name, open_driver
from ..common.model_help import check_options, list_options
from ..common.threads import in_background
from ..session.listing import known_store
from ..session.options import Options
from .judging import name_judges
from .simulate import SimulateOptions
from .suite import AGENT, Suite, import_object, load_suite, to_json
from .suite_agent import SuiteAgent, SuiteJudge
from .suite_report import SuiteReport, read_suite
from .tested_agent import is_address

SuiteLike: TypeAlias = Suite | Mapping[str, Any] | str | Path
"""A suite, or a dict or file that contains it."""


@list_options
async def arun_suite(
    suite: SuiteLike,
    agent: object,
    *,
    name: str | None = None,
    trials: int | None = None,
    concurrency: int = CONCURRENCY,
    retry_failed: bool = False,
    ray: str | None = None,
    **options: Unpack[SimulateOptions],
) -> SuiteReport:
    """Test an agent by many scenarios, as a batch, or resume such a run.

    Each scenario runs with each persona, ``trials`` times. Each simulation is a cell of the batch
    ``name``: an ordinary session. The same call again resumes the run: simulations that have ended
    do not run again, and an interrupted one continues at its next message. In it, the agent begins
    a new thread, which receives all messages so far.

    Args:
        suite: The suite, or a dict or file (``.toml``, ``.json``) that contains it.
        agent: The agent, as `simulate` accepts it; or ``module:name``, which is imported.
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
        suite = Suite(**dict(suite) | {"trials": trials})
    tested = _read_agent(agent, given.pop("on_interrupt", None), given.pop("agent_timeout", None))
    if tools := suite.tools():
        given["tools"] = [*(given.get("tools") or ()), *tools]
    given["agents"] = {**(given.get("agents") or {}), AGENT: tested.runnable()}
    judge = SuiteJudge(suite.scenarios, tested, judges.names if second_judge else ())
    facts = {
        **suite.facts(),
        "agent": tested.reference or tested.name,
        "agent_version": given.pop("agent_version", None),
        "judge_model": [*judges.names] if second_judge else judge_model,
    }
    own = {
        "name": settings.name or _name_of(source),
        "scores": {"passed": judge.passed},
        "facts": to_json(facts),
        "examine": judge.examine,
        "second_judge": second_judge,
        # Its report is named after the suite, not after the goal of one scenario.
        "title": "",
    }
    batch = suite.batch(judge_model)
    run = BatchSettings(**vars(settings) | own)
    async with open_driver(batch, run, cast("Options", given)) as driver:
        yield driver


def _name_of(source: SuiteLike) -> str:
    return batch_name(None, source if isinstance(source, str | Path) else {})


def _read_agent(agent: object, on_interrupt: Any, timeout: float | None) -> SuiteAgent:  # noqa: ANN401
    if isinstance(agent, str) and not is_address(agent):
        found = SuiteAgent(import_object(agent, "agent"), on_interrupt, timeout, agent)
    else:
        found = SuiteAgent(agent, on_interrupt, timeout)
    found.runnable()  # raises if the agent has a wrong type
    return found
