"""A fake of DeepSeek's chat completions."""

from typing import Any, ClassVar, Final

from duologue.nodes.testing import Reply

from .base import OpenAILikeServer, ProviderRequest, RefusedRequestError
from .openai_rules import check_ranges, check_tool_results

_GUIDE: Final = "https://api-docs.deepseek.com/guides/thinking_mode"
_CODE: Final = "invalid_request_error"

# https://github.com/agno-agi/agno/issues/3105 and https://github.com/qwersyk/Newelle/issues/425
_UNASKED: Final = (
    "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
)
_UNANSWERED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. (insufficient tool messages following tool_calls message)"
)


class DeepSeek(OpenAILikeServer):
    """DeepSeek's API, whose models think by default.

    Sampling parameters have no effect while a model thinks, and are accepted: guides/thinking_mode.
    """

    path = "/chat/completions"
    models: ClassVar[tuple[str, ...]] = (
        "deepseek-chat",
        "deepseek-reasoner",
        "deepseek-v4-flash",
    )
    reasoning_field = "reasoning_content"

    @property
    def url(self) -> str:
        """The base URL, which has no version."""
        return self.origin

    def check_body(self, body: dict[str, Any]) -> None:
        """Check the types, the order, and the thoughts that must come back."""
        _check_types(body)
        if body["model"] not in self.models:
            # https://api-docs.deepseek.com/quick_start/error_codes
            raise RefusedRequestError("Model Not Exist", code=_CODE)
        check_ranges(body, (("temperature", 0, 2), ("top_p", 0, 1), ("max_tokens", 1, None)))
        check_tool_results(body, _UNASKED, _UNANSWERED, _CODE)
        self.check_thinking(body)

    def check_thinking(self, body: dict[str, Any]) -> None:
        """Refuse fields that thinking excludes, and calls without the thoughts before them."""
        if not _thinks(body):
            return
        choice = body.get("tool_choice")
        if isinstance(choice, dict) or choice == "required":
            # https://github.com/shareAI-lab/Kode-CLI/pull/182
            raise RefusedRequestError("Thinking mode does not support this tool_choice", code=_CODE)
        is_called = False
        for index, message in enumerate(body["messages"]):
            is_called |= bool(message.get("tool_calls"))
            if message["role"] == "user":
                is_called = False
            # The answer after the calls of a turn needs its thought, too: guides/thinking_mode. A
            # blank one is refused: https://github.com/BerriAI/litellm/pull/28057.
            if is_called and message["role"] == "assistant" and not _has_thought(message):
                # https://github.com/abhigyanpatwari/GitNexus/issues/43
                raise RefusedRequestError(
                    "Missing `reasoning_content` field in the assistant message at message index "
                    f"{index}. For more information, please refer to {_GUIDE}#tool-calls",
                    code=_CODE,
                )

    def adapt_reply(self, reply: Reply, request: ProviderRequest, number: int) -> Reply:
        """Leave the thoughts away if the model does not think."""
        if not _thinks(request.body):
            reply = reply.model_copy(update={"reasoning": ""})
        return super().adapt_reply(reply, request, number)


def _has_thought(message: dict[str, Any]) -> bool:
    return bool(message.get("reasoning_content"))


def _thinks(body: dict[str, Any]) -> bool:
    kind = (body.get("thinking") or {}).get("type")
    if kind is not None:
        return bool(kind == "enabled")
    return str(body["model"]) != "deepseek-chat"


def _check_types(body: dict[str, Any]) -> None:
    """Refuse types that DeepSeek's reader, serde, can't read.

    https://github.com/tailcallhq/forgecode/issues/2008,
    https://github.com/browser-use/browser-use/pull/215 and
    https://github.com/crazyyanchao/llmcompiler/issues/1
    """
    for name in ("model", "messages"):
        if name not in body:
            _refuse_reading(f"missing field `{name}`")
    for name, kind in (("temperature", "f32"), ("top_p", "f32"), ("max_tokens", "u32")):
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            _refuse_reading(f'{name}: invalid type: string "{value}", expected {kind}')
    form = body.get("response_format")
    if form and form["type"] not in ("text", "json_object"):
        _refuse_reading(
            f"response_format: response_format.type `{form['type']}` is unavailable now"
        )
    for index, message in enumerate(body["messages"]):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            _refuse_reading(
                f"messages[{index}].role: unknown variant `{message['role']}`, expected one of "
                "`system`, `user`, `assistant`, `tool`"
            )
        if isinstance(message.get("content"), list):
            _refuse_reading(f"messages[{index}]: invalid type: sequence, expected a string")


def _refuse_reading(what: str) -> None:
    raise RefusedRequestError(
        f"Failed to deserialize the JSON body into the target type: {what} at line 1 column 1",
        code=_CODE,
    )
