"""A reply that ended at its longest length: what is asked for then, and what is said. Pure."""

from langchain_core.messages import AIMessage, BaseMessage

from ...graphs.log.formats.marks import begins, length_of
from ...graphs.rules.position import Position
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.joined import joined
from ..models.answers import is_recorded, mark_cut_off
from ..prompts import speaking as prompts
from ..prompts.template import Prompt
from .record import is_call

_REQUESTS = {"continue": prompts.CONTINUE_REPLY, "retry": prompts.SHORTEN_REPLY}


def more_asked(speaker: Speaker, position: Position, text: str) -> Prompt | None:
    """Give what is asked for where a reply was cut off, once a turn; None where it is accepted."""
    if position.cut_off or not text.strip():
        return None
    return _REQUESTS.get(speaker.on_length)


def together(speaker: Speaker, before: BaseMessage, answer: AIMessage) -> AIMessage:
    """Give the reply out of the one that was cut off and what came after it."""
    if is_recorded(answer):
        return answer
    if not answer.text.strip() and not is_call(answer):
        # Nothing came: what was said before stays as it is.
        return mark_cut_off(answer.model_copy(update={"content": before.text}))
    if speaker.on_length == "continue":
        rest = _without_mark(speaker, before.text, answer.text)
        whole = joined(before.text, rest, begins_word=rest != answer.text)
        return answer.model_copy(update={"content": whole})
    return answer


def _without_mark(speaker: Speaker, first: str, rest: str) -> str:
    """The rest of a message without a mark of its form that was written before it was cut off."""
    line = rest.lstrip().partition("\n")[0]
    if speaker.marks is None or rest.startswith(first):
        return rest
    for mark in speaker.marks.lines:
        if begins(line, mark) and any(begins(one, mark) for one in first.splitlines()):
            return rest.lstrip()[length_of(mark, line)[0] :].lstrip()
    return rest
