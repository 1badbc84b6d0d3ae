"""The public names, and where each is."""

from .registry.hooks import Hook as Hook, Turn as Turn
from .registry.state import RunCode as RunCode, ToolState as ToolState
