"""What the nodes share that is not data: models and functions, and the one way to finish a step."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config, get_stream_writer

from ...graphs.common.errors import SpecError
from ...graphs.conversation.conversation import Conversation, Form
from ...graphs.conversation.limits import has_limits
from ...graphs.conversation.sandbox import Language
from ...graphs.conversation.usage import Usage, dump_usage, read_usage
from ...graphs.ends.facts import Facts
from ...graphs.log.heard_text import heard_text
from ...graphs.log.messages import metadata, says_something
from ...graphs.log.state import State, update_of, with_own_ids
from ...graphs.rules.log_counter import Reader, with_usage
from ...graphs.rules.moves import TURN_ENDS
from ...graphs.rules.outcome import outcome
from ...graphs.rules.position import Phase, Position
from ...graphs.rules.transitions import Decision, Node, decide, position_after_removals
from ...graphs.speakers.model_settings import ModelSettings
from ...graphs.speakers.speaker import Speaker
from ...tools.registry.functions import call
from ...tools.registry.registry import Registry
from ...tools.sandbox import sandbox
from ..models.gate import Gate, Unbroken
from ..models.model import Model, Models
from ..models.settings import CallSettings
from ..models.tool_binding import check_room
from .next_message import lines_before
from .run_input import is_task_given, waiting_message
from .running_sessions import RunningSession, RunningSessions, StepProgress

AskedToStop = Callable[[str], Awaitable[bool]]
"""Takes a session's id; whether somebody asked it to stop."""


@dataclass(frozen=True)
class Resources:
    """What is given to `build_graph`, since it is not data."""

    models: Models
    """Where models are found."""
    registry: Registry
    """Where tools and functions are found."""
    stop_requested: AskedToStop | None = None
    """Tells, between turns, whether a session was asked to stop."""
    written: Callable[[], Awaitable[None]] | None = None
    """Awaits what is being written, as a person's answer is while its node begins."""
    progress: StepProgress | None = None
    """How far the newest step is. None if several runs share these resources."""
    tokens: bool = False
    """Whether what models say is told piece by piece, to whoever follows the stream."""
    form: type[Form] | None = None
    """A kind's short form, whose fields a run may be started with."""
    allow_host: bool = False
    """Whether a conversation may name ``host`` as its sandbox."""
    allow_paths: bool = False
    """Whether a conversation may name a model by a path or an address."""
    asks_again: bool = True
    """Whether an answer that does not fit is asked for again, by the same interrupt; else it is an
    error, for whoever asks to say."""
    running: RunningSessions = field(default_factory=RunningSessions)
    """What was read of the sessions that run."""

    async def check(self, conversation: Conversation) -> Conversation:
        """Make sure that a conversation can be run here, before it begins; give it as it does."""
        for name in conversation.model_names:
            self.check_model(name)
        self.registry.bring(conversation)
        conversation = await self.find(conversation)
        if has_limits(conversation):
            await asyncio.to_thread(check_room, conversation, self.registry)
        return conversation

    def check_model(self, name: str | None) -> None:
        """Make sure that a model may be named so, which may come from a client of a server."""
        if name is not None and not self.allow_paths:
            self.models.refuse_place(name)

    async def find(self, conversation: Conversation) -> Conversation:
        """Find what a conversation names, and see that its code can be run here.

        Gives it with the registered texts in it.
        """
        if not self.registry.knows(conversation):
            # Looking it up imports packages, which must not hold up other coroutines.
            await asyncio.to_thread(self.registry.check, conversation)
            await self.registry.connect(conversation)
        languages = self.registry.languages_of(conversation)
        if languages:
            await self._check_sandbox(conversation, languages)
        return self.registry.resolve_prompts(conversation) if conversation.prompts else conversation

    async def _check_sandbox(self, conversation: Conversation, languages: set[Language]) -> None:
        if conversation.sandbox.level == "host" and not self.allow_host:
            raise SpecError(
                "sandbox.level: 'host' is not allowed here, since code would run unprotected: "
                "choose another, or build the graph with allow_host=True"
            )
        await sandbox.check(conversation.sandbox, languages)


