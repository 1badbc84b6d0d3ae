"""Recorders of model calls: they receive each call of a run, and may answer it without the model.

`Models` and `Model` ask the recorder of the current context. A call that is recorded is the whole
call, with its retries, so a recorder sees one request and one answer.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel, Field

from .adapters.base import LOCAL, NATIVE, SMALL, Adapter, Ask
from .settings import Learned


@dataclass(frozen=True)
class ModelRequest:
    """A call of a model, as a recorder sees it."""

    model: str
    """The model's label."""
    caller: str
    """The name of the speaker whose model is called, or ``Judge``."""
    messages: Sequence[BaseMessage]
    """The prompt."""
    settings: Mapping[str, Any]
    """The settings that are sent, such as the temperature."""
    form: Mapping[str, Any]
    """The tools or the schema of the answer."""


class Recorder(Protocol):
    """A recorder of model calls."""

    def find_adapter(self, name: str | None) -> Adapter | None:
        """Return the adapter that replaces a model that is named. None if the model is found."""
        ...

    def add_adapter(self, name: str | None, adapter: Adapter) -> None:
        """Record the properties of a model that was found."""
        ...

    async def answer(
        self, request: ModelRequest, ask: Callable[[], Awaitable[AIMessage]]
    ) -> AIMessage:
        """Return the answer to a call.

        Args:
            request: The call.
            ask: Makes the call.
        """
        ...

    def note_ids(self, ids: Iterable[str]) -> None:
        """Note ids that are new in each run, in an order that is the same in each run."""
        ...


_recorder: ContextVar[Recorder | None] = ContextVar("_recorder", default=None)

_is_calling: ContextVar[bool] = ContextVar("_is_calling", default=False)


@contextmanager
def record_with(recorder: Recorder) -> Iterator[None]:
    """Record the model calls inside the block, and those of the tasks that it starts."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


current_recorder: Final[Callable[[], Recorder | None]] = _recorder.get
"""Returns the recorder of the current context, or None."""


def note_new_ids(*ids: str | None) -> None:
    """Note ids that are new in each run, so that a replay accepts requests that differ in them."""
    recorder = current_recorder()
    if recorder is not None:
        recorder.note_ids(filter(None, ids))


@contextmanager
def calling_model() -> Iterator[None]:
    """Mark the requests inside the block as those of a model that is recorded as a whole."""
    token = _is_calling.set(True)
    try:
        yield
    finally:
        _is_calling.reset(token)


def is_calling_model() -> bool:
    """Return whether a model that is recorded as a whole makes the current request."""
    return _is_calling.get()


class AdapterFacts(BaseModel):
    """The properties of a model on which prompts depend."""

    label: str
    """The model's name in usage and errors."""
    default_name: str | None = None
    """The model's name in a conversation that names none. None if it has no such name."""
    prompting: str = "Prompting"
    """The name of the class that builds its prompts."""
    longest_answer: int | None = None
    """Output token limit of calls that set none. None if it is not known."""
    accepts_limit: bool = True
    """Whether it accepts an output token limit."""
    accepts_files: dict[str, bool] = Field(default_factory=dict)
    """Whether it accepts each kind of file, as far as this is known."""

    @classmethod
    def from_adapter(cls, adapter: Adapter) -> "AdapterFacts":
        """Return the properties of a model."""
        return cls(
            label=adapter.label,
            default_name=adapter.default_name,
            prompting=adapter.prompting.name,
            longest_answer=adapter.longest_answer,
            accepts_limit=adapter.accepts_limit,
            accepts_files={
                kind: accepts
                for kind in ("image", "audio", "file")
                if (accepts := adapter.accepts_file(kind)) is not None
            },
        )


_NOT_CALLED: Final = "a recorder answers the calls of this model"


class RecordedAdapter(Adapter):
    """A model whose calls a recorder answers. It needs no server, no key and no file."""

    def __init__(self, facts: AdapterFacts) -> None:
        super().__init__(facts.label, Learned())
        self.default_name = facts.default_name
        known = {one.name: one for one in (NATIVE, LOCAL, SMALL)}
        self.prompting = known.get(facts.prompting, NATIVE)
        self.longest_answer = facts.longest_answer
        self.accepts_limit = facts.accepts_limit
        self._facts = facts

    def accepts_file(self, kind: str) -> bool | None:
        """Return whether the model accepts a kind of file. None if it is not known."""
        return self._facts.accepts_files.get(kind)

    def prepare_answer(self, *_: Any, **__: Any) -> Ask:
        """Return a function that raises, since nothing may call the model."""
        return _refuse

    prepare_object = prepare_tool_call = prepare_answer


async def _refuse(*_: object) -> NoReturn:
    raise AssertionError(_NOT_CALLED)
