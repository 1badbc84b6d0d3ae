"""The public names, and where each is."""

from .registry.hooks import Hook as Hook, RunCode as RunCode, ToolState as ToolState, Turn as Turn
