"""What a conversation is, each kind of it, and how one is run: the public API."""
