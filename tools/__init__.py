"""What a speaker may call, and where functions of the user's own step in."""

# As in `duologue.nodes`: whichever a program imports first, the graphs begin.
import duologue.graphs  # noqa: F401
from duologue.tools.hooks import Hook, Turn
from duologue.tools.state import RunCode, ToolState

__all__ = ["Hook", "RunCode", "ToolState", "Turn"]
