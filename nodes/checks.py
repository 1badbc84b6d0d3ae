"""What is looked for in a reply before it enters the conversation. Pure functions."""

import re
from collections.abc import Iterator, Sequence

from langchain_core.messages import BaseMessage

from duologue.graphs.data import Data
from duologue.graphs.facts import done_tokens
from duologue.graphs.log import Flaw, line
from duologue.graphs.speaker import Speaker
from duologue.graphs.spec import Conversation
from duologue.graphs.wording import is_equal, is_same_move, is_short
from duologue.nodes.prompts import form_of

_DECORATION = "*_#>`~ \t"
"""Markdown that may stand around a mark."""


class Problem(Data):
    """What is wrong with a reply."""

    flaw: Flaw
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
        return Problem(flaw=Flaw.BLANK, text="Your message was empty.")
    flipped = plays(conversation, speaker, text)
    if flipped is not None:
        return Problem(
            flaw=Flaw.ROLE_FLIP,
            text=f"You are {speaker.name}, but you spoke {flipped}'s part.",
        )
    if speaker.format is not None and not has_marks(speaker.format.lines, speaker.format.end, text):
        return Problem(flaw=Flaw.FORM, text=form_of(speaker.format))
    if _repeats(speaker, text, log):
        return Problem(flaw=Flaw.REPEATED, text="You have just said the same.")
    return None


def says_done(conversation: Conversation, speaker: Speaker, text: str) -> bool:
    """Whether a message says a done token.

    Args:
        conversation: The spec, with the tokens and who may say them.
        speaker: Who speaks.
        text: The message.

    Returns:
        True when it says one that this speaker may say.
    """
    return bool(done_tokens(conversation, speaker.name, text))


def plays(conversation: Conversation, speaker: Speaker, text: str) -> str | None:
    """Find the other speaker whose part a message plays.

    Args:
        conversation: The spec.
        speaker: Who speaks.
        text: The message.

    Returns:
        The name of the one whose first mark begins a line outside of code, or whose name as a
        label begins the message. Among more than two that may be who is spoken to, so there the
        message must hold another label, too. None when there is none.
    """
    own = speaker.format.lines if speaker.format is not None else ()
    prose = list(_prose(text.strip()))
    for found in prose:
        for other in conversation.speakers:
            marks = other.format.lines[:1] if other.format is not None else ()
            foreign = [mark for mark in marks if mark not in own and other.name != speaker.name]
            if any(_begins(found, mark) for mark in foreign):
                return other.name
    labels = [name for found in prose for name in conversation.names if _begins(found, f"{name}:")]
    # Further down a name and a colon may well stand in a list, a note or a quoted line.
    first = next(
        (name for name in conversation.names if prose and _begins(prose[0], f"{name}:")), None
    )
    if conversation.is_pair:
        return first if first != speaker.name else None
    others = [name for name in labels if name != speaker.name]
    return others[0] if first is not None and others and len(labels) > 1 else None


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
    spoken = [(message.text, about) for message in log if (about := line(message)).is_speech]
    own = [place for place, (_, about) in enumerate(spoken) if about.speaker == speaker.name]
    if not own or not is_equal(spoken[own[-1]][0], text):
        return False
    # The same answer to another move of a game is none; the very first answers no move.
    alone = own[-1] in (0, len(spoken) - 1)
    return alone or is_same_move(spoken[own[-1] - 1][0], spoken[-1][0])
