"""Loops of tool calls, by a written rule."""

import json
from collections.abc import Sequence

from rapidfuzz.distance import Indel

from endings.dialogue import Call, Case, Label, Origin, Turn

LOOKS_LIKE = 3
"""Number of equal calls in a row that look like a loop."""
FOUND_BY = 5
"""Number of equal calls by which a runaway loop should be found."""
NEVER_LEFT = 10
"""Length of a row that is always a runaway loop."""


def loop_label(turns: Sequence[Turn], label: Label) -> Label:
    """Return the label of a dialogue with a row of equal calls, or `label` if it has none.

    Calls are equal if their tool and arguments are equal, in one speaker's turn: between two of its
    messages. A row at the end of the record, or of ten calls, is a runaway loop, which should end
    at the fifth call; an end from the third call on does as well. Any other row of three is a
    retry: the dialogue recovered, and its end stays.
    """
    row, latest, retried = 0, None, False
    reached: dict[int, int] = {}
    for place, turn in enumerate(turns, 1):
        if not turn.calls:
            row, latest = 0, None
        for call in turn.calls:
            key = (turn.speaker, call.name, dict(call.arguments))
            if key != latest:
                reached = {}
            row = row + 1 if key == latest else 1
            latest = key
            reached[row] = place
            retried = retried or row >= LOOKS_LIKE
        ends_in_it = place == len(turns) and row >= FOUND_BY
        if row >= NEVER_LEFT or ends_in_it:
            return Label(
                Case.RUNAWAY, reached[FOUND_BY], Origin.RULE, reached[LOOKS_LIKE], signalled=True
            )
    return (
        Label(Case.RETRY, label.end, Origin.RULE, label.earliest, label.signalled)
        if retried and label.case is not Case.EARLY_WORD
        else label
    )


ALIKE = 0.9
"""Similarity of the arguments, as JSON, above which two calls with equal results are alike."""


def count_different(calls: Sequence[Call]) -> int:
    """Return the number of calls that are not alike: with other arguments or other results."""
    different: list[Call] = []
    for call in calls:
        if not any(_are_alike(call, one) for one in different):
            different.append(call)
    return len(different)


def _are_alike(one: Call, other: Call) -> bool:
    if (one.name, one.result) != (other.name, other.result):
        return False
    texts = (json.dumps(dict(call.arguments), sort_keys=True) for call in (one, other))
    return Indel.normalized_similarity(*texts) > ALIKE
