"""Fields of a provider's answers that must come back unchanged, and the rules of each family.

The log stores such fields with the answer's thought, together with the family of the model. A later
prompt of the same speaker contains them if the same family answers it and its rule demands them.
Other families refuse them, or refuse calls without fields of their own.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from ...graphs.speakers.reply_parts import THOUGHT, Reasoning, Thought
from .answers import CALL_FIELDS, OPAQUE, PARTS, THOUGHTS, add_thought


class Return(StrEnum):
    """The messages with which opaque fields go back."""

    CURRENT_TURN = "current_turn"
    """The messages with calls to which the model replies now."""
    CALLS = "calls"
    """All messages with calls."""
    ONCE_CALLED = "once_called"
    """All messages of a prompt that contains calls."""


class Family(NamedTuple):
    """A family of models, and its rule for opaque fields."""

    name: str
    """The family's name, which the log stores."""
    returns: Return = Return.CURRENT_TURN
    """The messages with which opaque fields go back."""
    text_field: str | None = None
    """The field with a text that each message needs. A short text replaces an unknown thought."""
    call_fields: Mapping[str, Any] | None = None
    """The fields that a message's first call needs if another family made it."""
    thinking: str | None = None
    """The client's setting for thinking, which excludes a last call without a thought."""


# https://api-docs.deepseek.com/guides/thinking_mode: after a turn with calls, the thoughts of that
# turn are required in all later requests. In other turns they are ignored. Blank text is refused:
# https://github.com/BerriAI/litellm/pull/28057; equal texts confuse the model:
# https://github.com/Lingtai-AI/lingtai-kernel/issues/9.
_DEEPSEEK: Final = Family("deepseek", Return.ONCE_CALLED, text_field="reasoning_content")

_NATIVE: Final[Mapping[str, Family]] = {
    # https://platform.claude.com/docs/en/build-with-claude/thinking-tool-workflows: with the call
    # of the current turn. Thinking cannot follow a call without a thought:
    # https://github.com/zed-industries/zed/pull/33317.
    "langchain_anthropic": Family("anthropic", thinking="thinking"),
    "langchain_deepseek": _DEEPSEEK,
    # https://ai.google.dev/gemini-api/docs/thought-signatures: recommended with all calls, required
    # in the current turn. The client adds a value to calls that other models made.
    "langchain_google_genai": Family("google_genai", Return.CALLS),
    "langchain_google_vertexai": Family("google_genai", Return.CALLS),
    # https://openrouter.ai/docs/guides/best-practices/reasoning-tokens: with calls, unchanged. The
    # provider that OpenRouter chooses may require them in all later requests.
    "langchain_openrouter": Family("openrouter", Return.CALLS),
}
"""The families of LangChain's packages. Any other package is a family of its own, to which thoughts
go back in the current turn.
"""

_AT_SERVERS: Final[Sequence[tuple[str, Family]]] = (
    ("deepseek", _DEEPSEEK),
    # https://github.com/continuedev/continue/pull/11806 quotes the error.
    ("kimi|moonshot", Family("moonshot", Return.CALLS, text_field="reasoning_content")),
    # https://ai.google.dev/gemini-api/docs/thought-signatures defines the value for calls of other
    # models. Gemini 2.5 and older models require no signature.
    (
        r"gemini(?!-[12]\b)",
        Family(
            "gemini",
            Return.CALLS,
            call_fields={
                "extra_content": {
                    "google": {"thought_signature": "skip_thought_signature_validator"}
                }
            },
        ),
    ),
    (r"gemini|googleapis\.com", Family("gemini", Return.CALLS)),
    (r"openrouter\.ai", Family("openrouter", Return.CALLS)),
    # The reasoning items of OpenAI's Responses API belong to the current turn:
    # https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context.
    (r"\bopenai\.com|azure\.com", Family("openai")),
)
"""The families of servers with OpenAI's API, by the model and the server's host. Any other server
is a family of its own, which receives its fields again with all calls.
"""

_OPENAI: Final = "https://api.openai.com/v1"


def family_of(chat: BaseChatModel) -> Family:
    """Return the family of a chat model: of its client's package, or of its server and model."""
    model = getattr(chat, "model_name", None) or getattr(chat, "model", None) or ""
    return _find_family(type(chat), str(model), getattr(chat, "openai_api_base", None) or _OPENAI)


@lru_cache(64)
def _find_family(kind: type[BaseChatModel], model: str, address: str) -> Family:
    packages = [each.__module__.partition(".")[0] for each in kind.__mro__]
    package = next((one for one in packages if one.startswith("langchain_")), "langchain_core")
    if package == "langchain_core":
        found = Family(kind.__name__)
    elif package == "langchain_openai":
        server = urlsplit(address).netloc
        called = f"{model} {server}".casefold()
        known = (family for words, family in _AT_SERVERS if re.search(words, called))
        found = next(known, Family(server, Return.CALLS))
    else:
        found = _NATIVE.get(package) or Family(package.removeprefix("langchain_"))
    # A model refuses the signatures of other models, even of the same provider:
    # https://github.com/anthropics/anthropic-sdk-python/issues/1598. It can read their texts.
    return found if found.text_field else found._replace(name=f"{found.name} {model}")


