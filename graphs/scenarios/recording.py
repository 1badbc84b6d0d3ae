"""Recorded simulations: the answers of models and servers in a file, and their exact replay.

One file contains one simulation. The calls of models that duologue makes are recorded here, with
their prompts; requests that other code sends by HTTP in this process are recorded by
`http_recording`. A replay asks no model and no server. It ends with an error at the first call that
differs from the record.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import BaseModel, Field, ValidationError

from ...nodes.models.adapters.base import Adapter
from ...nodes.models.recorder import (
    AdapterFacts,
    ModelRequest,
    RecordedAdapter,
    calling_model,
    record_with,
)
from ..common.content import with_digests
from ..common.data import Data
from ..common.errors import ContextTooLongError, SessionError
from ..common.files import (
    check_writable,
    make_folders,
    read_file,
    remove_abandoned_files,
    write_file,
)
from ..common.secrets_filter import SecretsFilter
from ..speakers.reply_parts import STOP, THOUGHT, Stop, Thought
from .http_recording import Exchange, HttpTape, describe_difference, patch_clients, refusing_calls
from .scenario import Scenario

T = TypeVar("T")

RecordMode: TypeAlias = Literal["new", "all", "none"]
"""``new`` records simulations that have no recording and replays the others, ``all`` records all,
and ``none`` replays only."""

_VERSION: Final = 1

_AGAIN: Final = "if the change is intended, record it again by --simulate-record all"


class RecordingError(SessionError):
    """A simulation differs from its recording, or has none."""


class ModelCall(BaseModel):
    """A recorded call of a model."""

    request: dict[str, Any]
    """The prompt, the settings, and the tools or the schema, without secrets."""
    answer: dict[str, Any] | None
    """The answer, without secrets. None if the prompt was too long."""
    error: str = ""
    """The error of a prompt that was too long. Otherwise empty."""
    prompt_tokens: int | None = None
    """The tokens of a prompt that was too long, as the model counts them. None if unknown."""
    limit: int | None = None
    """The limit that the model named for a prompt that was too long. None if unknown."""


class Recording(BaseModel):
    """The content of a recording's file."""

    version: Literal[1] = _VERSION
    """The version of the format."""
    goal: str = ""
    """The goal of the scenario, for readers of the file."""
    models: dict[str, AdapterFacts] = Field(default_factory=dict)
    """The models that were found by their names. The default model's name is empty."""
    calls: list[ModelCall] = Field(default_factory=list)
    """The calls of models, in the order of the answers."""
    exchanges: list[Exchange] = Field(default_factory=list)
    """The HTTP requests of other code, with their responses."""
    ids: list[str] = Field(default_factory=list)
    """The ids of threads and messages that the simulation made. Those of a replay differ."""


@dataclass(frozen=True)
class RecordOptions:
    """The options of recordings."""

    mode: RecordMode
    """The mode."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of texts that no file may contain."""
    allowed: tuple[str, ...] = ()
    """Hosts and programs that are neither recorded nor refused."""


