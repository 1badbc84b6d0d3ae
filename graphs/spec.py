"""What a conversation is, as data: task, speakers, how it opens and how it ends.

Only data lives here. Reading it from files is in `duologue.graphs.load`, what happens next at any
moment in `duologue.graphs.end_chat`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    StringConstraints,
    field_validator,
    model_validator,
)

SPEC_VERSION: Final = 1
"""The version of the spec this release writes. `duologue.graphs.load` migrates older ones."""

SPEAKER_TEMPERATURE = 0.2
"""What speakers use unless told otherwise (CAMEL's and LazyLLM's low temperature)."""

TASK_TEMPERATURE = 1.0
"""What the task's rewriting uses unless told otherwise (LazyLLM's high temperature)."""

MOST = 1_000_000
"""The largest cap: more rounds than any conversation has, and a number that any store can keep."""

MARK_LENGTH = 200
"""The longest mark, in characters."""

VERDICT_TEMPERATURE = 0.3
"""What a verdict uses unless told otherwise (Yacana's yes/no question)."""


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable characters on one line")
    return text


Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
"""Text that holds more than white space."""

Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=80, strip_whitespace=True, pattern=r"^[^\r\n]+$"),
]
"""A name on one line, up to 80 characters."""


Mark = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MARK_LENGTH, strip_whitespace=True),
    AfterValidator(_shown),
]
"""A mark on one line, of printable characters."""


class Data(BaseModel):
    """Base of everything in a spec: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Generation(Data):
    """Generation parameters sent with a model call. What is None is left to its default."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature, 0 to 2. None: 0.2 for speakers, 1.0 for the task's rewriting."""
    max_tokens: PositiveInt | None = None
    """The longest answer, in tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling, above 0 and up to 1."""
    stop: tuple[str, ...] = ()
    """Texts at which the model stops."""
    seed: int | None = None
    """Asks a model that can for the same answer to the same prompt."""

    def parameters(self, temperature: float) -> dict[str, object]:
        """Give the arguments of a model call.

        Args:
            temperature: What to use when this spec names none.

        Returns:
            Keyword arguments in OpenAI's names, without those left to the model.
        """
        chosen: dict[str, object] = {
            "temperature": temperature if self.temperature is None else self.temperature,
            "max_tokens": self.max_tokens,
            "top_p": self.top_p,
            "stop": list(self.stop) or None,
            "seed": self.seed,
        }
        return {name: value for name, value in chosen.items() if value is not None}


class Marks(Data):
    """The marks that a reply must carry, such as CAMEL's ``Instruction:`` and ``Input:``."""

    lines: tuple[Mark, ...] = Field(min_length=1)
    """What begins a line each, in this order; the first one begins the reply."""
    end: Mark | None = None
    """What the reply ends with."""


class Brief(Data):
    """What a speaker is told instead where a very small model speaks for it, as the embedded one.

    Its form is held by a grammar, so it need not be told; what it is told must be short.
    """

    role_prompt: Text
    """The system prompt; ``{task}`` in it stands for the task."""
    reminder: Text
    """What stands behind each line the speaker hears; ``{task}`` in it stands for the task as it
    was given."""


class Speaker(Data):
    """One participant of a conversation."""

    name: Name
    """How the speaker is called by the others; no two may share a name."""
    role_prompt: Text | None = None
    """The system prompt. ``{task}`` in it stands for the conversation's task; where it does not
    appear, the task follows the prompt. None: a neutral prompt that names the participants."""
    task: Text | None = None
    """The speaker's own task, which the others do not see."""
    brief: Brief | None = None
    """What it is told instead where the embedded model speaks for it."""
    stops_chat: bool = False
    """Whether the speaker is asked, after its turns, if its task is complete."""
    keep_reflection: bool = False
    """Whether that question and its answer stay in the speaker's own view."""
    format: Marks | None = None
    """The marks its replies must carry. A reply without them is asked for once more."""
    tools: tuple[Name, ...] = ()
    """The tools it may call, by their registered names."""
    model: Text | None = None
    """The model that speaks for it: a registered name, a model's name, ``embedded`` or the path
    of a ``.gguf`` file. None: the conversation's default."""
    generation: Generation = Generation()
    """Generation parameters."""


class TaskSpecification(Data):
    """The task is rewritten, by a model, into a more specific one before the conversation."""

    word_limit: PositiveInt = 50
    """The longest rewritten task, in words."""
    model: Text | None = None
    """The model that rewrites. None: the conversation's default."""
    generation: Generation = Generation()
    """Generation parameters; the temperature is 1.0 unless given."""


class Opening(Data):
    """What happens before the rounds."""

    answers: bool = False
    """Whether every speaker first answers its own task alone, unheard by the others."""
    first_speaker: Name | None = None
    """Who speaks first in the rounds. None: the first of the speakers; after opening answers, the
    second (Yacana's owner of the shift message)."""
    first_line: Text | None = None
    """What the first speaker is told before its first turn (Yacana's shift message). None: a
    neutral line; after opening answers, the answer of the speaker before it."""


class EndChatMode(StrEnum):
    """How completed tasks end a conversation. The round cap applies to every mode (Yacana)."""

    MAX_ITERATIONS_ONLY = "max_iterations_only"
    """Rounds until the cap; nobody is asked."""
    END_CHAT_AFTER_FIRST_COMPLETION = "end_chat_after_first_completion"
    """The first completed task ends it at once."""
    ONE_LAST_CHAT_AFTER_FIRST_COMPLETION = "one_last_chat_after_first_completion"
    """The next speaker has one last message after the first completed task."""
    ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION = "one_last_group_chat_after_first_completion"
    """Every speaker has one last message after the first completed task."""
    ALL_TASK_MUST_COMPLETE = "all_task_must_complete"
    """Goes on until every speaker that stops the chat has completed its task."""


