"""A model server in a separate process, so that its cost is not measured: an ASGI app.

It implements OpenAI's chat completions. The request determines the answer: the model `judge` finds
nothing complete, and any other model has new text in each answer. A model with tools calls the
first one before it answers. The model `600` answers in 600 words; `600 instruction` and `600
solution` use the form of a role-play. `/N/v1` takes N milliseconds to answer.
"""

import asyncio
import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

WORDS = 24
"""Length of an answer in words. When streamed, each word is an event."""

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")

_NUMBERS = count()

_USAGE = {"prompt_tokens": 100, "completion_tokens": WORDS, "total_tokens": 100 + WORDS}


@contextmanager
def running() -> Iterator[str]:
    """Run the server in a process; yield its address, to which a path such as `/0/v1` is added."""
    command = [sys.executable, "-m", "benchmarks.server"]
    folder = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request."""
    whole = b""
    while (message := await receive())["type"] == "http.request":
        whole += message.get("body", b"")
        if not message.get("more_body"):
            break
    body = json.loads(whole)
    await asyncio.sleep(int(scope["path"].split("/")[1]) / 1000)
    answer = _answer(body)
    if body.get("stream"):
        kind, sent = b"text/event-stream", _events(answer)
    else:
        kind, sent = b"application/json", [json.dumps(_completion(answer)).encode()]
    headers = [(b"content-type", kind)]
    if not body.get("stream"):
        headers.append((b"content-length", str(len(sent[0])).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in sent:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the message that answers a request."""
    if body.get("tools") and body["messages"][-1]["role"] != "tool":
        number = next(_NUMBERS)
        guess = {"secret_number": 0, "guessed_number": number}
        called = {"name": "high_low", "arguments": json.dumps(guess)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": called}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": _text(body)}


def _text(body: dict[str, Any]) -> str:
    wanted = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    if "complete" in wanted.get("properties", {}):
        return json.dumps({"objectives_left": ["the beds"], "complete": False})
    if wanted:
        return json.dumps(dict.fromkeys(wanted["properties"], "not_met"))
    if body["model"] == "judge":
        return "1: not met"
    words, _, form = body["model"].partition(" ")
    return said_in(next(_NUMBERS), int(words) if words.isdecimal() else WORDS, form)


def said_in(number: int, words: int, form: str = "") -> str:
    """Return a text of so many words, a different one for each number."""
    sentences = [sentence(number * 1000 + place) for place in range(max(1, words // WORDS))]
    text = "\n\n".join(" ".join(sentences[at : at + 4]) for at in range(0, len(sentences), 4))
    if form == "instruction":
        return f"Instruction: {text}\nInput: {sentence(number * 1000 + 999)}"
    return f"Solution: {text}\nNext request." if form == "solution" else text


def sentence(number: int) -> str:
    """Return a sentence of meaningless words, a different one for each number."""
    chosen = random.Random(number)  # noqa: S311
    return " ".join("".join(chosen.choices(_SYLLABLES, k=3)) for _ in range(WORDS)) + "."


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": _ending(message), "logprobs": None}
    return {**_envelope("chat.completion"), "choices": [choice], "usage": _USAGE}


def _events(message: dict[str, Any]) -> list[bytes]:
    """Return the events of a streamed answer: one per word, then the end, then the usage."""
    first: dict[str, Any] = {**message, "content": ""}
    words = (message["content"] or "").split()
    deltas = [first, *({"content": f"{word} "} for word in words)]
    envelope = _envelope("chat.completion.chunk")
    choices: list[list[dict[str, Any]]]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": _ending(message)}])
    events = [{**envelope, "choices": one} for one in choices]
    events.append({**envelope, "choices": [], "usage": _USAGE})
    return [f"data: {data}\n\n".encode() for data in (*map(json.dumps, events), "[DONE]")]


def _ending(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{next(_NUMBERS)}", "object": kind, "created": 0, "model": "scripted"}


def main() -> None:
    """Serve at a free port, and print the address."""
    # With an explicit protocol, asyncio turns off Nagle's algorithm, which costs 40 ms per answer.
    with socket.socket(proto=socket.IPPROTO_TCP) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(2048)
        sys.stdout.write(f"http://127.0.0.1:{taken.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_keep_alive=3600)
        uvicorn.Server(config).run([taken])


if __name__ == "__main__":
    main()
