"""Descriptions of conversation files and of the available models, and the sample files."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...nodes.models.adapters.families import (
    default_model,
    describe_local_model,
    list_models,
    server_of,
)
from ...tools.registry.functions import NOUNS, import_tools
from ...tools.registry.registry import Registry
from ..common.errors import SpecError, suggest_kind
from ..common.settings import Settings, load_settings
from ..conversation.conversation import Conversation, how_it_ends
from ..conversation.limits import UNKNOWN_CALLS, plain_calls
from ..ends.end import count_of, lone
from ..kinds import KINDS
from ..kinds.load import load_conversation, read_kind
from .terminal.console import on_screen, one_line, plain, prose, stderr, stdout
from .terminal.progress import Progress

_SAMPLES: Final = Path(__file__).with_name("samples")


def read_sample(kind: str) -> str:
    """Return the sample file of a kind of conversation, or of a batch.

    Raises:
        SpecError: There is no such kind.
    """
    kinds = [*KINDS, "conversation", "batch"]
    if kind not in kinds:
        raise SpecError(f"there is no kind {kind!r}{suggest_kind(kind, kinds)}")
    return (_SAMPLES / f"{kind}.toml").read_text(encoding="utf-8")


def describe(file: Path, tools: Sequence[str]) -> None:
    """Print a description of a conversation file, and check the names in it.

    Args:
        file: The file.
        tools: The modules of tools that the file may name.
    """
    # Imported here, since the import loads LangGraph, and `models` needs none.
    from ..show.draw import replies

    out, passed = stdout(), import_tools(tools, "--tools")
    conversation = load_conversation(file)
    names = ", ".join(map(one_line, conversation.names))
    plain(out, f"{one_line(str(file))}: {read_kind(file) or 'a conversation'} of {names}", "bold")
    if conversation.task:
        width = out.width - 2 if on_screen(out) else None
        plain(out, f"  {one_line(conversation.task, width)}", "dim")
    for speaker in conversation.speakers:
        by = replies(conversation, speaker)
        tools = f"; tools: {', '.join(speaker.tools)}" if speaker.tools else ""
        plain(out, one_line(f"{speaker.name}: {by}{tools}"))
    prose(out, f"Ends: {'; '.join(map(one_line, how_it_ends(conversation)))}.")
    prose(out, f"Model calls: {_describe_calls(conversation)}.")
    registry = Registry({"tools": passed})
    for kind, name, is_there in registry.list_named_objects(conversation):
        found = "registered" if is_there else "missing"
        plain(out, one_line(f"The {NOUNS[kind]} {name}: {found}"), "" if is_there else "yellow")
    try:
        registry.check(conversation)
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from error


def _describe_calls(conversation: Conversation) -> str:
    """Return the normal number of model calls and the caps, as the rest of a sentence."""
    calls, end_chat = plain_calls(conversation), conversation.end_chat
    if calls is None:
        return UNKNOWN_CALLS
    caps = [end.describe() for end in lone(end_chat.when) if end.most_messages or end.most_calls]
    if end_chat.max_iterations is not None:
        caps.insert(0, count_of(end_chat.max_iterations, "round"))
    cap = " or ".join(caps)
    return f"normally up to {calls:,} until the cap of {cap}, plus tool calls and retries"


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
        names = asyncio.run(_list_names(settings))
        for name in names:
            plain(out, f"  {one_line(name)}")
    plain(out, "Default:", "bold")
    plain(out, f"  {one_line(default_model(settings, names))}")


async def _list_names(settings: Settings) -> list[str]:
    err = stderr()
    with Progress(err, "Waiting for the list of models") as progress:

        def notify(text: str) -> None:
            with progress.aside():
                prose(err, text, "dim")

        return await list_models(settings, notify)
