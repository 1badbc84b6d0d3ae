"""Agents under test, their simulated users, and local servers. No tests here."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from duologue.nodes.testing import Prompt, ScriptedChatModel


class _Counting(MessagesState):
    count: int


def graph_of(step: Any, state: type = MessagesState, **options: Any) -> Any:  # noqa: ANN401
    """Return a compiled graph with one step."""
    graph: Any = StateGraph(state)
    return graph.add_node("step", step).add_edge(START, "step").compile(**options)


def counting(words: str = "", **options: Any) -> Any:  # noqa: ANN401
    """Return a graph that counts its turns in its own state."""

    def step(state: _Counting) -> dict[str, Any]:
        count = state.get("count", 0) + 1
        return {"count": count, "messages": [AIMessage(f"Turn {count}.{words}")]}

    return graph_of(step, _Counting, **options)


def requesting(text: str = "Refund it.") -> ScriptedChatModel:
    """Return a user that writes a request, and then the word for the end."""

    def write(prompt: Prompt) -> str:
        return "###STOP###" if any(one["role"] == "assistant" for one in prompt) else text

    return ScriptedChatModel(write)


@contextmanager
def serve_locally(answer: Callable[[str], str], port: int = 0) -> Iterator[int]:
    """Run a server on 127.0.0.1 inside the block, and yield its port.

    Args:
        answer: Returns the JSON of the response to a path. No such path if empty.
        port: The port. A free one if 0.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            text = answer(self.path)
            self.send_response(200 if text else 404)
            self.send_header("content-type", "application/json")
            self.send_header("set-cookie", "session=cookie-77")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
