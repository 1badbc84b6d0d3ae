"""Tests of agents by simulated users: a scenario, its simulation, and the verdicts about it.

`simulate` runs the short form `simulation` as a new session, then asks a judge about the criteria,
and calls the checks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Unpack

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import AfterValidator, BaseModel, Field, create_model

from ..nodes.judge.verdicts import read_lines
from ..nodes.models.adapters.composed import Chat
from ..tools.registry.functions import call
from ..tools.registry.options import check_options, list_options
from .common.data import (
    Accepts,
    Cap,
    DistinctNames,
    Spec,
    Temperature,
    Text,
    check_distinct,
    default,
)
from .common.errors import InconclusiveResult, SpecError
from .common.sanitize import excerpt
from .common.threads import in_background
from .common.validation import name_type
from .conversation.conversation import Conversation
from .conversation.judges import MOST_CRITERIA, VERDICT_TEMPERATURE, Finding
from .ends.all_ends import Reason
from .kinds.simulation import DONE, GIVE_UP, HAND_OVER, simulation
from .log.heard_text import done_tokens, heard_text
from .log.messages import metadata
from .prompts.texts import fill_template, read_kind_prompt
from .session.ask import aask
from .session.converse import aconverse
from .session.options import StoreOptions
from .session.session import Result, Session
from .speakers.model_settings import ModelSettings
from .speakers.speaker import Speaker
from .tested_agent import OnInterrupt, TestedAgent

JUDGE = read_kind_prompt("simulation_judge")

JUDGE_QUESTION = read_kind_prompt("simulation_judge_question")

_SHOWN: Final = 6  # messages of a report if no verdict names a message

EndKind: TypeAlias = Literal["done", "gave_up", "handed_over", "stopped", "unfinished"]
"""The ways in which a simulation ends, as in `Ending.kind`."""

_TOKENS: Final[Mapping[str, EndKind]] = {
    # A user that says several words is taken at its worst.
    GIVE_UP: "gave_up",
    HAND_OVER: "handed_over",
    DONE: "done",
}
_WORDS: Final[Mapping[EndKind, str]] = {
    "done": "the user's goal is met",
    "gave_up": "the user gave up",
    "handed_over": "the agent passed the user to a person",
}


class Scenario(Spec):
    """A test of an agent by one simulated user.

    Raises:
        SpecError: A field is missing, unknown or wrong; names it.
    """

    goal: Text = Field(kw_only=False)
    """The user's private task, written to the user: "You want to …". The agent does not see it."""
    persona: Text | None = None
    """A description of the user and its style. No description if None."""
    knows: Text | None = None
    """The information that the user may reveal when it is needed. No information if None."""
    must_not_say: Text | None = None
    """The information that the user must not reveal. No such rule if None."""
    language: Text | None = None
    """The language in which the user writes. The model chooses if None."""
    tools: DistinctNames = ()
    """The tools that the user may call: registered names, or in Python the tools themselves."""
    criteria: Accepts[
        Annotated[tuple[Text, ...], AfterValidator(check_distinct)], Sequence[str]
    ] = Field(default=default(()), max_length=MOST_CRITERIA)
    """Statements about the conversation that a judge checks once, after the end."""
    checks: Accepts[tuple[Callable[..., Any], ...], Sequence[Callable[..., Any]]] = default(())
    """Functions, sync or async, that receive the `SimulationResult` after the end. A check is met
    if it returns True or None, and not met if it returns False or raises an AssertionError."""
    expected_ends: Accepts[tuple[EndKind, ...], Sequence[EndKind]] = Field(
        default=default(("done",)), min_length=1
    )
    """The kinds of end with which the simulation can pass: ``done``, ``gave_up``, ``handed_over``
    or ``stopped``, which is any cap or guard."""
    max_iterations: Cap = 10
    """Maximum number of rounds."""
    model: Text | None = None
    """The model of the simulated user. The option ``model`` of `simulate` if None."""
    temperature: Temperature = None
    """The temperature of the simulated user. 0.2 if None."""

    if TYPE_CHECKING:

        def __init__(self, goal: str, **fields: Any) -> None: ...

    def conversation(self, agent: Any) -> Conversation:  # noqa: ANN401  # any Runnable or name
        """Return the conversation of the simulated user with an agent.

        Args:
            agent: A Runnable, or the name of a registered agent.
        """
        own = {name: getattr(self, name) for name in _OF_CONVERSATION}
        user = {"name": "User", "model": self.model}
        return simulation(self.goal, agent=agent, user=user, **own)


_OF_CONVERSATION: Final = (
    *("persona", "knows", "must_not_say", "language", "tools", "max_iterations"),
    "temperature",
)


