"""HTTP connections in small pools: a lone call keeps one, many share them, none is lost."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from duologue.nodes.models.client.http_client import Pools

MOST = 64
"""Maximum number of open connections: two full pools."""


class Server:
    """A server that answers each request of a connection after a moment, if it answers at all."""

    def __init__(self) -> None:
        self.connections = 0
        self.most_open = 0
        self.open = 0
        self.answers = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                while not self.answers:  # noqa: ASYNC110  # nothing tells
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Server, str, httpx2.AsyncClient]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    pools = Pools(MOST, ssl.create_default_context())
    async with listening, httpx2.AsyncClient(transport=pools, timeout=30) as client:
        yield server, f"http://127.0.0.1:{port}/", client
        server.answers = True


async def lone(client: httpx2.AsyncClient, url: str, count: int = 6) -> None:
    for _ in range(count):
        assert (await client.get(url)).text == "ok"


async def test_one_call_after_the_other_keeps_one_connection() -> None:
    async with running() as (server, url, client):
        await lone(client, url)
        assert server.connections == 1


@pytest.mark.exhaustive
async def test_more_calls_than_connections_wait_for_one() -> None:
    async with running() as (server, url, client):
        found = await asyncio.gather(*(client.get(url) for _ in range(3 * MOST)))
        assert {one.text for one in found} == {"ok"}
        assert server.most_open == MOST
        before = server.connections
        await lone(client, url)
        assert server.connections == before


async def _cancelled(server: Server, client: httpx2.AsyncClient, url: str) -> None:
    server.answers = False
    tasks = [asyncio.create_task(client.get(url)) for _ in range(MOST)]
    await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.answers = True


async def _failed(_: Server, client: httpx2.AsyncClient, __: str) -> None:
    for _number in range(MOST):
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://127.0.0.1:1/")


async def _left(_: Server, client: httpx2.AsyncClient, url: str) -> None:
    for _number in range(MOST):
        async with client.stream("GET", url):
            pass


@pytest.mark.part(1)
@pytest.mark.parametrize("broken", [_cancelled, _failed, _left])
async def test_a_connection_that_breaks_off_is_none_that_is_taken(broken: object) -> None:
    async with running() as (server, url, client):
        assert callable(broken)
        await broken(server, client, url)
        before = server.connections
        await lone(client, url)
        # If these connections were counted, calls would move from one pool to the next.
        assert server.connections <= before + 1
