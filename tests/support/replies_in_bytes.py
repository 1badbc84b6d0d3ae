"""Replies of servers with OpenAI's API, byte by byte, for tests of their faults."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duologue.nodes.testing.server import ScriptedServer
from support.faulty_server import Body, FaultyServer, Sent

EVENTS = {"Content-Type": "text/event-stream"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


def chunk(delta: object, finish: object = None, **fields: Any) -> Body:
    """Return an event with a part of a message."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **fields}]}


def events(*parts: object, done: bool = True) -> bytes:
    """Return a stream of events, with ``[DONE]`` at its end unless `done` is false."""
    lines = [part if isinstance(part, str) else json.dumps(part) for part in parts]
    return "".join(f"data: {line}\n\n" for line in [*lines, *(["[DONE]"] if done else [])]).encode()


def whole(text: str, **message: Any) -> Body:
    """Return a reply that is not streamed."""
    choice = {"message": {"content": text, **message}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": USAGE}


def say(text: str) -> Callable[[Body], Sent]:
    """Return a sound reply in the form that a request asks for."""
    streamed = events(chunk({"content": text}), chunk({}, "stop"))
    plain = Sent(json.dumps(whole(text)).encode())
    return lambda body: Sent(streamed, headers=EVENTS) if body.get("stream") else plain


def stream_of(*parts: object, done: bool = True) -> Sent:
    """Return a response that is a stream of events."""
    return Sent(events(*parts, done=done), headers=EVENTS)


def json_of(body: object, **headers: str) -> Sent:
    """Return a response in plain JSON."""
    return Sent(json.dumps(body).encode(), headers=headers)


class Server(FaultyServer):
    """A server that sends its replies in order, then sound ones.

    Args:
        replies: The replies, or functions from the request to a reply.
    """

    def __init__(self, *replies: Sent | Callable[[Body], Sent]) -> None:
        super().__init__(self._reply)
        self._replies = replies
        self.asked: list[Body] = []
        """The bodies of the requests."""

    def _reply(self, _: str, body: Body) -> Sent:
        self.asked.append(body)
        place = len(self.asked) - 1
        reply = self._replies[place] if place < len(self._replies) else say("Fine.")
        return reply if isinstance(reply, Sent) else reply(body)


@contextmanager
def use_server(server: FaultyServer | ScriptedServer) -> Iterator[None]:
    """Let the models that conversations name be those of a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        yield
