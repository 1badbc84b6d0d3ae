"""A scripted chat model, for testing conversations without a real model.

`duologue.nodes.testing.server.ScriptedServer` plays the same scripts over HTTP.
"""

from .chat_model import Call, Purpose, ScriptedChatModel
from .script import Line, Prompt, Reply, Script, ScriptedToolCall, ScriptExhaustedError

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
