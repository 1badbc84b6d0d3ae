"""Tests of agents by simulated users: a scenario, its simulation, and the verdicts about it.

`simulate` runs the short form `simulation` as a new session, then asks a judge about the criteria,
and calls the checks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, Unpack, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from ...nodes.models.adapters.composed import Chat
from ..common.content import Content, make_content
from ..common.data import NamedObject
from ..common.errors import SpecError, hide_frames, name_type
from ..common.hints import suggest_value
from ..common.model_help import check_options, list_options
from ..common.threads import in_background
from ..conversation.conversation import Conversation
from ..conversation.judges import Finding
from ..conversation.questions import MessageQuestion
from ..log.messages import metadata, place_of
from ..log.transcript import transcript_lines
from ..session.converse import aconverse
from ..session.options import GivenAnswer, Options, StoreOptions
from ..session.run import run_to_end
from ..session.session import Result, Session, result_of
from ..speakers.replies import AgentReply, HumanReply
from .judging import Judges, judge_scenario, name_judges, run_check
from .result import SimulationResult, classify_end
from .scenario import (
    AgentTurn,
    CheckNow,
    Ending,
    Proceed,
    Scenario,
    ScenarioVerdict,
    Step,
    UserTurn,
    begins_with_agent,
)
from .tested_agent import AgentSource, OnInterrupt, TestedAgent
from .world import open_world


class SimulateOptions(StoreOptions, total=False):
    """The options of `simulate`: the options of a run, and the judge's model."""

    judge_model: Chat | str | Sequence[Chat | str] | None
    """The model that judges the criteria: a LangChain chat model, or a model's name. The option
    ``model`` if None. If it is a list of two models, both judge, and a criterion on which they
    differ is inconclusive."""
    make_agent: Callable[..., Any] | str | None
    """A function, sync or async, that returns a new agent for each simulation, in place of the
    agent itself; or ``module:name``, which is imported. If it has a parameter, it receives the
    scenario's world. None if the agent is passed."""
    on_interrupt: OnInterrupt | None
    """A function, sync or async, that receives the value of a graph's ``interrupt()`` and returns
    the answer; or ``"user"``: the simulated user reads the value as the agent's message, and its
    next message is the answer. The graph needs a checkpointer. If None, an interrupt is an
    error."""
    agent_model: str | None
    """The name of the model at a server whose URL is the agent. ``agent`` if None."""
    agent_key_env: str | None
    """The environment variable with the key of a server whose URL is the agent. The server receives
    no key if None."""
    agent_timeout: float | None
    """Seconds after which a reply of the agent is cancelled, which is an error. 300 if None."""
    agent_version: str | None
    """A version of the agent, such as a commit. ``pytest --simulate-resume`` and `run_suite` refuse
    to continue a run with another version. If None, changes of the agent are not noticed."""


@hide_frames
@list_options
async def asimulate(
    scenario: Scenario,
    agent: object = None,
    **options: Unpack[SimulateOptions],
) -> SimulationResult:
    """Test an agent by a conversation with a simulated user.

    Each call runs a new session. The agent receives only the messages of the conversation, with the
    roles of the user and the assistant, and no system prompt. After the end, a judge is asked once
    about all criteria, and the checks are called.

    Args:
        scenario: The scenario.
        agent: The agent: a compiled graph, an agent of ``create_agent`` or another Runnable; a
            function or a generator, sync or async, that accepts the list of messages and returns
            or yields text, a message, messages or a state with ``messages``; the URL of an
            OpenAI-compatible server, such as ``http://127.0.0.1:8000/v1``, with ``agent_model`` and
            ``agent_key_env``; the address of an A2A endpoint, such as
            ``a2a:http://127.0.0.1:2024/a2a/shop``; or an `HttpAgent`. A graph with a checkpointer,
            or on a LangGraph server (a ``RemoteGraph``), has one thread for the whole conversation
            and receives only the new messages. ``module:name`` is imported. None if ``make_agent``
            makes it.
        **options: The options of the run. ``model`` is the model of the simulated user.

    Returns:
        The result. If the judge's answer can't be read or contradicts itself, the verdicts are
        inconclusive.

    Raises:
        TypeError: The agent has a wrong type, or an option is unknown.
        SpecError: The scenario is not valid, a text names no agent, or the agent, its world or a
            check raised an error.
        DuologueError: The conversation failed, as in `converse`.

    Example:
        >>> from duologue import Scenario, simulate
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> def shop(messages):
        ...     return "Order 7 is refunded."
        >>> model = ScriptedChatModel(script=["Please refund order 7.", "###STOP###"])
        >>> result = simulate(Scenario("Get order 7 refunded"), shop, model=model, store="memory:")
        >>> result.passed, str(result.ended)
        (True, 'the user says the goal is met')
    """
    _check_scenario(scenario)
    check_options(options, SimulateOptions, "agent")
    async with open_world(scenario.world) as world:
        run = await _Simulation.prepare(scenario, agent, options, world)
        script = scenario.script
        run.tested.speaks_first = script is not None and begins_with_agent(script)
        conversation = scenario.conversation(run.tested.runnable())
        if script is None:
            return await run.conclude(await aconverse(conversation, **run.options))
        if run.options.get("answer") is not None:
            raise SpecError(
                "answer: a script answers each question; remove the option or the script"
            )
        return await run.play(_wait_for_script(conversation, script), script)


