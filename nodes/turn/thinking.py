"""What a speaker thought with its calls: its model is shown it while the turn goes on. Pure.

Providers demand it. Once the turn is over no thought is sent back.
"""

from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage

from ...graphs.log.messages import metadata
from ...graphs.log.metadata import Source, SpeakerReply, ToolCalls
from ...graphs.log.thoughts import Thought
from ...graphs.text.tokens import tokens_of
from ..models.answers import add_thought


def with_thoughts(
    view: Sequence[BaseMessage], log: Sequence[BaseMessage], name: str
) -> list[BaseMessage]:
    """Show a speaker, beside its calls of this turn, what it thought."""
    thoughts = dict(_of_turn(log, name))
    return [
        add_thought(message, thoughts[message.id])
        if isinstance(message, AIMessage) and message.id in thoughts
        else message
        for message in view
    ]


def leaves_unopened(log: Sequence[BaseMessage], name: str) -> bool:
    """Whether a speaker's model left out the tag that opens a thought when it last spoke."""
    lines = map(metadata, reversed(log))
    by_model = (
        one for one in lines if isinstance(one, SpeakerReply) and one.source is Source.MODEL
    )
    last = next((one for one in by_model if one.speaker == name), None)
    return last is not None and last.thought is not None and last.thought.is_unopened


def tokens_of_thoughts(log: Sequence[BaseMessage], name: str) -> int:
    """Estimate the tokens of what a speaker is shown so."""
    return sum(tokens_of(thought.text) for _, thought in _of_turn(log, name))


def _of_turn(log: Sequence[BaseMessage], name: str) -> Iterator[tuple[str | None, Thought]]:
    for message in reversed(log):
        about = metadata(message)
        if about.ends_turn:
            return
        if isinstance(about, ToolCalls) and about.speaker == name and about.thought is not None:
            yield message.id, about.thought
