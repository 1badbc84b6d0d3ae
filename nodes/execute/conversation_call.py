"""Calls of a tool that runs a conversation, which becomes an inner session of the caller."""

from collections.abc import Iterable

from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import ToolCall
from pydantic_core import to_jsonable_python

from ...graphs.conversation.usage import Usage, add_models, read_usage
from ...graphs.log.messages import make_message
from ...graphs.log.metadata import Failure, InnerSession
from ...graphs.speakers.speaker import Speaker
from ...tools.registry.functions import check_arguments, parameters_of
from ...tools.registry.hooks import ArgumentsError, timeout_of
from ...tools.registry.registry import ConversationTool
from ..turn.inner import describe_error, run_inner
from ..turn.node_context import NodeContext
from .call import CallResult


async def call_conversation(
    context: NodeContext, speaker: Speaker, call: ToolCall, tool: ConversationTool
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
    found = await run_inner(context, speaker, tool.conversation, text, call_id, seconds)
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


def inner_lines(answers: Iterable[CallResult], number: int) -> list[AnyMessage]:
    """Return the messages of the log that contain the inner sessions of calls."""
    found = [InnerSession.model_validate(one.inner) for one in answers if one.inner is not None]
    return [make_message(place, "", about) for place, about in enumerate(found, start=number)]


def usage_with_calls(usage: dict[str, Usage], answers: Iterable[CallResult]) -> dict[str, Usage]:
    """Return the usage by model with the usage of the inner sessions of calls added."""
    for answer in answers:
        usage = add_models(usage, read_usage(answer.inner or {}))
    return usage
