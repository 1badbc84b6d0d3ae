"""The compiled graph, the same for every conversation: five nodes, each with a conditional edge."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple, Required, Unpack, cast, get_args

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict, get_type_hints

from ..nodes.assistant_agent import assistant_agent
from ..nodes.completion_judge import completion_judge
from ..nodes.models.adapters.composed import Chat
from ..nodes.models.model import Models
from ..nodes.task_specification import read_start, task_specification
from ..nodes.tool_executor import tool_executor
from ..nodes.turn.node_context import AskedToStop, Resources, session_id
from ..nodes.turn.running_sessions import RunningSessions, wait_for
from ..nodes.user_agent import user_agent
from ..tools.registry.options import check_options, list_options
from ..tools.registry.registry import Registered, Registry
from .conversation.assistant import settings_of
from .conversation.conversation import Form
from .conversation_graph import ConversationGraph, resources_of_run
from .log.state import Input, Latest, Messages, Output, State
from .rules.transitions import Node

Graph = CompiledStateGraph[State, Any, Input, Output]
"""A compiled conversation."""

_NAME = "duologue"


class _Row(NamedTuple):
    """One node of the graph."""

    name: Node
    run: Callable[..., Awaitable[dict[str, Any]]]
    """Takes the state and the resources; gives what it writes."""
    following: Sequence[Node]
    """What may come next: the branches of its conditional edge."""


_SPEAKERS = (Node.USER_AGENT, Node.ASSISTANT_AGENT)
_AFTER_SPEAKER = (*_SPEAKERS, Node.TOOL_EXECUTOR, Node.COMPLETION_JUDGE, Node.END)
_NODES = (
    # The first: a run begins here, wherever its session is.
    _Row(Node.TASK_SPECIFICATION, task_specification, tuple(Node)),
    _Row(Node.USER_AGENT, user_agent, _AFTER_SPEAKER),
    _Row(Node.ASSISTANT_AGENT, assistant_agent, _AFTER_SPEAKER),
    _Row(Node.TOOL_EXECUTOR, tool_executor, (Node.TOOL_EXECUTOR, *_SPEAKERS, Node.END)),
    _Row(Node.COMPLETION_JUDGE, completion_judge, (Node.COMPLETION_JUDGE, *_SPEAKERS, Node.END)),
)


@list_options
def build_graph(
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    model: Chat | str | None = None,
    models: Models | Mapping[str, Chat] | None = None,
    stop_requested: AskedToStop | None = None,
    form: type[Form] | None = None,
    name: str | None = None,
    allow_host: bool = False,
    allow_paths: bool = False,
    **registered: Unpack[Registered],
) -> Graph:
    """Build the graph that runs any conversation.

    Args:
        checkpointer: What keeps sessions. None for LangGraph's own servers, which bring theirs.
            Warning: by default LangGraph's savers import and call whatever stands in their
            database, so that whoever can write to it can run code here. Give yours
            ``serde=PlainSerializer()`` of `graphs.store.serializer`, as our stores do, or start
            the process with ``LANGGRAPH_STRICT_MSGPACK=true``; ``with_allowlist`` alone leaves an
            open saver open.
        model: What speaks where a conversation names no model: a LangChain chat model or a name.
        models: LangChain chat models by the names that conversations use, or a `Models`.
        stop_requested: Tells, between turns, whether a session was asked to stop.
        form: A kind's short form, whose fields a run may be started with.
        name: The graph's name, in traces and as a tool of a LangGraph server's MCP endpoint, which
            needs a name of its own for each graph. None: the form's, such as ``role_play``, or
            ``duologue`` where there is no form.
        allow_host: Whether conversations may name ``host`` as their sandbox. Then whoever starts a
            run can run programs on this machine.
        allow_paths: Whether conversations may name models by the paths of their weights. Then
            whoever starts a run can have files of this machine read.
        **registered: What conversations may name: tools, functions, hooks and so on; see
            `Registered`.

    Returns:
        The compiled graph. A run is started with ``{"conversation": …}``, the form's fields, or
        ``{"messages": [{"role": "user", "content": …}]}``.

    Raises:
        SpecError: Two tools share a name, or something is not what it is registered as.
        TypeError: There is no such option.

    Example:
        >>> graph = build_graph()
        >>> sorted(graph.nodes)[:3]
        ['__start__', 'assistant_agent', 'completion_judge']
    """
    check_options(registered, Registered)
    found = models if isinstance(models, Models) else Models(model, models or {})
    resources = Resources(
        found,
        Registry(registered),
        stop_requested,
        form=form,
        allow_host=allow_host,
        allow_paths=allow_paths,
    )
    return compile_graph(resources, checkpointer, name)


def compile_graph(
    resources: Resources,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    name: str | None = None,
    *,
    checks_inputs: bool = True,
) -> Graph:
    """Compile the graph; `build_graph` says more.

    Without `checks_inputs`, whoever runs it must have checked what it is started with.
    """
    form = resources.form
    name = name or (_NAME if form is None else form.kind())
    check = partial(_check_input, resources) if checks_inputs else None
    return ConversationGraph.from_template(_template(form), checkpointer, name, resources, check)


@lru_cache(maxsize=16)
def _template(form: type[Form] | None) -> CompiledStateGraph[State, Any, Input, Output]:
    """Compile the graph of a form, which all conversations of a process have in common.

    Compiling it takes as long as half a message. It is bound to nothing, and never changed.
    """
    schema = Input if form is None else form_input(form)
    context = assistant_context(form)
    builder = StateGraph(State, context, input_schema=schema, output_schema=Output)
    edge = _BothWays("route", _route)
    for node, run, following in _NODES:
        # The first node reads the form's fields, too.
        reads = _first_input(schema) if node is Node.TASK_SPECIFICATION else State
        bound = _BothWays(node.value, partial(_run_node, run))
        builder.add_node(node.value, bound, input_schema=reads)
        builder.add_conditional_edges(node.value, edge, [after.value for after in following])
    builder.add_edge(START, Node.TASK_SPECIFICATION.value)
    return builder.compile()


async def _check_input(resources: Resources, state: State, context: object) -> None:
    await read_start(state, resources, context)


def _first_input(schema: type[Input]) -> type[State]:
    """What the first node reads: the input and the state."""
    hints = [get_type_hints(one, include_extras=True) for one in (schema, State)]
    return cast("type[State]", _typed_dict("FirstInput", hints[0] | hints[1]))


def route(state: State, running: RunningSessions, session: str | None = None) -> str:
    """Say which node comes next: what the rules say of the position, and nothing else."""
    if not state.get("position"):
        return Node.TASK_SPECIFICATION.value
    known = running.of(session, state)
    if known.edited(state):
        # Whoever speaks reads them first; where it goes on depends on what they say now.
        return Node.USER_AGENT.value
    node = known.turn(known.position(state)).node
    if node is Node.END:
        running.forget(session)
    return node.value


class _BothWays(Runnable[State, Any]):
    """A node or an edge, given by one coroutine function, in a loop or in LangGraph's threads.

    The resources come from the graph that runs and not from the run's context or configuration,
    which clients of a server set: they must not set `allow_host`.
    """

    def __init__(
        self, name: str, run: Callable[[Resources, State, RunnableConfig], Awaitable[Any]]
    ) -> None:
        """Take the function, which is given the resources, the state and the run's config."""
        self.name = name
        self._run = run

    def invoke(self, input: State, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002, ANN401  # as LangChain has it
        """Wait for it."""
        resources = resources_of_run()
        return wait_for(lambda: self._run(resources, input, config or {}))

    async def ainvoke(self, input: State, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002, ANN401  # as LangChain has it
        """Run it."""
        return await self._run(resources_of_run(), input, config or {})


async def _run_node(
    run: Callable[..., Awaitable[Any]], resources: Resources, state: State, config: RunnableConfig
) -> dict[str, Any]:
    node = partial(run, state, resources)
    progress = resources.progress
    written: dict[str, Any] = await (node() if progress is None else progress.run(node))
    return written


async def _route(resources: Resources, state: State, config: RunnableConfig) -> str:
    return route(state, resources.running, session_id(config))


def form_input(form: type[Form]) -> type[Input]:
    """Make the input of a graph that takes a short form."""
    fields = {
        name: Required[_described(info)] if info.is_required() else _described(info)
        for name, info in form.model_fields.items()
    }
    whole = Field(description="A whole conversation, instead of the other fields.")
    # The channel stays last, where LangGraph looks for it.
    kept, channel = get_args(Latest)
    fields["conversation"] = Annotated[kept, whole, channel]
    messages = Field(description="What the user says: a person's next turn, or else the task.")
    kept, channel = get_args(Messages)
    fields["messages"] = Annotated[kept, messages, channel]
    return _typed_dict(f"{form.__name__}Input", fields)


_PROMPTED_AT = [node.value for node in _SPEAKERS]


def assistant_context(form: type[Form] | None) -> type[Any]:
    """Make the schema of what an assistant sets, for Studio."""
    fields = {}
    for name, info in settings_of(form).items():
        # By these keys Studio shows a setting where its node stands, and a prompt as one.
        shown: dict[str, Any] = {"langgraph_nodes": _PROMPTED_AT}
        shown |= {"langgraph_type": "prompt"} if name.endswith("_prompt") else {}
        fields[name] = _described(info, json_schema_extra=shown)
    # It takes what others need of the same context, too: tools of a parent's, such as a user's id.
    return _typed_dict(f"{form.__name__ if form else ''}Assistant", fields)


def _described(info: FieldInfo, **more: Any) -> Any:  # noqa: ANN401  # a type
    """A field's type with its limits and all that a schema says of it."""
    told: dict[str, Any] = {"description": info.description}
    if not info.is_required() and info.default_factory is None:
        told["default"] = info.default
    return Annotated[(info.annotation, *info.metadata, Field(**told, **more))]


def _typed_dict(name: str, fields: Mapping[str, Any]) -> type[Input]:
    # mypy knows the functional form of TypedDict only with literal fields.
    make = cast("Any", TypedDict)
    return cast("type[Input]", make(name, fields, total=False))
