"""The type of a hook, which is defined beside the registry of tools."""

from ...tools.registry.hooks import Hook as Hook
