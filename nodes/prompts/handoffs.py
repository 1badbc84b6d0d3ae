"""What a speaker is told of naming who speaks next."""

from .texts import PROMPTS

HAND_OFF = PROMPTS["hand_off"]
"""How the tool is described; of its arguments the next three are."""
TO = PROMPTS["hand_off_to"]
MESSAGE = PROMPTS["hand_off_message"]
PRIVATE = PROMPTS["hand_off_private"]

SPEAKS_NEXT = PROMPTS["speaks_next"]
"""What came of a call; of the next one where another call came first."""
ONLY_ONE = PROMPTS["only_one_next"]
NOT_NEXT = PROMPTS["not_next"]

TO_YOU_ALONE = PROMPTS["to_you_alone"]
"""How what only some hear is marked for them."""
