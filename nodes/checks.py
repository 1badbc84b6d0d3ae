"""What is looked for in a reply before it enters the conversation. Pure functions."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from langchain_core.messages import BaseMessage

from duologue.graphs.log import Kind, line
from duologue.graphs.spec import Conversation, Data, Speaker
from duologue.graphs.wording import is_equal, is_short, says
from duologue.nodes.prompts import form_of

_DECORATION = "*_#>`~ \t"
"""Markdown that may stand around a mark."""


class Problem(Data):
    """What is wrong with a reply."""

    kind: Literal["blank", "role_flip", "form", "repeated"]
    """What kind of problem it is."""
    text: str
    """The problem, as told to the speaker."""


def find_problem(
    conversation: Conversation, speaker: Speaker, text: str, log: Sequence[BaseMessage]
) -> Problem | None:
    """Look for a reason to ask a speaker for its reply once more.

    Args:
        conversation: The spec.
        speaker: Who replied.
        text: The reply.
        log: What was said before.

    Returns:
        The first problem found: a blank reply, another's part, missing marks, or the speaker's own
        last message once more. None when there is none.
    """
    if says_done(conversation, speaker, text):
        return None
    if not text.strip():
        return Problem(kind="blank", text="Your message was empty.")
    flipped = plays(conversation, speaker, text)
    if flipped is not None:
        return Problem(
            kind="role_flip",
            text=f"You are {speaker.name}, but you spoke {flipped}'s part.",
        )
    if speaker.format is not None and not has_marks(speaker.format.lines, speaker.format.end, text):
        return Problem(kind="form", text=form_of(speaker.format))
    if _repeats(speaker, text, log):
        return Problem(kind="repeated", text="You have just said the same.")
    return None


def says_done(conversation: Conversation, speaker: Speaker, text: str) -> bool:
    """Whether a message says the done token.

    It counts only when it is the message, or stands alone on a line of it: talking about the token
    ends nothing (LazyLLM's substring test does).

    Args:
        conversation: The spec, with the token and who may say it.
        speaker: Who speaks.
        text: The message.

    Returns:
        True when it ends the conversation.
    """
    done = conversation.end_chat.done_token
    if done is None or done.by not in (None, speaker.name):
        return False
    return says(done.token, text)


def plays(conversation: Conversation, speaker: Speaker, text: str) -> str | None:
    """Find the other speaker whose part a message plays.

    Args:
        conversation: The spec.
        speaker: Who speaks.
        text: The message.

    Returns:
        The name of the one whose first mark begins a line outside of code, or whose name as a
        label begins the message. None when there is none.
    """
    own = speaker.format.lines if speaker.format is not None else ()
    for place, found in enumerate(_prose(text.strip())):
        for other in conversation.speakers:
            if other.name == speaker.name:
                continue
            # Further down a name and a colon may well stand in a list, a note or a quoted line.
            label = (f"{other.name}:",) if place == 0 else ()
            marks = other.format.lines[:1] if other.format is not None else ()
            if any(_begins(found, mark) for mark in (*label, *marks) if mark not in own):
                return other.name
    return None


def has_marks(lines: Sequence[str], end: str | None, text: str) -> bool:
    """Whether a message carries its marks.

    Args:
        lines: What begins a line each, in this order; the first begins the message.
        end: What the message ends with.
        text: The message.

    Returns:
        True when all are there. Case and Markdown around a mark do not matter.
    """
    found = [line for line in text.strip().splitlines() if line.strip()]
    if not found or not _begins(found[0], lines[0]):
        return False
    rest = iter(found)
    if not all(any(_begins(line, mark) for line in rest) for mark in lines):
        return False
    return end is None or text.rstrip(_DECORATION + "\r\n").casefold().endswith(end.casefold())


def _begins(line: str, mark: str) -> bool:
    plain = line.lstrip(_DECORATION).casefold()
    # "**Solution**:" puts the decoration inside the mark.
    return re.sub(r"[*_`~]+", "", plain).startswith(re.sub(r"[*_`~]+", "", mark.casefold()))


def _prose(text: str) -> Iterator[str]:
    """The lines of a message that are not inside fenced code."""
    fence = False
    for found in text.splitlines():
        if found.lstrip().startswith("```"):
            fence = not fence
        elif not fence:
            yield found


def _repeats(speaker: Speaker, text: str, log: Sequence[BaseMessage]) -> bool:
    if is_short(text):
        return False
    for message in reversed(log):
        about = line(message)
        if about.speaker == speaker.name and about.kind is Kind.SPEECH:
            return is_equal(message.text, text)
    return False
