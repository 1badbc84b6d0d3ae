"""Servers with OpenAI's API, called through this project's client.

OpenAI's client is not imported here, since that takes as long as the rest of the program.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from pydantic import BaseModel

from ....graphs.common.addresses import show_address
from ....graphs.common.errors import SpecError
from ....graphs.common.settings import Settings
from ....graphs.speakers.structured_answers import CLAUDE, find_unsupported
from ..client.failures import address_of, failures
from ..connections import Endpoint
from ..refusals import comes_from
from ..settings import CallSettings, learned_of_name
from .base import Adapter, AnswerForm, Ask, Offer
from .composed import member_of
from .langchain import ask_with_schema, bind_tools
from .provider_parameters import (
    NEWER_LIMIT,
    form_of,
    form_of_calls,
    limit_name_at,
    takes_forms,
)

if TYPE_CHECKING:
    from ..client.chat_model import ChatModel

_ONLY_IN_CHAT: Final = ("stop", "seed")
"""Settings of Chat Completions that OpenAI's Responses API does not support."""


class OpenAICompatible(Adapter):
    """A server with OpenAI's API."""

    def __init__(self, label: str, chat: "ChatModel", address: str | None = None) -> None:
        super().__init__(label, learned_of_name(label, address))
        self.first = self.chat = chat
        self.address = address
        self.retries = chat.max_retries or 0
        self.longest_answer = chat.max_tokens

    @property
    def names(self) -> Mapping[str, str]:
        """The API's names for settings, by duologue's names. Contains only names that differ."""
        return {"max_tokens": self._limit_name}

    def check(self, settings: CallSettings) -> None:
        """Check that the API supports the user's settings, and that each is set once."""
        super().check(settings)
        if settings.extra_args.get("use_responses_api") or "reasoning" in settings.extra_args:
            for name in settings.chosen:
                if name in _ONLY_IN_CHAT:
                    raise SpecError(
                        f"{settings.where}.{name}: OpenAI's Responses API has no such setting; "
                        "remove it, or the extra_args that choose this API"
                    )

    def learns(self, name: str, text: str) -> bool:
        """Use the newer name of the output limit if the server's refusal names it.

        Returns whether the newer name is used.
        """
        if name != "max_tokens" or NEWER_LIMIT not in text:
            return False
        # Another call may have set the name since this call was sent.
        self.learned.limit_name = NEWER_LIMIT
        return True

    @property
    def _limit_name(self) -> str:
        return self.learned.limit_name or self.chat.limit_name

    def prepare_answer(self, settings: CallSettings, form: AnswerForm) -> Ask:
        """Return the function that calls the model for a message."""
        chat, options = self.prepare(settings, form)
        return partial(bind_tools(chat, self.label, form.offer).ainvoke, **options)

    def prepare_object(self, settings: CallSettings, schema: type[BaseModel], instead: str) -> Ask:
        """Return the function that calls the model for an answer that matches a schema."""
        if takes_forms(self.chat.model_name):
            chat, options = self.prepare(settings)
            # LangChain's own method takes longer than the call.
            return partial(member_of(chat).ainvoke, response_format=form_of(schema), **options)
        return ask_with_schema(self.chat, self.label, schema, settings, instead)

    def find_unsupported(self, schema: Mapping[str, Any]) -> str | None:
        """Return the part of a JSON schema that the model can't be held to, and why, or None."""
        # Other servers accept any schema that is not strict.
        is_claude = "claude" in self.chat.model_name.lower()
        return find_unsupported(schema, CLAUDE) if is_claude else None

    def prepare_tool_call(self, settings: CallSettings, form: AnswerForm, offer: Offer) -> Ask:
        """Return the function that calls the model for a tool call as schema-constrained JSON."""
        # In the extra body: otherwise the client drops the text of an answer that is cut off.
        schema = form_of_calls(offer.tools, offer.choice)
        chat, options = self.prepare(settings, form, response_format=schema)
        return partial(member_of(chat).ainvoke, **options)

    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Turn the errors of the client into errors of duologue."""
        return failures(self.label, self.address)

    def choose_body(self, settings: CallSettings, form: AnswerForm | None) -> dict[str, Any]:
        """Return the fields of the request's body that the family of models needs.

        Args:
            settings: The settings of the call.
            form: The form of the wanted message. None for an answer that matches a schema.
        """
        return {}

    def prepare(
        self, settings: CallSettings, form: AnswerForm | None = None, **body: object
    ) -> "tuple[ChatModel, dict[str, Any]]":
        """Return the client and the options of a call.

        Args:
            settings: The settings of the call.
            form: The form of the wanted message. None for an answer that matches a schema.
            body: Further fields of the request's body.
        """
        chat, options = self.chat, {**settings.values}
        fields: dict[str, Any] = {}
        for name, value in settings.extra_args.items():
            (fields if name in type(chat).model_fields else options)[name] = value
        if self._limit_name != chat.limit_name:
            fields["limit_name"] = self._limit_name
        if fields:
            chat = chat.model_copy(update=fields)
        if body := {**settings.extra_body, **self.choose_body(settings, form), **body}:
            options["extra_body"] = body
        if settings.extra_headers:
            options["extra_headers"] = settings.extra_headers
        return chat, options


def is_ours(chat: object) -> TypeGuard["ChatModel"]:
    """Return whether a model is this project's client, not a client of the user."""
    return comes_from(chat, "duologue.nodes.models.client.chat_model")


def reach_model(name: str, loop: asyncio.AbstractEventLoop, settings: Settings) -> OpenAICompatible:
    """Return a model of the server in the settings. Blocks while its client is created.

    Args:
        name: The server's name for the model.
        loop: The event loop that calls the model.
        settings: The settings of duologue.
    """
    from ..client.clients import make_client

    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    url = settings.base_url
    chat = make_client(
        loop, settings, Endpoint(url, key, limit_name_at(url), show_address(url or "")), name
    )
    return OpenAICompatible(name, chat, address_of(settings))
