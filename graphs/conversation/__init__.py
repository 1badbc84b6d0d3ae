"""A conversation as data: its task, its speakers, its judges and its limits."""
