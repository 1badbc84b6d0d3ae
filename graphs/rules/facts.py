"""What a log holds that ends look at. What the log does not hold, such as time, the nodes add."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..common.fold import Fold
from ..log.done_tokens import DATA, done_tokens
from ..log.formats.code_blocks import holds_code, languages_run
from ..log.messages import metadata
from ..log.metadata import (
    EarlierEnd,
    MessageMetadata,
    RemovedMessage,
    Source,
    Speech,
    ToolCalls,
    ToolResult,
    is_public_speech,
)
from ..log.stage import Stage
from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, ToolCalled, leaves
from ..spec.judges import SeparateJudge
from ..spec.usage import Usage, total
from ..text.done_words import says
from .ends.guards import GUARDS
from .ends.holding import ENDS
from .people import watcher
from .position import Facts


def observed(conversation: Conversation, log: Sequence[BaseMessage]) -> Facts:
    """Find out what a log holds."""
    return counted(conversation, log).facts()


def counted(conversation: Conversation, log: Sequence[BaseMessage]) -> "Counted":
    """Count what a log holds."""
    return Fold(partial(Counted, conversation), Counted.add).of(log)


class Counted:
    """What a log holds, counted message by message."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._heard: tuple[BaseMessage, Speech] | None = None
        self._heard_from: dict[str | None, None] = {}
        self._spoken: dict[str | None, None] = {}
        self._begin()

    def _begin(self) -> None:
        """Count from here."""
        conversation = self._conversation
        begun = ((reason, end.tally(conversation)) for reason, end in ENDS.items())
        self.tallies = {reason: tally for reason, tally in begun if tally is not None}
        self._messages = 0
        self._tokens_said: dict[tuple[str, str], None] = {}
        self._unanswered: tuple[tuple[str, str], ...] = ()
        self._tools_called = _ToolsCalled(conversation)
        self._auto_replies = {
            name: _AutoReplies(conversation, name) for name in conversation.people
        }

    def add(self, message: BaseMessage) -> None:
        """Take the next message of the log."""
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
        self._tools_called.add(message, about)
        if isinstance(about, Speech):
            self._messages += 1
            if about.stage is not Stage.PRIVATE:
                self._spoken[about.speaker] = None
        if is_public_speech(about):
            self._heard = message, about
            self._heard_from[about.speaker] = None
            self._take_tokens(message, about)

    def _take_tokens(self, message: BaseMessage, about: Speech) -> None:
        """Take the done tokens of a message that all hear; it answers those of another speaker."""
        who = about.speaker or ""
        if self._unanswered and self._unanswered[0][1] != who:
            self._unanswered = ()
        if about.source in DATA:
            return
        tokens = done_tokens(self._conversation, about.speaker, message.text)
        if not tokens:
            return
        new = [(token, who) for token in tokens if (token, who) not in self._tokens_said]
        self._tokens_said |= dict.fromkeys(new)
        self._unanswered += tuple(pair for pair in new if _waits(self._conversation, *pair))

    def _begin_guards_anew(self) -> None:
        """A person was told what the guards have counted, and has said something to it."""
        for guard in GUARDS:
            held = 0 < guard.limit(self._conversation) <= self.tallies[guard.reason].count
            if held and (tally := guard.tally(self._conversation)) is not None:
                self.tallies[guard.reason] = tally

    def facts(self) -> Facts:
        """Give what was counted so far."""
        counts = {reason: tally.count for reason, tally in self.tallies.items()}
        return Facts(
            messages=self._messages,
            tokens_said=tuple(self._tokens_said),
            tokens_unanswered=self._unanswered,
            alone=len(self._spoken) < 2 and isinstance(self._conversation.judge, SeparateJudge),
            tools_called=tuple(self._tools_called.found),
            **self._code(),
            **self._people(),
            counts={reason: count for reason, count in counts.items() if count},
        )

    def _code(self) -> dict[str, Any]:
        """Who said the newest message, by whether it holds code; nothing where none is ever run."""
        conversation = self._conversation
        run = {languages_run(conversation, one) for one in conversation.speakers if one.runs_code}
        if self._heard is None or not run:
            return {}
        message, about = self._heard
        writes = about.source not in DATA and any(holds_code(message.text, one) for one in run)
        return {"code_by" if writes else "no_code_by": about.speaker}

    def _people(self) -> dict[str, Any]:
        """What is found only where people take part, or a first message is given."""
        speakers = self._conversation.speakers
        if not any(speaker.human or speaker.first_message for speaker in speakers):
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
                for speaker in speakers
                if speaker.human
                and speaker.name != about.speaker
                and about.is_heard_by(speaker.name)
                and says(speaker.human.termination, text, "last", about.speaker)
            )
        return facts


def with_usage(facts: Facts, usage: Iterable[Usage]) -> Facts:
    """Add what model calls have used to the facts of a log."""
    spent = total(usage)
    tokens = spent.input_tokens + spent.output_tokens
    return facts.model_copy(update={"calls": spent.calls, "tokens": tokens, "cost": spent.cost})


def _waits(conversation: Conversation, token: str, who: str) -> bool:
    """Return whether a done token of this speaker counts only once it is answered, for some end."""
    ends = (end for _, end in leaves(conversation.end_chat.when) if isinstance(end, DoneToken))
    return any(one.answered and one.token == token and one.by in (None, who) for one in ends)


class _ToolsCalled:
    """The ending tools that have answered without an error, each with who called it."""

    def __init__(self, conversation: Conversation) -> None:
        when = conversation.end_chat.when
        self._ends = {end.tool for _, end in leaves(when) if isinstance(end, ToolCalled)}
        self._names: dict[str | None, str] = {}
        self.found: dict[tuple[str, str], None] = {}

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        """Take the next message of the log."""
        if not self._ends:
            return
        if isinstance(message, AIMessage) and about.is_aloud:
            self._names |= {call["id"]: call["name"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and isinstance(about, ToolResult):
            name = about.tool or self._names.get(message.tool_call_id)
            if message.status == "success" and name in self._ends:
                self.found[str(name), about.speaker or ""] = None


class _AutoReplies:
    """The automatic replies for a speaker since a person last spoke for it."""

    def __init__(self, conversation: Conversation, name: str) -> None:
        self._conversation = conversation
        self._name = name
        self._is_given = conversation.speaker(name).first_message is not None
        self._calls: dict[str | None, int] = {}
        self._made = 0
        self.count = 0

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        """Take the next message of the log."""
        if is_public_speech(about) and about.speaker == self._name:
            if about.source is Source.HUMAN:
                self.count, self._calls = 0, {}
            # A first message is given, and answers nothing.
            elif not (self._is_given and about.source is Source.TEXT):
                self.count += 1
            self._is_given = False
        elif isinstance(about, ToolCalls) and about.is_aloud and isinstance(message, AIMessage):
            # Calls that run where a person might have stopped them are one such reply.
            if watcher(self._conversation, about.speaker or "") == self._name:
                self._made += 1
                self._calls |= {call["id"]: self._made for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and not isinstance(about, RemovedMessage):
            made = self._calls.get(message.tool_call_id)
            if made is not None:
                self.count += 1
                self._calls = {call: one for call, one in self._calls.items() if one != made}
