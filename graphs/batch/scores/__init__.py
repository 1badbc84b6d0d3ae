"""Scores: functions that say how good a session is that has ended, found by name and called."""
