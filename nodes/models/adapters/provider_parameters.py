"""Parameters and prices of each provider: names for settings, tool choices, structured answers.

A client that is not listed receives the settings by OpenAI's names, as arguments of the call. List
prices come from the table in the package ``genai-prices``.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function, convert_to_openai_tool
from pydantic import BaseModel

from ....graphs.conversation.usage import Usage
from ....graphs.speakers.formats import schema_of
from ....graphs.speakers.structured_answers import (
    CLAUDE,
    GEMINI,
    LLAMA,
    OPENAI,
    SchemaRules,
    find_unsupported,
)
from ..settings import CallSettings
from ..tool_calls import Names
from ..tools_by_schema import answer_schema


@dataclass(frozen=True)
class ListPrice:
    """A model, as its provider's price list identifies it."""

    model: str
    provider: str | None
    address: str | None
    """Address of the model's server. The provider's own if None."""

    def compute_cost(self, used: Usage) -> float:
        """Return the price of the tokens that calls used, in US dollars.

        Raises:
            LookupError: The price is not known.
        """
        import genai_prices

        counted = genai_prices.Usage(
            input_tokens=used.input_tokens,
            cache_read_tokens=used.cached_tokens,
            cache_write_tokens=used.cache_write_tokens,
            cache_write_1h_tokens=used.cache_write_1h_tokens,
            input_audio_tokens=used.audio_input_tokens,
            # Without it, some prices can't be computed. Our kinds exclude each other.
            cache_audio_read_tokens=0,
            output_tokens=used.output_tokens,
            output_audio_tokens=used.audio_output_tokens,
        )
        if self.address is None:
            found = genai_prices.calc_price(counted, self.model, provider_id=self.provider)
        else:
            found = genai_prices.calc_price(counted, self.model, provider_api_url=self.address)
        return float(found.total_price)


def list_price(chat: BaseChatModel) -> ListPrice | None:
    """Return the list price of a chat model, or None if it is not listed."""
    # LangChain's own tracers use this method.
    told = chat._get_ls_params()
    return _find(told, getattr(chat, "openai_api_base", None))


def has_list() -> bool:
    """Return whether the table is installed. If so, load the table from its files."""
    # Not cached if it is missing, since a notebook may install it.
    if find_spec("genai_prices") is None:
        return False
    _load_list()
    return True


@cache
def _load_list() -> None:
    with suppress(LookupError):
        ListPrice("gpt-4o", "openai", None).compute_cost(Usage(input_tokens=1, output_tokens=1))


async def load_list() -> bool:
    """Call `has_list`, in a thread if the table is not loaded yet, because that takes a second."""
    is_loaded = bool(_load_list.cache_info().currsize)
    return has_list() if is_loaded else await asyncio.to_thread(has_list)


