"""The names that LangChain's clients of other providers have for the settings of a call.

A client that is not listed gets the settings by the names of OpenAI, as arguments of the call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel

from ....graphs.common.errors import SpecError
from ..settings import CallSettings


def _nothing(chat: BaseChatModel) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Dialect:
    """The differences of one client from the others."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The client's names for settings, by ours, if they differ."""
    missing: frozenset[str] = frozenset()
    """The settings that the client lacks."""
    sets_fields: bool = False
    """Whether settings are fields of the client, since its calls refuse them as arguments."""
    takes_extra: bool = False
    """Whether its calls take ``extra_body`` and ``extra_headers``."""
    constrains_by_body: bool = False
    """Whether ``response_format`` may be sent as a field of the body, and schemas strictly."""
    none: Any = "none"
    """The value of ``tool_choice`` that forbids calls."""
    method: Callable[[BaseChatModel], dict[str, Any]] = _nothing
    """Returns further arguments of the client's ``with_structured_output``."""
    may_force: Callable[[BaseChatModel], bool] = lambda chat: True
    """Returns whether a call may be forced to call a tool."""


def _anthropic_method(chat: BaseChatModel) -> dict[str, Any]:
    # LangChain's default forces a call of a tool, which newer models and thinking refuse:
    # docs.claude.com, "Extended thinking", "Tool use with extended thinking".
    known = (chat.profile or {}).get("structured_output")
    return {"method": "json_schema"} if known else {}


def _thinks_not(chat: BaseChatModel) -> bool:
    thinking = getattr(chat, "thinking", None) or {}
    return thinking.get("type") not in ("enabled", "adaptive")


_OPENAI: Final = Dialect(takes_extra=True)

_ANTHROPIC: Final = Dialect(
    missing=frozenset({"seed"}),
    takes_extra=True,
    none={"type": "none"},
    method=_anthropic_method,
    may_force=_thinks_not,
)

_DIALECTS: Final[Mapping[str, Dialect]] = {
    "AzureChatOpenAI": _OPENAI,
    "BaseChatOpenAI": _OPENAI,
    "ChatAnthropic": _ANTHROPIC,
    "ChatAnthropicVertex": _ANTHROPIC,
    "ChatBedrockConverse": Dialect(missing=frozenset({"seed"})),
    "ChatGoogleGenerativeAI": Dialect(names={"max_tokens": "max_output_tokens"}),
    "ChatGroq": _OPENAI,
    "ChatMistralAI": Dialect(names={"seed": "random_seed"}),
    "ChatOllama": Dialect(names={"max_tokens": "num_predict"}, sets_fields=True),
    "ChatOpenAI": Dialect(takes_extra=True, constrains_by_body=True),
    "ChatVertexAI": Dialect(names={"max_tokens": "max_output_tokens"}),
}
"""The dialects of the clients, by the names of their classes in packages of LangChain."""

_PLAIN: Final = Dialect()


def dialect_of(chat: BaseChatModel) -> Dialect:
    """Return the dialect of a client, by its class or the nearest class that it extends."""
    for each in type(chat).__mro__:
        if each.__module__.startswith("langchain_") and each.__name__ in _DIALECTS:
            return _DIALECTS[each.__name__]
    return _PLAIN


class Prepared(NamedTuple):
    """A client that is ready for a call."""

    chat: BaseChatModel
    """The client, with the settings that are its fields."""
    options: Mapping[str, Any]
    """The arguments of the call."""


def prepared(
    chat: BaseChatModel,
    bound: Mapping[str, Any],
    settings: CallSettings,
    *,
    in_fields: bool = False,
) -> Prepared:
    """Return a client and the arguments of a call in the names of the client.

    A setting of the user's in the conversation goes before those of the client itself, and these go
    before a default.

    Args:
        chat: The client.
        bound: The arguments that are bound to it.
        settings: The settings of the call.
        in_fields: Whether settings that are fields of the client are set there: arguments do not
            reach every client with structured output.
    """
    dialect = dialect_of(chat)
    own = {name for name in chat.model_fields_set if getattr(chat, name, None) is not None}
    fields: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in settings.values.items():
        sent = dialect.names.get(name, name)
        is_chosen = name in settings.chosen
        if name in dialect.missing or (not is_chosen and (sent in bound or sent in own)):
            continue
        is_field = (in_fields or dialect.sets_fields) and sent in type(chat).model_fields
        (fields if is_field else options)[sent] = value
    for name, value in settings.extra_args.items():
        (fields if name in type(chat).model_fields else options)[name] = value
    if settings.extra_body:
        options["extra_body"] = {**(bound.get("extra_body") or {}), **settings.extra_body}
    if settings.extra_headers:
        options["extra_headers"] = {**(bound.get("extra_headers") or {}), **settings.extra_headers}
    kept = {name: value for name, value in bound.items() if name not in fields}
    return Prepared(chat.model_copy(update=fields) if fields else chat, {**kept, **options})


def check_extra(chat: BaseChatModel, settings: CallSettings) -> None:
    """Check that a client takes the further parts of requests that the user set.

    Raises:
        SpecError: It does not. Names the field.
    """
    dialect = dialect_of(chat)
    if dialect.takes_extra or dialect is _PLAIN:
        return
    for name in ("extra_body", "extra_headers"):
        if getattr(settings, name):
            raise SpecError(
                f"{settings.where}.{name}: {type(chat).__name__} does not take it; set it in the "
                "model, and pass the model as an object in Python"
            )
