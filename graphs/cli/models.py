"""The command that lists models."""

import asyncio

from ...nodes.models.adapters.families import (
    default_model,
    describe_local_model,
    list_models,
    server_of,
)
from ..common.settings import Settings, load_settings
from .terminal.console import one_line, plain, prose, stderr, stdout
from .terminal.progress import Progress


def show_models() -> None:
    """Print the available models and the default model."""
    settings = load_settings()
    out = stdout()
    plain(out, "On this machine:", "bold")
    plain(out, f"  {describe_local_model()}")
    names: list[str] = []
    server = server_of(settings)
    if server is not None:
        plain(out, f"At {one_line(server)}:", "bold")
        names = asyncio.run(_listed(settings))
        for name in names:
            plain(out, f"  {one_line(name)}")
    plain(out, "Default:", "bold")
    plain(out, f"  {one_line(default_model(settings, names))}")


async def _listed(settings: Settings) -> list[str]:
    err = stderr()
    with Progress(err, "Waiting for the list of models") as progress:

        def notify(text: str) -> None:
            with progress.aside():
                prose(err, text, "dim")

        return await list_models(settings, notify)
