"""Which part of a long log is put into one speaker's prompt; the log itself stays whole.

What a speaker has forgotten is left out first. What it knows from before the rounds is pinned: it
is never left out. When the rest exceeds a limit, so much of its older part is left out that about
half of the limit is free. The cut is found by a walk over the log from its beginning: it is the
same for a longer log, so a prompt stays the beginning of the next one until the cut moves.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage

from ...nodes.prompts import summaries as prompts
from ..log.kinds import Kind
from ..log.messages import KEY, About, line, place_of
from ..log.remembered import remembered
from ..speakers.context import LastMessages, RunningSummary, TokenBudget
from ..spec.context_limits import tokens_of_summary
from ..spec.conversation import Conversation
from ..text.tokens import tokens_of_message
from .prompt_parts import Part, is_summary, parts_of


class Around(NamedTuple):
    """The tokens of what stands in a prompt beside the log."""

    front: int  # those of the system prompt, the examples and the tools
    each: int = 0  # those of what is put after each message that the speaker has heard
    behind: int = 0  # those of what is asked after the log, in this prompt alone


class Shortened(NamedTuple):
    """What of a log is put into a speaker's prompt."""

    lines: list[BaseMessage]  # messages for `graphs.log.viewpoint`, oldest first
    since: str | None  # the place of the first message after the cut. None: nothing is left out.


def shortened(
    conversation: Conversation, log: Sequence[BaseMessage], name: str, around: Around
) -> Shortened:
    """Shorten a log for one speaker's prompt, by its context policy.

    What is pinned, and what was said since the speaker's last turn, always stay. A cut made by a
    summary counts whatever the policy.
    """
    log = remembered(log, name)
    walk = _Walk(conversation, log, name, around)
    walk.make_room(around.behind)
    pinned = [log[place] for place in walk.pinned if place < walk.cut]
    told = [] if walk.summary is None else [walk.summary]
    since = place_of(log[walk.cut]) if 0 < walk.cut < len(log) else None
    return Shortened([*pinned, *told, *log[walk.cut :]], since)


def to_summarise(
    conversation: Conversation, log: Sequence[BaseMessage], name: str, around: Around
) -> tuple[list[BaseMessage], str] | None:
    """Give what is to be summed up before a speaker's next prompt."""
    if not isinstance(conversation.speaker(name).context, RunningSummary):
        return None
    log = remembered(log, name)
    walk = _Walk(conversation, log, name, around)
    if walk.cut <= walk.for_good:
        return None
    left_out = range(walk.for_good, walk.cut)
    return [log[place] for place in left_out if place in walk.tokens], place_of(log[walk.cut])


def halved(
    conversation: Conversation, log: Sequence[BaseMessage], name: str, around: Around
) -> str | None:
    """Say where to cut for good after a model has refused a speaker's prompt as too long."""
    log = remembered(log, name)
    walk = _Walk(conversation, log, name, around)
    walk.make_room(around.behind)
    before, most = walk.cut, walk.kept // 2
    while walk.kept > most and walk.cut_at_next_turn():
        pass
    return None if walk.cut == before else place_of(log[walk.cut])


def last_summary(log: Sequence[BaseMessage], name: str) -> BaseMessage | None:
    """Give the newest summary of what a speaker remembers."""
    known = reversed(remembered(log, name))
    return next((message for message in known if is_summary(line(message), name)), None)


