"""The resources that nodes share, and a session's state as one node reads it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config, get_stream_writer

from ...graphs.common.content import Content
from ...graphs.common.errors import naming_path
from ...graphs.conversation.conversation import Conversation, Form
from ...graphs.conversation.fields import Opening
from ...graphs.conversation.judges import Concurrent, RoundRobin
from ...graphs.conversation.limits import has_limits
from ...graphs.conversation.served import check_host
from ...graphs.conversation.usage import Usage, add_models, dump_usage
from ...graphs.ends.end import Facts
from ...graphs.log.memory import select_heard
from ...graphs.log.messages import make_message, metadata, says_something, stored_metadata
from ...graphs.log.metadata import INPUT, Instruction, MessageMetadata, OpeningAnswer, Speech, Stage
from ...graphs.log.state import State, hide_messages, update_of, with_own_ids
from ...graphs.prompts import prompts
from ...graphs.rules.log_counter import with_usage
from ...graphs.rules.outcome import list_after_output, outcome
from ...graphs.rules.position import (
    BETWEEN_TURNS,
    CALL_OF_SPEAKER,
    TURN_ENDS,
    Leaving,
    Phase,
    Position,
)
from ...graphs.rules.transitions import (
    Decision,
    Node,
    decide,
    position_after_removals,
    record_leaving,
    record_pause,
)
from ...graphs.rules.turns import Dialogue
from ...graphs.speakers.call_settings import ModelSettings
from ...graphs.speakers.speaker import Speaker
from ...tools.registry.functions import call
from ...tools.registry.hooks import Hook
from ...tools.registry.registry import Registry
from ...tools.sandbox import sandbox
from ..models.gate import StepGate
from ..models.model import Model, Models
from ..models.settings import CallSettings
from ..models.tool_binding import check_room
from .running_sessions import RunningSession, RunningSessions, StepProgress

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

AskedToStop = Callable[[str], Awaitable[bool]]
"""A function that returns whether someone asked to stop the session with this id."""


CompileInner: TypeAlias = "Callable[[Resources], Pregel[Any, Any, Any, Any]]"
"""A function that compiles a graph with other resources."""


@dataclass(frozen=True)
class Resources:
    """The arguments of `build_graph` that are not data."""

    models: Models
    """The registry of models."""
    registry: Registry
    """The registry of tools and functions."""
    stop_requested: AskedToStop | None = None
    """Called between turns. Returns whether the session was asked to stop. Never called if None."""
    written: Callable[[], Awaitable[None]] | None = None
    """A function that waits until pending writes, such as a person's answer, are stored. No wait if
    None.
    """
    progress: StepProgress | None = None
    """The progress of the newest step. None if several runs share these resources."""
    tokens: bool = False
    """Whether speeches are streamed in pieces while models write them."""
    form: type[Form] | None = None
    """A kind's short form, whose fields a run may set. None if a run sets a whole conversation."""
    allow_host: bool = False
    """Whether a conversation may choose the sandbox level ``host``."""
    allow_paths: bool = False
    """Whether a conversation may name a model by a path or an address."""
    serves_clients: bool = True
    """Whether clients of the graph start its runs. If a client's answer does not fit, the same
    interrupt asks again, and a client's message needs no interrupt. A run's context may contain an
    assistant's settings. If false, each question to a person is an interrupt, and an answer that
    does not fit raises an error, which the caller can report. Only tools and agents read the
    context.
    """
    running: RunningSessions = field(default_factory=RunningSessions)
    """The running sessions, as read so far."""
    compile_inner: "CompileInner | None" = None
    """Compiles the graph of an inner conversation. None if the graph itself was not compiled by
    `graphs.build`."""
    is_inner: bool = False
    """Whether an outer conversation runs the graph. Then each question to a person is an interrupt,
    whoever runs the outer graph."""

    async def check(self, conversation: Conversation) -> Conversation:
        """Check that a conversation can run here, and return it with its registered prompts."""
        self.registry.bring(conversation)
        resolved = await self.find(conversation)
        await self._check_each(resolved, self._check_models)
        return resolved

    async def _check_each(
        self, conversation: Conversation, check: Callable[[Conversation], Awaitable[None]]
    ) -> None:
        """Check a conversation and those inside it. An error names the path of the inner one."""
        await check(conversation)
        for path, inner in self.registry.inner_of(conversation):
            with naming_path(path):
                await check(inner)

    async def _check_models(self, conversation: Conversation) -> None:
        for name in conversation.model_names:
            self.check_model(name)
        if has_limits(conversation):
            await asyncio.to_thread(check_room, conversation, self.registry)

    def check_model(self, name: str | None) -> None:
        """Check that a model's name is allowed, since a client of a server may have chosen it."""
        if name is not None and not self.allow_paths:
            self.models.refuse_place(name)

    async def find(self, conversation: Conversation) -> Conversation:
        """Check a conversation's names and sandbox, and return it with its registered prompts.

        The conversations inside it are checked, too.
        """
        await self._check_each(conversation, self._find_names)
        return self.registry.resolve_prompts(conversation) if conversation.prompts else conversation

    async def _find_names(self, conversation: Conversation) -> None:
        if not self.registry.knows(conversation):
            # In a thread: the check imports packages, which would block other coroutines.
            await asyncio.to_thread(self.registry.check, conversation)
            await self.registry.connect(conversation)
        languages = self.registry.languages_of(conversation)
        if languages:
            if not self.allow_host:
                check_host(conversation)
            await sandbox.check(conversation.sandbox, languages)


