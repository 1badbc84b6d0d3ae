"""The settings of a model call: of the user, the defaults, and settings that a model refuses."""

import re
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from json import JSONDecodeError
from typing import Any, Final, Self

from langchain_core.exceptions import OutputParserException
from pydantic import ValidationError

from ...graphs.common.data import UNSET
from ...graphs.common.errors import DuologueError, SpecError, iter_causes
from ...graphs.common.sanitize import excerpt
from ...graphs.speakers.call_settings import ModelSettings
from .refusals import find_refusal, read_too_long, text_of


@dataclass(frozen=True)
class CallSettings:
    """The settings of one model call, by the names of `ModelSettings`.

    A setting that the user chose is always sent; if the model refuses it, the call fails. A default
    is sent only if the client and the model accept it.
    """

    chosen: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the user set."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of the settings that the user did not set."""
    where: str = "model_settings"
    """The path of the settings in the conversation, for errors."""
    extra_args: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the client, by the client's own names."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the request."""
    attachments: bool | None = None
    """Whether files in messages are sent. If None, the model's profile decides."""

    @classmethod
    def make(cls, model_settings: ModelSettings, where: str, **defaults: object) -> Self:
        """Return the settings of a call.

        Args:
            model_settings: The settings that the user set.
            where: Their path in the conversation.
            defaults: Defaults of settings that the user did not set. No default if None.
        """
        names = ("temperature", "max_tokens", "top_p", "stop", "seed")
        own: dict[str, Any] = {name: getattr(model_settings, name) for name in names}
        own["stop"] = [*own["stop"]] or None
        return cls(
            {name: value for name, value in own.items() if value not in (None, UNSET)},
            {
                name: value
                for name, value in defaults.items()
                if value is not None and own[name] is None
            },
            where,
            model_settings.extra_args,
            model_settings.extra_body,
            model_settings.extra_headers,
            model_settings.attachments,
        )

    @cached_property
    def is_set(self) -> bool:
        """Return whether the user set any setting."""
        return bool(self.chosen or self.extra_args or self.extra_body or self.extra_headers)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Return the settings and defaults to send, without the user's extra settings."""
        return {**self.defaults, **self.chosen}

    def drop(self, names: Collection[str]) -> Self:
        """Return the settings without the defaults of these names."""
        kept = {name: value for name, value in self.defaults.items() if name not in names}
        return self if len(kept) == len(self.defaults) else replace(self, defaults=kept)


_OURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict"), "max_tokens"
    ),
    **dict.fromkeys(("stop", "stop_sequences"), "stop"),
    **dict.fromkeys(("seed", "random_seed"), "seed"),
    "temperature": "temperature",
    "top_p": "top_p",
}
"""The providers' names for settings, each with the field of `ModelSettings` to use instead."""

_SENT: Final = (
    *("model", "messages", "input", "contents", "system", "n", "stream", "stream_options"),
    *("tools", "tool_choice", "functions", "function_call", "response_format", "text", "format"),
    *("output_config", "config", "callbacks", "options", "extra_body", "extra_headers"),
)
"""Names of the request's parts that each call sets itself."""


def check_collisions(settings: CallSettings) -> None:
    """Refuse an extra setting that has a field in `ModelSettings`, or that each call sets itself.

    Raises:
        SpecError: An extra setting is not allowed. The message names it.
    """
    for part in ("extra_args", "extra_body"):
        for name in getattr(settings, part):
            where = f"{settings.where}.{part}.{name}"
            if name in _OURS:
                raise SpecError(
                    f"{where}: there is a field for it; set {settings.where}.{_OURS[name]} instead"
                )
            if name in _SENT:
                raise SpecError(f"{where}: each call sets it; remove it")


_REFUSED: Final = (400, 422)
"""HTTP statuses of an invalid request."""

_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(\w+)'")
"""Python's error for an unknown keyword argument."""

_WORDS: Final = ("stop", "seed")
"""Setting names that are ordinary words. They match only in quotation marks."""


