"""Runs of code in sandboxes, and the servers and processes outside that it tries to reach."""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from duologue.graphs import Sandbox, SpecError
from duologue.graphs.conversation.sandbox import Kept
from duologue.tools.sandbox.processes import family
from duologue.tools.sandbox.sandbox import Ran, check, close, run


class Session:
    """The interpreter of one session."""

    def __init__(self, level: str, **limits: float) -> None:
        self.sandbox = Sandbox.model_validate({"level": level, "seconds": 20, **limits})
        self.kept = Kept(key=secrets.token_hex(8))

    async def __call__(self, code: str, language: str = "python") -> Ran:
        """Run code in this interpreter."""
        ran = await run(self.sandbox, cast("Any", language), code, self.kept)
        self.kept = ran.kept
        return ran

    async def close(self) -> None:
        await close(self.kept.key)


async def need(level: str) -> None:
    """Skip the test if a sandbox level doesn't work here; fail in CI."""
    try:
        await check(Sandbox.model_validate({"level": level}), ["python"])
    except SpecError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@contextmanager
def listener(secret: bytes) -> Iterator[int]:
    """Send a secret to every client of this loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(secret)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def answerer(secret: bytes, family: int, address: object) -> Iterator[object]:
    """Answer every datagram with its first 12 bytes and a secret."""
    with socket.socket(family, socket.SOCK_DGRAM) as server:
        server.bind(address)  # type: ignore[arg-type]
        server.settimeout(0.1)
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    asked, whom = server.recvfrom(512)
                except TimeoutError:
                    continue
                server.sendto(asked[:12] + secret, whom)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()
        done.set()
        thread.join()


@contextmanager
def bystander(environment: dict[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that is unrelated to the code."""
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **(environment or {})}) as process:
        try:
            yield process
        finally:
            process.kill()


def is_running(word: str) -> bool:
    """Return whether any process has this word among its arguments."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in file.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def wait_until(what: str, holds: "object", seconds: float = 60) -> None:
    """Wait for an event that must happen soon."""
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.02)


PROGRAM = """
import asyncio, json, sys
from duologue.graphs.conversation.sandbox import Kept, Sandbox
from duologue.tools.sandbox.sandbox import run

async def session(level, codes):
    kept = Kept(key=level + "-key")
    for code in codes:
        print("runs", flush=True)
        ran = await run(Sandbox(level=level), "python", code, kept)
        kept = ran.kept

async def main():
    await asyncio.gather(*[session(*each) for each in json.loads(sys.argv[1])])

asyncio.run(main())
"""


def program(*sessions: tuple[str, tuple[str, ...]]) -> "subprocess.Popen[str]":
    """Start a process that uses the library to run code in several sessions."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(sessions)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def are_gone(pids: set[int]) -> bool:
    """Return whether all these processes have ended."""
    return not any(Path(f"/proc/{pid}").exists() and pid in _living() for pid in pids)


def _living() -> set[int]:
    return {
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if _state(stat) not in ("Z", "X", "")
    }


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


__all__ = [
    "Session",
    "answerer",
    "are_gone",
    "bystander",
    "family",
    "is_running",
    "listener",
    "need",
    "program",
    "wait_until",
]