@dataclass
class Tape:
    """The recorder of one simulation, which either writes a recording or replays it."""

    recording: Recording
    """The recording, which grows unless it is replayed."""
    is_replay: bool
    """Whether the recording is replayed."""
    secrets: SecretsFilter
    """The filter of everything that is written or compared."""
    place: Path
    """The file, for errors."""
    problem: RecordingError | None = None
    """The first difference. None if there is none so far."""
    on_problem: Callable[[], object] | None = None
    """Called at the first difference, in any thread."""
    ids: dict[str, str] = field(default_factory=dict)
    """The names of ids, by which requests are compared."""
    _played: set[int] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Name the recorded ids, which the recorded responses contain."""
        self.ids.update({one: _name_id(place) for place, one in enumerate(self.recording.ids)})

    def report(self, text: str) -> RecordingError:
        """Note a difference, and return the error to raise."""
        if self.problem is None:
            self.problem = RecordingError(f"{self.place}: {text}; {_AGAIN}")
            if self.on_problem is not None:
                self.on_problem()
        return self.problem

    # The methods of `Recorder`.

    def find_adapter(self, name: str | None) -> Adapter | None:
        """Return the recorded model of this name in a replay. None if models are asked."""
        if not self.is_replay:
            return None
        facts = self.recording.models.get(name or "")
        if facts is None:
            called = "the default model" if name is None else f"the model {name!r}"
            raise self.report(f"the simulation now uses {called}, which was not recorded")
        return RecordedAdapter(facts)

    def add_adapter(self, name: str | None, adapter: Adapter) -> None:
        """Record the properties of a model."""
        self.recording.models[name or ""] = AdapterFacts.from_adapter(adapter)

    async def answer(
        self, request: ModelRequest, ask: Callable[[], Awaitable[AIMessage]]
    ) -> AIMessage:
        """Return the recorded answer, or ask the model and record its answer."""
        shown = self.secrets.plain(_describe(request))
        if self.is_replay:
            return self._replay(shown)
        try:
            with calling_model():
                found = await ask()
        except ContextTooLongError as error:
            text = self.secrets.text(str(error))
            call = ModelCall(request=shown, answer=None, error=text)
            call.prompt_tokens, call.limit = error.prompt_tokens, error.limit
            self.recording.calls.append(call)
            raise
        fields = {"content", "additional_kwargs", "tool_calls", "invalid_tool_calls"}
        dumped = found.model_dump(mode="json", include=fields | {"usage_metadata"})
        kept = {name: found.response_metadata.get(name) for name in _METADATA}
        dumped["response_metadata"] = {name: one for name, one in kept.items() if one is not None}
        answer = self.secrets.plain(dumped)
        self.recording.calls.append(ModelCall(request=shown, answer=answer))
        return found

    def note_ids(self, ids: Iterable[str]) -> None:
        """Name the ids by their order, which is the same in each run."""
        for one in ids:
            # A short id may be a part of any text, and is not random.
            if one not in self._noted and len(one) >= _SHORTEST_ID:
                self.ids[one] = _name_id(len(self._noted))
                self._noted.add(one)
                if not self.is_replay:
                    self.recording.ids.append(one)

    def _replay(self, request: Mapping[str, Any]) -> AIMessage:
        calls = self.recording.calls
        left = [place for place in range(len(calls)) if place not in self._played]
        same = next((place for place in left if calls[place].request == request), None)
        if same is None:
            if not left:
                raise self.report(
                    f"the model of {request['caller']} is now asked once more than recorded "
                    f"(call {len(calls) + 1})"
                )
            differs = describe_difference(calls[left[0]].request, request)
            caller = calls[left[0]].request.get("caller")
            raise self.report(f"call {left[0] + 1} of a model (by {caller}) differs: {differs}")
        self._played.add(same)
        call = calls[same]
        if call.answer is None:
            raise ContextTooLongError(
                call.error, prompt_tokens=call.prompt_tokens, limit=call.limit
            )
        return _read_answer(call.answer)

    def check_end(self) -> None:
        """Raise RecordingError if recorded calls were not made again."""
        for place, call in enumerate(self.recording.calls):
            if place not in self._played:
                caller = call.request.get("caller")
                raise self.report(f"call {place + 1} of a model (by {caller}) is no longer made")


_SHORTEST_ID: Final = 16
"""Length of the shortest id that counts as new in each run, in characters."""


def _name_id(place: int) -> str:
    return f"[id {place + 1}]"


def _describe(request: ModelRequest) -> dict[str, Any]:
    """Return a call as JSON's values, without ids that differ in each run."""
    form = {name: value for name, value in request.form.items() if value}
    described = {
        "caller": request.caller,
        "model": request.model,
        "messages": [*map(_describe_message, request.messages)],
        "settings": dict(request.settings),
        **form,
    }
    plain: dict[str, Any] = json.loads(json.dumps(described, default=str))
    return plain


