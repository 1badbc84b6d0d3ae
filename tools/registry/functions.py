"""Registered objects: their checks, entry points and imports, and calls of functions.

A command or a file names an object by its module, as in ``shop:refund``. A store never names an
object to import: a stored reference is only printed, for people to copy.
"""

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import isawaitable, iscoroutinefunction, signature
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_type_hints

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, TypeAdapter, ValidationError

from ...graphs.common.data import NAME_LENGTH, Name
from ...graphs.common.errors import AgentError, SpecError, function_error, list_names, name_type
from ...graphs.common.hints import suggest_value
from ...graphs.common.threads import in_thread
from ...graphs.conversation.sandbox import Language
from ...graphs.speakers.formats import schema_of
from .hooks import ArgumentsError, Hook, Turn

T = TypeVar("T")

PredicateFunction: TypeAlias = Callable[[Sequence[BaseMessage]], bool | Awaitable[bool]]
"""Accepts the messages of the rounds and the last words that all speakers hear, oldest first, each
with ``name`` and ``text``. Returns whether the conversation ends.
"""

OrderFunction: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[str]], str | Awaitable[str]]
"""Accepts the messages that all speakers hear, oldest first, and the names of the speakers. Returns
the name of the next speaker.
"""

ReplyFunction: TypeAlias = Callable[[Turn], str | Awaitable[str | None] | None]
"""Accepts the speaker's turn. Returns its reply, or None to leave the reply to the next entry of
``replies``.
"""


async def call(
    what: str,
    name: str,
    function: Callable[..., T | Awaitable[T]],
    *given: Any,
    at: str | None = None,
) -> T:
    """Call a registered function, sync or async.

    A sync function runs in its own thread, so that it does not block other conversations. Threads
    cannot be stopped: if the run is cancelled, the function continues and its result is ignored.
    """
    try:
        if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
            answer: object = function(*given)
        else:
            answer, raised = await in_thread(_outcome, function, *given)
            if raised is not None:
                raise raised
        return cast("T", await answer if isawaitable(answer) else answer)
    except (AgentError, GeneratorExit):
        # It names the agent already, or the caller no longer waits for the answer.
        raise
    except BaseException as error:
        # A BaseException, such as SystemExit, would end the event loop that runs all sessions.
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise function_error(what, name, error, at) from error


def _outcome(
    function: Callable[..., object], *given: object
) -> tuple[object, BaseException | None]:
    """Return a function's result, or return its exception: some threads would not raise it."""
    try:
        return function(*given), None
    except BaseException as error:
        return None, error


def is_cancelled() -> bool:
    """Return whether the whole run is cancelled, not only something that a function awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def takes_values(score: Callable[..., object]) -> bool:
    """Return whether a score function accepts, as second argument, the values set by the batch."""
    try:
        takes = signature(score)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return False
    try:
        takes.bind("result", "values")
    except TypeError:
        return False
    second = [*takes.parameters.values()][1:2]
    return any(one.name == "values" or one.default is one.empty for one in second)


def parameters_of(tool: BaseTool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, as models see it."""
    found: dict[str, Any] = convert_to_openai_tool(tool)["function"].get("parameters") or {}
    return found


