"""The node for the turns of the first speaker."""

from .turn.speak import speak as user_agent

__all__ = ["user_agent"]
