"""Messages shortened in a prompt that is larger than a limit. Pure functions.

Only the prompt is shortened, never the log.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from ..common.content import describe_content, replace_text, tokens_of_files
from ..prompts.prompts import LEFT_OUT, RenderPrompt
from ..text.words import BYTES_PER_TOKEN, MESSAGE_TOKENS, tokens_of, tokens_of_message

_LEAST: Final = 48
"""The number of tokens to which a message is shortened at most."""


def shorten_messages(
    messages: Sequence[BaseMessage], limit: int, render_prompt: RenderPrompt
) -> list[BaseMessage]:
    """Return a prompt whose texts are shortened, so that it has at most `limit` tokens if possible.

    1. A message is too long if it exceeds half of the limit, without the system message.
    2. Results of tools that are too long are shortened, the oldest first, then other messages and
       the arguments of calls. This stops when the prompt fits.
    3. If it still does not fit, half of that length is too long, and step 2 is repeated.

    A shortened text depends only on its own text and on the length, so most shortened messages stay
    equal when the prompt grows. Files of a message that is too long are described. Calls and their
    results stay pairs, and other fields do not change.
    """
    found, sizes = [*messages], [*map(tokens_of_message, messages)]
    places = [at for at, one in enumerate(messages) if not isinstance(one, SystemMessage)]
    # Sorting is stable: results come first, each kind in its order.
    places.sort(key=lambda at: not isinstance(messages[at], ToolMessage))
    left = sum(sizes)
    fixed = left - sum(sizes[at] for at in places)
    most = max((limit - fixed) // 2, _LEAST)

    def mark(count: int) -> str:
        return render_prompt(LEFT_OUT, count=count)

    while True:
        for at in places:
            if left <= limit:
                return found
            if sizes[at] > most:
                found[at] = _shorten_message(messages[at], most, mark)
                left -= sizes[at]
                sizes[at] = tokens_of_message(found[at])
                left += sizes[at]
        if most == _LEAST:
            return found
        most = max(most // 2, _LEAST)


def _shorten_message(message: BaseMessage, most: int, mark: Callable[[int], str]) -> BaseMessage:
    """Return a message whose parts are shortened to about this number of tokens together."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    each = most // (len(calls) + bool(message.text or not calls)) - MESSAGE_TOKENS
    content: Any = message.content
    if not isinstance(content, str) and tokens_of_files(content) > each:
        content = describe_content(content)
    text = content if isinstance(content, str) else message.text
    update: dict[str, Any] = {"content": replace_text(content, _shorten_text(text, each, mark))}
    if calls:
        update["tool_calls"] = [_shorten_call(call, each, mark) for call in calls]
    return message.model_copy(update=update)


def _shorten_call(call: ToolCall, most: int, mark: Callable[[int], str]) -> ToolCall:
    """Return a call whose long arguments are shortened. Those that are no text become text."""
    args: dict[str, Any] = {**call["args"]}
    each = most // max(len(args), 1)
    for name, value in call["args"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if tokens_of(text) > each:
            args[name] = _shorten_text(text, each, mark)
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call")


def _shorten_text(text: str, tokens: int, mark: Callable[[int], str]) -> str:
    """Return the beginning and the end of a text that has more than this number of tokens.

    Args:
        text: The text.
        tokens: Maximum number of estimated tokens, the mark included.
        mark: Returns the text between both parts, from the number of characters left out.
    """
    written = text.encode("utf-8", "replace")
    if len(written) <= tokens * BYTES_PER_TOKEN:
        return text
    left = tokens * BYTES_PER_TOKEN - len(mark(len(text)).encode()) - 2
    last = max(left, 0) // 3
    head = written[: max(left, 0) - last].decode("utf-8", "ignore")
    tail = written[len(written) - last :].decode("utf-8", "ignore")
    found = "\n".join(filter(None, (head, mark(len(text) - len(head) - len(tail)), tail)))
    return found if len(found) < len(text) else text
