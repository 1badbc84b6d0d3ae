"""The compiled graph, which checks inputs and manual writes before LangGraph stores them.

LangGraph stores a run's input before the first node reads it, and then discards the thread's open
question. A check in the first node would therefore come too late.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from langchain_core.messages import RemoveMessage
from langchain_core.runnables import RunnableConfig, ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore
from langgraph.types import Checkpointer, Command, StateUpdate, ensure_valid_checkpointer

from ..nodes.turn.node_context import Resources
from ..nodes.turn.run_input import has_unread_message
from ..nodes.turn.running_sessions import wait_for
from .common.errors import SpecError
from .log.state import Output, State, apply_update, hide_removed, is_removed, read_messages

CheckInput: TypeAlias = Callable[[State, Any], Awaitable[object]] | None
"""A function that takes the state with the input in it and the run's context, and raises an error
if the input is refused. None if the caller of the graph has checked the input."""

GraphInput: TypeAlias = Mapping[str, Any] | Command[Any] | None
"""The input of a run: a dict whose fields depend on the graph, a command, or None to resume."""

_NO_MORE: Final = object()
"""Marks the end of a stream."""

_AS_NODE_OF_A_RUN: Final = "__pregel_task_id"
"""The key that LangGraph adds to a config when a graph runs as a node of another graph."""

_NO_NODES: Final = (START, END, "__input__", "__copy__")
"""LangGraph's own nodes. An update written as one of them does not reach the channel `unspoken`."""

_AS_INPUT: Final = [[StateUpdate({}, START)]]
"""An update after which the first node reads the messages that are new to the session."""

_RESOURCES: ContextVar[Resources] = ContextVar("_RESOURCES")
"""The resources of the running graph. The nodes find them here, because all graphs of one form
share the same nodes."""


def resources_of_run() -> Resources:
    """Return the resources of the running graph, for a node or an edge."""
    return _RESOURCES.get()