class DoneToken(Data):
    """A word that ends the conversation when it is said alone (CAMEL's done token)."""

    token: Mark
    """It counts only when it is the message, or stands alone on a line of it."""
    by: Name | None = None
    """The speaker who may say it. None: any."""


class EndChat(Data):
    """How the conversation ends."""

    mode: EndChatMode = EndChatMode.MAX_ITERATIONS_ONLY
    """How completed tasks end it."""
    max_iterations: Annotated[PositiveInt, Field(le=MOST)] = 5
    """The cap, in rounds; in one round every speaker speaks once."""
    done_token: DoneToken | None = None
    """A word that ends it."""
    max_role_flips: PositiveInt = 2
    """How often one speaker may speak another's part, after being asked to mend it."""


class Judge(Data):
    """How a speaker is asked whether its task is complete."""

    form: Literal["structured", "two_questions"] = "structured"
    """``structured``: one call whose answer is held to a schema. ``two_questions``: what is left,
    then one word, for models without structured output."""
    temperature: float = Field(default=VERDICT_TEMPERATURE, ge=0, le=2)
    """The temperature of the verdict, 0 to 2."""


class Conversation(Data):
    """One dialogue: what it is about, who speaks, how it opens and how it ends.

    Raises:
        pydantic.ValidationError: A field is missing, unknown or wrong, two speakers share a name,
            a name does not belong to a speaker, or a mode needs a stopper and has none.
    """

    version: Literal[1] = SPEC_VERSION
    """The version of this spec's shape."""
    title: Text | None = None
    """What lists of sessions show. None: the task."""
    task: Text | None = None
    """The task of all. None only when every speaker has a task of its own."""
    speakers: tuple[Speaker, ...] = Field(min_length=2)
    """Who takes part, in the order they speak. The first is the user agent's part, the others the
    assistant agent's."""
    task_specification: TaskSpecification | None = None
    """How the task is made more specific first. None: it is used as given."""
    opening: Opening = Opening()
    """What happens before the rounds."""
    end_chat: EndChat = EndChat()
    """How it ends."""
    judge: Judge = Judge()
    """How speakers are asked whether they are done."""
    model: Text | None = None
    """The model for all that name none. None: the one of the settings, else the embedded one."""
    max_tool_rounds: PositiveInt = 5
    """How many rounds of tool calls one turn may have before the speaker must answer."""

    @field_validator("speakers")
    @classmethod
    def _names_differ(cls, speakers: tuple[Speaker, ...]) -> tuple[Speaker, ...]:
        seen: set[str] = set()
        for speaker in speakers:
            if speaker.name.casefold() in seen:
                raise ValueError(
                    f"two speakers are called {speaker.name!r}: give each its own name"
                )
            seen.add(speaker.name.casefold())
        return speakers

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if self.task is None:
            for speaker in self.speakers:
                if speaker.task is None:
                    raise ValueError(
                        f"task: missing, and {speaker.name!r} has none of its own: give one"
                    )
            if self.task_specification is not None:
                raise ValueError("task_specification: there is no task to make more specific")
        self._check_name("opening.first_speaker", self.opening.first_speaker)
        if self.end_chat.done_token is not None:
            self._check_name("end_chat.done_token.by", self.end_chat.done_token.by)
        if self.opening.answers:
            for speaker in self.speakers:
                if speaker.task is None:
                    raise ValueError(
                        f"opening.answers: {speaker.name!r} has no task of its own to answer"
                    )
        needs_stopper = self.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        if needs_stopper and not any(speaker.stops_chat for speaker in self.speakers):
            raise ValueError(
                f"end_chat.mode: {self.end_chat.mode.value} needs a speaker with stops_chat = true"
            )
        return self

    def _check_name(self, field: str, name: str | None) -> None:
        if name is not None and name not in self.names:
            raise ValueError(f"{field}: nobody is called {name!r}; there are {listing(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The speakers' names, in the order given."""
        return tuple(speaker.name for speaker in self.speakers)

    @property
    def order(self) -> tuple[str, ...]:
        """The speakers' names in the order of a round, whoever speaks first in front."""
        first = self.opening.first_speaker or self.names[1 if self.opening.answers else 0]
        start = self.names.index(first)
        return self.names[start:] + self.names[:start]

    def stored(self) -> dict[str, Any]:
        """Give what sessions store, as plain values.

        Returns:
            What differs from the defaults, and the version, which says whose defaults they are.
        """
        return {"version": self.version} | self.model_dump(mode="json", exclude_defaults=True)

    def to_toml(self) -> str:
        """Write it as TOML, which `duologue run` and `load_conversation` read.

        Returns:
            What differs from the defaults, and the version.
        """
        stored = self.stored()
        # Inside a block string TOML reads a carriage return and a line feed as one line feed.
        blocks = "\\r" not in json.dumps(stored)
        return tomli_w.dumps(stored, multiline_strings=blocks)

    def speaker(self, name: str) -> Speaker:
        """Give the speaker of this name.

        Args:
            name: A speaker's name.

        Returns:
            The speaker.

        Raises:
            KeyError: Nobody has that name.
        """
        for speaker in self.speakers:
            if speaker.name == name:
                return speaker
        raise KeyError(f"nobody is called {name!r}; there are {listing(self.names)}")


class Form(Data, ABC):
    """The short form of one kind of conversation: flat fields, as in a file or in Studio."""

    @abstractmethod
    def conversation(self) -> Conversation:
        """Give the conversation that this form stands for."""


def listing(names: Iterable[str]) -> str:
    """Write names as a list for an error message, each in quotes."""
    return ", ".join(repr(name) for name in names)
