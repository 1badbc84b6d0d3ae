"""Sessions: running a conversation, resuming it, answering, forking and dumping it."""
