"""What a turn writes to the log: what is said, calls, and what hooks see first."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from pydantic import BaseModel

from ...graphs.log.formats.parsing import parse
from ...graphs.log.messages import make_message, place_name
from ...graphs.log.metadata import (
    NOBODY,
    CodeCalls,
    Flaw,
    Source,
    SpeakerReply,
    ToolCalls,
    UnheardReply,
    as_reply,
)
from ...graphs.log.stage import ALOUD, Stage
from ...graphs.rules.end_chat import Decision
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import paused, spoke
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.handoffs import first_of, may_be_private
from ..models.offered_tools import HandedOver
from ..models.to_user import texts_by_id
from ..step.resources import Moment
from .given import Given
from .hooks import sees_replies


def audience_of(
    conversation: Conversation, turn: Decision, speaker: Speaker, handed: HandedOver
) -> tuple[str, ...] | None:
    """Who hears what is said in a turn; None: all."""
    alone = turn.stage is Stage.PRIVATE or (
        turn.stage is Stage.OPENING and not conversation.opening.reconcile
    )
    if handed.private and may_be_private(conversation):
        # What is meant for nobody that there is stays private.
        return (first_of(conversation, turn.speaker, handed.to) or turn.speaker,)
    if alone:
        return (turn.speaker,)
    return speaker.speaks_to if turn.stage in ALOUD else None


def is_call(message: AIMessage) -> bool:
    """Whether a message calls tools, or has code run."""
    return bool(message.tool_calls or message.invalid_tool_calls)


async def write_answer(
    moment: Moment, speaker: Speaker, given: Given, about: SpeakerReply
) -> dict[str, Any]:
    """Write down an accepted answer: as what is said, or for the speaker's hooks to see first."""
    hooks = moment.resources.registry.hooks_of(speaker)
    number = len(moment.log) + len(given.new)
    ids = fresh_ids(given.message, moment.log)
    message = given.message.model_copy(
        update={
            "tool_calls": [{**call, "id": next(ids)} for call in given.message.tool_calls],
            "invalid_tool_calls": [
                {**call, "id": next(ids)} for call in given.message.invalid_tool_calls
            ],
        }
    )
    if about.source is Source.MODEL:
        spoken = texts_by_id(message, message.tool_calls)
        about = about.model_copy(update={"to_user": spoken})
    sees = bool(message.text.strip()) or not is_call(message)
    if sees and sees_replies(hooks):
        about = as_reply(UnheardReply, about, audience=NOBODY)
        waiting = paused(moment.position, moment.turn, Phase.ANSWERED)
        return await moment.step(
            waiting, [*given.new, _line_of(number, message, about)], given.usage
        )
    return await write_said(moment, speaker, given._replace(message=message), about)


async def write_said(
    moment: Moment, speaker: Speaker, given: Given, about: SpeakerReply
) -> dict[str, Any]:
    """Write down what the speaker says."""
    position, turn = moment.position, moment.turn
    number = len(moment.log) + len(given.new)
    if is_call(given.message):
        kind = CodeCalls if about.source is Source.CODE else ToolCalls
        called = as_reply(kind, about)
        lines = [*given.new, _line_of(number, given.message, called)]
        return await moment.step(paused(position, turn, Phase.CALLED), lines, given.usage)
    schema = moment.resources.registry.schema_of(speaker)
    about = about.model_copy(update=read_by_format(speaker, given.message.text, about, schema))
    message_id = None
    if about.source is Source.HUMAN and (brought := moment.brought(speaker.name)) is not None:
        message_id = brought.id
    spoken = make_message(number, given.message.text, about, id=message_id, answer=given.message)
    return await moment.step(
        spoke(moment.conversation, position, turn), [*given.new, spoken], given.usage
    )


def read_by_format(
    speaker: Speaker, text: str, about: SpeakerReply, schema: type[BaseModel] | None
) -> dict[str, object]:
    """Read what is said by the speaker's output format."""
    if speaker.format is None or about.source is Source.CODE:
        # What code gave has a form of its own, and is read already.
        return {}
    found = parse(
        speaker.format, text, stop=speaker.model_settings.stop, schema=schema, name=speaker.name
    )
    read: dict[str, object] = {"parsed": found.value}
    if found.problem is None or about.source in (Source.MODEL, Source.HUMAN):
        # Of what a model said the flaw is found already; people speak as they like.
        return read
    return read | {"flaw": Flaw.FORM, "problem": found.problem}


def _line_of(number: int, message: AIMessage, about: SpeakerReply) -> AnyMessage:
    return make_message(
        number,
        message.text,
        about,
        answer=message,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
    )


def fresh_ids(answer: AIMessage, log: Sequence[BaseMessage]) -> Iterator[str]:
    """Give each call of an answer an id that no other call of the log has.

    Some servers send none, or begin anew at each turn, and results are found by these ids.
    """
    seen = {
        call["id"]
        for message in log
        if isinstance(message, AIMessage)
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    }
    for place, call in enumerate((*answer.tool_calls, *answer.invalid_tool_calls)):
        given = call["id"]
        call_id = given if given and given not in seen else f"{place_name(len(log))}-{place}"
        seen.add(call_id)
        yield call_id
