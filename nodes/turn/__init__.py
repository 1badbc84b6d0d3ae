"""A speaker's turn, from its prompt to its messages in the log."""
