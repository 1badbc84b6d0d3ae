"""Rules about texts, independent of conversations. Pure functions."""
