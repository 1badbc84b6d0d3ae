"""Ends by verdicts: they come once promised last words are spoken."""

from typing import Final

from ...spec.conversation import Conversation
from ...spec.end_chat import EndChatMode
from ...spec.ends import Reason
from ...spec.judges import SeparateJudge
from ..moves import Strength
from ..position import Position
from .end import AtEnd, EndRule


class Completed(EndRule):
    """The tasks that the end-chat mode asks for are complete."""

    reason = Reason.COMPLETED
    strength = Strength.VERDICT

    def holds(self, conversation: Conversation, position: Position) -> bool:
        match conversation.end_chat.mode:
            case EndChatMode.MAX_ITERATIONS_ONLY:
                return False
            case EndChatMode.ALL_TASK_MUST_COMPLETE:
                return set(conversation.stoppers) <= set(position.completed)
            case _:
                return bool(position.completed)

    def words(self, at: AtEnd) -> str:
        if isinstance(at.conversation.judge, SeparateJudge):
            return "the judge found all criteria met"
        names = at.position.completed
        return f"{' and '.join(names)} completed {'their tasks' if len(names) > 1 else 'its task'}"

    def by(self, at: AtEnd) -> str | None:
        separate = isinstance(at.conversation.judge, SeparateJudge)
        return None if separate else at.position.completed[-1]


VERDICTS: Final = (Completed(),)
