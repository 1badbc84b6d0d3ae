"""The end at a message without code, for a speaker whose code is run."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from ..common.data import Name
from ..speakers.speaker import Speaker
from .end import AtEnd, BaseEnd, CountedMessage, Dialogue, EndStep, Strength, check_name, leaves
from .facts import Facts, is_public_speech


class NoCodeBlock(BaseEnd):
    """An end at a message without code, for a speaker whose code is run (Lagent's coder)."""

    kind: Literal["no_code_block"] = "no_code_block"
    """The kind of end."""
    by: Name = Field(kw_only=False)
    """The name of the speaker. The end is met only right after its message without code."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A speaker wrote no more code"
    explanation: ClassVar = "{by} wrote no more code"

    def is_met(self, facts: Facts) -> bool:
        return facts.no_code_by == self.by

    def describe(self) -> str:
        return "no code"

    def describe_end(self) -> str:
        return f"when {self.by} writes no code"

    def check(self, dialogue: Dialogue, path: str) -> None:
        check_name(dialogue, f"{path}.by", self.by)
        if not any(one.runs_code for one in dialogue.speakers):
            raise ValueError(f'{path}: no speaker runs code; add "code" to a speaker\'s replies')

    def comes_of(self, speaker: Speaker) -> bool:
        return self.by == speaker.name

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
        return at.speaker

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        who = step.facts.no_code_by
        ends = [end for _, end in leaves(step.dialogue.end_chat.when) if isinstance(end, cls)]
        if is_public_speech(step.about) and any(end.by == who for end in ends):
            yield EndStep("said", who, "wrote no code")
