"""The content of a session's page, built from the stored session by pure functions."""

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
from .ending import ending_of, reason_panel
from .page_data import Page, Player, Sent, Spent
from .transcript import anchors, lines_of


@dataclass(frozen=True)
class PageSession:
    """The data of a stored session that its page shows."""

    id: str
    """The session's id."""
    title: str
    """The session's title."""
    conversation: Conversation
    """The spec of the session's conversation."""
    log: Sequence[AnyMessage]
    """The whole log, with the messages that are only kept for the record."""
    task: str | None = None
    """The task of the speakers. None if there is none."""
    outcome: Outcome | None = None
    """The outcome. None until the conversation ends."""
    pending: Sequence[Question] = ()
    """The questions to people that have not been answered."""
    position: Position = field(default_factory=Position)
    """The current position, which counts the turns and facts so far."""
    steps: Sequence[Spent] = ()
    """The usage of each step."""
    later: Sequence[str] = ()
    """A line for each verdict of a judge who was asked without running the session."""
    prompts: Mapping[str, Sequence[BaseMessage]] = field(default_factory=dict)
    """The last prompt to each speaker's model, by the speaker's name. Unknown prompts are missing.
    """


def page_of(session: PageSession) -> Page:
    """Build the page of a whole session."""
    conversation, log, found = session.conversation, session.log, anchors(session.log)
    return Page(
        session=session.id,
        title=_title(session.title),
        task=session.task or "",
        players=tuple(_player(session, name, found) for name in conversation.names),
        lines=tuple(lines_of(conversation, log)),
        ending=ending_of(
            conversation, log, session.position, session.outcome, session.pending, found
        ).model_copy(update={"later": tuple(session.later)}),
        spending=spending_of(conversation, session.steps),
    )


def memory_page_of(session: PageSession, name: str) -> Page:
    """Build the page of one speaker's memory, with nothing that the speaker does not know."""
    known = memory(session.log, name)
    return Page(
        session=session.id,
        title=_title(session.title),
        task=session.task or "",
        players=tuple(Player(name=one) for one in session.conversation.names),
        lines=tuple(lines_of(session.conversation, known, only=name)),
        ending=reason_panel(session.outcome, session.pending, anchors(known)),
        only=session.conversation.names.index(name),
    )


def _title(text: str) -> str:
    """Return a title on one line, cut if it is a long task, which the page also shows in full."""
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
    """Yield the parts of a prompt, with a reference to each part that the speaker's view shows."""
    known = {
        (one.type, _text_with_calls(one)): str(one.id) for one in view if str(one.id) in anchors
    }
    same: list[str] = []
    for message in prompt:
        place = known.get((message.type, _text_with_calls(message)))
        if place is not None:
            same.append(anchors[place])
            continue
        yield from _reference(same)
        same = []
        if message.type == "system" and message.text == system:
            yield Sent(role="the system prompt above")
            continue
        yield Sent(role=_ROLES.get(message.type, message.type), text=_text_with_calls(message))
    yield from _reference(same)


def _reference(same: Sequence[str]) -> Iterator[Sent]:
    if same:
        yield Sent(
            role=f"{len(same)} {'message' if len(same) == 1 else 'messages'} below:",
            first=same[0],
            last=same[-1],
        )


_ROLES = {"ai": "assistant", "human": "user"}


def _text_with_calls(message: BaseMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return "\n".join([message.text, *(f"calls {call['name']}({call['args']})" for call in calls)])
