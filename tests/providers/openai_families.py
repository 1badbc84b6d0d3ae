"""The parameters that OpenAI's model families refuse, and the error of a refusal.

A model's name determines its family. All fakes that serve OpenAI's models read the same tables, so
each rule is declared once, with the page that documents it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .base import RefusedRequestError

_REASONING: Final = "https://platform.openai.com/docs/guides/reasoning"
_ISSUES: Final = "https://github.com/"


@dataclass(frozen=True)
class ParameterRule:
    """A parameter that a family of models refuses.

    Attributes:
        name: The parameter's name in Chat Completions.
        source: The address of a page that documents the refusal.
        only: The one value that is accepted. None if no value is accepted.
        instead: The parameter to use instead. None if there is none.
        is_value: Whether the error says that the value, not the parameter, is unsupported.
        is_unknown: Whether the error says that the parameter is unknown.
    """

    name: str
    source: str
    only: float | None = None
    instead: str | None = None
    is_value: bool = False
    is_unknown: bool = False

    def refusal(self, value: object) -> RefusedRequestError | None:
        """Return the error for this value of the parameter, or None if it is accepted."""
        if value is None or (self.only is not None and value == self.only):
            return None
        if self.is_unknown:
            return RefusedRequestError(f"Unrecognized request argument supplied: {self.name}")
        if self.is_value:
            return RefusedRequestError(
                f"Unsupported value: '{self.name}' does not support {value} with this model. "
                f"Only the default ({self.only:g}) value is supported.",
                code="unsupported_value",
            )
        hint = f" Use '{self.instead}' instead." if self.instead else ""
        return RefusedRequestError(
            f"Unsupported parameter: '{self.name}' is not supported with this model.{hint}",
            code="unsupported_parameter",
        )


@dataclass(frozen=True)
class ModelFamily:
    """The models whose names match a pattern, and the parameters that they refuse.

    Attributes:
        name: The family's name.
        pattern: A pattern for the beginning of the models' names.
        refused: The parameters that are always refused.
        sampling: The parameters that are refused unless the reasoning effort is `none`.
        default_effort: The reasoning effort of a request that sets none. None if the family does
            not reason.
        tools_need_no_effort: The rule for function tools in Chat Completions together with
            reasoning. `"unless_set"` refuses tools if the request sets an effort, `"always"` also
            refuses them with the default effort. None if tools are always accepted.
    """

    name: str
    pattern: re.Pattern[str]
    refused: tuple[ParameterRule, ...]
    sampling: tuple[ParameterRule, ...] = ()
    default_effort: str | None = None
    tools_need_no_effort: str | None = None

    def refusal(self, body: Mapping[str, Any]) -> RefusedRequestError | None:
        """Return the error for a body of Chat Completions, or None if no parameter is refused."""
        effort = body.get("reasoning_effort")
        rules = self.refused
        if (effort or self.default_effort) != "none":
            rules += self.sampling
        for rule in rules:
            if (error := rule.refusal(body.get(rule.name))) is not None:
                return error
        reasons = effort not in (None, "none")
        if self.tools_need_no_effort == "always":
            reasons = effort != "none"
        if self.tools_need_no_effort and reasons and body.get("tools"):
            # https://github.com/pipecat-ai/pipecat/issues/4043 (gpt-5.4, an effort that is set) and
            # https://github.com/BerriAI/litellm/pull/34569 (gpt-5.6, the default, too).
            remedy = "Please use /v1/responses instead."
            if self.tools_need_no_effort == "always":
                remedy = (
                    "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
                )
            return RefusedRequestError(
                f"Function tools with reasoning_effort are not supported for {body['model']} in "
                f"/v1/chat/completions. {remedy}",
            )
        return None


_MAX_TOKENS: Final = ParameterRule(
    "max_tokens", f"{_ISSUES}tailcallhq/forgecode/issues/1081", instead="max_completion_tokens"
)
_TEMPERATURE: Final = ParameterRule(
    "temperature", f"{_ISSUES}QwenLM/qwen-code/issues/921", only=1, is_value=True
)
_STOP: Final = ParameterRule("stop", f"{_ISSUES}crewAIInc/crewAI/issues/2738")
_SAMPLING: Final = (
    _TEMPERATURE,
    ParameterRule("top_p", f"{_ISSUES}chatboxai/chatbox/issues/2627", only=1),
    ParameterRule("logprobs", f"{_REASONING}#limitations"),
    ParameterRule("top_logprobs", f"{_REASONING}#limitations"),
)
_PENALTIES: Final = (
    ParameterRule(
        "presence_penalty", f"{_ISSUES}nextai-translator/nextai-translator/issues/1781", only=0
    ),
    ParameterRule("frequency_penalty", f"{_REASONING}#limitations", only=0),
    ParameterRule("logit_bias", f"{_REASONING}#limitations"),
)
_ALWAYS: Final = (_MAX_TOKENS, *_PENALTIES)
_O_MODELS: Final = (
    *_ALWAYS,
    *_SAMPLING,
    ParameterRule("parallel_tool_calls", f"{_ISSUES}evalstate/fast-agent/issues/279"),
)

FAMILIES: Final = (
    # openai-openapi, StopConfiguration: `stop` is refused by o3 and o4-mini, not by older models.
    ModelFamily("o1", re.compile(r"o1|o3-mini"), _O_MODELS, default_effort="medium"),
    ModelFamily("o3", re.compile(r"o3|o4"), (*_O_MODELS, _STOP), default_effort="medium"),
    # The name belongs to a chat model: https://github.com/BerriAI/litellm/issues/13781
    ModelFamily("gpt-5-chat", re.compile(r"gpt-5(\.\d+)?-chat"), (_MAX_TOKENS,)),
    ModelFamily(
        "gpt-5", re.compile(r"gpt-5(?!\.)"), (*_ALWAYS, _STOP), _SAMPLING, default_effort="medium"
    ),
    # Sampling parameters are accepted without reasoning, which is these models' default:
    # https://github.com/vercel/ai/issues/10932 and gpt_5_transformation.py of
    # github.com/BerriAI/litellm
    ModelFamily(
        "gpt-5.1",
        re.compile(r"gpt-5\.[123](?!\d)"),
        (*_ALWAYS, _STOP),
        _SAMPLING,
        default_effort="none",
    ),
    ModelFamily(
        "gpt-5.4",
        re.compile(r"gpt-5\.4(?!\d)"),
        (*_ALWAYS, _STOP),
        _SAMPLING,
        default_effort="none",
        tools_need_no_effort="unless_set",
    ),
    # `stop` is accepted: https://github.com/BerriAI/litellm/pull/28650. The default effort is from
    # openai-openapi, ReasoningEffort.
    ModelFamily(
        "gpt-5.5",
        re.compile(r"gpt-5\.5(?!\d)"),
        _ALWAYS,
        _SAMPLING,
        default_effort="medium",
        tools_need_no_effort="unless_set",
    ),
    # Reasoning is on unless it is turned off: https://github.com/BerriAI/litellm/pull/34569
    ModelFamily(
        "gpt-5.6",
        re.compile(r"gpt-(5\.\d|[6-9])"),
        _ALWAYS,
        _SAMPLING,
        default_effort="medium",
        tools_need_no_effort="always",
    ),
    ModelFamily(
        "chat",
        re.compile(""),
        (
            ParameterRule(
                "reasoning_effort",
                f"{_ISSUES}davidmigloz/langchain_dart/issues/712",
                is_unknown=True,
            ),
        ),
    ),
)
"""The families, in order of precedence: the first that matches a model's name applies. The last
matches any name.
"""


def family_of(model: str) -> ModelFamily:
    """Return the family that a model's name belongs to."""
    return next(family for family in FAMILIES if family.pattern.match(model))
