"""Counts of the guards in a log, computed by plain functions over the whole log.

They follow the rules and not the engine, which counts message by message.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from duologue.graphs import Conversation
from duologue.graphs.text.sentences import is_farewell
from duologue.graphs.text.similarity import is_blank, is_equal, is_near, is_same, is_short, plain
from support.log import Failure, Flaw, Source, fields_of

Read = list[tuple[BaseMessage, Any]]
Heard = list[tuple[BaseMessage, Any]]

FREE = (Source.HUMAN, Source.TEXT, Source.CODE, Source.TOOL)
CHOICE = (
    *(Source.MODEL, Source.FUNCTION, Source.AGENT, Source.HOOK),
    *(Source.CONVERSATION, Source.HANDOFF),
)


def in_a_row(found: Iterable[bool]) -> int:
    return sum(takewhile(bool, found))


def counts(conversation: Conversation, log: Sequence[BaseMessage]) -> dict[str, int]:
    """Return the nonzero counts of guards in a log, since its last end (R10)."""
    read = [(message, fields_of(message)) for message in log]
    ends = [place for place, (_, about) in enumerate(read) if about.kind == "earlier_end"]
    read = read[ends[-1] + 1 :] if ends else read
    heard = [
        (message, about) for message, about in read if about.kind == "speech" and about.is_aloud
    ]
    turn = list(takewhile(lambda one: not one[1].ends_turn, reversed(read)))[::-1]
    silent = list(takewhile(lambda one: one[1].kind != "speech", reversed(read)))
    found_verdicts = (about.verdict for _, about in reversed(read))
    verdicts = [verdict for verdict in found_verdicts if verdict is not None]
    flips = Counter(about.speaker for _, about in heard if about.flaw is Flaw.ROLE_FLIP)
    by_models = [
        (one, about.source is not Source.HUMAN)
        for one, about in reversed(heard)
        # A blank text counts as no message unless its speaker chose it.
        if about.source in (Source.HUMAN, *CHOICE) or not is_blank(one.text)
    ]
    found = {
        "call_errors": errors(turn, Failure.CALL),
        "tool_errors": errors(turn, Failure.TOOL),
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
        "same_tool_calls": same_tool_calls(silent[::-1]),
    }
    return {reason: count for reason, count in found.items() if count}


def echoes(heard: Heard) -> int:
    """R16: return the number of latest messages of the last speaker that are echoes."""
    own = (about.flaw for _, about in reversed(heard) if about.speaker == heard[-1][1].speaker)
    return in_a_row(flaw is Flaw.ECHO for flaw in own)


def _marks(conversation: Conversation, about: Any) -> Sequence[str]:  # noqa: ANN401
    marks = conversation.speaker(about.speaker or "").marks
    return marks.texts if marks else ()


def closing(heard: Heard) -> Heard:
    """R7: return the messages that may close a conversation: none while a question is open."""
    found: Heard = []
    asker: str | None = None
    for message, about in heard:
        asks = "?" in message.text
        asker = about.speaker if asks or asker == about.speaker else asker
        if asker in (None, about.speaker):
            found.append((message, about))
        if not asks and asker == about.speaker:
            asker = None
    return found


def standstill(conversation: Conversation, heard: Heard) -> int:
    """R7: return the rounds of sentences without anything new since a person has spoken."""
    people = [place for place, (_, about) in enumerate(heard) if about.source is Source.HUMAN]
    since = heard[people[-1] + 1 :] if people else heard
    found = 0
    for length in (1, 2, 3):
        weights = list[int]()
        for place in range(len(since) - 1, -1, -1):
            message, about = since[place]
            own = [one.text for one, its in since[:place] if its.speaker == about.speaker]
            before = own[-length] if len(own) >= length else None
            if before is None or not is_equal(message.text, before):
                break
            asked = any("?" in one.text for one, _ in since[max(place - 1, 0) : place + 1])
            weights.append((1 if asked else 2) if is_short(message.text) else 6)
        # The lightest message decides the kind of the rounds.
        weight = len(weights) * min(weights, default=0)
        found = max(found, weight // (6 * len(conversation.speakers)))
    if since and not is_short(since[-1][0].text) and since[-1][1].source not in FREE:
        words = [(about.speaker, re.sub(r"[\d\s]", "", plain(one.text))) for one, about in since]
        news = max(place for place, said in enumerate(words) if said not in words[:place])
        latest, who = since[-1]
        times = sum(
            is_equal(one.text, latest.text)
            for one, about in since[news:]
            if about.speaker == who.speaker and about.source not in FREE
        )
        found = max(found, times // 6)
    return found


def same_replies(heard: Heard) -> int:
    """R7: return how often the newest reply was sent since any new message."""
    if not heard or heard[-1][1].source in FREE:
        return 0
    latest, who = heard[-1]
    news = max(place for place in range(len(heard)) if is_new(heard, place))
    count = sum(
        is_same(message.text, latest.text)
        for message, about in heard[news:-1]
        if about.speaker == who.speaker and about.source not in FREE
    )
    return 1 + count


def is_new(heard: Heard, place: int) -> bool:
    """R7: return whether a person sends it, or its speaker has not sent the same before."""
    message, its = heard[place]
    own = [one.text for one, about in heard[:place] if about.speaker == its.speaker]
    same = is_equal if is_short(message.text) else is_same
    return its.source is Source.HUMAN or not any(same(one, message.text) for one in own)


class Made(NamedTuple):
    """A message with calls, and their results so far."""

    calls: list[str]
    results: list[str]
    """The results, each behind its call."""
    answers: list[tuple[str, Failure | None]]
    """The results, each behind its call, with the failure of the call."""
    waits: bool
    """A result is missing."""

    @property
    def refused(self) -> bool:
        return any(failure is Failure.PERSON for _, failure in self.answers)

    @property
    def failed(self) -> bool:
        failures = {Failure.CALL, Failure.TOOL} & {failure for _, failure in self.answers}
        return bool(failures) and not self.refused

    @property
    def is_open(self) -> bool:
        """Return whether the results are not known, and may be the same as before."""
        return self.waits or self.refused


def made(turn: Read) -> list[Made]:
    """Read the messages with calls, each with the results before the next one."""
    return [
        _made(message, turn[place + 1 :])
        for place, (message, about) in enumerate(turn)
        if isinstance(message, AIMessage) and _calls(message, about)
    ]


def _calls(message: BaseMessage, about: Any) -> bool:  # noqa: ANN401
    return about.kind == "tool_calls" and isinstance(message, AIMessage)


def _made(message: AIMessage, later: Read) -> Made:
    calls = {
        one["id"]: f"{one['name']} {one['args']}"
        for one in (*message.tool_calls, *message.invalid_tool_calls)
    }
    came = dict[str | None, tuple[ToolMessage, Any]]()
    for one, about in takewhile(lambda it: not _calls(*it), later):
        if isinstance(one, ToolMessage) and about.kind == "tool_result":
            came.setdefault(one.tool_call_id, (one, about))
    found = [(calls[key], *came[key]) for key in calls if key in came]
    answers = [(f"{call} -> {one.text}", about.failure) for call, one, about in found]
    return Made(
        sorted({*calls.values()}),
        sorted({text for text, _ in answers}),
        answers,
        waits=len(found) < len(calls),
    )


def repeats(one: list[str], other: list[str]) -> bool:
    """R21: return whether calls, with their results or without, are equal or nearly equal."""
    pairs = [
        (first.partition(" -> "), second.partition(" -> "))
        for first, second in zip(one, other, strict=False)
    ]
    return len(one) == len(other) and all(
        first == second or (first[2] == second[2] and is_near(first[0], second[0]))
        for first, second in pairs
    )


def same_tool_calls(turn: Read) -> int:
    """R21: return the number of latest messages that repeat at most three different ones."""
    rounds = made(turn)
    counted = [one for one in rounds if not (one.failed or one.waits)]
    kinds: list[int] = []
    for place, one in enumerate([*counted, *(last for last in rounds[-1:] if last.waits)]):
        same = (
            kinds[before]
            for before in range(place - 1, -1, -1)
            if repeats(counted[before].calls, one.calls)
            and (one.is_open or repeats(counted[before].results, one.results))
        )
        kinds.append(next(same, place))
    news = max((place for place, kind in enumerate(kinds) if kind == place), default=0)
    return max(
        (size for size in range(len(kinds) - news + 1) if len({*kinds[len(kinds) - size :]}) <= 3),
        default=0,
    )


def errors(turn: Read, kind: Failure) -> int:
    """Y19: return how often calls failed in a row, or how often the newest errors came, if more."""
    rounds = [one.answers for one in made(turn) if one.answers]
    row = 0
    for answers in rounds:
        failures = [failure for _, failure in answers]
        row = 0 if None in failures else row + (kind in failures)
    newest = [one for one in (rounds or [[]])[-1] if one[1] is kind]
    return max([row, *(sum(one in answers for answers in rounds) for one in newest)])
