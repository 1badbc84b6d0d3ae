"""What a conversation is, as data: its task, its speakers, its judges, its limits."""
