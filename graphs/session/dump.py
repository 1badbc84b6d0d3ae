"""Dumps: a session, or the memory of one speaker, as plain JSON."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from langchain_core.messages import AnyMessage
from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ..common.data import Data, Migration, Versions, upgrade
from ..common.errors import SpecError, list_names
from ..common.files import read_file
from ..common.validation import DEEPEST, check_data, check_depth, validate
from ..conversation.conversation import Conversation, migrate_spec, restore_conversation
from ..conversation.sandbox import Kept, new_key
from ..conversation.usage import Usage, read_usage
from ..log.messages import check_inner_session, place_name, place_of
from ..log.metadata import (
    EarlierEnd,
    InnerSession,
    RememberedMessage,
    Speech,
    kind_name,
    original_metadata,
)
from ..log.state import State, log_of, take_back, update_of
from ..rules.outcome import Outcome
from ..rules.position import MOVES, Position
from ..rules.transitions import decide
from ..rules.turns import Dialogue
from ..speakers.call_settings import AnyDecision
from .dumped_message import Message, dump_message, put_files_back, take_files_out
from .stored_session import LaterVerdict


def _check_steps(steps: Sequence["DumpedStep"], spec: Conversation) -> None:
    """Raise an error if a session cannot continue from every step."""
    names = spec.names
    log: dict[str, Message] = {}
    for number, step in enumerate(steps):
        where = f"steps.{number}"
        if step.spec is not None and step.spec.names != names:
            raise ValueError(
                f"{where}.spec.speakers: must have the same names as the speakers in spec"
            )
        for place, message in enumerate(step.messages):
            _check_message(f"{where}.messages.{place}", message, log, names)
            log[message.id] = message
        ids = [one.message_id for one in log.values() if one.message_id is not None]
        if len({*ids}) < len(ids):
            raise ValueError(
                f"{where}.messages: two messages have the same message_id; give each a unique id"
            )
        if step.position is not None:
            _check_position(f"{where}.position", step.position, [*log.values()], names)
    if steps and steps[-1].position is not None:
        try:
            decide(Dialogue(spec, steps[-1].position))
        except Exception as error:
            where = f"steps.{len(steps) - 1}.position"
            raise ValueError(f"{where}: the session can't be resumed from it: {error}") from error


def _check_message(
    where: str, message: Message, log: dict[str, Message], names: Sequence[str]
) -> None:
    free = place_name(len(log))
    if message.id not in log and message.id != free:
        raise ValueError(f"{where}.id: must be {free!r}, the next free id, not {message.id!r}")
    about = message.metadata
    if isinstance(about, InnerSession):
        check_inner_session(about, f"{where}.metadata")
    # A remembered message of another conversation may have a speaker who is not in this one.
    is_ours = not isinstance(about, RememberedMessage) and about.speaker is not None
    if is_ours and about.speaker not in names:
        raise ValueError(
            f"{where}.metadata.speaker: no speaker is called {about.speaker!r}; choose one of "
            f"{list_names(names)}"
        )


def _check_position(
    where: str, position: Position, log: Sequence[Message], names: Sequence[str]
) -> None:
    some = (position.speaker, position.chosen, *position.completed, *position.owed)
    for name in some:
        if name is not None and name not in names:
            raise ValueError(
                f"{where}: no speaker is called {name!r}; choose one of {list_names(names)}"
            )
    # The position may still count messages that were removed later, so their original metadata is
    # used.
    were = [original_metadata(one.metadata) for one in log]
    # After an earlier end, messages are counted from zero again.
    ends = (place for place, line in enumerate(were) if isinstance(line, EarlierEnd))
    first = 1 + max(ends, default=-1)
    said = sum(isinstance(line, Speech) for line in were[first:])
    removed = said - sum(isinstance(one.metadata, Speech) for one in log[first:])
    counted = position.facts.messages
    if not said - removed <= counted <= said:
        raise ValueError(f"{where}: counts {counted} messages, but the log has {said}")
    reads = MOVES[position.phase].reads
    if reads.newest and not (were and isinstance(were[-1], reads.newest)):
        kinds = " or ".join(map(kind_name, reads.newest))
        raise ValueError(
            f"{where}: does not fit the newest message, which must be of the kind {kinds}"
        )
    reads_calls = any(kind.has_calls for kind in reads.first)
    if reads_calls and not any(one.tool_calls or one.invalid_tool_calls for one in log):
        raise ValueError(f"{where}: the next step runs tool calls, but the log contains none")


DUMP_VERSION: Final = 10
"""The version of the dumps that this release writes. The specs in them have their own version."""

DUMP_VERSIONS: Final = Versions[Migration](oldest=10)
"""The supported versions of a dump. The newest is `DUMP_VERSION`."""


def _spec(given: object) -> object:
    return migrate_spec(dict(given)) if isinstance(given, Mapping) else given


Spec = Annotated[Conversation, BeforeValidator(_spec), PlainSerializer(Conversation.stored)]
"""A spec in a dump. A spec of an older version is migrated when it is read."""


class Decided(Data):
    """A person's decisions about tool calls that have not run yet."""

    message: str
    """The place of the message that contains the calls, such as ``m0004``."""
    decisions: dict[str, AnyDecision] | None = None
    """The decisions, by the ids of the calls. None if the person has seen the calls and lets them
    all run.
    """


