"""The order of turns, including handoffs, the questions before a turn, and the choice of a reply.

A person is asked, and an answer is interpreted, as in AutoGen's user proxy. Pure functions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import BaseMessage

from ..common.content import Content, text_of
from ..common.data import Data
from ..common.errors import SpecError, suggest_near_or_all
from ..conversation.conversation import (
    Conversation,
    find_first_allowed,
    hand_off_targets,
    read_next_speaker,
)
from ..conversation.conversation_options import FilledIn
from ..conversation.judges import Concurrent, RoundRobin
from ..conversation.questions import Asking, Because, Empty, is_exit
from ..ends.end_chat import EndChatMode
from ..log.messages import metadata
from ..log.metadata import Flaw, SpeakerReply, Speech, Stage, ToolCalls, is_by_person
from ..speakers.replies import HumanInputMode
from ..speakers.reply_parts import ALOUD
from ..text.similarity import is_acknowledgement
from .position import BETWEEN_TURNS, MOVES, TURN_ENDS, Leaving, Phase, Position


class NextTurn(NamedTuple):
    """The next turn."""

    speaker: str  # the speaker's name
    stage: Stage  # the part of the conversation that it belongs to


def due(conversation: Conversation, position: Position) -> Phase | None:
    """Return the completion judge's task before the next turn, or None."""
    for phase in _DUE:
        if is_due(conversation, position, phase):
            return phase
    return None


def is_due(conversation: Conversation, position: Position, phase: Phase) -> bool:
    """Return whether the completion judge must do the task that leads to this phase."""
    if isinstance(conversation.turn_order, Concurrent) and is_in_round(conversation, position):
        return False
    return phase in MOVES[position.phase].then and _DUE[phase](conversation, position)


def is_in_round(conversation: Conversation, position: Position) -> bool:
    """Return whether some speakers of a round in which all speak at once have not spoken yet."""
    is_begun = position.stage is Stage.ROUNDS and position.turns > 0
    return is_begun and next_in_order(conversation, position) != conversation.order[0]


def _has_predicates(conversation: Conversation, position: Position) -> bool:
    """Return whether predicates are checked: after each turn that all hear, if there are any."""
    return position.stage in ALOUD and bool(conversation.predicates)


def is_judged(conversation: Conversation, position: Position) -> bool:
    """Return whether the latest turn is judged: its speaker checks completion and is not done.

    A turn at a cap is judged, too, because the verdict changes the reason for the end and the last
    words. A separate judge waits until a second speaker has spoken.
    """
    return (
        position.stage is Stage.ROUNDS
        and not (position.facts.alone and conversation.end_chat.waits_for_another)
        and conversation.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        and position.speaker not in position.completed
        and position.speaker in conversation.stoppers
    )


def _has_choice(conversation: Conversation, position: Position) -> bool:
    """Return whether the next speaker must be chosen: not for the first turn and last words."""
    chosen = not isinstance(conversation.turn_order, RoundRobin | Concurrent)
    return chosen and position.turns > 0 and not position.owed


_DUE: Final[Mapping[Phase, Callable[[Conversation, Position], bool]]] = {
    Phase.CHECKED: _has_predicates,
    Phase.JUDGED: is_judged,
    Phase.CHOSEN: _has_choice,
}
"""The condition for each task of the completion judge, in order. Predicates come first, because
they cost nothing.
"""


def next_turn(conversation: Conversation, position: Position) -> NextTurn:
    """Return the next turn. If its speaker has not been chosen yet, it is the next one in order."""
    if position.owed:
        return NextTurn(position.owed[0], Stage.LAST_WORDS)
    prepared = conversation.secretive
    if position.prepared < len(prepared):
        return NextTurn(prepared[position.prepared], Stage.PRIVATE)
    if conversation.opening.answers and position.opened < len(conversation.names):
        return NextTurn(conversation.names[position.opened], Stage.OPENING)
    name = position.chosen or next_in_order(conversation, position)
    if position.facts.tokens_unanswered and name == position.speaker:
        # Another speaker must answer a done token, whatever the choice was.
        name = next_in_order(conversation, position)
    return NextTurn(name, Stage.ROUNDS)


def next_in_order(conversation: Conversation, position: Position) -> str:
    """Return the next speaker in the order of the rounds, without a choice."""
    order = conversation.order
    # The last speaker of the opening does not count.
    if position.turns == 0 or position.speaker is None:
        return order[0]
    return order[(order.index(position.speaker) + 1) % len(order)]


def last_words(conversation: Conversation, speaker: str) -> tuple[str, ...]:
    """Return the speakers who send a last message after a task is complete, in order."""
    order = conversation.order
    after = order.index(speaker) + 1
    following = order[after:] + order[:after]
    match conversation.end_chat.mode:
        case EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION:
            return following[:1]
        case EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION:
            return following
        case _:
            return ()


