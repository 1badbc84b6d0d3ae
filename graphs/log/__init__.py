"""The log of all that was said, and how it is read."""
