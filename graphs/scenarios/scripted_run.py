"""The run of a scripted simulation: a session that waits before each turn for its script.

In a scripted conversation, both speakers are first asked as people are. A fixed text is their
answer; an empty answer leaves the turn to the simulated user or to the agent. Between two turns
nobody uses the session, so checks and judges read its state.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..conversation.conversation import Conversation
from ..conversation.judges import Finding
from ..conversation.questions import MessageQuestion
from ..session.converse import aconverse
from ..session.options import GivenAnswer, Options
from ..session.run import run_to_end
from ..session.session import Result, result_of
from ..speakers.replies import HumanReply
from .checks import run_check
from .result import SimulationResult
from .scenario import ScenarioVerdict
from .script import AgentTurn, CheckNow, JudgeNow, Proceed, Step, UserTurn, begins_with_agent
from .tested_agent import TestedAgent

Judged = tuple[Result, tuple[ScenarioVerdict, ...]]
"""A result with its stored verdicts, and the verdicts about the criteria."""


@dataclass
class ScriptedRun:
    """A simulation that follows a script."""

    conversation: Conversation
    """The conversation, whose speakers are asked before each turn."""
    tested: TestedAgent
    """The agent."""
    options: Options
    """The options of the run."""
    judge: Callable[[Result], Awaitable[Judged]]
    """Asks the judge about the criteria."""
    look: Callable[[Result, tuple[ScenarioVerdict, ...]], SimulationResult]
    """Makes the result that a check receives."""
    checked: list[ScenarioVerdict] = field(default_factory=list)
    """The verdicts of the checks in the script so far."""
    judged: tuple[ScenarioVerdict, ...] = ()
    """The newest verdicts about the criteria."""
    failure: str = ""
    """The reason why the script ended before its last step. Empty if no step has failed."""
    is_finished: bool = False
    """Whether the last step was done before the conversation ended."""

    async def play(self, script: tuple[Step, ...]) -> Result:
        """Do the steps in order. After a step that failed, no other step is done."""
        found = await aconverse(self.conversation, **self.options)
        for number, step in enumerate(script, start=1):
            found = await self._do(step, found)
            if self.failure:
                self.failure = f"step {number}: {self.failure}"
                break
        if self.awaits(found):
            # Nobody will write the next message.
            self.is_finished = not self.failure
            await found.session.astop()
            found = await found.session.astate()
        return found

    @staticmethod
    def awaits(found: Result) -> bool:
        """Return whether the session waits for the script."""
        return any(isinstance(one, MessageQuestion) for one in found.pending)

    async def _do(self, step: Step, found: Result) -> Result:
        match step:
            case UserTurn(text=text) | AgentTurn(text=text):
                return await self._take_turn(found, text)
            case Proceed(rounds=rounds):
                return await self._proceed(found, rounds)
            case CheckNow(check=check):
                verdict = await run_check(check, self.look(found, (*self.judged, *self.checked)))
                self.checked.append(verdict)
                self._note((verdict,))
            case JudgeNow():
                found, self.judged = await self.judge(found)
                self._note(self.judged)
        return found

    def _note(self, verdicts: tuple[ScenarioVerdict, ...]) -> None:
        failed = next((one for one in verdicts if one.finding is Finding.NOT_MET), None)
        self.failure = "" if failed is None else str(failed)

    async def _take_turn(self, found: Result, text: str | None) -> Result:
        """Let the next speaker say a text, or reply by itself. An ended session stays as it is."""
        if not self.awaits(found):
            return found
        if text is not None and self._next_speaker(found) != self._user:
            self.tested.note_scripted_reply()
        ran = await run_to_end(
            self.conversation, found.session.id, self.options, reply=GivenAnswer(text or "")
        )
        return result_of(*ran)

    async def _proceed(self, found: Result, rounds: int | None) -> Result:
        replies = 0
        while self.awaits(found) and (rounds is None or replies < rounds):
            replies += self._next_speaker(found) != self._user
            found = await self._take_turn(found, None)
        return found

    @property
    def _user(self) -> str:
        return self.conversation.names[0]

    @staticmethod
    def _next_speaker(found: Result) -> str:
        return next(one.speaker for one in found.pending if isinstance(one, MessageQuestion))


_NEVER: Final = "###TERMINATE-SCRIPT###"
"""A termination word that nobody says. After such a word, an empty answer would end the session."""


def make_scripted(conversation: Conversation, script: Sequence[Step]) -> Conversation:
    """Return a conversation in which both speakers are asked before each turn."""
    asked = HumanReply(termination=_NEVER)
    replies = {one.name: {"replies": (asked, *one.replies)} for one in conversation.speakers}
    if not begins_with_agent(script):
        return conversation.replace(speakers=replies)
    # The instruction for the first message of a user would be an instruction for the agent.
    opening = {"first_speaker": conversation.names[1], "first_line": None}
    return conversation.replace(speakers=replies, opening=opening)
