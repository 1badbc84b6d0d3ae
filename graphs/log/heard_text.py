"""The text of a message that others hear: without done tokens, with the text of tool calls.

``to_user`` (Agere) is an argument of a tool call: the speaker says its text, and the tool does not
receive it. `nodes.models.listeners` removes this argument from a call while the call arrives.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from ..conversation.conversation import (
    Conversation,
    find_first_allowed,
    hand_off_targets,
    read_target,
)
from ..conversation.judges import HAND_OFF
from ..ends.end import BaseEnd, leaves, lone
from ..ends.events import DoneToken
from ..prompts import prompts
from ..prompts.prompts import PRIVATE_MESSAGE
from ..speakers.formats import LabelledFormat, normalize_mark
from ..speakers.replies import DATA, Source
from ..speakers.speaker import TO_USER
from ..text.done_words import is_quoted, may_say, says, settled, without
from ..text.structures import prose_places
from .marks import begins, length_of
from .messages import metadata, place_of
from .metadata import MessageMetadata, SpeakerReply, is_open_speech, is_public_speech
from .parsing import holds_code, languages_run


def done_tokens(
    conversation: Conversation,
    speaker: str | None,
    text: str,
    log: Iterable[BaseMessage] = (),
) -> list[str]:
    """Return the done tokens in a message that count when this speaker writes them.

    A token that is quoted from a message of the log does not count. Only messages of speakers who
    may not say the token themselves can be quoted: two speakers may agree in the same words.
    """
    mine = _list_tokens(conversation.end_chat.when, speaker)
    return [
        end.token
        for end in mine
        if may_say(end.token, text)
        and says(end.token, _blank_marks(conversation, speaker, end, text), end.counts, speaker)
        and not _is_quoted(end, text, log)
    ]


def _is_quoted(end: DoneToken, text: str, log: Iterable[BaseMessage]) -> bool:
    others = (
        message
        for message in (log if end.by is not None else ())
        if is_public_speech(about := metadata(message)) and about.speaker != end.by
    )
    return any(is_quoted(end.token, text, message.text) for message in others)


def list_own_tokens(conversation: Conversation, speaker: str) -> list[str]:
    """Return the done tokens that only this speaker may say."""
    return [
        end.token for end in _list_tokens(conversation.end_chat.when, speaker) if end.by is not None
    ]


def may_say_token(conversation: Conversation, speaker: str) -> bool:
    """Return whether a done token of this speaker may end the conversation."""
    return bool(_list_tokens(conversation.end_chat.when, speaker))


def unanswered_token(
    conversation: Conversation, speaker: str, text: str, log: Sequence[BaseMessage]
) -> str | None:
    """Return the done token that would end the conversation before another speaker has spoken.

    None if the message contains no such token. A done token does not end the conversation yet in
    three cases: a token joined to another end condition by ``&`` depends on that condition, a token
    with ``answered=True`` waits for the answer, and a token next to code that another speaker runs
    waits until the code has run.
    """
    if not conversation.end_chat.waits_for_another:
        return None
    enough = {
        end.token
        for end in lone(conversation.end_chat.when)
        if isinstance(end, DoneToken) and end.answered is not True and end.by in (None, speaker)
    }
    said = (one for one in done_tokens(conversation, speaker, text, log) if one in enough)
    token = next(said, None)
    if token is None:
        return None
    others = (one for one in conversation.speakers if one.runs_code and one.name != speaker)
    if any(holds_code(text, languages_run(conversation, one)) for one in others):
        return None
    heard = (about for about in map(metadata, log) if is_open_speech(about))
    return None if any(about.speaker != speaker for about in heard) else token


def heard_text(conversation: Conversation, message: BaseMessage, about: MessageMetadata) -> str:
    """Return the text of a message that others hear: all of it except its done tokens."""
    text: str = message.text
    if is_public_speech(about) and about.source not in DATA:
        return _drop_tokens(conversation, about.speaker, text)
    return text


class HeardText:
    """The text that others hear of a message that arrives in pieces.

    Text that may be the beginning of a done token is held back.
    """

    def __init__(self, conversation: Conversation | None, speaker: str) -> None:
        self._conversation, self._speaker = conversation, speaker
        self._ends = (
            () if conversation is None else _list_tokens(conversation.end_chat.when, speaker)
        )
        self._text = ""
        self._told = 0

    def take(self, piece: str, *, is_over: bool) -> str:
        """Add the next piece, and return the text that others are now certain to hear."""
        self._text += piece
        before, conversation = self._told, self._conversation
        if conversation is None:
            self._told = len(self._text)
            return piece
        if is_over:
            return _drop_tokens(conversation, self._speaker, self._text)[before:]
        who = conversation, self._speaker
        known = (
            settled(
                end.token, _blank_marks(*who, end, self._text), end.counts, before, self._speaker
            )
            for end in self._ends
        )
        self._told = min(known, default=len(self._text))
        return self._text[before : self._told]


def _drop_tokens(conversation: Conversation, speaker: str | None, text: str) -> str:
    for end in _list_tokens(conversation.end_chat.when, speaker):
        if may_say(end.token, text):
            shown = _blank_marks(conversation, speaker, end, text)
            text = without(end.token, text, end.counts, speaker, shown)
    return text


def _blank_marks(conversation: Conversation, speaker: str | None, end: DoneToken, text: str) -> str:
    """Return a message in which spaces replace its first mark, so that all indices stay the same.

    For example, "Instruction: ###STOP###" then contains only the token. The other marks and the
    text after them are replaced, too, unless they contain the token.
    """
    marks = None if speaker is None or end.counts != "last" else conversation.speaker(speaker).marks
    if marks is None or not may_say(end.token, text):
        return text
    places = [*prose_places(text)]
    first = next((one for one in places if begins(one[1], marks.lines[0])), None)
    if first is None:
        return text
    start, behind = first[0], first[0] + length_of(marks.lines[0], first[1])[0]
    others = (
        at
        for at, one in places
        if at > start and _begins_another(one, marks, goes_on=at + len(one) == len(text))
    )
    rest = next(others, len(text))
    if may_say(end.token, text[rest:]):
        rest = len(text)
    return f"{text[:start]}{' ' * (behind - start)}{text[behind:rest]}{' ' * (len(text) - rest)}"


def _begins_another(line: str, marks: LabelledFormat, *, goes_on: bool) -> bool:
    """Return whether a line begins with a later mark, or may do so once it is complete."""
    shown = normalize_mark(line)
    return any(
        begins(line, mark) or (goes_on and normalize_mark(mark).startswith(shown))
        for mark in marks.lines[1:]
    )


@lru_cache(maxsize=256)
def _list_tokens(when: BaseEnd | None, speaker: str | None) -> tuple[DoneToken, ...]:
    """Return the done tokens among some ends that a speaker may say."""
    return tuple(
        end for _, end in leaves(when) if isinstance(end, DoneToken) and end.by in (None, speaker)
    )


GAP = "\n\n"
"""The separator between the parts of a message."""


def join_texts(content: str, texts: Iterable[str], late: str = "") -> str:
    """Join a message's content with the texts in its calls."""
    spoken = [*texts]
    if not spoken:
        return content + late
    # While a message arrives, text may still follow the white space at its end.
    parts = [content.rstrip(), *spoken, late.strip()]
    return GAP.join(part for part in parts if part.strip())


