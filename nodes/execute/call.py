"""Execution of one tool call. Every failure becomes text for the model, not an exception.

Bytes in a result are returned as an image or a file if their type is known. A call of a tool that
runs a conversation becomes an inner session of the caller.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from ...graphs.common.content import Block, describe_file, files_of, is_inline_file, text_block
from ...graphs.common.content_input import read_bytes
from ...graphs.conversation.questions import describe_misfit
from ...graphs.log.messages import metadata, parts_of_result, store_artifact
from ...graphs.log.metadata import CallOutcome, Failure, UnheardResult
from ...graphs.speakers.call_settings import DecisionType
from ...tools.registry.functions import check_arguments, is_cancelled, parameters_of
from ...tools.registry.hooks import ArgumentsError, ToolState, timeout_of
from ...tools.registry.registry import ConversationTool
from ..turn.agents import describe_error, run_inner
from ..turn.interrupt import describe_unstorable
from ..turn.node_context import NodeContext


class CallResult(NamedTuple):
    """The result of one call."""

    text: str
    """Text for the speaker."""
    failure: Failure | None = None
    """Cause of the failure. None if the call succeeded."""
    arguments: dict[str, Any] | None = None
    """Arguments with which the tool ran. None if no hook and no person changed them."""
    parsed: JsonValue = None
    """The result as plain JSON values. None if it has none."""
    tool: str | None = None
    """Name of the tool that ran. None if it is the tool that the speaker called."""
    decision: DecisionType | None = None
    """Decision of a person about the call. None if no person was asked."""
    refusal: str | None = None
    """Reason that a person gave for refusing the call. None if there is none."""
    artifact: Any = None
    """The artifact of the tool, as a store returns it. None if there is none."""
    artifact_problem: str | None = None
    """Why the artifact can't be stored. None if it can, or if there is none."""
    files: Sequence[Block] = ()
    """The images and other files, as content blocks with their bytes."""
    inner: dict[str, Any] | None = None
    """The inner session of the call, as plain values. None if the tool runs no conversation."""

    def dump(self) -> dict[str, Any]:
        """Return the result as plain values."""
        # A store keeps the bytes of files in messages once.
        files = [ToolMessage([*self.files], tool_call_id="")] if self.files else []
        return self._asdict() | {
            "failure": self.failure and self.failure.value,
            "files": files,
        }

    @classmethod
    def read(cls, recorded: Mapping[str, Any]) -> "CallResult":
        """Return the result that `dump` has written."""
        failure = recorded["failure"]
        files = tuple(block for one in recorded["files"] for block in files_of(one.content))
        return cls(**{**recorded, "failure": Failure(failure) if failure else None, "files": files})


OUTCOME: Final = CallOutcome.model_fields.keys() & CallResult._fields
"""The fields of a result that its message contains as metadata."""


def read_result(message: ToolMessage) -> CallResult:
    """Return the result in the message of a tool or a hook."""
    about = metadata(message)
    if not isinstance(about, CallOutcome):
        about = UnheardResult()
    text, files = parts_of_result(message)
    kept: dict[str, Any] = {name: getattr(about, name) for name in OUTCOME}
    kept["failure"] = (about.failure or Failure.TOOL) if message.status == "error" else None
    return CallResult(text, artifact=message.artifact, files=tuple(files), **kept)


def read_new_result(message: ToolMessage, tool: str) -> CallResult:
    """Return the result in a message that a tool or a hook has returned, as it can be stored."""
    artifact, problem = store_artifact(tool, message.artifact)
    return read_result(message)._replace(artifact=artifact, artifact_problem=problem)


