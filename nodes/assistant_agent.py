"""The node for the turns of every speaker except the first."""

from .turn.speak import speak as assistant_agent

__all__ = ["assistant_agent"]
