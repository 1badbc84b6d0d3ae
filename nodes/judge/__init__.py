"""Judges, and the moderator who chooses the next speaker."""
