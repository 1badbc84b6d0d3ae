"""Drawn replies of a server that speaks OpenAI's API, with and without faults."""

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from support.faulty_server import Sent

Body = dict[str, Any]

_NUMBERS: tuple[Any, ...] = (-1, 0, 1.5, 1e308, 2**64, -(2**63), 10**400, float("nan"), True, "7")
_TEXTS = (
    *("", " ", "assistant", "\ud83d", "\udc00x", "\x1b[31mred\x1b[0m\x9b5m", "\x00", "a" * 3000),
    *("```json\n{}\n```", "{", "null", "TASK_COMPLETE", "\n\n\n", "<think>x</think>", "\u202e"),
)
_ROLES = ("user", "system", "developer", "tool", "function", "model", "Assistant", "", None, 3)
_ARGUMENTS = (
    *("", "{", "[]", "null", '{"a": NaN}', '{"a": 1e999}', "{}{}", {"expression": "1"}, 5, None),
    *("[" * 5000, '{"expression": "\\ud800"}', "9" * 5000, '{"a":' * 150 + "1" + "}" * 150),
)
_ENDINGS = ("stop", "length", "tool_calls", "content_filter", "eos", "max_tokens", "", None, 5)


def deep(levels: int) -> Any:  # noqa: ANN401
    """Return nested lists and objects."""
    found: Any = "x"
    for level in range(levels):
        found = [found] if level % 2 else {"a": found}
    return found


def odd(draw: Random) -> Any:  # noqa: ANN401
    """Draw a value that does not belong in its place."""
    return draw.choice(
        (
            lambda: None,
            lambda: draw.choice(_NUMBERS),
            lambda: draw.choice(_TEXTS),
            lambda: [],
            lambda: {},
            lambda: [None],
            lambda: [draw.choice(_TEXTS), draw.choice(_NUMBERS)],
            lambda: {"type": draw.choice(("text", "image_url", "thinking")), "text": "So."},
            lambda: {draw.choice(_TEXTS): draw.choice(_NUMBERS)},
            lambda: deep(draw.choice((3, 80, 150, 300))),
            lambda: [{"type": "text", "text": draw.choice(_TEXTS)}, {"type": "text"}],
        )
    )()


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """Yield the path of each value within a JSON value."""
    inside: Iterable[tuple[Any, Any]] = node.items() if isinstance(node, dict) else ()
    inside = enumerate(node) if isinstance(node, list) else inside
    for key, value in inside:
        yield (*path, key)
        yield from _places(value, (*path, key))


def with_fault(body: Any, draw: Random) -> Any:  # noqa: ANN401
    """Return a JSON value with one of its values changed, doubled or omitted."""
    copied = json.loads(json.dumps(body))
    places = list(_places(copied))
    if not places or draw.random() < 0.02:
        return odd(draw)
    *way, last = draw.choice(places)
    holder = copied
    for key in way:
        holder = holder[key]
    what = draw.random()
    if what < 0.15:
        del holder[last]
    elif what < 0.25 and isinstance(holder, list):
        holder.insert(last, holder[last])
    elif what < 0.3:
        holder[last] = [holder[last]]
    elif what < 0.4 and isinstance(holder, dict):
        holder[draw.choice(("error", "index", "role", "tool_calls", "usage"))] = odd(draw)
    else:
        holder[last] = _fitting_fault(last, draw)
    return copied


def _fitting_fault(key: object, draw: Random) -> Any:  # noqa: ANN401
    """Draw a possible fault of a field, by the field's name."""
    if draw.random() < 0.3:
        return odd(draw)
    match key:
        case "role":
            return draw.choice(_ROLES)
        case "finish_reason":
            return draw.choice(_ENDINGS)
        case str() if key.endswith("tokens"):
            return draw.choice((None, *_NUMBERS))
        case "index":
            return draw.choice((-1, 1, 7, 2**40, 1.5, "0", None))
        case "arguments":
            return draw.choice(_ARGUMENTS)
        case "tool_calls" | "choices":
            return draw.choice((None, [], {}, [None], [[]], [{}], "x", [{"function": None}]))
        case _:
            return odd(draw)


