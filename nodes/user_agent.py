"""The node for the turns of the first speaker."""

from typing import Any

from ..graphs.log.state import State
from .turn.node_context import Resources
from .turn.speak import speak


async def user_agent(state: State, resources: Resources) -> dict[str, Any]:
    """Run a step of the first speaker's turn."""
    return await speak(state, resources)
