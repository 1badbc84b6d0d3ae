"""A scripted chat model, for testing conversations without a real one.

The same over HTTP is `duologue.nodes.testing.server.ScriptedServer`.
"""

from .chat_model import Call, Purpose, ScriptedChatModel
from .replies import Reply, ScriptedToolCall
from .script import Line, Prompt, Script, ScriptExhaustedError

__all__ = [
    "Call",
    "Line",
    "Prompt",
    "Purpose",
    "Reply",
    "Script",
    "ScriptExhaustedError",
    "ScriptedChatModel",
    "ScriptedToolCall",
]
