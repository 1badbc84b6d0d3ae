"""The node that speaks for the first of the speakers."""

from typing import Any

from ..graphs.log.state import State
from .turn.node_context import Resources
from .turn.speak import speak


async def user_agent(state: State, resources: Resources) -> dict[str, Any]:
    """Let the first of the speakers speak, or call tools."""
    return await speak(state, resources)
