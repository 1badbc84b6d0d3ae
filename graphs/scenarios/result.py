"""The result of a simulation, and its report."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from langchain_core.messages import AIMessage, ToolMessage

from ..common.errors import InconclusiveResult, hide_frames
from ..common.sanitize import excerpt
from ..conversation.judges import Finding
from ..ends.end_chat import Reason
from ..kinds.simulation import DONE, GIVE_UP, HAND_OVER, OUT_OF_SCOPE
from ..log.heard_text import done_tokens, heard_text
from ..log.messages import metadata, place_of
from ..log.transcript import NO_REPLY, transcript_lines
from ..session.session import Result, Session
from .scenario import USER_KEPT, Ending, EndKind, Scenario, ScenarioVerdict, UserTurn
from .user_errors import Turn, UserError, find_user_errors


@dataclass(frozen=True)
class Agreement:
    """The agreement of two judges. ``str(agreement)`` is a short description."""

    count: int
    """Number of criteria that both have judged."""
    agreed: int
    """Number of criteria with the same decision."""
    kappa: float | None
    """Cohen's κ: 1 is full agreement, 0 is the agreement of chance. None if it is not defined,
    because both always decided the same."""

    def __str__(self) -> str:
        kappa = "not defined" if self.kappa is None else f"{self.kappa:.2f}"
        return f"the judges agree on {self.agreed} of {self.count} criteria (κ {kappa})"


def measure_agreement(verdicts: Iterable[ScenarioVerdict]) -> Agreement | None:
    """Return the agreement of two judges on the criteria of one or many simulations.

    Args:
        verdicts: The verdicts. Those of checks and of a single judge are left out.

    Returns:
        The agreement. None if no criterion has two judges.
    """
    pairs = [tuple(one.finding for one in verdict.opinions) for verdict in verdicts]
    pairs = [pair for pair in pairs if len(pair) == 2]  # two judges
    if not pairs:
        return None
    count, agreed = len(pairs), sum(one is other for one, other in pairs)
    firsts, seconds = (Counter(found) for found in zip(*pairs, strict=True))
    # Equals 1 if each judge always decided the same.
    by_chance = sum(firsts[one] * seconds[one] for one in Finding) / count**2
    kappa = None if by_chance == 1 else (agreed / count - by_chance) / (1 - by_chance)
    return Agreement(count, agreed, kappa)


_SHOWN_MESSAGES: Final = 6  # messages of a report if no verdict names a message

Fault: TypeAlias = Literal["agent", "user", "judge", "run"]
"""The side that made a simulation fail or made it inconclusive."""


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
    world: Any = field(default=None, repr=False, compare=False)
    """The world of the simulation, which is closed after the checks. None if it has none."""

    def __repr__(self) -> str:
        """Return a short text. `report` shows more, and pytest prints both."""
        outcome = describe_outcome(self.outcome, self.reasons)
        return f"<SimulationResult of {self.session.id!r}: {outcome}>"

    def __bool__(self) -> bool:
        """Return `passed`, so that ``assert simulate(…)`` fails if the agent fails."""
        return self.passed

    @property
    def session(self) -> Session:
        """The handle of the conversation's session."""
        return self.conversation.session

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """Pairs of speaker and text, oldest first."""
        return self.conversation.transcript

    @property
    @hide_frames
    def passed(self) -> bool:
        """Return whether the agent has passed.

        False if the kind of end is not one of the scenario's ``accepted_ends``, or if a verdict is
        not met. True if all verdicts are met.

        Raises:
            InconclusiveResult: The simulated user made an error, and no check has failed; or a
                verdict is inconclusive, and nothing has failed.
        """
        match self.at_fault:
            case "user":
                raise InconclusiveResult(
                    f"user: {self.user_errors[0]}; use a larger model for the user, make the "
                    "scenario more precise, or set user_errors='ignore'"
                )
            case "judge":
                open_verdict = next(
                    one for one in self.verdicts if one.finding is Finding.INCONCLUSIVE
                )
                what = "criteria"
                if open_verdict.name not in (*self.scenario.criteria, USER_KEPT):
                    what, remedy = "checks", "correct the check"
                elif open_verdict.is_readable:
                    remedy = "read the report, and make the criterion or the judge more precise"
                else:
                    remedy = "choose a judge that answers in the format, such as a larger model"
                raise InconclusiveResult(
                    f"{what}: inconclusive, {open_verdict.name!r}: {open_verdict.reason}; {remedy}"
                )
        return self.at_fault is None

    @property
    def outcome(self) -> Literal["passed", "failed", "inconclusive"]:
        """Return the outcome: `passed` as a word, without an exception."""
        if self.at_fault is None:
            return "passed"
        return "inconclusive" if self.at_fault in ("user", "judge") else "failed"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the reasons why the agent has not passed, the decisive one first.

        They are verdicts, errors of the user, and an end that is not one of the scenario's
        ``accepted_ends``. Empty if the agent has passed.
        """
        return tuple(text for _, text in self._list_faults())

    @property
    def at_fault(self) -> Fault | None:
        """Return the side that made the simulation fail or made it inconclusive.

        - ``"agent"``: A check is not met; or, without an error of the user, a criterion is not met
          or the end is not one of the scenario's ``accepted_ends``.
        - ``"user"``: The simulated user made an error, see `user_errors`.
        - ``"judge"``: A verdict is inconclusive.
        - ``"run"``: The conversation has not ended.
        - None: The agent has passed.
        """
        return next((fault for fault, _ in self._list_faults()), None)

    def _list_faults(self) -> Iterator[tuple[Fault, str]]:
        """Yield each reason why the agent has not passed, the decisive one first, with its side."""
        own = [one for one in self.verdicts if one.name != USER_KEPT]
        unmet = [one for one in own if one.finding is Finding.NOT_MET]
        criteria = {*self.scenario.criteria}
        yield from (("agent", str(one)) for one in unmet if one.name not in criteria)
        kind, accepted = self.ended.kind, self.scenario.accepted_ends
        if kind == "unfinished":
            waits = f"; it waits for a person: {self.ended.text}" if self.ended.text else ""
            yield "run", f"it has not ended{waits}"
        yield from (("user", f"[user error] {one}") for one in self.user_errors)
        # The verdict for which a script has failed is a separate reason.
        if kind not in (*accepted, "unfinished") and not (kind == "script_failed" and unmet):
            expected = " or ".join(f'"{one}"' for one in accepted)
            yield "agent", f'ended as "{self.ended}", expected {expected}'
        yield from (("agent", str(one)) for one in unmet if one.name in criteria)
        unclear = (one for one in own if one.finding is Finding.INCONCLUSIVE)
        yield from (("judge", str(one)) for one in unclear)

    @cached_property
    def user_errors(self) -> tuple[UserError, ...]:
        """Return the errors of the simulated user. Empty if the scenario ignores them."""
        if self.scenario.user_errors == "ignore":
            return ()
        judged = (
            UserError("instructions", one.reason, one.message)
            for one in self.verdicts
            if one.name == USER_KEPT and one.finding is Finding.NOT_MET
        )
        return (*find_user_errors(self.scenario, [*_list_turns(self)]), *judged)

    @property
    def agreement(self) -> Agreement | None:
        """The agreement of two judges on the criteria. None if there is only one judge."""
        return measure_agreement(self.verdicts)

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
        """Return a short text that begins with the outcome and its decisive reason.

        The end, the verdicts, and the part of the transcript that they name follow.
        """
        expected = self.ended.kind in self.scenario.accepted_ends
        wish = "" if expected else f" (expected: {', '.join(self.scenario.accepted_ends)})"
        return "\n".join(
            [
                describe_outcome(self.outcome.capitalize(), self.reasons),
                f"Scenario: {excerpt(self.scenario.goal)}",
                f"Ended: {self.ended}{wish}",
                *map(str, self.verdicts),
                *(f"[user error] {one}" for one in self.user_errors),
                f"Session: {self.session.id}",
                *self.decisive_lines(),
            ]
        )

    def decisive_lines(self) -> Iterator[str]:
        """Yield the lines of the transcript around the messages that decided the outcome.

        They are the messages of verdicts that are not met, and of errors of the user.
        """
        lines = [line.text for line in transcript_lines(self.conversation.messages)]
        unmet = (one.message for one in self.verdicts if one.finding is not Finding.MET)
        named = filter(None, [*unmet, *(one.message for one in self.user_errors)])
        near = {at + step for at in named for step in (-1, 0, 1)}
        shown = [at for at in range(1, len(lines) + 1) if at in near]
        shown = shown or [*range(1, len(lines) + 1)][-_SHOWN_MESSAGES:]
        for before, at in pairwise([0, *shown]):
            if at != before + 1:
                yield "…"
            yield f"{at}. {lines[at - 1]}"
        if shown and shown[-1] != len(lines):
            yield "…"


def describe_outcome(name: str, reasons: Sequence[str], mark: str = ": ") -> str:
    """Return an outcome with its decisive reason, and the number of other reasons."""
    others = len(reasons) - 1
    more = f" (and {others} more {'reason' if others == 1 else 'reasons'})" if others > 0 else ""
    return f"{name}{mark}{excerpt(reasons[0])}{more}" if reasons else name


def _list_turns(result: SimulationResult) -> Iterator[Turn]:
    """Yield the texts that the simulated user has written or read."""
    found = result.conversation
    user, agent = found.conversation.names
    numbers: dict[str, int] = {}
    for number, line in enumerate(transcript_lines(found.messages), start=1):
        numbers.setdefault(line.place, number)
    fixed = {step.text for step in result.scenario.script or () if isinstance(step, UserTurn)}
    for message in found.messages:
        about = metadata(message)
        if (at := numbers.get(place_of(message))) is None:
            continue
        is_text = not isinstance(message, ToolMessage)
        is_by_user = is_text and about.speaker == user and message.text not in fixed
        is_by_agent = is_text and about.speaker == agent
        # The user does not see the results of the agent's tools.
        if is_text or about.speaker == user:
            said = done_tokens(found.conversation, user, message.text, found.messages)
            text = heard_text(found.conversation, message, about)
            yield Turn(at, text, is_by_user, is_by_agent, tuple(said))


def find_blank_reply(found: Result) -> ScenarioVerdict | None:
    """Return the verdict that the agent has replied without text, or None.

    Text that a tool has delivered is a reply, too.
    """
    agent = found.conversation.names[1]
    for at, line in enumerate(transcript_lines(found.messages), start=1):
        if line.text == f"{agent}: {NO_REPLY}":
            reason = "a reply of the agent has no text"
            return ScenarioVerdict("the agent replied", Finding.NOT_MET, reason, at)
    return None


_TOKENS: Final[Mapping[str, EndKind]] = {
    # A user that says several words is taken at its worst.
    GIVE_UP: "gave_up",
    OUT_OF_SCOPE: "gave_up",
    HAND_OVER: "handed_over",
    DONE: "done",
}


def classify_end(found: Result) -> Ending:
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
