"""The messages that one speaker said or heard, and how many tokens each takes in its prompt.

`graphs.rules.shortening` decides which of them are left out.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from ..log.kinds import Kind
from ..log.messages import About, place_of
from ..log.remembered import is_in_view
from ..log.stage import Stage
from ..log.viewpoint import SILENCE
from ..speakers.speaker import Speaker
from ..spec.conversation import Conversation
from ..text.tokens import tokens_of_message
from .ends.talk import Read, read_log


class Part(NamedTuple):
    """A message that one speaker said or heard."""

    place: int  # its place in the log, from 0
    message: BaseMessage  # the message
    about: About  # what stands beside it
    is_own: bool  # whether it is the speaker's own, and not something heard
    tokens: int  # what it takes in the speaker's prompt
    is_talk: bool  # whether it is something that the speaker or another said
    is_pinned: bool  # whether it is known from before the rounds, or is the speaker's task
    begins_turn: bool  # whether it is heard right after a turn of the speaker's in the rounds

    def with_more(self, tokens: int) -> "Part":
        """The same, where it takes more tokens."""
        return self._replace(tokens=self.tokens + tokens)


def is_summary(about: About, name: str) -> bool:
    """Whether a line is a summary of what this speaker said and heard."""
    return about.kind is Kind.SUMMARY and about.speaker == name


def parts_of(conversation: Conversation, log: Sequence[BaseMessage], name: str) -> Iterator[Part]:
    """Give what one speaker said or heard, and its summaries."""
    read = read_log(log)
    begin = _begin_of_rounds(read)
    first_line = _first_line(read, begin)
    standing = _standing(conversation.speaker(name))
    pinned: set[str] = set()
    own: About | None = None  # the line before, where it is the speaker's own
    has_spoken = False
    for place, (message, about) in enumerate(read):
        is_own = about.speaker == name
        if not (is_summary(about, name) or is_in_view(message, about, name)):
            continue
        is_pinned = (
            (place < begin and place != first_line)
            or not pinned.isdisjoint(about.instead_of)
            or _tells(standing, message, about, name)
        ) and not is_summary(about, name)
        if is_pinned:
            pinned.add(place_of(message))
        label = "" if is_own else _label(conversation, name, about.speaker)
        silence = "" if message.text.strip() else SILENCE
        yield Part(
            place,
            message,
            about,
            is_own,
            tokens=tokens_of_message(message, label + silence),
            is_talk=_is_talk(message, about),
            is_pinned=is_pinned,
            begins_turn=not is_own
            and has_spoken
            and about.kind is not Kind.QUESTION
            and own is not None
            and own.kind.row.ends_turn,
        )
        if not is_summary(about, name):
            own = about if is_own else None
            row = about.kind.row
            has_spoken |= is_own and place >= begin and row.is_talk and row.ends_turn


def _label(conversation: Conversation, name: str, other: str | None) -> str:
    """What stands in front of what a speaker hears from another."""
    speaker = conversation.speaker(name)
    labelled = other is not None and conversation.hears_labels(speaker)
    return speaker.prefixes.get(other or "", "") + (f"{other}: " if labelled else "")


def _is_talk(message: BaseMessage, about: About) -> bool:
    # What the conversation itself told a speaker is remembered, too.
    is_told = about.kind is Kind.REMEMBERED and about.speaker is None
    has_text = not about.kind.row.has_calls or bool(message.text.strip())
    is_talk = about.kind.row.is_talk and not isinstance(message, ToolMessage)
    return is_talk and has_text and not is_told


def _begin_of_rounds(read: Read) -> int:
    """The place of the first line of a speaker's in the rounds; the log's end before that."""
    for place, (message, about) in enumerate(read):
        # A memory that was loaded holds whole conversations, rounds and all.
        loaded = about.kind is Kind.REMEMBERED
        in_rounds = loaded or about.stage not in (Stage.PRIVATE, Stage.OPENING)
        # What tools and code give names no part: that of their call counts.
        says = about.speaker is not None and not isinstance(message, ToolMessage)
        if says and (loaded or about.kind.row.is_reply) and in_rounds:
            return place
    return len(read)


def _first_line(read: Read, begin: int) -> int | None:
    """The place of what has the first speaker begin, which is out of date once it has begun."""
    if begin == len(read):
        return None
    places = range(begin - 1, -1, -1)
    return next((place for place in places if read[place][1].kind.row.is_cue), None)


def _standing(speaker: Speaker) -> tuple[str, ...]:
    """What a speaker is told for good: its task, and what it alone knows."""
    opening = speaker.private_opening
    known = opening.lines if opening is not None else ()
    return known if speaker.task is None else (speaker.task, *known)


def _tells(standing: tuple[str, ...], message: BaseMessage, about: About, name: str) -> bool:
    """Whether a speaker is told once more what stands for good, as after a fork or a reset."""
    told = about.kind in (Kind.INSTRUCTION, Kind.REMEMBERED) and about.speaker is None
    alone = told and about.audience == (name,)
    return alone and any(text in message.text for text in standing)
