"""A session as it was read: its messages, their views, its outcome, and later verdicts about it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from hashlib import sha256
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage
from pydantic import AwareDatetime, Field

from ..common.data import Data
from ..common.display import MOST, Panel, Shown
from ..common.errors import hide_frames
from ..common.sanitize import clean, excerpt
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge, Verdict
from ..conversation.questions import MessageQuestion, Question
from ..conversation.usage import Usage, add_usage
from ..log.messages import inner_session_id, metadata, read_inner_log, says_something, speeches
from ..log.metadata import InnerSession, Reflection, Speech, outcome_of
from ..log.state import log_of
from ..log.transcript import format_transcript, numbered_transcript, trajectory
from ..log.viewpoint import memory_messages, viewpoint
from ..rules.outcome import Outcome, OutcomeStep, find_output, output_text, output_value
from ..rules.why import describe_findings, explain_end
from ..store.base import Store
from ..store.rows import reading_store
from ..store.session_lease import SessionLease


class LaterVerdict(Data):
    """The verdict of a judge about a stored session."""

    judge: SeparateJudge
    """The judge."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """The usage of the call, by model."""
    log: str
    """The hash of the messages that the judge has read."""
    answer: str
    """The text of the judge's answer."""
    verdict: Verdict
    """The verdict."""
    batch: str | None = None
    """The name of the batch whose limits the call counts toward. None if it belongs to no batch."""
    created_at: AwareDatetime
    """The time of the answer, in UTC."""


async def write_verdict(held: SessionLease, number: int, verdict: LaterVerdict) -> None:
    """Store a verdict beside a session's log, under its number among the session's verdicts."""
    # As ASCII, because a model may have written lone surrogates, which have no encoding.
    await held.put_verdict(number, json.dumps(verdict.model_dump(mode="json")))


async def read_verdicts(store: Store, session: str) -> tuple[LaterVerdict, ...]:
    """Return the verdicts that are stored beside a session's log, oldest first."""
    found = await store.verdicts(session)
    with reading_store(store.url, session):
        return tuple(LaterVerdict.model_validate(json.loads(one)) for one in found)


def usage_for(batch: str | None, verdicts: Sequence[LaterVerdict]) -> Usage:
    """Return the usage of the verdicts that a batch asked for."""
    own = [used for one in verdicts if one.batch == batch for used in one.usage.values()]
    return add_usage(own)


def hash_log(log: Sequence[AnyMessage], judge: SeparateJudge) -> str:
    """Return the hash of the messages of a log that a judge reads."""
    with_calls = judge.with_reasons
    read = numbered_transcript(log, log) if with_calls else format_transcript(log, private=True)
    return sha256(read.encode(errors="surrogatepass")).hexdigest()


def verdicts_on(log: Sequence[AnyMessage], verdicts: Sequence[LaterVerdict]) -> list[LaterVerdict]:
    """Return the verdicts of judges who have read exactly these messages, oldest first."""
    kinds = {one.judge.with_reasons: one.judge for one in verdicts}
    read = {kind: hash_log(log, judge) for kind, judge in kinds.items()}
    return [one for one in verdicts if one.log == read[one.judge.with_reasons]]


def describe_later(log: Sequence[AnyMessage], verdicts: Sequence[LaterVerdict]) -> list[str]:
    """Return one line for each verdict about a session, oldest first."""
    current = {id(one) for one in verdicts_on(log, verdicts)}
    lines = []
    for one in verdicts:
        model = ", ".join(one.usage) or one.judge.model
        by = f" by {model}" if model else ""
        about = "" if id(one) in current else ", before the messages changed"
        when = f"{one.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        found = describe_findings(one.verdict) or "the verdict could not be read"
        lines.append(f"Judged later{by} ({when}{about}): {found}")
    return lines


def verdict_at_end(log: Sequence[AnyMessage]) -> Verdict | None:
    """Return the verdict of the conversation's separate judge about the last message, or None."""
    for about in map(metadata, reversed(log)):
        if isinstance(about, Speech):
            return None
        if isinstance(about, Reflection) and about.verdict is not None and about.verdict.findings:
            return about.verdict
    return None