class DumpedStep(Data):
    """The values that one step of a session wrote."""

    messages: tuple[Message, ...] = ()
    """The new messages, oldest first. A message whose place is already used replaces the older
    message.
    """
    position: Position | None = None
    """The position after the step, from which the rules choose the next step. None if the task has
    not been specified yet.
    """
    usage: dict[str, Usage] = Field(default_factory=dict)
    """The usage up to this step, by model."""
    specified_task: str | None = None
    """The task that the speakers are given from this step on. Unchanged if None."""
    spec: Spec | None = None
    """The spec from this step on. None if the spec has not changed. Until its first change, the
    session's spec applies.
    """
    interpreter: Kept | None = None
    """The state of the interpreter that runs the session's code. Unchanged if None."""
    decisions: Decided | None = None
    """A person's decisions about tool calls that have not run yet. None if there are no decisions.
    """
    outcome: Outcome | None = None
    """The outcome. None if the conversation continues."""


class SessionDump(Data):
    """A whole session, which can be resumed, and forked from any message."""

    format: Literal["duologue.session"]
    """The name of the format."""
    version: Literal[10]
    """The version of the format."""
    session: str
    """The id of the session that was dumped."""
    spec: Spec
    """The spec with which the session is resumed."""
    steps: tuple[DumpedStep, ...] = ()
    """The steps, oldest first. Empty if the session has not begun."""
    later_verdicts: tuple[LaterVerdict, ...] = ()
    """The verdicts of judges who were asked without running the session, oldest first."""
    files: dict[str, str] = Field(default_factory=dict)
    """The images and other files in the messages, each once, in base64 by its SHA-256 digest. Empty
    in Python: the blocks of the messages contain the bytes.
    """

    @model_validator(mode="before")
    @classmethod
    def _put_files_back(cls, given: object) -> object:
        return put_files_back(given) if isinstance(given, Mapping) and "files" in given else given

    @model_serializer(mode="wrap")
    def _take_files_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return take_files_out(handler(self))

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        _check_steps(self.steps, self.spec)
        return self


_DEEPEST: Final = DEEPEST + 40
"""Maximum number of nested levels in a dump: the levels of a spec, and those of the dump around it.
"""

_FORMAT: Final = "duologue.session"


def to_plain(dump: Data) -> dict[str, Any]:
    """Return a dump, or a part of one, as plain JSON values without default values."""
    return dump.model_dump(mode="json", exclude_defaults=True)


def read_dump(source: Mapping[str, Any] | str | Path) -> SessionDump:
    """Read a dump of this or an older version."""
    if isinstance(source, Mapping):
        return _read(source, "")
    if not isinstance(source, str | Path):
        raise SpecError(f"a dump is a dict or the path of a .json file, not {source!r}")
    path = Path(source)
    if path.suffix.lower() != ".json":
        raise SpecError(f"{path}: is not a .json file; pass the path of a dump")
    return _read(read_file(path, json.loads), f"{path}: ")