def needs_store(tool: BaseTool) -> bool:
    """Return whether an argument of a tool is marked with LangGraph's ``InjectedStore``."""
    # Not imported, since the import takes long. If the module is not loaded, there is no such mark.
    prebuilt = sys.modules.get("langgraph.prebuilt.tool_node")
    if prebuilt is None:
        return False
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    try:
        hints = {} if function is None else get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        # The types of the arguments can't be read. The schema may contain the mark.
        hints = {}
    marks = [mark for hint in hints.values() for mark in get_args(hint)[1:]]
    fields = getattr(tool.get_input_schema(), "model_fields", {})
    marks += [mark for field in fields.values() for mark in field.metadata]
    kind = prebuilt.InjectedStore
    return any(mark is kind or isinstance(mark, kind) for mark in marks)


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise ArgumentsError unless the arguments match a JSON schema."""
    # Imported here, since it loads slowly and most conversations do not need it.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
        # An empty registry prevents the download of schemas that this schema refers to.
        found = list(kind(schema, registry=Registry()).iter_errors(arguments))
    except (SchemaError, Unresolvable, re.error):
        # The schema is invalid, so the tool itself must check its arguments.
        return
    if found:
        wrong = (
            f"{'.'.join(map(str, one.path)) or 'arguments'}: {one.message:.200}" for one in found
        )
        raise ArgumentsError("; ".join(wrong))


Agent: TypeAlias = Runnable[Any, Any]
"""A compiled graph, or any other LangChain Runnable."""


def check_agent(agent: Agent, where: str) -> None:
    """Raise SpecError if a graph has no messages in its state, or sets its own checkpointer."""
    graph = _first_runnable(agent)
    if isinstance(own := getattr(graph, "checkpointer", None), bool):
        raise SpecError(
            f"{where} is compiled with checkpointer={own}; remove that, since the session stores "
            "the graph's steps and passes it the messages of each turn"
        )
    if hasattr(graph, "builder") and "messages" not in getattr(graph, "channels", ("messages",)):
        raise SpecError(
            f"{where} is a graph without messages in its state; add them, or wrap it in a "
            "RunnableLambda that accepts a list of messages"
        )


def takes_state(agent: Agent) -> bool:
    """Return whether an agent expects a state with messages instead of a list of messages."""
    # Imported here, since conversations without agents need no LangGraph.
    from langgraph.pregel.protocol import PregelProtocol

    asked = _first_runnable(agent)
    if isinstance(asked, PregelProtocol):
        # The input of a remote graph is not known here; most expect a state.
        return "messages" in getattr(asked, "channels", ("messages",))
    return "messages" in getattr(asked.get_input_schema(), "model_fields", ())


def is_remote(agent: Agent) -> bool:
    """Return whether an agent is a graph on a LangGraph server."""
    # Not imported, since the import takes a second. If the module is not loaded, there is no such
    # graph.
    remote = sys.modules.get("langgraph.pregel.remote")
    return remote is not None and isinstance(_first_runnable(agent), remote.RemoteGraph)


def _first_runnable(agent: Agent) -> Agent:
    """Return the runnable inside a composed Runnable that receives the input."""
    match agent:
        case RunnableBindingBase():
            return _first_runnable(agent.bound)
        case RunnableWithFallbacks():
            return _first_runnable(agent.runnable)
        case RunnableSequence():
            return _first_runnable(agent.first)
        case _:
            return agent


NOUNS: Final[Mapping[str, str]] = {
    "tools": "tool",
    "functions": "function",
    "agents": "agent",
    "hooks": "hook",
    "schemas": "schema",
    "predicates": "predicate",
    "orders": "order",
    "prompts": "prompt",
}
"""The kinds, each with its noun in error messages. The groups of entry points are
``duologue.tools``, ``duologue.functions`` and so on.
"""

ALL_NOUNS: Final[Mapping[str, str]] = {**NOUNS, "scores": "score"}
"""All kinds, including scores, which only batches can name."""

_TAKEN: Final = frozenset({"auto", "required", "none"})
"""Names that models' APIs use for the choice of tools."""

_TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "functions": ("turn",),
    "predicates": ("messages",),
    "orders": ("messages", "names"),
    "before_speaker": ("turn",),
    "after_speaker": ("turn", "reply"),
    "before_tool": ("turn", "call"),
    "after_tool": ("turn", "call", "result"),
}
"""The arguments with which each kind of function is called."""


def check_kind(kind: str, found: Any, where: str) -> None:  # noqa: ANN401
    """Raise SpecError unless an object fits the kind under which it is registered."""
    check: Callable[[Any, str], None] | None = None
    match kind:
        case "tools":
            fits, what = isinstance(found, BaseTool), "a function or a LangChain tool"
            check = _check_tool
        case "agents":
            fits = isinstance(found, Runnable) and not isinstance(found, BaseTool)
            what, check = "a LangChain Runnable, such as a compiled graph", check_agent
        case "hooks":
            fits, what, check = found is None or isinstance(found, Hook), "a Hook", _check_hook
        case "schemas":
            fits = isinstance(found, type) and issubclass(found, BaseModel)
            what, check = "a pydantic model's class", _check_schema
        case "prompts":
            fits, what = isinstance(found, str) and bool(found.strip()), "a text"
        case _:
            fits, what = callable(found), "a function"
            takes = ("result", "values") if fits and takes_values(found) else ("result",)
            check = partial(_check_function, _TAKES.get(kind, takes))
    if not fits:
        raise SpecError(f"{where} must be {what}, not {name_type(found)}")
    if check is not None:
        check(found, where)


