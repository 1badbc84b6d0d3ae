"""Calls of an observer: the separate judge or the moderator."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage

from ...graphs.common.errors import ContextTooLongError
from ...graphs.log.messages import make_message, metadata, place_of
from ...graphs.log.metadata import NOBODY, Summary
from ...graphs.log.transcript import numbered_transcript, overheard
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import SHORTENED, fill_template
from ...graphs.rules.shortened_messages import shorten_messages
from ...graphs.text.words import tokens_of
from ..models.answers import ran_out_of_room
from ..models.model import Model
from ..turn.node_context import NodeContext, notify
from ..turn.prompt import ModelAnswer, limit_after

T = TypeVar("T")

Ask = Callable[[list[BaseMessage]], Awaitable[tuple[AIMessage, T]]]
"""Calls a model with a prompt. Returns the answer, and the value read from it."""


async def ask_observer(
    context: NodeContext,
    model: Model,
    system: Sequence[str],
    question: str,
    ask: Ask[T],
    *,
    private: bool,
    most: int | None = None,
    is_numbered: bool = False,
) -> ModelAnswer[T]:
    """Ask an observer who has heard the conversation, or read its numbered lines.

    If the conversation is too long for the model, or leaves no room for a whole answer, its older
    half is left out from then on. A single message that is too long is shortened.
    """
    lines: list[AnyMessage] = [*context.log]
    usage, has_room = context.usage, False
    limit: int | None = None
    refused: int | None = None
    render_prompt = context.conversation.render_prompt
    while True:
        transcript = (
            numbered_transcript(context.log, _heard(lines))
            if is_numbered
            else overheard(_heard(lines), private=private)
        ) or render_prompt(prompts.EMPTY_CONVERSATION)
        # Constant parts first and the question last, so that most of the prompt can be cached.
        heard = render_prompt(prompts.CONVERSATION_SO_FAR, transcript=transcript, question=question)
        prompt: list[BaseMessage] = [SystemMessage("\n\n".join(system)), HumanMessage(heard)]
        if limit is not None:
            prompt = shorten_messages(prompt, limit, render_prompt)
        try:
            answer, found = await ask(prompt)
        except ContextTooLongError as error:
            since = _half(_heard(lines), private=private)
            if since is None:
                limit = limit_after(error, most or model.adapter.longest_answer, refused)
                if limit is None:
                    raise
                refused = error.estimate or 0
                continue
        else:
            usage = context.with_call(model, answer, usage)
            # Only once: if the next answer is cut off as well, the reason is the model's own limit.
            has_room = has_room or not ran_out_of_room(answer, most or model.adapter.longest_answer)
            since = None if has_room else _half(_heard(lines), private=private)
            if since is None:
                return ModelAnswer(answer, found, lines[len(context.log) :], usage)
            has_room = True
        text = fill_template(SHORTENED, name=prompts.OBSERVER)
        about = Summary(audience=NOBODY, since=since, problem=text)
        lines.append(make_message(len(lines), "", about))
        notify(text)


def _heard(log: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the part of a log that observers still see."""
    cuts = (
        one for one in map(metadata, reversed(log)) if isinstance(one, Summary) and not one.speaker
    )
    since = next((cut.since for cut in cuts), None)
    places = (place for place, message in enumerate(log) if place_of(message) == since)
    return list(log[next(places, 0) :])


def _half(log: Sequence[BaseMessage], *, private: bool) -> str | None:
    """Return the place in the log at which the newer half begins, or None for a single message."""
    spoken = [message for message in log if overheard([message], private=private)]
    left = sum(tokens_of(message.text) for message in spoken)
    most = left // 2
    for message, following in pairwise(spoken):
        left -= tokens_of(message.text)
        if left <= most:
            return place_of(following)
    return place_of(spoken[-1]) if len(spoken) > 1 else None
