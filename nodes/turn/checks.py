"""What is looked for in a reply before it enters the conversation. Pure functions."""

from collections.abc import Sequence
from itertools import chain

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from ...graphs.common.data import Data
from ...graphs.log.done_tokens import done_tokens
from ...graphs.log.formats.marks import begins
from ...graphs.log.formats.parsing import parse
from ...graphs.log.messages import Flaw, line
from ...graphs.rules.ends.tally import is_alike
from ...graphs.speakers.formats import Blocks, Code, Format, Marks, Schema
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.conversation import Conversation
from ...graphs.text.fences import MARKS as FENCE_MARKS, fences
from ...graphs.text.wording import is_equal, is_short
from ..prompts import formats as form_prompts


class Problem(Data):
    """What is wrong with a reply."""

    flaw: Flaw
    """What kind of problem it is."""
    text: str
    """The problem, as told to the speaker."""


def find_problem(
    conversation: Conversation,
    speaker: Speaker,
    text: str,
    log: Sequence[BaseMessage],
    schema: type[BaseModel] | None = None,
    *,
    cut_off: bool = False,
) -> Problem | None:
    """Look for a reason to ask a speaker for its reply once more.

    A reply that was cut off lacks its end because of that, and not against its form.
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
    if speaker.format is not None:
        problem = _misfit(speaker.format, text, speaker.generation.stop, schema, cut_off=cut_off)
        if problem is not None:
            return Problem(flaw=Flaw.FORM, text=problem)
    if _repeats(speaker, text, log):
        return Problem(flaw=Flaw.REPEATED, text="You have just said the same.")
    return None


def _misfit(
    form: Format,
    text: str,
    stop: Sequence[str],
    schema: type[BaseModel] | None,
    *,
    cut_off: bool,
) -> str | None:
    """What is wrong with a reply by its format; of one that was cut off, as far as it came."""
    if cut_off:
        match form:
            case Marks():
                form = form.model_copy(update={"lines": form.lines[:1], "end": None})
            case Blocks():
                stop = (form.end,)
            case Code():
                stop = FENCE_MARKS
    problem = parse(form, text, stop=stop, schema=schema).problem
    if problem is not None and cut_off and isinstance(form, Schema):
        return form_prompts.JSON_CUT_OFF
    return problem


def says_done(conversation: Conversation, speaker: Speaker, text: str) -> bool:
    """Whether a message says a done token."""
    return bool(done_tokens(conversation, speaker.name, text))


def plays(conversation: Conversation, speaker: Speaker, text: str) -> str | None:
    """Find the other speaker whose part a message plays."""
    own = speaker.marks.lines if speaker.marks is not None else ()
    prose = _prose(text.strip())
    for found in prose:
        for other in conversation.speakers:
            marks = other.marks.lines[:1] if other.marks is not None else ()
            foreign = [mark for mark in marks if mark not in own and other.name != speaker.name]
            if any(begins(found, mark) for mark in foreign):
                return other.name
    labels = [name for found in prose for name in conversation.names if begins(found, f"{name}:")]
    # Further down a name and a colon may well stand in a list, a note or a quoted line.
    first = next(
        (name for name in conversation.names if prose and begins(prose[0], f"{name}:")), None
    )
    if conversation.is_pair:
        return first if first != speaker.name else None
    others = [name for name in labels if name != speaker.name]
    return others[0] if first is not None and others and len(labels) > 1 else None


def _prose(text: str) -> list[str]:
    """The lines of a message that are not inside fenced code."""
    lines, found = fences(text)
    fenced = {place for fence in found for place in range(fence.first, fence.behind)}
    return "".join(one for place, one in enumerate(lines) if place not in fenced).splitlines()


def _repeats(speaker: Speaker, text: str, log: Sequence[BaseMessage]) -> bool:
    if is_short(text):
        return False
    read = ((message, line(message)) for message in reversed(log))
    speeches = (one for one in read if one[1].is_speech)
    newest = next(speeches, None)
    said = (one for one in chain([newest], speeches) if one is not None)
    own = next((one for one in said if one[1].speaker == speaker.name), None)
    if newest is None or own is None or not is_equal(own[0].text, text):
        return False
    # The same answer to another move of a game is none; the very first answers no move.
    before = next(speeches, None)
    return own is newest or before is None or is_alike(before, newest)
