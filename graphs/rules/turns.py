"""The order of turns, including handoffs, the questions before a turn, and the choice of a reply.

A person is asked, and an answer is interpreted, as in AutoGen's user proxy. Pure functions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import AnyMessage, BaseMessage

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
from ..log.metadata import Flaw, Speech, Stage, ToolCalls, is_by_person
from ..speakers.replies import HumanInputMode
from ..speakers.reply_parts import ALOUD
from ..text.similarity import is_acknowledgement
from .position import BETWEEN_TURNS, MOVES, TURN_ENDS, Leaving, Phase, Position


class NextTurn(NamedTuple):
    """The next turn."""

    speaker: str  # the speaker's name
    stage: Stage  # the part of the conversation that it belongs to


@dataclass(frozen=True)
class Dialogue:
    """A conversation at one moment, as the rules read it."""

    conversation: Conversation
    """The spec."""
    position: Position
    """The position."""
    log: Sequence[AnyMessage] = field(default=(), kw_only=True)
    """The whole log."""

    @property
    def rounds(self) -> int:
        """Return the number of complete rounds."""
        return self.position.turns // len(self.conversation.speakers)

    @property
    def may_end(self) -> bool:
        """Return whether the minimum of rounds is complete."""
        return self.rounds >= self.conversation.end_chat.min_iterations

    def due(self) -> Phase | None:
        """Return the completion judge's task before the next turn, or None."""
        for phase in _DUE:
            if self.is_due(phase):
                return phase
        return None

    def is_due(self, phase: Phase) -> bool:
        """Return whether the completion judge must do the task that leads to this phase."""
        follows = phase in MOVES[self.position.phase].then
        return follows and _DUE[phase](self) and not self.is_in_round()

    def is_in_round(self) -> bool:
        """Return whether all speak at once, and some speakers of the round have not spoken yet."""
        if not isinstance(self.conversation.turn_order, Concurrent):
            return False
        is_begun = self.position.stage is Stage.ROUNDS and self.position.turns > 0
        return is_begun and self.next_in_order() != self.conversation.order[0]

    def has_predicates(self) -> bool:
        """Return whether predicates are evaluated: after each turn that all hear, if any exist."""
        return self.position.stage in ALOUD and bool(self.conversation.predicates)

    def is_judged(self) -> bool:
        """Return whether the latest turn is judged: its speaker checks completion and is not done.

        A turn at a cap is judged, too, because the verdict changes the reason for the end and the
        last words. A separate judge waits until a second speaker has spoken.
        """
        position, end_chat = self.position, self.conversation.end_chat
        return (
            position.stage is Stage.ROUNDS
            and not (position.facts.alone and end_chat.waits_for_another)
            and end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
            and position.speaker not in position.completed
            and position.speaker in self.conversation.stoppers
        )

    def has_choice(self) -> bool:
        """Return whether the next speaker must be chosen: not for the first turn and last words."""
        chosen = not isinstance(self.conversation.turn_order, RoundRobin | Concurrent)
        return chosen and self.position.turns > 0 and not self.position.owed

    def next_turn(self) -> NextTurn:
        """Return the next turn. A speaker that has not been chosen yet is the next one in order."""
        conversation, position = self.conversation, self.position
        if position.owed:
            return NextTurn(position.owed[0], Stage.LAST_WORDS)
        prepared = conversation.secretive
        if position.prepared < len(prepared):
            return NextTurn(prepared[position.prepared], Stage.PRIVATE)
        if conversation.opening.answers and position.opened < len(conversation.names):
            return NextTurn(conversation.names[position.opened], Stage.OPENING)
        name = position.chosen or self.next_in_order()
        if position.facts.tokens_unanswered and name == position.speaker:
            # Another speaker must answer a done token, whatever the choice was.
            name = self.next_in_order()
        return NextTurn(name, Stage.ROUNDS)

    def next_in_order(self) -> str:
        """Return the next speaker in the order of the rounds, without a choice."""
        order = self.conversation.order
        # The last speaker of the opening does not count.
        if self.position.turns == 0 or self.position.speaker is None:
            return order[0]
        return order[(order.index(self.position.speaker) + 1) % len(order)]

    def code_waits(self) -> bool:
        """Return whether the next speaker runs code of the newest message (AutoGen)."""
        position = self.position
        if position.phase not in TURN_ENDS or position.facts.code_by != position.speaker:
            return False
        following = self.next_turn().speaker
        # A fixed first message comes before any code.
        is_first = self.is_first_message_due(following)
        return not is_first and self.runs_newest(following)

    def runs_newest(self, name: str) -> bool:
        """Return whether a speaker runs code of the newest message, which another speaker said."""
        writer = self.position.facts.code_by
        return writer is not None and writer != name and self.conversation.speaker(name).runs_code

    def is_first_message_due(self, name: str) -> bool:
        """Return whether a speaker has a fixed first message and has not said it yet."""
        given = self.conversation.speaker(name).first_message is not None
        return given and name not in self.position.facts.heard_from

    def is_terminated(self, name: str) -> bool:
        """Return whether the newest message is a termination message to a speaker.

        A message with code that the speaker runs is not one, because its code runs first.
        """
        human, facts = self.conversation.speaker(name).human, self.position.facts
        if human is None or facts.said_by in (None, name) or self.runs_newest(name):
            return False
        if human.is_termination is not None:
            return human.is_termination in facts.predicates
        return name in facts.terminated

    def is_capped(self, name: str) -> bool:
        """Return whether a speaker would answer, but its automatic replies are used up."""
        given = self.position.facts.auto_replies.get(name, 0)
        # The speaker of the newest message may be chosen to speak again.
        received = self.position.facts.said_by not in (None, name)
        return (received or given > 0) and self._has_capped(name)

    def _has_capped(self, name: str) -> bool:
        human = self.conversation.speaker(name).human
        given = self.position.facts.auto_replies.get(name, 0)
        return human is not None and given >= human.max_consecutive_auto_reply

    def has_capped_calls(self) -> bool:
        """Return whether waiting calls would exceed the cap on automatic replies if they ran."""
        caller = self.position.speaker
        if self.position.phase is not Phase.CALLED or caller is None:
            return False
        name = watcher(self.conversation, caller)
        if name is None or not is_never_asked(self.conversation, name):
            return False
        return self._has_capped(name)

    def find_question(self, name: str, stage: Stage) -> Asking | None:
        """Return the question to the person of a speaker whose turn begins, or None."""
        speaker = self.conversation.speaker(name)
        human = speaker.human
        aloud = stage in ALOUD
        if human is None or (aloud and self.is_first_message_due(name)):
            return None
        ends = aloud and self.is_terminated(name)
        if human.human_input_mode is HumanInputMode.ALWAYS:
            if ends:
                return Asking(name, Because.TERMINATION, "stop")
            left_to: Empty = None if speaker.replies[-1] is human else "auto_reply"
            return Asking(name, Because.TURN, left_to)
        if human.human_input_mode is HumanInputMode.TERMINATE and aloud:
            if ends:
                return Asking(name, Because.TERMINATION, "stop")
            if self.is_capped(name):
                # Without automatic replies there is nothing to say. AutoGen sends a blank message.
                empty: Empty = "auto_reply" if human.max_consecutive_auto_reply else "stop"
                return Asking(name, Because.MAX_CONSECUTIVE_AUTO_REPLY, empty)
        return None

    def find_question_of_calls(self, caller: str) -> Asking | None:
        """Return the question to a person before another speaker's calls run, or None."""
        name = watcher(self.conversation, caller)
        human = self.conversation.speaker(name).human if name is not None else None
        if name is None or human is None or self.position.phase is not Phase.CALLED:
            return None
        if human.human_input_mode is HumanInputMode.ALWAYS:
            return Asking(name, Because.CALLS, "run")
        if human.human_input_mode is HumanInputMode.TERMINATE and self._has_capped(name):
            empty: Empty = "run" if human.max_consecutive_auto_reply else "stop"
            return Asking(name, Because.MAX_CONSECUTIVE_AUTO_REPLY, empty)
        return None

    def ends_run(self, name: str, stage: Stage) -> bool:
        """Return whether a client's run ends before a turn, and the next run brings its message.

        A client that sends a person's messages as inputs shows no interrupts for them. If there are
        several people, an interrupt says whose turn it is.
        """
        if self.position.phase not in BETWEEN_TURNS or self.conversation.people != (name,):
            return False
        by_person = (about for about in map(metadata, reversed(self.log)) if is_by_person(about))
        newest = next(by_person, None)
        sends = isinstance(newest, Speech) and newest.from_client
        return sends and self.find_question(name, stage) is not None


_DUE: Final[Mapping[Phase, Callable[[Dialogue], bool]]] = {
    Phase.CHECKED: Dialogue.has_predicates,
    Phase.JUDGED: Dialogue.is_judged,
    Phase.CHOSEN: Dialogue.has_choice,
}
"""The condition for each task of the completion judge, in order. Predicates come first, because
they cost nothing.
"""


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
            given = (*about.handed_to, *read_next_speaker(conversation, about.parsed))
            allowed = find_first_allowed(conversation, speaker, given)
            named = allowed or _find_addressed(message.text, conversation, speaker)
    if speaker is not None:
        yield _Turn(speaker, named)


def _find_addressed(text: str, conversation: Conversation, name: str) -> str | None:
    """Return the speaker whose ``@Name`` begins a message. The longest matching name counts."""
    if not text.lstrip().startswith("@"):
        return None
    said = text.lstrip()[1:].casefold()
    may = hand_off_targets(conversation, name)
    found = [one for one in may if said.startswith(one.casefold())]
    ended = [one for one in found if not said[len(one.casefold()) :][:1].isalnum()]
    return max(ended, key=len, default=None)


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