async def run_call(call: ToolCall, tool: BaseTool, state: ToolState, seconds: float) -> CallResult:
    """Run one tool call.

    Injected arguments (`ToolRuntime`, `InjectedState`, `InjectedToolCallId`) come from LangGraph,
    even if the model sends arguments of these names.
    """
    # It takes long to import, and most conversations call no tools.
    from langgraph.prebuilt import ToolNode

    name = call["name"]
    node = ToolNode([_contain_errors(tool)], handle_tool_errors=False)
    asks = AIMessage("", tool_calls=[ToolCall(**{**call, "name": tool.name})])
    try:
        if isinstance(tool.args_schema, dict):
            check_arguments(tool.args_schema, call["args"])
        async with asyncio.timeout(seconds) as limit:
            # For callbacks and traces.
            config = merge_configs(ensure_config(), {"metadata": {"speaker": state["speaker"]}})
            found = await node.ainvoke({**state, "messages": [*state["messages"], asks]}, config)
    except GraphInterrupt as error:
        problem = describe_unstorable(error)
        if problem is None:
            raise
        return CallResult(f"{name} failed: its question can't be stored: {problem}", Failure.TOOL)
    except GraphBubbleUp:
        raise
    except ValidationError as error:
        # LangGraph's own error: the person's answer does not fit the question, which stays open.
        raise describe_misfit(error) from error
    except (Exception, asyncio.CancelledError) as error:
        if is_cancelled():
            # The whole run is cancelled, so the tool's own error does not matter.
            raise asyncio.CancelledError from error
        if isinstance(error, TimeoutError) and limit.expired():
            return CallResult(
                f"{name} took longer than {seconds:g} s and was stopped", Failure.TOOL
            )
        return _describe_failure(name, tool, error)
    messages = found.get("messages") if isinstance(found, dict) else None
    if not messages or not isinstance(messages[0], ToolMessage):
        what = type(found[0] if isinstance(found, list) and found else found).__name__
        return CallResult(f"{name} failed: it returned a {what}; return text", Failure.TOOL)
    return read_new_result(messages[0], name)


def _describe_failure(name: str, tool: BaseTool, error: BaseException) -> CallResult:
    """Return the result of a failed call."""
    from langgraph.prebuilt.tool_node import ToolInvocationError

    unfit = f"The arguments of {name} do not fit"
    match error:
        case ToolInvocationError() if error.source.title == getattr(
            tool.args_schema, "__name__", name
        ):
            return CallResult(f"{unfit}: {describe_argument_errors(error.source)}", Failure.CALL)
        case ToolInvocationError():
            # The tool's own error, about data that it has read.
            return CallResult(f"{name} failed: ValidationError: {error.source}", Failure.TOOL)
        case ArgumentsError():
            return CallResult(f"{unfit}: {error}", Failure.CALL)
        case ToolException() | _ExitError() | _CommandError():
            # ToolException is meant for the model (Yacana's ToolError).
            return CallResult(f"{name} failed: {error}", Failure.TOOL)
        case _:
            return CallResult(f"{name} failed: {type(error).__name__}: {error}", Failure.TOOL)


class _ExitError(Exception):
    """A tool raised SystemExit or another BaseException that is not an Exception."""


class _CommandError(Exception):
    """A tool returned a `Command`. LangGraph's own error would ask for another `Command`."""

    def __init__(self) -> None:
        super().__init__(
            "it returned a Command, but a tool can't change a conversation; return text"
        )


def _contain_errors(tool: BaseTool) -> BaseTool:
    """Return a tool that raises only exceptions, since a SystemExit would end the event loop.

    It raises an error instead of returning a `Command`, and returns no raw bytes.
    """

    @wraps(tool._run)
    def run(*args: object, **arguments: object) -> object:
        with _raise_only_exceptions():
            return replace_bytes(tool, _refuse_command(tool._run(*args, **arguments)))

    @wraps(tool._arun)
    async def arun(*args: object, **arguments: object) -> object:
        with _raise_only_exceptions():
            return replace_bytes(tool, _refuse_command(await tool._arun(*args, **arguments)))

    # LangChain runs a tool's coroutine in its own task, so ToolNode's `awrap_tool_call` is too
    # late. A subclass does not work either, since LangChain looks at the tool's class.
    return tool.model_copy(update={"_run": run, "_arun": arun})


def _refuse_command(result: object) -> object:
    parts = result if isinstance(result, list | tuple) else [result]
    if any(isinstance(one, Command) for one in parts):
        raise _CommandError
    return result


@contextmanager
def _raise_only_exceptions() -> Iterator[None]:
    try:
        yield
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise _ExitError(f"{type(error).__name__}: {error}") from error