def code_waits(conversation: Conversation, position: Position) -> bool:
    """Return whether the next speaker runs code of the newest message (AutoGen)."""
    if position.phase not in TURN_ENDS or position.facts.code_by != position.speaker:
        return False
    following = next_turn(conversation, position).speaker
    # A fixed first message comes before any code.
    is_first = is_first_message_due(conversation, position, following)
    return not is_first and runs_newest(conversation, position, following)


def runs_newest(conversation: Conversation, position: Position, name: str) -> bool:
    """Return whether a speaker runs code of the newest message, which another speaker said."""
    writer = position.facts.code_by
    return writer is not None and writer != name and conversation.speaker(name).runs_code


def is_first_message_due(conversation: Conversation, position: Position, name: str) -> bool:
    """Return whether a speaker has a fixed first message and has not said it yet."""
    given = conversation.speaker(name).first_message is not None
    return given and name not in position.facts.heard_from


def next_speaker(conversation: Conversation, name: str, log: Sequence[BaseMessage]) -> str:
    """Return the speaker after this speaker, whose turn is the newest one.

    If this speaker hands over to an allowed speaker, that speaker is next. Otherwise it is the
    speaker that has handed over to this one, if allowed, or else the next allowed speaker in order.
    """
    turns = _turns(conversation, log)
    now, before = next(turns, None), next(turns, None)
    may = hand_off_targets(conversation, name)
    if now is not None and now.speaker == name:
        if now.named is not None:
            return now.named
        if before is not None and before.named == name and before.speaker in may:
            return before.speaker
    order = conversation.order
    place = order.index(name) + 1
    return next(other for other in (*order[place:], *order[:place]) if other in may)


class _Turn(NamedTuple):
    """A turn in the rounds."""

    speaker: str
    named: str | None  # the speaker that it names as the next one


def _turns(conversation: Conversation, log: Sequence[BaseMessage]) -> Iterator[_Turn]:
    """Yield the turns in the rounds, the newest first."""
    speaker: str | None = None
    named: str | None = None
    for message in reversed(log):
        about = metadata(message)
        if about.ends_turn and about.is_aloud:
            if speaker is not None:
                yield _Turn(speaker, named)
            speaker, named = about.speaker or "", None
        if speaker is None or named is not None or about.speaker != speaker:
            continue
        if isinstance(about, Speech) or (isinstance(about, ToolCalls) and about.is_aloud):
            named = _find_named(conversation, speaker, message, about)
    if speaker is not None:
        yield _Turn(speaker, named)


def _find_named(
    conversation: Conversation, name: str, message: BaseMessage, about: SpeakerReply
) -> str | None:
    """Return the speaker that a message names as the next one, if that speaker may be next."""
    given = (*about.handed_to, *read_next_speaker(conversation, about.parsed))
    allowed = find_first_allowed(conversation, name, given)
    return allowed or _find_addressed(message.text, conversation, name)


def _find_addressed(text: str, conversation: Conversation, name: str) -> str | None:
    """Return the speaker whose ``@Name`` begins a message. The longest matching name counts."""
    if not text.lstrip().startswith("@"):
        return None
    said = text.lstrip()[1:].casefold()
    may = hand_off_targets(conversation, name)
    found = [one for one in may if said.startswith(one.casefold())]
    ended = [one for one in found if not said[len(one.casefold()) :][:1].isalnum()]
    return max(ended, key=len, default=None)


def find_question(conversation: Conversation, position: Position, turn: NextTurn) -> Asking | None:
    """Return the question to a person at the beginning of a turn, or None."""
    speaker = conversation.speaker(turn.speaker)
    human = speaker.human
    aloud = turn.stage in ALOUD
    if human is None or (aloud and is_first_message_due(conversation, position, turn.speaker)):
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
            # Without automatic replies there is nothing to say. AutoGen sends a blank message.
            empty: Empty = "auto_reply" if human.max_consecutive_auto_reply else "stop"
            return Asking(turn.speaker, Because.MAX_CONSECUTIVE_AUTO_REPLY, empty)
    return None


def ends_run(
    conversation: Conversation, position: Position, turn: NextTurn, log: Sequence[BaseMessage]
) -> bool:
    """Return whether a client's run ends before a turn, and the next run brings its message.

    A client that sends a person's messages as inputs shows no interrupts for them. If there are
    several people, an interrupt says whose turn it is.
    """
    if position.phase not in BETWEEN_TURNS or conversation.people != (turn.speaker,):
        return False
    by_person = (about for about in map(metadata, reversed(log)) if is_by_person(about))
    newest = next(by_person, None)
    sends = isinstance(newest, Speech) and newest.from_client
    return sends and find_question(conversation, position, turn) is not None


def find_question_of_calls(
    conversation: Conversation, position: Position, caller: str
) -> Asking | None:
    """Return the question to a person before another speaker's calls run, or None."""
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


def meaning(asked: Asking, answer: Content) -> Leaving | Content | None:
    """Return the message in an answer, or the decision to end the conversation, or None.

    None means that the answer is empty and that the conversation continues without the person's
    message.
    """
    if is_exit(answer):
        return Leaving(by=asked.speaker, reason="quit")
    if text_of(answer).strip():
        return answer
    if asked.empty != "stop":
        return None
    ends = asked.because is Because.TERMINATION
    reason: Literal["termination", "max_consecutive_auto_reply"] = (
        "termination" if ends else "max_consecutive_auto_reply"
    )
    return Leaving(by=asked.speaker, reason=reason)


