"""The history of one speaker: the part of a long log that its prompt contains.

The log itself is never shortened. Messages that the speaker has forgotten are left out first.
Messages that it knows from before the rounds are never left out. If the rest exceeds a limit, its
oldest messages are left out until about half of the limit is free. The cut is the index of the
first message that is kept. The log is read from its beginning to compute the cut, so a longer log
leads to the same cut. Therefore each prompt is the beginning of the next one until the cut moves.
A prompt that is still larger than the limit contains shortened messages.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from ..common.content import describe_content, replace_text, tokens_of_files
from ..conversation.conversation import Conversation
from ..conversation.limits import tokens_of_summary
from ..log.heard_text import as_heard_alone, show_handoffs
from ..log.memory import is_in_view, is_told, recall
from ..log.messages import KEY, Fold, metadata, place_of, stored_form
from ..log.metadata import (
    HookVersion,
    Instruction,
    JudgeQuestion,
    MemoryReset,
    MessageMetadata,
    RememberedMessage,
    SpeakerReply,
    Stage,
    Summary,
)
from ..log.viewpoint import SILENCE
from ..prompts import prompts
from ..prompts.prompts import LEFT_OUT, RenderPrompt
from ..speakers.call_settings import KeepAll, LastMessages, RunningSummary, TokenBudget
from ..text.words import BYTES_PER_TOKEN, MESSAGE_TOKENS, tokens_of, tokens_of_message

_LEAST: Final = 48
"""The number of tokens to which a message is shortened at most."""


def shorten_messages(
    messages: Sequence[BaseMessage], limit: int, render_prompt: RenderPrompt
) -> list[BaseMessage]:
    """Return a prompt whose texts are shortened, so that it has at most `limit` tokens if possible.

    1. A message is too long if it exceeds half of the limit, without the system message.
    2. Results of tools that are too long are shortened, the oldest first, then other messages and
       the arguments of calls. This stops when the prompt fits.
    3. If it still does not fit, half of that length is too long, and step 2 is repeated.

    A shortened text depends only on its own text and on the length, so most shortened messages stay
    equal when the prompt grows. Files of a message that is too long are described. Calls and their
    results stay pairs, and other fields do not change.
    """
    found, sizes = [*messages], [*map(tokens_of_message, messages)]
    places = [at for at, one in enumerate(messages) if not isinstance(one, SystemMessage)]
    # Sorting is stable: results come first, each kind in its order.
    places.sort(key=lambda at: not isinstance(messages[at], ToolMessage))
    left = sum(sizes)
    fixed = left - sum(sizes[at] for at in places)
    most = max((limit - fixed) // 2, _LEAST)

    def mark(count: int) -> str:
        return render_prompt(LEFT_OUT, count=count)

    while True:
        for at in places:
            if left <= limit:
                return found
            if sizes[at] > most:
                found[at] = _shorten_message(messages[at], most, mark)
                left -= sizes[at]
                sizes[at] = tokens_of_message(found[at])
                left += sizes[at]
        if most == _LEAST:
            return found
        most = max(most // 2, _LEAST)


def _shorten_message(message: BaseMessage, most: int, mark: Callable[[int], str]) -> BaseMessage:
    """Return a message whose parts are shortened to about this number of tokens together."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    each = most // (len(calls) + bool(message.text or not calls)) - MESSAGE_TOKENS
    content: Any = message.content
    if not isinstance(content, str) and tokens_of_files(content) > each:
        content = describe_content(content)
    text = content if isinstance(content, str) else message.text
    update: dict[str, Any] = {"content": replace_text(content, _shorten_text(text, each, mark))}
    if calls:
        update["tool_calls"] = [_shorten_call(call, each, mark) for call in calls]
    return message.model_copy(update=update)


