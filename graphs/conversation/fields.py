"""The fields of a conversation, and what follows from them."""

import json
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, PositiveInt, field_validator

from ..common.data import MOST, AtLeast, Cap, Name, Spec, Text
from ..common.errors import SpecError
from ..common.validation import list_names
from ..ends.end import leaves
from ..ends.end_chat import EndChat, EndChatMode
from ..prompts.speaking import (
    CONVERSATION_TASK,
    MODERATOR_LABEL,
    PARTICIPANT,
    SPEAKER_LABELS,
    SPEAKER_TASK,
)
from ..prompts.texts import Prompt, RenderPrompt, fill_template
from ..speakers.context import RunningSummary
from ..speakers.formats import describe_format, is_format_described
from ..speakers.model_settings import ModelSettings
from ..speakers.replies import AgentReply, FunctionReply, HumanInputMode
from ..speakers.speaker import Speaker
from ..text.words import normalize_look
from .judges import AnyJudge, Judge, Moderator, RoundRobin, SeparateJudge, TurnOrder
from .sandbox import Sandbox
from .usage import Price

SPEC_VERSION: Final = 12
"""The version of the specs that this release writes."""

_A_PAIR = 2

# Asked many times for a message.
_name_of: Final = attrgetter("name")

TASK_TEMPERATURE = 1.0
"""What the task's rewriting uses unless told otherwise (LazyLLM's high temperature)."""


class TaskSpecification(Spec):
    """The task is rewritten, by a model, into a more specific one before the conversation."""

    word_limit: PositiveInt = 50
    """The longest rewritten task, in words."""
    model: Text | None = None
    """The model that rewrites. None: the conversation's default."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of that call. The temperature is 1.0 if None."""
    small_models: bool = True
    """Whether the embedded model rewrites it too. If not, the task stays as it is given."""


class Opening(Spec):
    """What happens before the rounds."""

    answers: bool = False
    """Whether every speaker first answers its own task alone, unheard by the others."""
    reconcile: bool = False
    """Whether the others hear these tasks and answers after all: those who answer later before
    their own answer, those who answered before when the rounds begin (Yacana)."""
    first_speaker: Name | None = None
    """Who speaks first in the rounds. None: the first of the speakers; after opening answers, the
    second (Yacana's owner of the shift message)."""
    first_line: Text | None = None
    """What the first speaker is told before its first turn (Yacana's shift message). None: a
    neutral line; after opening answers that were not reconciled, the answer of the speaker before
    it."""


class Wording(Spec):
    """Other words for what models are told."""

    text: Text | None = None
    """The text. None, until the session begins: the registered one."""
    name: Name | None = None
    """The name of a registered text."""


def _as_text(given: object) -> object:
    return {"text": given} if isinstance(given, str) else given


Prompts = dict[Name, Annotated[Wording, BeforeValidator(_as_text)]]
"""What models are told in other words: by the prompts' names, a text or ``{name = …}``, the name of
a registered one."""


