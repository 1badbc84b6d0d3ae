"""Dumps: a session as plain JSON.

Only data lives here, and reading it. Dumps are made and loaded in `graphs.sessions.remembering`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from langchain_core.messages import AnyMessage
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ...common.data import Data
from ...common.errors import SpecError
from ...common.files import read_file
from ...common.validation import DEEPEST, check_depth, validated
from ...common.versions import Migration, Versions, upgraded
from ...log.channels import log_of, update_of
from ...log.messages import place_of
from ...log.reducer import take_back
from ...log.state import State
from ...rules.outcome import Outcome
from ...rules.position import Position
from ...speakers.approval import AnyDecision
from ...spec.conversation import Conversation
from ...spec.sandbox import Kept, new_key
from ...spec.usage import Usage, used_so_far
from ...spec.versions import migrated, restored
from .lines import Message, check_steps, dumped

DUMP_VERSION: Final = 7
"""The version of the dumps this release writes. Specs inside have a version of their own."""

DUMP_VERSIONS: Final = Versions[Migration](oldest=7)
"""The versions of a dump; the newest is `DUMP_VERSION`."""


def _spec(given: object) -> object:
    return migrated(dict(given)) if isinstance(given, Mapping) else given


Spec = Annotated[Conversation, BeforeValidator(_spec), PlainSerializer(Conversation.stored)]
"""A spec of this or an older version."""


class Decided(Data):
    """What a person has decided of calls that have not run yet."""

    message: str
    """The place of the message with the calls."""
    decisions: dict[str, AnyDecision] | None = None
    """The decisions, by the ids of the calls. None: the person has seen them, and lets them run."""


class DumpedStep(Data):
    """What one step of a session wrote."""

    messages: tuple[Message, ...] = ()
    """The messages it wrote, oldest first; one at a known place takes the older one's."""
    position: Position | None = None
    """Where the conversation is after it. None: the task does not stand yet."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """What was used up to then, by model."""
    specified_task: str | None = None
    """The task that the speakers are given from there on. None: as before."""
    spec: Spec | None = None
    """The spec from there on. None: as before; before the first one, the session's."""
    interpreter: Kept | None = None
    """What is kept of the interpreter that runs its code. None: as before."""
    decisions: Decided | None = None
    """What a person has decided of calls that have not run yet. None: nothing."""
    outcome: Outcome | None = None
    """Why it ended. None: it goes on."""


class SessionDump(Data):
    """A whole session: it goes on where it was, and can be forked from any message."""

    format: Literal["duologue.session"]
    """What it is."""
    version: Literal[7]
    """The version of its shape."""
    session: str
    """The id of the session that was dumped."""
    spec: Spec
    """The spec it goes on by."""
    steps: tuple[DumpedStep, ...] = ()
    """Its steps, oldest first. None where it has not begun."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        check_steps(self.steps, self.spec)
        return self


_DEEPEST: Final = DEEPEST + 40
"""How many levels deep a dump may be nested: what stands in it may have as many as any spec."""

_FORMAT: Final = "duologue.session"


def written(dump: Data) -> dict[str, Any]:
    """Write a dump, or a part of one, as plain JSON values, without what is as usual."""
    return dump.model_dump(mode="json", exclude_defaults=True)


def read_dump(source: Mapping[str, Any] | str | Path) -> SessionDump:
    """Read a dump of this or an older version."""
    if isinstance(source, Mapping):
        return _read(source, "")
    if not isinstance(source, str | Path):
        raise SpecError(f"a dump is a dict or the path of a .json file, not {source!r}")
    path = Path(source)
    if path.suffix.lower() != ".json":
        raise SpecError(f"{path}: a dump is read from a .json file")
    return _read(read_file(path, json.loads), f"{path}: ")


def _read(data: object, where: str) -> SessionDump:
    if not isinstance(data, Mapping) or "format" not in data:
        raise SpecError(f"{where}format: is missing: this is not a dump of a session")
    check_depth(data, where, _DEEPEST)
    if data["format"] != _FORMAT:
        raise SpecError(
            f"{where}format: {data['format']!r} is not a duologue dump; must be {_FORMAT!r}"
        )
    if "version" not in data:
        raise SpecError(f"{where}version: is missing")
    return validated(SessionDump, upgraded(dict(data), DUMP_VERSIONS, where), where, _DEEPEST)


def whole(session: str, conversation: Conversation, states: Sequence[State]) -> SessionDump:
    """Write down a whole session."""
    return SessionDump(
        format=_FORMAT,
        version=DUMP_VERSION,
        session=session,
        spec=conversation,
        steps=_steps_of(conversation, states),
    )


def _steps_of(conversation: Conversation, states: Sequence[State]) -> tuple[DumpedStep, ...]:
    steps: list[DumpedStep] = []
    spec, stored, task = conversation, conversation.stored(), ""
    kept: dict[str, Any] = {}
    for state in states:
        before = spec
        if state["spec"] != stored:
            stored = state["spec"]
            spec = restored(stored)
        given, ended = state.get("specified_task", ""), state.get("outcome")
        stands = state.get("position")
        keeps = state.get("interpreter") or kept
        decided = state.get("decisions")
        steps.append(
            DumpedStep(
                messages=tuple(map(dumped, log_of(state))),
                position=None if stands is None else Position.model_validate(stands),
                usage=used_so_far(state),
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
    """Give what each step of a dump writes."""
    states: list[State] = []
    spec: Conversation | None = None
    ended = decided = False
    # The session that was dumped may still have an interpreter at work.
    key = new_key()
    ids: dict[str, str] = {}
    log: list[AnyMessage] = []
    for step in dump.steps:
        messages = _written(step, ids)
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
            state["decisions"] = {} if decisions is None else written(decisions)
        decided = step.decisions is not None
        if step.outcome is not None or ended:
            state["outcome"] = step.outcome.model_dump(mode="json") if step.outcome else {}
        ended = step.outcome is not None
        states.append(state)
    return states


def _written(step: DumpedStep, ids: dict[str, str]) -> list[AnyMessage]:
    """Give what a step writes to the log; `ids` holds those of the steps before, by place."""
    messages = [one.restore() for one in step.messages]
    before = {ids[one.id] for one in step.messages if one.id in ids}
    ids |= {place_of(message): str(message.id) for message in messages}
    # What stood at its place is gone, where it has not moved to another one.
    gone = sorted(before.difference(ids.values()))
    return [*map(take_back, gone), *messages]