def _read(data: object, where: str) -> SessionDump:
    if not isinstance(data, Mapping) or "format" not in data:
        raise SpecError(f"{where}format: is missing: this is not a dump of a session")
    check_depth(data, where, _DEEPEST)
    check_data(data.get("spec"), f"{where}spec.")
    if data["format"] != _FORMAT:
        raise SpecError(
            f"{where}format: {data['format']!r} is not a duologue dump; must be {_FORMAT!r}"
        )
    if "version" not in data:
        raise SpecError(f"{where}version: is missing")
    known = upgrade(dict(data), DUMP_VERSIONS, where)
    return validate(SessionDump, known, where, partial(check_depth, deepest=_DEEPEST))


def read_whole_dump(
    session: str,
    conversation: Conversation,
    states: Sequence[State],
    later_verdicts: tuple[LaterVerdict, ...] = (),
) -> SessionDump:
    """Return the dump of a whole session."""
    return SessionDump(
        format=_FORMAT,
        version=DUMP_VERSION,
        session=session,
        spec=conversation,
        steps=_steps_of(conversation, states),
        later_verdicts=later_verdicts,
    )


def _steps_of(conversation: Conversation, states: Sequence[State]) -> tuple[DumpedStep, ...]:
    steps: list[DumpedStep] = []
    spec, stored, task = conversation, conversation.stored(), ""
    kept: dict[str, Any] = {}
    for state in states:
        before = spec
        if state["spec"] != stored:
            stored = state["spec"]
            spec = restore_conversation(stored)
        given, ended = state.get("specified_task", ""), state.get("outcome")
        stands = state.get("position")
        keeps = state.get("interpreter") or kept
        decided = state.get("decisions")
        steps.append(
            DumpedStep(
                messages=tuple(map(dump_message, log_of(state))),
                position=None if stands is None else Position.model_validate(stands),
                usage=read_usage(state),
                specified_task=None if given == task else given,
                spec=None if spec == before else spec,
                interpreter=None if keeps == kept else Kept.model_validate(keeps).without_key(),
                decisions=Decided.model_validate(decided) if decided else None,
                outcome=Outcome.model_validate(ended) if ended else None,
            )
        )
        task, kept = given, keeps
    return tuple(steps)


def states_of(dump: SessionDump) -> list[State]:
    """Return the state that each step of a dump writes."""
    states: list[State] = []
    spec: Conversation | None = None
    ended = decided = False
    # The session that was dumped may still be using its interpreter.
    key = new_key()
    ids: dict[str, str] = {}
    log: list[AnyMessage] = []
    for step in dump.steps:
        new = [one.restore() for one in step.messages]
        before = {ids[one.id] for one in step.messages if one.id in ids}
        ids |= {place_of(message): str(message.id) for message in new}
        # The earlier message at a place is removed, unless that message has moved to another place.
        messages = [*map(take_back, sorted(before.difference(ids.values()))), *new]
        state = update_of(messages, log)
        log += messages
        state["usage"] = {label: used.model_dump(mode="json") for label, used in step.usage.items()}
        if spec is None or step.spec is not None:
            spec = step.spec or dump.spec
            state |= {"conversation": spec.stored(), "spec": spec.stored()}
        if step.position is not None:
            state["position"] = step.position.model_dump(mode="json", exclude_defaults=True)
        if step.specified_task is not None:
            state["specified_task"] = step.specified_task
        if step.interpreter is not None:
            state["interpreter"] = step.interpreter.under(key)
        if step.decisions is not None or decided:
            decisions = step.decisions
            state["decisions"] = {} if decisions is None else to_plain(decisions)
        decided = step.decisions is not None
        if step.outcome is not None or ended:
            state["outcome"] = step.outcome.model_dump(mode="json") if step.outcome else {}
        ended = step.outcome is not None
        states.append(state)
    return states
