"""The commands that serve sessions and conversations on this machine: view, mcp and serve."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import SpecError, how_to_install
from .follow_up import FollowUp
from .options import Port
from .terminal.console import plain, stderr, stdout


@contextmanager
def _needing_packages(command: str, extra: str) -> Iterator[None]:
    """Name the extra with the packages of a command if an import fails."""
    try:
        yield
    except ImportError as error:
        remedy = how_to_install(extra)
        raise SpecError(f"{command} needs more packages ({error}); {remedy}") from error


def _tell(server: str, key: str) -> Callable[..., None]:
    """Return a function that prints lines about a server that accepts requests."""

    def tell(*lines: str) -> None:
        for line in lines:
            plain(stdout(), line)
        plain(stderr(), f"Ctrl-C stops {server}. Anyone with {key} can use it.", "dim")

    return tell


def view(
    session: str | None = None,
    port: Port = 0,
    no_open: bool = False,
    store: str | None = None,
    model: str | None = None,
    tools: list[str] | None = None,
) -> None:
    """Show sessions live in the browser; answer and stop them there.

    The page lists and searches sessions and approves tool calls. It is served on this machine only,
    to anyone who has the printed address, until Ctrl-C.

    Options:
        session (SESSION): The session to show. [default: the list of all sessions]
        no_open (--no-open): Print the address without opening a browser.

    Examples:
        duologue view garden
    """
    from ..store.rows import check_session_id

    if session is not None:
        check_session_id(session)
    with _needing_packages("view", "view"):
        from ..view.app import serve
        from ..view.pages import Runs

    runs = Runs(FollowUp(store, model, tools or ()).run_options())
    serve(runs, session, port, not no_open, _tell("the page", "this address"))


def mcp(
    files: list[Path],
    http: Annotated[int | None, typer.Option(min=0, max=65535)] = None,
    token: Annotated[str | None, typer.Option(envvar="DUOLOGUE_MCP_TOKEN")] = None,
    store: str | None = None,
    model: str | None = None,
    tools: list[str] | None = None,
) -> None:
    """Serve conversation files as tools to MCP clients.

    Each file is one tool, with the name of the file. A call runs the conversation and returns its
    output. Like `duologue run`, it keeps the sessions in the store.

    Options:
        http (--http PORT): Serve streamable HTTP at this port of 127.0.0.1; 0 is any free port.
            [default: serve stdin and stdout]
        token (--token TOKEN): With --http: the token that clients send. Other users of this machine
            can read arguments, so set the variable instead. [default: a new random token]

    Examples:
        duologue mcp garden.toml review.toml
        duologue mcp garden.toml --http 8765
    """
    with _needing_packages("mcp", "mcp"):
        from ..serve.mcp_server import serve_http, serve_stdio

    read_options = FollowUp(store, model, tools or ()).run_options
    if http is None:
        serve_stdio(files, read_options)
    else:
        serve_http(files, read_options(), http, token, _tell("the server", "this token"))


def serve(
    files: list[Path],
    port: Port = 0,
    token: Annotated[list[str] | None, typer.Option(envvar="DUOLOGUE_SERVE_TOKEN")] = None,
    concurrency: Annotated[int, typer.Option(min=1)] = 8,
    store: str | None = None,
    model: str | None = None,
    tools: list[str] | None = None,
) -> None:
    """Serve conversation files as models with OpenAI's API.

    Each file is one model, with the name of the file. A request runs the conversation and returns
    its output. It is stored only if a header of the request starts a session.

    Options:
        token (--token TOKEN): The token that clients send as their API key. Repeatable: each token
            has its own sessions. Other users of this machine can read arguments, so set the
            variable instead; spaces separate its tokens. [default: a new random token]
        concurrency (--concurrency N): Maximum number of conversations that run at the same time;
            further requests wait. [default: 8]

    Examples:
        duologue serve garden.toml review.toml
        duologue serve garden.toml --port 8000 --model gpt-4.1
    """
    with _needing_packages("serve", "view"):
        from ..serve.chat_completions import serve_models

    options = FollowUp(store, model, tools or ()).run_options()
    serve_models(files, options, port, token or [], concurrency, _tell("the server", "a key"))
