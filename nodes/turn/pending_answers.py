"""Answers of models that wait in the log for their speakers' turns."""

from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import NOBODY, PendingAnswer, Source
from ...graphs.speakers.model_thought import THOUGHT
from ...graphs.speakers.speaker import TO_USER
from ..models.answers import thought_of
from ..models.stops import with_stop
from ..models.to_user import texts_by_id


def make_pending(number: int, speaker: str, answer: AIMessage) -> AnyMessage:
    """Return the log message that stores an answer until its speaker's turn comes."""
    about = PendingAnswer(
        speaker=speaker,
        audience=NOBODY,
        source=Source.MODEL,
        # Whole, because the model may receive it again while its calls run.
        thought=thought_of(answer, goes_back=True),
        to_user=texts_by_id(answer, answer.tool_calls),
    )
    return make_message(
        number,
        answer.text,
        about,
        answer=answer,
        tool_calls=answer.tool_calls,
        invalid_tool_calls=answer.invalid_tool_calls,
    )


def read_pending(message: AIMessage) -> AIMessage:
    """Return the answer that a log message stores, as the model returned it."""
    about = metadata(message)
    assert isinstance(about, PendingAnswer)  # noqa: S101  # the caller has found it by its kind
    extra: dict[str, Any] = {} if about.thought is None else {THOUGHT: about.thought}
    if about.to_user:
        extra[TO_USER] = [about.to_user.get(str(call["id"])) for call in message.tool_calls]
    answer = AIMessage(
        message.text,
        additional_kwargs=extra,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
    )
    return with_stop(answer, about.stop)
