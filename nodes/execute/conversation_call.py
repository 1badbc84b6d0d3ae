"""Calls of a tool that runs a conversation, which becomes an inner session of the caller."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import ToolCall
from pydantic_core import to_jsonable_python

from ...graphs.conversation.usage import Usage
from ...graphs.log.messages import make_message
from ...graphs.log.metadata import Failure, InnerSession
from ...graphs.speakers.speaker import Speaker
from ...tools.registry.conversation_tool import ConversationTool
from ...tools.registry.functions import check_arguments, parameters_of
from ...tools.registry.hooks import ArgumentsError, timeout_of
from ..turn.inner import add_models, describe_error, run_inner
from ..turn.node_context import NodeContext
from .call import CallResult


class InnerCall(NamedTuple):
    """The inner session of a call, as the call's task records it."""

    text: str
    """A sentence about its end."""
    about: dict[str, Any]
    """Its `InnerSession`, as plain values."""

    def line(self, number: int) -> AnyMessage:
        """Return the message of the log that contains the inner session."""
        return make_message(number, self.text, InnerSession.model_validate(self.about))

    @property
    def usage(self) -> dict[str, Usage]:
        """The usage of the inner session, by model."""
        found = self.about.get("usage", {}).items()
        return {name: Usage.model_validate(used) for name, used in found}


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
    record = InnerCall(found.text, found.about.model_dump(mode="json", exclude_defaults=True))
    inner = {"text": record.text, "about": record.about}
    if found.error is not None:
        return CallResult(f"{name} failed: {describe_error(found.error)}", Failure.TOOL, inner=inner)
    if found.output is None:
        end = f"its conversation has ended without an output: {found.outcome}"
        return CallResult(f"{name} failed: {end}", Failure.TOOL, inner=inner)
    value = to_jsonable_python(found.output.value, fallback=str)
    return CallResult(found.output.text, parsed=value, inner=inner)


def inner_call_of(result: CallResult) -> InnerCall | None:
    """Return the inner session of a call's result, or None if there is none."""
    return None if result.inner is None else InnerCall(**result.inner)


def usage_with_calls(
    usage: dict[str, Usage], answers: Mapping[str, CallResult]
) -> dict[str, Usage]:
    """Return the usage by model with the usage of the inner sessions of calls added."""
    for answer in answers.values():
        found = inner_call_of(answer)
        if found is not None:
            usage = add_models(usage, found.usage)
    return usage
