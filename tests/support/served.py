"""Conversations served as models, in the process of the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
from starlette.applications import Starlette

from duologue.graphs import Conversation
from duologue.graphs.serve.chat_completions import ChatCompletions
from duologue.graphs.serve.security import ModelGuard
from duologue.graphs.serve.tools import ServedTool
from duologue.graphs.session.options import Options
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
    tools = [ServedTool(name, talk) for name, talk in conversations.items()]
    model = ScriptedChatModel(script)
    app = ChatCompletions(tools, Options(store=store, model=model), most_runs).app()
    async with app.router.lifespan_context(app):
        yield Served(model, app)


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