def describe_argument_errors(error: ValidationError) -> str:
    """Return the errors of arguments, with the arguments' names."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()
    )


_BYTES: Final = (bytes, bytearray, memoryview)

_DEEPEST: Final = 50
"""Maximum depth of a result with bytes, in levels."""


def replace_bytes(tool: BaseTool, result: object) -> object:
    """Return a tool's result with files, texts or descriptions in place of its bytes.

    An artifact stays as it is. LangChain would write all other bytes as Python does.
    """
    has_artifact = tool.response_format == "content_and_artifact"
    if has_artifact and isinstance(result, tuple) and len(result) == 2:  # a pair
        return _make_content(result[0]), result[1]
    return _make_content(result)


def _make_content(result: object) -> object:
    content = _read_parts(result)
    if not isinstance(content, list):
        return content
    # LangChain writes content with audio as JSON. The log finds the type in the bytes.
    return [
        {**one, "type": "file"} if isinstance(one, dict) and one.get("type") == "audio" else one
        for one in content
    ]


def _read_parts(result: object) -> object:
    if isinstance(result, _BYTES):
        return [read_bytes(bytes(result))]
    if not _has_bytes(result, set()):
        return result
    if isinstance(result, list | tuple) and all(map(_is_part, result)):
        return [_make_part(one) for one in result]
    files: list[Block] = []
    text = json.dumps(_describe_bytes(result, files), ensure_ascii=False, default=str)
    return [text_block(text), *files]


def _is_part(value: object) -> bool:
    """Return whether a value can be a part of a message's content."""
    is_block = isinstance(value, Mapping) and "type" in value and not _has_bytes(value, set())
    return is_block or isinstance(value, (str, *_BYTES))


def _make_part(value: Any) -> Block:  # noqa: ANN401
    block = read_bytes(bytes(value)) if isinstance(value, _BYTES) else value
    # Texts of content are joined without a gap.
    block = block["text"] if isinstance(value, _BYTES) and block["type"] == "text" else block
    return text_block(f"{block}\n") if isinstance(block, str) else block


def _has_bytes(value: object, seen: set[int]) -> bool:
    """Return whether bytes are anywhere in a value, which may contain itself."""
    if isinstance(value, _BYTES):
        return True
    parts = _list_parts(value)
    if not parts or id(value) in seen:
        return False
    seen.add(id(value))
    return any(_has_bytes(one, seen) for one in parts)


def _list_parts(value: object) -> Sequence[Any]:
    """Return the values within a list, a dict or an object with fields."""
    found = _list_fields(value)
    if found is not None:
        return [*found.values()]
    return [*value] if isinstance(value, list | tuple | set | frozenset) else []


def _list_fields(value: object) -> Mapping[Any, Any] | None:
    if isinstance(value, BaseMessage):
        return None
    if isinstance(value, BaseModel):
        return vars(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value if isinstance(value, Mapping) else None


def _describe_bytes(value: object, files: list[Block], depth: int = 0) -> object:
    """Return a value with texts in place of bytes. Files are described, and added to a list."""
    if isinstance(value, _BYTES):
        block = read_bytes(bytes(value))
        if not is_inline_file(block):
            return block["text"]
        files.append(block)
        return f"[{describe_file(block)}]"
    parts = _list_parts(value)
    if not parts or depth == _DEEPEST:
        return value if not parts else "…"
    found = _list_fields(value)
    if found is not None:
        return {str(name): _describe_bytes(one, files, depth + 1) for name, one in found.items()}
    return [_describe_bytes(one, files, depth + 1) for one in parts]


async def call_conversation(
    context: NodeContext, call: ToolCall, tool: ConversationTool
) -> CallResult:
    """Run one call of a tool that runs a conversation. Every failure becomes text for the model."""
    name, given = call["name"], call["args"]
    try:
        check_arguments(parameters_of(tool), given)
    except ArgumentsError as error:
        return CallResult(f"The arguments of {name} do not fit: {error}", Failure.CALL)
    text = given.get(tool.argument)
    if isinstance(text, str) and not text.strip():
        fault = f"{tool.argument}: must not be empty; write a text or leave it out"
        return CallResult(f"The arguments of {name} do not fit: {fault}", Failure.CALL)
    seconds, call_id = timeout_of(tool), str(call["id"])
    found = await run_inner(context, tool.conversation, text, call_id, seconds)
    inner = found.about.model_dump(mode="json", exclude_defaults=True)
    if found.error is not None:
        return CallResult(
            f"{name} failed: {describe_error(found.error)}", Failure.TOOL, inner=inner
        )
    if found.output is None:
        end = f"its conversation has ended without an output: {found.outcome}"
        return CallResult(f"{name} failed: {end}", Failure.TOOL, inner=inner)
    value = to_jsonable_python(found.output.value, fallback=str)
    return CallResult(found.output.text, parsed=value, inner=inner)
