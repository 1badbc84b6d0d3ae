"""The fields of a conversation, and properties derived from them."""

import json
from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, PositiveInt, field_validator

from ..common.data import MOST, AtLeast, Cap, ModelName, Name, Spec, Text
from ..common.errors import SpecError, hide_frames, list_names
from ..ends.end import leaves
from ..ends.end_chat import EndChat, EndChatMode
from ..prompts.prompts import (
    CONVERSATION_TASK,
    MODERATOR_LABEL,
    PARTICIPANT,
    SPEAKER_LABELS,
    SPEAKER_TASK,
    Prompt,
    fill_template,
)
from ..speakers.call_settings import ModelSettings, RunningSummary
from ..speakers.formats import describe_format, is_format_described
from ..speakers.replies import AgentReply, ConversationReply, FunctionReply, HumanInputMode
from ..speakers.speaker import Speaker
from ..text.names import normalize_look
from .judges import AnyJudge, Concurrent, Judge, Moderator, RoundRobin, SeparateJudge, TurnOrder
from .sandbox import Sandbox
from .usage import Price

SPEC_VERSION: Final = 16
"""The version of the specs that this release writes."""

_A_PAIR = 2

# Read many times for each message, so the getter is made once.
_name_of: Final = attrgetter("name")

TASK_TEMPERATURE = 1.0
"""The default temperature of the call that rewrites the task (LazyLLM's high temperature)."""


class TaskSpecification(Spec):
    """A request to a model to make the task more specific before the conversation."""

    word_limit: PositiveInt = 50
    """Maximum length of the rewritten task, in words."""
    model: ModelName | None = None
    """The model that rewrites the task. The conversation's default model if None."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of the call that rewrites the task. A temperature of None means 1.0."""
    small_models: bool = True
    """Whether the embedded model may rewrite the task, too. If False, a task that the embedded
    model would rewrite stays unchanged."""


class Opening(Spec):
    """The steps before the rounds."""

    answers: bool = False
    """Whether each speaker first answers its own task alone. The others do not hear the answers."""
    reconcile: bool = False
    """Whether the speakers hear one another's tasks and opening answers (Yacana). A speaker hears
    the tasks and answers of earlier speakers before it answers, and those of later speakers when
    the rounds begin."""
    first_speaker: Name | None = None
    """The name of the speaker of the first turn in the rounds. If None, the first speaker in the
    list, or with ``answers`` the second (Yacana's owner of the shift message)."""
    first_line: Text | None = None
    """The instruction to the first speaker before its first turn (Yacana's shift message). If None,
    it is a neutral line, or with ``answers`` but without ``reconcile`` the answer of the speaker
    before it."""


class Wording(Spec):
    """A replacement for a prompt."""

    text: Text | None = None
    """The text. If None, the registered text is stored here when the session begins."""
    name: Name | None = None
    """The name of a registered text. None if ``text`` contains the replacement itself."""


def _as_text(given: object) -> object:
    return {"text": given} if isinstance(given, str) else given


Prompts = dict[Name, Annotated[Wording, BeforeValidator(_as_text)]]
"""Replacements for prompts, by the prompts' names: a text, or ``{name = …}`` for a registered
text."""