def fitting(schema: Any, draw: Random, root: Any = None) -> Any:  # noqa: ANN401
    """Draw a value that fits a JSON schema, for the features of duologue's own schemas."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return fitting(draw.choice(schema[key]), draw, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: fitting(each, draw, root) for name, each in fields.items()}
        case "array":
            return [fitting(schema["items"], draw, root)] if draw.random() < 0.5 else []
        case "boolean":
            return draw.random() < 0.3
        case "integer" | "number":
            return 3
        case _:
            return "2 + 3"


def _message(asked: Body, draw: Random) -> Body:
    """Draw the message of a correct server."""
    form = asked.get("response_format")
    if form is not None:
        text = json.dumps(fitting(form["json_schema"]["schema"], draw))
        return {"role": "assistant", "content": text, "refusal": None}
    message: Body = {"role": "assistant", "content": draw.choice(("Yes.", "1. met", "Some beans."))}
    tools = asked.get("tools")
    if tools and asked.get("tool_choice") != "none" and draw.random() < 0.6:
        calls = [draw.choice(tools)["function"] for _ in range(draw.choice((1, 1, 2)))]
        message["tool_calls"] = [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": json.dumps(fitting(call["parameters"], draw)),
                },
            }
            for place, call in enumerate(calls)
        ]
    return message


def _envelope(kind: str) -> Body:
    return {"id": "c1", "object": kind, "created": 0, "model": "drawn", "service_tier": "default"}


_USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def _whole(message: Body, ending: str) -> Body:
    choice: Body = {"index": 0, "message": message, "finish_reason": ending, "logprobs": None}
    return {**_envelope("chat.completion"), "choices": [choice], "usage": _USAGE}


def _pieces(message: Body, ending: str) -> list[Body]:
    envelope = _envelope("chat.completion.chunk")
    text = message["content"]
    half = len(text) // 2
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": part} for part in (text[:half], text[half:])]
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        first = {**call, "index": index, "function": {"name": name, "arguments": arguments[:3]}}
        deltas.append({"tool_calls": [first]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[3:]}}]})
    choices: list[Body] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": ending})
    pieces = [{**envelope, "choices": [choice]} for choice in choices]
    return [*pieces, {**envelope, "choices": [], "usage": _USAGE}]


def _events(pieces: list[Any], draw: Random, faults: int) -> bytes:
    """Return server-sent events; some faults only exist in this form."""
    lines = [f"data: {json.dumps(piece)}\n\n" for piece in [*pieces]]
    lines.append("data: [DONE]\n\n")
    if faults and draw.random() < 0.2:
        place = draw.randrange(len(lines))
        lines[place] = draw.choice(
            (
                *("data: {\n\n", "data: null\n\n", "data: 5\n\n", "data: []\n\n", "data: \n\n"),
                *("event: error\ndata: {}\n\n", ": still here\n\n", "id: \x00\n\n", "x\n\n"),
                *('data: {"error": null}\n\n', 'data: {"error": {"message": ["a"]}}\n\n'),
                *('data: {"error": {"message": "\\u001b[31mno", "code": 5}}\n\n', ""),
                f"data: {'[' * 3000}\n\n",
                'event: thread.message\ndata: {"a": 1}\n\n',
            )
        )
    if faults and draw.random() < 0.1:
        lines = lines[: draw.randrange(len(lines))]
    return "".join(lines).encode("utf-8", "surrogatepass")


def _broken_http(draw: Random) -> Sent:
    """Draw a reply whose fault is in the HTTP around the JSON."""
    said = b'{"error": {"message": "\\u001b[31mno", "code": [5], "type": {"a": 1}}}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    return draw.choice(
        (
            Sent(b"no gzip", headers={"Content-Encoding": "gzip"}),
            Sent(b"<html>Welcome \x1b[31m", headers={"Content-Type": "text/html"}),
            Sent(said, status=draw.choice((400, 401, 404, 418, 429, 500, 503))),
            Sent(b"[" * 5000, status=draw.choice((400, 500))),
            Sent(b"\xff\xfe\x00", status=draw.choice((200, 400))),
            Sent(b"", status=draw.choice((200, 204, 302, 304))),
            Sent(
                status=307, headers={"Location": draw.choice(("/v1", "ftp://x", "http://[:", ""))}
            ),
            Sent(raw=head + b'Content-Length: 90\r\n\r\n{"a'),
            Sent(raw=head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            Sent(raw=b"220 mail.example.org ESMTP\r\n"),
            Sent(raw=b""),
        )
    )


def reply(asked: Body, draw: Random, *, faults: int) -> Sent:
    """Draw a reply.

    Args:
        asked: The request's body.
        draw: The source of randomness.
        faults: Maximum number of faults; some cancel each other out.

    Returns:
        The reply to send.
    """
    if faults and draw.random() < 0.05:
        return _broken_http(draw)
    message = _message(asked, draw)
    ending = "tool_calls" if message.get("tool_calls") else "stop"
    if asked.get("stream"):
        pieces = _pieces(message, ending)
        for _ in range(faults):
            place = draw.randrange(len(pieces))
            pieces[place] = with_fault(pieces[place], draw)
        body = _events(pieces, draw, faults)
        return Sent(body, headers={"Content-Type": "text/event-stream"})
    whole: Any = _whole(message, ending)
    for _ in range(faults):
        whole = with_fault(whole, draw)
    text = json.dumps(whole)
    if faults and draw.random() < 0.03:
        text = text[: draw.randrange(len(text))]
    if faults and draw.random() < 0.02:
        text = "[" * 100_000
    return Sent(text.encode())