def is_never_asked(conversation: Conversation, name: str) -> bool:
    """Return whether a speaker's person is never asked, so that automatic replies replace it."""
    human = conversation.speaker(name).human
    return human is not None and human.human_input_mode is HumanInputMode.NEVER


def is_terminated(conversation: Conversation, position: Position, name: str) -> bool:
    """Return whether the newest message is a termination message to a speaker.

    A message with code that the speaker runs is not one, because its code runs first.
    """
    human, facts = conversation.speaker(name).human, position.facts
    if human is None or facts.said_by in (None, name) or runs_newest(conversation, position, name):
        return False
    if human.is_termination is not None:
        return human.is_termination in facts.predicates
    return name in facts.terminated


def is_capped(conversation: Conversation, position: Position, name: str) -> bool:
    """Return whether a speaker would answer a message, but its automatic replies are used up."""
    given = position.facts.auto_replies.get(name, 0)
    # The speaker of the newest message may be chosen to speak again.
    received = position.facts.said_by not in (None, name)
    return (received or given > 0) and _has_capped(conversation, position, name)


def _has_capped(conversation: Conversation, position: Position, name: str) -> bool:
    human = conversation.speaker(name).human
    given = position.facts.auto_replies.get(name, 0)
    return human is not None and given >= human.max_consecutive_auto_reply


def has_capped_calls(conversation: Conversation, position: Position) -> bool:
    """Return whether waiting calls would exceed the cap on automatic replies if they ran."""
    if position.phase is not Phase.CALLED or position.speaker is None:
        return False
    name = watcher(conversation, position.speaker)
    return (
        name is not None
        and is_never_asked(conversation, name)
        and _has_capped(conversation, position, name)
    )


def watcher(conversation: Conversation, caller: str) -> str | None:
    """Return the speaker with ``sees_calls`` that sees this caller's calls, or None."""
    for speaker in conversation.speakers:
        if speaker.name != caller and speaker.human is not None and speaker.human.sees_calls:
            return speaker.name
    return None


def person_of(conversation: Conversation, caller: str) -> str | None:
    """Return the speaker whose person decides on calls: not the caller itself, if possible."""
    people = conversation.people
    return next((name for name in people if name != caller), people[0] if people else None)


def with_people(
    speakers: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[Mapping[str, Any], ...]:
    """Return the speakers of a short form. People write the replies of the named speakers."""
    known = [str(speaker["name"]) for speaker in speakers]
    for name in names:
        if name not in known:
            raise SpecError(
                f"people: no speaker is called {name!r}{suggest_near_or_all(name, known)}"
            )
    return tuple(
        {**speaker, "replies": FilledIn(("human",), "people")}
        if speaker["name"] in names
        else speaker
        for speaker in speakers
    )


class Problem(Data):
    """A problem of a reply."""

    flaw: Flaw
    """The kind of the problem."""
    text: str
    """The problem, as a text for the speaker."""


class Checked(NamedTuple):
    """A reply with its problem, if it has one."""

    text: str
    """The text as it would be said. The format's missing marks are added if possible."""
    problem: Problem | None
    """The reason to request another reply. None if the reply is accepted."""
    own: str = ""
    """The speaker's own words in the reply. Empty if the choice does not depend on them, as with a
    done token."""


class Worth(IntEnum):
    """The worth of a reply. Of a reply and its retry, the one with the higher worth is said."""

    EARLY_END = -1
    """The reply would end the conversation before another speaker has answered."""
    NOTHING = 0
    """The reply has no content, or it speaks another speaker's part."""
    HEARD = 1
    """The speaker or another one has already said the reply."""
    ACKNOWLEDGEMENT = 2
    """The reply only apologizes, or says that a request was understood."""
    CONTENT = 3
    """The reply has content, but not in the requested form."""
    GOOD = 4
    """The reply has no problem."""


_WORTH: Final = {
    Flaw.FORM: Worth.CONTENT,
    Flaw.NOT_NEXT: Worth.CONTENT,
    Flaw.REPEATED: Worth.HEARD,
    Flaw.ECHO: Worth.HEARD,
    Flaw.UNANSWERED: Worth.EARLY_END,
}
"""The worth of a reply by its flaw. A reply with any other flaw is worth nothing."""


def worth_of(reply: Checked) -> Worth:
    """Return the worth of a reply."""
    problem = reply.problem
    worth = Worth.GOOD if problem is None else _WORTH.get(problem.flaw, Worth.NOTHING)
    is_hollow = worth >= Worth.CONTENT and is_acknowledgement(reply.own)
    return Worth.ACKNOWLEDGEMENT if is_hollow else worth


def better(first: Checked, second: Checked) -> Checked:
    """Return the better one of a reply and its retry; the retry if both are equal."""
    return max(second, first, key=worth_of)
