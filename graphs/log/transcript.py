"""The log for readers who take no part: as text, and as messages in OpenAI's form.

Judges, moderators, reports and summaries read the text; evaluators of agents read the messages.

Text of speakers, tools and people is evidence. It must not look like a line of the transcript, so
each line of a text after the first is indented. A line without indentation is always written by
this module, and its beginning names the speaker, the call or the result.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from ..common.content import describe_content
from ..common.sanitize import dump_exact_json
from ..conversation.conversation import Conversation
from ..speakers.reply_parts import calls_of
from .heard_text import provider_names
from .messages import metadata, place_of, says_something
from .metadata import MessageMetadata, is_by_person
from .viewpoint import SILENCE, viewpoint

NO_REPLY: Final = "(no reply)"
"""The text of a message without text in a transcript for people and judges."""

_INDENT: Final = "    "

_PLAIN_NAME: Final = re.compile(r"[\w.:/-]+")
"""Names of tools that are shown without quotation marks. A model may call any name."""


def quote_text(text: str) -> str:
    """Return a text whose lines after the first are indented. All kinds of line ends count."""
    first, *others = text.strip().splitlines() or [""]
    # A blank line needs no indentation, and editors would remove it.
    return "\n".join([first, *(f"{_INDENT}{line}".rstrip() for line in others)])


def format_line(speaker: str | None, text: str) -> str:
    """Return a message as an entry of a transcript: the speaker, and the quoted text."""
    return quote_text(f"{speaker}: {text.strip() or SILENCE}")


def format_call(speaker: str | None, tool: str, arguments: object) -> str:
    """Return a tool call as an entry of a transcript, with its arguments as JSON."""
    return f"({speaker} called {_format_name(tool)} with {dump_exact_json(arguments)})"


def format_result(tool: str, text: str) -> str:
    """Return the result of a tool call as an entry of a transcript."""
    return quote_text(f"(result of {_format_name(tool)}) {text.strip() or SILENCE}")


def _format_name(tool: str) -> str:
    return tool if _PLAIN_NAME.fullmatch(tool) else dump_exact_json(tool)


def format_transcript(log: Sequence[BaseMessage], *, private: bool) -> str:
    """Return the transcript as text, as an observer who takes no part hears it."""
    spoken = ((message, metadata(message)) for message in log)
    return "\n\n".join(
        format_line(_from_outside(about), describe_content(message.content))
        for message, about in spoken
        if (private or about.audience is None) and says_something(message, about)
    )


def _from_outside(about: MessageMetadata) -> str:
    if about.audience is None:
        return f"{about.speaker}"
    if about.confidants:
        return f"{about.speaker} (to {' and '.join(about.confidants)} only)"
    return f"{about.speaker} (private)"


class TranscriptLine(NamedTuple):
    """A message, a tool call or a result of a log, as an entry of a transcript."""

    place: str
    """The place of the message in the log."""
    text: str
    """The text. Its lines after the first are indented."""


def transcript_lines(log: Sequence[BaseMessage]) -> list[TranscriptLine]:
    """Return the messages, tool calls and results of a log, private ones included.

    The number of a line, from 1, is the number of a message in reports and in reasons of verdicts.
    """
    called: dict[str | None, str] = {}
    lines: list[TranscriptLine] = []
    for message in log:
        about, place = metadata(message), place_of(message)
        if not about.is_spoken:
            continue
        if isinstance(message, ToolMessage):
            if (name := called.get(message.tool_call_id)) is not None:
                result = format_result(name, describe_content(message.content))
                lines.append(TranscriptLine(place, result))
            continue
        if says_something(message, about):
            text = describe_content(message.content).strip() or NO_REPLY
            lines.append(TranscriptLine(place, format_line(_from_outside(about), text)))
        for one in message.tool_calls if isinstance(message, AIMessage) else ():
            called[one["id"]] = one["name"]
            call = format_call(about.speaker, one["name"], one["args"])
            lines.append(TranscriptLine(place, call))
    return lines


def numbered_transcript(log: Sequence[BaseMessage], part: Sequence[BaseMessage]) -> str:
    """Return the lines of a part of a log, with their numbers in the whole log."""
    shown = {place_of(message) for message in part}
    return "\n".join(
        f"{number}. {line.text}"
        for number, line in enumerate(transcript_lines(log), start=1)
        if line.place in shown
    )


def trajectory(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None, speaker: str | None
) -> list[dict[str, Any]]:
    """Return the messages that a speaker sees; without a speaker, the task and the transcript."""
    seen = None if speaker is None else viewpoint(conversation, log, speaker)
    return _convert_messages(_list_seen(conversation, log, task) if seen is None else seen)


def transcript(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None
) -> list[dict[str, Any]]:
    """Return the whole transcript, each message with its place, its speaker and its audience."""
    found = [*_list_seen(conversation, log, task)]
    said = {message.id: message for message in log}
    rows: list[dict[str, Any]] = []
    for shown, row in zip(found, _convert_messages(found), strict=True):
        source: dict[str, Any] = {}
        if (message := said.get(shown.id)) is not None:
            about = metadata(message)
            source = {"id": place_of(message), "speaker": about.speaker}
            if about.audience is not None:
                source["audience"] = [*about.audience]
        rows.append(source | row)
    return rows


def _convert_messages(found: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = convert_to_openai_messages([*found])
    return written


def _list_seen(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None
) -> Iterator[BaseMessage]:
    """Yield the task and the transcript, with calls and results.

    Only the task and the messages of people have the role of the user.
    """
    names = provider_names(conversation.names)
    called: set[str | None] = set()
    if task:
        yield HumanMessage(task)
    for message in log:
        about = metadata(message)
        if not about.is_spoken:
            continue
        name = names.get(about.speaker or "")
        if isinstance(message, ToolMessage):
            # The result of a code block has no call: the message's text contains the code.
            if message.tool_call_id in called:
                text = describe_content(message.content)
                yield ToolMessage(text, tool_call_id=message.tool_call_id, id=message.id)
        elif is_by_person(about):
            yield HumanMessage(message.content, name=name, id=message.id)
        else:
            calls = calls_of(message) if isinstance(message, AIMessage) else []
            called.update(call["id"] for call in calls)
            yield AIMessage(message.text, name=name, tool_calls=calls, id=message.id)
