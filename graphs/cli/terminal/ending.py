"""How a conversation ended, and what it used: a panel on a terminal, lines elsewhere."""

from collections.abc import Callable, Iterable

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...ends.all_ends import Reason
from ...events import ConversationEnded
from ...rules.ends.outcome_step import OutcomeStep, OutcomeStepKind
from ...run.remarks import money
from .console import on_screen, prose
from .text import one_line

_STEPS = 3
"""How many of the steps that led to the end are shown; `duologue show --why` shows all."""


def show_end(
    console: Console, event: ConversationEnded, why: Callable[[], Iterable[OutcomeStep]]
) -> None:
    """Show how a conversation ended; on a terminal with the last steps that led there."""
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
    """Whether a step on the way led to a reason that held."""
    if cause.kind is OutcomeStepKind.VERDICT:
        return Reason.COMPLETED in event.reasons
    return cause.message is not None and cause.reason in event.reasons


def _used(event: ConversationEnded) -> str:
    used = event.total
    calls = "1 model call" if used.calls == 1 else f"{used.calls:,} model calls"
    tokens = f"{used.input_tokens:,} tokens read, {used.output_tokens:,} written"
    spent = f", {money(used.cost)} spent" if used.cost else ""
    return f"{calls}, {tokens}{spent}."
