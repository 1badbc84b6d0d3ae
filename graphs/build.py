"""The compiled graph: the same five nodes for every conversation, each with a conditional edge."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple, Required, TypeAlias, Unpack, cast, get_args

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import set_config_context
from langgraph._internal._runnable import RunnableSeq
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph._branch import BranchSpec
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore
from pydantic import Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict, get_type_hints

from ..nodes.assistant_agent import assistant_agent
from ..nodes.completion_judge import completion_judge
from ..nodes.models.adapters.composed import Chat
from ..nodes.models.model import Models
from ..nodes.task_specification import read_start, task_specification
from ..nodes.tool_executor import tool_executor
from ..nodes.turn.node_context import AskedToStop, Resources, session_id, waiting_message
from ..nodes.turn.running_sessions import RunningSession, RunningSessions, wait_for
from ..nodes.user_agent import user_agent
from ..tools.registry.registry import Registered, Registry
from .common.errors import SpecError, hide_frames
from .common.model_help import check_options, list_options
from .conversation.conversation import Conversation, Form
from .conversation.served import (
    check_host,
    describe_graph,
    describe_messages,
    name_graph,
    settings_of,
)
from .conversation_graph import ConversationGraph, resources_of_run
from .kinds.load import ConversationLike, load_conversation
from .log.state import Input, Latest, Messages, Output, State
from .rules.position import Position
from .rules.transitions import Decision, Node
from .rules.turns import Dialogue

Graph: TypeAlias = ConversationGraph
"""A compiled graph that runs conversations."""

_Template: TypeAlias = CompiledStateGraph[State, Any, Any, Output]

_NAME = "duologue"


class _Row(NamedTuple):
    """One node of the graph."""

    name: Node
    run: Callable[..., Awaitable[dict[str, Any]]]
    """The node's function. It takes the state and the resources, and returns an update of the
    state."""
    following: Sequence[Node]
    """The nodes that may come next: the branches of the conditional edge."""


_SPEAKERS = (Node.USER_AGENT, Node.ASSISTANT_AGENT)
_AFTER_SPEAKER = (*_SPEAKERS, Node.TOOL_EXECUTOR, Node.COMPLETION_JUDGE, Node.END)
_NODES = (
    # A run with a new input enters here, however far its session is.
    _Row(Node.TASK_SPECIFICATION, task_specification, tuple(Node)),
    _Row(Node.USER_AGENT, user_agent, _AFTER_SPEAKER),
    _Row(Node.ASSISTANT_AGENT, assistant_agent, _AFTER_SPEAKER),
    _Row(Node.TOOL_EXECUTOR, tool_executor, (Node.TOOL_EXECUTOR, *_SPEAKERS, Node.END)),
    _Row(Node.COMPLETION_JUDGE, completion_judge, (Node.COMPLETION_JUDGE, *_SPEAKERS, Node.END)),
)


@hide_frames
@list_options
def build_graph(
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    model: Chat | str | None = None,
    models: Models | Mapping[str, Chat] | None = None,
    stop_requested: AskedToStop | None = None,
    form: type[Form] | None = None,
    conversation: ConversationLike | None = None,
    name: str | None = None,
    description: str | None = None,
    allow_host: bool = False,
    allow_paths: bool = False,
    runtime_store: BaseStore | None = None,
    **registered: Unpack[Registered],
) -> Graph:
    """Build a graph that runs any conversation, or only the one that you pass.

    Args:
        checkpointer: The saver that stores sessions. Pass None for LangGraph's own servers, which
            provide one. Warning: by default LangGraph's savers import and call any object that
            their database names, so whoever can write to the database can run code here. Pass
            ``serde=PlainSerializer()`` from `graphs.store.serializer` to your saver, as
            duologue's stores do, or start the process with ``LANGGRAPH_STRICT_MSGPACK=true``.
            ``with_allowlist`` alone does not protect a saver that is open by default.
        model: The model for speakers without one: a LangChain chat model or a model's name.
        models: LangChain chat models by the names that conversations use, or a `Models`.
        stop_requested: A function that returns whether a session was asked to stop. It is called
            between turns.
        form: The short form of a conversation kind. Runs may then be started with its fields.
        conversation: The only conversation that the graph runs, or a dict or file (``.toml``,
            ``.json``) that contains it. A file is read once, by this call. A run is started with
            messages, or with ``{}``; no input, context or written state changes the conversation.
            It may name models by the paths of weight files. If None, the input of each run
            contains a conversation.
        name: The graph's name in traces, and as a tool of a LangGraph server's MCP endpoint, where
            each graph needs a unique name. Default: the form's name, such as ``role_play``; with
            ``conversation``, its file's name, or its title or task; or else ``duologue``.
        description: The description of the conversation in the schema of the graph's input. Only
            with ``conversation``. Default: its title or task, and its speakers.
        allow_host: Whether conversations may name ``host`` as their sandbox. If True, anyone who
            starts a run can run programs on this machine.
        allow_paths: Whether conversations may name models by the paths of weight files. If True,
            anyone who starts a run can make the process read files of this machine.
        runtime_store: LangGraph's store, which tools and agents read as ``runtime.store``. Pass
            None for LangGraph's own servers, which provide one, and for a node of another graph,
            which gets that graph's store.
        **registered: The tools, functions, hooks and other objects that conversations may name; see
            `Registered`.

    Returns:
        The compiled graph. A run is started with ``{"conversation": …}``, the form's fields, or
        ``{"messages": [{"role": "user", "content": …}]}``.

    Raises:
        SpecError: Two tools have the same name; an object has the wrong type for its option; or the
            conversation or its file is not valid, or names an object that is not registered.
        TypeError: An option is unknown.

    Example:
        >>> graph = build_graph()
        >>> sorted(graph.nodes)[:3]
        ['__start__', 'assistant_agent', 'completion_judge']
    """
    check_options(registered, Registered)
    found = models if isinstance(models, Models) else Models(model, models or {})
    registry = Registry(registered)
    served = None
    if conversation is None and description is not None:
        raise SpecError("description: there is no conversation to describe; set conversation, too")
    if conversation is not None:
        if form is not None:
            raise SpecError("conversation: can't be set together with form; set one of them")
        served = _read_served(conversation, registry, allow_host=allow_host)
    resources = Resources(
        found,
        registry,
        stop_requested,
        form=form,
        allow_host=allow_host,
        # Clients can't choose a served conversation, so they can't make it name a path.
        allow_paths=allow_paths or served is not None,
        running=RunningSessions(served),
    )
    if conversation is None or served is None:
        return compile_graph(resources, checkpointer, name, runtime_store=runtime_store)
    name = name or name_graph(served, conversation, _NAME)
    schema = _served_input(served, name, description or describe_graph(served))
    template = _compile_template(schema, _typed_dict("Context", {}))
    return compile_graph(
        resources, checkpointer, name, runtime_store=runtime_store, template=template
    )


def compile_inner(resources: Resources) -> Graph:
    """Compile the graph of an inner conversation, which shares the caller's checkpointer."""
    return compile_graph(resources, name=_NAME, checks_inputs=False)


