"""The interface of all adapters, and model calls through an adapter.

Each family of models has its own class of adapters. An adapter is chosen once, when a name or an
object is resolved to a model. It translates a call's settings into the client's names,
calls the client, and reads the answer or raises. No other code depends on the kind of a model.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import add_usage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from ....graphs.common.errors import ModelError, SpecError
from ....graphs.common.sanitize import excerpt
from ....graphs.conversation.fields import TaskSpecification
from ....graphs.log.metadata import ModelOutput
from ....graphs.prompts.prompts import SPECIFY_TASK_SMALL_MODEL, RenderPrompt, build_task_request
from ....graphs.speakers.call_settings import SmallModelPrompt
from ....graphs.speakers.formats import LabelledFormat
from ....graphs.speakers.reply_parts import StopCause
from ....graphs.speakers.speaker import Speaker
from ..client.failures import name_of, repeat_call
from ..gate import GatedCall
from ..refusals import answer_in, text_of
from ..settings import CallSettings, Learned, check_collisions, message_of, refused_setting
from ..stops import read_blocked, read_stop
from ..tool_calls import Names, recover_answer
from ..tools_by_schema import describe_tool

Ask: TypeAlias = Callable[[Sequence[BaseMessage], RunnableConfig], Awaitable[Any]]
"""Calls a model with the prompt and LangChain's configuration. Returns the answer; for an answer
with a schema it may be a dict with ``raw`` and ``parsed``. The answer is streamed if a callback of
the configuration listens to streams.
"""

Repeat: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Makes a request, and repeats it if it fails for now. Each attempt passes the gate, if any."""

ToolCalling = Literal["native", "schema"]
"""How a model calls tools: by its API, or by an answer that a JSON schema constrains."""


@dataclass(frozen=True)
class Prompting:
    """Construction of the prompts for a family of models."""

    name: str
    """Name of the construction in recordings."""
    tool_calling: ToolCalling = "native"
    """How the models call tools, unless a speaker's ``tool_calling`` sets it."""
    is_small: bool = False
    """Whether the models can follow only a few words."""

    def small_model_prompt(self, speaker: Speaker) -> SmallModelPrompt | None:
        """Return the short prompt that replaces a speaker's own, or None to use its own."""
        return speaker.small_model_prompt if self.is_small else None

    def task_request(
        self,
        specification: TaskSpecification,
        task: str,
        names: Sequence[str],
        render_prompt: RenderPrompt,
    ) -> str | None:
        """Return the request for a more specific task, or None to make no request."""
        limit = specification.word_limit
        if not self.is_small:
            return build_task_request(task, names, limit, render_prompt)
        if not specification.small_models:
            return None
        return render_prompt(SPECIFY_TASK_SMALL_MODEL, task=task, limit=limit)

    def describe_tool(self, tool: BaseTool) -> str:
        """Return the text that describes a tool to a model that calls it by a schema."""
        return describe_tool(tool, briefly=self.is_small)


NATIVE: Final = Prompting("Prompting")
"""Prompts for the models of servers and providers."""

LOCAL: Final = Prompting("LocalPrompting", "schema")
"""Prompts for models in a child of this process, whose server has no tool calls."""

SMALL: Final = Prompting("SmallModelPrompting", "schema", is_small=True)
"""Prompts for the tiny embedded model."""


_PROFILE: Final[Mapping[str, str]] = {
    "image": "image_inputs",
    "audio": "audio_inputs",
    "file": "pdf_inputs",
}
"""The entry of LangChain's profile of a model for each kind of file."""


class Offer(NamedTuple):
    """The tools that a model may call."""

    tools: Sequence[BaseTool]
    """The tools."""
    choice: str
    """``auto``, ``required``, ``none`` or the name of a tool."""
    names: Names
    """The names of the tools as they are sent."""


class AnswerForm(NamedTuple):
    """The form of a wanted message."""

    purpose: type[ModelOutput]
    """The purpose of the message."""
    marks: LabelledFormat | None = None
    """The format of the message. Models that need a grammar get one for this format. None if the
    message may have any form.
    """
    offer: Offer | None = None
    """The tools that the model may call. None if there are none."""


