"""Servers of models, of tools and of the local page, in the process of the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

import httpx2
import openai
from mcp import ClientSession
from mcp.shared.memory import create_connected_server_and_client_session
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

from duologue.graphs import Conversation
from duologue.graphs.serve.chat_completions import ChatCompletions
from duologue.graphs.serve.mcp_server import ConversationServer, http_app
from duologue.graphs.serve.security import ModelGuard, TokenGuard
from duologue.graphs.serve.tools import ServedTool
from duologue.graphs.session.options import Options
from duologue.graphs.view.app import view_app
from duologue.graphs.view.local_server import Guard
from duologue.graphs.view.pages import Runs
from duologue.nodes.testing import Script, ScriptedChatModel

PORT = 4321
TOKEN = "a token of the test"  # noqa: S105  # a sample
OTHER_TOKEN = "a token of another client"  # noqa: S105
ORIGIN = f"http://127.0.0.1:{PORT}"
SESSION = "X-Duologue-Session"


class Served:
    """A server in this process, and the model that its speakers use."""

    def __init__(self, model: ScriptedChatModel, app: Starlette) -> None:
        self.model = model
        self.guard = ModelGuard(app, PORT, TOKEN, OTHER_TOKEN)

    def client(self, token: str = TOKEN, **headers: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{ORIGIN}/v1",
            api_key=token,
            max_retries=0,
            default_headers=headers,
            http_client=self.http(),
        )

    def http(self, **headers: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.guard), base_url=ORIGIN, headers=headers
        )

    async def post(self, body: object, token: str = TOKEN, **headers: str) -> httpx2.Response:
        """Send a body, which is JSON in bytes or an object."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http(Authorization=f"Bearer {token}") as http:
            return await http.post("/v1/chat/completions", content=content, headers=headers)


@asynccontextmanager
async def serve(
    store: str,
    script: Script,
    most_runs: int = 8,
    **conversations: Conversation,
) -> AsyncIterator[Served]:
    """Serve conversations as models."""
    tools = [ServedTool(name, talk) for name, talk in conversations.items()]
    model = ScriptedChatModel(script)
    app = ChatCompletions(tools, Options(store=store, model=model), most_runs).app()
    async with app.router.lifespan_context(app):
        yield Served(model, app)


def serve_tools(store: str, *script: Any, **conversations: Conversation) -> ConversationServer:
    """Return an MCP server whose tools are conversations."""
    tools = [ServedTool(name, talk) for name, talk in conversations.items()]
    return ConversationServer(tools, Options(store=store, model=ScriptedChatModel([*script])))


def connect(
    server: ConversationServer, **options: Any
) -> AbstractAsyncContextManager[ClientSession]:
    """Connect the official client to an MCP server."""
    return create_connected_server_and_client_session(server.server, **options)


@contextmanager
def _opened(guard: ASGIApp) -> Iterator[TestClient]:
    with TestClient(guard, base_url=ORIGIN, follow_redirects=False) as client:
        yield client


def serve_by_http(server: ConversationServer) -> AbstractContextManager[TestClient]:
    """Serve the tools of an MCP server by HTTP, and return a client without a token."""
    return _opened(TokenGuard(http_app(server), PORT, TOKEN))


def view(store: str, model: ScriptedChatModel) -> AbstractContextManager[TestClient]:
    """Serve the local page of a store, and return a client without a cookie."""
    app = view_app(Runs(Options(store=store, model=model)), lambda: False)
    return _opened(Guard(app, PORT, TOKEN))


def turns(*texts: str) -> list[Any]:
    """Return messages of the user and the assistant by turns."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]


async def refusal_of(served: Served, body: object, **headers: str) -> tuple[int, dict[str, Any]]:
    response = await served.post(body, **headers)
    return response.status_code, response.json()["error"]


async def is_called(model: ScriptedChatModel, count: int) -> None:
    while len(model.calls) < count:  # noqa: ASYNC110  # the model has no event
        await asyncio.sleep(0.01)


class Connection:
    """A connection of a client that sends a body in parts, whenever the test adds one."""

    def __init__(self, served: Served, **headers: str) -> None:
        lines = {"host": f"127.0.0.1:{PORT}", "authorization": f"Bearer {TOKEN}", **headers}
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "query_string": b"",
            "headers": [(name.lower().encode(), one.encode()) for name, one in lines.items()],
        }
        self.parts = asyncio.Queue[Message]()
        self.received = 0
        self.begins = asyncio.Event()
        self.sent: list[Message] = []
        self.answer = asyncio.create_task(served.guard(self.scope, self._receive, self._send))

    async def _receive(self) -> Message:
        self.received += 1
        self.begins.set()
        message = await self.parts.get()
        if message["type"] == "http.disconnect":
            # A server tells everyone who waits.
            self.parts.put_nowait(message)
        return message

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    def send(self, body: bytes, *, more: bool = False) -> None:
        self.parts.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        """Close the connection."""
        self.parts.put_nowait({"type": "http.disconnect"})

    async def status(self) -> int:
        await asyncio.wait_for(self.answer, 60)
        status: int = self.sent[0]["status"]
        return status


async def hang_up(served: Served, body: object, **headers: str) -> list[Message]:
    """Send a request, close the connection when the model is called, and return the response."""
    gone, calls = Connection(served, **headers), len(served.model.calls)
    gone.send(body if isinstance(body, bytes) else json.dumps(body).encode())
    await is_called(served.model, calls + 1)
    gone.leave()
    await asyncio.wait_for(gone.answer, 60)
    return gone.sent
