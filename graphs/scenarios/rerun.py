"""Running a part of a simulation again, from a message on, with a changed agent."""

from collections.abc import Sequence
from typing import Any, Unpack, cast

from langchain_core.messages import BaseMessage

from ..common.data import NamedObject
from ..common.errors import SpecError
from ..common.model_help import check_options, list_options
from ..common.threads import in_background
from ..conversation.conversation import Conversation
from ..log.messages import metadata, place_of
from ..log.transcript import transcript_lines
from ..session.options import Options
from ..session.session import Session
from ..speakers.replies import AgentReply
from .judging import name_judges
from .result import SimulationResult
from .scenario import Scenario
from .simulate import SimulateOptions, conclude, ending_of
from .tested_agent import TestedAgent


@list_options
async def arerun_simulation(
    session: Session,
    scenario: Scenario,
    agent: object,
    *,
    at: int,
    **options: Unpack[SimulateOptions],
) -> SimulationResult:
    """Run a simulation again from the message at which it went wrong, with a changed agent.

    The session is forked and does not change. The fork keeps the messages before the turn of the
    message ``at``; the turn and all later messages are new. A graph receives the kept messages in a
    new thread, so a state that it had beside the messages is not restored. Then the judge is asked
    and the checks are called, as in `simulate`.

    Args:
        session: The session of a `SimulationResult`, or of a suite's simulation.
        scenario: The scenario of the simulation, for its checks and expected ends.
        agent: The changed agent, as `simulate` accepts it.
        at: The number of a message, as in reports and in the reasons of verdicts.
        **options: The options of `simulate`, without ``store``: the session names it.

    Returns:
        The result of the fork.

    Raises:
        TypeError: The agent has a wrong type, or an option is unknown.
        SpecError: The message does not exist or is the first one, or the session is not a
            simulation.
        SessionError: The session does not exist.
        DuologueError: The conversation failed, as in `converse`.

    Example:
        >>> from duologue import Scenario, simulate
        >>> from duologue.graphs.scenarios import rerun_simulation
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> refund = Scenario("Get order 7 refunded")
        >>> script = ["Please refund order 7.", "###GIVE-UP### It refuses."]
        >>> model = ScriptedChatModel(script)
        >>> result = simulate(refund, lambda messages: "No.", model=model, store="memory:docs")
        >>> result.passed
        False
        >>> def polite(messages):
        ...     return "Order 7 is refunded."
        >>> model = ScriptedChatModel(["###STOP###"])
        >>> rerun_simulation(result.session, refund, polite, at=2, model=model).passed
        True
    """
    check_options(options, SimulateOptions, "at")
    if scenario.script is not None:
        raise SpecError("scenario.script: a script can't begin in its middle; remove it")
    given: dict[str, Any] = {**options}
    if given.pop("store", None) is not None:
        raise TypeError("store: the session names its store; leave out the option")
    judges = name_judges(given.pop("judge_model", None), cast("Options", given))
    own = given.pop("on_interrupt", None), given.pop("agent_timeout", None)
    tested = TestedAgent.of(agent, *own)
    found = await session.astate()
    name = _registered_agent(found.conversation)
    fork = await session.afork(at=_last_before(found.messages, at))
    given["agents"] = {**(given.get("agents") or {}), name: tested.runnable()}
    tools = [one.brought for one in scenario.tools if isinstance(one, NamedObject)]
    if tools:
        given["tools"] = [*(given.get("tools") or ()), *tools]
    again = await fork.aresume(**given)
    return await conclude(scenario, again, ending_of(again), tested, judges)


rerun_simulation = in_background(arerun_simulation)


def _registered_agent(conversation: Conversation) -> str:
    """Return the name of the agent under test in a simulation."""
    replies = conversation.speakers[1].replies if len(conversation.speakers) > 1 else ()
    name = next((one.name for one in replies if isinstance(one, AgentReply)), None)
    if name is None:
        raise SpecError(
            "session: no registered agent replies in it; pass the session of a simulation of an "
            "agent"
        )
    return str(name)


def _last_before(log: Sequence[BaseMessage], at: int) -> str:
    """Return the place of the last message before the turn of a numbered message."""
    lines = transcript_lines(log)
    if isinstance(at, bool) or not isinstance(at, int) or not 1 <= at <= len(lines):
        raise SpecError(
            f"at: there is no message {at!r}; the messages of this simulation have the numbers 1 "
            f"to {len(lines)}"
        )
    places = {line.place for line in lines}
    spoken = [one for one in log if place_of(one) in places]
    end = next(number for number, one in enumerate(spoken) if place_of(one) == lines[at - 1].place)
    speaker = metadata(spoken[end]).speaker
    before = (one for one in reversed(spoken[:end]) if metadata(one).speaker != speaker)
    kept = next(before, None)
    if kept is None:
        raise SpecError(
            f"at: no message precedes message {at}; run a new simulation, or name a later message"
        )
    return place_of(kept)
