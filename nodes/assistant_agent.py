"""The node for the turns of every speaker except the first."""

from typing import Any

from ..graphs.log.state import State
from .turn.node_context import Resources
from .turn.speak import speak


async def assistant_agent(state: State, resources: Resources) -> dict[str, Any]:
    """Run a step of the turn of a speaker other than the first."""
    return await speak(state, resources)
