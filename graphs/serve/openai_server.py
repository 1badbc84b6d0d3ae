"""The server of OpenAI's Chat Completions API, which runs until Ctrl-C."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ..view.serve import LocalServer, bind_port, run_server
from .chat_completions import ChatCompletions
from .security import ModelGuard, check_token
from .served_models import check_people
from .tools import ServedTool, load_tools


def serve_models(
    files: Sequence[Path],
    store: str | None,
    model: str | None,
    port: int,
    tokens: Sequence[str],
    most_runs: int,
    tell: Callable[[str, Sequence[str], Sequence[str]], None],
) -> None:
    """Serve the conversations of files as models on 127.0.0.1, until Ctrl-C.

    Args:
        files: The files.
        store: The store of the sessions. If None, the store in the settings.
        model: The model for conversations that name none.
        port: The port. If 0, any free port.
        tokens: The tokens that admit clients, one for each client that has its own sessions. If
            there are none, a random token.
        most_runs: Maximum number of conversations that run at the same time.
        tell: A function that receives the address, the models' names and the tokens once the server
            accepts requests.

    Raises:
        SpecError: A file is not valid, its conversation can't run here or needs several people, the
            port is not available, or a token is too short.
        ModelError: A model is not available.
        StoreError: The store can't be opened.
    """
    for token in tokens:
        check_token(token, "--token")
    tools = asyncio.run(_load_models(files, store, model))
    with bind_port(port) as listening:
        port = listening.getsockname()[1]
        served = ChatCompletions(tools, store, model, most_runs)
        guard = ModelGuard(served.app(), port, *tokens)
        names = [tool.name for tool in tools]
        address = f"http://127.0.0.1:{port}/v1"
        server = LocalServer(guard, lambda: tell(address, names, guard.tokens), served.stop)
        run_server(server, listening, store, create=True)


async def _load_models(
    files: Sequence[Path], store: str | None, model: str | None
) -> list[ServedTool]:
    tools = await load_tools(files, store, model)
    for file, tool in zip(files, tools, strict=True):
        check_people(file, tool)
    return tools
