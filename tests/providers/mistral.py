"""A fake of Mistral's chat completions."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duologue.nodes.testing import Reply

from .base import OpenAILikeServer, ProviderRequest, RefusedRequestError, make_event

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")


class _Closed(BaseModel):
    # https://github.com/Vali-98/ChatterUI/issues/143 and
    # https://github.com/editor-code-assistant/eca/issues/231 quote the refusal of other fields.
    model_config = ConfigDict(extra="forbid")


# The fields are those of the client's types: github.com/mistralai/client-python,
# src/mistralai/models/chatcompletionrequest.py and related files.


class _Function(_Closed):
    name: str
    description: str = ""
    strict: bool = False
    parameters: dict[str, Any]


class _Tool(_Closed):
    type: Literal["function"] = "function"
    function: _Function


class _FunctionCall(_Closed):
    name: str
    arguments: dict[str, Any] | str


class _ToolCall(_Closed):
    id: str = "null"
    type: str | None = None
    index: int = 0
    function: _FunctionCall


class _Part(BaseModel):
    type: str


_Content = str | list[_Part]


class _System(_Closed):
    role: Literal["system"]
    content: _Content


class _User(_Closed):
    role: Literal["user"]
    content: _Content | None


class _Assistant(_Closed):
    role: Literal["assistant"]
    content: _Content | None = None
    tool_calls: list[_ToolCall] | None = None
    prefix: bool = False


class _ToolMessage(_Closed):
    role: Literal["tool"]
    content: _Content | None
    tool_call_id: str | None = None
    name: str | None = None


class _JsonSchema(_Closed):
    name: str
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool = False


class _ResponseFormat(_Closed):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: _JsonSchema | None = None


class _FunctionName(_Closed):
    name: str


class _ToolChoice(_Closed):
    type: Literal["function"] = "function"
    function: _FunctionName


class _ChatCompletionRequest(_Closed):
    model: str
    messages: list[
        Annotated[_System | _User | _Assistant | _ToolMessage, Field(discriminator="role")]
    ]
    temperature: Annotated[float, Field(ge=0, le=1.5)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] = 1
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stream: bool = False
    stop: str | list[str] | None = None
    random_seed: Annotated[int, Field(ge=0)] | None = None
    metadata: dict[str, Any] | None = None
    response_format: _ResponseFormat | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["auto", "none", "any", "required"] | _ToolChoice | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0
    n: int | None = None
    prediction: dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    prompt_mode: Literal["reasoning"] | None = None
    reasoning_effort: Literal["none", "high"] | None = None
    safe_prompt: bool = False


class Mistral(OpenAILikeServer):
    """Mistral's API."""

    models = ("mistral-small-latest", "magistral-small-latest")
    reasoning_field = "reasoning"
    always_sends_usage = True

    def check_body(self, body: dict[str, Any]) -> None:
        """Check the types as pydantic does, then the order of the messages."""
        try:
            _ChatCompletionRequest.model_validate(body)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False)
            detail = [{**fault, "loc": ["body", *fault["loc"]]} for fault in faults]
            raise _UnprocessableError(detail) from None
        if body["model"] not in self.models:
            # https://docs.mistral.ai/api
            raise RefusedRequestError(f"Invalid model: {body['model']}", code="1500")
        _check_calls(body["messages"])
        _check_order(body["messages"])

    def render_answer(self, reply: Reply, request: ProviderRequest, number: int) -> object:
        """Return a completion, whose content is a list if the model thinks."""
        made: Any = super().render_answer(reply, request, number)
        message = made["choices"][0]["message"]
        message.pop("refusal", None)
        message.pop("reasoning", None)
        message["content"] = message["content"] or ""
        if reply.reasoning and _thinks(request):
            message["content"] = [_thought(reply.reasoning), {"type": "text", "text": reply.text}]
        return made

    def stream_answer(self, reply: Reply, request: ProviderRequest, number: int) -> Iterator[bytes]:
        """Yield a stream of chunks. A call comes whole, in one chunk."""
        base = {"id": f"cmpl-{number}", "object": "chat.completion.chunk", "created": 0}
        base["model"] = request.model

        def chunk(delta: dict[str, Any], ending: str | None = None, **more: Any) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": ending}
            return make_event({**base, "choices": [choice], **more})

        yield chunk({"role": "assistant", "content": ""})
        if reply.reasoning and _thinks(request):
            yield chunk({"content": [_thought(reply.reasoning)]})
        pieces = reply.pieces
        for piece in pieces[: len(pieces) // 2] if reply.error == "drop" else pieces:
            yield chunk({"content": piece})
        if reply.error == "drop":
            return
        whole: Any = self.render_answer(reply, request, number)
        calls = whole["choices"][0]["message"].get("tool_calls")
        last = {"content": "", **({"tool_calls": calls} if calls else {})}
        yield chunk(last, reply.ending, usage=whole["usage"])
        yield b"data: [DONE]\n\n"

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in Mistral's form."""
        message: object = error.message
        if isinstance(error, _UnprocessableError):
            message = {"detail": error.detail}
        order = {"3230": "invalid_request_message_order", "3280": "invalid_function_call"}
        kind = order.get(error.code or "", "invalid_request_error")
        return {
            "object": "error",
            "message": message,
            "type": kind,
            "param": None,
            "code": error.code,
        }


class _UnprocessableError(RefusedRequestError):
    """A body with wrong fields."""

    def __init__(self, detail: list[Any]) -> None:
        super().__init__(str(detail), status=422)
        self.detail = detail


def _thinks(request: ProviderRequest) -> bool:
    return request.model.startswith("magistral")


def _thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _check_calls(messages: list[dict[str, Any]]) -> None:
    """Refuse an id that is not of nine letters and digits.

    https://github.com/nearai/ironclaw/issues/1241
    """
    for message in messages:
        ids = [call.get("id", "null") for call in message.get("tool_calls") or ()]
        for each in [*ids, message.get("tool_call_id")]:
            if each is not None and not _CALL_ID.fullmatch(each):
                raise RefusedRequestError(
                    f"Tool call id was {each} but must be a-z, A-Z, 0-9, with a length of 9.",
                    code="3280",
                )


def _check_order(messages: list[dict[str, Any]]) -> None:
    """Refuse messages in a wrong order, and calls without results.

    https://github.com/avante-corp/avante.nvim/pull/2695, https://github.com/zed-industries/zed
    /issues/37021 and https://github.com/mistralai/client-python/issues/234; mistralai
    /mistral-common, src/mistral_common/protocol/instruct/validator.py.
    """
    owed, before = 0, None
    for message in messages:
        role = message["role"]
        if role == "assistant" and not (message.get("content") or message.get("tool_calls")):
            raise RefusedRequestError(
                "Assistant message must have either content or tool_calls, but not both."
            )
        may_follow = {
            "tool": ("assistant", "tool") if owed else (),
            "user": (None, "system", "user", "assistant"),
            "assistant": (None, "system", "user", "assistant", "tool"),
            "system": (None, "system", "user", "assistant"),
        }
        if role == "assistant" and owed:
            raise RefusedRequestError(
                "Not the same number of function calls and responses", code="3230"
            )
        if before not in may_follow[role]:
            raise RefusedRequestError(
                f"Unexpected role '{role}' after role '{before}'", code="3230"
            )
        if role == "tool":
            owed -= 1
        elif role == "assistant":
            owed = len(message.get("tool_calls") or ())
        before = role
    if owed:
        raise RefusedRequestError(
            "Not the same number of function calls and responses", code="3230"
        )
    if before not in ("user", "tool") and not messages[-1].get("prefix"):
        # https://github.com/NEKOparapa/AiNiee/issues/641
        raise RefusedRequestError(
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
            f"{before}"
        )
