"""The results of code that has no output, or was not run."""

NOT_CLOSED = "The code was not run because its fence is not closed. It may be incomplete."
"""The result of code that breaks off, for example because the reply was cut off."""

PRINTED_NOTHING = "The code ran and printed nothing."
NO_OUTPUT = "(nothing)"
"""The text for an empty output, whether the code succeeded or failed."""