def messages_with_fields(
    chat: BaseChatModel, prompt: Sequence[BaseMessage]
) -> list[dict[str, Any]] | None:
    """Return a prompt in OpenAI's form with opaque fields, if the client leaves these out.

    LangChain's clients derived from `BaseChatOpenAI`, such as `ChatDeepSeek`, read opaque fields
    and do not send them.
    """
    names = {each.__name__ for each in type(chat).__mro__}
    if "BaseChatOpenAI" not in names or hasattr(chat, "limit_name"):
        return None
    if not any(message.additional_kwargs.keys() & {*OPAQUE, CALL_FIELDS} for message in prompt):
        return None
    payload = chat._get_request_payload([*prompt])  # type: ignore[attr-defined]
    if "messages" not in payload:
        return None
    return [add_fields(sent, one) for sent, one in zip(payload["messages"], prompt, strict=True)]


def prepare_prompt(prompt: Sequence[BaseMessage], family: Family) -> Sequence[BaseMessage]:
    """Return a prompt with the opaque fields that a family requires, and no others.

    It is the same object if nothing changes.
    """
    needs_nothing = not (family.text_field or family.call_fields)
    # A comprehension, since this looks at each message of the history in each call.
    if needs_nothing and not [one for one in prompt if THOUGHT in one.additional_kwargs]:
        return prompt
    start, is_called = _start_of_turn(prompt), any(map(_has_calls, prompt))
    return [
        _prepare(message, family, is_current=place >= start, is_called=is_called)
        if isinstance(message, AIMessage)
        else message
        for place, message in enumerate(prompt)
    ]


def drop_thoughts(prompt: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return a prompt without opaque fields."""
    return prepare_prompt(prompt, Family(""))


def lacks_thought(prompt: Sequence[BaseMessage]) -> bool:
    """Return whether the model replies to calls without a thought in their content."""
    if _start_of_turn(prompt) == len(prompt):
        return False
    last = next(message for message in reversed(prompt) if isinstance(message, AIMessage))
    first = last.content[0] if isinstance(last.content, list) and last.content else None
    return not isinstance(first, dict) or first.get("type") not in ("thinking", "redacted_thinking")


def _has_calls(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls or message.invalid_tool_calls)


def _start_of_turn(prompt: Sequence[BaseMessage]) -> int:
    """Return the index of the first message of the turn in which the last message has calls.

    The prompt's length if the model's last message has no calls.
    """
    own = [place for place, one in enumerate(prompt) if isinstance(one, AIMessage)]
    if not own or not _has_calls(prompt[own[-1]]):
        return len(prompt)
    heard = (place for place, one in enumerate(prompt[: own[-1]]) if isinstance(one, HumanMessage))
    return max(heard, default=-1) + 1


def _prepare(message: AIMessage, family: Family, *, is_current: bool, is_called: bool) -> AIMessage:
    thought: Thought | None = message.additional_kwargs.get(THOUGHT)
    if thought is not None:
        message = message.model_copy(update={"additional_kwargs": {}})
        if _is_of(thought, family):
            is_due = {
                Return.CURRENT_TURN: is_current,
                Return.CALLS: is_current or _has_calls(message),
                Return.ONCE_CALLED: is_called,
            }[family.returns]
            given = thought.given or Reasoning()
            if not is_due:
                given = Reasoning(text=given.text)
            elif family.text_field and thought.text:
                fields = {family.text_field: thought.text, **given.fields}
                given = given.model_copy(update={"fields": fields})
            if not is_current:
                # A thought inside the text belongs to the current turn for all models.
                given = given.model_copy(update={"text": None})
            message = add_thought(message, thought.model_copy(update={"given": given}))
    return _fill(message, family, is_called=is_called)


def _is_of(thought: Thought, family: Family) -> bool:
    """Return whether a family made a thought. Older logs name the provider only with blocks."""
    if thought.family is not None:
        return thought.family == family.name
    provider = thought.given.metadata.get("model_provider") if thought.given else None
    return provider is None or provider == family.name.partition(" ")[0]


def _fill(message: AIMessage, family: Family, *, is_called: bool) -> AIMessage:
    """Return a message with the fields that a family requires of messages of other models."""
    extra, calls = message.additional_kwargs, message.tool_calls
    new: dict[str, Any] = {}
    needs_text = bool(calls) or (is_called and family.returns is Return.ONCE_CALLED)
    if family.text_field and needs_text and not any(map(extra.get, _TEXT_FIELDS)):
        names = ", ".join(call["name"] for call in calls)
        new[family.text_field] = f"I call {names}." if calls else "I answer."
    if family.call_fields and calls:
        known, first = extra.get(CALL_FIELDS) or {}, str(calls[0]["id"])
        new[CALL_FIELDS] = {first: family.call_fields, **known}
    return message.model_copy(update={"additional_kwargs": extra | new}) if new else message


_TEXT_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")


def add_fields(sent: dict[str, Any], message: BaseMessage) -> dict[str, Any]:
    """Return a message in OpenAI's form with its opaque fields, which `ChatOpenAI` leaves out."""
    extra = message.additional_kwargs
    fields = {name: extra[name] for name in OPAQUE if extra.get(name)}
    if isinstance(parts := sent.get("content"), list):
        # OpenAI's API refuses the blocks of other providers.
        kept = [part for part in parts if part.get("type") not in THOUGHTS]
        sent = {**sent, "content": kept}
    if own := fields.pop(PARTS, None):
        spoken = [{"type": "text", "text": message.text}] if message.text else []
        sent = {**sent, "content": [*own, *spoken]}
    if known := extra.get(CALL_FIELDS):
        calls = [call | known.get(call["id"], {}) for call in sent.get("tool_calls") or ()]
        sent = {**sent, "tool_calls": calls}
    return {**sent, **fields}
