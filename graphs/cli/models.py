"""The command that lists models."""

import asyncio

from ...nodes.models.client.failures import address_of
from ...nodes.models.embedded import child as embedded
from ...nodes.models.resolve import EMBEDDED, OPENAI_MODEL, no_model
from ..common.settings import Settings, load_settings
from .terminal.console import plain, prose, stderr, stdout
from .terminal.progress import Progress
from .terminal.text import one_line


def show_models() -> None:
    """Tell which models there are and which one is the default."""
    settings = load_settings()
    out = stdout()
    weights = embedded.weights() if embedded.is_available() else None
    plain(out, "On this machine:", "bold")
    if weights is None:
        plain(out, f"  none installed; to have one: {embedded.how_to_install()}")
    else:
        plain(out, f"  {EMBEDDED}  ({weights.stem}, tiny: it shows how things work)")
    names: list[str] = []
    if _has_server(settings):
        plain(out, f"At {one_line(address_of(settings))}:", "bold")
        names = asyncio.run(_listed(settings))
        for name in names:
            plain(out, f"  {one_line(name)}")
    plain(out, "Default:", "bold")
    plain(out, f"  {one_line(_default(settings, names, is_local=weights is not None))}")


async def _listed(settings: Settings) -> list[str]:
    from ...nodes.models.client.clients import listed  # loads the client of OpenAI

    err = stderr()
    with Progress(err, "Waiting for the list of models") as progress:

        def notify(text: str) -> None:
            with progress.aside():
                prose(err, text, "dim")

        return await listed(settings, notify)


def _has_server(settings: Settings) -> bool:
    return settings.api_key is not None or settings.base_url is not None


def _default(settings: Settings, names: list[str], *, is_local: bool) -> str:
    """The default model, as `nodes.models.resolve` chooses it."""
    if settings.model is not None:
        return settings.model
    if _has_server(settings):
        return next(iter(names), "none") if settings.base_url is not None else OPENAI_MODEL
    return EMBEDDED if is_local else no_model()
