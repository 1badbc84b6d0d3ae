"""LangChain chat models: objects of the user, and models of providers by names.

A name such as ``anthropic:claude-…`` is that of a provider, whose model LangChain creates.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, Final

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ValidationError

from ....graphs.common.errors import ModelError, ModelUnavailableError, SpecError
from ....graphs.common.sanitize import excerpt
from ....graphs.common.settings import Settings
from ....graphs.log.viewpoint import copy_view
from ....graphs.speakers.formats import schema_of
from ....graphs.speakers.structured_answers import find_unsupported
from ..client.failures import TooLargeReplyError, convert_errors
from ..connections import separate_loops
from ..refusals import (
    advise_on_credit,
    excerpt_of,
    find_refusal,
    is_foreign,
    is_outage,
    is_unavailable,
)
from ..settings import CallSettings, Learned, learned_of_name, learned_of_object
from ..tools_by_schema import answer_schema
from .base import Adapter, AnswerForm, Ask, Offer
from .composed import (
    TRIED,
    Chat,
    Prepare,
    bind_options,
    bound_options,
    chat_models_in,
    compose,
    first_chat_model,
    member_of,
)
from .provider_parameters import (
    Prepared,
    form_of_calls,
    is_strict,
    parameters_of,
    translate,
)


class LangChainModel(Adapter):
    """A chat model of the user, or a composition of chat models.

    Its errors reach the user unchanged, unless many sessions share the model.
    """

    first: BaseChatModel

    def __init__(self, label: str, chat: Chat, learned: Learned | None = None) -> None:
        super().__init__(label, learned or learned_of_object(chat))
        self.chat = chat
        separate_loops(chat)
        self.first = first_chat_model(chat)
        self._parameters = parameters_of(self.first)
        self.missing = self._parameters.missing
        limit = self.names.get("max_tokens", "max_tokens")
        self.accepts_limit = limit in type(self.first).model_fields
        most = bound_options(chat).get(limit, getattr(self.first, limit, None))
        self.longest_answer = most if isinstance(most, int) else None
        self.mends_calls = not getattr(type(self.first), "keeps_broken_calls", False)

    @property
    def names(self) -> Mapping[str, str]:
        """The client's names for settings, by duologue's names. Contains only names that differ."""
        return self._parameters.names

    def check(self, settings: CallSettings) -> None:
        """Check that the client supports the user's settings, and that each is set once."""
        super().check(settings)
        for name in () if self._parameters.accepts_extra else ("extra_body", "extra_headers"):
            if getattr(settings, name):
                raise SpecError(
                    f"{settings.where}.{name}: {type(self.first).__name__} does not accept it; set "
                    "it in the model, and pass the model as an object in Python"
                )

    def prepare_answer(self, settings: CallSettings, form: AnswerForm) -> Ask:
        """Return the function that calls the model for a message."""

        def prepare(chat: BaseChatModel, bound: Mapping[str, Any]) -> Prepared:
            return translate(chat, bound, settings)

        return bind_tools(self.chat, self.label, form.offer, prepare).ainvoke

    def prepare_object(self, settings: CallSettings, schema: type[BaseModel], instead: str) -> Ask:
        """Return the function that calls the model for an answer that matches a schema."""
        return ask_with_schema(self.chat, self.label, schema, settings, instead)

    def find_unsupported(self, schema: Mapping[str, Any]) -> str | None:
        """Return the part of a JSON schema that a model can't be held to, and why, or None."""
        for chat in chat_models_in(self.chat):
            rules = parameters_of(chat).schema_rules(chat)
            if rules is not None and (found := find_unsupported(schema, rules)):
                return found
        return None

    def prepare_tool_call(self, settings: CallSettings, form: AnswerForm, offer: Offer) -> Ask:
        """Return the function that calls the model for a tool call as schema-constrained JSON."""
        chat, calls = self.chat, form_of_calls(offer.tools, offer.choice)
        bound = self._parameters.bind_form_of_calls(self.first, calls)
        if isinstance(chat, BaseChatModel) and bound is not None:
            model, options = translate(chat, {}, settings)
            own = getattr(model, "extra_body", None)
            bodies = (own, options.get("extra_body"), bound.get("extra_body"))
            body = {name: value for one in bodies for name, value in (one or {}).items()}
            asked = member_of(model, {**options, **bound, **({"extra_body": body} if body else {})})
            return asked.ainvoke
        schema = {"title": "answer", **answer_schema(offer.tools, offer.choice)}
        if self.find_unsupported(schema):
            # The prompt describes the tools and the form of a call.
            return self.prepare_answer(settings, AnswerForm(form.purpose))
        return ask_with_schema(chat, self.label, schema, settings, 'tool_calling = "native"')

    def own_messages(self, prompt: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return copies of the messages, since other code may change them.

        Later prompts contain the same messages again.
        """
        return copy_view(prompt)

    def options_of(self, settings: CallSettings) -> list[object]:
        """Return the parts of a call's request that the user set and duologue does not know."""
        own = getattr(self.first, "model_kwargs", None)
        return [*super().options_of(settings), own, {**bound_options(self.chat)}]

    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Raise the errors of the user's object unchanged, except those that duologue handles.

        The exceptions are a prompt that is too long, and, if many sessions share the model, a model
        that is unavailable.
        """

        def convert(error: Exception) -> ModelError | None:
            tried = next((one for one in getattr(error, "__notes__", ()) if TRIED in one), None)
            if of_many and is_unavailable(error):
                failed = f"the model {self.label} failed: {excerpt_of(error)}"
                return ModelUnavailableError(tried or f"{failed}{advise_on_credit(error)}")
            return None if tried is None else ModelError(tried)

        return convert_errors(self.label, convert)


def bind_tools(
    chat: Chat, label: str, offer: Offer | None, prepare: Prepare = Prepared
) -> Runnable[Any, Any]:
    """Return a model with tools bound to it.

    Args:
        chat: The chat model, or a composition of chat models.
        label: Name of the model in errors.
        offer: The tools. None if there are none.
        prepare: Returns a chat model and the call arguments, from the model and the
            arguments bound to it.

    Raises:
        ModelError: The model can't call tools.
    """
    if offer is None:
        return compose(chat, prepare, lambda call: bind_options(*call))
    choice, names = offer.choice, offer.names
    offered = [
        tool
        if names[tool.name] == tool.name
        else tool.model_copy(update={"name": names[tool.name]})
        for tool in offer.tools
    ]

    def bind(call: Prepared) -> Chat:
        model, options = call
        parameters = parameters_of(model)
        chosen = parameters.tool_choice(model, choice, names)
        return bind_options(parameters.bind_tools(model, offered, chosen), options)

    try:
        return compose(chat, prepare, bind)
    except NotImplementedError as error:
        raise ModelError(
            f'{label} can\'t call tools; set tool_calling = "schema", or remove the tools'
        ) from error


def ask_with_schema(
    chat: Chat,
    label: str,
    schema: type[BaseModel] | dict[str, Any],
    settings: CallSettings,
    instead: str,
) -> Ask:
    """Return the function that calls a model for structured output together with the raw message.

    Args:
        chat: The chat model, or a composition of chat models.
        label: Name of the model in errors.
        schema: The pydantic model of the answer, whose schema is sent as strict if possible, or a
            JSON schema.
        settings: The settings of the call.
        instead: The setting that errors recommend instead of structured output.

    Raises:
        ModelError: The model has no structured output.
    """
    # A dict, since with the class the client raises on an invalid answer and drops its text.
    wanted = schema if isinstance(schema, dict) else schema_of(schema)
    strict = None if isinstance(schema, dict) else is_strict(wanted)

    def prepare(model: BaseChatModel, bound: Mapping[str, Any]) -> Prepared:
        return translate(model, bound, settings, in_fields=True)

    def make(call: Prepared) -> Runnable[LanguageModelInput, Any]:
        model, options = call
        further = parameters_of(model).structure_options(model, strict=strict)
        return bind_options(
            model.with_structured_output(wanted, include_raw=True, **further), options
        )

    try:
        asked = compose(chat, prepare, make)
    except NotImplementedError as error:
        raise ModelError(f"{label} does not support structured output; set {instead}") from error
    return asked.ainvoke


_PACKAGES: Final = {
    **{
        name: f"langchain-{name.replace('_', '-')}"
        for name in (
            *("anthropic", "azure_ai", "baseten", "cohere", "deepseek", "fireworks"),
            *("google_genai", "google_vertexai", "groq", "huggingface", "ibm", "litellm", "meta"),
            *("mistralai", "ollama", "openrouter", "perplexity", "together", "upstage", "xai"),
        )
    },
    **dict.fromkeys(("azure_openai", "langsmith"), "langchain-openai"),
    **dict.fromkeys(
        (
            *("anthropic_bedrock", "bedrock", "bedrock_converse"),
            *("bedrock_mantle_anthropic", "bedrock_mantle_openai"),
        ),
        "langchain-aws",
    ),
    "google_anthropic_vertex": "langchain-google-vertexai",
    "nvidia": "langchain-nvidia-ai-endpoints",
}
"""The package of each provider. Any other word before a colon is part of a model's name."""

_OPENAI: Final = "openai:"
"""Prefix of the models that this project's own client calls."""


def is_of_provider(name: str | None) -> bool:
    """Return whether a name begins with a provider whose client LangChain creates."""
    provider, colon, model = (name or "").partition(":")
    return provider in _PACKAGES and bool(colon and model.strip())


def strip_openai(name: str) -> str:
    """Return OpenAI's name for a model, without LangChain's prefix."""
    model = name.removeprefix(_OPENAI)
    return model if model.strip() else name


def loads_files(name: str) -> bool:
    """Return whether a name means weights that are loaded into this process."""
    return name.startswith("huggingface:")


class ProviderModel(LangChainModel):
    """A model created by a provider's name, such as ``anthropic:claude-sonnet-4-5``."""

    def __init__(self, label: str, chat: BaseChatModel, max_reply_size: int) -> None:
        super().__init__(label, chat, learned_of_name(label, None))
        self.max_reply_size = max_reply_size

    def check_size(self, found: object) -> object:
        """Return a reply after checking its size. Each character counts as a byte.

        The providers' packages have their own HTTP clients, which have no limit.
        """
        left, size = [found], 0
        while left:
            part = left.pop()
            size += len(part) if isinstance(part, str | bytes) else 1
            if size > self.max_reply_size:
                too_large = TooLargeReplyError(self.max_reply_size)
                raise ModelError(f"the model {self.label} sent {too_large}")
            if isinstance(part, AIMessage):
                calls = (*part.tool_calls, *part.invalid_tool_calls)
                left += (part.content, part.additional_kwargs, *calls)
            elif isinstance(part, Mapping):
                left += part.values()
            elif isinstance(part, list | tuple):
                left += part
        return found

    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Turn all errors of the provider's package into errors of duologue."""
        return provider_failures(self.label)


def make_model(name: str, settings: Settings) -> ProviderModel:
    """Create the model of a provider. Takes seconds and reads files.

    Args:
        name: The provider and its name for the model, such as ``anthropic:claude-sonnet-4-5``.
        settings: The settings of duologue.

    Raises:
        ModelUnavailableError: A package or a setting of the provider is missing.
    """
    package = _PACKAGES[name.partition(":")[0]]
    missing = [name for name in ("langchain", package) if find_spec(name.replace("-", "_")) is None]
    if missing:
        raise ModelUnavailableError(
            f"model {name!r} needs more packages; run `pip install {' '.join(missing)}`"
        )
    from langchain.chat_models import init_chat_model

    with provider_failures(name, ModelUnavailableError):
        chat = init_chat_model(name)
    return ProviderModel(name, chat, settings.max_reply_size)


def provider_failures(
    label: str, kind: type[ModelError] = ModelError
) -> AbstractContextManager[None]:
    """Turn all errors of a provider's package inside the block into one kind of error.

    The exceptions that `failures` passes unchanged pass here as well.
    """

    def convert(error: Exception) -> ModelError | None:
        # A package that is not known here reports most failures by a status or a connection.
        if is_foreign(error) and find_refusal(error) is None and not is_outage(error):
            return None
        # The input that pydantic quotes may contain a key.
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        said = f"{excerpt(what) or type(error).__name__}{advise_on_credit(error)}"
        found = ModelUnavailableError if is_unavailable(error) else kind
        return found(f"the model {label} failed: {said}")

    return convert_errors(label, convert)
