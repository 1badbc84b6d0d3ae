"""What is told of code that was run, or was not."""

NOT_CLOSED = "The code was not run: its fence is not closed, so it may not be whole."
"""What came of code that breaks off, as where a reply was cut off."""

PRINTED_NOTHING = "The code ran and printed nothing."
NO_OUTPUT = "(nothing)"
"""What stands for no output: of code that ran, and of code that failed."""
