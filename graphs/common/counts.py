"""Sums of tokens and costs."""

from collections.abc import Iterable
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Final

_IS_KNOWN: Final = partial(is_not, None)


class WithTokens:
    """A base class for data with the tokens of prompts and answers."""

    if TYPE_CHECKING:
        input_tokens: int
        output_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of the prompts and the answers."""
        return self.input_tokens + self.output_tokens


def sum_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the known costs. None if no cost is known."""
    # This runs after each model call, and `filter` calls no Python function here.
    known: list[float] = [*filter(_IS_KNOWN, costs)]  # type: ignore[list-item]
    return sum(known) if known else None