def _check_hook(hook: Hook | None, where: str) -> None:
    for point, function in () if hook is None else vars(hook).items():
        if function is not None:
            _check_function(_TAKES[point], function, f"{where}: {point}")


def _check_tool(tool: BaseTool, where: str) -> None:
    name = tool.name
    if not name.strip() or not name.isprintable():
        raise SpecError(f"{where}: {name!r} can't be a tool's name; use printable characters")
    if name != name.strip() or len(name) > NAME_LENGTH:
        raise SpecError(
            f"{where}: {name!r} can't be a tool's name; choose one of up to {NAME_LENGTH} "
            "characters without spaces around it"
        )
    _check_metadata(tool.metadata or {}, f"{where}: the tool {name!r}")
    if name in _TAKEN:
        raise SpecError(
            f"{where}: {name!r} can't be a tool's name, since tool_choice gives this word a "
            "meaning; choose another name"
        )
    if not tool.description.strip():
        raise SpecError(
            f"{where}: the tool {name!r} has no description for models; add a docstring, or pass "
            "description="
        )
    try:
        # Arguments that the runtime fills in, such as a ToolRuntime, are not in the schema.
        told = convert_to_openai_tool(tool)["function"]
        json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
        kind = told.get("parameters", {}).get("type", "object")
        fault = None if kind == "object" else f"they are not an object, but {kind!r}"
    except Exception as error:
        fault = _first_line(error)
    if fault is not None:
        raise SpecError(
            f"{where}: the arguments of the tool {name!r} can't be written as a JSON schema "
            f"({fault}); give it an args_schema of plain types or pydantic models"
        )


def _check_schema(model: type[BaseModel], where: str) -> None:
    try:
        json.dumps(schema_of(model), allow_nan=False, ensure_ascii=False).encode()
    except Exception as error:
        raise SpecError(
            f"{where}: {model.__name__!r} can't be written as a JSON schema "
            f"({_first_line(error)}); give it fields of plain types or pydantic models"
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message; pydantic adds links and advice below it."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    languages, seconds = metadata.get("sandbox"), metadata.get("timeout")
    if languages is not None and (
        not isinstance(languages, list | tuple)
        or any(language not in get_args(Language) for language in languages)
    ):
        known = " and ".join(repr(language) for language in get_args(Language))
        raise SpecError(f'{where}: metadata["sandbox"] must be a list of {known}')
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < inf):
        raise SpecError(f'{where}: metadata["timeout"] must be a number of seconds above 0')


