"""Joining a Ray cluster, or starting one on this machine."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import ray
from ray.exceptions import RayError, RayTaskError

from ...common.errors import BatchError, DuologueError, SpecError
from ...common.sanitize import excerpt

_AUTO: Final = "auto"
"""The address of the cluster on this machine, or of a cluster that is started for this batch."""

_STARTED: Final = Path("/tmp/ray/ray_current_cluster")  # noqa: S108  (it is Ray's)
"""The file in which `ray start` stores the cluster's address."""

_PATIENCE: Final = 10.0
"""Seconds to wait for the answer of a cluster."""

_lock = threading.Lock()
_users = 0
"""Number of this process's batches that use the cluster that the first of them has joined."""


@asynccontextmanager
async def join_cluster(address: str) -> AsyncIterator[None]:
    """Join a cluster within the block.

    If this process has already joined a cluster, that cluster is used.

    Raises:
        SpecError: The cluster does not exist.
    """
    # Joining takes seconds, and must not block the event loop.
    await asyncio.to_thread(_join, address)
    try:
        yield
    finally:
        await asyncio.to_thread(_leave)


def _join(address: str) -> None:
    global _users
    with _lock:
        if _users or not ray.is_initialized():
            if not _users:
                _init(address)
            _users += 1


def _leave() -> None:
    global _users
    with _lock:
        if _users:
            _users -= 1
            if not _users:
                ray.shutdown()


def _init(address: str) -> None:
    try:
        ray.init(
            _find_address() if address == _AUTO else _check_address(address),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except Exception as error:
        # Ray raises a plain Exception if its own processes start too slowly.
        token = isinstance(error, ConnectionError) and "RAY_AUTH_MODE" not in os.environ
        also = "; if it requires a token, set RAY_AUTH_MODE=token" if token else ""
        raise SpecError(f"ray: {address!r} can't be joined: {excerpt(str(error))}{also}") from error


def _find_address() -> str | None:
    """Return the address argument with which Ray finds the cluster of this machine.

    Ray's own "auto" would also find a cluster that another program started for itself, which ends
    with that program.
    """
    if os.environ.get("RAY_ADDRESS"):
        return _check_address(os.environ["RAY_ADDRESS"])
    try:
        _check_address(_STARTED.read_text().strip())
    except (OSError, ValueError):
        # No cluster was started, or it was not stopped properly.
        return "local"
    return None


def _check_address(address: str) -> str:
    """Return an address if a server listens there. Ray itself would take minutes to find out."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        raise ValueError("pass HOST:PORT or auto")
    socket.create_connection((host, int(port)), _PATIENCE).close()
    return address


def count_machines() -> int:
    """Return the number of machines in the cluster."""
    return len([node for node in ray.nodes() if node["Alive"]])


def count_cores() -> int:
    """Return the number of cores in the cluster."""
    return int(ray.cluster_resources().get("CPU", 1))


@contextmanager
def ray_errors(what: str) -> Iterator[None]:
    """Raise a worker's error as if it had been raised here.

    Raises:
        BatchError: Ray failed; the message names the operation.
    """
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, DuologueError):
            raise error.cause from None
        raise BatchError(f"{what} failed: {excerpt(repr(error.cause))}") from error
    except RayError as error:
        raise BatchError(f"{what} failed: {excerpt(str(error))}") from error
