"""Rules about texts, whatever they are about. Pure functions."""
