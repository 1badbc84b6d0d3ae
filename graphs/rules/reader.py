"""What is read of one session's log, and goes on with what is new."""

from collections.abc import Sequence
from functools import partial

from langchain_core.messages import BaseMessage

from ..common.fold import Fold
from ..ends.end import Tallies
from ..ends.facts import Facts
from ..log.viewpoint import View
from ..spec.conversation import Conversation
from .context.shortening import History
from .facts import LogCounter


class Reader:
    """Reads the log of one session.

    Each part gives the same for any log as if it were read for the first time.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._counted = Fold[LogCounter, BaseMessage](
            partial(LogCounter, conversation), LogCounter.add
        )
        self._histories = {name: History(conversation, name) for name in conversation.names}
        self._views = {
            (name, in_prompt): View(conversation, name, in_prompt=in_prompt)
            for name in conversation.names
            for in_prompt in (False, True)
        }

    def facts(self, log: Sequence[BaseMessage]) -> Facts:
        """Compute the facts that ends look at."""
        return self._counted.of(log).facts()

    def tallies(self, log: Sequence[BaseMessage]) -> Tallies:
        """Return what each end counts in a log."""
        return self._counted.of(log).tallies

    def history(self, name: str) -> History:
        """Give what a speaker remembers."""
        return self._histories[name]

    def view(
        self, lines: Sequence[BaseMessage], name: str, system: str | None, *, in_prompt: bool
    ) -> list[BaseMessage]:
        """Show what a speaker remembers as it sees it; the messages are not to be changed."""
        return self._views[name, in_prompt].of(lines, system)
