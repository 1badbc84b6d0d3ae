"""What a session holds: its messages, each speaker's view of them, and its outcome."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage

from ..common.sanitize import clean
from ..display.lists import MOST
from ..display.panel import Panel, Shown
from ..log.channels import log_of
from ..log.heard import overheard
from ..log.messages import Source, is_said, line, speeches
from ..log.trajectory import trajectory
from ..log.viewpoint import viewpoint
from ..rules.ends.cause import Cause
from ..rules.outcome import Outcome
from ..rules.why import why
from ..spec.conversation import Conversation
from ..spec.questions import Question


@dataclass(frozen=True)
class Result(Shown):
    """A session as it stands: finished, or waiting to be resumed.

    `print` shows who said what and how it ended, and a notebook shows it in colours.
    """

    session: str
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
    """The questions to people that the session waits for; `answer_session` answers them."""

    @classmethod
    def of(
        cls,
        session: str,
        conversation: Conversation,
        state: dict[str, Any],
        pending: Iterable[Question] = (),
    ) -> "Result":
        """Read a session's state.

        Args:
            session: Its id.
            conversation: Its spec.
            state: The values of the graph's state.
            pending: What people are asked.

        Returns:
            The result.
        """
        ended = state.get("outcome")
        return cls(
            session,
            conversation,
            log_of(state),
            state.get("specified_task") or None,
            Outcome.model_validate(ended) if ended else None,
            tuple(pending),
        )

    def __str__(self) -> str:
        said = overheard(self.messages, private=True)
        parts = [said, *(f"Waits for an answer. {one.summary()}" for one in self.pending)]
        if self.outcome is not None:
            parts.append(self.outcome.sentence())
        elif not self.pending:
            parts.append("Not finished.")
        return clean("\n\n".join(part for part in parts if part))

    # IPython would take `__repr__`, since it stands in this class.
    _repr_pretty_ = Shown._repr_pretty_

    def _repr_html_(self) -> str:
        # Jinja and Markdown are loaded where something is shown.
        from ..page.ending import brief_end
        from ..page.render import render_brief
        from ..page.talk import lines_of

        found = lines_of(self.conversation, self.messages)
        lines = [one for one in found if one.kind != "told"]
        shown = lines[-MOST:]
        ending = brief_end(self.conversation, self.messages, self.outcome, self.pending)
        return render_brief(shown, len(lines) - len(shown), ending)

    def _panel(self) -> Panel:
        said = self.speeches[-MOST:]
        waits = tuple(f"Waits for an answer. {one.summary()}" for one in self.pending)
        ended = self.outcome.sentence() if self.outcome is not None else "Not finished."
        return Panel(
            title=ended if self.outcome is not None or not waits else waits[0],
            tag=self.outcome.reason.value if self.outcome is not None else "",
            notes=waits[1:] if self.outcome is None else (),
            head=("Speaker", "Said"),
            rows=tuple(said),
            left_out=len(self.speeches) - len(said),
        )

    def __repr__(self) -> str:
        ended = None if self.outcome is None else self.outcome.reason.value
        return f"Result(session={self.session!r}, outcome={ended!r})"

    @property
    def speeches(self) -> list[tuple[str, str]]:
        """Who said what, oldest first. What a speaker says beside a call of tools is included."""
        read = ((message, line(message)) for message in self.messages)
        return [
            (about.speaker or "", message.text)
            for message, about in read
            if is_said(message, about)
        ]

    @property
    def text(self) -> str:
        """What was said last, without its speaker: of `ask`, the answer.

        It is empty where nothing was said, or a person said it, whom nobody has answered.
        """
        last = self._last()
        return "" if last is None else last.text

    @property
    def value(self) -> Any:  # noqa: ANN401  # what a schema makes of it
        """What was read from `text` by its speaker's output format, as plain values; else None."""
        last = self._last()
        return None if last is None else line(last).parsed

    def _last(self) -> AnyMessage | None:
        said = (message for message in reversed(self.messages) if line(message).is_speech)
        last = next(said, None)
        return None if last is None or line(last).source is Source.HUMAN else last

    @property
    def earlier(self) -> list[Outcome]:
        """The outcomes it had before something more was said, oldest first."""
        ended = (line(message).outcome for message in self.messages)
        return [Outcome.model_validate(one) for one in ended if one is not None]

    def parsed(self, speaker: str) -> list[Any]:
        """Give what was read from a speaker's messages by its output format.

        Args:
            speaker: The speaker's name.

        Returns:
            For each of its messages the plain values; None where one could not be read.

        Raises:
            KeyError: Nobody has that name.
        """
        self.conversation.speaker(speaker)
        lines = (line(message) for message in speeches(self.messages))
        return [about.parsed for about in lines if about.speaker == speaker]

    def latest(self, speaker: str) -> str | None:
        """Give what a speaker said last.

        Args:
            speaker: The speaker's name.

        Returns:
            The text of its latest message; None where it has said nothing.

        Raises:
            KeyError: Nobody has that name.
        """
        self.conversation.speaker(speaker)
        said = (text for name, text in reversed(self.speeches) if name == speaker)
        return next(said, None)

    def viewpoint(self, speaker: str) -> list[BaseMessage]:
        """Show the session as one speaker sees it.

        Args:
            speaker: The speaker's name.

        Returns:
            LangChain messages, the system prompt first: the speaker's own lines are the
            assistant's, the others' the user's. This is all that it remembers: `get_prompt` gives
            what its model was sent.

        Raises:
            KeyError: Nobody has that name.
        """
        who = self.conversation.speaker(speaker)
        system = self.conversation.system_prompt(who, self.specified_task)
        return viewpoint(self.conversation, self.messages, speaker, system=system)

    def trajectory(self, speaker: str | None = None) -> list[dict[str, Any]]:
        """Give the session as messages in OpenAI's form, as evaluators of agents take them.

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

    def why(self) -> list[Cause]:
        """Tell what led to the end: verdicts, rejected drafts, what guards counted, reasons.

        Returns:
            The causes, oldest first, and the reasons after them; so far, while it has not ended.
        """
        return why(self.conversation, self.messages, self.outcome)
