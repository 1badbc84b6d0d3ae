"""A speaker, as data."""
