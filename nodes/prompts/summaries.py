"""How a long history is told in short, and how its summary is asked for."""

from .template import filled as filled

IN_SHORT = """What was said before this, in short:
{summary}"""
"""How a speaker is told the summary of what its prompt leaves out."""

SUMMARISER = """You keep the memory of {me}, who takes part in a long conversation. What you \
write is all that {me} will still know of the part you read."""

SUMMARISE = """What {me} knew of the time before:
{before}

What came then:
{transcript}

Sum up both in one, in at most {words} words, so that {me} can go on: what was agreed, found, done \
and asked, with names and numbers, and what is still open. Leave out what no longer matters. \
Write the summary and nothing else."""

NOTHING_BEFORE = "(nothing)"

SHORTENED = """What {name} has heard and said is too long for the model: the older half is left \
out from here on."""
"""What a user is told when a history does not fit."""
