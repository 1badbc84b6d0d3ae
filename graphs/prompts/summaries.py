"""The prompts of summaries: the request for a summary, and its form in a speaker's prompt."""

from .texts import PROMPTS, fill_template as fill_template

SUMMARY_HEADING = PROMPTS["summary_heading"]
"""The summary in a speaker's prompt. It replaces the messages that are left out."""

SUMMARY_ROLE = PROMPTS["summary_role"]

SUMMARY_REQUEST = PROMPTS["summary_request"]

NO_EARLIER_SUMMARY = PROMPTS["no_earlier_summary"]

SHORTENED = """The history of {name} is too long for the model. Its older half is left out from \
now on."""
"""The notice for the user if a history does not fit into the model's context."""

SHORTENED_MESSAGES = """The newest messages are too long for the model of {name}. They are \
shortened in its prompts until its turn ends."""
"""The notice for the user if a single turn does not fit into the model's context."""
