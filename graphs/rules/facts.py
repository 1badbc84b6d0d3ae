"""What is true of a log: the facts that ends and guards look at. A pure function of the log.

What was used, how long it took, whether somebody asked it to stop and what predicates say is not in
the log; the nodes add that.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..log.code_blocks import code_blocks
from ..log.messages import Failure, Flaw, Kind, Line, Source, line
from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, EndingTool, leaves
from ..spec.usage import Usage, total
from ..text.farewells import is_farewell
from ..text.wording import ends_with, is_blank, is_equal, is_same, is_same_move, says
from .people import watcher
from .position import Facts

Read = Sequence[tuple[BaseMessage, Line]]
"""Messages of a log, each with what stands beside it."""


def observed(conversation: Conversation, log: Sequence[BaseMessage]) -> Facts:
    """Find out what is true of a log."""
    return facts_of(conversation, read_log(log))


def read_log(log: Sequence[BaseMessage]) -> Read:
    """Read what stands beside each message of a log, for `facts_of`."""
    return [(message, line(message)) for message in log]


def facts_of(conversation: Conversation, read: Read) -> Facts:
    """Find out what is true of a log that is read already; `observed` says more."""
    # Opening answers are heard by nobody, or only as what they are: nothing in them ends anything.
    heard = [(message, about) for message, about in read if about.counts]
    errors = _errors(read)
    return Facts(
        messages=sum(about.kind is Kind.SPEECH for _, about in read),
        tokens_said=tuple(dict.fromkeys(_tokens_said(conversation, heard))),
        tools_called=tuple(dict.fromkeys(_tools_called(conversation, read))),
        **_code(conversation, heard),
        **_people(conversation, read, heard),
        call_errors=errors.count(Failure.CALL),
        tool_errors=errors.count(Failure.TOOL),
        blank_replies=_trailing(
            about.source is not Source.HUMAN and is_blank(message.text)
            for message, about in reversed(heard)
        ),
        same_replies=_same_replies(heard),
        farewells=_trailing(
            _is_farewell(conversation, message, about) for message, about in reversed(heard)
        ),
        role_flips=_role_flips(heard),
        same_tool_calls=_same_tool_calls(read),
        unreadable_verdicts=_trailing(
            not about.verdict.readable for _, about in reversed(read) if about.verdict is not None
        ),
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


def _trailing(found: Iterable[bool]) -> int:
    """Count up to the first that is not so."""
    count = 0
    for one in found:
        if not one:
            break
        count += 1
    return count


def _tokens_said(conversation: Conversation, heard: Read) -> Iterator[tuple[str, str]]:
    for message, about in heard:
        if about.source in _DATA:
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
    """Who said the newest message, by whether code stands in it. Nobody where none is ever run."""
    if not heard or not any(speaker.runs_code for speaker in conversation.speakers):
        return {}
    message, about = heard[-1]
    writes = about.source not in _DATA and bool(code_blocks(message.text))
    return {"code_by" if writes else "no_code_by": about.speaker}


def _people(conversation: Conversation, read: Read, heard: Read) -> dict[str, Any]:
    """What is looked at where people take part, or a first message is given."""
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
        text = "" if about.source in _DATA else message.text
        facts["said_by"] = about.speaker
        facts["terminated"] = tuple(
            name
            for name, human in people
            if name != about.speaker and ends_with(human.termination, text)
        )
    return facts


def _auto_replies(conversation: Conversation, name: str, read: Read) -> int:
    """Count what nobody has given for a speaker since a person last spoke for it."""
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


def _errors(read: Read) -> list[Failure | None]:
    """How the calls of this turn ended, the newest first."""
    found: list[Failure | None] = []
    for _, about in reversed(read):
        if about.ends_turn:
            break
        if about.kind is Kind.TOOL_RESULT:
            found.append(about.failure)
    return found


_DATA = (Source.CODE, Source.TOOL)
"""What gives replies that nobody has thought: in them no word ends anything, and no code is run."""

_FREE = (Source.HUMAN, Source.TEXT, *_DATA)
"""What gives replies that may well be the same: people do as they like, the rest has no choice."""


def _same_replies(heard: Read) -> int:
    if not heard:
        return 0
    latest, who = heard[-1]
    if who.source in _FREE:
        return 0
    return 1 + sum(
        is_same(message.text, latest.text) and _same_answered(heard, place)
        for place, (message, about) in enumerate(heard[:-1])
        if about.speaker == who.speaker and about.source not in _FREE
    )


def _same_answered(heard: Read, place: int) -> bool:
    """Whether a message and the newest one answer the same move; the very first answers none."""
    return place == 0 or is_alike(heard[place - 1], heard[-2])


def is_alike(before: tuple[BaseMessage, Line], now: tuple[BaseMessage, Line]) -> bool:
    """Whether the same answer to two messages is a repetition.

    It is none where they are two moves of a game. Nor where a person says the same again: whoever
    asks the same may well be told the same, as often as it is asked.
    """
    (first, _), (second, about) = before, now
    if about.source is Source.HUMAN and is_equal(first.text, second.text):
        return False
    return is_same_move(first.text, second.text)


def _is_farewell(conversation: Conversation, message: BaseMessage, about: Line) -> bool:
    if about.source is Source.HUMAN:
        return False
    marks = conversation.speaker(about.speaker or "").marks
    return is_farewell(message.text, conversation.names, marks.texts if marks else ())


def _role_flips(heard: Read) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, about in heard:
        if about.flaw is Flaw.ROLE_FLIP:
            counts[about.speaker or ""] = counts.get(about.speaker or "", 0) + 1
    return counts


def _same_tool_calls(read: Read) -> int:
    calls: list[tuple[str | None, object]] = []
    for message, about in reversed(read):
        if about.ends_turn:
            break
        if about.kind is Kind.TOOL_CALLS and isinstance(message, AIMessage):
            of_one = [(call["name"], call["args"]) for call in message.tool_calls]
            broken = [(call["name"], call["args"]) for call in message.invalid_tool_calls]
            calls.extend(reversed([*of_one, *broken]))
    return _trailing(call == calls[0] for call in calls)
