"""Sessions: running a conversation, resuming it, answering, forking, dumping and replaying it."""
