"""When a person is asked, and what an answer means (AutoGen's user proxy)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..common.errors import SpecError
from ..common.validation import suggest_near_or_all
from ..conversation.conversation import Conversation
from ..conversation.defaults import Default
from ..conversation.questions import Asking, Because, Empty, is_exit
from ..log.metadata import ALOUD
from ..speakers.replies import HumanInputMode
from .position import Leaving, Phase, Position
from .turns import NextTurn, begins, runs_newest


def asking(conversation: Conversation, position: Position, turn: NextTurn) -> Asking | None:
    """Give what a person is asked as a turn begins, if anything."""
    speaker = conversation.speaker(turn.speaker)
    human = speaker.human
    aloud = turn.stage in ALOUD
    if human is None or (aloud and begins(conversation, position, turn.speaker)):
        return None
    ends = aloud and is_terminated(conversation, position, turn.speaker)
    if human.human_input_mode is HumanInputMode.ALWAYS:
        if ends:
            return Asking(turn.speaker, Because.TERMINATION, "stop")
        left_to: Empty = None if speaker.replies[-1] is human else "auto_reply"
        return Asking(turn.speaker, Because.TURN, left_to)
    if human.human_input_mode is HumanInputMode.TERMINATE and aloud:
        if ends:
            return Asking(turn.speaker, Because.TERMINATION, "stop")
        if is_capped(conversation, position, turn.speaker):
            # Where no automatic reply may be given there is nothing to say (AutoGen sends a blank).
            empty: Empty = "auto_reply" if human.max_consecutive_auto_reply else "stop"
            return Asking(turn.speaker, Because.MAX_CONSECUTIVE_AUTO_REPLY, empty)
    return None


def asking_of_calls(conversation: Conversation, position: Position, caller: str) -> Asking | None:
    """Give what a person is asked before the calls of another speaker are run, if anything."""
    name = watcher(conversation, caller)
    human = conversation.speaker(name).human if name is not None else None
    if name is None or human is None or position.phase is not Phase.CALLED:
        return None
    if human.human_input_mode is HumanInputMode.ALWAYS:
        return Asking(name, Because.CALLS, "run")
    if human.human_input_mode is HumanInputMode.TERMINATE and _has_capped(
        conversation, position, name
    ):
        empty: Empty = "run" if human.max_consecutive_auto_reply else "stop"
        return Asking(name, Because.MAX_CONSECUTIVE_AUTO_REPLY, empty)
    return None


def meaning(asked: Asking, answer: str) -> Leaving | str | None:
    """Give what an answer means: a message, that the person ends it, or None for no message."""
    if is_exit(answer):
        return Leaving(by=asked.speaker, reason="quit")
    if answer.strip():
        return answer
    if asked.empty != "stop":
        return None
    ends = asked.because is Because.TERMINATION
    reason: Literal["termination", "max_consecutive_auto_reply"] = (
        "termination" if ends else "max_consecutive_auto_reply"
    )
    return Leaving(by=asked.speaker, reason=reason)


def never_asked(conversation: Conversation, name: str) -> bool:
    """Whether a speaker's person is never asked, and always replaced by automatic replies."""
    human = conversation.speaker(name).human
    return human is not None and human.human_input_mode is HumanInputMode.NEVER


def is_terminated(conversation: Conversation, position: Position, name: str) -> bool:
    """Whether the newest message is a termination message to a speaker.

    A message with code that the speaker runs is none: the code comes first.
    """
    human, facts = conversation.speaker(name).human, position.facts
    if human is None or facts.said_by in (None, name) or runs_newest(conversation, position, name):
        return False
    if human.is_termination is not None:
        return human.is_termination in facts.predicates
    return name in facts.terminated


def is_capped(conversation: Conversation, position: Position, name: str) -> bool:
    """Whether a speaker would answer a message, and its automatic replies are used up."""
    given = position.facts.auto_replies.get(name, 0)
    # Who has just spoken may be chosen to speak again.
    received = position.facts.said_by not in (None, name)
    return (received or given > 0) and _has_capped(conversation, position, name)


def _has_capped(conversation: Conversation, position: Position, name: str) -> bool:
    human = conversation.speaker(name).human
    given = position.facts.auto_replies.get(name, 0)
    return human is not None and given >= human.max_consecutive_auto_reply


def has_capped_calls(conversation: Conversation, position: Position) -> bool:
    """Whether calls wait, and running them would be one automatic reply too many."""
    if position.phase is not Phase.CALLED or position.speaker is None:
        return False
    name = watcher(conversation, position.speaker)
    return (
        name is not None
        and never_asked(conversation, name)
        and _has_capped(conversation, position, name)
    )


def watcher(conversation: Conversation, caller: str) -> str | None:
    """Give the speaker with ``sees_calls``, whose person is shown the calls of another one."""
    for speaker in conversation.speakers:
        if speaker.name != caller and speaker.human is not None and speaker.human.sees_calls:
            return speaker.name
    return None


def person_of(conversation: Conversation, caller: str) -> str | None:
    """Give the speaker whose person decides on calls: another one than the caller, if possible."""
    people = conversation.people
    return next((name for name in people if name != caller), people[0] if people else None)


def with_people(
    speakers: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[Mapping[str, Any], ...]:
    """Have people speak for some of the speakers of a short form."""
    known = [str(speaker["name"]) for speaker in speakers]
    for name in names:
        if name not in known:
            raise SpecError(f"people: nobody is called {name!r}{suggest_near_or_all(name, known)}")
    return tuple(
        {**speaker, "replies": Default(("human",), "people")}
        if speaker["name"] in names
        else speaker
        for speaker in speakers
    )
