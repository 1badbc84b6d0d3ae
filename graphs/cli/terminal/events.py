"""The printed events of a run: streamed on a terminal, as whole messages elsewhere.

On a terminal, a message is plain while it streams, and then Markdown block by block. A block is the
text between blank lines, or fenced code. The words of a block are written as they arrive. When a
block is complete and has any markup, it is erased and written again as Markdown. So each part of
the screen changes at most once.

`graphs.cli.run` runs the session; `graphs.session.events` describes events in sentences.
"""

from collections.abc import Callable, Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.segment import SegmentLines
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from ...common.content import describe_file
from ...common.sanitize import clean
from ...conversation.judges import Finding, Verdict
from ...ends.end_chat import Reason
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
from ...rules.outcome import OutcomeStep, OutcomeStepKind
from ...rules.why import describe_audience, describe_kept_task, describe_retry
from ...session.events import describe_event
from ...session.progress import money
from ...text.structures import MARKS
from ..follow_up import FollowUp
from .console import Flow, cell, erase_lines, on_screen, one_line, plain, prose, show_count, whole

_STEPS = 3
"""Maximum number of steps to the end that are shown. `duologue show --why` shows all of them."""


class Reply:
    """A writer that prints a message on a terminal, as the message arrives or whole."""

    def __init__(self, console: Console, *, whole: bool = False) -> None:
        self.lines = 0
        """Number of finished lines."""
        self._console = console
        self._is_whole = whole
        self._held = ""  # the possible beginning of a line break or a fence
        self._line = ""  # the written part of the line
        self._block = ""
        self._flow: Flow | None = None
        self._fence = ""
        self._gap = 0

    def write(self, text: str) -> None:
        """Write a piece of the text."""
        text = self._held + text
        back = len(text) - len(text.removesuffix("\r"))
        self._held = text[len(text) - back :]
        for line in clean(text[: len(text) - back]).splitlines(keepends=True):
            if line.endswith("\n"):
                self._ends(line)
            elif not self._line and any(
                mark.startswith(line.lstrip()) or line.lstrip().startswith(mark) for mark in MARKS
            ):
                # It may become the opening of a fence.
                self._held = line + self._held
            else:
                self._put(line)
                self._line += line

    def end(self) -> None:
        """Write the rest of the text, and end the line."""
        held, self._held = self._held, ""
        if held or self._line:
            self._ends(clean(held) + "\n")
        self._close()

    def _ends(self, rest: str) -> None:
        """Process the end of a line."""
        line, self._line = (self._line + rest).strip(), ""
        if self._fence:
            self._put(rest)
            if line.startswith(self._fence) and not line.strip(self._fence[0]):
                self._close()
        elif mark := _opening_mark(line):
            self._close()
            self._fence = mark
            self._put(rest)
        elif line:
            self._put(rest)
        else:
            self._close()
            self._gap += 1

    def _put(self, text: str) -> None:
        if self._flow is None:
            if self.lines:
                # There may be no blank line before or after code.
                gap = max(1, self._gap)
                self._console.print("\n" * gap, end="")
                self.lines += gap
            self._gap = 0
            self._flow = Flow(self._console)
        self._block += text
        if not self._is_whole:
            self._flow.write(text)

    def _close(self) -> None:
        """End the current block, and write it as Markdown if it has any markup."""
        flow, block, self._flow, self._block, self._fence = self._flow, self._block, None, "", ""
        if flow is None:
            return
        # Imported late: rich's Markdown and Pygments are needed only on a terminal.
        from .markdown import render_block

        lines = render_block(block, self._console)
        if self._is_whole and lines is None:
            flow.write(block)
        # In one write, so that the screen never shows the erased block.
        with self._console:
            flow.end()
            if lines is None or not erase_lines(self._console, flow.lines):
                self.lines += flow.lines
                return
            self._console.print(SegmentLines(lines, new_lines=True), end="")
            self.lines += len(lines)


def _opening_mark(line: str) -> str:
    """Return the mark of a line that opens a fence, or an empty text."""
    for mark in MARKS:
        if line.startswith(mark):
            rest = line.lstrip(mark[0])
            return "" if "`" in rest else line[: len(line) - len(rest)]
    return ""


# Legible on a light and on a dark background. Red is for errors.
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")

_TASK = "Task"


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
                self._show_task(event)
            case MessageStarted() | QuestionAsked():
                # A message that starts again replaces the streamed part. A question is printed by
                # the code that reads its answer.
                self.pause()
            case MessageToken():
                self._stream(event)
            case MessageSaid():
                self._show_message(event)
            case ReplyRejected():
                self._show_draft(event)
            case ThoughtReceived() | VerdictGiven():
                self._show_note(event)
            case ConversationEnded():
                self.end(event)
            case _:
                self._aside(describe_event(event))

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

    def remember_typed(self, text: str) -> None:
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

    def _show_task(self, event: TaskSpecified) -> None:
        self.head(_TASK)
        self.speech(event.text)
        if event.problem is not None:
            self.body(f"({describe_kept_task(one_line(event.problem))})", "dim")

    def _show_message(self, event: MessageSaid) -> None:
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

    def _show_note(self, event: ThoughtReceived | VerdictGiven) -> None:
        if isinstance(event, VerdictGiven) and event.verdict.findings:
            self._show_findings(event.verdict)
        elif isinstance(event, VerdictGiven):
            self._aside(describe_event(event))
        elif self._thoughts:
            self._aside(f"{event.speaker or 'A model'} thinks:")
            self.body(event.text, "dim")

    def _show_draft(self, event: ReplyRejected) -> None:
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

    def _show_findings(self, verdict: Verdict) -> None:
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
        """Print how the session ended, on a screen with the last steps that led to the end."""
        self.pause()
        out = self._out
        out.print()
        lines = [(str(event), "bold"), *((warning, "yellow") for warning in event.warnings)]
        if also := event.explanations[1:]:
            lines.append((f"Also: {'; '.join(also)}.", ""))
        causes = [one for one in why() if _is_cause(one, event)] if self._live else []
        # The border and its padding take four columns.
        steps = [one_line(str(cause), out.width - 4) for cause in causes[-_STEPS:]]
        used = event.total
        tokens = f"{used.input_tokens:,} tokens read, {used.output_tokens:,} written"
        spent = f", {money(used.cost)} spent" if used.cost else ""
        calls = f"{show_count(used.calls, 'model call')}, {tokens}{spent}."
        lines += [(text, "dim") for text in (*steps, calls)]
        if self._live:
            page = Table.grid()
            for text, style in lines:
                page.add_row(Text(one_line(text), style))
            out.print(Panel(page, border_style="dim"))
        else:
            for text, style in lines:
                prose(out, text, style)
        plain(out, f"Read it again: {self._follow_up.command('show', event.session)}", "dim")

    def colour(self, name: str) -> str:
        """Return the colour of a speaker's name."""
        return self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])


def _is_cause(cause: OutcomeStep, event: ConversationEnded) -> bool:
    """Return whether a step led to one of the reasons for the end."""
    if cause.kind is OutcomeStepKind.VERDICT:
        return Reason.COMPLETED in event.reasons
    return cause.message is not None and cause.reason in event.reasons
