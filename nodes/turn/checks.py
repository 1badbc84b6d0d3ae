"""What is looked for in a reply before it enters the conversation. Pure functions."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, JsonValue

from ...graphs.common.data import Data
from ...graphs.log.done_tokens import DATA, done_tokens
from ...graphs.log.formats.marks import begins, read_marks
from ...graphs.log.formats.mending import NONE
from ...graphs.log.formats.parsing import Parsed, parse
from ...graphs.log.kinds import Kind
from ...graphs.log.messages import About, Flaw, line
from ...graphs.rules.ends.tally import is_alike
from ...graphs.speakers.formats import Blocks, Code, Marks, Schema, plain
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.handoffs import first_of, named_in, targets
from ...graphs.spec.judges import Handoff
from ...graphs.text.borrowed import asks_to_repeat, is_echo, is_placeholder, repeats
from ...graphs.text.fences import MARKS as FENCE_MARKS, prose_places
from ...graphs.text.wording import is_blank, is_equal, is_short
from ..prompts import formats as form_prompts, handoffs, speaking as prompts


class Problem(Data):
    """What is wrong with a reply."""

    flaw: Flaw
    """What kind of problem it is."""
    text: str
    """The problem, as told to the speaker."""


class Checked(NamedTuple):
    """A reply, and what is wrong with it."""

    text: str
    """It as it would be said: with the marks that were missing, where they can be added."""
    problem: Problem | None
    """Why it is asked for once more. None: it is said."""


def checked(
    conversation: Conversation,
    speaker: Speaker,
    text: str,
    log: Sequence[BaseMessage],
    schema: type[BaseModel] | None = None,
    *,
    cut_off: bool = False,
    handed_to: Sequence[str] = (),
) -> Checked:
    """Check a reply, and add what little its form lacks.

    A reply that was cut off lacks its end because of that, and not against its form. Without a word
    it may be whom it names that counts.
    """
    if says_done(conversation, speaker, text):
        return Checked(text, None)
    misnamed = _misnamed(conversation, speaker, handed_to) if handed_to else None
    if misnamed is not None or (handed_to and not text.strip()):
        return Checked(text, misnamed)
    if not text.strip():
        return Checked(text, Problem(flaw=Flaw.BLANK, text=conversation.worded(prompts.EMPTY)))
    flipped = plays(conversation, speaker, text)
    if flipped is not None:
        told = conversation.worded(prompts.ANOTHERS_PART, me=speaker.name, other=flipped)
        return Checked(text, Problem(flaw=Flaw.ROLE_FLIP, text=told))
    is_formed = speaker.format is not None
    read = _read(speaker, text, schema, cut_off=cut_off) if is_formed else Parsed()
    text = read.text or text
    if _says_nothing(conversation, speaker, text, read, log):
        told = conversation.worded(prompts.NO_WORDS_YET)
        return Checked(text, Problem(flaw=Flaw.NO_REPLY, text=told))
    hands_over = isinstance(conversation.turn_order, Handoff)
    unfit = _unfit(conversation, speaker, read) if read.problem or hands_over else None
    if unfit is not None:
        return Checked(text, unfit)
    if _repeats(speaker, text, log):
        told = conversation.worded(prompts.SAME_AGAIN)
        return Checked(text, Problem(flaw=Flaw.REPEATED, text=told))
    own = _own_words(speaker, text, read.value) if is_formed else text
    echoed = _echoed(conversation, speaker, own, log)
    if echoed is not None:
        told = conversation.worded(prompts.ANOTHERS_WORDS, other=echoed)
        return Checked(text, Problem(flaw=Flaw.ECHO, text=told))
    return Checked(text, None)


def _unfit(conversation: Conversation, speaker: Speaker, read: Parsed) -> Problem | None:
    """What is wrong with a reply as it was read by its format."""
    if read.problem is not None:
        return Problem(flaw=Flaw.FORM, text=read.problem)
    return _misnamed(conversation, speaker, named_in(conversation, read.value))


def _misnamed(conversation: Conversation, speaker: Speaker, given: Sequence[str]) -> Problem | None:
    """What is wrong where a reply names nobody to speak next but who can't."""
    if not given or first_of(conversation, speaker.name, given) is not None:
        return None
    names = ", ".join(targets(conversation, speaker.name))
    told = conversation.worded(handoffs.NOT_NEXT, other=given[0] or "nobody", names=names)
    return Problem(flaw=Flaw.NOT_NEXT, text=told)


