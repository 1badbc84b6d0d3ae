"""A page made of what a session holds. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from ..conversation.conversation import Conversation
from ..conversation.questions import Question
from ..log.memory import memory
from ..log.messages import place_of
from ..log.viewpoint import viewpoint
from ..rules.outcome import Outcome
from ..rules.position import Position
from .charts import spending_of
from .ending import ending_of, told_end
from .page_data import Page, Player, Sent, Spent
from .transcript import anchors, lines_of


@dataclass(frozen=True)
class PageSession:
    """What a session holds."""

    id: str
    """Its id."""
    title: str
    """Its title."""
    conversation: Conversation
    """Its spec."""
    log: Sequence[AnyMessage]
    """All that was said, with what is kept for the record only."""
    task: str | None = None
    """The task that the speakers were given."""
    outcome: Outcome | None = None
    """How it ended."""
    pending: Sequence[Question] = ()
    """What people are asked."""
    position: Position = field(default_factory=Position)
    """Where it is."""
    steps: Sequence[Spent] = ()
    """What its steps have used."""
    prompts: Mapping[str, Sequence[BaseMessage]] = field(default_factory=dict)
    """What speakers' models were sent last."""


def page_of(session: PageSession) -> Page:
    """Put a whole session on a page."""
    conversation, log, found = session.conversation, session.log, anchors(session.log)
    return Page(
        session=session.id,
        title=_title(session.title),
        task=session.task or "",
        players=tuple(_player(session, name, found) for name in conversation.names),
        lines=tuple(lines_of(conversation, log)),
        ending=ending_of(
            conversation, log, session.position, session.outcome, session.pending, found
        ),
        spending=spending_of(conversation, session.steps),
    )


def memory_page_of(session: PageSession, name: str) -> Page:
    """Put what one speaker remembers on a page, and nothing that it does not know."""
    known = memory(session.log, name)
    return Page(
        session=session.id,
        title=_title(session.title),
        task=session.task or "",
        players=tuple(Player(name=one) for one in session.conversation.names),
        lines=tuple(lines_of(session.conversation, known, only=name)),
        ending=told_end(session.outcome, session.pending, anchors(known)),
        only=session.conversation.names.index(name),
    )


def _title(text: str) -> str:
    """Cut what is the whole task where nobody gave a title: it stands below in full."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2].rstrip()} …"


_LONGEST: Final = 100


def _player(session: PageSession, name: str, found: Mapping[str, str]) -> Player:
    conversation = session.conversation
    system = conversation.system_prompt(conversation.speaker(name), session.task)
    view = viewpoint(conversation, session.log, name)
    ids = {str(one.id): found[place_of(one)] for one in session.log}
    sent = _sent(session.prompts.get(name, ()), system, view, ids)
    return Player(name=name, system=system, sent=tuple(sent))


def _sent(
    prompt: Sequence[BaseMessage],
    system: str,
    view: Sequence[BaseMessage],
    anchors: Mapping[str, str],
) -> Iterator[Sent]:
    """Tell a prompt, and of what stands in the view just so only where that is."""
    known = {(one.type, _told(one)): str(one.id) for one in view if str(one.id) in anchors}
    same: list[str] = []
    for message in prompt:
        place = known.get((message.type, _told(message)))
        if place is not None:
            same.append(anchors[place])
            continue
        yield from _joined(same)
        same = []
        if message.type == "system" and message.text == system:
            yield Sent(role="the system prompt above")
            continue
        yield Sent(role=_ROLES.get(message.type, message.type), text=_told(message))
    yield from _joined(same)


def _joined(same: Sequence[str]) -> Iterator[Sent]:
    if same:
        yield Sent(role=f"{len(same)} as below", first=same[0], last=same[-1])


_ROLES = {"ai": "assistant", "human": "user"}


def _told(message: BaseMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return "\n".join([message.text, *(f"calls {call['name']}({call['args']})" for call in calls)])