def _read_served(source: ConversationLike, registry: Registry, *, allow_host: bool) -> Conversation:
    """Read a graph's own conversation, and run all checks on it that need no server or sandbox."""
    found = source if isinstance(source, Conversation) else load_conversation(source)
    if not allow_host:
        check_host(found)
    registry.bring(found)
    registry.check(found)
    return registry.resolve_prompts(found) if found.prompts else found


def _served_input(served: Conversation, name: str, description: str) -> type[Input]:
    """Return the input schema of a graph that is built for one conversation."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    fields = {"messages": _described_channel(Messages, describe_messages(served))}
    schema = _typed_dict("".join([*map(str.capitalize, words), "Input"]), fields)
    schema.__doc__ = description
    return schema


def compile_graph(
    resources: Resources,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    name: str | None = None,
    *,
    runtime_store: BaseStore | None = None,
    checks_inputs: bool = True,
    template: _Template | None = None,
) -> Graph:
    """Compile a graph from resources, which `build_graph` makes from its options.

    If `checks_inputs` is False, the caller must have checked the input of each run.
    """
    form = resources.form
    name = name or (_NAME if form is None else form.kind())
    check = partial(_check_input, resources) if checks_inputs else None
    # The conversations of the graph may contain others.
    resources = replace(resources, compile_inner=compile_inner)
    template = template or _template(form)
    return ConversationGraph.from_template(
        template, checkpointer, name, resources, check, runtime_store
    )


@lru_cache(maxsize=16)
def _template(form: type[Form] | None) -> _Template:
    """Compile the graph of a form once per process; all its conversations share it.

    Compiling takes about half as long as a message of a conversation. The template has no
    checkpointer and no resources, and it never changes.
    """
    return _compile_template(Input if form is None else form_input(form), assistant_context(form))


def _compile_template(schema: type[Input], context: type[Any]) -> _Template:
    builder = StateGraph(State, context, input_schema=schema, output_schema=Output)
    hints = [get_type_hints(one, include_extras=True) for one in (schema, State)]
    first = cast("type[State]", _typed_dict("FirstInput", hints[0] | hints[1]))
    edge = _BothWays("route", _route)
    for node, run, following in _NODES:
        # The first node reads the input, such as the fields of a form, in addition to the state.
        reads = first if node is Node.TASK_SPECIFICATION else State
        bound = _BothWays(node.value, partial(_run_node, run))
        builder.add_node(node.value, bound, input_schema=reads)
        builder.add_conditional_edges(node.value, edge, [after.value for after in following])
        builder.branches[node.value] = {
            name: _Edge(*branch) for name, branch in builder.branches[node.value].items()
        }
    builder.add_edge(START, Node.TASK_SPECIFICATION.value)
    compiled = builder.compile()
    for node, *_ in _NODES:
        made = compiled.nodes[node.value]
        made.node = _Step(made.bound, *made.flat_writers)
    return compiled


async def _check_input(resources: Resources, state: State, context: object) -> None:
    await read_start(state, resources, context)


def route(
    state: State,
    running: RunningSessions,
    session: str | None = None,
    *,
    serves_clients: bool = False,
) -> str:
    """Return the name of the next node. It depends only on stored messages, turn and counts.

    If `serves_clients` is True, a run ends where a client's next message continues the session.
    """
    if not state.get("position"):
        return Node.TASK_SPECIFICATION.value
    known = running.find(session, state)
    known.log(state)
    if known.find_edited():
        # A speaker's node reads edited messages again, and the next step depends on their new text.
        return Node.USER_AGENT.value
    position = known.position(state)
    turn = known.turn(position)
    if turn.node is Node.END:
        running.forget(session)
    elif serves_clients and _is_for_next_run(known, state, position, turn):
        return Node.END.value
    return turn.node.value


def _is_for_next_run(
    known: RunningSession, state: State, position: Position, turn: Decision
) -> bool:
    """Return whether a client will send the message of this turn as the input of another run."""
    speaker = turn.speaker
    if turn.node not in _SPEAKERS or known.conversation.speaker(speaker).human is None:
        return False
    if waiting_message(state.get("messages") or (), speaker) is not None:
        return False
    dialogue = Dialogue(known.conversation, position, log=known.log(state))
    return dialogue.ends_run(speaker, turn.stage)


class _BothWays(Runnable[State, Any]):
    """A node or an edge made from one coroutine function, for synchronous and asynchronous runs.

    The resources come from the running graph. They do not come from the run's context or
    configuration, because clients of a server set these and must not be able to set `allow_host`.
    """

    def __init__(
        self, name: str, run: Callable[[Resources, State, RunnableConfig], Awaitable[Any]]
    ) -> None:
        """Store the name, and the function, which takes the resources, the state and the config."""
        self.name = name
        self._run = run

    def invoke(self, input: State, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002, ANN401  # as LangChain has it
        """Run the function and wait for its result."""
        resources = resources_of_run()
        return wait_for(lambda: self._run(resources, input, config or {}))

    async def ainvoke(self, input: State, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002, ANN401  # as LangChain has it
        """Run the function."""
        return await self._run(resources_of_run(), input, config or {})


class _Edge(BranchSpec):
    """A conditional edge that reads the state only if its node has not decided what follows.

    LangGraph would compute the whole log once more for it.
    """

    async def _aroute(self, input: Any, config: RunnableConfig, **how: Any) -> Any:  # noqa: A002, ANN401  # as LangGraph has it
        resources = resources_of_run()
        if not _is_next_of_client(resources):
            decided = resources.running.take_decision(session_id(config), input)
            if decided is not None:
                return self._finish(how["writer"], input, decided.value, config)
        return await super()._aroute(input, config, **how)


class _Step(RunnableSeq):
    """A node with its edge. If no callback listens, no managers of callbacks are made for it."""

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **more: Any) -> Any:  # noqa: A002, ANN401  # as LangChain has it
        """Run the node and its edge."""
        config = config or {}
        listening = config.get("callbacks")
        if not isinstance(listening, BaseCallbackManager) or listening.handlers:
            return await super().ainvoke(input, config, **more)
        node, *writers = self.steps
        with set_config_context(config) as context:
            output = await asyncio.create_task(node.ainvoke(input, config), context=context)
        for writer in writers:
            output = await writer.ainvoke(output, config)
        return output


def _run_node(
    run: Callable[..., Awaitable[Any]], resources: Resources, state: State, config: RunnableConfig
) -> Awaitable[dict[str, Any]]:
    node = partial(run, state, resources)
    return node() if resources.progress is None else resources.progress.run(node)


async def _route(resources: Resources, state: State, config: RunnableConfig) -> str:
    return route(
        state,
        resources.running,
        session_id(config),
        serves_clients=_is_next_of_client(resources),
    )


def _is_next_of_client(resources: Resources) -> bool:
    """Return whether the run ends where a client's next message continues the session."""
    return resources.serves_clients and not resources.is_inner