def _shorten_call(call: ToolCall, most: int, mark: Callable[[int], str]) -> ToolCall:
    """Return a call whose long arguments are shortened. Those that are no text become text."""
    args: dict[str, Any] = {**call["args"]}
    each = most // max(len(args), 1)
    for name, value in call["args"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if tokens_of(text) > each:
            args[name] = _shorten_text(text, each, mark)
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call")


def _shorten_text(text: str, tokens: int, mark: Callable[[int], str]) -> str:
    """Return the beginning and the end of a text that has more than this number of tokens.

    Args:
        text: The text.
        tokens: Maximum number of estimated tokens, the mark included.
        mark: Returns the text between both parts, from the number of characters left out.
    """
    written = text.encode("utf-8", "replace")
    if len(written) <= tokens * BYTES_PER_TOKEN:
        return text
    left = tokens * BYTES_PER_TOKEN - len(mark(len(text)).encode()) - 2
    last = max(left, 0) // 3
    head = written[: max(left, 0) - last].decode("utf-8", "ignore")
    tail = written[len(written) - last :].decode("utf-8", "ignore")
    found = "\n".join(filter(None, (head, mark(len(text) - len(head) - len(tail)), tail)))
    return found if len(found) < len(text) else text


class Part(NamedTuple):
    """A message that one speaker said or heard."""

    place: int  # its index in the log
    message: BaseMessage  # the message
    about: MessageMetadata  # its metadata
    is_own: bool  # whether the speaker itself said it
    tokens: int  # its tokens in the speaker's prompt
    is_talk: bool  # whether a speaker said it, and not the conversation itself
    is_pinned: bool  # whether it is known from before the rounds, or is the speaker's task
    begins_turn: bool  # whether it is heard right after one of the speaker's turns in the rounds
    replaces: list[int]  # the indices of the messages that it replaces
    sums_up_to: int | None  # the index after the messages that it sums up. None: no summary.


def is_summary(about: MessageMetadata, name: str) -> bool:
    """Return whether a message is a summary of this speaker's history."""
    return isinstance(about, Summary) and about.speaker == name


class Parts:
    """A reader of the messages that one speaker said or heard, and of that speaker's summaries."""

    def __init__(self, conversation: Conversation, name: str) -> None:
        self._conversation = conversation
        self._name = name
        self._task = conversation.speaker(name).task
        # The index at which the rounds begin, and the index of the instruction to begin them.
        self._begin: int | None = None
        self._first_line: int | None = None
        self._opening: list[BaseMessage] = []
        self._reset()

    def _reset(self) -> None:
        self.found: list[Part] = []
        self._read = 0
        self._places: dict[str, int] = {}
        self._pinned: set[str] = set()
        # The metadata of the previous message, if the speaker itself said it.
        self._own: MessageMetadata | None = None
        self._has_spoken = False

    def add(self, message: BaseMessage) -> None:
        """Read the next message of the log."""
        if self._begin is None and _begins_rounds(metadata(message)):
            self._begin = len(self._opening)
            cues = (place for place, one in enumerate(self._opening) if metadata(one).is_cue)
            # The instruction to begin is out of date once the rounds have begun.
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
        # A memory contains other conversations, including their rounds.
        is_remembered = isinstance(about, RememberedMessage)
        stays = isinstance(about, RememberedMessage) and about.stays
        in_rounds = have_begun or (is_remembered and not stays)
        # Places of the whole log: a summary may name a message that was removed later.
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
        if is_own and isinstance(about, SpeakerReply):
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
            sums_up_to=self._find_summary_end(about, place) if sums_up else None,
        )
        self.found.append(part)
        if not sums_up:
            self._own = about if is_own else None
            self._has_spoken |= is_own and in_rounds and about.is_talk and about.can_end_turn

    def _tells_task(self, message: BaseMessage, about: MessageMetadata) -> bool:
        """Return whether a message repeats the speaker's task, as the message after a fork does."""
        alone = isinstance(about, Instruction) and about.audience == (self._name,)
        return alone and self._task is not None and self._task in message.text

    def _find_summary_end(self, about: MessageMetadata, place: int) -> int:
        # The named message may be missing: the given log may begin after it.
        since = about.since if isinstance(about, Summary) else None
        return place if since is None else self._places.get(since, 0)


