"""The agreement of judges with the labels, and their cost, from stored verdicts."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from duologue.graphs.conversation.usage import add_usage, read_usage
from endings.intervals import Estimate, Table, kappa, mean, share
from endings.report import format_estimate, table
from endings.stored_verdicts import Head, StoredVerdict

AGREEMENT = (
    *("judge", "prefixes", "unreadable, %", "agreement, %"),
    *("yes too early, %", "missed, %", "κ"),
)

COST = (
    "judge",
    "calls",
    "input tokens",
    "output tokens",
    "cost of all",
    "estimated calls",
)


@dataclass(frozen=True)
class Agreement:
    """The verdicts of one judge compared with the labels. Estimates of nothing are None."""

    asked: int
    """Number of verdicts, readable or not."""
    unreadable: Estimate | None
    """Share of verdicts that could not be read. They count neither as yes nor as no."""
    agreement: Estimate | None
    """Share of readable verdicts that agree with the label."""
    early: Estimate | None
    """Share of yes among the readable verdicts on prefixes that should go on."""
    missed: Estimate | None
    """Share of no among the readable verdicts on prefixes that should be over."""
    kappa: Estimate | None
    """Cohen's κ of the readable verdicts, with a jackknife over dialogues."""
    calls: Estimate | None
    """Model calls by prefix."""
    input_tokens: Estimate | None
    """Prompt tokens by prefix."""
    output_tokens: Estimate | None
    """Answer tokens by prefix."""
    cost: float | None
    """Cost of all verdicts. None if no price is known."""
    estimated_calls: int
    """Number of calls whose tokens are estimated, because the model does not report them."""


def compare(verdicts: Sequence[StoredVerdict]) -> Agreement:
    """Compare the verdicts of one judge with the labels."""
    readable = [one for one in verdicts if one.says_over is not None]
    by_dialogue = defaultdict[str, list[StoredVerdict]](list)
    for one in readable:
        by_dialogue[one.key.dialogue].append(one)
    tables = [_count(part) for part in by_dialogue.values()]
    total = _count(readable)
    used = [add_usage(read_usage({"usage": one.usage}).values()) for one in verdicts]
    whole = add_usage(used)
    return Agreement(
        asked=len(verdicts),
        unreadable=share(len(verdicts) - len(readable), len(verdicts)),
        agreement=share(total.both + total.neither, len(readable)),
        early=share(total.rule, total.rule + total.neither),
        missed=share(total.label, total.label + total.both),
        kappa=kappa(tables),
        calls=mean([one.calls for one in used]),
        input_tokens=mean([one.input_tokens for one in used]),
        output_tokens=mean([one.output_tokens for one in used]),
        cost=whole.cost,
        estimated_calls=whole.estimated_calls,
    )


def _count(verdicts: Sequence[StoredVerdict]) -> Table:
    return Table.total(Table.of(rule=one.says_over is True, label=one.is_over) for one in verdicts)


def tables(head: Head, verdicts: Sequence[StoredVerdict]) -> list[str]:
    """Return the tables of agreement and of cost, and a line about the run, as Markdown."""
    judges = dict.fromkeys(one.key.judge for one in verdicts)
    found = {name: compare([one for one in verdicts if one.key.judge == name]) for name in judges}
    agreements = [
        [
            name,
            f"{one.asked:,} of {head.prefixes:,}",
            *(
                format_estimate(share and share.times(100), 1)
                for share in (one.unreadable, one.agreement, one.early, one.missed)
            ),
            format_estimate(one.kappa, 2),
        ]
        for name, one in found.items()
    ]
    costs = [
        [
            name,
            format_estimate(one.calls, 2),
            format_estimate(one.input_tokens, 0),
            format_estimate(one.output_tokens, 0),
            "–" if one.cost is None else f"{one.cost:.4f}",  # noqa: RUF001
            f"{one.estimated_calls:,}",
        ]
        for name, one in found.items()
    ]
    return [
        _describe_run(head, verdicts),
        table(AGREEMENT, agreements),
        table(COST, costs),
    ]


def _describe_run(head: Head, verdicts: Sequence[StoredVerdict]) -> str:
    dialogues = {one.key.dialogue for one in verdicts}
    sample = "all prefixes" if head.sample is None else f"a sample of {head.sample:,}"
    return (
        f"Model: {head.model}; half: {head.half}; {sample}, seed {head.seed}; stored: "
        f"{len(verdicts):,} verdicts about {len(dialogues):,} dialogues."
    )
