"""The prompts of a handoff: the tool ``hand_off``, its arguments and its results."""

from .texts import PROMPTS

HAND_OFF = PROMPTS["hand_off"]
"""The description of the tool. The next three prompts describe its arguments."""
HAND_OFF_TO = PROMPTS["hand_off_to"]
HAND_OFF_MESSAGE = PROMPTS["hand_off_message"]
HAND_OFF_PRIVATE = PROMPTS["hand_off_private"]

HAND_OFF_ACCEPTED = PROMPTS["hand_off_accepted"]
"""The result of a call that chose the next speaker."""
HAND_OFF_IGNORED = PROMPTS["hand_off_ignored"]
"""The result of a further call after the next speaker is chosen."""
HAND_OFF_REFUSED = PROMPTS["hand_off_refused"]
"""The result of a call with a name that cannot be chosen."""
HAND_OFF_UNDONE = PROMPTS["hand_off_undone"]
"""The result of a call beside other calls, one of which has failed."""

PRIVATE_MESSAGE = PROMPTS["private_message"]
"""The label of a private message, for the speakers who receive it."""
