"""Public names, and the module of each."""

from .registry.hooks import Hook as Hook, RunCode as RunCode, ToolState as ToolState, Turn as Turn
