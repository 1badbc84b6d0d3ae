"""What tools and code have given, as something that a speaker says. Pure functions."""

from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolMessage
from langchain_core.messages.tool import ToolCall
from pydantic import JsonValue

from ...graphs.log.formats.code_blocks import code_blocks, languages_run, open_blocks
from ...graphs.log.heard import heard_since
from ...graphs.log.messages import metadata, newest_calls, place_of
from ...graphs.log.metadata import CodeCalls, Source, SpeakerReply, parsed_of
from ...graphs.log.remembered import is_told
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.conversation import Conversation
from ..prompts.code import NO_OUTPUT, NOT_CLOSED, PRINTED_NOTHING


def code_heard(
    conversation: Conversation, log: Sequence[BaseMessage], speaker: Speaker
) -> AIMessage | None:
    """Give the code that a speaker runs, as calls: one for each block of the newest message."""
    places = {*heard_since(log, speaker.name)}
    heard = [message for message in log if place_of(message) in places]
    # What the conversation itself tells it, such as that it is its turn, is no message.
    said = [message for message in heard if not is_told(metadata(message))]
    # What code prints, and tools give, is data: no code in it is run.
    newest = metadata(said[-1]) if said else None
    is_data = isinstance(newest, SpeakerReply) and newest.source in (Source.CODE, Source.TOOL)
    text = said[-1].text if said and not is_data else ""
    languages = languages_run(conversation, speaker)
    whole, parts = code_blocks(text, languages), open_blocks(text, languages)
    if not whole and not parts:
        return None
    return AIMessage(
        "",
        tool_calls=[ToolCall(name=one.language, args={"code": one.code}, id=None) for one in whole],
        invalid_tool_calls=[
            InvalidToolCall(
                type="invalid_tool_call",
                name=one.language,
                args=one.code,
                id=None,
                error=NOT_CLOSED,
            )
            for one in parts
        ],
    )


class ToolOutput(NamedTuple):
    """What a speaker says that its tools or its code have given."""

    text: str
    """What it says."""
    source: Source
    """What gave it."""
    parsed: JsonValue
    """For code the exit code and the outputs, as plain values."""


def given_by(log: Sequence[BaseMessage]) -> ToolOutput:
    """Give what the newest calls gave, as what the speaker says."""
    message = newest_calls(log)
    # Where hooks have seen what a call gave, theirs is the newer one.
    newest = {one.tool_call_id: one for one in log if isinstance(one, ToolMessage)}
    asked = [
        newest.get(str(call["id"])) for call in (*message.tool_calls, *message.invalid_tool_calls)
    ]
    results = [one for one in asked if one is not None]
    if not isinstance(metadata(message), CodeCalls):
        text = "\n\n".join(one.text for one in results if one.text.strip())
        return ToolOutput(text, Source.TOOL, None)
    codes = [
        exit_code_of(parsed_of(metadata(one)), failed=one.status == "error")
        for one in reversed(results)
    ]
    exit_code = next(filter(None, codes), 0)
    left = len(asked) - len(results)
    outputs = [one.text for one in results]
    parsed: JsonValue = {"exit_code": exit_code, "outputs": [*outputs]}
    return ToolOutput(_report(exit_code, outputs, left), Source.CODE, parsed)


def _report(exit_code: int, outputs: Sequence[str], left: int) -> str:
    """Say what came of code: the exit code, what each block gave, and how many were not run."""
    how = "it failed" if exit_code else "it succeeded"
    nothing = NO_OUTPUT if exit_code else PRINTED_NOTHING
    shown = "\n".join(text.strip("\n") for text in outputs if text.strip()) or nothing
    blocks = "block was" if left == 1 else "blocks were"
    behind = f"\n{left} more {blocks} not run because of this." if left else ""
    return f"Exit code: {exit_code} ({how})\nOutput:\n{shown}{behind}"


def exit_code_of(parsed: JsonValue, *, failed: bool) -> int:
    """Give the exit code of a block of code; where a hook answered for it, whether it failed."""
    code = parsed.get("exit_code") if isinstance(parsed, dict) else None
    return code if isinstance(code, int) else int(failed)
