"""Tests of agents by simulated users: a scenario, its simulation, and the verdicts about it.

`simulate` runs the short form `simulation` as a new session, then asks a judge about the criteria,
and calls the checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Unpack, cast

from ...nodes.models.adapters.composed import Chat
from ..common.errors import SpecError, name_type
from ..common.model_help import check_options, list_options
from ..common.threads import in_background
from ..ends.all_ends import Reason
from ..kinds.simulation import DONE, GIVE_UP, HAND_OVER
from ..log.heard_text import done_tokens, heard_text
from ..log.messages import metadata
from ..session.converse import aconverse
from ..session.options import Options, StoreOptions
from ..session.session import Result
from .checks import run_check
from .judging import Judges, judge_scenario, name_judges
from .result import SimulationResult
from .scenario import Ending, EndKind, Scenario, ScenarioVerdict
from .script import begins_with_agent
from .scripted_run import ScriptedRun, make_scripted
from .tested_agent import OnInterrupt, TestedAgent

_TOKENS: Final[Mapping[str, EndKind]] = {
    # A user that says several words is taken at its worst.
    GIVE_UP: "gave_up",
    HAND_OVER: "handed_over",
    DONE: "done",
}


class SimulateOptions(StoreOptions, total=False):
    """The options of `simulate`: the options of a run, and the judge's model."""

    judge_model: Chat | str | Sequence[Chat | str] | None
    """The model that judges the criteria: a LangChain chat model, or a model's name. The option
    ``model`` if None. If it is a list of two models, both judge, and a criterion on which they
    differ is inconclusive."""
    on_interrupt: OnInterrupt | None
    """A function, sync or async, that receives the value of a graph's ``interrupt()`` and returns
    the answer; or ``"user"``: the simulated user reads the value as the agent's message, and its
    next message is the answer. The graph needs a checkpointer. If None, an interrupt is an
    error."""
    agent_timeout: float | None
    """Seconds after which a reply of the agent is cancelled, which is an error. 300 if None."""
    agent_version: str | None
    """A version of the agent, such as a commit. ``pytest --simulate-resume`` and `run_suite` refuse
    to continue a run with another version. If None, changes of the agent are not noticed."""


@list_options
async def asimulate(
    scenario: Scenario,
    agent: object,
    **options: Unpack[SimulateOptions],
) -> SimulationResult:
    """Test an agent by a conversation with a simulated user.

    Each call runs a new session. The agent receives only the messages of the conversation, with the
    roles of the user and the assistant, and no system prompt. After the end, a judge is asked once
    about all criteria, and the checks are called.

    Args:
        scenario: The scenario.
        agent: The agent: a compiled graph, an agent of ``create_agent`` or another Runnable; a
            function, sync or async, that accepts the list of messages and returns text, a message
            or a state with ``messages``; the URL of an OpenAI-compatible server, such as
            ``http://127.0.0.1:8000/v1``; or the address of an A2A endpoint, such as
            ``a2a:http://127.0.0.1:2024/a2a/…``. A graph with a checkpointer, or on a LangGraph
            server (a ``RemoteGraph``), has one thread for the whole conversation and receives only
            the new messages. A server is called without a key and
            with the model name ``agent``; for other values pass a ``ChatOpenAI``.
        **options: The options of the run. ``model`` is the model of the simulated user.

    Returns:
        The result. If the judge's answer can't be read or contradicts itself, the verdicts are
        inconclusive.

    Raises:
        TypeError: The agent has a wrong type, or an option is unknown.
        SpecError: The scenario is not valid, or the agent or a check raised an error.
        DuologueError: The conversation failed, as in `converse`.

    Example:
        >>> from duologue import Scenario, simulate
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> def shop(messages):
        ...     return "Order 7 is refunded."
        >>> model = ScriptedChatModel(script=["Please refund order 7.", "###STOP###"])
        >>> result = simulate(Scenario("Get order 7 refunded"), shop, model=model, store="memory:")
        >>> result.passed, str(result.ended)
        (True, "the user's goal is met")
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"scenario: must be a Scenario, not {name_type(scenario)}")
    check_options(options, SimulateOptions, "agent")
    given: dict[str, Any] = {**options}
    judge_model = given.pop("judge_model", None)
    given.pop("agent_version", None)
    own = given.pop("on_interrupt", None), given.pop("agent_timeout", None)
    tested = TestedAgent.of(agent, *own)
    tested.speaks_first = scenario.script is not None and begins_with_agent(scenario.script)
    judges = name_judges(judge_model, cast("Options", given))
    conversation = scenario.conversation(tested.runnable())
    if scenario.script is None:
        found = await aconverse(conversation, **given)
        return await conclude(scenario, found, ending_of(found), tested, judges)
    if given.get("answer") is not None:
        raise SpecError("answer: a script answers each question; remove the option or the script")
    run = ScriptedRun(
        make_scripted(conversation, scenario.script),
        tested,
        cast("Options", given),
        partial(judge_scenario, scenario, judges=judges),
        lambda found, known: SimulationResult(
            scenario, found, ending_of(found), tested.state, known
        ),
    )
    found = await run.play(scenario.script)
    if run.failure:
        ended = Ending("script_failed", found.stop_reason, run.failure)
        known = (*run.judged, *run.checked)
        return SimulationResult(scenario, found, ended, tested.state, known)
    ended = (
        Ending("script_finished", found.stop_reason, "") if run.is_finished else ending_of(found)
    )
    return await conclude(scenario, found, ended, tested, judges, run.checked)


simulate = in_background(asimulate)


async def conclude(
    scenario: Scenario,
    found: Result,
    ended: Ending,
    tested: TestedAgent,
    judges: Judges,
    checked: Sequence[ScenarioVerdict] = (),
) -> SimulationResult:
    """Ask the judges about the criteria, and call the checks."""
    found, judged = await judge_scenario(scenario, found, judges=judges)
    known = (*judged, *checked)
    result = SimulationResult(scenario, found, ended, tested.state, known)
    last = [await run_check(one, result) for one in scenario.checks]
    return replace(result, verdicts=(*known, *last))


def ending_of(found: Result) -> Ending:
    """Return how a conversation with a simulated user ended."""
    if found.outcome is None:
        waits = ", ".join(one.summary() for one in found.pending)
        return Ending("unfinished", None, waits)
    user = found.conversation.names[0]
    if found.outcome.reason is Reason.DONE_TOKEN:
        for message in reversed(found.messages):
            about = metadata(message)
            if about.speaker != user or not about.is_spoken:
                continue
            said = done_tokens(found.conversation, user, message.text, found.messages)
            kind = next((kind for token, kind in _TOKENS.items() if token in said), None)
            if kind is not None:
                rest = heard_text(found.conversation, message, about).strip(" \n:,;-")
                return Ending(kind, found.stop_reason, rest if kind == "gave_up" else "")
    return Ending("stopped", found.stop_reason, "; ".join(found.outcome.explanations))