class ConversationFields(Spec):
    """The fields of a conversation, each checked alone."""

    version: Literal[12] = SPEC_VERSION
    """The version of this spec's shape."""
    title: Text | None = None
    """What lists of sessions show. None: the task."""
    task: Text | None = Field(default=None, kw_only=False)
    """The task of all. None only where every speaker has a task of its own, or where a person or a
    first message says what it is about."""
    # Within `Annotated` type checkers do not read it: they refuse a field without a default behind
    # one with a default. `Conversation` declares for them how both are given.
    speakers: Annotated[tuple[Speaker, ...], AtLeast(2), Field(kw_only=False)]
    """Who takes part, in the order they speak. The first is the user agent's part, the others the
    assistant agent's."""
    turn_order: TurnOrder = RoundRobin()
    """Who speaks next. Where it is chosen, as many turns as there are speakers count as a round."""
    task_specification: TaskSpecification | None = None
    """How the task is made more specific first. None: it is used as given."""
    opening: Opening = Opening()
    """What happens before the rounds."""
    end_chat: EndChat = EndChat()
    """How it ends."""
    judge: AnyJudge = Judge()
    """Who is asked whether a task is complete, and how."""
    model: Text | None = None
    """The model for all that name none. None: the one of the settings, else the embedded one."""
    prices: dict[Text, Price] = Field(default_factory=dict)
    """What the models charge, by their names. Where there is one, every model must be in it; where
    there is none, those count that the package genai-prices knows."""
    max_tool_rounds: Cap = 20
    """How many rounds of tool calls one turn may have before the speaker must answer without tools
    (LazyLLM); then the outcome has a warning. Rounds in which no call succeeds do not count."""
    max_call_errors: Cap = 5
    """At how many calls that no tool can be run for, in one turn, the conversation ends: unknown
    tools, and arguments that are no JSON or do not fit (Yacana)."""
    max_tool_errors: Cap = 5
    """At how many calls in which a tool fails, in one turn, it ends."""
    tool_timeout: Annotated[float, Field(gt=0, le=MOST)] = 60
    """How long one call of a tool may take, in seconds. A tool's ``metadata["timeout"]`` wins."""
    sandbox: Sandbox = Sandbox()
    """Where code runs that speakers write."""
    seed: int | None = None
    """Asks models that can for the same conversation again, wherever a speaker names none."""
    prompts: Prompts = Field(default_factory=dict)
    """Replacements for prompts, by the prompts' names: a text, or the ``name`` of a registered one.
    It may contain the placeholders of the prompt that it replaces."""

    @field_validator("speakers")
    @classmethod
    def _names_differ(cls, speakers: tuple[Speaker, ...]) -> tuple[Speaker, ...]:
        seen: dict[str, str] = {}
        for name in (speaker.name for speaker in speakers):
            alike = next((seen[look] for look in normalize_look(name) if look in seen), None)
            if alike is not None:
                called = alike.casefold() == name.casefold()
                what = f"two speakers are called {name!r}"
                what = what if called else f"{alike!r} and {name!r} look the same"
                raise ValueError(f"{what}: give each its own name")
            seen |= dict.fromkeys(normalize_look(name), name)
        return speakers

    @property
    def names(self) -> tuple[str, ...]:
        """The speakers' names, in the order given."""
        return tuple(map(_name_of, self.speakers))

    @property
    def people(self) -> tuple[str, ...]:
        """The names of those for whom people speak, always or now and then."""
        return tuple(speaker.name for speaker in self.speakers if speaker.human)

    @property
    def order(self) -> tuple[str, ...]:
        """The speakers' names in the order of a round, whoever speaks first in front."""
        names = self.names
        first = self.opening.first_speaker or names[1 if self.opening.answers else 0]
        start = names.index(first)
        return names[start:] + names[:start]

    @property
    def is_pair(self) -> bool:
        """Whether only two take part."""
        return len(self.speakers) == _A_PAIR

    def system_prompt(
        self, speaker: Speaker, task: str | None, schema: type[BaseModel] | None = None
    ) -> str:
        """Return the system prompt of one speaker."""
        return _build_system_prompt(
            speaker,
            [name for name in self.names if name != speaker.name],
            task,
            schema,
            render_prompt=self.render_prompt,
            is_labelled=self.hears_labels(speaker),
            tells_own_task=not self.opening.answers,
        )

    def render_prompt(self, prompt: Prompt, **values: object) -> str:
        """Return a prompt with its values, or its replacement in this conversation."""
        own = self.prompts.get(prompt.name)
        return fill_template(prompt if own is None or own.text is None else own.text, **values)

    def mark_instruction(self, speaker: Speaker, text: str) -> str:
        """Return a line of the conversation itself as it is in a speaker's prompts.

        It is marked if the messages of the other speaker have no name in front of them.
        """
        return (
            text if self.hears_labels(speaker) else self.render_prompt(MODERATOR_LABEL, text=text)
        )

    def hears_labels(self, speaker: Speaker) -> bool:
        """Whether what a speaker hears is labelled with who said it.

        Unless it says so itself: between two it goes without saying, save where somebody's task
        and opening answer are heard too.
        """
        if speaker.labels is not None:
            return speaker.labels
        return not self.is_pair or self.opening.reconcile

    @property
    def stoppers(self) -> tuple[str, ...]:
        """The names of those after whose turns it is asked whether a task is complete."""
        marked = tuple(speaker.name for speaker in self.speakers if speaker.checks_completion)
        return self.names if isinstance(self.judge, SeparateJudge) and not marked else marked

    @property
    def predicates(self) -> tuple[str, ...]:
        """The names of the predicates that may end it."""
        named = (one for _, end in leaves(self.end_chat.when) for one in end.registered())
        names = dict.fromkeys([name for _, kind, name in named if kind == "predicates"])
        for speaker in self.speakers:
            human = speaker.human
            if human is not None and human.is_termination is not None:
                names[human.is_termination] = None
        return tuple(names)

    @property
    def has_separate_judge(self) -> bool:
        """Whether a separate judge decides if the tasks are complete."""
        return isinstance(self.judge, SeparateJudge)

    @property
    def is_free(self) -> bool:
        """Whether it has prices, and all of them are 0."""
        charged = any(price.input or price.output for price in self.prices.values())
        return bool(self.prices) and not charged

    @property
    def is_bounded_by_people(self) -> bool:
        """Whether it can't go on for ever without a person.

        In turn everybody speaks, and automatic replies in a person's place are counted.
        """
        return bool(self.people) and isinstance(self.turn_order, RoundRobin)

    @property
    def is_with_a_person(self) -> bool:
        """Whether two speak in turn, and a person is asked each time for one of them."""
        people = (one.human.human_input_mode for one in self.speakers if one.human)
        return (
            self.is_pair
            and isinstance(self.turn_order, RoundRobin)
            and HumanInputMode.ALWAYS in people
        )

    @property
    def asks_for_more(self) -> bool:
        """Whether more is asked for where a reply of somebody's was cut off."""
        return any(one.has_model and one.on_length != "accept" for one in self.speakers)

    @property
    def secretive(self) -> tuple[str, ...]:
        """The names of those who answer a private prompt first."""
        names: tuple[str, ...] = ()
        for speaker in self.speakers:
            if speaker.private_opening is not None and speaker.private_opening.prompt is not None:
                names += (speaker.name,)
        return names

    @property
    def model_names(self) -> list[str | None]:
        """The models that it needs, each once; None stands for the default."""
        names = [speaker.model for speaker in self.speakers if self.asks_model(speaker)]
        if self.task_specification is not None:
            names.append(self.task_specification.model)
        if isinstance(self.judge, SeparateJudge):
            names.append(self.judge.model)
        if isinstance(self.turn_order, Moderator):
            names.append(self.turn_order.model)
        names += [
            speaker.context.model or speaker.model
            for speaker in self.speakers
            if isinstance(speaker.context, RunningSummary) and self.sums_up(speaker)
        ]
        return list(dict.fromkeys(name or self.model for name in names))

    def settings_of(self, model: str | None) -> Iterator[tuple[str, ModelSettings]]:
        """Yield the settings of the calls of one model, each with its path in the conversation.

        Args:
            model: The name of a model. None: the default.
        """
        for number, speaker in enumerate(self.speakers):
            if self.asks_model(speaker) and (speaker.model or self.model) == model:
                yield f"speakers.{number}.model_settings", speaker.model_settings
        task = self.task_specification
        if task is not None and (task.model or self.model) == model:
            yield "task_specification.model_settings", task.model_settings

    def asks_model(self, speaker: Speaker) -> bool:
        """Whether a speaker's model is asked for anything: its replies, or its own verdict."""
        judges = (
            speaker.checks_completion
            and isinstance(self.judge, Judge)
            and self.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        )
        return speaker.has_model or judges

    @property
    def agents(self) -> list[str]:
        """The names of the agents of the user's own that speak, each once."""
        replies = (reply for speaker in self.speakers for reply in speaker.replies)
        names = (reply.name for reply in replies if isinstance(reply, AgentReply))
        return list(dict.fromkeys(names))

    def sums_up(self, speaker: Speaker) -> bool:
        """Whether a speaker's history is summed up: by its policy, where anything is shown it."""
        is_shown = self.asks_model(speaker) or any(
            isinstance(reply, FunctionReply | AgentReply) for reply in speaker.replies
        )
        return isinstance(speaker.context, RunningSummary) and is_shown

    def stored(self) -> dict[str, Any]:
        """Give what sessions store, as plain values."""
        return {"version": self.version} | self.model_dump(mode="json", exclude_defaults=True)

    def to_toml(self) -> str:
        """Write it as TOML, which `duologue run` and `load_conversation` read."""
        import tomli_w  # not needed to run a conversation

        stored = self.stored()
        if "end_chat" in stored:
            stored["end_chat"] = self.end_chat.for_toml()
        # Inside a block string TOML reads a carriage return and a line feed as one line feed.
        blocks = "\\r" not in json.dumps(stored)
        try:
            return tomli_w.dumps(stored, multiline_strings=blocks)
        except TypeError as error:
            where = "speakers.memory: a call in it has null among its arguments"
            raise SpecError(f"{where}, which TOML has no word for: write it as JSON") from error

    def speaker(self, name: str) -> Speaker:
        """Return the speaker of this name."""
        for speaker in self.speakers:
            if speaker.name == name:
                return speaker
        raise KeyError(f"nobody is called {name!r}; there are {list_names(self.names)}")


def _build_system_prompt(
    speaker: Speaker,
    others: Sequence[str],
    task: str | None,
    schema: type[BaseModel] | None = None,
    *,
    render_prompt: RenderPrompt,
    is_labelled: bool,
    tells_own_task: bool,
) -> str:
    """Return the system prompt of one speaker."""
    if speaker.system_prompt is None:
        together = " and ".join(part for part in (", ".join(others[:-1]), others[-1]) if part)
        prompt = render_prompt(PARTICIPANT, me=speaker.name, others=together)
        if is_labelled:
            prompt = f"{prompt} {render_prompt(SPEAKER_LABELS)}"
    else:
        prompt = speaker.system_prompt
    parts = [prompt]
    if task is not None:
        if "{task}" in prompt:
            parts = [fill_template(prompt, task=task)]
        else:
            parts.append(render_prompt(CONVERSATION_TASK, task=task))
    if speaker.task is not None and tells_own_task:
        parts.append(render_prompt(SPEAKER_TASK, task=speaker.task))
    if speaker.format is not None and not is_format_described(speaker.format, prompt):
        parts.append(describe_format(speaker.format, schema))
    return "\n\n".join(parts)
