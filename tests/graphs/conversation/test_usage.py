"""Sums of usage, with models whose prices are known and models whose prices are not."""

import pytest

from duologue.graphs.conversation.usage import Usage, add_usage


@pytest.mark.parametrize(
    ("costs", "total"),
    [
        ([], None),
        ([None, None], None),
        ([0.0], 0.0),
        ([None, 0.0], 0.0),
        ([None, 0.25, 0.5], 0.75),
    ],
)
def test_a_total_cost_is_unknown_only_if_no_price_is_known(
    costs: list[float | None], total: float | None
) -> None:
    used = add_usage(Usage(calls=1, input_tokens=2, output_tokens=3, cost=cost) for cost in costs)
    assert used.cost == total
    assert (used.calls, used.tokens) == (len(costs), 5 * len(costs))
