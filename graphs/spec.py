"""The spec of a conversation, as data."""
