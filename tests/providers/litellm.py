"""A fake of LiteLLM's proxy, with OpenAI and Together behind it."""

from typing import Any, ClassVar

from duologue.nodes.testing import Script

from .base import OpenAILikeServer, RefusedRequestError
from .openai_families import family_of
from .openai_rules import check_chat_request

_GROUP = ". Received Model Group={model}\nAvailable Model Group Fallbacks=None"


class LiteLLM(OpenAILikeServer):
    """LiteLLM's proxy.

    Args:
        script: The model's replies.
        drop_params: Whether it drops parameters that a model does not accept instead of refusing
            them.
    """

    models = ("gpt-5", "gpt-4.1-mini", "together_ai/llama")
    unsupported: ClassVar[dict[str, tuple[str, ...]]] = {"together_ai/llama": ("response_format",)}
    reasoning_field = "reasoning_content"

    def __init__(self, script: Script, *, drop_params: bool = False, **options: Any) -> None:
        super().__init__(script, **options)
        self._drop_params = drop_params

    def check_body(self, body: dict[str, Any]) -> None:
        """Check the parameters as LiteLLM maps them, then the rest as the provider does."""
        model = body.get("model")
        if model not in self.models:
            # https://docs.litellm.ai/docs/exception_mapping
            raise RefusedRequestError(
                "/chat/completions: Invalid model name passed in model=" + str(model) + ". Call "
                "`/v1/models` to view available models for your key.",
                code="400",
            )
        if not self._drop_params:
            _check_unsupported(body)
        try:
            # Other fields are passed on to the provider: litellm issue 10791.
            check_chat_request(_as_sent(body), model)
        except RefusedRequestError as error:
            raise RefusedRequestError(
                f"litellm.BadRequestError: OpenAIException - {error.message}"
                + _GROUP.format(model=model)
            ) from None

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in LiteLLM's form, whose fields are strings.

        https://github.com/anthropics/claude-code/issues/8756
        """
        code = str(error.status)
        fields = {"type": "None", "param": "None", "code": code}
        return {"error": {"message": error.message, **fields}}


def _check_unsupported(body: dict[str, Any]) -> None:
    """Refuse parameters that the model does not accept, as far as LiteLLM knows.

    litellm/llms/openai/chat/gpt_5_transformation.py and litellm/utils.py;
    https://github.com/Vivswan/litellm-vscode-chat/issues/18 and
    https://github.com/BerriAI/litellm/issues/8278 quote the errors.
    """
    model = body["model"]
    family = family_of(model)
    if family.pattern == r"gpt-5(?!\.)" and body.get("temperature") not in (None, 1):
        raise RefusedRequestError(
            "litellm.UnsupportedParamsError: gpt-5 models (including gpt-5-codex) don't support "
            f"temperature={body['temperature']}. Only temperature=1 is supported. For gpt-5.1, "
            "temperature is supported when reasoning_effort='none' (or not specified, as it "
            "defaults to 'none'). To drop unsupported params set `litellm.drop_params = True`"
            + _GROUP.format(model=model)
        )
    sampling = {rule.name for rule in (*family.refused, *family.sampling)} - {"max_tokens"}
    unsupported = {*sampling, *LiteLLM.unsupported.get(model, ())} - {"temperature"}
    wrong = [name for name in body if name in unsupported and body[name] is not None]
    if wrong:
        provider = "openai" if "/" not in model else model.partition("/")[0]
        raise RefusedRequestError(
            f"litellm.UnsupportedParamsError: {provider} does not support parameters: {wrong}, for "
            f"model={model.rpartition('/')[2]}. To drop these, set `litellm.drop_params=True` or "
            "for proxy:\n\n`litellm_settings:\n drop_params: true`\n. \n If you want to use these "
            f"params dynamically send allowed_openai_params={wrong} in your request."
            + _GROUP.format(model=model)
        )


def _as_sent(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body that LiteLLM sends to OpenAI: limit renamed, refused parameters dropped."""
    family = family_of(body["model"])
    refused = {rule.name for rule in (*family.refused, *family.sampling)}
    sent = {name: value for name, value in body.items() if name not in refused}
    if "max_tokens" in body:
        sent["max_completion_tokens"] = body["max_tokens"]
    return sent
