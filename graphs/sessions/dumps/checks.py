"""Whether the steps of a session fit one another: pure rules for `graphs.sessions.dumps.dump`."""

from collections.abc import Sequence
from typing import Protocol

from ...log.kinds import Kind
from ...log.messages import place_name
from ...rules.end_chat import decide
from ...rules.moves import MOVES
from ...rules.position import Position
from ...spec.conversation import Conversation
from .lines import Message


class _Step(Protocol):
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def position(self) -> Position | None: ...
    @property
    def spec(self) -> Conversation | None: ...


def check_steps(steps: Sequence[_Step], spec: Conversation) -> None:
    """Make sure that a session can go on from any of its steps."""
    names = spec.names
    log: dict[str, Message] = {}
    for number, step in enumerate(steps):
        where = f"steps.{number}"
        if step.spec is not None and step.spec.names != names:
            raise ValueError(f"{where}.spec.speakers: they differ from those of the spec")
        for place, message in enumerate(step.messages):
            _check_message(f"{where}.messages.{place}", message, log, names)
            log[message.id] = message
        ids = [one.message_id for one in log.values() if one.message_id is not None]
        if len({*ids}) < len(ids):
            raise ValueError(f"{where}.messages: two of the log have the same message_id")
        if step.position is not None:
            _check_position(f"{where}.position", step.position, [*log.values()], names)
    if steps and steps[-1].position is not None:
        _check_end(f"steps.{len(steps) - 1}.position", spec, steps[-1].position)


def _check_end(where: str, spec: Conversation, position: Position) -> None:
    try:
        decide(spec, position)
    except Exception as error:
        raise ValueError(f"{where}: nothing can follow it: {error}") from error


def _check_message(
    where: str, message: Message, log: dict[str, Message], names: Sequence[str]
) -> None:
    free = place_name(len(log))
    if message.id not in log and message.id != free:
        raise ValueError(f"{where}.id: must be {free!r}, the next one, not {message.id!r}")
    about = message.line
    # What is remembered of another conversation may be a stranger's.
    is_ours = about.kind is not Kind.REMEMBERED and about.speaker is not None
    if is_ours and about.speaker not in names:
        raise ValueError(f"{where}.line.speaker: nobody is called {about.speaker!r}")


def _check_position(
    where: str, position: Position, log: Sequence[Message], names: Sequence[str]
) -> None:
    some = (position.speaker, position.chosen, *position.completed, *position.owed)
    for name in some:
        if name is not None and name not in names:
            raise ValueError(f"{where}: nobody is called {name!r}")
    # What was removed since then is counted as it was.
    were = [one.line.was or one.line for one in log]
    # What ended once is counted anew from there.
    first = 1 + max((place for place, line in enumerate(were) if line.outcome), default=-1)
    said = sum(line.is_speech for line in were[first:])
    removed = said - sum(one.line.is_speech for one in log[first:])
    counted = position.facts.messages
    if not said - removed <= counted <= said:
        raise ValueError(f"{where}: {counted} messages were said, and {said} stand")
    reads = MOVES[position.phase].reads
    if reads.newest and not (were and were[-1].kind in reads.newest):
        kinds = " or ".join(reads.newest)
        raise ValueError(f"{where}: the newest message must be of the kind {kinds}")
    reads_calls = any(kind.row.has_calls for kind in reads.first)
    if reads_calls and not any(one.tool_calls or one.invalid_tool_calls for one in log):
        raise ValueError(f"{where}: there are no calls that could run")
