"""How a long history is told in short, and how its summary is asked for."""

from .template import fill_template as fill_template
from .texts import PROMPTS

SUMMARY_HEADING = PROMPTS["summary_heading"]
"""How a speaker is told the summary of what its prompt leaves out."""

SUMMARY_ROLE = PROMPTS["summary_role"]

SUMMARY_REQUEST = PROMPTS["summary_request"]

NO_EARLIER_SUMMARY = PROMPTS["no_earlier_summary"]

SHORTENED = """What {name} has heard and said is too long for the model: the older half is left \
out from here on."""
"""What a user is told when a history does not fit."""