@dataclass(frozen=True)
class Ending:
    """The end of a simulation. ``str(ending)`` is a short description."""

    kind: EndKind
    """The kind of end: ``done``, ``gave_up``, ``handed_over``, ``stopped`` by a cap or a guard, or
    ``unfinished`` if the session waits for a person."""
    stop_reason: str | None
    """The reason of the session's end, such as ``"max_iterations"``. None if it has not ended."""
    text: str
    """The user's reason for giving up; for ``stopped``, the cause. Otherwise empty."""

    def __str__(self) -> str:
        words = _WORDS.get(self.kind, self.kind)
        return f"{words}: {self.text}" if self.text else words


@dataclass(frozen=True)
class ScenarioVerdict:
    """The verdict about one criterion or check."""

    name: str
    """The criterion, or the name of the check."""
    finding: Finding
    """The decision: met, not met or inconclusive."""
    reason: str
    """The reason. Empty for a check that is met."""
    message: int | None = None
    """The number of the message that shows it, as in the report. None if there is none."""

    def __str__(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        at = "" if self.message is None else f" (message {self.message})"
        return f"[{self.finding.in_words}] {self.name}{because}{at}"


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation: how it ended, what the agent did, and the verdicts."""

    scenario: Scenario
    """The scenario."""
    conversation: Result
    """The result of the conversation, with its messages and its outcome."""
    ended: Ending
    """How the conversation ended."""
    agent_state: Any = field(repr=False)
    """The agent's final state if it is a graph. None for other agents."""
    verdicts: tuple[ScenarioVerdict, ...] = ()
    """The verdicts about the criteria, then those of the checks."""

    @property
    def session(self) -> Session:
        """The handle of the conversation's session."""
        return self.conversation.session

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """Pairs of speaker and text, oldest first."""
        return self.conversation.transcript

    @property
    def passed(self) -> bool:
        """Return whether the agent has passed.

        False if the kind of end is not one of the scenario's ``expected_ends``, or if a verdict is
        not met. True if all verdicts are met.

        Raises:
            InconclusiveResult: A verdict is inconclusive, and nothing has failed.
        """
        findings = {one.finding for one in self.verdicts}
        if self.ended.kind not in self.scenario.expected_ends or Finding.NOT_MET in findings:
            return False
        open_verdict = next(
            (one for one in self.verdicts if one.finding is Finding.INCONCLUSIVE), None
        )
        if open_verdict is not None:
            raise InconclusiveResult(
                f"criteria: inconclusive, {open_verdict.name!r}: {open_verdict.reason}; read the "
                "report, and make the criterion or the judge more precise"
            )
        return True

    def tool_calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the names and the arguments of the agent's tool calls, oldest first."""
        agent = self.conversation.conversation.names[1]
        return [
            (one["name"], one["args"])
            for message in self.conversation.messages
            if isinstance(message, AIMessage) and metadata(message).speaker == agent
            for one in message.tool_calls
        ]

    def called(self, name: str, /, **arguments: Any) -> bool:  # any JSON value
        """Return whether the agent has called a tool.

        Args:
            name: The name of the tool.
            **arguments: Arguments that the call must have. It may have others, too.
        """
        return any(
            tool == name and all(key in args and args[key] == arguments[key] for key in arguments)
            for tool, args in self.tool_calls()
        )

    def report(self) -> str:
        """Return a short text: the end, the verdicts, and the part of the transcript they name."""
        expected = self.ended.kind in self.scenario.expected_ends
        wish = "" if expected else f" (expected: {', '.join(self.scenario.expected_ends)})"
        return "\n".join(
            [
                f"Scenario: {excerpt(self.scenario.goal)}",
                f"Ended: {self.ended}{wish}",
                *map(str, self.verdicts),
                f"Session: {self.session.id}",
                *self._decisive_lines(),
            ]
        )

    def _decisive_lines(self) -> Iterator[str]:
        lines = _numbered(self.conversation)
        named = [
            one.message
            for one in self.verdicts
            if one.finding is not Finding.MET and one.message is not None
        ]
        near = {at + step for at in named for step in (-1, 0, 1)}
        shown = [at for at in range(1, len(lines) + 1) if at in near]
        shown = shown or [*range(1, len(lines) + 1)][-_SHOWN:]
        for before, at in pairwise([0, *shown]):
            if at != before + 1:
                yield "…"
            yield f"{at}. {lines[at - 1]}"
        if shown and shown[-1] != len(lines):
            yield "…"


class SimulateOptions(StoreOptions, total=False):
    """The options of `simulate`: the options of a run, and the judge's model."""

    judge_model: Chat | str | None
    """The model that judges the criteria: a LangChain chat model, or a model's name. The option
    ``model`` if None."""
    on_interrupt: OnInterrupt | None
    """A function, sync or async, that receives the value of a graph's ``interrupt()`` and returns
    the answer. The graph needs a checkpointer. If None, an interrupt is an error."""
    agent_timeout: float | None
    """Seconds after which a reply of the agent is cancelled, which is an error. 300 if None."""


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
            or a state with ``messages``; or the URL of an OpenAI-compatible server, such as
            ``http://127.0.0.1:8000/v1``. A graph with a checkpointer has one thread for the whole
            conversation and receives only the new messages. A server is called without a key and
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
    judge_model = given.pop("judge_model", None) or given.get("model")
    own = given.pop("on_interrupt", None), given.pop("agent_timeout", None)
    tested = TestedAgent.of(agent, *own)
    found = await aconverse(scenario.conversation(tested.runnable()), **given)
    result = SimulationResult(scenario, found, _ending(found), tested.state)
    judged = await _judge(result, {**given, "model": judge_model}) if scenario.criteria else ()
    result = SimulationResult(scenario, found, result.ended, tested.state, judged)
    checked = [await _check(one, result) for one in scenario.checks]
    return SimulationResult(scenario, found, result.ended, tested.state, (*judged, *checked))


simulate = in_background(asimulate)


def _ending(found: Result) -> Ending:
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
            said = done_tokens(found.conversation, user, message.text)
            kind = next((kind for token, kind in _TOKENS.items() if token in said), None)
            if kind is not None:
                rest = heard_text(found.conversation, message, about).strip(" \n:,;-")
                return Ending(kind, found.stop_reason, rest if kind == "gave_up" else "")
    return Ending("stopped", found.stop_reason, "; ".join(found.outcome.explanations))


def _numbered(found: Result) -> list[str]:
    """Return the messages, tool calls and results of a conversation, one line of text each."""
    return [*_lines(found.messages)]


def _lines(log: Sequence[BaseMessage]) -> Iterator[str]:
    called: dict[str | None, str] = {}
    for message in log:
        about = metadata(message)
        if not about.is_spoken:
            continue
        if isinstance(message, ToolMessage):
            if message.tool_call_id in called:
                yield f"(result of {called[message.tool_call_id]}) {message.text}"
            continue
        if message.text.strip():
            yield f"{about.speaker}: {message.text.strip()}"
        for one in message.tool_calls if isinstance(message, AIMessage) else ():
            called[one["id"]] = one["name"]
            yield f"({about.speaker} called {one['name']} with {one['args']})"


class _Decision(BaseModel):
    """A judge's decision on one criterion."""

    reason: str = Field(description="The reason, in one sentence")
    message: int = Field(description="The number of the message that shows it, or 0")
    finding: Finding


async def _judge(
    result: SimulationResult, options: Mapping[str, Any]
) -> tuple[ScenarioVerdict, ...]:
    """Ask the judge once about all criteria."""
    criteria, lines = result.scenario.criteria, _numbered(result.conversation)
    fields: dict[str, Any] = {
        f"criterion_{number}": (_Decision, Field(description=text))
        for number, text in enumerate(criteria, start=1)
    }
    question = fill_template(
        JUDGE_QUESTION,
        goal=result.scenario.goal,
        transcript="\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1)),
        ended=result.ended,
        criteria="\n".join(f"{number}. {text}" for number, text in enumerate(criteria, start=1)),
    )
    judge = Speaker("Judge", JUDGE, model_settings=ModelSettings(temperature=VERDICT_TEMPERATURE))
    schema = create_model("Verdicts", **fields)
    answer = await aask(judge, question, schema=schema, on_failure="return", **options)
    if not isinstance(answer.output, Mapping):
        unread = "the judge's answer could not be read"
        return tuple(ScenarioVerdict(one, Finding.INCONCLUSIVE, unread) for one in criteria)
    return tuple(
        _verdict(criterion, _Decision.model_validate(one), len(lines))
        for criterion, one in zip(criteria, answer.output.values(), strict=True)
    )


def _verdict(criterion: str, decision: _Decision, count: int) -> ScenarioVerdict:
    """Return the verdict, which is inconclusive if the decision contradicts itself."""
    finding, message = decision.finding, decision.message
    reason = " ".join(decision.reason.split())
    if not 0 <= message <= count:
        reason = f"the judge named message {message}, but there are {count}"
        return ScenarioVerdict(criterion, Finding.INCONCLUSIVE, reason)
    in_words = read_lines(f"1. {reason}", [criterion])
    if in_words is not None and in_words[criterion] is not finding:
        reason = f"the judge decided {finding.in_words!r}, but wrote: {reason}"
        finding = Finding.INCONCLUSIVE
    return ScenarioVerdict(criterion, finding, reason, message or None)


async def _check(check: Callable[..., Any], result: SimulationResult) -> ScenarioVerdict:
    """Call a check."""
    name = getattr(check, "__name__", None) or type(check).__name__
    try:
        found = await call("check", name, check, result)
    except SpecError as error:
        if not isinstance(error.__cause__, AssertionError):
            raise
        reason = " ".join(str(error.__cause__).split()) or "an assertion failed"
        return ScenarioVerdict(name, Finding.NOT_MET, reason)
    if found is None or found is True:
        return ScenarioVerdict(name, Finding.MET, "")
    if found is False:
        return ScenarioVerdict(name, Finding.NOT_MET, "it returned False")
    raise SpecError(
        f"the check {name!r} failed: it must return True, False or None, not {name_type(found)}"
    )
