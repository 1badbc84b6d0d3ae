"""The results of tool calls that were not run."""

NOT_RUN = "Not run: the same call with the same arguments was repeated too often."
"""The result of a call that a guard has stopped."""
