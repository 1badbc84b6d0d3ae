"""The type of a hook, re-exported from the registry of tools."""

from ...tools.registry.hooks import Hook as Hook
