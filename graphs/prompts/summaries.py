"""The prompts of summaries: the request for one, and how a speaker gets it."""

from .texts import PROMPTS, fill_template as fill_template

SUMMARY_HEADING = PROMPTS["summary_heading"]
"""The summary in the speaker's prompt, in place of the messages that are left out."""

SUMMARY_ROLE = PROMPTS["summary_role"]

SUMMARY_REQUEST = PROMPTS["summary_request"]

NO_EARLIER_SUMMARY = PROMPTS["no_earlier_summary"]

SHORTENED = """The history of {name} is too long for the model. Its older half is left out from \
now on."""
"""The notice for the user if a history does not fit."""