@dataclass
class Learned:
    """Facts about the settings of one model, learned from failed calls."""

    refused: set[str] = field(default_factory=set)
    """Names of the defaults that the model refuses."""
    limit_name: str | None = None
    """The server's name for the output token limit. None if the server has not refused the usual
    name.
    """


@dataclass
class KnownServer:
    """Facts about one server, learned from its replies."""

    has_answered: bool = False
    """Whether it has answered a call, so that its address is right."""
    sends_no_end: bool = False
    """Whether it ends streams without a finish reason and without ``[DONE]``."""


_servers: dict[str, KnownServer] = {}
_by_name: dict[tuple[str, str | None], Learned] = {}
_by_object: dict[int, Learned] = {}


def server_at(url: str) -> KnownServer:
    """Return the known facts about the server at an address."""
    return _servers.setdefault(url, KnownServer())


def learned_of_name(label: str, address: str | None) -> Learned:
    """Return the known facts about a model, by its name and its server's address."""
    return _by_name.setdefault((label, address), Learned())


def learned_of_object(chat: object) -> Learned:
    """Return the known facts about a user's chat model. They are dropped with the object."""
    number = id(chat)
    if number not in _by_object:
        _by_object[number] = Learned()
        weakref.finalize(chat, _by_object.pop, number, None)
    return _by_object[number]


def refused_setting(
    error: BaseException, names: Mapping[str, str], settings: CallSettings
) -> str | None:
    """Return duologue's name of the refused setting, or None if the call failed otherwise.

    A default is found before a setting that the user chose: if two settings exclude each other, the
    default can be left out.

    Args:
        error: The error that the client raised.
        names: The client's names for settings, by duologue's names, if they differ.
        settings: The settings of the call.
    """
    sent = {name: names.get(name, name) for name in (*settings.values, *settings.extra_args)}
    ours = {name: name for name in sent} | {sent_as: name for name, sent_as in sent.items()}
    named = next((ours[name] for name in _parameters(error) if name in ours), None)
    # A client may refuse a request before it sends it.
    is_answer = isinstance(error, DuologueError | OutputParserException | JSONDecodeError)
    by_client = isinstance(error, ValueError) and find_refusal(error) is None and not is_answer
    if named is not None or not (by_client or _is_refusal(error)):
        return named
    text = text_of(error)
    for group in (settings.defaults, settings.chosen, settings.extra_args):
        for name in group:
            if any(_names(text, one, quoted=by_client) for one in (sent[name], name)):
                return name
    return None


def _parameters(error: BaseException) -> Iterator[str]:
    """Yield the parameters that an error names in a field, or that Python rejects by name."""
    for one in iter_causes(error):
        if isinstance(one, TypeError):
            yield from _UNEXPECTED.findall(str(one))
        elif isinstance(one, ValidationError):
            yield from (str(part) for fault in one.errors() for part in fault["loc"])
        elif _is_refusal(one):
            yield from _list_named(one)


def _list_named(error: BaseException) -> Iterator[str]:
    body: Any = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, Mapping) else None
    for holder in (error, body, inner):
        found = holder.get("param") if isinstance(holder, Mapping) else getattr(holder, "param", "")
        if isinstance(found, str):
            # It may name a part of a setting, such as "stop[0]".
            yield re.split(r"[\[.]", found)[0]


def message_of(error: BaseException) -> str:
    """Return the message of a refusal, cut to one line."""
    for one in iter_causes(error):
        body: Any = getattr(one, "body", None)
        inner = body.get("error", body) if isinstance(body, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(inner.get("message"), str):
            return excerpt(inner["message"])
    return excerpt(str(error))


def _is_refusal(error: BaseException) -> bool:
    """Return whether a server refused a request as invalid."""
    found = find_refusal(error)
    return found is not None and found.status in _REFUSED and read_too_long(error, "") is None


def _names(text: str, name: str, *, quoted: bool) -> bool:
    word = re.escape(name.casefold()).replace("_", "_?")
    if quoted or name in _WORDS:
        return re.search(rf"['\"`]{word}['\"`]", text) is not None
    return re.search(rf"(?<![a-z0-9_]){word}(?![a-z0-9_])", text) is not None
