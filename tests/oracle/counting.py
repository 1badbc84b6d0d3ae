"""What guards count in a log, by plain functions over the whole of it.

Written from the rules and not from the engine, which counts message by message.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from langchain_core.messages import AIMessage, BaseMessage

from duologue.graphs.log.kinds import Kind
from duologue.graphs.log.messages import About, Failure, Flaw, Source, line
from duologue.graphs.spec.conversation import Conversation
from duologue.graphs.text.farewells import is_farewell
from duologue.graphs.text.wording import (
    is_blank,
    is_equal,
    is_same,
    is_same_move,
    is_short,
)

Read = list[tuple[BaseMessage, About]]

FREE = (Source.HUMAN, Source.TEXT, Source.CODE, Source.TOOL)


def in_a_row(found: Iterable[bool]) -> int:
    return sum(takewhile(bool, found))


def counts(conversation: Conversation, log: Sequence[BaseMessage]) -> dict[str, int]:
    """What guards count in a log, but for zeros; R10: since it ended, where it has gone on."""
    read = [(message, line(message)) for message in log]
    ends = [place for place, (_, about) in enumerate(read) if about.kind is Kind.ENDED]
    read = read[ends[-1] + 1 :] if ends else read
    heard = [(message, about) for message, about in read if about.counts]
    turn = list(takewhile(lambda one: not one[1].ends_turn, reversed(read)))
    failures = [about.failure for _, about in turn if about.kind is Kind.TOOL_RESULT]
    calls = [
        (call["name"], call["args"])
        for message, about in turn
        if about.kind is Kind.TOOL_CALLS and isinstance(message, AIMessage)
        for call in reversed([*message.tool_calls, *message.invalid_tool_calls])
    ]
    verdicts = [about.verdict for _, about in reversed(read) if about.verdict is not None]
    flips = Counter(about.speaker for _, about in heard if about.flaw is Flaw.ROLE_FLIP)
    by_models = [(one, about.source is not Source.HUMAN) for one, about in reversed(heard)]
    found = {
        "call_errors": failures.count(Failure.CALL),
        "tool_errors": failures.count(Failure.TOOL),
        "unreadable_verdicts": in_a_row(not verdict.readable for verdict in verdicts),
        "role_flips": max(flips.values(), default=0),
        "blank_replies": in_a_row(model and is_blank(one.text) for one, model in by_models),
        "same_replies": same_replies(heard),
        "echo": echoes(heard),
        "farewells": in_a_row(
            about.source is not Source.HUMAN
            and is_farewell(one.text, conversation.names, _marks(conversation, about))
            for one, about in reversed(closing(heard))
        ),
        "standstill": standstill(conversation, heard),
        "same_tool_calls": in_a_row(call == calls[0] for call in calls),
    }
    return {reason: count for reason, count in found.items() if count}


def echoes(heard: Read) -> int:
    """R16: how many messages in a row, of whoever spoke last, are echoes."""
    own = (about.flaw for _, about in reversed(heard) if about.speaker == heard[-1][1].speaker)
    return in_a_row(flaw is Flaw.ECHO for flaw in own)


def _marks(conversation: Conversation, about: About) -> Sequence[str]:
    marks = conversation.speaker(about.speaker or "").marks
    return marks.texts if marks else ()


def closing(heard: Read) -> Read:
    """R7: the messages that may close a conversation: none while a question is open."""
    found, asker = [], None
    for message, about in heard:
        asks = "?" in message.text
        asker = about.speaker if asks or asker == about.speaker else asker
        if asker in (None, about.speaker):
            found.append((message, about))
        if not asks and asker == about.speaker:
            asker = None
    return found


def standstill(conversation: Conversation, heard: Read) -> int:
    """R7: rounds of sentences in which nobody says anything new since a person has spoken."""
    people = [place for place, (_, about) in enumerate(heard) if about.source is Source.HUMAN]
    since = heard[people[-1] + 1 :] if people else heard
    found = 0
    for length in (1, 2, 3):
        weight = 0
        for place in range(len(since) - 1, -1, -1):
            message, about = since[place]
            own = [one.text for one, its in since[:place] if its.speaker == about.speaker]
            before = own[-length] if len(own) >= length else None
            if before is None or not is_equal(message.text, before):
                break
            asked = any("?" in one.text for one, _ in since[max(place - 1, 0) : place + 1])
            weight += (1 if asked else 2) if is_short(message.text) else 6
        found = max(found, weight // (6 * len(conversation.speakers)))
    if since and not is_short(since[-1][0].text) and since[-1][1].source not in FREE:
        latest, who = since[-1]
        times = sum(
            is_equal(one.text, latest.text)
            for one, about in since
            if about.speaker == who.speaker and about.source not in FREE
        )
        found = max(found, times // 6)
    return found


def same_replies(heard: Read) -> int:
    if not heard or heard[-1][1].source in FREE:
        return 0
    latest, who = heard[-1]
    return 1 + sum(
        is_same(message.text, latest.text) and (place == 0 or is_alike(heard[place - 1], heard[-2]))
        for place, (message, about) in enumerate(heard[:-1])
        if about.speaker == who.speaker and about.source not in FREE
    )


def is_alike(before: tuple[BaseMessage, About], now: tuple[BaseMessage, About]) -> bool:
    asked_again = now[1].source is Source.HUMAN and is_equal(before[0].text, now[0].text)
    return not asked_again and is_same_move(before[0].text, now[0].text)
