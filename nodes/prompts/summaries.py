"""How a long history is told in short, and how its summary is asked for."""

from .template import filled as filled
from .texts import PROMPTS

IN_SHORT = PROMPTS["in_short"]
"""How a speaker is told the summary of what its prompt leaves out."""

SUMMARISER = PROMPTS["summariser"]

SUMMARISE = PROMPTS["summarise"]

NOTHING_BEFORE = PROMPTS["nothing_before"]

SHORTENED = """What {name} has heard and said is too long for the model: the older half is left \
out from here on."""
"""What a user is told when a history does not fit."""