def label_of_call(serialized: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return the name of a call's model, as LangChain's callbacks describe it."""
    path = serialized.get("id") or ["a model"]
    return str(metadata.get("ls_model_name") or path[-1])


def list_price_of_call(
    serialized: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ListPrice | None:
    """Return the list price of a call's model, as LangChain's callbacks describe it."""
    return _find(metadata, serialized.get("kwargs", {}).get("openai_api_base"))


def _find(told: Mapping[str, Any], address: str | None) -> ListPrice | None:
    """Return the table's entry for a model, or None, by its metadata and its address."""
    model = told.get("ls_model_name")
    if not model:
        return None
    # Models of other servers with OpenAI's API may have the same names.
    found = ListPrice(model, told.get("ls_provider"), address)
    try:
        found.compute_cost(Usage(input_tokens=1, output_tokens=1))
    except LookupError:
        return None
    return found


@dataclass(frozen=True)
class Parameters:
    """The parameters of a client. The defaults are OpenAI's names, as arguments of the call."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The client's names for settings, by duologue's names. Contains only names that differ."""
    missing: frozenset[str] = frozenset()
    """The settings that the client does not support."""
    sets_fields: bool = False
    """Whether settings must be fields of the client, since its calls refuse them as arguments."""
    accepts_extra: bool = False
    """Whether the client accepts extra fields of the body and extra headers."""
    forbidden: Any = "none"
    """The value of ``tool_choice`` that forbids calls."""
    rules: SchemaRules | None = None
    """The rules for a schema that the client sends. Any schema is accepted if None."""
    takes_forms: bool = False
    """Whether ``response_format`` is an argument of the call."""

    def tool_choice(self, chat: BaseChatModel, choice: str, names: Names) -> dict[str, Any]:
        """Return the arguments of ``bind_tools`` for a choice of tools.

        Args:
            chat: The client.
            choice: ``auto``, ``required``, ``none`` or the name of a tool.
            names: The names of the tools as they are sent.
        """
        if choice == "auto":
            # All servers use auto by default, and some refuse the word.
            return {}
        words = {"none": self.forbidden, "required": "any"}
        return {"tool_choice": words[choice] if choice in words else names[choice]}

    def bind_tools(
        self, chat: BaseChatModel, tools: Sequence[BaseTool], chosen: Mapping[str, Any]
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the client with tools bound to it, and with the arguments for their choice."""
        return chat.bind_tools(tools, **chosen)

    def structure_options(self, chat: BaseChatModel, *, strict: bool | None) -> dict[str, Any]:
        """Return further arguments of the client's ``with_structured_output``.

        Args:
            chat: The client.
            strict: Whether OpenAI can enforce the schema. None if it is not known.
        """
        return {}

    def schema_rules(self, chat: BaseChatModel) -> SchemaRules | None:
        """Return the rules for a schema that the client sends. Any schema is accepted if None."""
        return self.rules

    def bind_form_of_calls(
        self, chat: BaseChatModel, form: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the arguments of a call that constrain its answer to the schema of the tools.

        None if the client has no such arguments. The model is then called for a structured answer.

        Args:
            chat: The client.
            form: The ``response_format`` of OpenAI's API.
        """
        return {"response_format": form} if self.takes_forms else None


class AnthropicParameters(Parameters):
    """Anthropic's parameters."""

    def tool_choice(self, chat: BaseChatModel, choice: str, names: Names) -> dict[str, Any]:
        """Return the arguments of ``bind_tools``. A thinking model can't be forced to call."""
        thinking = getattr(chat, "thinking", None) or {}
        thinks = thinking.get("type") in ("enabled", "adaptive")
        return super().tool_choice(chat, "auto" if thinks and choice != "none" else choice, names)

    def structure_options(self, chat: BaseChatModel, *, strict: bool | None) -> dict[str, Any]:
        """Return the method that sends a schema, if the model supports it."""
        # LangChain's default forces a tool call, which newer models and thinking models refuse:
        # docs.claude.com, "Extended thinking", "Tool use with extended thinking".
        return {} if self.schema_rules(chat) is None else {"method": "json_schema"}

    def schema_rules(self, chat: BaseChatModel) -> SchemaRules | None:
        """Return the rules for a schema. A model without structured output calls a tool instead."""
        return CLAUDE if (chat.profile or {}).get("structured_output") else None


class GeminiParameters(Parameters):
    """The parameters of the client for Google's Generative Language API."""

    def bind_tools(
        self, chat: BaseChatModel, tools: Sequence[BaseTool], chosen: Mapping[str, Any]
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the client with tools. Their JSON schemas are sent if the client loses a part.

        The client leaves out free keys and items of tuples, and turns values of any kind into text.
        """
        functions = [convert_to_openai_tool(tool)["function"] for tool in tools]
        schemas = [function.get("parameters") or {"properties": {}} for function in functions]
        if not any(find_unsupported(schema, SchemaRules()) for schema in schemas):
            return super().bind_tools(chat, tools, chosen)
        # The package is installed together with the client.
        from google.genai import types

        declared = [
            types.FunctionDeclaration(
                name=function["name"],
                description=function.get("description"),
                parameters_json_schema=schema,
            )
            for function, schema in zip(functions, schemas, strict=True)
        ]
        return chat.bind(tools=[types.Tool(function_declarations=declared)], **chosen)


class OpenAIParameters(Parameters):
    """OpenAI's parameters, for LangChain's own client."""

    def structure_options(self, chat: BaseChatModel, *, strict: bool | None) -> dict[str, Any]:
        """Return ``strict``, since OpenAI enforces a schema only on request."""
        return {} if strict is None else {"strict": strict}

    def bind_form_of_calls(
        self, chat: BaseChatModel, form: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the extra body, because the client checks the answer to an argument.

        It raises an error if the answer is cut off.
        """
        if not chat._use_responses_api({}):  # type: ignore[attr-defined]
            return {"extra_body": {"response_format": form}}
        # https://platform.openai.com/docs/guides/migrate-to-responses: "Structured Outputs"
        text: dict[str, Any] = {"format": {"type": form["type"], **form["json_schema"]}}
        if verbosity := getattr(chat, "verbosity", None):
            text["verbosity"] = verbosity
        return {"extra_body": {"text": text}}


_ANTHROPIC: Final = AnthropicParameters(
    missing=frozenset({"seed"}), accepts_extra=True, forbidden={"type": "none"}
)
_GOOGLE: Final = Parameters({"max_tokens": "max_output_tokens"}, rules=GEMINI)

_PARAMETERS: Final[Mapping[str, Parameters]] = {
    "ChatAnthropic": _ANTHROPIC,
    "ChatAnthropicVertex": _ANTHROPIC,
    # Of Bedrock's Converse API.
    "ChatBedrockConverse": Parameters(missing=frozenset({"seed"})),
    "ChatGoogleGenerativeAI": GeminiParameters(_GOOGLE.names, rules=GEMINI),
    # Its `with_structured_output` would offer a function, without the schema of the tools:
    # LangChain drops a schema that has a choice, and no properties, at its root.
    "ChatMistralAI": Parameters({"seed": "random_seed"}, takes_forms=True),
    "ChatOllama": Parameters({"max_tokens": "num_predict"}, sets_fields=True, rules=LLAMA),
    "ChatOpenAI": OpenAIParameters(accepts_extra=True),
    "ChatVertexAI": _GOOGLE,
}
"""The parameters of clients, by class name, in packages of LangChain."""

_OTHERS: Final = Parameters(accepts_extra=True)


def parameters_of(chat: BaseChatModel) -> Parameters:
    """Return the parameters of a client, by its class or the nearest base class that is listed."""
    for each in type(chat).__mro__:
        if each.__module__.startswith("langchain_") and each.__name__ in _PARAMETERS:
            return _PARAMETERS[each.__name__]
    return _OTHERS


class Prepared(NamedTuple):
    """A client that is ready for a call."""

    chat: BaseChatModel
    """The client, with the settings that are its fields."""
    options: Mapping[str, Any]
    """The arguments of the call."""


def translate(
    chat: BaseChatModel,
    bound: Mapping[str, Any],
    settings: CallSettings,
    *,
    in_fields: bool = False,
) -> Prepared:
    """Return a client, and the arguments of a call in the client's names.

    A setting of the conversation overrides a setting of the client, which overrides a default.

    Args:
        chat: The client.
        bound: The arguments bound to it.
        settings: The settings of the call.
        in_fields: Whether to set settings as fields of the client if it has such fields. With
            structured output, arguments do not reach every client.
    """
    parameters = parameters_of(chat)
    own = {name for name in chat.model_fields_set if getattr(chat, name, None) is not None}
    fields: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in settings.values.items():
        sent = parameters.names.get(name, name)
        is_chosen = name in settings.chosen
        if name in parameters.missing or (not is_chosen and (sent in bound or sent in own)):
            continue
        is_field = (in_fields or parameters.sets_fields) and sent in type(chat).model_fields
        # A copy, since a client may change it.
        (fields if is_field else options)[sent] = [*value] if isinstance(value, list) else value
    for name, value in settings.extra_args.items():
        (fields if name in type(chat).model_fields else options)[name] = value
    if settings.extra_body:
        options["extra_body"] = {**(bound.get("extra_body") or {}), **settings.extra_body}
    if settings.extra_headers:
        options["extra_headers"] = {**(bound.get("extra_headers") or {}), **settings.extra_headers}
    kept = {name: value for name, value in bound.items() if name not in fields}
    return Prepared(chat.model_copy(update=fields) if fields else chat, {**kept, **options})


LimitName: TypeAlias = Literal["max_completion_tokens", "max_tokens"]
"""A server's name for the output token limit."""

NEWER_LIMIT: Final[LimitName] = "max_completion_tokens"
"""OpenAI's newer name for the output token limit. Most other servers know the older name."""

_OPENAI: Final = "api.openai.com"

_WITHOUT_FORMS: Final = re.compile(r"gpt-3|gpt-4(-|$)")
"""Models of OpenAI without ``response_format``. LangChain lets them call a function instead."""


def limit_name_at(url: str | None) -> LimitName:
    """Return a server's name for the output token limit: the newer name only for OpenAI.

    Other servers may silently ignore the newer name, as Ollama does
    (github.com/ollama/ollama/issues/7125).

    Args:
        url: The address of the server. OpenAI's own if None.
    """
    host = (urlsplit(url).hostname or "") if url else _OPENAI
    is_openais = host == _OPENAI or host.endswith((".openai.com", ".azure.com"))
    return NEWER_LIMIT if is_openais else "max_tokens"


def takes_forms(model: str) -> bool:
    """Return whether a model supports a schema in ``response_format``."""
    return _WITHOUT_FORMS.match(model) is None


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether OpenAI's strict mode supports a schema completely."""
    return find_unsupported(schema, OPENAI) is None


@cache
def form_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Return a pydantic model's ``response_format``, equal to `ChatOpenAI`'s."""
    given = schema_of(schema)
    # OpenAI enforces the schema only on request.
    described = convert_to_openai_function(given, strict=is_strict(given))
    described["schema"] = described.pop("parameters")
    return {"type": "json_schema", "json_schema": described}


def form_of_calls(tools: Sequence[BaseTool], choice: str) -> dict[str, Any]:
    """Return the ``response_format`` of an answer that calls one of the tools, or replies."""
    schema = {"name": "answer", "schema": answer_schema(tools, choice), "strict": False}
    return {"type": "json_schema", "json_schema": schema}
