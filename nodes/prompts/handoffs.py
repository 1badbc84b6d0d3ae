"""What a speaker is told of naming who speaks next."""

from .texts import PROMPTS

HAND_OFF = PROMPTS["hand_off"]
"""How the tool is described; of its arguments the next three are."""
HAND_OFF_TO = PROMPTS["hand_off_to"]
HAND_OFF_MESSAGE = PROMPTS["hand_off_message"]
HAND_OFF_PRIVATE = PROMPTS["hand_off_private"]

HAND_OFF_ACCEPTED = PROMPTS["hand_off_accepted"]
"""What came of a call; of the next one where another call came first."""
HAND_OFF_IGNORED = PROMPTS["hand_off_ignored"]
HAND_OFF_REFUSED = PROMPTS["hand_off_refused"]

PRIVATE_MESSAGE = PROMPTS["private_message"]
"""How what only some hear is marked for them."""
