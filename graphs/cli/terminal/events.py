"""The printed events of a run: streamed on a terminal, as whole messages elsewhere.

`graphs.cli.run` runs the session; `graphs.session.status` describes events in sentences.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.style import StyleType
from rich.text import Text

from ...common.content import describe_file
from ...conversation.judges import Finding, Verdict
from ...events import (
    ConversationEnded,
    Event,
    MessageSaid,
    MessageStarted,
    MessageToken,
    Notice,
    QuestionAsked,
    ReplyRejected,
    SessionStarted,
    TaskSpecified,
    ThoughtReceived,
    VerdictGiven,
)
from ...log.metadata import Source
from ...rules.message_words import describe_audience, describe_retry
from ...rules.outcome import OutcomeStep
from ...session.status import remark
from .console import cell, erase_lines, json_line, on_screen, one_line, plain, prose, whole
from .follow_up import FollowUp, show_end
from .reply import Reply

# Legible on a light and on a dark background. Red is for errors.
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")

_TASK = "Task"


class View(Protocol):
    """An output for events."""

    def show(self, event: Event) -> None:
        """Show one event."""


class JsonLines:
    """An output that prints each event as a line of JSON, at once."""

    def show(self, event: Event) -> None:
        """Print one event."""
        json_line(event.model_dump_json())


class Transcript:
    """An output that prints the events as a conversation."""

    def __init__(
        self,
        follow_up: FollowUp,
        out: Console,
        err: Console,
        *,
        ids: bool = False,
        thoughts: bool = False,
    ) -> None:
        self._follow_up = follow_up
        self._ids = ids
        self._thoughts = thoughts
        self._out = out
        self._err = err
        self._live = on_screen(out)
        self._colours: dict[str, str] = {}
        self._reply: Reply | None = None
        self._streamed = ""
        self._typed: str | None = None
        self._shown: list[tuple[str, str]] = []
        self._people: tuple[str, ...] = ()

    def show(self, event: Event) -> None:
        """Print one event."""
        match event:
            case SessionStarted():
                self._start(event)
            case Notice():
                self.pause()
                prose(self._err, event.text, "dim")
            case TaskSpecified():
                self._specified(event)
            case MessageStarted() | QuestionAsked():
                # A message that starts again replaces the streamed part. A question is printed by
                # the code that reads its answer.
                self.pause()
            case MessageToken():
                self._stream(event)
            case MessageSaid():
                self._said(event)
            case ReplyRejected():
                self._rejected(event)
            case ThoughtReceived() | VerdictGiven():
                self._inside(event)
            case ConversationEnded():
                self.end(event)
            case _:
                self._aside(remark(event))

    def shows(self, event: Event) -> bool:
        """Return whether an event is printed. A pipe gets whole messages only."""
        if isinstance(event, ThoughtReceived):
            return self._thoughts
        return self._live or not isinstance(event, MessageStarted | MessageToken)

    @property
    def is_streaming(self) -> bool:
        """Return whether a message is being streamed and is not complete."""
        return self._reply is not None

    def pause(self) -> None:
        """End the line of a streamed message before something else is printed."""
        if self._reply is not None:
            self._reply.end()
            self._reply = None

    def head(self, name: str, message: str = "") -> None:
        """Print the name of a speaker, with the place of the message if places are shown."""
        self.pause()
        colour = "bold" if name == _TASK else self.colour(name)
        mark = cell(message) if self._ids else ""
        if not self._live:
            beside = f" ({mark})" if mark else ""
            plain(self._out, f"\n{one_line(name)}{beside}:", f"bold {colour}")
            return
        behind = f" {mark}" if mark else ""
        title = Text(one_line(name, self._out.width - 8 - cell_len(behind)), f"bold {colour}")
        line = Text.assemble(("── ", f"dim {colour}"), title, " ")
        room = self._out.width - line.cell_len - cell_len(behind)
        line.append("─" * max(0, room), f"dim {colour}")
        line.append(behind, "dim")
        self._out.print()
        self._out.print(line, no_wrap=True)

    def speech(self, text: str) -> None:
        """Print a message, as Markdown on a terminal."""
        if not self._live:
            self.body(text)
            return
        reply = Reply(self._out, whole=True)
        reply.write(text)
        reply.end()

    def body(self, text: str, style: StyleType = "") -> None:
        """Print a whole text."""
        whole(self._out, text, style)

    def typed(self, text: str) -> None:
        """Remember a text that a person has typed, so that it is not printed again."""
        self._typed = text

    def rule(self) -> None:
        """Draw a line below the conversation."""
        self.pause()
        self._out.print()
        if self._live:
            self._out.print(Rule(style="dim"))

    def _start(self, event: SessionStarted) -> None:
        width = self._out.width if self._live else None
        plain(self._out, one_line(event.title, width), "bold")
        self._people = event.people
        kind = "continues" if event.resumed else "starts"
        hint = " Ctrl-C pauses it." if self._live else ""
        if event.ended:
            kind, hint = "has already ended", " These are its messages."
        plain(self._out, f"Session {cell(event.session)} {kind}.{hint}", "dim")

    def _stream(self, event: MessageToken) -> None:
        if not self.shows(event):
            return
        if self._reply is None:
            self.head(event.speaker)
            self._reply = Reply(self._out)
            self._streamed = ""
        self._streamed += event.text
        self._reply.write(event.text)

    def unseen(self, heard: str, by: str) -> str:
        """Return the heard text without the messages that were printed since the last call."""
        # A speaker does not hear itself. Longer texts go first, as they may contain shorter ones.
        others = [(speaker, text) for speaker, text in self._shown if speaker != by]
        for speaker, text in sorted(others, key=lambda shown: -len(shown[1])):
            # With several speakers, the name precedes the message.
            said = f"{speaker}: {text}"
            heard = heard.replace(said if said in heard else text, "", 1) if text else heard
        self._shown.clear()
        return "\n\n".join(part for part in heard.split("\n\n") if part.strip())

    def _specified(self, event: TaskSpecified) -> None:
        self.head(_TASK)
        self.speech(event.text)
        if event.problem is not None:
            self.body(f"(The task was not rewritten: {one_line(event.problem)})", "dim")

    def _said(self, event: MessageSaid) -> None:
        audience = event.audience
        if (
            audience is not None
            and self._people
            and not {event.speaker, *audience} & {*self._people}
        ):
            # The person at this terminal must not see the message.
            words = f"says something only to {' and '.join(audience)}"
            self._aside(f"{event.speaker} {words if audience else 'notes something privately'}")
            return
        typed, self._typed = self._typed, None
        self._shown.append((event.speaker, event.text.strip()))
        is_typed = event.source is Source.HUMAN and event.text == typed
        heard = event.text if event.heard_text is None else event.heard_text
        if not is_typed and (self._reply is None or self._streamed != heard):
            self.head(event.speaker, event.id)
            self.speech(event.text)
        self.pause()
        for file in event.files:
            if (described := f"[{describe_file(file)}]") not in event.text:
                self.body(described, "dim")
        if audience is not None:
            self.body(f"({describe_audience(audience)}.)", "dim")
        if event.stop is not None:
            self.body(f"({event.stop}.)", "dim")
        if event.problem is not None:
            self.body(f"(Used despite a problem: {one_line(event.problem)})", "dim")

    def _inside(self, event: ThoughtReceived | VerdictGiven) -> None:
        """Print a thought or a verdict."""
        if isinstance(event, VerdictGiven):
            if event.verdict.findings:
                self._found(event.verdict)
            else:
                self._aside(remark(event))
        elif self._thoughts:
            self._aside(f"{event.speaker or 'A model'} thinks:")
            self.body(event.text, "dim")

    def _rejected(self, event: ReplyRejected) -> None:
        reply = self._reply
        if reply is None:
            self.head(event.speaker or _TASK, event.id)
        self.pause()
        # The tokens of the reply are already on the screen, and look like an accepted message.
        if reply is None or erase_lines(self._out, reply.lines):
            self.body(event.text, "dim strike" if self._live else "dim")
        how = describe_retry(event.stop)
        self.body(f"({how}: {one_line(event.problem)})", "dim")

    def _aside(self, text: str) -> None:
        if not text:
            return
        self.pause()
        plain(self._out, f"({one_line(text, self._out.width - 2 if self._live else None)})", "dim")

    def _found(self, verdict: Verdict) -> None:
        """Print a separate judge's findings, one line for each criterion."""
        self.pause()
        met = sum(finding is Finding.MET for finding in verdict.findings.values())
        plain(self._out, f"(The judge finds {met} of {len(verdict.findings)} criteria met.)", "dim")
        for text, finding in verdict.findings.items():
            row = f"  {finding.in_words:12}  "
            room = self._out.width - len(row) if self._live else None
            plain(self._out, row + one_line(text, room), "dim")
            if reason := verdict.describe_reason(text):
                plain(self._out, " " * len(row) + one_line(reason, room), "dim")

    def end(
        self, event: ConversationEnded, why: Callable[[], Iterable[OutcomeStep]] = tuple
    ) -> None:
        """Print how the session ended, with the last steps that led to the end."""
        self.pause()
        self._out.print()
        show_end(self._out, event, why)
        plain(self._out, f"Read it again: {self._follow_up.command('show', event.session)}", "dim")

    def colour(self, name: str) -> str:
        """Return the colour of a speaker's name."""
        return self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
