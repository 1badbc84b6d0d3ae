"""What a speaker may call, and where functions of the user's own step in."""

from duologue.tools.hooks import Hook, Turn

__all__ = ["Hook", "Turn"]