@dataclass(frozen=True, kw_only=True)
class NodeContext(Dialogue):
    """A session's state, read once at the start of a node."""

    resources: Resources
    """The models and functions."""
    session: RunningSession
    """The running session, with its spec and a log reader."""
    usage: dict[str, Usage] = field(default_factory=dict)
    """The usage so far, by model, with the calls of this step."""
    new: list[AnyMessage] = field(default_factory=list)
    """The messages that this step adds to the log."""
    task: str | None = None
    """The task of the conversation."""
    messages: Sequence[AnyMessage] = ()
    """The state's messages. They may include a message of this run's input that no speaker has said
    yet.
    """
    is_recorded: bool = False
    """Whether each call of the step is recorded, so that a repeated step makes no call again."""
    began: float = field(default_factory=time.monotonic)
    """The start of the step, by the monotonic clock in seconds."""

    @classmethod
    async def read(cls, state: State, resources: Resources) -> "NodeContext":
        """Read the state of a session that has begun."""
        session = resources.running.find(session_id(), state)
        if not session.is_checked:
            await resources.find(session.conversation)
            session.is_checked = True
        return cls.make(session, state, resources)

    @classmethod
    def make(cls, session: RunningSession, state: State, resources: Resources) -> "NodeContext":
        """Return a session's state as a node reads it."""
        return cls(
            session.conversation,
            session.position(state),
            log=session.log(state),
            resources=resources,
            session=session,
            usage={**session.usage(state)},
            task=state.get("specified_task") or None,
            messages=state.get("messages") or (),
        )

    @cached_property
    def gate(self) -> StepGate | None:
        """The gate for the model calls of this step, which may delay or refuse a call.

        None if calls pass without a gate.
        """
        gate = self.resources.models.gate
        return None if gate is None else StepGate(gate, is_resumable=self.is_recorded)

    @cached_property
    def turn(self) -> Decision:
        """The next step, according to the rules."""
        return self.session.turn(self.position)

    @cached_property
    def speaker(self) -> Speaker:
        """The speaker of the turn, as in its stage."""
        return adapt_to_stage(self.turn.stage, self.conversation.speaker(self.turn.speaker))

    @cached_property
    def hooks(self) -> list[tuple[str, Hook]]:
        """The speaker's hooks with their names, in order."""
        return self.resources.registry.hooks_of(self.speaker) if self.speaker.hooks else []

    def lines(self) -> Sequence[AnyMessage]:
        """Return the log with the messages that this step adds."""
        return [*self.log, *self.new] if self.new else self.log

    def heard_lines(self) -> Sequence[AnyMessage]:
        """Return the part of the log that the speaker hears, with the messages of this step."""
        lines = [*self.log, *self.new] if self.new else self.log
        return select_heard(self.conversation, lines, self.turn.speaker)

    def next_place(self) -> int:
        """Return the place of the next message in the log."""
        return len(self.log) + len(self.new)

    def add(
        self,
        content: Content,
        about: MessageMetadata,
        answer: AIMessage | None = None,
        *,
        id: str | None = None,  # noqa: A002  # as LangChain calls it
        with_calls: bool = False,
    ) -> None:
        """Add a message to the log, also the calls of its answer if `with_calls` is true."""
        message = make_message(
            len(self.log) + len(self.new),
            content,
            about,
            id=id,
            answer=answer,
            tool_calls=answer.tool_calls if answer and with_calls else (),
            invalid_tool_calls=answer.invalid_tool_calls if answer and with_calls else (),
        )
        self.new.append(message)

    def begin_at_once(self, speaker: str) -> "NodeContext":
        """Return the context in which a speaker's model is called at the same time as others.

        Its usage is that of this call alone.
        """
        turn = self.turn.model_copy(update={"speaker": speaker})
        return replace(
            self,
            # The step as a whole is one call for the run's progress.
            resources=replace(self.resources, progress=None),
            position=record_pause(self.position, turn, Phase.REQUESTED),
            usage={},
            new=[],
            is_recorded=True,
        )

    def find_waiting_message(self, speaker: str) -> AnyMessage | None:
        """Return the message in this run's input that a person has yet to say as this speaker."""
        return waiting_message(self.messages, speaker)

    async def model(self, name: str | None) -> Model:
        """Return the model with this name, or the conversation's model, ready for a call.

        Raises:
            SpecError: The conversation needs the model's price, and there is none.
        """
        name = name or self.conversation.model
        self.resources.check_model(name)
        model = await self.resources.models.get(name, notify, self.gate, self.session.warned)
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
            model_settings: The settings that the user chose.
            temperature: The default temperature.
            max_tokens: The default limit on the answer. No limit if None.
        """
        seed = self.conversation.seed
        return CallSettings.make(
            model_settings, where, temperature=temperature, max_tokens=max_tokens, seed=seed
        )

    def path_of(self, field: str) -> str:
        """Return the path of a field of the speaker in the conversation, for errors."""
        return f"speakers.{self.conversation.names.index(self.turn.speaker)}.{field}"

    def count_call(self, model: Model, answer: AIMessage) -> None:
        """Count the usage of an answered call of a model."""
        label, price = model.label, model.price(self.conversation.prices)
        if model.gate is not None:
            model.gate.count(label, Usage().plus(answer, price))
        if self.resources.progress is not None:
            self.resources.progress.note_answer()
        self.usage[label] = self.usage.get(label, Usage()).plus(answer, price)

    def add_usage(self, usage: Mapping[str, Usage]) -> None:
        """Add the usage of other calls, by model."""
        self.usage.update(add_models(self.usage, usage))

    async def repair_position(self) -> dict[str, Any] | None:
        """Return the update to an earlier position if a message that the node needs was removed.

        None if no such message was removed.
        """
        position = position_after_removals(self.position, self.log)
        return None if position is self.position else await self.step(position)

    async def pause(self, phase: Phase, *, succeeded: bool = False) -> dict[str, Any]:
        """Return a node's update after a phase within a turn; `succeeded` counts a tool round."""
        return await self.step(record_pause(self.position, self.turn, phase, succeeded=succeeded))

    async def leave(self, leaving: Leaving) -> dict[str, Any]:
        """Return a node's update after a person has ended the conversation instead of speaking."""
        return await self.step(record_leaving(self.position, self.turn, leaving))

    async def step(self, position: Position, *, tells: bool = True) -> dict[str, Any]:
        """Return a node's update: the new position and messages and, at the end, the outcome.

        Args:
            position: The new position.
            tells: Whether to add the instructions before the next turn. False if they are in the
                log already.
        """
        usage = self.usage
        messages = with_own_ids(self.new, self.log)
        log = [*self.log, *messages]
        facts = await self._count_facts(position, log)
        position = position.model_copy(update={"facts": facts})
        dialogue = Dialogue(self.conversation, position, log=log)
        decision = decide(dialogue)
        stored = position.model_dump(mode="json", exclude_defaults=True)
        update: dict[str, Any] = {"position": stored, "usage": dump_usage(usage)}
        self.session.keep_step(update, position, decision, usage)
        if decision.node is Node.END:
            ended = outcome(dialogue, decision.reasons, usage, self.session.reader.tallies(log))
            update["outcome"] = ended.model_dump(mode="json")
            # Clients look for the output in the last message of `messages`. Therefore the messages
            # that follow the output go to `unspoken`.
            behind = [*list_after_output(self.conversation, log)][::-1]
            return update | hide_messages(behind, self.messages, update_of(messages, self.log))
        new = instruct_before_turn(dialogue, decision) if tells else []
        return update | update_of([*messages, *new], self.log)

    async def _count_facts(self, position: Position, log: Sequence[BaseMessage]) -> Facts:
        before = position.facts
        speaker = position.speaker if position.phase in CALL_OF_SPEAKER else None
        facts = with_usage(self.session.reader.facts(log), self.usage.values(), before, speaker)
        is_stopped, predicates = before.stop_requested, before.predicates
        if position.phase in TURN_ENDS:
            asks, session = self.resources.stop_requested, session_id()
            is_stopped = asks is not None and session is not None and await asks(session)
        if position.phase is Phase.SPOKEN:
            # Predicates that were true before this message may be false now.
            predicates = ()
        elif position.phase is Phase.CHECKED:
            said, find = heard_messages(log), self.resources.registry.predicate
            # Every message may have been removed, and a function may read the newest one.
            asked = self.conversation.predicates if said else ()
            met = [name for name in asked if await call("predicate", name, find(name), said)]
            predicates = tuple(met)
        seconds = before.seconds + time.monotonic() - self.began
        return facts.model_copy(
            update={"seconds": seconds, "stop_requested": is_stopped, "predicates": predicates}
        )


