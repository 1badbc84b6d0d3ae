"""Asking somebody who takes no part, the separate judge or the moderator, by what was said."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage

from ...graphs.common.errors import ContextTooLongError
from ...graphs.log.messages import make_message, metadata, place_of
from ...graphs.log.metadata import NOBODY, Summary
from ...graphs.log.viewpoint import overheard
from ...graphs.prompts import judging as prompts
from ...graphs.prompts.summaries import SHORTENED, fill_template
from ...graphs.text.words import tokens_of
from ..models.answers import ran_out_of_room
from ..models.model import Model
from ..turn.node_context import NodeContext, notify
from ..turn.prompt import ModelAnswer

T = TypeVar("T")

Ask = Callable[[list[BaseMessage]], Awaitable[tuple[AIMessage, T]]]
"""Takes a prompt; gives the answer, and what is read from it."""


async def ask_observer(
    context: NodeContext,
    model: Model,
    system: Sequence[str],
    question: str,
    ask: Ask[T],
    *,
    private: bool,
    most: int | None = None,
) -> ModelAnswer[T]:
    """Ask somebody who has heard the conversation.

    Where that is too long for the model, or leaves no room for a whole answer, the older half is
    left out, and stays so.
    """
    lines: list[AnyMessage] = [*context.log]
    usage, has_room = context.usage, False
    render_prompt = context.conversation.render_prompt
    while True:
        transcript = overheard(_heard(lines), private=private) or render_prompt(
            prompts.EMPTY_CONVERSATION
        )
        # What never changes first, the question last, so that most of it can be cached.
        heard = render_prompt(prompts.CONVERSATION_SO_FAR, transcript=transcript, question=question)
        try:
            answer, found = await ask([SystemMessage("\n\n".join(system)), HumanMessage(heard)])
        except ContextTooLongError:
            since = _half(_heard(lines), private=private)
            if since is None:
                raise
        else:
            usage = context.with_call(model, answer, usage)
            # Once: an answer that is cut off again is cut off by a limit of the model's own.
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
    """What of a log is still told to those who take no part."""
    cuts = (
        one for one in map(metadata, reversed(log)) if isinstance(one, Summary) and not one.speaker
    )
    since = next((cut.since for cut in cuts), None)
    places = (place for place, message in enumerate(log) if place_of(message) == since)
    return list(log[next(places, 0) :])


def _half(log: Sequence[BaseMessage], *, private: bool) -> str | None:
    """The place of the message with which the newer half begins; None where it is one message."""
    spoken = [message for message in log if overheard([message], private=private)]
    left = sum(tokens_of(message.text) for message in spoken)
    most = left // 2
    for message, following in pairwise(spoken):
        left -= tokens_of(message.text)
        if left <= most:
            return place_of(following)
    return place_of(spoken[-1]) if len(spoken) > 1 else None
