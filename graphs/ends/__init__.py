"""The end conditions and guards of a conversation, one class each."""