def _tokens_handing_over(
    conversation: Conversation, message: BaseMessage, about: SpeakerReply
) -> int:
    """Return the tokens that the view adds to a speaker's own message that hands over."""
    made = show_handoffs(conversation, about, message)
    if not made:
        return 0
    results = sum(tokens_of_message(result) for _, result in made)
    calls = tokens_of_message(AIMessage("", tool_calls=[call for call, _ in made]))
    return results + calls - tokens_of(message.text)


def _label(conversation: Conversation, name: str, about: MessageMetadata) -> str:
    """Return the text that precedes a message in the speaker's view."""
    speaker, other = conversation.speaker(name), about.speaker
    if other is None and is_told(about):
        return conversation.mark_instruction(speaker, "")
    labelled = other is not None and conversation.hears_labels(speaker)
    label = speaker.prefixes.get(other or "", "") + (f"{other}: " if labelled else "")
    return label if about.audience is None else as_heard_alone(conversation, about, name, label)


def _is_talk(message: BaseMessage, about: MessageMetadata) -> bool:
    # Instructions of the conversation are remembered, too, but do not count as talk.
    is_told = isinstance(about, RememberedMessage) and about.speaker is None
    has_text = not about.has_calls or bool(message.text.strip())
    is_talk = about.is_talk and not isinstance(message, ToolMessage)
    return is_talk and has_text and not is_told


def _begins_rounds(about: MessageMetadata) -> bool:
    """Return whether a speaker's message belongs to the rounds or the last words."""
    if not isinstance(about, SpeakerReply):
        # Results of tools and code have no stage; the call's stage counts.
        return False
    return about.speaker is not None and about.stage not in (Stage.PRIVATE, Stage.OPENING)


class PromptOverhead(NamedTuple):
    """The tokens of the parts of a prompt that are not in the log."""

    front: int  # the tokens of the system prompt, the examples, and `outside`
    each: int = 0  # the tokens of the text after each message that the speaker has heard
    behind: int = 0  # the tokens of the text after the log, which only this prompt contains
    outside: int = 0  # the tokens of the tools and thoughts, which no message of the view contains


class Shortened(NamedTuple):
    """The part of a log that a speaker's prompt contains."""

    lines: Sequence[BaseMessage]  # messages for `graphs.log.viewpoint`, oldest first
    since: str | None  # the place of the first message after the cut. None: nothing is left out.