@dataclass(frozen=True)
class NodeContext:
    """A session's state, read once at the start of a node."""

    resources: Resources
    """Models and functions."""
    session: RunningSession
    """The spec, and what is read of the log."""
    position: Position
    """Where it is."""
    log: list[AnyMessage]
    """Everything ever said."""
    usage: dict[str, Usage]
    """What was used, by model."""
    task: str | None
    """The task of all."""
    messages: Sequence[AnyMessage] = ()
    """The state's messages, among which one may wait to be said."""
    began: float = field(default_factory=time.monotonic)
    """When the step began, in seconds of no date."""

    @classmethod
    async def of(cls, state: State, resources: Resources) -> "NodeContext":
        """Read a state in which the task stands."""
        session = resources.running.of(session_id(), state)
        if not session.is_checked:
            await resources.find(session.conversation)
            session.is_checked = True
        return cls(
            resources,
            session,
            session.position(state),
            session.log(state),
            read_usage(state),
            state.get("specified_task") or None,
            state.get("messages") or (),
        )

    @cached_property
    def conversation(self) -> Conversation:
        """The spec."""
        return self.session.conversation

    @cached_property
    def gate(self) -> Gate | None:
        """What the calls of this step pass."""
        gate = self.resources.models.gate
        return None if gate is None else Unbroken(gate)

    @cached_property
    def reader(self) -> Reader:
        """What is read of the log."""
        return self.session.reader

    @cached_property
    def turn(self) -> Decision:
        """Whose turn it is now, by the rules."""
        return self.session.turn(self.position)

    def brought(self, speaker: str) -> AnyMessage | None:
        """Give what this run was given for a person to say, where it is not said yet."""
        return waiting_message(self.messages, speaker)

    async def model(self, name: str | None) -> Model:
        """Return the model of this name, or the conversation's; ready, and with a price."""
        name = name or self.conversation.model
        self.resources.check_model(name)
        model = await self.resources.models.get(name, notify, self.gate)
        model.check_price(self.conversation)
        if self.resources.progress is not None:
            self.resources.progress.note_asking()
        return model

    def settings(
        self,
        where: str,
        model_settings: ModelSettings,
        temperature: float,
        max_tokens: int | None = None,
    ) -> CallSettings:
        """Return the settings of a model call.

        Args:
            where: The path of the settings in the conversation, for errors.
            model_settings: The settings that the user set.
            temperature: The default temperature.
            max_tokens: The default limit on the answer. None: there is none.
        """
        seed = self.conversation.seed
        return CallSettings.of(
            model_settings, where, temperature=temperature, max_tokens=max_tokens, seed=seed
        )

    def path_of(self, speaker: Speaker, field: str) -> str:
        """Return the path of a speaker's field in the conversation, for errors."""
        return f"speakers.{self.conversation.names.index(speaker.name)}.{field}"

    def with_call(
        self, model: Model, answer: AIMessage, usage: dict[str, Usage] | None = None
    ) -> dict[str, Usage]:
        """Return the usage after one more answered call of a model.

        Args:
            model: The model.
            answer: Its answer.
            usage: The usage before the call. None: that of the session.
        """
        usage = self.usage if usage is None else usage
        before, price = usage.get(model.label, Usage()), model.price(self.conversation.prices)
        if model.gate is not None:
            model.gate.count(model.label, Usage().plus(answer, price))
        if self.resources.progress is not None:
            self.resources.progress.note_answer()
        return usage | {model.label: before.plus(answer, price)}

    async def anew(self) -> dict[str, Any] | None:
        """Give what a node writes first where it would read a removed message; else None."""
        position = position_after_removals(self.position, self.log)
        return None if position is self.position else await self.step(position, [])

    async def step(
        self,
        position: Position,
        messages: Sequence[AnyMessage],
        usage: dict[str, Usage] | None = None,
        *,
        tells: bool = True,
    ) -> dict[str, Any]:
        """Give what a node writes: the new position and messages, and the outcome at the end.

        Without `tells` whoever is next was told so already.
        """
        usage = self.usage if usage is None else usage
        messages = with_own_ids(messages, self.log)
        log = [*self.log, *messages]
        facts = await self._facts(position, log, usage)
        position = position.model_copy(update={"facts": facts})
        decision = decide(self.conversation, position)
        update: dict[str, Any] = {
            "position": position.model_dump(mode="json", exclude_defaults=True)
        }
        update["usage"] = dump_usage(usage)
        if decision.node is Node.END:
            tallies = self.reader.tallies(log)
            ended = outcome(self.conversation, position, decision.reasons, log, usage, tallies)
            update["outcome"] = ended.model_dump(mode="json")
            return update | self._at_the_end(messages)
        told = lines_before(self.conversation, position, decision, log) if tells else []
        return update | update_of([*messages, *told], self.log)

    def _at_the_end(self, new: Sequence[AnyMessage]) -> State:
        """Give what is written with the last messages.

        Who has given the task as a message looks for the answer in the last one.
        """
        update = update_of(new, self.log)
        spoken = update.get("messages", [])
        if spoken and is_task_given(self.messages):
            heard = [heard_text(self.conversation, one, metadata(one)).strip() for one in spoken]
            mute = [one for one, text in zip(spoken, heard, strict=True) if not text]
            update["messages"] = [one for one, text in zip(spoken, heard, strict=True) if text]
            if mute:
                # As in `update_of`: within one more list.
                update["unspoken"] = cast("list[AnyMessage]", [*update.get("unspoken", []), mute])
        return update

    async def _facts(
        self, position: Position, log: Sequence[BaseMessage], usage: dict[str, Usage]
    ) -> Facts:
        before = position.facts
        facts = with_usage(self.reader.facts(log), usage.values())
        return facts.model_copy(
            update={
                "seconds": before.seconds + time.monotonic() - self.began,
                "stop_requested": await self._asked_to_stop()
                if position.phase in TURN_ENDS
                else before.stop_requested,
                "predicates": await self._predicates(log, position, before),
            }
        )

    async def _asked_to_stop(self) -> bool:
        asks = self.resources.stop_requested
        session = session_id()
        return asks is not None and session is not None and await asks(session)

    async def _predicates(
        self, log: Sequence[BaseMessage], position: Position, before: Facts
    ) -> tuple[str, ...]:
        """The predicates that hold, of those that the ends name."""
        if position.phase is Phase.SPOKEN:
            # What held before this message says nothing of it.
            return ()
        if position.phase is not Phase.CHECKED:
            return before.predicates
        said = heard_messages(log)
        # All of it may be removed, and functions may look at the newest message.
        asked = self.conversation.predicates if said else ()
        return tuple([name for name in asked if await self._holds(name, said)])

    async def _holds(self, name: str, said: Sequence[BaseMessage]) -> bool:
        function = self.resources.registry.predicate(name)
        return bool(await call("predicate", name, function, said))


def session_id(config: RunnableConfig | None = None) -> str | None:
    """Return the id of the session that runs, as in a node; None where nothing keeps it."""
    found: str | None = (config or get_config()).get("configurable", {}).get("thread_id")
    return found


def heard_messages(log: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Give what all heard in the rounds and as last words, oldest first, as functions see it."""
    read = ((message, metadata(message)) for message in log)
    return [message for message, about in read if about.is_aloud and says_something(message, about)]


def notify(text: str) -> None:
    """Tell whoever follows the stream what is going on."""
    get_stream_writer()({"notice": text})
