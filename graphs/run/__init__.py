"""Running a conversation: from a spec or a session to its events and its outcome."""