class ConversationGraph(CompiledStateGraph[State, Any, Any, Output]):
    """A compiled graph of conversations. A refused input or write leaves its thread unchanged."""

    def __init__(self, *, resources: Resources, check_input: CheckInput, **fields: Any) -> None:
        """Store the resources of the nodes, and the fields of LangGraph's compiled graph."""
        super().__init__(**fields)
        # The attributes have the names of the arguments, because `copy` passes all attributes as
        # arguments.
        self.resources = resources
        self.check_input = check_input

    @classmethod
    def from_template(
        cls,
        template: CompiledStateGraph[State, Any, Any, Output],
        checkpointer: Checkpointer,
        name: str,
        resources: Resources,
        check_input: CheckInput,
        runtime_store: BaseStore | None = None,
    ) -> "ConversationGraph":
        """Return a graph with the nodes of a template. The template itself does not change."""
        fields = {name: one for name, one in vars(template).items() if name != "__orig_class__"}
        fields |= {"nodes": {**template.nodes}, "channels": {**template.channels}, "name": name}
        fields["checkpointer"] = ensure_valid_checkpointer(checkpointer)
        fields["store"] = runtime_store
        made = cls(resources=resources, check_input=check_input, **fields)
        # The constructor drops some fields, such as the types that a checkpoint may contain.
        vars(made).update(fields)
        return made

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """Provide this graph's resources to the steps that begin inside the block."""
        token = _RESOURCES.set(self.resources)
        try:
            yield
        finally:
            _RESOURCES.reset(token)

    if TYPE_CHECKING:
        # LangGraph's signatures refuse a form's fields and a `Conversation`, and have types that
        # strict pyright does not know.
        def invoke(
            self,
            input: GraphInput,  # noqa: A002  # as LangGraph has it
            config: RunnableConfig | None = None,
            **options: Any,
        ) -> Any:  # noqa: ANN401
            """Run the graph, as LangGraph does."""

        async def ainvoke(
            self,
            input: GraphInput,  # noqa: A002  # as LangGraph has it
            config: RunnableConfig | None = None,
            **options: Any,
        ) -> Any:  # noqa: ANN401
            """Run the graph, as LangGraph does."""

    def stream(  # LangGraph's overloads differ by the types that they return
        self,
        input: GraphInput,  # noqa: A002  # as LangGraph has it
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """Stream a run's steps, as LangGraph does; `invoke` calls this.

        Raises:
            SpecError: The input is not valid.
            SessionError: The input does not fit the session.
        """
        given = self._read_input(input, config)
        known = self.get_state(config or {}).values if self._needs_state(given, config) else {}
        given, state = self._prepare_input(given, known, config)
        if state is not None:
            wait_for(lambda: self._check(state, options.get("context")))
        with closing(cast("Any", super().stream(given, config, **options))) as parts:
            while True:
                # The resources are not bound during the yield: the reader's code is not part of the
                # run.
                with self._bound():
                    part = next(parts, _NO_MORE)
                if part is _NO_MORE:
                    return
                yield part

    def astream(
        self,
        input: GraphInput,  # noqa: A002  # as LangGraph has it
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """Stream a run's steps, as `stream` does; `ainvoke` calls this."""
        return _BoundStream(lambda: self._begin_stream(input, config, options), self._bound)

    async def _begin_stream(
        self,
        given: Any,  # noqa: ANN401
        config: RunnableConfig | None,
        options: Mapping[str, Any],
    ) -> AsyncGenerator[Any, None]:
        """Read and check the input of a run, and return LangGraph's stream of its steps."""
        given = self._read_input(given, config)
        needed = self._needs_state(given, config)
        known = (await self.aget_state(config or {})).values if needed else {}
        given, state = self._prepare_input(given, known, config)
        if state is not None:
            await self._check(state, options.get("context"))
        return cast("AsyncGenerator[Any, None]", super().astream(given, config, **options))

    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Write updates to a thread's state, as LangGraph does; `update_state` calls this.

        If the last update names no node and adds a user's message to a session, the next run reads
        the message as it reads a run's input.

        Raises:
            SpecError: A value for `messages` is not a message, or the user's message is not a valid
                input. Then nothing is written.
            SessionError: The user's message does not fit the session. Then nothing is written.
        """
        read = [_read_updates(updates) for updates in supersteps]
        # After an update, LangGraph runs the edge of the node that the update is written as.
        with self._bound():
            if not any(map(_has_messages, read)):
                return super().bulk_update_state(config, read)
            state = _preview_updates(read, cast("State", self.get_state(config).values))
            if is_input := _has_input(read, state):
                wait_for(lambda: self._check(state, None))
            for updates in read:
                known = cast("State", self.get_state(config).values)
                config = super().bulk_update_state(config, [_hide_in_updates(updates, known)])
            return super().bulk_update_state(config, _AS_INPUT) if is_input else config

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Write updates as `bulk_update_state` does; `aupdate_state` calls this."""
        read = [_read_updates(updates) for updates in supersteps]
        with self._bound():
            if not any(map(_has_messages, read)):
                return await super().abulk_update_state(config, read)
            found = await self.aget_state(config)
            state = _preview_updates(read, cast("State", found.values))
            if is_input := _has_input(read, state):
                await self._check(state, None)
            for updates in read:
                known = cast("State", (await self.aget_state(config)).values)
                written = [_hide_in_updates(updates, known)]
                config = await super().abulk_update_state(config, written)
            return await super().abulk_update_state(config, _AS_INPUT) if is_input else config

    def _read_input(self, given: Any, config: RunnableConfig | None) -> Any:  # noqa: ANN401
        """Convert the messages in a run's input to LangChain messages, and refuse invalid input."""
        if given is None:
            return None
        if isinstance(given, Command):
            return _change_command(given, _read_values)
        if not isinstance(given, dict):
            found = type(given).__name__
            raise SpecError(f"input: is a {found}; pass a dict, such as {{'messages': […]}}")
        if self._is_served(config) and given.get("conversation") is not None:
            # Only clients are refused: as a node of another graph, this graph receives all values
            # of that graph's state.
            raise SpecError(
                "conversation: this graph always runs the same conversation; send messages instead"
            )
        if "messages" not in given:
            return given
        # Only duologue's nodes may set marks. Another conversation removed a message that is marked
        # as removed, so no speaker hears it here, either.
        plain: list[Any] = [
            RemoveMessage(id=str(one.id)) if isinstance(one, RemoveMessage) else one
            for one in read_messages(given["messages"])
        ]
        return {**given, "messages": [one for one in plain if not is_removed(one)]}

    def _needs_state(self, given: object, config: RunnableConfig | None) -> bool:
        """Return whether an input is compared with the thread's state before it is stored."""
        begins = given is None and self._is_served(config)
        return self._has_own_thread(config) and (begins or self._is_checked(given))

    def _is_checked(self, given: object) -> bool:
        is_input = isinstance(given, dict) and self.check_input is not None
        return is_input or _writes_messages(given)

    def _prepare_input(
        self,
        given: Any,  # noqa: ANN401
        known: Any,  # noqa: ANN401
        config: RunnableConfig | None,
    ) -> tuple[Any, State | None]:
        """Return the input of a run, and the state to check, which the first node will read."""
        if given is None and self._is_served(config) and not known:
            # LangGraph refuses None as the input of a new thread.
            given = {}
        if not (self._has_own_thread(config) and self._is_checked(given)):
            return given, None
        if isinstance(given, Command):
            # For an input, the first node hides removed messages.
            return _change_command(given, lambda values: _hide_in_values(values, known)[0]), None
        names = self.builder.schemas[self.builder.input_schema]
        written = {name: one for name, one in given.items() if name in names}
        return given, apply_update(known, written)

    async def _check(self, state: State, context: object) -> None:
        if self.check_input is not None:
            await self.check_input(state, context)

    def _has_own_thread(self, config: RunnableConfig | None) -> bool:
        """Return whether a run is stored on a thread of this graph, and not of a parent graph."""
        fields = dict((self.config or {}).get("configurable", {}))
        fields |= ensure_config(config).get("configurable", {})
        is_stored = isinstance(self.checkpointer, BaseCheckpointSaver) and "thread_id" in fields
        return is_stored and _AS_NODE_OF_A_RUN not in fields

    def _is_served(self, config: RunnableConfig | None) -> bool:
        """Return whether a client runs the graph's own conversation, and not a parent graph."""
        fields = ensure_config(config).get("configurable", {})
        return self.resources.running.served is not None and _AS_NODE_OF_A_RUN not in fields


class _BoundStream(AsyncIterator[Any]):
    """The steps of a run, which are computed with the graph's resources.

    This is no generator, because `asyncio.run` closes all generators that a reader has left at
    once. One generator could then not close another.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[AsyncGenerator[Any, None]]],
        bound: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._begin = begin
        self._bound = bound
        self._parts: AsyncGenerator[Any, None] | None = None

    async def __anext__(self) -> Any:  # noqa: ANN401
        """Return the next step."""
        if self._parts is None:
            self._parts = await self._begin()
        # The resources are bound only here: the reader's code is not part of the run.
        with self._bound():
            return await anext(self._parts)

    async def aclose(self) -> None:
        """Close the run."""
        if self._parts is not None:
            await self._parts.aclose()


def _read_values(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the messages in an update of a state to LangChain messages."""
    read = dict(values)
    if "messages" in values:
        read["messages"] = read_messages(values["messages"])
    if "unspoken" in values:
        given = values["unspoken"]
        # The value is a list of lists of messages, as `update_of` writes it.
        read["unspoken"] = [
            read_messages(part if isinstance(part, list) else [part], "unspoken")
            for part in (given if isinstance(given, list) else [given])
        ]
    return read


def _read_updates(updates: Sequence[StateUpdate]) -> list[StateUpdate]:
    read = [StateUpdate(*update) for update in updates]
    return [update._replace(values=_change_values(update.values, _read_values)) for update in read]


def _change_values(values: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:  # noqa: ANN401
    """Apply a function to the values of an update, which may be a command."""
    if isinstance(values, Command):
        return _change_command(values, change)
    return change(values) if isinstance(values, dict) else values


def _change_command(
    command: Command[Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Command[Any]:
    """Return a command with a function applied to its update."""
    update = _update_of(command)
    if update is None:
        return command
    return Command(
        graph=command.graph, update=change(update), resume=command.resume, goto=command.goto
    )


def _update_of(command: Command[Any]) -> dict[str, Any] | None:
    """Return the values that a command writes, by channel, or None if it writes none."""
    update: Any = command.update
    if isinstance(update, list | tuple):
        # Clients of a server may send a list of pairs.
        names = [name for name, _ in update]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SpecError(f"{twice}: the command updates it twice; update it once")
        update = dict(update)
    return update if isinstance(update, dict) else None


def _writes_messages(given: object) -> bool:
    """Return whether values, or a command, write messages."""
    update = _update_of(given) if isinstance(given, Command) else given
    return isinstance(update, dict) and not {"messages", "unspoken"}.isdisjoint(update)


def _has_messages(updates: Sequence[StateUpdate]) -> bool:
    return any(_writes_messages(update.values) for update in updates)


def _preview_updates(supersteps: Sequence[Sequence[StateUpdate]], known: State) -> State:
    """Return the state after updates."""
    for update in chain.from_iterable(supersteps):
        values = update.values
        written = _update_of(values) if isinstance(values, Command) else values
        known = apply_update(known, written) if isinstance(written, dict) else known
    return known


def _has_input(supersteps: Sequence[Sequence[StateUpdate]], state: State) -> bool:
    """Return whether a session's next run must read a user's message.

    The caller decides about the next node if the last update names a node.
    """
    *_, last = supersteps[-1]
    names_node = isinstance(last.values, Command) and bool(last.values.goto)
    return last.as_node is None and not names_node and has_unread_message(state)


def _hide_in_updates(updates: Sequence[StateUpdate], known: State) -> list[StateUpdate]:
    """Add the writes that hide removed messages to the updates of one superstep."""
    added: list[StateUpdate] = []
    for update in updates:
        values: Any = update.values
        if update.as_node not in _NO_NODES:

            def change(given: dict[str, Any]) -> dict[str, Any]:
                nonlocal known
                written, known = _hide_in_values(given, known)
                return written

            values = _change_values(values, change)
        added.append(update._replace(values=values))
    return added


def _hide_in_values(values: dict[str, Any], known: State) -> tuple[dict[str, Any], State]:
    """Add the writes that hide removed messages; return the values and the resulting state."""
    state = apply_update(known, values)
    hidden: dict[str, Any] = {**hide_removed(state)}
    written = {name: [*values.get(name, []), *one] for name, one in hidden.items()}
    return {**values, **written}, apply_update(state, hidden)
