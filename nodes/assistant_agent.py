"""The node that speaks for every speaker but the first."""

from typing import Any

from ..graphs.log.state import State
from .step.resources import Resources
from .turn.speak import speak


async def assistant_agent(state: State, resources: Resources) -> dict[str, Any]:
    """Let every speaker but the first speak, or call tools: whose turn it is stands in the state.

    Args:
        state: The session's state.
        resources: Models and functions.

    Returns:
        The update of the state; `nodes.turn.speak.speak` says what it may raise.
    """
    return await speak(state, resources)
