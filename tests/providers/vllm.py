"""A fake of vLLM's OpenAI-compatible server.

It accepts unknown fields, and ignores them with a warning: vllm-project/vllm,
vllm/entrypoints/openai/engine/protocol.py, `OpenAIBaseModel`.
"""

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duologue.nodes.testing import Script

from .base import OpenAILikeServer, RefusedRequestError, fields_of, words_of

_CONTEXT: Final = 4096


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Message(_Open):
    role: str
    content: str | list[dict[str, Any]] | None = None


class _FunctionDefinition(_Open):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(_Open):
    type: Literal["function"] = "function"
    function: _FunctionDefinition


class _ResponseFormat(_Open):
    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: dict[str, Any] | None = None


class _ChatCompletionRequest(_Open):
    """The fields of vllm/entrypoints/openai/chat_completion/protocol.py that matter here."""

    messages: list[_Message]
    model: str | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    presence_penalty: float | None = None
    response_format: _ResponseFormat | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = "none"
    parallel_tool_calls: bool | None = True
    structured_outputs: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Vllm(OpenAILikeServer):
    """vLLM's server.

    Args:
        script: The model's replies.
        has_tool_parser: Whether it was started with `--enable-auto-tool-choice`.
        alternates: Whether the model's chat template wants user and assistant in turn. Mistral's
            ``"without calls"`` does not count messages with calls.
    """

    models = ("Qwen/Qwen3-8B",)
    reasoning_field = "reasoning"

    def __init__(
        self,
        script: Script,
        *,
        has_tool_parser: bool = True,
        alternates: bool | Literal["without calls"] = False,
        **options: Any,
    ) -> None:
        super().__init__(script, **options)
        self._has_tool_parser = has_tool_parser
        self._alternates = alternates

    def check_body(self, body: dict[str, Any]) -> None:
        """Check the types as pydantic does, then as the server and its sampling do."""
        try:
            _ChatCompletionRequest.model_validate(body)
        except ValidationError as error:
            # vllm/entrypoints/openai/server_utils.py, the handler of RequestValidationError.
            faults = error.errors(include_url=False, include_context=False)
            lines = [{**fault, "loc": ("body", *fault["loc"])} for fault in faults]
            raise RefusedRequestError(str(lines), code="Bad Request") from None
        if body.get("model") not in (None, *self.models):
            raise RefusedRequestError(
                f"The model `{body['model']}` does not exist.", code="NotFoundError", status=404
            )
        self._check_tools(body)
        _check_sampling(body)
        _check_length(body)
        if self._alternates:
            turns = [
                one
                for one in body["messages"]
                if self._alternates is True or not one.get("tool_calls")
            ]
            _check_alternation(turns)

    def _check_tools(self, body: dict[str, Any]) -> None:
        # vllm/entrypoints/openai/chat_completion/protocol.py, check_tool_usage;
        # https://github.com/vllm-project/vllm/issues/9986
        choice = body.get("tool_choice", "auto" if body.get("tools") else "none")
        if choice not in ("none", None) and not body.get("tools"):
            raise RefusedRequestError("When using `tool_choice`, `tools` must be set.")
        if choice == "auto" and not self._has_tool_parser:
            raise RefusedRequestError(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to '
                "be set"
            )

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in vLLM's form, whose code is the HTTP status."""
        kind = error.code or "BadRequestError"
        return {"error": {**fields_of(error), "type": kind, "code": error.status}}


def _check_sampling(body: dict[str, Any]) -> None:
    """Refuse numbers out of range: vllm/sampling_params.py, `_verify_args`."""
    temperature, top_p = body.get("temperature"), body.get("top_p")
    if temperature is not None and temperature < 0:
        raise RefusedRequestError(f"temperature must be non-negative, got {temperature}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise RefusedRequestError(f"top_p must be in (0, 1], got {top_p}.")
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    if most is not None and most < 1:
        # https://github.com/vllm-project/vllm/issues/4667
        raise RefusedRequestError(f"max_tokens must be at least 1, got {most}.")
    kinds = [k for k in ("json", "regex", "choice", "grammar") if k in _constraints(body)]
    if len(kinds) > 1:
        raise RefusedRequestError(
            "You can only use one kind of structured outputs constraint but multiple are "
            f"specified: {json.dumps(_constraints(body))}"
        )


def _constraints(body: dict[str, Any]) -> dict[str, Any]:
    return body.get("structured_outputs") or {}


def _check_length(body: dict[str, Any]) -> None:
    # https://github.com/vllm-project/vllm/issues/20409
    most = body.get("max_completion_tokens", body.get("max_tokens")) or 0
    asked = words_of([{**each, "content": each.get("content") or ""} for each in body["messages"]])
    if asked + most > _CONTEXT:
        raise RefusedRequestError(
            f"This model's maximum context length is {_CONTEXT} tokens. However, you requested "
            f"{asked + most} tokens ({asked} in the messages, {most} in the completion). Please "
            "reduce the length of the messages or completion."
        )


def _check_alternation(messages: list[dict[str, Any]]) -> None:
    """Refuse two turns of one role, as chat templates of Llama 2, Gemma and Mistral do.

    https://github.com/infiniflow/ragflow/pull/6880; Mistral's template for parallel calls:
    vllm-project/vllm, examples/tool_chat_template_mistral_parallel.jinja.
    """
    turns = [each["role"] for each in messages if each["role"] in ("user", "assistant")]
    wanted = ["user", "assistant"] * len(turns)
    if turns != wanted[: len(turns)]:
        raise RefusedRequestError(
            "Conversation roles must alternate user/assistant/user/assistant/..."
        )
