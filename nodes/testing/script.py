"""Scripts: what a scripted model or server replies, and the tape that plays it.

The chat model and the server share them, so that a script behaves the same in both.
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
"""A request's messages in OpenAI's form: `{"role": …, "content": …}` and, where they apply, `name`,
`tool_calls` and `tool_call_id`. `content` is a string, `""` where there is none, and a list only
where it holds more than text."""

_SHOWN = 300  # characters of each message in an error


class ScriptExhaustedError(AssertionError):
    """More calls were made than the script has replies. Names both numbers and the last prompt."""


Line: TypeAlias = str | Reply | BaseModel | Mapping[str, Any] | Exception
"""One answer in a script. A pydantic object or a mapping is said as JSON, an exception raised."""

Script: TypeAlias = Sequence[Line] | Callable[[Prompt], Line] | Callable[[Prompt, Any], Line]
"""Either answers, in the order of the calls, or a function from a request's messages to its answer.
Where the function requires a second argument, that is the call as it is recorded. With a function
a transcript does not depend on the order in which calls arrive; it may be called from several
threads at once."""


def as_reply(line: Line) -> Reply:
    """Turn a line of a script into a reply; raise it where it is an exception."""
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
        f"A script answers with str, Reply, a pydantic object, a dict or an exception, "
        f"not {type(line).__name__}"
    )


def as_prompt(messages: Sequence[BaseMessage | Mapping[str, Any]]) -> Prompt:
    """Bring LangChain's or OpenAI's messages into the one form that scripts see, as new dicts."""
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
    """Plays a script and records its calls; safe to share between threads and tasks.

    Raises:
        TypeError: The script is neither a sequence of lines nor a function.
        pydantic.ValidationError: A line is not a valid reply.
    """

    def __init__(self, script: Script) -> None:
        self.calls: list[CallT] = []
        self._lock = threading.Lock()
        self._function: Callable[[Prompt, CallT], Line] | None = None
        self._lines: tuple[Line, ...] = ()
        if callable(script):
            self._function = _of_both(script)
        elif isinstance(script, str) or not isinstance(script, Sequence):
            raise TypeError(
                f"A script is a list of replies or a function, not {type(script).__name__}; "
                f"for one reply write [reply]"
            )
        else:
            # A wrong line is reported where the script is written, not at some later call.
            self._lines = tuple(x if isinstance(x, Exception) else as_reply(x) for x in script)

    def record(self, call: CallT) -> int:
        """Record a call; return its number, which counts from 0."""
        with self._lock:
            self.calls.append(call)
            return len(self.calls) - 1

    def answer(self, number: int, prompt: Prompt) -> Reply:
        """Return the reply to a recorded call; raise what the script or its function raises."""
        if self._function is not None:
            return as_reply(self._function(deepcopy(prompt), self.calls[number]))
        if number < len(self._lines):
            return as_reply(self._lines[number])
        raise ScriptExhaustedError(
            f"The script has {len(self._lines)} replies, but this is call number {number + 1}. "
            f"Its prompt was:\n{_shown(prompt)}"
        )


def _of_both(function: Callable[..., Line]) -> Callable[[Prompt, Any], Line]:
    """Return a script's function the call, too, where it requires a second argument."""
    with suppress(ValueError):  # of something built in
        required = [
            one
            for one in inspect.signature(function).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            and one.default is one.empty
        ]
        if len(required) > 1:
            return function
    return lambda prompt, _: function(prompt)


def _shown(prompt: Prompt) -> str:
    lines = []
    for message in prompt:
        said = str(message["content"] or message.get("tool_calls", ""))
        lines.append(f"  {message.get('role')}: {said[:_SHOWN]}{'…' * (len(said) > _SHOWN)}")
    return "\n".join(lines)
