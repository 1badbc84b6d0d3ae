"""What a conversation in a file is, in a few lines."""

from pathlib import Path

from rich.console import Console

from ....tools.registry.registry import Registry
from ...common.errors import SpecError
from ...kinds.load import load_conversation, read_kind
from ...pictures.draw import replies
from ...pictures.ends import parts, words
from ...speakers.replies import HumanInputMode, HumanReply
from ...spec.conversation import Conversation
from ...spec.end_chat import EndChatMode
from ...spec.ends import DoneToken, End, NoCode
from ...spec.judges import SeparateJudge
from ...spec.limits import most_calls, most_messages
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
    prose(out, f"Ends: {'; '.join(_ends(conversation))}.")
    if conversation.end_chat.max_iterations is not None:
        messages, calls = most_messages(conversation), most_calls(conversation)
        prose(out, f"At most: {messages:,} messages, {calls:,} model calls.")
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


def _ends(conversation: Conversation) -> list[str]:
    end_chat = conversation.end_chat
    cap = end_chat.max_iterations
    found = [f"after {cap} rounds" if cap != 1 else "after 1 round"] if cap is not None else []
    found += [_when(end) for end in parts(end_chat.when)]
    if end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY:
        asked = ", ".join(map(one_line, conversation.stoppers))
        who = "the judge is" if isinstance(conversation.judge, SeparateJudge) else "it is"
        found.append(f"by completed tasks ({end_chat.mode.value}; {who} asked after {asked})")
    for speaker in conversation.speakers:
        if speaker.human is not None:
            found += _by_people(speaker.human)
    return found


def _by_people(human: HumanReply) -> list[str]:
    mode, most = human.human_input_mode, human.max_consecutive_auto_reply
    word = f"at a message that ends with {human.termination}"
    if mode is HumanInputMode.ALWAYS:
        return ["when the person leaves"]
    if mode is HumanInputMode.TERMINATE:
        return [f"{word}, unless the person goes on", "when the person leaves"]
    return [word, f"after {most:,} automatic replies in a row"]


def _when(end: End) -> str:
    by = (end.by or "anybody") if isinstance(end, DoneToken | NoCode) else ""
    said = f"when {by} gives no code" if isinstance(end, NoCode) else f"at {words(end)}"
    return one_line(f"when {by} {words(end)}" if isinstance(end, DoneToken) else said)
