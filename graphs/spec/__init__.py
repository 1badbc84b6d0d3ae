"""What a conversation is, as data."""
