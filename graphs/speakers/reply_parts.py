"""Parts of a reply's metadata: the stage of its turn, why its model stopped, and its thought."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic import Field, JsonValue

from ..common.data import Data
from ..common.sanitize import excerpt


class Stage(StrEnum):
    """The part of the conversation that a turn belongs to."""

    PRIVATE = "private"
    """A speaker invents content that only it knows."""
    OPENING = "opening"
    """Every speaker answers its own task, without hearing the others."""
    ROUNDS = "rounds"
    """The speakers speak in turn."""
    LAST_WORDS = "last_words"
    """The messages that speakers are promised after a task is complete."""


ALOUD: Final = (Stage.ROUNDS, Stage.LAST_WORDS)
"""The parts in which all speakers hear the messages."""


STOP: Final = "duologue_stop"
"""Key of the `Stop` of a model's answer in its ``additional_kwargs``."""


class StopCause(StrEnum):
    """The cause for which a model's reply is not complete."""

    LENGTH = "length"
    """The reply reached the token limit."""
    THOUGHT = "thought"
    """The model's thought used up all tokens, so that the reply has no text."""
    FILTER = "content_filter"
    """A filter of the provider withheld the reply, or the rest of it."""
    PROMPT = "prompt"
    """The provider blocked the prompt."""
    REFUSAL = "refusal"
    """The model refused to answer."""
    CALL = "call"
    """The provider could not read, or did not allow, a tool call of the model."""
    PAUSE = "pause"
    """The provider paused the reply more often than it is continued."""
    FAILURE = "failure"
    """A temporary failure of the server stopped the reply, and its repetitions as well."""
    NO_END = "no_end"
    """The server sends no sign of the end, so the reply may be incomplete."""
    OTHER = "other"
    """The provider stopped the reply for another reason."""


_STOPS: Final = {
    StopCause.LENGTH: "Cut off at the token limit",
    StopCause.THOUGHT: "Its thought used up",
    StopCause.FILTER: "Stopped by a content filter",
    StopCause.PROMPT: "Not answered, because the provider blocked the prompt",
    StopCause.REFUSAL: "Refused by the model",
    StopCause.CALL: "Its tool call was not accepted by the provider",
    StopCause.PAUSE: "Paused by the provider",
    StopCause.FAILURE: "Stopped by a failure of the server",
    StopCause.NO_END: "Perhaps cut off, because the server sent no sign of the end",
    StopCause.OTHER: "Stopped by the provider",
}


class Stop(Data):
    """Why a model stopped before its reply was complete. Its text is one clause for people."""

    cause: StopCause
    """The cause."""
    word: str = ""
    """The provider's own word for the cause, such as ``SAFETY``. Empty if there is none."""
    refusal: str = ""
    """The words with which the model refused. Empty if there are none."""
    explanation: str = ""
    """The provider's explanation. Empty if there is none."""
    max_tokens: int | None = None
    """The token limit that a thought has used up. None if no thought has, or if it is not known."""

    @property
    def clause(self) -> str:
        """Return the stop's text for the middle of a sentence."""
        said = str(self)
        return f"{said[:1].lower()}{said[1:]}"

    @property
    def is_of_length(self) -> bool:
        """Return whether the token limit is the cause."""
        return self.cause in (StopCause.LENGTH, StopCause.THOUGHT)

    @property
    def is_cut_off(self) -> bool:
        """Return whether the rest of the reply is missing, or may be missing."""
        return self.is_of_length or self.cause is StopCause.NO_END

    @property
    def is_notable(self) -> bool:
        """Return whether an outcome mentions the stop: not if a text reached a limit or has no end.

        A notice of the session names the server that sends no sign of the end.
        """
        return self.cause not in (StopCause.LENGTH, StopCause.NO_END)

    @property
    def is_lasting(self) -> bool:
        """Return whether a blank reply to nearly the same prompt would stop in the same way."""
        return self.cause in (
            *(StopCause.THOUGHT, StopCause.PROMPT, StopCause.REFUSAL),
            *(StopCause.PAUSE, StopCause.FAILURE),
        )

    def __str__(self) -> str:
        said = _STOPS[self.cause]
        if self.cause is StopCause.THOUGHT:
            most = self.max_tokens
            said += f" the {most:,} tokens of max_tokens" if most else " all tokens"
        elif self.word and not self.is_cut_off:
            said += f" ({excerpt(self.word, _WORD)})"
        told = self.refusal or self.explanation
        return f"{said}: {excerpt(told)}" if told else said


_WORD: Final = 60
"""Maximum number of characters of a provider's word that people read."""


THOUGHT: Final = "duologue_thought"
"""Key of the thought in a message's ``additional_kwargs``: in answers, in prompts and in a memory.
"""


class Reasoning(Data):
    """A thought in its model's original form."""

    text: str | None = None
    """The whole text of the answer, if the thought was a part of that text."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The blocks of the answer's content that contain the thought."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """The fields outside the content that contain the thought, by name."""
    calls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """The further fields of each call that has some, such as a signature, by the call's id."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """The metadata by which LangChain's client reads the blocks."""


class Thought(Data):
    """The thought of a model. Only people read it: no rule parses, counts or judges it."""

    text: str
    """The text of the thought."""
    is_unopened: bool = False
    """Whether the thought ended with a closing tag that had no opening tag."""
    given: Reasoning | None = None
    """The original form, which is sent back to the model. None if the message has no calls."""
    family: str | None = None
    """The family of the model, to which alone the original form is sent back. None if unknown."""

    def rename_calls(self, ids: Mapping[str, str]) -> "Thought":
        """Return the thought with new ids of calls. Ids that are not in the mapping stay."""
        if self.given is None or not self.given.calls:
            return self
        calls = {ids.get(old, old): fields for old, fields in self.given.calls.items()}
        given = self.given.model_copy(update={"calls": calls})
        return self.model_copy(update={"given": given})
