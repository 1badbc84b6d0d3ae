"""Tools that every conversation can name."""
