"""What the model calls of many sessions pass together: it holds them back, or lets none through."""

from typing import Protocol

from ...graphs.common.errors import PausedError
from ...graphs.spec.usage import Usage


class Gate(Protocol):
    """What each model call of a run passes."""

    needs_prices: bool
    """Whether it counts money, so that each model must have a price."""

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called.

        Args:
            model: The model's label.
            tokens: About how many tokens the prompt has.

        Raises:
            PausedError: No more calls are made for now. The session can be resumed.
        """

    def count(self, model: str, used: Usage) -> None:
        """Count what one answered call has used."""

    def refused(self, model: str, seconds: float | None) -> None:
        """Hold back all calls of a model, whose server refuses them for now.

        Args:
            model: The model's label.
            seconds: For how long the server asks. None: it does not say.
        """


class Unbroken:
    """A gate for what is recorded as one: once a call of it was answered, it is not paused.

    Else that call would be made again.
    """

    def __init__(self, gate: Gate) -> None:
        self.needs_prices = gate.needs_prices
        self.refused = gate.refused
        self._gate = gate
        self._is_answered = False

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called."""
        try:
            await self._gate.enter(model, tokens)
        except PausedError:
            if not self._is_answered:
                raise

    def count(self, model: str, used: Usage) -> None:
        """Count what one answered call has used."""
        self._is_answered = True
        self._gate.count(model, used)