_WORD: Final = re.compile(r"\w+\b")
_FIRST: Final = 40
"""How many characters hold the first words."""

_WORTH: Final = {Flaw.BLANK: 0, Flaw.NO_REPLY: 0, Flaw.ROLE_FLIP: 0}
"""What is heard least gladly; what has its form is worth most, and all else stands between."""


def better(first: Checked, second: Checked) -> Checked:
    """Choose of two tries the one that is said; of equal ones it is the second."""
    return max(second, first, key=lambda one: _WORTH.get(one.problem.flaw, 1) if one.problem else 2)


def _read(speaker: Speaker, text: str, schema: type[BaseModel] | None, *, cut_off: bool) -> Parsed:
    """Read a reply by its format; one that was cut off, as far as it came."""
    form, stop = speaker.format, speaker.generation.stop
    if cut_off:
        match form:
            case Marks():
                form = form.model_copy(
                    update={"lines": form.lines[:1], "end": None, "optional": ()}
                )
            case Blocks():
                stop = (form.end,)
            case Code():
                stop = FENCE_MARKS
    if form is None:
        return Parsed()
    read = parse(form, text, stop=stop, schema=schema, name=speaker.name)
    if read.problem is not None and cut_off and isinstance(form, Schema):
        return Parsed(problem=form_prompts.JSON_CUT_OFF)
    return read


def says_done(conversation: Conversation, speaker: Speaker, text: str) -> bool:
    """Whether a message says a done token."""
    return bool(done_tokens(conversation, speaker.name, text))


def plays(conversation: Conversation, speaker: Speaker, text: str) -> str | None:
    """Find the other speaker whose part a message plays."""
    own = speaker.format.lines if isinstance(speaker.format, Marks) else ()
    shown = [one for _, one in prose_places(text.strip())]
    for other in conversation.speakers:
        mark = other.format.lines[0] if isinstance(other.format, Marks) else None
        if mark is None or mark in own or other.name == speaker.name:
            continue
        found = [place for place, one in enumerate(shown) if begins(one, mark)]
        if found and found[-1] >= _length_of_form(speaker, shown):
            return other.name
    # Further down a name and a colon may well stand in a list, a note or a quoted line.
    first = _labels(conversation, shown[:1])
    if conversation.is_pair or not first:
        return first[0] if first and first[0] != speaker.name else None
    labels = _labels(conversation, shown)
    others = [name for name in labels if name != speaker.name]
    return others[0] if others and len(labels) > 1 else None


def _labels(conversation: Conversation, lines: Sequence[str]) -> list[str]:
    """The names of speakers, and a colon, with which lines begin."""
    names = [(name, f"{name}:") for name in conversation.names]
    return [name for one in lines for name, label in names if begins(one, label)]


def _length_of_form(speaker: Speaker, shown: Sequence[str]) -> int:
    """How many lines a message that has its form takes: within it may stand any text."""
    marks = speaker.marks
    if marks is None or marks.end is None:
        return 0
    opens = [place for place, one in enumerate(shown) if begins(one, marks.lines[0])]
    closes = (plain(one).rstrip().endswith(plain(marks.end)) for one in shown)
    return next((place for place, one in enumerate(closes, 1) if one and opens == [0]), 0)


