"""The scripts of a scripted model or server, and the player of a script.

The chat model and the server share both, so a script behaves the same in either.
"""

import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Generic, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from pydantic import BaseModel

from .replies import Reply

Prompt: TypeAlias = list[dict[str, Any]]
"""A request's messages in OpenAI's form: `{"role": …, "content": …}`, with `name`, `tool_calls` and
`tool_call_id` if the message has them. `content` is a string: `""` if there is no content, and a
list only if the message contains more than text.
"""

_SHOWN = 300  # characters of each message in an error


class ScriptExhaustedError(AssertionError):
    """A call for which the script has no reply left.

    The message contains the number of replies, the number of the call and the call's prompt.
    """


Line: TypeAlias = str | Reply | BaseModel | Mapping[str, Any] | Exception
"""One answer in a script. A pydantic object or a mapping becomes JSON text. A model raises an
exception; a server answers it with an HTTP error.
"""

Script: TypeAlias = Sequence[Line] | Callable[[Prompt], Line] | Callable[[Prompt, Any], Line]
"""A sequence of answers, in the order of the calls, or a function from a request's messages to its
answer. If the function requires a second argument, it receives the recorded call. With a function,
a transcript does not depend on the order in which calls arrive. Several threads may call the
function at once.
"""


def as_reply(line: Line) -> Reply:
    """Return a line of a script as a reply. Raise the line if it is an exception.

    Raises:
        TypeError: The line has none of the accepted types.
    """
    if isinstance(line, Exception):
        raise line
    if isinstance(line, Reply):
        return line
    if isinstance(line, str):
        return Reply(text=line)
    if isinstance(line, BaseModel):
        return Reply(text=line.model_dump_json())
    if isinstance(line, Mapping):
        return Reply(text=json.dumps(dict(line), ensure_ascii=False))
    raise TypeError(
        f"script: an answer is a str, a Reply, a pydantic object, a dict or an exception, not "
        f"{type(line).__name__}"
    )


def as_prompt(messages: Sequence[BaseMessage | Mapping[str, Any]]) -> Prompt:
    """Return LangChain's or OpenAI's messages as new dicts, in the form that scripts receive."""
    return [
        _normal(_to_openai(message) if isinstance(message, BaseMessage) else message)
        for message in messages
    ]


def openai_call(call_id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    """Return a tool call in OpenAI's form."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _to_openai(message: BaseMessage) -> dict[str, Any]:
    made: dict[str, Any] = convert_to_openai_messages([message], text_format="block")[0]
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        # The converter leaves these out, the real client sends them.
        made["tool_calls"] = [
            *made.get("tool_calls", ()),
            *(openai_call(c["id"], c["name"], c["args"]) for c in message.invalid_tool_calls),
        ]
    return made


def _normal(message: Mapping[str, Any]) -> dict[str, Any]:
    normal: dict[str, Any] = {k: deepcopy(v) for k, v in message.items() if v is not None}
    content = normal.get("content", "")
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "".join(part["text"] for part in content)
    normal["content"] = content
    if normal.get("role") == "tool":
        normal.pop("name", None)  # OpenAI has no such field, and the real client drops it
    return normal


CallT = TypeVar("CallT")


class Tape(Generic[CallT]):
    """A script being played, with a record of all calls. Threads and tasks can share it.

    Raises:
        TypeError: The script is neither a sequence of answers nor a function, or one of its answers
            has a type that no script accepts.
    """

    def __init__(self, script: Script) -> None:
        self.calls: list[CallT] = []
        self._lock = threading.Lock()
        self._function: Callable[[Prompt, CallT], Line] | None = None
        self._lines: tuple[Line, ...] = ()
        if callable(script):
            self._function = _with_call_parameter(script)
        elif isinstance(script, str) or not isinstance(script, Sequence):
            raise TypeError(
                f"script: expected a list of replies or a function, not {type(script).__name__}; "
                f"for one reply write [reply]"
            )
        else:
            # Report a wrong line when the script is created, not at some later call.
            self._lines = tuple(x if isinstance(x, Exception) else as_reply(x) for x in script)

    def record(self, call: CallT) -> int:
        """Record a call and return its number, counted from 0."""
        with self._lock:
            self.calls.append(call)
            return len(self.calls) - 1

    def answer(self, number: int, prompt: Prompt) -> Reply:
        """Return the reply to a recorded call.

        Raises:
            ScriptExhaustedError: The script has no reply for this call.
            Exception: An exception in the script, or one that its function raises.
        """
        if self._function is not None:
            return as_reply(self._function(deepcopy(prompt), self.calls[number]))
        if number < len(self._lines):
            return as_reply(self._lines[number])
        raise ScriptExhaustedError(
            f"the script has {len(self._lines)} replies, but this is call number {number + 1}; "
            f"its prompt was:\n{_shown(prompt)}"
        )


def _with_call_parameter(function: Callable[..., Line]) -> Callable[[Prompt, Any], Line]:
    """Return the script's function with two parameters, the prompt and the call.

    A function that requires only one argument is called without the call.
    """
    with suppress(ValueError):  # raised for some built-in functions
        required = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is parameter.empty
        ]
        if len(required) > 1:
            return function
    return lambda prompt, _: function(prompt)


def _shown(prompt: Prompt) -> str:
    lines = []
    for message in prompt:
        content = str(message["content"] or message.get("tool_calls", ""))
        lines.append(f"  {message.get('role')}: {content[:_SHOWN]}{'…' * (len(content) > _SHOWN)}")
    return "\n".join(lines)
