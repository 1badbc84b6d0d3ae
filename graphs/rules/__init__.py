"""The rules of a conversation, as pure functions."""
