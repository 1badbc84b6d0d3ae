"""Rounds in which all speakers speak at once: the log as one of them hears it."""

from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage

from ..conversation.conversation import Conversation
from ..conversation.judges import Concurrent
from ..log.messages import metadata
from ..log.metadata import EarlierEnd, PendingAnswer, Speech, Stage, original_metadata


def heard_log(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> list[BaseMessage]:
    """Return the log in the order in which a speaker hears it in its turn.

    In each round, the messages of the others follow its own, because it hears them only in the next
    round. Those of the current round are left out.
    """
    heard: list[BaseMessage] = []
    begin = 0
    for end in _ends_of_rounds(conversation, log, name):
        of_others = [message for message in log[begin:end] if _is_of_another(message, name)]
        heard += (message for message in log[begin:end] if not _is_of_another(message, name))
        heard += of_others
        begin = end
    heard += (message for message in log[begin:] if not _is_of_another(message, name))
    return heard


def pending_answer(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> AIMessage | None:
    """Return the answer of a speaker's model that waits for the speaker's turn, or None."""
    begin = max(_ends_of_rounds(conversation, log, name), default=0)
    for message in reversed(log[begin:]):
        about = metadata(message)
        if isinstance(about, PendingAnswer) and about.speaker == name:
            return message if isinstance(message, AIMessage) else None
    return None


def pending_answers(conversation: Conversation, log: Sequence[BaseMessage]) -> list[AIMessage]:
    """Return the answers of all models that wait for their speakers' turns."""
    if not isinstance(conversation.turn_order, Concurrent):
        return []
    found = (pending_answer(conversation, log, name) for name in conversation.order)
    return [answer for answer in found if answer is not None]


def _is_of_another(message: BaseMessage, name: str) -> bool:
    """Return whether another speaker says, calls or receives something with a message."""
    about = metadata(message)
    return about.is_spoken and about.speaker not in (None, name)


def _ends_of_rounds(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> Iterator[int]:
    """Yield the log indexes at which the rounds before a speaker's turn end, in order.

    The turns of a round follow the order of the speakers. A turn outside of the rounds, such as an
    opening answer, counts as a whole round, so it is heard without delay.
    """
    order = conversation.order
    before: tuple[int, int] | None = None  # the index of the newest turn, and its speaker's place
    for index, message in enumerate(log):
        about = original_metadata(metadata(message))
        if isinstance(about, EarlierEnd):
            before = None
            yield index + 1
        elif isinstance(about, Speech) and about.ends_turn:
            place = order.index(about.speaker or "")
            if about.stage is not Stage.ROUNDS:
                before = None
                yield index + 1
                continue
            if before is not None and place <= before[1]:
                yield before[0] + 1
            before = index, place
    if before is not None and order.index(name) <= before[1]:
        yield before[0] + 1
