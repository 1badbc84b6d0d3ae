"""The node that speaks for every speaker but the first."""

from typing import Any

from ..graphs.log.state import State
from .turn.node_context import Resources
from .turn.speak import speak


async def assistant_agent(state: State, resources: Resources) -> dict[str, Any]:
    """Let a speaker other than the first speak, or call tools."""
    return await speak(state, resources)
