"""Every way to end a conversation: a class each, in a module for each strength."""