@dataclass(frozen=True)
class StoredSession(Shown):
    """The state of a session, read from a store, without a handle to its store."""

    session_id: str
    """The session's id."""
    conversation: Conversation
    """The spec."""
    messages: list[AnyMessage]
    """The log: all messages, oldest first, including records that no speaker hears."""
    specified_task: str | None
    """The task that the speakers received. None if the speakers have received no task."""
    outcome: Outcome | None
    """Why, when and by whom the session was ended. None if it has not ended."""
    pending: tuple[Question, ...] = ()
    """The questions for people that the session waits for. `Session.answer` answers them."""
    failure: str | None = field(default=None, compare=False)
    """The error that interrupted the newest step. None if the step did not fail, or if it was
    killed.
    """
    later_verdicts: tuple[LaterVerdict, ...] = ()
    """The verdicts of judges who were asked without running the session, oldest first."""

    def __str__(self) -> str:
        said = format_transcript(self.messages, private=True)
        return clean("\n\n".join(part for part in (said, *self._status()) if part))

    @property
    def stop_reason(self) -> str | None:
        """The reason of the end, such as ``"done_token"``: the value of the outcome's `Reason`.

        None if the session has not ended.
        """
        return None if self.outcome is None else self.outcome.reason.value

    def _status(self) -> list[str]:
        """Return how the session ended, for whom it waits, or that it was interrupted."""
        if self.outcome is not None:
            return [str(self.outcome)]
        if self.pending:
            return [
                f"Waiting for {one.speaker if isinstance(one, MessageQuestion) else 'a person'}: "
                f"{one.summary()}"
                for one in self.pending
            ]
        count = len(speeches(self.messages))
        after = f"after {count} {'message' if count == 1 else 'messages'}"
        if self.failure is not None:
            return [f"Interrupted {after}: {excerpt(self.failure)}. It can be resumed."]
        return [f"Not finished {after}: it still runs, or it was interrupted and can be resumed."]

    # IPython would prefer `__repr__`, because this class defines it.
    _repr_pretty_ = Shown._repr_pretty_

    def _repr_html_(self) -> str:
        # Load Jinja and Markdown only when something is shown.
        from ..show.ending import brief_end
        from ..show.page import lines_of
        from ..show.render import render_brief

        found = lines_of(self.conversation, self.messages)
        lines = [one for one in found if one.kind != "told"]
        shown = lines[-MOST:]
        ending = brief_end(self.conversation, self.messages, self.outcome, self.pending)
        return render_brief(shown, len(lines) - len(shown), ending)

    def _panel(self) -> Panel:
        said = self.transcript[-MOST:]
        title, *notes = self._status()
        return Panel(
            title=title,
            tag=self.stop_reason or "",
            notes=tuple(notes),
            head=("Speaker", "Said"),
            rows=tuple(said),
            left_out=len(self.transcript) - len(said),
        )

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(session={self.session_id!r}, stop_reason={self.stop_reason!r})"

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """Pairs of speaker and text, oldest first, including text that accompanies a tool call."""
        read = ((message, metadata(message)) for message in self.messages)
        return [
            (about.speaker or "", message.text)
            for message, about in read
            if says_something(message, about)
        ]

    @property
    def text(self) -> str:
        """The text of the message that `output` is read from. For `ask`, the answer.

        Empty if there is no output yet.
        """
        found = find_output(self.conversation, self.messages)
        return "" if found is None else output_text(self.conversation, found)

    @property
    def output(self) -> Any:  # noqa: ANN401  # the schema decides the type
        """The output of the conversation: a text, or a dict if its speaker answers by a schema.

        It is the last message of the speakers that have ``writes_output`` set, such as the writer
        of a `blogger` or the solver of a `role_play`. If there are none, it is the last message of
        any speaker for whom no person writes. A message that only contains a done token does not
        count, and the output does not contain done tokens. If the conversation continues after an
        end, only later messages count.

        None if there is no such message yet, or if it does not fit the schema.
        """
        found = find_output(self.conversation, self.messages)
        return None if found is None else output_value(self.conversation, found)

    @property
    def previous_outcomes(self) -> list[Outcome]:
        """The outcomes of earlier ends, after which the session was continued, oldest first."""
        ended = (outcome_of(metadata(message)) for message in self.messages)
        return [Outcome.model_validate(one) for one in ended if one is not None]

    @property
    def inner_sessions(self) -> dict[str, "StoredSession"]:
        """The sessions of inner conversations that have ended or failed, by their ids.

        An id is the id of this session, a dot, and the place of a message, such as ``"s.m0004"``.
        The message with this place precedes the reply or the result that the inner session led to.
        """
        found: dict[str, StoredSession] = {}
        for message in self.messages:
            about = metadata(message)
            if isinstance(about, InnerSession):
                name = inner_session_id(self.session_id, message)
                conversation, log = read_inner_log(about)
                ended = Outcome.model_validate(about.outcome) if about.outcome else None
                found[name] = StoredSession(name, conversation, log, about.specified_task, ended)
        return found

    @hide_frames
    def parsed(self, speaker: str) -> list[Any]:
        """Return the values that a speaker's output format read from its messages.

        Args:
            speaker: The speaker's name.

        Returns:
            One plain value for each message of the speaker; None for a message that could not be
            read.

        Raises:
            KeyError: No speaker has that name.
        """
        self.conversation.speaker(speaker)
        read = (metadata(message) for message in self.messages)
        said = (about for about in read if isinstance(about, Speech))
        return [about.parsed for about in said if about.speaker == speaker]

    @hide_frames
    def last_message(self, speaker: str) -> str | None:
        """Return the text of a speaker's last message.

        Args:
            speaker: The speaker's name.

        Returns:
            The text, or None if the speaker has said nothing.

        Raises:
            KeyError: No speaker has that name.
        """
        self.conversation.speaker(speaker)
        said = (text for name, text in reversed(self.transcript) if name == speaker)
        return next(said, None)

    @hide_frames
    def viewpoint(self, speaker: str) -> list[BaseMessage]:
        """Return the session as one speaker sees it.

        Args:
            speaker: The speaker's name.

        Returns:
            LangChain messages, the system prompt first. The speaker's own messages have the role of
            the assistant, the others' messages that of the user. The list is everything that the
            speaker remembers; `Session.prompt` returns the prompt that its model was sent.

        Raises:
            KeyError: No speaker has that name.
        """
        who = self.conversation.speaker(speaker)
        system = self.conversation.system_prompt(who, self.specified_task)
        return viewpoint(self.conversation, self.messages, speaker, system=system)

    @hide_frames
    def memory(self, speaker: str) -> list[AnyMessage]:
        """Return a speaker's memory, as LangChain messages that any model accepts.

        Args:
            speaker: The speaker's name.

        Returns:
            One message for each message that the speaker has said or heard, oldest first. Its own
            messages have the role of the assistant; the others' messages have that of the user,
            with their speakers' names. Every tool call is followed by its result. The system prompt
            and the speaker's examples are not included. `Speaker.memory` and `Session.set_memory`
            accept the list.

        Raises:
            KeyError: No speaker has that name.
        """
        return memory_messages(self.conversation, self.messages, speaker)

    @hide_frames
    def trajectory(self, speaker: str | None = None) -> list[dict[str, Any]]:
        """Return the session as messages in OpenAI's format, as evaluators of agents expect them.

        Args:
            speaker: The name of the speaker whose view is returned. If None, a neutral view.

        Returns:
            Dicts with the keys `role` and `content` and, if they apply, `name`, `tool_calls` and
            `tool_call_id`. In a speaker's view, its own messages have the role `assistant` and the
            others' messages `user`, as in `viewpoint`, without the system prompt. In the neutral
            view, the task is the first `user` message, if there is one; all messages follow,
            private messages included, with every tool call and its result. People's messages have
            the role `user`, all others `assistant`.

        Raises:
            KeyError: No speaker has that name.
        """
        return trajectory(self.conversation, self.messages, self.specified_task, speaker)

    def why(self) -> list[OutcomeStep]:
        """Return the causes of the end: verdicts, done tokens, tool calls, counts, reasons.

        Returns:
            The messages that caused the end, oldest first, then each reason. If the session has not
            ended, the messages that count towards an end so far.
        """
        return explain_end(self.conversation, self.messages, self.outcome)


def make_session(
    session: str,
    conversation: Conversation,
    state: Mapping[str, Any],
    pending: Iterable[Question] = (),
    failure: str | None = None,
) -> StoredSession:
    """Return a session with the values of its graph's state."""
    ended = state.get("outcome")
    return StoredSession(
        session,
        conversation,
        log_of(state),
        state.get("specified_task") or None,
        Outcome.model_validate(ended) if ended else None,
        tuple(pending),
        failure,
    )
