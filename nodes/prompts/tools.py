"""What is told of calls of tools that were not run."""

NOT_RUN = "Not run: it was called again and again with equal arguments."
"""What came of a call that a guard has stopped."""
