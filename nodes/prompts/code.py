"""What is told of code that was run, or was not."""

NOT_CLOSED = "The code was not run: its fence is not closed, so it may not be whole."
"""What came of code that breaks off, as where a reply was cut off."""
