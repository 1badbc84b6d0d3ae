"""AutoGen's user proxy by its published rules: who says what, and when a person is asked.

Written from the rules (rows A2 to A6) and not from the engine, so that the two can be compared:
nothing of it is imported here. It knows an assistant whose lines are given, and a person whose
answers are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["NEVER", "ALWAYS", "TERMINATE"]
WORD = "TERMINATE"
TERMINATED = ("termination", "Assistant")
CAPPED = ("max_consecutive_auto_reply", None)
QUIT = ("quit", "User")


@dataclass
class Played:
    """What came of a conversation."""

    transcript: list[tuple[str, str]] = field(default_factory=list)
    """Who said what."""
    questions: list[str] = field(default_factory=list)
    """For each question to the person what no answer would mean: "auto_reply" or "stop"."""
    end: tuple[str, str | None] | None = None
    """The reason, and by whom; None where it waits for the person."""


@dataclass
class Proxy:
    """What replies for the user."""

    mode: Mode
    cap: int
    """How many replies in a row may be automatic."""
    answers: Iterator[str]
    """What the person answers, one question after the other; at their end nobody does."""
    auto_reply: str
    played: Played
    given: int = 0
    """How many automatic replies were given since the person last said something."""

    def replies(self, received: str) -> str | None:
        """The reply to what the assistant has said; None where there is none any more."""
        over = received.endswith(WORD)  # A6: the word ends the message
        used_up = self.given >= self.cap
        if self.mode == "NEVER":
            if over or used_up:  # A3
                # One who was to speak on would have been stopped by the word, whatever the cap.
                return self._ends(*TERMINATED) if over else self._ends(*CAPPED)
            return self._automatic()
        if self.mode == "TERMINATE" and not over and not used_up:  # A5
            return self._automatic()
        # A4: the cap is ignored; A5: where nothing automatic may ever be said, nothing is.
        stops = over or (self.mode == "TERMINATE" and self.cap == 0)
        self.played.questions.append("stop" if stops else "auto_reply")
        answer = next(self.answers, None)
        if answer is None:
            return None
        if answer.strip().lower() == "exit":
            return self._ends(*QUIT)
        if answer.strip():
            self.given = 0
            return answer
        if over:
            return self._ends(*TERMINATED)
        return self._ends(*CAPPED) if stops else self._automatic()

    def _automatic(self) -> str:
        self.given += 1
        return self.auto_reply

    def _ends(self, reason: str, by: str | None) -> str | None:
        self.played.end = (reason, by)
        return None


def by_the_rules(
    mode: Mode,
    cap: int,
    lines: Sequence[str],
    answers: Sequence[str],
    *,
    message: str,
    auto_reply: str,
) -> Played:
    """Play a conversation of a user proxy and an assistant by the rules.

    Args:
        mode: When the person is asked.
        cap: How many replies in a row may be automatic.
        lines: What the assistant says, in order. Behind the last the rounds are used up.
        answers: What the person answers, in order.
        message: What the user says first.
        auto_reply: The default reply.

    Returns:
        What came of it.
    """
    played = Played()
    proxy = Proxy(mode, cap, iter(answers), auto_reply, played)
    said: str | None = message
    for number, line in enumerate(lines, start=1):
        played.transcript += [("User", str(said)), ("Assistant", line)]
        # The round cap asks nobody; it is weaker than what stops one who is never asked.
        stops = mode == "NEVER" and (proxy.given >= cap or line.endswith(WORD))
        if number == len(lines) and not stops:
            played.end = ("max_iterations", None)
            return played
        said = proxy.replies(line)
        if said is None:
            return played
    return played
