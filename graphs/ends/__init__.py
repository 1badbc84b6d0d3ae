"""The ends and guards of a conversation, one class each."""
