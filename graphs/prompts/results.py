"""The results of calls and code blocks that did not run or that have no output, and of files."""

from .texts import PROMPTS

NOT_CLOSED = "The code was not run because its fence is not closed. It may be incomplete."
"""The result of incomplete code, for example because the reply was cut off."""

PRINTED_NOTHING = "The code ran and printed nothing."
NO_OUTPUT = "(nothing)"
"""The text for an empty output, whether the code succeeded or failed."""


RESULT_FILES = PROMPTS["result_files"]
"""The text before the images and other files of tool results, in a message of the user."""

LEFT_OUT = PROMPTS["left_out"]
"""The mark in a text that is shortened in a prompt."""

NOT_RUN = "Not run: the same call with the same arguments was repeated too often."
"""The result of a call that a guard has blocked."""