class Adapter(ABC):
    """The interface to a model. Each family of models has its own subclass.

    Args:
        label: Name of the model in usage and errors.
        learned: Facts about the model's settings, learned from the errors of earlier calls.
    """

    prompting: Prompting = NATIVE
    """Construction of the model's prompts."""
    default_name: str | None = None
    """Name of the model in a conversation that names no model. None if it has no such name."""
    address: str | None = None
    """Address of the model's server. None if the server is a child of this process, or not known.
    """
    retries: int = 0
    """Maximum number of retries of a call."""
    first: BaseChatModel | None = None
    """The chat model that is called first. None if there is no chat model."""
    longest_answer: int | None = None
    """Output token limit of calls that set none. None if it is not known."""
    accepts_limit: bool = True
    """Whether the client has a setting for the output token limit."""
    missing: Collection[str] = ()
    """The settings that the client does not support."""
    mends_calls: bool = False
    """Whether the client may repair the last call of an answer that was cut off."""
    is_lasting: bool = True
    """Whether the next call of the model can use the same adapter."""

    def __init__(self, label: str, learned: Learned) -> None:
        self.label = label
        self.learned = learned

    def check(self, settings: CallSettings) -> None:
        """Check that the client supports the user's settings, and that each is set once.

        Raises:
            SpecError: A setting is not supported, or collides with another. The message names it.
        """
        check_collisions(settings)
        for name in settings.chosen:
            if name in self.missing:
                raise SpecError(
                    f"{settings.where}.{name}: the model {self.label!r} has no such setting; "
                    "remove it, or choose another model"
                )

    @property
    def names(self) -> Mapping[str, str]:
        """The client's names for settings, by duologue's names. Contains only names that differ."""
        return {}

    def learns(self, name: str, text: str) -> bool:
        """Return whether the next attempt sends a refused setting by another name.

        Args:
            name: duologue's name for the setting.
            text: The refusal, in lower case.
        """
        return False

    @abstractmethod
    def prepare_answer(self, settings: CallSettings, form: AnswerForm) -> Ask:
        """Return the function that calls the model for a message.

        Args:
            settings: The settings of the call.
            form: The form of the message. The model calls its tools by its API.
        """

    @abstractmethod
    def prepare_object(self, settings: CallSettings, schema: type[BaseModel], instead: str) -> Ask:
        """Return the function that calls the model for an answer that matches a schema.

        Args:
            settings: The settings of the call.
            schema: The pydantic model of the answer.
            instead: The setting that errors recommend instead of structured output.
        """

    def find_unsupported(self, schema: Mapping[str, Any]) -> str | None:
        """Return the part of a JSON schema that the model can't be held to, and why, or None."""
        return None

    @abstractmethod
    def prepare_tool_call(self, settings: CallSettings, form: AnswerForm, offer: Offer) -> Ask:
        """Return the function that calls the model for a tool call as schema-constrained JSON."""

    def accepts_file(self, kind: str) -> bool | None:
        """Return whether the model accepts a kind of file in messages. None if it is not known.

        Args:
            kind: ``image``, ``audio`` or ``file``.
        """
        profile = getattr(self.first, "profile", None)
        found = profile.get(_PROFILE[kind]) if isinstance(profile, Mapping) else None
        return found if isinstance(found, bool) else None

    def own_messages(self, prompt: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return a prompt's messages for the client: copies if other code may change them."""
        return [*prompt]

    def check_size(self, found: object) -> object:
        """Return a reply that is not too large to be read.

        Raises:
            ModelError: The reply is larger than the limit.
        """
        return found

    def options_of(self, settings: CallSettings) -> list[object]:
        """Return the parts of a call's request that the user set and duologue does not know."""
        return [settings.extra_args, settings.extra_body]

    @property
    def server(self) -> str | None:
        """The server's name in messages. None if calls do not wait for a server that is down."""
        return name_of(self.label, self.address)

    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Turn the errors of the client into errors of duologue.

        Args:
            of_many: Whether many sessions share the model, so that its failures concern them all.
        """
        return nullcontext()


T = TypeVar("T")


class SettingRefusedError(ModelError):
    """A model refuses a setting that the user set. The message names the field."""


async def make_call(
    adapter: Adapter,
    settings: CallSettings,
    once: Callable[[CallSettings, Repeat], Awaitable[T]],
    *,
    at_gate: GatedCall | None,
    notify: Callable[[str], None],
) -> T:
    """Call a model.

    1. Check the settings.
    2. Make the call without the defaults that the model refused before.
    3. If the connection fails, the answer is interrupted, or the server refuses the call for now,
       repeat the request.
    4. If the model refuses a default, repeat the call without it, or with its other name.
    5. If the model then answers, remember the refused defaults.
    6. Turn an error of the client into one of duologue.

    Args:
        adapter: The adapter of the model.
        settings: The settings of the call.
        once: Makes the call once, with the settings to send. It may make several requests.
        at_gate: The object through which the call passes a gate. None if it passes no gate.
        notify: Called with a notice when the call is repeated.

    Raises:
        SettingRefusedError: The model refuses a setting that the user set.
        ModelError: The call fails.
    """
    if settings.is_set:
        adapter.check(settings)

    dropped: set[str] = set()
    renamed: set[str] = set()
    repeat = partial(
        repeat_call,
        label=adapter.label,
        address=adapter.address,
        retries=adapter.retries,
        notify=notify,
        gate=at_gate,
    )
    with adapter.errors(of_many=at_gate is not None):
        while True:
            refused = adapter.learned.refused | dropped
            sent = settings.drop(refused) if refused else settings
            try:
                answer = await once(sent, repeat)
            except Exception as error:
                name = refused_setting(error, adapter.names, sent)
                if name is None:
                    raise
                if name not in renamed and adapter.learns(name, text_of(error)):
                    renamed.add(name)
                elif name in sent.defaults:
                    dropped.add(name)
                else:
                    inner = "extra_args." if name in sent.extra_args else ""
                    value = sent.values.get(name, sent.extra_args.get(name))
                    raise SettingRefusedError(
                        f"{sent.where}.{inner}{name}: the model {adapter.label!r} refuses "
                        f"{value!r}; remove it, or choose another model: {message_of(error)}"
                    ) from error
            else:
                adapter.learned.refused |= dropped
                return answer


_CONTINUATIONS: Final = 5
"""Maximum number of requests for the rest of a paused answer."""

_REPETITIONS: Final = 2
"""Maximum number of repetitions of a call that a temporary failure of the server has stopped."""

_WAIT: Final = 0.5
"""Number of seconds before the first repetition, as in OpenAI's client. It doubles each time."""


async def answer_to_end(
    call: Callable[[Sequence[BaseMessage]], Awaitable[Any]], repeat: Repeat, label: str
) -> object:
    """Call a model until its answer is neither paused nor stopped by a failure of the server.

    Anthropic's rule for a paused answer is to send it back unchanged, after the prompt. The parts
    are joined, and their usage is added up.

    Args:
        call: Calls the model with further messages after the prompt. Returns the answer; for an
            answer with a schema it is a dict with the answer as ``raw``.
        repeat: Makes one request, and repeats it if it fails for now.
        label: Name of the model in errors.

    Raises:
        ModelError: The server fails each time, without any text.
    """
    whole: AIMessage | None = None
    paused, failed = 0, 0

    async def request() -> Any:  # noqa: ANN401
        try:
            return await call([] if whole is None else [whole])
        except Exception as error:
            found = recover_answer(error) or answer_in(error) or read_blocked(error)
            if found is None:
                raise
            return found

    while True:
        found = await repeat(request)
        answer = found["raw"] if type(found) is dict else found
        if not isinstance(answer, AIMessage):
            return found
        joined = answer if whole is None else _join(whole, answer)
        stop = read_stop(answer)
        cause = None if stop is None else stop.cause
        if cause is StopCause.PAUSE and paused < _CONTINUATIONS:
            whole, paused = joined if joined.content else whole, paused + 1
        elif cause is StopCause.FAILURE and failed < _REPETITIONS:
            await asyncio.sleep(_WAIT * 2**failed)
            failed += 1
        elif cause is StopCause.FAILURE and not joined.text.strip():
            raise ModelError(
                f"the server of the model {label} stops each answer before its first word "
                f"({excerpt(stop.word) if stop else ''}); try again later"
            )
        else:
            return {**found, "raw": joined} if type(found) is dict else joined


def _join(first: AIMessage, rest: AIMessage) -> AIMessage:
    """Return a paused answer together with its continuation."""
    both = (first.content, rest.content)
    before, after = ([one] if isinstance(one, str) else one for one in both)
    return rest.model_copy(
        update={
            "content": [*before, *after],
            "additional_kwargs": {**first.additional_kwargs, **rest.additional_kwargs},
            "usage_metadata": add_usage(first.usage_metadata, rest.usage_metadata),
        }
    )
