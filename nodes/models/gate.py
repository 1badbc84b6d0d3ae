"""What the model calls of many sessions pass together: it holds them back, or lets none through."""

from typing import Protocol

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
