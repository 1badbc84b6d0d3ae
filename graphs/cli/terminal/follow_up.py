"""The end of a run on the terminal: its outcome, and commands that continue the session."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...common.addresses import show_address
from ...common.sanitize import clean
from ...ends.all_ends import Reason
from ...events import ConversationEnded
from ...rules.outcome import OutcomeStep, OutcomeStepKind
from ...session.status import money
from .console import on_screen, one_line, prose


@dataclass(frozen=True)
class FollowUp:
    """The options that are added to suggested commands, because no session stores them."""

    store: str | None = None
    """The store that was passed as an option, or None."""
    model: str | None = None
    """The model that was passed as an option, or None."""

    def command(
        self,
        verb: str,
        session: str,
        *,
        options: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> str:
        """Return the shell command that runs a subcommand of `duologue` on a session."""
        words = ["duologue", *verb.split()]
        if self.store is not None:
            words += ["--store", show_address(self.store)]
        if self.model is not None and verb in ("resume", "answer"):
            words += ["--model", self.model]
        words += options
        # An id that begins with a dash would be read as an option.
        words += ["--", session] if session.startswith("-") else [session]
        words += arguments
        return " ".join(shlex.quote(clean(word)) for word in words)

    def hint(self, session: str) -> str:
        """Return the line that suggests to resume a session."""
        return f"Continue with: {self.command('resume', session)}"


_STEPS = 3
"""Maximum number of steps to the end that are shown. `duologue show --why` shows all of them."""


def show_end(
    console: Console, event: ConversationEnded, why: Callable[[], Iterable[OutcomeStep]]
) -> None:
    """Print how a conversation ended, on a screen with the last steps that led to the end."""
    also = f"Also: {'; '.join(event.explanations[1:])}." if event.explanations[1:] else ""
    if not on_screen(console):
        prose(console, str(event), "bold")
        for warning in event.warnings:
            prose(console, warning, "yellow")
        if also:
            prose(console, also)
        console.print(Text(_used(event), "dim"), soft_wrap=True)
        return
    page = Table.grid()
    page.add_row(Text(one_line(str(event)), "bold"))
    for warning in event.warnings:
        page.add_row(Text(one_line(warning), "yellow"))
    if also:
        page.add_row(Text(one_line(also)))
    for cause in [one for one in why() if _led_there(one, event)][-_STEPS:]:
        # The border and its padding take four columns.
        page.add_row(Text(one_line(str(cause), console.width - 4), "dim"))
    page.add_row(Text(_used(event), "dim"))
    console.print(Panel(page, border_style="dim"))


def _led_there(cause: OutcomeStep, event: ConversationEnded) -> bool:
    """Return whether a step led to one of the reasons for the end."""
    if cause.kind is OutcomeStepKind.VERDICT:
        return Reason.COMPLETED in event.reasons
    return cause.message is not None and cause.reason in event.reasons


def _used(event: ConversationEnded) -> str:
    used = event.total
    calls = "1 model call" if used.calls == 1 else f"{used.calls:,} model calls"
    tokens = f"{used.input_tokens:,} tokens read, {used.output_tokens:,} written"
    spent = f", {money(used.cost)} spent" if used.cost else ""
    return f"{calls}, {tokens}{spent}."
