"""The end by a done token: a word that ends the conversation when a speaker says it.

`graphs.log.heard_text` decides which messages contain one.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from ..common.data import Mark, Name
from ..speakers.speaker import Speaker
from ..text.done_words import Match, default_match
from .end import (
    AtEnd,
    BaseEnd,
    CountedMessage,
    Dialogue,
    EndStep,
    Strength,
    check_name,
    doers,
    listed,
)
from .facts import Facts


class DoneToken(BaseEnd):
    """A word that ends the conversation when a speaker says it (CAMEL's done token).

    The word does not count in code, in a question, in a thought, or if a sentence only quotes it.
    The other speakers hear the message without the word. Tokens joined by ``&`` may be said at
    different times.
    """

    kind: Literal["done_token"] = "done_token"
    """The kind of end."""
    token: Mark = Field(kw_only=False)
    """The word. Letter case is ignored if the word is the whole message or the whole last line."""
    match: Match | None = None
    """The positions at which the word counts. ``alone``: as the whole message or last line, with or
    without Markdown around it, or alone on another line. ``last``: as the whole message or last
    line, or at the end of a last sentence that is not about the word, as in "Thank you!
    ###STOP###". ``anywhere``: at any position. If None: ``last`` if the word has a character that
    is neither a letter nor a digit, otherwise ``alone``."""
    by: Name | None = None
    """The name of the speaker whose word counts. Any speaker if None."""
    answered: bool | Literal["with_text"] = False
    """Whether the word counts only after the next other speaker has replied and finished its tool
    calls. This reply is the last message and is allowed even beyond a cap. ``with_text``: only if
    the message has other text; a message that is only the word ends the conversation at once."""
    meaning: Mark | None = None
    """The meaning of the word as a predicate of the speaker, such as "gave up". The outcome says
    it. "said the done token" if None."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A speaker said a done token"

    @property
    def counts(self) -> Match:
        """Return the effective match mode: ``match``, or the token's default."""
        return self.match or default_match(self.token)

    def is_met(self, facts: Facts) -> bool:
        return bool(self._speakers(facts))

    def _speakers(self, facts: Facts) -> list[str]:
        """Return the speakers whose done token counts now."""
        waiting = facts.tokens_unanswered if self.answered else ()
        said = tuple(pair for pair in facts.tokens_said if pair not in waiting)
        return doers(self.token, self.by, said)

    def waits_for_answer(self, token: str, speaker: str, *, has_text: bool) -> bool:
        """Return whether this speaker's token counts only after another speaker has answered.

        Args:
            token: The token.
            speaker: The speaker who said it.
            has_text: Whether the message contains other text.
        """
        waits = has_text if self.answered == "with_text" else self.answered
        return waits and self.token == token and self.by in (None, speaker)

    def describe(self) -> str:
        return f"{self.token} is answered" if self.answered else f"says {self.token}"

    def describe_end(self) -> str:
        owner = "'s" if self.answered else ""
        return f"when {self.by or 'any speaker'}{owner} {self.describe()}"

    def check(self, dialogue: Dialogue, path: str) -> None:
        check_name(dialogue, f"{path}.by", self.by)

    def comes_of(self, speaker: Speaker) -> bool:
        if self.answered:
            # This speaker answers the token of another one.
            return self.by != speaker.name
        return _talks(speaker) if self.by is None else self.by == speaker.name

    def most_answers(self, speakers: int) -> int:
        # One answer for each speaker that may say the token.
        return (1 if self.by else speakers) if self.answered else 0

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        met = at.met_of(DoneToken)
        meanings = [(listed(end._speakers(at.facts)), end.meaning) for end in met]
        if all(meaning is not None for _, meaning in meanings):
            return " and ".join(f"{who} {meaning}" for who, meaning in meanings)
        is_answered = all(end.answered is True for end in met)
        answered = " and got an answer" if is_answered else ""
        return f"{listed(_all_speakers(at))} said the done token{answered}"

    @classmethod
    def ended_by(cls, at: AtEnd) -> str:
        return _all_speakers(at)[-1]

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        for token, who in step.facts.tokens_said:
            if (token, who) not in step.before.tokens_said:
                yield EndStep("said", who, f"said {token}")
        for token, who in step.before.tokens_unanswered:
            if (token, who) not in step.facts.tokens_unanswered:
                yield EndStep("answered", step.about.speaker, f"answered {who}, who said {token}")


def _talks(speaker: Speaker) -> bool:
    """Return whether the speaker has a source of replies that is not a fixed text or code."""
    return any(reply.kind in ("model", "human", "function", "agent") for reply in speaker.replies)


def _all_speakers(at: AtEnd) -> list[str]:
    return [name for end in at.met_of(DoneToken) for name in end._speakers(at.facts)]
