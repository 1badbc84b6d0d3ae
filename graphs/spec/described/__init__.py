"""A conversation in words, for who reads it."""
