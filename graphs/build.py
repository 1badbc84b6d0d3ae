"""The compiled graph: five nodes and the conditional edges between them, for every conversation."""

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated, Any, Required, Unpack, cast, get_args

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import Field
from typing_extensions import TypedDict, get_type_hints

from ..nodes.assistant_agent import assistant_agent
from ..nodes.completion_judge import completion_judge
from ..nodes.models.resolve import Models
from ..nodes.step.resources import Resources, StopRequested
from ..nodes.task_specification import task_specification
from ..nodes.tool_executor import tool_executor
from ..nodes.user_agent import user_agent
from ..tools.registry.registry import Registered, Registry, check_options
from .log.state import Input, Kept, Output, State
from .rules.end_chat import Node, decide
from .rules.position import restored_position
from .spec.conversation import Form
from .spec.versions import restored

Graph = CompiledStateGraph[State, None, Input, Output]
"""A compiled conversation."""

Builder = StateGraph[State, None, Input, Output]
"""One that is not compiled yet, on no checkpointer."""

_NAME = "duologue"

_SPEAKERS = [Node.USER_AGENT, Node.ASSISTANT_AGENT]
_AFTER: Mapping[Node, list[Node]] = {
    # What a run is started with may come while a session waits, wherever it does.
    Node.TASK_SPECIFICATION: [
        Node.TASK_SPECIFICATION,
        *_SPEAKERS,
        Node.TOOL_EXECUTOR,
        Node.COMPLETION_JUDGE,
        Node.END,
    ],
    Node.USER_AGENT: [*_SPEAKERS, Node.TOOL_EXECUTOR, Node.COMPLETION_JUDGE, Node.END],
    Node.ASSISTANT_AGENT: [*_SPEAKERS, Node.TOOL_EXECUTOR, Node.COMPLETION_JUDGE, Node.END],
    Node.TOOL_EXECUTOR: [Node.TOOL_EXECUTOR, *_SPEAKERS, Node.END],
    Node.COMPLETION_JUDGE: [Node.COMPLETION_JUDGE, *_SPEAKERS, Node.END],
}


def build_graph(
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    model: BaseChatModel | str | None = None,
    models: Models | Mapping[str, BaseChatModel] | None = None,
    stop_requested: StopRequested | None = None,
    form: type[Form] | None = None,
    name: str | None = None,
    allow_host: bool = False,
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
        **registered: What conversations may name: tools, functions, hooks and so on; see
            `Registered`.

    Returns:
        The compiled graph. A run is started with ``{"conversation": …}``, or the form's fields.

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
    resources = Resources(found, Registry(registered), stop_requested, allow_host=allow_host)
    return compiled(resources, checkpointer, form, name)


def compiled(
    resources: Resources,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    form: type[Form] | None = None,
    name: str | None = None,
) -> Graph:
    """Compile the graph; `build_graph` says more."""
    name = name or (_NAME if form is None else _name_of(form))
    return _put_together(resources, form).compile(checkpointer=checkpointer, name=name)


def _name_of(form: type[Form]) -> str:
    """The name of a kind, such as ``role_play`` for ``RolePlay``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", form.__name__).lower()


def reading(checkpointer: BaseCheckpointSaver[Any]) -> Graph:
    """Give a graph to read and write a session's state with, which is not to be run."""
    return _unregistered().compile(checkpointer=checkpointer, name=_NAME)


@cache
def _unregistered() -> Builder:
    return _put_together(Resources(Models(), Registry()), None)


def _put_together(resources: Resources, form: type[Form] | None) -> Builder:
    schema = Input if form is None else form_input(form)
    builder = StateGraph(State, input_schema=schema, output_schema=Output)
    first = partial(task_specification, resources=resources, form=form)
    # The first node reads the form's fields and the state.
    taken = cast("type[State]", _typed_dict("Taken", _annotations(schema) | _annotations(State)))
    builder.add_node(Node.TASK_SPECIFICATION.value, first, input_schema=taken)
    builder.add_node(Node.USER_AGENT.value, partial(user_agent, resources=resources))
    builder.add_node(Node.ASSISTANT_AGENT.value, partial(assistant_agent, resources=resources))
    builder.add_node(Node.TOOL_EXECUTOR.value, partial(tool_executor, resources=resources))
    builder.add_node(Node.COMPLETION_JUDGE.value, partial(completion_judge, resources=resources))
    builder.add_edge(START, Node.TASK_SPECIFICATION.value)
    for node, following in _AFTER.items():
        builder.add_conditional_edges(node.value, _route, [after.value for after in following])
    return builder


def route(state: State) -> str:
    """Say which node comes next: what the rules say of the position, and nothing else."""
    if "position" not in state:
        return Node.TASK_SPECIFICATION.value
    position = restored_position(state["position"])
    return decide(restored(state["spec"]), position).node.value


async def _route(state: State) -> str:
    # LangGraph gives what is not async a thread of its own, at every step.
    return route(state)


def form_input(form: type[Form]) -> type[Input]:
    """Make the input of a graph that takes a short form."""
    fields: dict[str, Any] = {}
    for name, info in form.model_fields.items():
        described = Field(description=info.description, default=info.default)
        if info.is_required():
            fields[name] = Required[Annotated[info.annotation, Field(description=info.description)]]
        else:
            fields[name] = Annotated[info.annotation, described]
    whole = Field(description="A whole conversation, instead of the other fields.")
    # The channel stays last, where LangGraph looks for it.
    kept, channel = get_args(Kept)
    fields["conversation"] = Annotated[kept, whole, channel]
    return _typed_dict(f"{form.__name__}Input", fields)


def _annotations(schema: type[Input]) -> dict[str, Any]:
    return get_type_hints(schema, include_extras=True)


def _typed_dict(name: str, fields: dict[str, Any]) -> type[Input]:
    # mypy knows the functional form of TypedDict only with literal fields.
    make = cast("Any", TypedDict)
    return cast("type[Input]", make(name, fields, total=False))