class History:
    """The messages of a log that one speaker remembers and its context policy keeps.

    The messages since the speaker's last turn are always kept. So are the pinned messages: those
    from before the rounds, and the speaker's task. A cut made by a summary applies with every
    policy.
    """

    def __init__(self, conversation: Conversation, name: str) -> None:
        self._conversation = conversation
        self._name = name
        self._keeps_all = isinstance(conversation.speaker(name).context, KeepAll)
        self._memory = Fold[_Memory, BaseMessage](partial(_Memory, name), _Memory.add)
        self._parts = Fold[Parts, BaseMessage](partial(Parts, conversation, name), Parts.add)
        self._beside = (0, 0)
        self._walk = self._begin_walk(*self._beside)

    def recall(self, log: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        """Return a log without the messages that the speaker has forgotten."""
        return recall(log, self._name) if self._memory.read(log).forgets else log

    def shorten(self, log: Sequence[BaseMessage], around: PromptOverhead) -> Shortened:
        """Return the part of a log for the speaker's prompt."""
        sums_up = self._memory.read(log).sums_up
        if self._keeps_all and not sums_up:
            return Shortened(self.recall(log), None)
        log, walk = self._walk_log(log, around)
        pinned = [log[place] for place in walk.pinned if place < walk.cut]
        told = [] if walk.told is None else [walk.told]
        since = place_of(log[walk.cut]) if 0 < walk.cut < len(log) else None
        return Shortened([*pinned, *told, *log[walk.cut :]], since)

    def to_summarise(
        self, log: Sequence[BaseMessage], around: PromptOverhead
    ) -> tuple[list[BaseMessage], str] | None:
        """Return the messages to sum up before the speaker's next prompt, or None.

        The second value is the place of the first message that the summary does not cover.
        """
        if not isinstance(self._conversation.speaker(self._name).context, RunningSummary):
            return None
        log, walk = self._walk_log(log, around._replace(behind=0))
        if walk.cut <= walk.for_good:
            return None
        left_out = range(walk.for_good, walk.cut)
        return [log[place] for place in left_out if place in walk.tokens], place_of(log[walk.cut])

    def halve(self, log: Sequence[BaseMessage], around: PromptOverhead) -> str | None:
        """Return the place of a new, permanent cut after a model has refused a prompt as too long.

        None if nothing more can be left out.
        """
        log, known = self._walk_log(log, around)
        walk = known.copy()
        before, most = walk.cut, walk.kept // 2
        while walk.kept > most and walk.cut_at_next_turn():
            pass
        return None if walk.cut == before else place_of(log[walk.cut])

    def cut_to_newest(
        self, log: Sequence[BaseMessage], around: PromptOverhead, limit: int
    ) -> str | None:
        """Return the place of a new cut if the newest turn alone does not fit into a limit.

        The cut leaves half of the limit to the newest turn. None if that turn fits.
        """
        log, known = self._walk_log(log, around)
        walk = known.copy()
        newest = walk.newest_turn()
        if around.front + around.behind + newest <= limit:
            return None
        while walk.kept - newest > limit // 2 and walk.cut_at_next_turn():
            pass
        return place_of(log[walk.cut]) if walk.cut < len(log) else None

    def find_first_kept(self, log: Sequence[BaseMessage], around: PromptOverhead) -> str | None:
        """Return the place of the first message that is kept, or None for an empty log."""
        log, walk = self._walk_log(log, around)
        return place_of(log[walk.cut]) if walk.cut < len(log) else None

    def last_summary(self, log: Sequence[BaseMessage]) -> BaseMessage | None:
        """Return the newest summary of the speaker's history, or None."""
        known = reversed(self.recall(log))
        return next(
            (message for message in known if is_summary(metadata(message), self._name)), None
        )

    def _walk_log(
        self, log: Sequence[BaseMessage], around: PromptOverhead
    ) -> tuple[Sequence[BaseMessage], "_Walk"]:
        """Return the log without forgotten messages, and the cut in it."""
        log = self.recall(log)
        if self._beside != (around.front, around.each):
            self._beside = (around.front, around.each)
            self._walk = self._begin_walk(*self._beside)
        walk = self._walk.read(self._parts.read(log).found)
        if around.behind:
            walk = walk.copy()
            walk.make_room(around.behind)
        return log, walk

    def _begin_walk(self, front: int, each: int) -> "Fold[_Walk, Part]":
        begin = partial(_Walk, self._conversation, self._name, front, each)
        return Fold(begin, _Walk.add)


class _Memory:
    """The changes of one speaker's memory in a log: whether it was reset or summed up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forgets = False
        self.sums_up = False

    def add(self, message: BaseMessage) -> None:
        about = metadata(message)
        if about.speaker == self._name:
            self.forgets |= isinstance(about, MemoryReset)
            self.sums_up |= isinstance(about, Summary)


class _Walk:
    """The cut after a log has been read, and the messages that are kept."""

    def __init__(self, conversation: Conversation, name: str, front: int, each: int) -> None:
        self.cut = 0
        """The index of the first message that is kept, apart from pinned ones."""
        self.for_good = 0
        """The index after the messages that the newest summary covers."""
        self.told: BaseMessage | None = None
        """The message with the summary of the omitted part. None if there is none."""
        self.pinned: dict[int, int] = {}
        """The tokens of the pinned messages, by index."""
        self.tokens: dict[int, int] = {}
        """The tokens of the speaker's other messages, said or heard, by index."""
        self.kept = 0
        """The tokens after the cut, without pinned messages."""
        self._talk: set[int] = set()
        self._kept_talk = 0
        self._standing = front
        self._each = each
        self._summary_tokens = 0
        # The indices of turn beginnings to which the cut can still move.
        self._turns: deque[int] = deque()
        self._context = conversation.speaker(name).context
        self._render_prompt = conversation.render_prompt

    def copy(self) -> "_Walk":
        """Return an independent copy of this walk."""
        other = copy(self)
        # The collections are copied; the summary message must stay the same object.
        other.pinned, other.tokens = copy(self.pinned), copy(self.tokens)
        other._talk, other._turns = copy(self._talk), copy(self._turns)
        return other

    def add(self, part: Part) -> None:
        """Read the next message that the speaker said or heard."""
        if part.sums_up_to is not None:
            self._sum_up(part, part.sums_up_to)
        else:
            for replaced in part.replaces:
                self._take_out(replaced)
            self._add(part if part.is_own else part._replace(tokens=part.tokens + self._each))
        self._cut_down()

    def make_room(self, tokens: int) -> None:
        """Count the text after the log in one prompt, and move the cut if the limit is exceeded."""
        self._standing += tokens
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

    def _take_out(self, place: int) -> None:
        """Subtract the tokens of a message that another one has replaced."""
        if place in self.pinned:
            self._standing -= self.pinned[place]
            self.pinned[place] = 0
        elif place >= self.cut:
            self.kept -= self.tokens.pop(place, 0)
            self._kept_talk -= place in self._talk
            self._talk.discard(place)

    def _sum_up(self, part: Part, place: int) -> None:
        """Cut permanently at the place that a summary names."""
        about = part.about
        if not (isinstance(about, Summary) and about.problem):
            self.for_good = place
        # Messages that made a prompt too long are left out from then on, but must still be summed
        # up.
        if place > self.cut:
            self._cut_at(place)
        self.told, self._summary_tokens = None, 0
        if text := part.message.text.strip():
            heard = Instruction(audience=(str(about.speaker),))
            self.told = HumanMessage(
                self._render_prompt(prompts.SUMMARY_HEADING, summary=text),
                id=part.message.id,
                additional_kwargs={KEY: stored_form(heard)},
            )
            self._summary_tokens = tokens_of_message(self.told)

    def _cut_down(self) -> None:
        """Move the cut if the limit is exceeded.

        It moves until about half of the limit is free, or only the newest turn is left.
        """
        # Once there is a cut, the tokens of a summary are reserved even before it is written.
        if self._is_within(1, reserves=self.cut > 0):
            return
        while not self._is_within(2, reserves=True) and self.cut_at_next_turn():
            pass

    def _is_within(self, share: int, *, reserves: bool) -> bool:
        """Return whether the kept part is at most one of `share` equal parts of the limit.

        The tokens that every prompt contains can't be divided.
        """
        match self._context:
            case LastMessages(limit=limit):
                return self._kept_talk <= limit // share
            case TokenBudget(limit=limit) | RunningSummary(limit=limit):
                summary = self._summary_tokens
                if reserves and isinstance(self._context, RunningSummary):
                    # Room for the longest possible summary.
                    summary = max(summary, tokens_of_summary(self._context.words))
                return self.kept <= (limit - self._standing - summary) // share
            case _:
                return True

    def newest_turn(self) -> int:
        """Return the tokens since the speaker's last turn, and of the messages never left out."""
        since = self._turns[-1] if self._turns else self.cut
        newest = (tokens for place, tokens in self.tokens.items() if place >= since)
        return sum(newest) + sum(self.pinned.values())

    def cut_at_next_turn(self) -> bool:
        """Move the cut to the speaker's next turn. Return False if there is none."""
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
