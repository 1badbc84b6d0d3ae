"""Context policies: which part of a long log is put into a prompt."""
