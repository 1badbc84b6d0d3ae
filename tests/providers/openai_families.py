"""The parameters that OpenAI's model families refuse, and the error of a refusal.

A model's name determines its family. All fakes that serve OpenAI's models read the same tables, so
each rule is declared once, with the page that documents it.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .base import RefusedRequestError


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
        pattern: A pattern for the beginning of the models' names.
        refused: The parameters that are always refused.
        sampling: The parameters that are refused unless the reasoning effort is `none`.
        default_effort: The reasoning effort of a request that sets none. None if the family does
            not reason.
        tools_need_no_effort: The rule for function tools in Chat Completions together with
            reasoning. `"unless_set"` refuses tools if the request sets an effort, `"always"` also
            refuses them with the default effort. None if tools are always accepted.
    """

    pattern: str
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


_DATA: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _rules(names: Iterable[str] = ()) -> tuple[ParameterRule, ...]:
    """Return the rules of parameters and of groups of parameters."""
    each = (one for name in names for one in _DATA["groups"].get(name, [name]))
    return tuple(ParameterRule(name, **_DATA["rules"][name]) for name in each)


_FAMILIES: Final = [
    ModelFamily(
        **{
            **family,
            "refused": _rules(family["refused"]),
            "sampling": _rules(family.get("sampling", ())),
        }
    )
    for family in _DATA["families"]
]
"""The families, in order of precedence: the first that matches a model's name applies. The last
matches any name.
"""


def family_of(model: str) -> ModelFamily:
    """Return the family that a model's name belongs to."""
    return next(family for family in _FAMILIES if re.match(family.pattern, model))