def adapt_to_stage(stage: Stage, speaker: Speaker) -> Speaker:
    """Return a speaker for a stage: answers to private prompts have no output format."""
    return speaker.model_copy(update={"format": None}) if stage is Stage.PRIVATE else speaker


def session_id(config: RunnableConfig | None = None) -> str | None:
    """Return the id of the running session. None if the session is not stored."""
    found: str | None = (config or get_config()).get("configurable", {}).get("thread_id")
    return found


def heard_messages(log: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages of the rounds and last words that others hear, oldest first."""
    read = ((message, metadata(message)) for message in log)
    return [message for message, about in read if about.is_aloud and says_something(message, about)]


def notify(text: str) -> None:
    """Send a notice to the stream of the run. Without a running graph, do nothing."""
    try:
        write = get_stream_writer()
    except (KeyError, RuntimeError):
        # A judge of a stored session is asked without a graph.
        return
    write({"notice": text})


def instruct_before_turn(dialogue: Dialogue, decision: Decision) -> list[AnyMessage]:
    """Return the instructions to add to the log before the next turn."""
    speaks = decision.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
    if dialogue.position.phase not in BETWEEN_TURNS or not speaks:
        return []
    found = _choose_instruction(dialogue, decision)
    return [] if found is None else [make_message(len(dialogue.log), *found)]


def _choose_instruction(
    dialogue: Dialogue, decision: Decision
) -> tuple[Content, MessageMetadata] | None:
    conversation, position, name = dialogue.conversation, dialogue.position, decision.speaker
    speaker, opening = conversation.speaker(name), conversation.opening
    alone = Instruction(audience=(name,))
    if decision.stage is Stage.PRIVATE:
        return (speaker.private_opening and speaker.private_opening.prompt) or "", alone
    if decision.stage is Stage.OPENING:
        return speaker.task or "", Instruction(
            to=name, audience=None if opening.reconcile else (name,)
        )
    if decision.stage is Stage.ROUNDS and isinstance(conversation.turn_order, Concurrent):
        # The instruction is for all speakers of the round.
        if dialogue.is_in_round():
            return None
        line = opening.first_line if position.turns == 0 else None
        return line or conversation.render_prompt(prompts.ALL_SPEAK), Instruction()
    if decision.stage is Stage.ROUNDS and position.turns == 0:
        # Many models refuse a prompt that begins with an assistant message.
        begins = speaker.first_message is not None or speaker.human is not None
        if begins and not speaker.has_model and opening == Opening():
            return None
        return _make_first_instruction(conversation, alone, dialogue.log)
    if speaker.human is not None and not speaker.has_model:
        # A person's question names the speaker already.
        return None
    if not conversation.is_pair or not isinstance(conversation.turn_order, RoundRobin):
        return conversation.render_prompt(prompts.YOUR_TURN, name=name), alone
    return None


def _make_first_instruction(
    conversation: Conversation, alone: Instruction, log: Sequence[BaseMessage]
) -> tuple[Content, MessageMetadata]:
    """Return the first instruction of the rounds (Yacana's shift message)."""
    opening = conversation.opening
    if opening.first_line is not None:
        return opening.first_line, alone
    if opening.reconcile:
        # Every speaker knows all answers, so none is passed on.
        return conversation.render_prompt(prompts.CONTINUE_CONVERSATION), alone
    before = conversation.order[-1]
    for message in reversed(log) if opening.answers else ():
        about = metadata(message)
        if isinstance(about, Speech) and about.speaker == before:
            return message.content, OpeningAnswer(speaker=before, audience=alone.audience)
    # There is no answer, or it was removed.
    return conversation.render_prompt(prompts.BEGIN), alone


def waiting_message(messages: Sequence[AnyMessage], speaker: str) -> AnyMessage | None:
    """Return the message in a run's input that this speaker's person has yet to say."""
    for message in reversed(messages):
        about = stored_metadata(message)
        if about.get("speaker") == speaker:
            return message if about.get("kind") == INPUT else None
    return None