def _check_function(takes: tuple[str, ...], function: object, where: str) -> None:
    if not callable(function):
        raise SpecError(f"{where} must be a function, not {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        raise SpecError(f"{where} must take ({', '.join(takes)}): {error}") from error


def load_entry_points(kind: str, entries: Sequence[EntryPoint], path: str) -> Any:  # noqa: ANN401
    """Load the object of an entry point, and raise SpecError if it does not fit its kind."""
    entry, *others = entries
    if any(other.value != entry.value for other in others):
        offered = list_names(sorted({one.value for one in entries}))
        raise SpecError(
            f"{path}: several packages offer a {ALL_NOUNS[kind]} {entry.name!r}: {offered}; "
            "register the one you mean"
        )
    what = f"the {ALL_NOUNS[kind]} {entry.name!r} of {entry.value}"
    try:
        found = entry.load()
    except BaseException as error:
        # Even SystemExit: a module must not end the program that runs conversations.
        raise SpecError(
            f"{path}: {what} can't be loaded: {type(error).__name__}: {error}"
        ) from error
    check_kind(kind, found, f"{path}: {what}")
    if kind == "tools" and found.name != entry.name:
        raise SpecError(
            f"{path}: {what} has the name {found.name!r} in its code; give it the "
            "same name in both places"
        )
    return found


def read_mapping(kind: str, given: object) -> Mapping[str, Any]:
    """Return a dict of objects by name, empty for None. Raise SpecError if it is not a dict."""
    if given is not None and not isinstance(given, Mapping):
        raise SpecError(f"{kind}: must be a dict from names to {kind}, not {type(given).__name__}")
    return given or {}


_NAME: TypeAdapter[str] = TypeAdapter(Name)


def check_registered_name(name: object, kind: str) -> None:
    """Raise SpecError for a name that no conversation could contain."""
    try:
        fits = _NAME.validate_python(name, strict=True) == name
    except ValidationError:
        fits = False
    if not fits:
        raise SpecError(
            f"{kind}: {name!r} can't be a name; use text on one line, of up to {NAME_LENGTH} "
            "characters without spaces around it"
        )


def make_tool(given: object, where: str) -> Any:  # noqa: ANN401  # checked by `check_kind`
    """Return a function as a LangChain tool, and any other object unchanged.

    The docstring and types of the function describe the tool to models.
    """
    if not inspect.isroutine(given):
        return given
    name = given.__name__
    if not inspect.getdoc(given):
        raise SpecError(
            f"{where}: the function {name!r} has no docstring; add one that describes the tool to "
            "models"
        )
    try:
        return tool(given)
    except Exception as error:
        raise SpecError(f"{where}: the function {name!r} can't become a tool: {error}") from error


def tools_in(given: object) -> Iterable[BaseTool]:
    """Return the tools, or none for None. Raise SpecError if they are not a list of tools."""
    # A tool is a pydantic model, and these are iterable.
    is_list = isinstance(given, Iterable) and not isinstance(given, BaseTool | str | Mapping)
    if given is not None and not is_list:
        remedy = suggest_value("tools", given, wants_list=not isinstance(given, Mapping))
        raise SpecError(f"tools: must be a list of tools, not {type(given).__name__}{remedy}")
    return cast("Iterable[BaseTool]", given or ())


def import_object(reference: str, where: str) -> Any:  # noqa: ANN401  # any object
    """Import an object by ``module:name``. Modules of the working folder are found, too.

    Args:
        reference: The module and the name.
        where: The field or option that contains the reference, for an error.

    Raises:
        SpecError: The object can't be imported.
    """
    module, _, name = reference.partition(":")
    if not module.strip() or not name.strip() or "://" in reference:
        raise SpecError(f"{where}: {reference!r} names no object; write it as module:name")
    return _import(reference, where)


def _import(reference: str, where: str) -> Any:  # noqa: ANN401  # any object
    """Import a module, or an object of a module."""
    module, sign, name = reference.partition(":")
    if module.endswith(".py"):
        file = Path(module)
        there = "" if file.name == module else "run the command in its folder and "
        raise SpecError(
            f"{where}: {reference!r} is a file; {there}name its module, as "
            f"{file.stem + sign + name!r}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return resolve_name(reference) if ":" in reference else import_module(reference)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # Even SystemExit: a module must not end the program without a reason.
        raise SpecError(
            f"{where}: {reference!r} can't be imported: {type(error).__name__}: {error}; run the "
            "command in the folder of the module, or correct the name"
        ) from error


def import_tools(references: Iterable[str], where: str) -> list[BaseTool]:
    """Import tools by ``module``, with all its tools, or by ``module:name``.

    The tools of a module are its LangChain tools, and its own public functions with a docstring.
    A name can also be that of a list of tools.

    Raises:
        SpecError: An object can't be imported, or is no tool.
    """
    tools = dict[int, BaseTool]()
    for reference in references:
        if ":" in reference:
            named = import_object(reference, where)
            objects = named if isinstance(named, list | tuple) else [named]
        else:
            objects = _tools_of(_import(reference, where), where)
        for one in objects:
            tool = make_tool(one, f"{where}: {reference}")
            check_kind("tools", tool, f"{where}: {reference}")
            tools.setdefault(id(one), tool)
    return [*tools.values()]


def _tools_of(module: ModuleType, where: str) -> list[object]:
    """Return the tools and the functions of a module that can become tools."""
    found = [one for name, one in vars(module).items() if _is_tool(module, name, one)]
    if not found:
        raise SpecError(
            f"{where}: {module.__name__!r} contains no tool; add a docstring to a function, "
            f"or name an object as {module.__name__}:NAME"
        )
    return found


def _is_tool(module: ModuleType, name: str, one: object) -> bool:
    if isinstance(one, BaseTool):
        return True
    if name.startswith("_") or getattr(one, "__module__", None) != module.__name__:
        return False
    try:
        return isinstance(make_tool(one, name), BaseTool)
    except SpecError:
        # Other functions of the module need no docstring and may have any argument.
        return False


def reference_to(one: object) -> str | None:
    """Return the ``module:name`` by which another process can import an object, or None."""
    function = getattr(one, "func", None) or getattr(one, "coroutine", None) or one
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    # A program that runs as `__main__` would run again if it were imported.
    if module in (None, "__main__") or sys.modules.get(module) is None:
        return None
    found = getattr(sys.modules[module], name, None)
    return f"{module}:{name}" if found is one or found is function else None
