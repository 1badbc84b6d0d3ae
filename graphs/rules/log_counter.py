"""The facts that end conditions look at, computed from the log."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..conversation.conversation import Conversation
from ..conversation.usage import Usage, add_usage
from ..ends.end import Facts, FactTally, Strength, Tallies, leaves
from ..ends.end_chat import GUARDS
from ..ends.events import DoneToken
from ..log.heard_text import done_tokens, heard_text
from ..log.messages import Fold, metadata
from ..log.metadata import (
    EarlierEnd,
    MessageMetadata,
    RemovedMessage,
    Speech,
    ToolCalls,
    is_open_speech,
    is_public_speech,
)
from ..log.parsing import holds_code, languages_run
from ..log.viewpoint import View
from ..speakers.replies import DATA, Source
from ..text.done_words import says
from .history import History
from .met_ends import ENDS
from .turns import watcher


def facts_of(conversation: Conversation, log: Sequence[BaseMessage]) -> Facts:
    """Compute the facts that end conditions look at."""
    return counter_of(conversation, log).facts()


def counter_of(conversation: Conversation, log: Sequence[BaseMessage]) -> "LogCounter":
    """Return a counter that has read a whole log."""
    return Fold(partial(LogCounter, conversation), LogCounter.add).read(log)


class LogCounter:
    """The counts of a log, updated message by message."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._heard: tuple[BaseMessage, Speech] | None = None
        self._heard_from: dict[str | None, None] = {}
        self._spoken: dict[str | None, None] = {}
        self._public: list[BaseMessage] = []
        # These depend on the speakers alone, and the facts are computed after each message.
        speakers = conversation.speakers
        self._run = {languages_run(conversation, one) for one in speakers if one.runs_code}
        self._counts_people = any(one.human or one.first_message for one in speakers)
        self._begin()

    def _begin(self) -> None:
        """Reset the counts, as after an earlier end."""
        conversation = self._conversation
        begun = ((end.reason, end.tally(conversation)) for end in ENDS.values())
        self.tallies = {reason: tally for reason, tally in begun if tally is not None}
        self._fact_tallies = [one for one in self.tallies.values() if isinstance(one, FactTally)]
        self._messages = 0
        self._tokens_said: dict[tuple[str, str], None] = {}
        self._unanswered: tuple[tuple[str, str], ...] = ()
        self._auto_replies = {
            name: _AutoReplies(conversation, name) for name in conversation.people
        }

    def add(self, message: BaseMessage) -> None:
        """Count the next message of the log."""
        about = metadata(message)
        if isinstance(about, EarlierEnd):
            return self._begin()
        asks = self._conversation.end_chat.on_guard == "ask"
        if asks and is_public_speech(about) and about.source is Source.HUMAN:
            self._begin_guards_anew()
        for tally in self.tallies.values():
            tally.add(message, about)
        for replies in self._auto_replies.values():
            replies.add(message, about)
        if isinstance(about, Speech):
            self._messages += 1
        if is_open_speech(about):
            self._spoken[about.speaker] = None
        if is_public_speech(about):
            self._heard = message, about
            self._heard_from[about.speaker] = None
            self._take_tokens(message, about)
            self._public.append(message)

    def _take_tokens(self, message: BaseMessage, about: Speech) -> None:
        """Store a message's done tokens. A message of another speaker answers earlier tokens."""
        who = about.speaker or ""
        if self._unanswered and self._unanswered[0][1] != who:
            self._unanswered = ()
        if about.source in DATA:
            return
        tokens = done_tokens(self._conversation, about.speaker, message.text, self._public)
        if not tokens:
            return
        new = [(token, who) for token in tokens if (token, who) not in self._tokens_said]
        self._tokens_said |= dict.fromkeys(new)
        ends = [end for _, end in leaves(self._conversation.end_chat.when)]
        has_text = bool(heard_text(self._conversation, message, about).strip())
        self._unanswered += tuple(
            (token, who)
            for token, who in new
            if any(
                isinstance(end, DoneToken) and end.waits_for_answer(token, who, has_text=has_text)
                for end in ends
            )
        )

    def _begin_guards_anew(self) -> None:
        """Reset the met guards: a person was asked because of them, and has now spoken."""
        for guard in GUARDS:
            if guard.strength is not Strength.GUARD:
                continue
            is_met = 0 < guard.limit(self._conversation) <= self.tallies[guard.reason].count
            if is_met and (tally := guard.tally(self._conversation)) is not None:
                self.tallies[guard.reason] = tally

    def facts(self) -> Facts:
        """Return the facts so far."""
        counts = {reason: count for reason, tally in self.tallies.items() if (count := tally.count)}
        return Facts(
            messages=self._messages,
            tokens_said=tuple(self._tokens_said),
            tokens_unanswered=self._unanswered,
            alone=len(self._spoken) < 2 and self._conversation.has_separate_judge,
            **self._code(),
            **self._people(),
            **{name: fact for one in self._fact_tallies for name, fact in one.facts().items()},
            counts=counts,
        )

    def _code(self) -> dict[str, Any]:
        """Return who said the newest message, and whether it contains code that a speaker runs."""
        if self._heard is None or not self._run:
            return {}
        message, about = self._heard
        writes = about.source not in DATA and any(
            holds_code(message.text, one) for one in self._run
        )
        return {"code_by" if writes else "no_code_by": about.speaker}

    def _people(self) -> dict[str, Any]:
        """Return the facts about people and fixed first messages. Empty if there are neither."""
        if not self._counts_people:
            return {}
        counts = {name: replies.count for name, replies in self._auto_replies.items()}
        facts: dict[str, Any] = {
            "heard_from": tuple(self._heard_from),
            "auto_replies": {name: count for name, count in counts.items() if count},
        }
        if self._heard is not None:
            message, about = self._heard
            text = "" if about.source in DATA else message.text
            facts["said_by"] = about.speaker
            facts["terminated"] = tuple(
                speaker.name
                for speaker in self._conversation.speakers
                if speaker.human
                and speaker.name != about.speaker
                and about.is_heard_by(speaker.name)
                and says(speaker.human.termination, text, "last", about.speaker)
            )
        return facts


