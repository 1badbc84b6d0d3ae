"""The least limit of a speaker's context: what always stands in its prompts, and some room."""

from collections.abc import Callable

from pydantic import BaseModel

from ...nodes.prompts.summaries import SUMMARY_HEADING
from ..common.errors import SpecError
from ..speakers.context import RunningSummary, TokenBudget
from ..speakers.speaker import Speaker
from ..text.tokens import tokens_of_texts
from .fields import ConversationFields

ROOM = 64
"""The least room for what is said, in tokens, that a prompt must have beside what always stands
in it."""

_TOKENS_PER_WORD = 2


def tokens_of_summary(words: int) -> int:
    """Estimate the tokens of the message that tells a summary of so many words."""
    return tokens_of_texts([SUMMARY_HEADING]) + words * _TOKENS_PER_WORD


def fixed_tokens(
    conversation: ConversationFields,
    speaker: Speaker,
    task: str | None,
    schema: type[BaseModel] | None = None,
) -> int:
    """Estimate the tokens of what stands in front of each prompt of a speaker."""
    system = conversation.system_prompt(speaker, task, schema)
    examples = [str(example.text) for example in speaker.examples]
    return tokens_of_texts([system, *examples])


def has_limits(conversation: ConversationFields) -> bool:
    """Return whether a speaker's prompts are limited to a number of tokens."""
    return any(
        isinstance(one.context, TokenBudget | RunningSummary) for one in conversation.speakers
    )


def check_limits(
    conversation: ConversationFields, least: Callable[[Speaker], int], more: str
) -> None:
    """Make sure that limits on speakers' prompts leave room for a message."""
    for number, speaker in enumerate(conversation.speakers):
        if not isinstance(speaker.context, TokenBudget | RunningSummary):
            continue
        needed, limit = least(speaker), speaker.context.limit
        if limit < needed:
            raise SpecError(
                f"speakers.{number}.context.limit: {limit} tokens are too few for what always "
                f"stands in a prompt of {speaker.name!r}{more} and a message: give {needed} or more"
            )


def least_limit(
    conversation: ConversationFields, speaker: Speaker, schema: type[BaseModel] | None = None
) -> int:
    """Give the least number of tokens that a speaker's context can be limited to."""
    opening = speaker.private_opening
    told = [] if opening is None else [*opening.lines, opening.prompt or ""]
    if conversation.opening.answers:
        who = conversation.speakers if conversation.opening.reconcile else (speaker,)
        told += [one.task or "" for one in who]
    context = speaker.context
    summary = tokens_of_summary(context.words) if isinstance(context, RunningSummary) else 0
    standing = fixed_tokens(conversation, speaker, conversation.task, schema) + summary
    return standing + tokens_of_texts(text for text in told if text) + ROOM