simulate = in_background(asimulate)


def _check_scenario(scenario: object) -> None:
    if not isinstance(scenario, Scenario):
        remedy = suggest_value("scenario", scenario)
        raise TypeError(f"scenario: must be a Scenario, not {name_type(scenario)}{remedy}")


@hide_frames
@list_options
async def arerun_simulation(
    session: Session,
    scenario: Scenario,
    agent: object = None,
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
        SpecError: The message does not exist or is the first one, the session is not a
            simulation, the scenario has a script or a world, or a text names no agent.
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
    if not isinstance(session, Session):
        raise TypeError(
            f"session: must be a Session, not {name_type(session)}; pass result.session or "
            "Session('ID', store=…)"
        )
    _check_scenario(scenario)
    check_options(options, SimulateOptions, "at")
    if scenario.script is not None:
        raise SpecError("scenario.script: a script can't begin in its middle; remove it")
    if scenario.world is not None:
        raise SpecError(
            "scenario.world: a new world does not contain what was done before the message; call "
            "simulate, which begins with the first message"
        )
    if options.get("store") is not None:
        raise TypeError("store: the session names its store; leave out the option")
    run = await _Simulation.prepare(scenario, agent, options, None)
    found = await session.astate()
    name = _name_agent(found.conversation)
    fork = await session.afork(at=_find_place_before(found.messages, at))
    given: dict[str, Any] = {**run.options}
    given.pop("store", None)
    add_objects(given, name, run.tested.runnable(), scenario.user_tools)
    return await run.conclude(await fork.aresume(**given))


rerun_simulation = in_background(arerun_simulation)


def _name_agent(conversation: Conversation) -> str:
    """Return the name of the agent under test in a simulation."""
    replies = conversation.speakers[1].replies if len(conversation.speakers) > 1 else ()
    name = next((one.name for one in replies if isinstance(one, AgentReply)), None)
    if name is None:
        raise SpecError(
            "session: no registered agent replies in it; pass the session of a simulation of an "
            "agent"
        )
    return str(name)


def _find_place_before(log: Sequence[BaseMessage], at: int) -> str:
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


@dataclass
class _Simulation:
    """A simulation, with its verdicts so far.

    In a scripted conversation, both speakers are first asked as people are. A fixed text is their
    answer; an empty answer leaves the turn to the simulated user or to the agent. Between two turns
    nobody uses the session, so checks and judges read its state.
    """

    scenario: Scenario
    """The scenario."""
    tested: TestedAgent
    """The agent."""
    judges: Judges
    """The judges of the criteria."""
    options: Options
    """The options of the run."""
    world: Any
    """The world. None if the scenario has none."""
    judged: tuple[ScenarioVerdict, ...] = ()
    """The newest verdicts about the criteria."""
    checked: list[ScenarioVerdict] = field(default_factory=list)
    """The verdicts of the checks so far."""

    @classmethod
    async def prepare(
        cls, scenario: Scenario, agent: object, options: SimulateOptions, world: object
    ) -> Self:
        """Return a simulation that has not begun."""
        given: dict[str, Any] = {**options}
        worldless = "" if scenario.world else "the scenario"
        source = AgentSource.take(agent, given, worldless=worldless)
        tested = source.test(await source.make(world))
        judge_model, run = given.pop("judge_model", None), cast("Options", given)
        judges = name_judges(judge_model, run)
        return cls(scenario, tested, judges, run, world)

    def make_result(self, found: Result, ended: Ending | None = None) -> SimulationResult:
        """Return the result with the verdicts so far."""
        known = (*self.judged, *self.checked)
        end = ended or classify_end(found)
        return SimulationResult(self.scenario, found, end, self.tested.state, known, self.world)

    async def conclude(self, found: Result, ended: Ending | None = None) -> SimulationResult:
        """Ask the judges about the criteria, and call the checks."""
        found, self.judged = await judge_scenario(self.scenario, found, judges=self.judges)
        result = self.make_result(found, ended)
        last = [await run_check(one, result) for one in self.scenario.checks]
        return replace(result, verdicts=(*result.verdicts, *last))

    async def play(self, conversation: Conversation, script: Sequence[Step]) -> SimulationResult:
        """Do the steps of a script in order. After a step that failed, no other step is done."""
        found = await aconverse(conversation, **self.options)
        failure: Ending | None = None
        for number, step in enumerate(script, start=1):
            found, verdicts = await self._do_step(step, found, conversation)
            failed = next((one for one in verdicts if one.finding is Finding.NOT_MET), None)
            if failed is not None:
                failure = Ending("script_failed", None, f"step {number}: {failed}")
                break
        ended = None
        if _find_next_speaker(found) is not None:
            # Nobody will write the next message.
            await found.session.astop()
            found = await found.session.astate()
            ended = Ending("script_finished", found.stop_reason, "")
        if failure is not None:
            return self.make_result(found, replace(failure, stop_reason=found.stop_reason))
        return await self.conclude(found, ended)

    async def _do_step(
        self, step: Step, found: Result, conversation: Conversation
    ) -> tuple[Result, Sequence[ScenarioVerdict]]:
        """Do a step. Return the session after it, and the verdicts of a check or a judge."""
        match step:
            case UserTurn(text=text, files=files):
                content = make_content(text or "", files)
                return await self._take_turn(found, content, conversation), ()
            case AgentTurn(text=text):
                return await self._take_turn(found, text or "", conversation), ()
            case Proceed(rounds=rounds):
                user, replies = conversation.names[0], 0
                while (speaker := _find_next_speaker(found)) and (
                    rounds is None or replies < rounds
                ):
                    replies += speaker != user
                    found = await self._take_turn(found, "", conversation)
                return found, ()
            case CheckNow(check=check):
                self.checked.append(await run_check(check, self.make_result(found)))
                return found, self.checked[-1:]
        found, self.judged = await judge_scenario(self.scenario, found, judges=self.judges)
        return found, self.judged

    async def _take_turn(self, found: Result, said: Content, conversation: Conversation) -> Result:
        """Let the next speaker say this, or reply by itself. An ended session stays as it is."""
        speaker = _find_next_speaker(found)
        if speaker is None:
            return found
        if said and speaker != conversation.names[0]:
            self.tested.scripted += 1
        answer = GivenAnswer(said)
        return result_of(
            *await run_to_end(conversation, found.session.id, self.options, reply=answer)
        )


def _find_next_speaker(found: Result) -> str | None:
    """Return the speaker whose turn the session waits for. None if it waits for no turn."""
    return next((one.speaker for one in found.pending if isinstance(one, MessageQuestion)), None)


_NEVER: Final = "###TERMINATE-SCRIPT###"
"""A termination word that nobody says. After such a word, an empty answer would end the session."""


def _wait_for_script(conversation: Conversation, script: Sequence[Step]) -> Conversation:
    """Return a conversation in which both speakers are asked before each turn."""
    asked = HumanReply(termination=_NEVER)
    replies = {one.name: {"replies": (asked, *one.replies)} for one in conversation.speakers}
    if not begins_with_agent(script):
        return conversation.replace(speakers=replies)
    # The instruction for the first message of a user would be an instruction for the agent.
    opening = {"first_speaker": conversation.names[1], "first_line": None}
    return conversation.replace(speakers=replies, opening=opening)


def add_objects(
    options: dict[str, Any], name: str, agent: Runnable[Any, Any], tools: Iterable[str]
) -> None:
    """Register the agent under test, and the users' tools that were passed as Python objects."""
    brought = [one.brought for one in dict.fromkeys(tools) if isinstance(one, NamedObject)]
    options["agents"] = {**(options.get("agents") or {}), name: agent}
    options["tools"] = [*(options.get("tools") or ()), *brought]
