"""What a log holds that ends look at. What the log does not hold, such as time, the nodes add."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..log.code_blocks import code_blocks
from ..log.kinds import Kind
from ..log.messages import Source
from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, EndingTool, leaves
from ..spec.usage import Usage, total
from ..text.wording import ends_with, says
from .ends.holding import ENDS
from .ends.talk import DATA, Read, Talk, read_log
from .people import watcher
from .position import Facts


def observed(conversation: Conversation, log: Sequence[BaseMessage]) -> Facts:
    """Find out what a log holds."""
    return facts_of(Talk.of(conversation, read_log(log)))


def facts_of(talk: Talk) -> Facts:
    """Find out what a log holds that is read already."""
    conversation, read, heard = talk
    counts = ((reason, end.count(talk)) for reason, end in ENDS.items())
    return Facts(
        messages=sum(about.kind is Kind.SPEECH for _, about in read),
        tokens_said=tuple(dict.fromkeys(_tokens_said(conversation, heard))),
        tools_called=tuple(dict.fromkeys(_tools_called(conversation, read))),
        **_code(conversation, heard),
        **_people(conversation, read, heard),
        counts={reason: count for reason, count in counts if count},
    )


def with_usage(facts: Facts, usage: Iterable[Usage]) -> Facts:
    """Add what model calls have used to the facts of a log."""
    spent = total(usage)
    tokens = spent.input_tokens + spent.output_tokens
    return facts.model_copy(update={"calls": spent.calls, "tokens": tokens, "cost": spent.cost})


def done_tokens(conversation: Conversation, speaker: str | None, text: str) -> list[str]:
    """Give the done tokens that a message says, of those that its speaker may say."""
    return [
        end.token
        for _, end in leaves(conversation.end_chat.when)
        if isinstance(end, DoneToken) and end.by in (None, speaker) and says(end.token, text)
    ]


def _tokens_said(conversation: Conversation, heard: Read) -> Iterator[tuple[str, str]]:
    for message, about in heard:
        if about.source in DATA:
            continue
        for token in done_tokens(conversation, about.speaker, message.text):
            yield token, about.speaker or ""


def _tools_called(conversation: Conversation, read: Read) -> Iterator[tuple[str, str]]:
    when = conversation.end_chat.when
    ends = {end.tool for _, end in leaves(when) if isinstance(end, EndingTool)}
    if not ends:
        return
    called = {
        call["id"]: call["name"]
        for message, about in read
        if isinstance(message, AIMessage) and about.is_aloud
        for call in message.tool_calls
    }
    for message, about in read:
        if not isinstance(message, ToolMessage) or about.kind is not Kind.TOOL_RESULT:
            continue
        if message.status == "success":
            name = about.tool or called.get(message.tool_call_id)
            if name in ends:
                yield name, about.speaker or ""


def _code(conversation: Conversation, heard: Read) -> dict[str, str | None]:
    """Who said the newest message, by whether it holds code; nothing where no code is ever run."""
    if not heard or not any(speaker.runs_code for speaker in conversation.speakers):
        return {}
    message, about = heard[-1]
    writes = about.source not in DATA and bool(code_blocks(message.text))
    return {"code_by" if writes else "no_code_by": about.speaker}


def _people(conversation: Conversation, read: Read, heard: Read) -> dict[str, Any]:
    """What is found only where people take part, or a first message is given."""
    speakers = conversation.speakers
    if not any(speaker.human or speaker.first_message for speaker in speakers):
        return {}
    people = [(speaker.name, speaker.human) for speaker in speakers if speaker.human is not None]
    counts = {name: _auto_replies(conversation, name, read) for name, _ in people}
    facts: dict[str, Any] = {
        "heard_from": tuple(dict.fromkeys(about.speaker for _, about in heard)),
        "auto_replies": {name: count for name, count in counts.items() if count},
    }
    if heard:
        message, about = heard[-1]
        text = "" if about.source in DATA else message.text
        facts["said_by"] = about.speaker
        facts["terminated"] = tuple(
            name
            for name, human in people
            if name != about.speaker and ends_with(human.termination, text)
        )
    return facts


def _auto_replies(conversation: Conversation, name: str, read: Read) -> int:
    """Count the automatic replies for a speaker since a person last spoke for it."""
    answered = {
        message.tool_call_id
        for message, about in read
        if isinstance(message, ToolMessage) and about.kind is not Kind.REMOVED
    }
    count, first = 0, None
    for message, about in reversed(read):
        if about.counts and about.speaker == name:
            if about.source is Source.HUMAN:
                return count
            count, first = count + 1, about
        elif about.kind is Kind.TOOL_CALLS and about.is_aloud and isinstance(message, AIMessage):
            ran = any(call["id"] in answered for call in message.tool_calls)
            count += ran and watcher(conversation, about.speaker or "") == name
    given = conversation.speaker(name).first_message is not None
    return count - (given and first is not None and first.source is Source.TEXT)