def form_input(form: type[Form]) -> type[Input]:
    """Return the input schema of a graph that accepts a short form."""
    # Studio shows the fields in this order: first the subject of the conversation.
    names = sorted(form.model_fields, key=lambda name: name not in ("task", "message"))
    by_name = {name: form.model_fields[name] for name in names}
    fields = {
        name: Required[_described(info)] if info.is_required() else _described(info)
        for name, info in by_name.items()
    }
    fields["conversation"] = _described_channel(
        Latest, "A whole conversation, instead of the other fields."
    )
    fields["messages"] = _described_channel(
        Messages, "The user's message: a person's next turn, or the task."
    )
    return _typed_dict(f"{form.__name__}Input", fields)


_PROMPTED_AT = [node.value for node in _SPEAKERS]


def assistant_context(form: type[Form] | None) -> type[Any]:
    """Return the schema of the settings of an assistant, for LangGraph Studio."""
    fields = {}
    for name, info in settings_of(form).items():
        # These keys make Studio show each setting at the speakers' nodes, and each prompt in its
        # prompt editor.
        shown: dict[str, Any] = {"langgraph_nodes": _PROMPTED_AT}
        shown |= {"langgraph_type": "prompt"} if name.endswith("_prompt") else {}
        fields[name] = _described(info, json_schema_extra=shown)
    # The context may contain other keys, too, such as a user's id for the tools of a parent graph.
    return _typed_dict(f"{form.__name__ if form else ''}Assistant", fields)


def _described(info: FieldInfo, **more: Any) -> Any:  # noqa: ANN401  # a type
    """Return a field's type, annotated with its limits, its description and its default."""
    told: dict[str, Any] = {"description": info.description}
    if not info.is_required() and info.default_factory is None:
        told["default"] = info.default
    return Annotated[(info.annotation, *info.metadata, Field(**told, **more))]


def _described_channel(annotation: Any, description: str) -> Any:  # noqa: ANN401  # types
    kept, channel = get_args(annotation)
    # The channel stays the last item: LangGraph looks for it there.
    return Annotated[(kept, Field(description=description), channel)]


def _typed_dict(name: str, fields: Mapping[str, Any]) -> type[Input]:
    # mypy knows the functional form of TypedDict only with literal fields.
    make = cast("Any", TypedDict)
    return cast("type[Input]", make(name, fields, total=False))
