"""How many tokens a text takes, about: an estimate that needs no tokenizer and no network."""

import json
from collections.abc import Callable, Iterable

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel

from duologue.graphs.context import RunningSummary, TokenBudget
from duologue.graphs.errors import SpecError
from duologue.graphs.speaker import Speaker
from duologue.graphs.spec import Conversation

MESSAGE_TOKENS = 8
"""What a message takes beside its text: the marks around it, its role and its name."""

ROOM = 64
"""The least room for what is said, in tokens, that a prompt must have beside what always stands
in it."""

# Prompts are made of specs, which are checked by what is here: they are imported when needed.
_BYTES = 3
_TOKENS_PER_WORD = 2


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text.

    A token for every three bytes of UTF-8: a Chinese character is three bytes and about one token,
    and an English token is four bytes or more, so that the estimate is rather too high there.

    Args:
        text: Any text.

    Returns:
        The number of tokens, without what a message takes beside its text.
    """
    return -(-len(text.encode("utf-8", "replace")) // _BYTES)


def tokens_of_message(message: BaseMessage, label: str = "") -> int:
    """Estimate the tokens of a message in a prompt, its calls of tools included.

    Args:
        message: The message.
        label: What stands in front of its text.

    Returns:
        The number of tokens.
    """
    tokens = MESSAGE_TOKENS + tokens_of(label + message.text)
    if isinstance(message, AIMessage):
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            args = call["args"]
            written = args if isinstance(args, str) else json.dumps(args)
            tokens += MESSAGE_TOKENS + tokens_of(f"{call['name']}{call['id']}{written}")
    return tokens


def tokens_of_texts(texts: Iterable[str]) -> int:
    """Estimate the tokens of texts that are a message each."""
    return sum(MESSAGE_TOKENS + tokens_of(text) for text in texts)


def tokens_of_summary(words: int) -> int:
    """Estimate the tokens of the message that tells a summary of so many words."""
    from duologue.nodes import prompts

    return tokens_of_texts([prompts.IN_SHORT]) + words * _TOKENS_PER_WORD


def fixed_tokens(
    conversation: Conversation,
    speaker: Speaker,
    task: str | None,
    schema: type[BaseModel] | None = None,
) -> int:
    """Estimate the tokens of what stands in front of each prompt of a speaker.

    Args:
        conversation: The spec.
        speaker: The speaker.
        task: The task of all, as specified; None where each has its own.
        schema: The pydantic model that the speaker's format names, where it is a `Schema`.

    Returns:
        The tokens of its system prompt and of its examples.
    """
    from duologue.nodes import prompts

    system = prompts.system_prompt(conversation, speaker, task, schema)
    examples = [example.content for example in speaker.examples]
    return tokens_of_texts([system, *examples])


def check_limits(conversation: Conversation, least: Callable[[Speaker], int], more: str) -> None:
    """Make sure that limits on speakers' prompts leave room for a message.

    Args:
        conversation: The spec.
        least: Gives the least limit that a speaker's context can have, in tokens.
        more: What of it the error names, behind what always stands in a prompt.

    Raises:
        SpecError: One leaves none; names the field and the least limit.
    """
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
    conversation: Conversation, speaker: Speaker, schema: type[BaseModel] | None = None
) -> int:
    """Give the least number of tokens that a speaker's context can be limited to.

    Args:
        conversation: The spec.
        speaker: The speaker.
        schema: The pydantic model that the speaker's format names, where it is known.

    Returns:
        The tokens of what always stands in its prompt, as far as it is known before anyone has
        spoken, and of a message.
    """
    opening = speaker.private_opening
    told = [] if opening is None else [*opening.lines, opening.prompt or ""]
    if conversation.opening.answers:
        who = conversation.speakers if conversation.opening.reconcile else (speaker,)
        told += [one.task or "" for one in who]
    context = speaker.context
    summary = tokens_of_summary(context.words) if isinstance(context, RunningSummary) else 0
    standing = fixed_tokens(conversation, speaker, conversation.task, schema) + summary
    return standing + tokens_of_texts(text for text in told if text) + ROOM