def _says_nothing(
    conversation: Conversation,
    speaker: Speaker,
    text: str,
    read: Parsed,
    log: Sequence[BaseMessage],
) -> bool:
    """Whether a reply only repeats how it was asked for."""
    prompt, form = speaker.role_prompt or "", speaker.format
    marks = form if isinstance(form, Marks) else None
    values = [*map(str, read.value.values())] if isinstance(read.value, dict) else None
    if marks is not None:
        values = values or read_marks(marks.lines, marks.end, text)
    if marks is not None and values is not None:
        given = (
            one
            for mark, one in zip(marks.lines, values, strict=False)
            if mark not in marks.optional
        )
        if any(is_blank(one) or is_placeholder(one, prompt, marks.lines) for one in given):
            return True
        text = "\n".join(values)
    request = _request(conversation, log) if log and log[-1].name == speaker.name else ""
    # A task may well be said in its own words, so it does not count.
    told = prompt or prompts.LABELLED
    return ("<" in text and is_placeholder(text, prompt)) or repeats(text, told, request)


def _request(conversation: Conversation, log: Sequence[BaseMessage]) -> str:
    """How the speaker was just asked for its reply once more; empty where it was not."""
    newest = line(log[-1])
    is_draft = newest.kind is Kind.DRAFT
    return conversation.worded(prompts.MEND, problem=newest.problem) if is_draft else ""


def _repeats(speaker: Speaker, text: str, log: Sequence[BaseMessage]) -> bool:
    if is_short(text):
        return False
    speeches = _speeches_backwards(log)
    newest = own = next(speeches, None)
    while own is not None and own[1].speaker != speaker.name:
        own = next(speeches, None)
    if newest is None or own is None or not is_equal(own[0].text, text):
        return False
    # The same answer to another move of a game is none; the very first answers no move.
    before = next(speeches, None)
    return own is newest or before is None or is_alike(before, newest)


def _speeches_backwards(log: Sequence[BaseMessage]) -> Iterator[tuple[BaseMessage, About]]:
    """Yield what was said and what stands beside it, the newest first."""
    for message in reversed(log):
        about = line(message)
        if about.is_speech:
            yield message, about


def _echoed(
    conversation: Conversation, speaker: Speaker, own: str, log: Sequence[BaseMessage]
) -> str | None:
    """Find whose words a message repeats, of those that were said since the speaker's last one."""
    if not conversation.end_chat.guards.echo:
        return None
    first = _first_words(own)
    for place in reversed(range(len(log))):
        about = line(log[place])
        if about.kind is not Kind.SPEECH or about.source in DATA:
            continue
        if about.speaker is None or about.speaker == speaker.name:
            return None
        if about.audience is not None and speaker.name not in about.audience:
            continue
        other, said = conversation.speaker(about.speaker), str(log[place].text)
        said = said if other.format is None else _own_words(other, said, about.parsed)
        # Cheap first: most begin with other words.
        if _first_words(said) != first:
            continue
        if is_echo(own, said):
            return None if _may_repeat(conversation, speaker, log[:place]) else about.speaker
    return None


def _first_words(text: str) -> list[str]:
    """The first two words of a text, without case."""
    found: list[str] = _WORD.findall(text[:_FIRST].casefold(), 0, _FIRST)
    return found[:2]


def _may_repeat(conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage]) -> bool:
    """Whether a speaker was asked to repeat what it hears: a vow, or a sentence of a lesson."""
    read = ((message.text, line(message)) for message in log)
    heard = (text for text, about in read if about.is_speech and about.speaker != speaker.name)
    tasks = filter(None, (conversation.task, speaker.task))
    return any(asks_to_repeat(text) for text in (*tasks, *heard))


def _own_words(speaker: Speaker, text: str, parsed: JsonValue) -> str:
    """What stands behind the marks of a message, or in the fields of JSON; all of it else."""
    if isinstance(speaker.format, Schema):
        return text if parsed is None else "\n".join(_values(parsed))
    marks = speaker.marks
    values = None if marks is None else read_marks(marks.lines, marks.end, text)
    return text if values is None else "\n".join([one for one in values if not _is_none(one)])


def _is_none(value: str) -> bool:
    """Whether what stands behind a mark is what was added there."""
    return begins(value, NONE) and plain(value) == plain(NONE)


def _values(found: JsonValue) -> Iterator[str]:
    if not isinstance(found, dict | list):
        yield str(found)
        return
    for one in found.values() if isinstance(found, dict) else found:
        yield from _values(one)
