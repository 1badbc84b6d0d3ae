"""Dumps: sessions and memories as plain JSON."""