class _Walk:
    """Where the cut is after a walk over a log, and what comes after it."""

    def __init__(
        self, conversation: Conversation, log: Sequence[BaseMessage], name: str, around: Around
    ) -> None:
        self.cut = 0
        """The place of the first message that is kept beside what is pinned."""
        self.for_good = 0
        """Before which place the newest summary stands for what was said."""
        self.summary: BaseMessage | None = None
        """What the speaker is told of what is left out."""
        self.pinned: dict[int, int] = {}
        """The places of what is pinned, with their tokens."""
        self.tokens: dict[int, int] = {}
        """The places of what else the speaker said or heard, with their tokens."""
        self.kept = 0
        """The tokens after the cut that are not pinned."""
        self._talk: set[int] = set()
        self._kept_talk = 0
        self._standing = around.front
        self._summary_tokens = 0
        # Where the speaker's turns begin to which the cut can still move.
        self._turns: deque[int] = deque()
        self._context = conversation.speaker(name).context
        # Of the whole log: a summary may name a message that was removed since.
        places = {place_of(message): place for place, message in enumerate(log)}
        for part in parts_of(conversation, log, name):
            if is_summary(part.about, name):
                self._sum_up(part, places)
            else:
                for replaced in part.about.instead_of:
                    self._take_out(places.get(replaced))
                self._add(part if part.is_own else part.with_more(around.each))
            if self._is_over():
                self._cut_down()

    def make_room(self, tokens: int) -> None:
        """Count what comes after the log in one prompt, and cut where that is too much."""
        self._standing += tokens
        if self._is_over():
            self._cut_down()

    def _add(self, part: Part) -> None:
        if part.begins_turn:
            self._turns.append(part.place)
        if part.is_pinned:
            self.pinned[part.place] = part.tokens
            self._standing += part.tokens
            return
        self.tokens[part.place] = part.tokens
        self.kept += part.tokens
        if part.is_talk:
            self._talk.add(part.place)
            self._kept_talk += 1

    def _take_out(self, place: int | None) -> None:
        """Take out of the sums what another message has taken the place of."""
        if place in self.pinned:
            self._standing -= self.pinned[place]
            self.pinned[place] = 0
        elif place is not None and place >= self.cut:
            self.kept -= self.tokens.pop(place, 0)
            self._kept_talk -= place in self._talk
            self._talk.discard(place)

    def _sum_up(self, part: Part, places: dict[str, int]) -> None:
        """Cut for good where a summary says."""
        since = part.about.since
        # What it names may be gone: the log that is given may begin later.
        place = part.place if since is None else places.get(since, 0)
        if part.about.problem is None:
            self.for_good = place
        # What a model has refused is left out from then on, and still to be summed up.
        if place > self.cut:
            self._cut_at(place)
        self.summary = _told(part.message) if part.message.text.strip() else None
        self._summary_tokens = 0 if self.summary is None else tokens_of_message(self.summary)

    def _is_over(self) -> bool:
        match self._context:
            case LastMessages():
                return self._kept_talk > self._context.limit
            case TokenBudget() | RunningSummary():
                # The room of a summary is kept free from the first cut on, before it is made.
                summary = self._room_for_summary() if self.cut else self._summary_tokens
                return self._standing + summary + self.kept > self._context.limit
            case _:
                return False

    def _cut_down(self) -> None:
        """Move the cut until about half of the limit is free, or only the newest turn is left."""
        while not self._is_small() and self.cut_at_next_turn():
            pass

    def _is_small(self) -> bool:
        match self._context:
            case LastMessages():
                return self._kept_talk <= self._context.limit // 2
            case TokenBudget() | RunningSummary():
                # What always stands there can't be halved.
                free = self._context.limit - self._standing - self._room_for_summary()
                return self.kept <= free // 2
            case _:
                return True

    def _room_for_summary(self) -> int:
        """The tokens of the summary that stands there, or that is still to be made."""
        if isinstance(self._context, RunningSummary):
            return max(self._summary_tokens, tokens_of_summary(self._context.words))
        return self._summary_tokens

    def cut_at_next_turn(self) -> bool:
        """Move the cut to the next turn of the speaker's; whether there is one."""
        while self._turns and self._turns[0] <= self.cut:
            self._turns.popleft()
        if not self._turns:
            return False
        self._cut_at(self._turns.popleft())
        return True

    def _cut_at(self, place: int) -> None:
        for left_out in range(self.cut, place):
            self.kept -= self.tokens.get(left_out, 0)
            self._kept_talk -= left_out in self._talk
        self.cut = place


def _told(summary: BaseMessage) -> BaseMessage:
    """What a speaker is told of a summary, in the place of what it stands for."""
    about = About(kind=Kind.INSTRUCTION, audience=(str(line(summary).speaker),))
    return HumanMessage(
        prompts.filled(prompts.IN_SHORT, summary=summary.text.strip()),
        id=summary.id,
        additional_kwargs={KEY: about.model_dump(mode="json", exclude_defaults=True)},
    )