def split_texts(text: str, texts: Iterable[str]) -> str | None:
    """Return a message's content without the texts in its calls, or None if they differ."""
    spoken = GAP.join(texts)
    if text == spoken:
        return ""
    if text.endswith(f"{GAP}{spoken}"):
        return text.removesuffix(f"{GAP}{spoken}")
    if text.startswith(f"{spoken}{GAP}"):
        return text.removeprefix(f"{spoken}{GAP}")
    before, between, after = text.partition(f"{GAP}{spoken}{GAP}")
    return f"{before}{GAP}{after}" if between else None


def put_back(
    text: str, calls: list[ToolCall], texts: Mapping[str, str]
) -> tuple[str, list[ToolCall]]:
    """Return a message and its calls as the speaker's model wrote them."""
    content = split_texts(text, texts.values()) if texts else None
    if content is None or not texts.keys() <= {call["id"] for call in calls}:
        return text, calls
    written: list[ToolCall] = []
    for call in calls:
        said = texts.get(str(call["id"]))
        args: dict[str, Any] = call["args"] if said is None else {TO_USER: said, **call["args"]}
        written.append(ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call"))
    return content, written


def show_handoffs(
    conversation: Conversation, about: SpeakerReply, message: BaseMessage
) -> list[tuple[ToolCall, ToolMessage]]:
    """Return the handoff calls of a message, each with its result.

    The speaker sees them as its model should write them, with the message as an argument: models
    repeat the form of the calls that they see, and some chat templates leave out text beside calls.
    Calls beside tools are in the message of these calls.
    """
    if about.source is Source.HANDOFF or not about.handed_to:
        return []
    name_of_speaker, text = about.speaker or "", message.text.strip()
    results = describe_handoffs(conversation, name_of_speaker, about.handed_to)
    chosen = find_first_allowed(conversation, name_of_speaker, about.handed_to)
    names = [name for name, _ in results]
    speaks = names.index(chosen) if chosen in names else 0
    made = []
    for number, (given, (name, result)) in enumerate(zip(about.handed_to, results, strict=False)):
        args: dict[str, Any] = {"to": name or given}
        if text and number == speaks:
            args["message"] = text
        if about.private:
            args["private"] = True
        call_id = f"{place_of(message)}-to-{number}"
        call = ToolCall(name=HAND_OFF, args=args, id=call_id, type="tool_call")
        made.append((call, ToolMessage(result, tool_call_id=call_id, id=call_id)))
    return made


def describe_handoffs(
    conversation: Conversation, speaker: str, given: Sequence[str]
) -> list[tuple[str | None, str]]:
    """Return, for each handoff of a reply, the named speaker or None, and the result for the model.

    The first allowed name counts. The list is empty if the speaker may not hand over.
    """
    render_prompt, may = conversation.render_prompt, hand_off_targets(conversation, speaker)
    chosen = find_first_allowed(conversation, speaker, given)
    results: list[tuple[str | None, str]] = []
    for text in given if may else ():
        name = read_target(conversation, speaker, text)
        if name is None:
            result = render_prompt(prompts.HAND_OFF_REFUSED, other=text, names=", ".join(may))
        elif name == chosen:
            result, chosen = render_prompt(prompts.HAND_OFF_ACCEPTED, name=name), None
        else:
            result = render_prompt(prompts.HAND_OFF_IGNORED)
        results.append((name, result))
    return results


def provider_names(names: Sequence[str]) -> dict[str, str]:
    """Map display names to names that providers accept. All of them differ."""
    mapped: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        # ASCII only: \w would accept letters that providers refuse.
        plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:60] or f"speaker_{number}"
        # A number distinguishes names that differ only in special characters or after the cut. The
        # next number is used if another name already ends in this one.
        free = plain
        for suffix in count(number):
            if free not in mapped.values():
                break
            free = f"{plain[:56]}_{suffix}"
        mapped[name] = free
    return mapped


def as_heard_alone(conversation: Conversation, about: MessageMetadata, name: str, text: str) -> str:
    """Return a text, marked as private if its audience is limited."""
    if not (about.is_spoken and about.is_aloud):
        return text
    names = ("you", *(one for one in about.confidants if one != name))
    return conversation.render_prompt(PRIVATE_MESSAGE, names=" and ".join(names), text=text)
