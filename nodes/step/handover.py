"""What the conversation itself tells whoever speaks next. Pure functions.

It stands in the log, before the turn: a speaker's prompt then stays the beginning of its next one.
"""

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, BaseMessage

from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import Instruction, MessageMetadata, OpeningAnswer, Speech
from ...graphs.log.stage import Stage
from ...graphs.rules.end_chat import Decision, Node
from ...graphs.rules.moves import BETWEEN_TURNS
from ...graphs.rules.position import Position
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.fields import Opening
from ...graphs.spec.judges import RoundRobin
from ..prompts import speaking as prompts


def lines_before(
    conversation: Conversation,
    position: Position,
    decision: Decision,
    log: Sequence[BaseMessage],
) -> list[AnyMessage]:
    """Give what is told before the turn that comes next."""
    speaks = decision.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
    if position.phase not in BETWEEN_TURNS or not speaks:
        return []
    told = _before(conversation, position, decision, log)
    return [make_message(len(log) + place, text, about) for place, (text, about) in enumerate(told)]


def _before(
    conversation: Conversation,
    position: Position,
    decision: Decision,
    log: Sequence[BaseMessage],
) -> list[tuple[str, MessageMetadata]]:
    name = decision.speaker
    speaker = conversation.speaker(name)
    if decision.stage is Stage.PRIVATE:
        prompt = speaker.private_opening.prompt if speaker.private_opening else None
        return [(prompt or "", _to(name))]
    if decision.stage is Stage.OPENING:
        heard_by_all = conversation.opening.reconcile
        about = Instruction(to=name, audience=None if heard_by_all else (name,))
        return [(speaker.task or "", about)]
    if decision.stage is Stage.ROUNDS and position.turns == 0:
        if _begins_by_itself(speaker) and conversation.opening == Opening():
            return []
        return [_shift(conversation, name, log)]
    if speaker.human is not None and not speaker.has_model:
        # A person's question says whose turn it is.
        return []
    if not conversation.is_pair or not isinstance(conversation.turn_order, RoundRobin):
        return [(conversation.render_prompt(prompts.YOUR_TURN, name=name), _to(name))]
    return []


def _begins_by_itself(speaker: Speaker) -> bool:
    """Whether no word is needed for its first message: that is given, or a person's."""
    is_given = speaker.first_message is not None or speaker.human is not None
    # Many models refuse a prompt that begins with their own words.
    return is_given and not speaker.has_model


def _shift(
    conversation: Conversation, owner: str, log: Sequence[BaseMessage]
) -> tuple[str, MessageMetadata]:
    """What has the first speaker of the rounds begin (Yacana's shift message)."""
    opening = conversation.opening
    if opening.first_line is not None:
        return opening.first_line, _to(owner)
    if opening.reconcile:
        # All answers are known to all: none is handed on once more, least of all to who gave it.
        return conversation.render_prompt(prompts.CONTINUE_CONVERSATION), _to(owner)
    if not opening.answers:
        return conversation.render_prompt(prompts.BEGIN), _to(owner)
    before = conversation.order[-1]
    said_before = (
        message.text
        for message in reversed(log)
        if isinstance(metadata(message), Speech) and metadata(message).speaker == before
    )
    answer = next(said_before, None)
    if answer is None:
        # It was removed.
        return conversation.render_prompt(prompts.BEGIN), _to(owner)
    return answer, OpeningAnswer(speaker=before, audience=(owner,))


def _to(name: str) -> MessageMetadata:
    return Instruction(audience=(name,))
