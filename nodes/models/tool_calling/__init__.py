"""Calls of tools on their way to and from a model."""
