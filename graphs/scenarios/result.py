"""The result of a simulation, and its report."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from langchain_core.messages import AIMessage

from ..common.errors import InconclusiveResult
from ..common.sanitize import excerpt
from ..conversation.judges import Finding
from ..log.messages import metadata
from ..log.transcript import transcript_lines
from ..session.session import Result, Session
from .agreement import Agreement, measure_agreement
from .scenario import Ending, Scenario, ScenarioVerdict

_SHOWN: Final = 6  # messages of a report if no verdict names a message


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

    def __repr__(self) -> str:
        """Return a short text. `report` shows more, and pytest prints both."""
        return f"<SimulationResult of {self.session.id!r}: {self.ended}>"

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

        False if the kind of end is not one of the scenario's ``accepted_ends``, or if a verdict is
        not met. True if all verdicts are met.

        Raises:
            InconclusiveResult: A verdict is inconclusive, and nothing has failed.
        """
        findings = {one.finding for one in self.verdicts}
        if self.ended.kind not in self.scenario.accepted_ends or Finding.NOT_MET in findings:
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
        """Return a short text: the end, the verdicts, and the part of the transcript they name."""
        expected = self.ended.kind in self.scenario.accepted_ends
        wish = "" if expected else f" (expected: {', '.join(self.scenario.accepted_ends)})"
        return "\n".join(
            [
                f"Scenario: {excerpt(self.scenario.goal)}",
                f"Ended: {self.ended}{wish}",
                *map(str, self.verdicts),
                f"Session: {self.session.id}",
                *self.decisive_lines(),
            ]
        )

    def decisive_lines(self) -> Iterator[str]:
        """Yield the lines of the transcript around the messages of verdicts that are not met."""
        lines = numbered_lines(self.conversation)
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


def numbered_lines(found: Result) -> list[str]:
    """Return the messages, tool calls and results of a conversation, one line of text each."""
    return [line.text for line in transcript_lines(found.messages)]