def _describe_message(message: BaseMessage) -> dict[str, Any]:
    described: dict[str, Any] = {"role": message.type, "text": with_digests(message.content)}
    if message.name:
        described["name"] = message.name
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = message.tool_calls
        described["tool_calls"] = [{"name": one["name"], "args": one["args"]} for one in calls]
    if isinstance(message, ToolMessage) and message.status != "success":
        described["status"] = message.status
    return described


_METADATA: Final = ("finish_reason", "model_name")
"""The metadata of answers that are recorded. Others can contain headers of the server."""


_PARTS: Final[Mapping[str, type[Data]]] = {THOUGHT: Thought, STOP: Stop}
"""The classes of the entries of ``additional_kwargs`` that are data of duologue."""


def _read_answer(dumped: Mapping[str, Any]) -> AIMessage:
    answer = AIMessage.model_validate(dumped)
    extra = answer.additional_kwargs
    named = ((name, part) for name, part in _PARTS.items() if extra.get(name))
    parts = {name: part.model_validate(extra[name]) for name, part in named}
    return answer.model_copy(update={"additional_kwargs": {**extra, **parts}})


_one_at_a_time = threading.Lock()
"""Recorded simulations of a process run one after another: clients of HTTP are patched for all."""


@asynccontextmanager
async def _alone() -> AsyncIterator[None]:
    while not _one_at_a_time.acquire(blocking=False):  # noqa: ASYNC110  # held by another loop
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        _one_at_a_time.release()


async def record(
    place: Path,
    options: RecordOptions,
    scenario: Scenario,
    simulate: Callable[[], Coroutine[Any, Any, T]],
) -> T:
    """Run a simulation and record it, or replay its recording.

    Args:
        place: The file of the recording.
        options: The options.
        scenario: The scenario. Personal data in it are written as they are.
        simulate: Runs the simulation.

    Returns:
        The result of the simulation.

    Raises:
        RecordingError: There is no recording to replay, or the simulation differs from it.
        SpecError: The file can't be read or written, or a pattern is wrong.
    """
    secrets = SecretsFilter(personal=True, patterns=options.patterns, known=[repr(scenario)])
    async with _alone():
        stored = None if options.mode == "all" else await asyncio.to_thread(_read, place)
        if stored is None and options.mode == "none":
            raise RecordingError(
                f"{place}: there is no recording of this simulation; record it by "
                "--simulate-record new"
            )
        if stored is None:
            # Checked before a model is called, because its answers would be lost.
            await asyncio.to_thread(make_folders, place)
            await asyncio.to_thread(check_writable, place)
        recording = stored or Recording(goal=secrets.text(scenario.goal))
        tape = Tape(recording, stored is not None, secrets, place)
        http = HttpTape(
            recording.exchanges, tape.is_replay, secrets, options.allowed, tape.report, tape.ids
        )
        with ExitStack() as active:
            active.enter_context(patch_clients(http))
            active.enter_context(record_with(tape))
            if options.mode == "none":
                active.enter_context(refusing_calls(options.allowed, tape.report))
            found = await _watch(tape, simulate())
        if tape.is_replay:
            tape.check_end()
            http.check_end()
        else:
            data = json.loads(recording.model_dump_json(exclude_defaults=True))
            text = json.dumps({"version": _VERSION, **data}, ensure_ascii=False, indent=1)
            await asyncio.to_thread(write_file, place, f"{text}\n")
        return found


async def _watch(tape: Tape, work: Coroutine[Any, Any, T]) -> T:
    """Await a simulation, and cancel it at the first difference, which the agent could catch."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    tape.on_problem = lambda: loop.call_soon_threadsafe(stopped.set)
    task, waiter = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        tape.on_problem = None
        waiter.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=5)
    if tape.problem is not None:
        if task.done() and not task.cancelled():
            # An exception that nobody reads would be logged.
            task.exception()
        raise tape.problem
    return task.result()


def _read(place: Path) -> Recording | None:
    """Return a recording, or None if there is no file."""
    remove_abandoned_files(place.parent)
    if not place.exists():
        return None
    try:
        return Recording.model_validate_json(read_file(place, str))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise RecordingError(
            f"{place}: {where} is not readable ({first['msg']}); {_AGAIN}"
        ) from error