def with_usage(facts: Facts, usage: Iterable[Usage], before: Facts, speaker: str | None) -> Facts:
    """Add the usage of model calls to the facts of a log.

    Args:
        facts: The facts of the log.
        usage: The usage of each model so far.
        before: The facts before the newest step.
        speaker: The speaker whose calls the newest step made, or None for calls of no speaker.
    """
    spent = add_usage(usage)
    new: dict[str, Any] = {
        "calls": spent.calls,
        "tokens": spent.tokens,
        "cost": spent.cost or 0.0,
        "calls_by": before.calls_by,
        "tokens_by": before.tokens_by,
        "cost_by": before.cost_by,
    }
    if speaker is not None and spent.calls != before.calls:
        # Written out, because it runs for each call: functions would cost more than the sums.
        for name, made in (
            ("calls", spent.calls - before.calls),
            ("tokens", spent.tokens - before.tokens),
            ("cost", new["cost"] - before.cost),
        ):
            if made > 0:
                counts = new[f"{name}_by"]
                new[f"{name}_by"] = counts | {speaker: counts.get(speaker, 0) + made}
    return facts.model_copy(update=new)


class _AutoReplies:
    """The number of automatic replies of a speaker since its person last spoke."""

    def __init__(self, conversation: Conversation, name: str) -> None:
        self._conversation = conversation
        self._name = name
        self._is_given = conversation.speaker(name).first_message is not None
        self._calls: dict[str | None, int] = {}
        self._made = 0
        self.count = 0

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        """Count the next message of the log."""
        if is_public_speech(about) and about.speaker == self._name:
            if about.source is Source.HUMAN:
                self.count, self._calls = 0, {}
            # A fixed first message answers no other message.
            elif not (self._is_given and about.source is Source.TEXT):
                self.count += 1
            self._is_given = False
        elif isinstance(about, ToolCalls) and about.is_aloud and isinstance(message, AIMessage):
            # All calls of one message are one automatic reply if a person could have stopped them.
            if watcher(self._conversation, about.speaker or "") == self._name:
                self._made += 1
                self._calls |= {call["id"]: self._made for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and not isinstance(about, RemovedMessage):
            made = self._calls.get(message.tool_call_id)
            if made is not None:
                self.count += 1
                self._calls = {call: one for call, one in self._calls.items() if one != made}


class Reader:
    """A reader of one session's log.

    It reads only the new messages of a growing log. The result is the same as for a log that is
    read for the first time.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._counted = Fold[LogCounter, BaseMessage](
            partial(LogCounter, conversation), LogCounter.add
        )
        self._conversation = conversation
        # Made at their first use: a judge needs none, and a short talk needs few.
        self._histories: dict[str, History] = {}
        self._views: dict[tuple[str, bool], View] = {}

    def facts(self, log: Sequence[BaseMessage]) -> Facts:
        """Compute the facts that end conditions look at."""
        return self._counted.read(log).facts()

    def tallies(self, log: Sequence[BaseMessage]) -> Tallies:
        """Return the running count of each end condition in a log."""
        return self._counted.read(log).tallies

    def history(self, name: str) -> History:
        """Return a speaker's history: the part of the log that it remembers."""
        found = self._histories.get(name)
        if found is None:
            found = self._histories[name] = History(self._conversation, name)
        return found

    def view(
        self, lines: Sequence[BaseMessage], name: str, system: str | None, *, in_prompt: bool
    ) -> list[BaseMessage]:
        """Return messages as a speaker sees them, with the thoughts of its model.

        Do not change the returned messages.
        """
        found = self._views.get((name, in_prompt))
        if found is None:
            found = View(self._conversation, name, in_prompt=in_prompt, has_thoughts=True)
            self._views[name, in_prompt] = found
        return found.show(lines, system)
