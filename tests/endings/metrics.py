"""The metrics of the benchmark, defined before the first run.

A *turn* is a message of a speaker, or a message with which it calls tools: one model call. A record
is fed turn by turn; `scoring.Outcome` classifies the result.

premature
    Stops before the earliest right end, divided by all dialogues.
missed
    Ends that were not found, divided by the dialogues that have a decidable end within the record:
    a sign shows it, later turns show it, or it was found.
delay
    Turns between the labelled end and the stop, of right and late stops: the median, and the value
    that 90 % do not exceed.
false stops
    Premature stops per 1,000 turns after which the dialogue should have continued.
cost
    Model calls and tokens spent on deciding, per dialogue.
κ
    Cohen's κ between the labels and the rules over prefixes: after each turn that was fed, should
    the dialogue be over, and did it stop? Prefixes that cannot be decided are left out.
ties, undecidable, left out
    Counted apart: stops between the earliest and the labelled end, records that end without a
    sign, and prefixes that κ leaves out. They are neither right nor wrong.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from endings.intervals import Estimate, kappa, mean, quantile, share
from endings.scoring import Outcome, Scored


@dataclass(frozen=True)
class Metrics:
    """The metrics of a group of dialogues. None if there is nothing to compute them from."""

    dialogues: int
    turns: int
    outcomes: Counter[Outcome]
    premature: Estimate | None
    missed: Estimate | None
    delay: Estimate | None
    delay_90: Estimate | None
    false_stops: Estimate | None
    calls: Estimate | None
    tokens: Estimate | None
    kappa: Estimate | None
    left_out: int


def measure(scored: Sequence[Scored]) -> Metrics:
    """Compute the metrics of a group of dialogues."""
    outcomes = Counter(one.outcome for one in scored)
    decidable = sum(one.has_end for one in scored)
    delays = [one.delay for one in scored if one.delay is not None]
    going = sum(one.going for one in scored)
    premature = outcomes[Outcome.PREMATURE]
    false_stops = share(premature, going)
    return Metrics(
        dialogues=len(scored),
        turns=sum(len(one.dialogue.turns) for one in scored),
        outcomes=outcomes,
        premature=share(premature, len(scored)),
        missed=share(outcomes[Outcome.MISSED], decidable),
        delay=quantile(delays, 0.5),
        delay_90=quantile(delays, 0.9),
        false_stops=false_stops and false_stops.times(1000),
        calls=mean([one.calls for one in scored]),
        tokens=mean([one.tokens for one in scored]),
        kappa=kappa([one.prefixes for one in scored]),
        left_out=sum(one.left_out for one in scored),
    )
