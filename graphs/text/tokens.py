"""How many tokens a text takes, about: an estimate that needs no tokenizer and no network."""

import json
from collections.abc import Iterable

from langchain_core.messages import AIMessage, BaseMessage

MESSAGE_TOKENS = 8
"""What a message takes beside its text: the marks around it, its role and its name."""

_BYTES = 3


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text.

    A token for every three bytes of UTF-8: a Chinese character is three bytes and about one token,
    and an English token is four bytes or more, so that the estimate is rather too high there.
    """
    return -(-len(text.encode("utf-8", "replace")) // _BYTES)


def tokens_of_message(message: BaseMessage, label: str = "") -> int:
    """Estimate the tokens of a message in a prompt, its calls of tools included."""
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
