"""What a conversation in a file is, in a few lines."""

from pathlib import Path

from rich.console import Console

from ....tools.registry.registry import Registry
from ...common.errors import SpecError
from ...kinds.load import load_conversation, read_kind
from ...pictures.draw import replies
from ...spec.conversation import Conversation
from ...spec.described.ends import how_it_ends
from ...spec.limits import most_calls, most_messages, plain_calls
from ..terminal.console import on_screen, plain, prose
from ..terminal.text import one_line


def describe(file: Path, out: Console) -> None:
    """Say what a conversation in a file is, and whether all that it names is there."""
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
    if conversation.end_chat.is_capped:
        messages, calls = most_messages(conversation), most_calls(conversation)
        plain_way = ""
        if not conversation.agents:
            plain_way = f" ({plain_calls(conversation):,} where nothing is asked for again)"
        prose(out, f"At most: {messages:,} messages, {calls:,} model calls{plain_way}.")
    _check_names(conversation, out, f"{file}: ")


def _check_names(conversation: Conversation, out: Console, where: str) -> None:
    """Say of all that it names whether it is there; refuse it where something is not."""
    registry = Registry()
    for noun, name, is_there in registry.looked_up(conversation):
        found = "registered" if is_there else "missing"
        plain(out, one_line(f"The {noun} {name}: {found}"), "" if is_there else "yellow")
    try:
        registry.check(conversation)
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error
