"""A session as it was read: its messages, each speaker's view of them, and its outcome."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage

from ..common.display import MOST, Panel, Shown
from ..common.sanitize import clean, excerpt
from ..conversation.conversation import Conversation
from ..conversation.questions import MessageQuestion, Question
from ..log.messages import metadata, says_something, speeches
from ..log.metadata import Speech, is_by_person, outcome_of
from ..log.state import log_of
from ..log.trajectory import trajectory
from ..log.viewpoint import memory_messages, overheard, viewpoint
from ..rules.outcome import Outcome, OutcomeStep
from ..rules.why import why


def _waiting(question: Question) -> str:
    who = question.speaker if isinstance(question, MessageQuestion) else "a person"
    return f"Waiting for {who}: {question.summary()}"


@dataclass(frozen=True)
class StoredSession(Shown):
    """A session as it was read from a store or replayed, without the way back to the store."""

    session_id: str
    """The session's id."""
    conversation: Conversation
    """The spec."""
    messages: list[AnyMessage]
    """The log: everything ever said, oldest first, with what is kept for the record only."""
    specified_task: str | None
    """The task that the speakers were given; None while there is none."""
    outcome: Outcome | None
    """Why, when and by whom it ended; None while it has not."""
    pending: tuple[Question, ...] = ()
    """The questions to people that the session waits for; `Session.answer` answers them."""
    failure: str | None = field(default=None, compare=False)
    """The error that broke off the newest step. None: it did not fail, or was killed."""

    @classmethod
    def of(
        cls,
        session: str,
        conversation: Conversation,
        state: Mapping[str, Any],
        pending: Iterable[Question] = (),
        failure: str | None = None,
    ) -> "StoredSession":
        """Read a session's state.

        Args:
            session: Its id.
            conversation: Its spec.
            state: The values of the graph's state.
            pending: The questions that wait for people.
            failure: The error of the newest step.

        Returns:
            The session.
        """
        ended = state.get("outcome")
        return cls(
            session,
            conversation,
            log_of(state),
            state.get("specified_task") or None,
            Outcome.model_validate(ended) if ended else None,
            tuple(pending),
            failure,
        )

    def __str__(self) -> str:
        said = overheard(self.messages, private=True)
        return clean("\n\n".join(part for part in (said, *self._status()) if part))

    @property
    def stop_reason(self) -> str | None:
        """Why it ended, such as ``"done_token"``: the value of the outcome's `Reason`.

        None if it has not ended.
        """
        return None if self.outcome is None else self.outcome.reason.value

    def _status(self) -> list[str]:
        """Say why it ended, whom it waits for, or that it was broken off."""
        if self.outcome is not None:
            return [str(self.outcome)]
        if self.pending:
            return [_waiting(question) for question in self.pending]
        count = len(speeches(self.messages))
        after = f"after {count} {'message' if count == 1 else 'messages'}"
        if self.failure is not None:
            return [f"Broken off {after}: {excerpt(self.failure)}. It can be resumed."]
        return [f"Not finished {after}: it was broken off and can be resumed, or it still runs."]

    # IPython would take `__repr__`, since it stands in this class.
    _repr_pretty_ = Shown._repr_pretty_

    def _repr_html_(self) -> str:
        # Jinja and Markdown are loaded where something is shown.
        from ..show.ending import brief_end
        from ..show.render import render_brief
        from ..show.transcript import lines_of

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
        """Who said what, oldest first. What a speaker says beside a call of tools is included."""
        read = ((message, metadata(message)) for message in self.messages)
        return [
            (about.speaker or "", message.text)
            for message, about in read
            if says_something(message, about)
        ]

    @property
    def text(self) -> str:
        """What was said last, without its speaker: of `ask`, the answer.

        It is empty where nothing was said, or a person said it, whom nobody has answered.
        """
        last = self._last()
        return "" if last is None else last.text

    @property
    def output(self) -> Any:  # noqa: ANN401  # what a schema makes of it
        """The values that the speaker's format read from `text`: a dict if a schema is its format.

        None if it has no format, or the text could not be read.
        """
        last = self._last()
        about = None if last is None else metadata(last)
        return about.parsed if isinstance(about, Speech) else None

    def _last(self) -> AnyMessage | None:
        said = (
            message for message in reversed(self.messages) if isinstance(metadata(message), Speech)
        )
        last = next(said, None)
        return None if last is None or is_by_person(metadata(last)) else last

    @property
    def previous_outcomes(self) -> list[Outcome]:
        """The outcomes it had before something more was said, oldest first."""
        ended = (outcome_of(metadata(message)) for message in self.messages)
        return [Outcome.model_validate(one) for one in ended if one is not None]

    def parsed(self, speaker: str) -> list[Any]:
        """Return what a speaker's output format read from its messages.

        Args:
            speaker: The speaker's name.

        Returns:
            For each of its messages the plain values; None where one could not be read.

        Raises:
            KeyError: Nobody has that name.
        """
        self.conversation.speaker(speaker)
        read = (metadata(message) for message in self.messages)
        said = (about for about in read if isinstance(about, Speech))
        return [about.parsed for about in said if about.speaker == speaker]

    def last_message(self, speaker: str) -> str | None:
        """Return the text of a speaker's last message.

        Args:
            speaker: The speaker's name.

        Returns:
            The text. None if it has said nothing.

        Raises:
            KeyError: Nobody has that name.
        """
        self.conversation.speaker(speaker)
        said = (text for name, text in reversed(self.transcript) if name == speaker)
        return next(said, None)

    def viewpoint(self, speaker: str) -> list[BaseMessage]:
        """Show the session as one speaker sees it.

        Args:
            speaker: The speaker's name.

        Returns:
            LangChain messages, the system prompt first: the speaker's own lines are the
            assistant's, the others' the user's. This is all that it remembers: `Session.prompt`
            returns what its model was sent.

        Raises:
            KeyError: Nobody has that name.
        """
        who = self.conversation.speaker(speaker)
        system = self.conversation.system_prompt(who, self.specified_task)
        return viewpoint(self.conversation, self.messages, speaker, system=system)

    def memory(self, speaker: str) -> list[AnyMessage]:
        """Return what a speaker remembers, as LangChain messages that any model accepts.

        Args:
            speaker: The speaker's name.

        Returns:
            A message for each line that it has said or heard, oldest first: its own are the
            assistant's, the others' the user's, with their speakers' names. Every call of a tool
            is followed by its result. The system prompt and the speaker's examples are no part of
            it. `Speaker.memory` and `Session.set_memory` accept the list.

        Raises:
            KeyError: Nobody has that name.
        """
        return memory_messages(self.conversation, self.messages, speaker)

    def trajectory(self, speaker: str | None = None) -> list[dict[str, Any]]:
        """Return the session as messages in OpenAI's form, which evaluators of agents take.

        Args:
            speaker: The name of the speaker whose view it is. None: nobody's.

        Returns:
            Dicts with `role` and `content`, and where they apply `name`, `tool_calls` and
            `tool_call_id`. In a speaker's view its own lines are the assistant's and the others'
            the user's, as in `viewpoint`, without the system prompt. In nobody's view the task is
            the user's first message, if there is one; then comes all that was said, private lines
            included, with every call of tools and its result: what people said is the user's,
            what others said the assistant's.

        Raises:
            KeyError: Nobody has that name.
        """
        return trajectory(self.conversation, self.messages, self.specified_task, speaker)

    def why(self) -> list[OutcomeStep]:
        """Return the steps that led to the end: verdicts, rejected drafts, counts, reasons.

        Returns:
            The steps, oldest first, and the reasons after them. If it has not ended, the steps
            so far.
        """
        return why(self.conversation, self.messages, self.outcome)
