"""The messages that one speaker said or heard, and how many tokens each takes in its prompt.

`graphs.rules.context.shortening` decides which of them are left out.
"""

from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ...log.call_text import handing_over
from ...log.messages import metadata, place_of
from ...log.metadata import (
    HookVersion,
    Instruction,
    JudgeQuestion,
    MessageMetadata,
    RememberedMessage,
    SpeakerReply,
    Summary,
)
from ...log.names import as_heard_alone
from ...log.remembered import is_in_view, is_told
from ...log.stage import Stage
from ...log.viewpoint import SILENCE
from ...spec.conversation import Conversation
from ...text.tokens import tokens_of_message


class Part(NamedTuple):
    """A message that one speaker said or heard."""

    place: int  # its place in the log, from 0
    message: BaseMessage  # the message
    about: MessageMetadata  # what stands beside it
    is_own: bool  # whether it is the speaker's own, and not something heard
    tokens: int  # what it takes in the speaker's prompt
    is_talk: bool  # whether it is something that the speaker or another said
    is_pinned: bool  # whether it is known from before the rounds, or is the speaker's task
    begins_turn: bool  # whether it is heard right after a turn of the speaker's in the rounds
    replaces: list[int]  # the places of the messages that it stands for
    sums_up_to: int | None  # where the messages begin that it does not sum up. None: no summary.

    def with_more(self, tokens: int) -> "Part":
        """The same, where it takes more tokens."""
        return self._replace(tokens=self.tokens + tokens)


def is_summary(about: MessageMetadata, name: str) -> bool:
    """Whether a line is a summary of what this speaker said and heard."""
    return isinstance(about, Summary) and about.speaker == name


class Parts:
    """Reads what one speaker said or heard, and its summaries."""

    def __init__(self, conversation: Conversation, name: str) -> None:
        self._conversation = conversation
        self._name = name
        self._task = conversation.speaker(name).task
        # The places where the rounds begin, and of what has the first speaker begin them.
        self._begin: int | None = None
        self._first_line: int | None = None
        self._opening: list[BaseMessage] = []
        self._reset()

    def _reset(self) -> None:
        self.found: list[Part] = []
        self._read = 0
        self._places: dict[str, int] = {}
        self._pinned: set[str] = set()
        self._own: MessageMetadata | None = None  # the line before, where it is the speaker's own
        self._has_spoken = False

    def add(self, message: BaseMessage) -> None:
        """Take the next message of the log."""
        if self._begin is None and _begins_rounds(metadata(message)):
            self._begin = len(self._opening)
            cues = (place for place, one in enumerate(self._opening) if metadata(one).is_cue)
            # It is out of date once the rounds have begun.
            self._first_line = max(cues, default=None)
            opening, self._opening = self._opening, []
            self._reset()
            for one in opening:
                self._take(one, metadata(one))
        if self._begin is None:
            self._opening.append(message)
        self._take(message, metadata(message))

    def _take(self, message: BaseMessage, about: MessageMetadata) -> None:
        name, place = self._name, self._read
        self._read += 1
        have_begun = self._begin is not None and place >= self._begin
        # A memory contains other conversations, rounds and all.
        is_remembered = isinstance(about, RememberedMessage)
        stays = isinstance(about, RememberedMessage) and about.stays
        in_rounds = have_begun or (is_remembered and not stays)
        # Of the whole log: a summary may name a message that was removed since.
        self._places[place_of(message)] = place
        sums_up, is_own = is_summary(about, name), about.speaker == name
        if not (sums_up or is_in_view(message, about, name)):
            return
        replaced = about.instead_of if isinstance(about, HookVersion) else ()
        is_pinned = not sums_up and (
            (not in_rounds and place != self._first_line)
            or not self._pinned.isdisjoint(replaced)
            or stays
            or self._tells_task(message, about)
        )
        if is_pinned:
            self._pinned.add(place_of(message))
        label = "" if is_own else _label(self._conversation, name, about)
        silence = "" if message.text.strip() else SILENCE
        tokens = tokens_of_message(message, label + silence)
        if is_own and isinstance(about, SpeakerReply) and about.handed_to:
            tokens += _tokens_handing_over(self._conversation, message, about)
        part = Part(
            place,
            message,
            about,
            is_own,
            tokens=tokens,
            is_talk=_is_talk(message, about),
            is_pinned=is_pinned,
            begins_turn=not is_own
            and self._has_spoken
            and not isinstance(about, JudgeQuestion)
            and self._own is not None
            and self._own.can_end_turn,
            replaces=[self._places[one] for one in replaced if one in self._places],
            sums_up_to=self._summed_up(about, place) if sums_up else None,
        )
        self.found.append(part)
        if not sums_up:
            self._own = about if is_own else None
            self._has_spoken |= is_own and in_rounds and about.is_talk and about.can_end_turn

    def _tells_task(self, message: BaseMessage, about: MessageMetadata) -> bool:
        """Whether the speaker is told its task once more, as after a fork."""
        alone = isinstance(about, Instruction) and about.audience == (self._name,)
        return alone and self._task is not None and self._task in message.text

    def _summed_up(self, about: MessageMetadata, place: int) -> int:
        # What it names may be gone: the log that is given may begin later.
        since = about.since if isinstance(about, Summary) else None
        return place if since is None else self._places.get(since, 0)


def _tokens_handing_over(
    conversation: Conversation, message: BaseMessage, about: SpeakerReply
) -> int:
    """What the calls take that are shown with a line of the speaker's own."""
    made = handing_over(conversation, about, message)
    results = sum(tokens_of_message(result) for _, result in made)
    return results + tokens_of_message(AIMessage("", tool_calls=[call for call, _ in made]))


def _label(conversation: Conversation, name: str, about: MessageMetadata) -> str:
    """What stands in front of what a speaker hears."""
    speaker, other = conversation.speaker(name), about.speaker
    if other is None and is_told(about):
        return conversation.mark_instruction(speaker, "")
    labelled = other is not None and conversation.hears_labels(speaker)
    label = speaker.prefixes.get(other or "", "") + (f"{other}: " if labelled else "")
    return label if about.audience is None else as_heard_alone(conversation, about, name, label)


def _is_talk(message: BaseMessage, about: MessageMetadata) -> bool:
    # What the conversation itself told a speaker is remembered, too.
    is_told = isinstance(about, RememberedMessage) and about.speaker is None
    has_text = not about.has_calls or bool(message.text.strip())
    is_talk = about.is_talk and not isinstance(message, ToolMessage)
    return is_talk and has_text and not is_told


def _begins_rounds(about: MessageMetadata) -> bool:
    """Whether a line of a speaker's in the rounds begins them, where it is the first."""
    if not isinstance(about, SpeakerReply):
        # Results of tools and code have no stage: that of their call counts.
        return False
    return about.speaker is not None and about.stage not in (Stage.PRIVATE, Stage.OPENING)
