"""A speaker's turn, from its prompt to what enters the log."""