class ConversationFields(Spec):
    """The fields of a conversation, each checked alone."""

    version: Literal[16] = SPEC_VERSION
    """The version of the format in which this spec is stored."""
    title: Text | None = None
    """The title in lists of sessions. The task if None."""
    task: Text | None = Field(default=None, kw_only=False)
    """The task of all speakers. It may be None only if every speaker has its own task, or if a
    person or a first message names the topic."""
    # Within `Annotated`, type checkers do not see that the field is positional. They would refuse a
    # field without a default after one with a default. `Conversation` declares its signature for
    # them.
    speakers: Annotated[tuple[Speaker, ...], AtLeast(2), Field(kw_only=False)]
    """The speakers, in the order of a round. The first is the user agent, the others are assistant
    agents."""
    turn_order: TurnOrder = RoundRobin()
    """The rule that selects the next speaker. If it is not a round-robin, a round has as many turns
    as there are speakers."""
    task_specification: TaskSpecification | None = None
    """How a model makes the task more specific first. The task is used unchanged if None."""
    opening: Opening = Opening()
    """The steps before the rounds."""
    end_chat: EndChat = EndChat()
    """The end conditions and guards of the conversation."""
    judge: AnyJudge = Judge()
    """The judge that decides if a task is complete."""
    model: ModelName | None = None
    """The model of all calls that do not name one. If None, the model of the settings, or the
    embedded model if the settings name none."""
    prices: dict[Text, Price] = Field(default_factory=dict)
    """Prices of the models, by the models' names. If any price is set, every model needs a price.
    If no price is set, the prices in the package genai-prices apply."""
    max_tool_rounds: Cap = 20
    """Maximum number of rounds of tool calls in one turn; then the speaker must answer without
    tools (LazyLLM) and the outcome contains a warning. Rounds in which every call fails do not
    count."""
    max_call_errors: Cap = 5
    """The conversation ends at this number of invalid tool calls in one turn, in a row or with the
    same error: calls of unknown tools, and arguments that are not JSON or do not fit the tool
    (Yacana). The speaker is asked for something else before the last one. Calls in one message
    count once."""
    max_tool_errors: Cap = 5
    """The conversation ends at this number of failed tool runs in one turn, counted in the same
    way."""
    tool_timeout: Annotated[float, Field(gt=0, le=MOST)] = 60
    """Maximum seconds of one tool call. A tool's ``metadata["timeout"]`` overrides it."""
    sandbox: Sandbox = Sandbox()
    """The sandbox for code that speakers write."""
    seed: int | None = None
    """The seed for the model calls of all speakers that set none. A model that supports seeds then
    tends to produce the same conversation again. No seed is sent if None."""
    prompts: Prompts = Field(default_factory=dict)
    """Replacements for prompts, by the prompts' names: a text, or the ``name`` of a registered
    text. A replacement may contain the placeholders of the original prompt."""

    @field_validator("speakers")
    @classmethod
    def _check_names(cls, speakers: tuple[Speaker, ...]) -> tuple[Speaker, ...]:
        seen: dict[str, str] = {}
        for name in (speaker.name for speaker in speakers):
            alike = next((seen[look] for look in normalize_look(name) if look in seen), None)
            if alike is not None:
                called = alike.casefold() == name.casefold()
                fault = f"two speakers are called {name!r}"
                fault = fault if called else f"{alike!r} and {name!r} look the same"
                raise ValueError(f"{fault}; give each a unique name")
            seen |= dict.fromkeys(normalize_look(name), name)
        return speakers

    @property
    def names(self) -> tuple[str, ...]:
        """Return the speakers' names, in the given order."""
        return tuple(map(_name_of, self.speakers))

    @property
    def people(self) -> tuple[str, ...]:
        """Return the names of the speakers for whom a person writes, always or sometimes."""
        return tuple(speaker.name for speaker in self.speakers if speaker.human)

    @property
    def order(self) -> tuple[str, ...]:
        """Return the speakers' names in the order of a round, starting with the first speaker.

        If all speak at once, people are asked first, before they could see the others' messages.
        """
        names = self.names
        first = self.opening.first_speaker or names[1 if self.opening.answers else 0]
        start = names.index(first)
        order = names[start:] + names[:start]
        if isinstance(self.turn_order, Concurrent):
            people = self.people
            return (
                *(name for name in order if name in people),
                *(name for name in order if name not in people),
            )
        return order

    @property
    def is_pair(self) -> bool:
        """Return whether there are exactly two speakers."""
        return len(self.speakers) == _A_PAIR

    def system_prompt(
        self, speaker: Speaker, task: str | None, schema: type[BaseModel] | None = None
    ) -> str:
        """Return the system prompt of one speaker."""
        prompt = speaker.system_prompt
        if prompt is None:
            others = [name for name in self.names if name != speaker.name]
            together = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
            prompt = self.render_prompt(PARTICIPANT, me=speaker.name, others=together)
            if self.hears_labels(speaker):
                prompt = f"{prompt} {self.render_prompt(SPEAKER_LABELS)}"
        parts = [prompt]
        if task is not None:
            if "{task}" in prompt:
                parts = [fill_template(prompt, task=task)]
            else:
                parts.append(self.render_prompt(CONVERSATION_TASK, task=task))
        if speaker.task is not None and not self.opening.answers:
            parts.append(self.render_prompt(SPEAKER_TASK, task=speaker.task))
        if speaker.format is not None and not is_format_described(speaker.format, prompt):
            parts.append(describe_format(speaker.format, schema))
        return "\n\n".join(parts)

    def render_prompt(self, prompt: Prompt, **values: object) -> str:
        """Return a prompt, or its replacement in this conversation, filled with values."""
        own = self.prompts.get(prompt.name)
        return fill_template(prompt if own is None or own.text is None else own.text, **values)

    def mark_instruction(self, speaker: Speaker, text: str) -> str:
        """Return an instruction of the conversation as it appears in a speaker's prompts.

        The instruction gets a label if the messages that the speaker hears do not start with names.
        """
        return (
            text if self.hears_labels(speaker) else self.render_prompt(MODERATOR_LABEL, text=text)
        )

    def hears_labels(self, speaker: Speaker) -> bool:
        """Return whether the messages that a speaker hears start with the senders' names.

        The speaker's ``labels`` decides. If it is None, names are added if there are more than two
        speakers, or if the two also hear each other's tasks and opening answers.
        """
        if speaker.labels is not None:
            return speaker.labels
        return not self.is_pair or self.opening.reconcile

    @property
    def stoppers(self) -> tuple[str, ...]:
        """Return the speakers after whose turns a judge checks if a task is complete."""
        marked = tuple(speaker.name for speaker in self.speakers if speaker.checks_completion)
        return self.names if isinstance(self.judge, SeparateJudge) and not marked else marked

    @property
    def predicates(self) -> tuple[str, ...]:
        """Return the names of the predicates that may end the conversation."""
        named = (one for _, end in leaves(self.end_chat.when) for one in end.registered())
        names = dict.fromkeys([name for _, kind, name in named if kind == "predicates"])
        for speaker in self.speakers:
            human = speaker.human
            if human is not None and human.is_termination is not None:
                names[human.is_termination] = None
        return tuple(names)

    @property
    def has_separate_judge(self) -> bool:
        """Return whether a separate judge decides if the tasks are complete."""
        return isinstance(self.judge, SeparateJudge)

    @property
    def is_free(self) -> bool:
        """Return whether there are prices and all of them are 0."""
        charged = any(price.input or price.output for price in self.prices.values())
        return bool(self.prices) and not charged

    @property
    def is_bounded_by_people(self) -> bool:
        """Return whether a person is sure to be asked, so that no cap is needed.

        In a round-robin every speaker gets its turns, and automatic replies for a person have a
        cap. The same is true if all speak at once.
        """
        return bool(self.people) and isinstance(self.turn_order, RoundRobin | Concurrent)

    @property
    def is_with_a_person(self) -> bool:
        """Return whether two speakers alternate and one of them is always a person."""
        people = (one.human.human_input_mode for one in self.speakers if one.human)
        return (
            self.is_pair
            and isinstance(self.turn_order, RoundRobin)
            and HumanInputMode.ALWAYS in people
        )

    @property
    def asks_for_more(self) -> bool:
        """Return whether a model is called again after a cut-off reply."""
        return any(one.has_model and one.on_length != "accept" for one in self.speakers)

    @property
    def secretive(self) -> tuple[str, ...]:
        """Return the names of the speakers that answer a private prompt first."""
        openings = ((one.name, one.private_opening) for one in self.speakers)
        return tuple(name for name, own in openings if own is not None and own.prompt is not None)

    @property
    def model_names(self) -> list[str | None]:
        """Return the models that the conversation needs, each once; None is the default model."""
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
            model: The name of a model. None is the default model.
        """
        for number, speaker in enumerate(self.speakers):
            if self.asks_model(speaker) and (speaker.model or self.model) == model:
                yield f"speakers.{number}.model_settings", speaker.model_settings
        task = self.task_specification
        if task is not None and (task.model or self.model) == model:
            yield "task_specification.model_settings", task.model_settings

    def asks_model(self, speaker: Speaker) -> bool:
        """Return whether a speaker's model is called, for its replies or for its own verdict."""
        judges = (
            speaker.checks_completion
            and isinstance(self.judge, Judge)
            and self.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        )
        return speaker.has_model or judges

    @property
    def agents(self) -> list[str]:
        """Return the names of the registered agents that speak, each once."""
        replies = (reply for speaker in self.speakers for reply in speaker.replies)
        names = (reply.name for reply in replies if isinstance(reply, AgentReply))
        return list(dict.fromkeys(names))

    @property
    def has_inner(self) -> bool:
        """Return whether a speaker's replies come from an inner conversation."""
        # A generator would cost a frame for each reply, and this runs several times per session.
        for speaker in self.speakers:
            for reply in speaker.replies:
                if isinstance(reply, ConversationReply):
                    return True
        return False

    def sums_up(self, speaker: Speaker) -> bool:
        """Return whether a speaker's history is summarized and the summary is read."""
        is_shown = self.asks_model(speaker) or any(
            isinstance(reply, FunctionReply | AgentReply | ConversationReply)
            for reply in speaker.replies
        )
        return isinstance(speaker.context, RunningSummary) and is_shown

    def stored(self) -> dict[str, Any]:
        """Return the conversation as the plain values that sessions store."""
        return {"version": self.version} | self.model_dump(mode="json", exclude_defaults=True)

    def to_toml(self) -> str:
        """Return the conversation as TOML, which `duologue run` and `load_conversation` read.

        Raises:
            SpecError: A tool call in a speaker's memory contains null, which TOML cannot express.
        """
        import tomli_w  # not needed to run a conversation

        stored = self._stored_for_toml()
        # In a multi-line string, TOML reads a carriage return and a line feed as one line feed.
        blocks = "\\r" not in json.dumps(stored)
        try:
            return tomli_w.dumps(stored, multiline_strings=blocks)
        except TypeError as error:
            raise SpecError(
                "speakers.memory: a tool call has null among its arguments, which TOML can't "
                "express; write the conversation as JSON"
            ) from error

    def _stored_for_toml(self) -> dict[str, Any]:
        """Return the stored form without null, which TOML cannot express."""
        stored = self.stored()
        if "end_chat" in stored:
            stored["end_chat"] = self.end_chat.for_toml()
        for speaker, written in zip(self.speakers, stored["speakers"], strict=True):
            for place, reply in enumerate(speaker.replies):
                inner = getattr(getattr(reply, "conversation", None), "brought", None)
                if isinstance(inner, ConversationFields):
                    written["replies"][place]["conversation"] = inner._stored_for_toml()
        return stored

    def speaker(self, name: str) -> Speaker:
        """Return the speaker of this name.

        Raises:
            KeyError: There is no such speaker.
        """
        for speaker in self.speakers:
            if speaker.name == name:
                return speaker
        with hide_frames:
            known = list_names(self.names)
            raise KeyError(f"no speaker is called {name!r}; choose one of {known}")
