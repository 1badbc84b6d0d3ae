"""Rules of Anthropic's Messages API for a request whose types are right."""

import re
from collections.abc import Iterator
from typing import Any, Final

from .base import RefusedRequestError

_THINKING: Final = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
_MOST_TOKENS: Final = {
    # https://platform.claude.com/docs/en/about-claude/models/overview
    "claude-3-haiku-20240307": 4096,
    "claude-sonnet-4-5": 64_000,
}
SIGNATURE: Final = "Y2xhdWRl"
"""The signature of each thought."""

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")

WITHOUT_SAMPLING: Final = re.compile(r"claude-(opus-4-[789]|(opus|sonnet|fable|mythos)-5)")
"""Models that refuse sampling parameters: platform.claude.com, whats-new-claude-4-7, "Sampling
parameters removed"; https://github.com/BoltAI/BoltAI/issues/410 quotes the error."""

ONE_SAMPLER: Final = re.compile(r"claude-(opus-4-[156]|sonnet-4-[56]|haiku-4-5)")
"""Models that refuse `temperature` together with `top_p`:
https://github.com/cloud-apim/otoroshi-llm-extension/issues/140"""

WITHOUT_PREFILL: Final = re.compile(r"claude-((opus|sonnet)-4-[6789]|(opus|sonnet|fable|mythos)-5)")
"""Models that refuse to continue an assistant's message: platform.claude.com,
whats-new-claude-4-6, breaking changes;
https://github.com/agenticloops-ai/agentic-ai-engineering/issues/43 quotes the error."""

TAKES_SYSTEM_TURNS: Final = re.compile(r"claude-(opus-4-[89]|(opus|sonnet|fable|mythos)-5)")
"""Models that accept a system message between others: docs.rs, gproxy_transform,
claude_mid_conv_system, which quotes the error of the others."""


def check_model(body: dict[str, Any]) -> None:
    """Refuse parameters that the model does not take."""
    model = body["model"]
    given = {name: body[name] for name in ("temperature", "top_p") if body.get(name) is not None}
    for name, value in given.items():
        if not 0 <= value <= 1:
            # https://github.com/anthropics/anthropic-sdk-python/issues/893
            raise RefusedRequestError(f"{name}: range: 0..1")
    if WITHOUT_SAMPLING.match(model):
        for name in ("temperature", "top_p", "top_k"):
            # The default of temperature and top_p is accepted.
            if body.get(name) not in (None, 1) or (name == "top_k" and body.get(name) is not None):
                raise RefusedRequestError(f"`{name}` is deprecated for this model.")
    if ONE_SAMPLER.match(model) and len(given) > 1:
        raise RefusedRequestError(
            "`temperature` and `top_p` cannot both be specified for this model. Please use only "
            "one."
        )
    most = _MOST_TOKENS.get(model)
    if most is not None and body["max_tokens"] > most:
        # https://github.com/OpenHands/software-agent-sdk/issues/596
        raise RefusedRequestError(
            f"max_tokens: {body['max_tokens']} > {most}, which is the maximum allowed number of "
            f"output tokens for {model}"
        )


def check_thinking(body: dict[str, Any]) -> None:
    """Refuse fields that extended thinking excludes.

    https://github.com/workglow-dev/libs/pull/746 lists the errors of each.
    """
    thinking = body.get("thinking") or {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return
    budget = thinking.get("budget_tokens")
    if budget is not None and budget < 1024:
        raise RefusedRequestError(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        )
    if budget is not None and body["max_tokens"] <= budget:
        # https://github.com/liuw1535/antigravity2api-nodejs/issues/149
        raise RefusedRequestError(
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
            f"documentation at {_THINKING}#max-tokens-and-context-window-size"
        )
    important = f"{_THINKING}#important-considerations-when-using-extended-thinking"
    if body.get("temperature") not in (None, 1):
        # https://github.com/MartialBE/one-hub/issues/529
        raise RefusedRequestError(
            "`temperature` may only be set to 1 when thinking is enabled. Please consult our "
            f"documentation at {important}"
        )
    if body.get("top_k") is not None:
        # https://github.com/quarkiverse/quarkus-langchain4j/issues/1812
        raise RefusedRequestError(
            "`top_k` must be unset when thinking is enabled. Please consult our documentation at "
            f"{important}"
        )
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        # https://github.com/llm-exe/llm-exe/issues/720
        raise RefusedRequestError("Thinking may not be enabled when tool_choice forces tool use.")
    _check_thought_before_results(body)


def _check_thought_before_results(body: dict[str, Any]) -> None:
    """Refuse a call's result if the message with the call does not begin with a thought.

    https://github.com/zed-industries/zed/pull/33317
    """
    messages = body["messages"]
    content = messages[-1]["content"]
    if isinstance(content, str) or not any(p["type"] == "tool_result" for p in content):
        return
    index = len(messages) - 2
    blocks = messages[index]["content"] if index >= 0 else []
    kind = blocks[0]["type"] if isinstance(blocks, list) and blocks else "text"
    if kind not in ("thinking", "redacted_thinking"):
        raise RefusedRequestError(
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{kind}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` "
            "blocks). We recommend you include thinking blocks from previous turns. To avoid this "
            "requirement, disable `thinking`."
        )


def check_tools(body: dict[str, Any]) -> None:
    """Refuse names of tools, a choice without tools, and an open schema for the answer."""
    names = [tool["name"] for tool in body.get("tools") or ()]
    for index, name in enumerate(names):
        # https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name):
            raise RefusedRequestError(
                f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )
    if len(set(names)) < len(names):
        # https://github.com/danny-avila/LibreChat/issues/13162
        raise RefusedRequestError("tools: Tool names must be unique.")
    form = (body.get("output_config") or {}).get("format")
    if form is not None:
        _check_schema(form["schema"], "output_config.format.schema")
    strict = [tool["input_schema"] for tool in body.get("tools") or () if tool.get("strict")]
    for index, schema in enumerate(strict):
        _check_schema(schema, f"tools.{index}.custom.input_schema")


def _check_schema(schema: dict[str, Any], where: str) -> None:
    """Refuse a schema outside of the subset that Claude can be held to.

    platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations" and
    "Schema complexity limits"
    """
    _check_part(schema, where)
    parts = [*_parts(schema)]
    for each in parts:
        if isinstance(reference := each.get("$ref"), str):
            _check_cycle(schema, reference, (reference,))
    fields = [(part, name) for part in parts for name in part.get("properties", ())]
    optional = [name for part, name in fields if name not in part.get("required", ())]
    unions = [part for part in parts if "anyOf" in part or isinstance(part.get("type"), list)]
    if len(optional) > 24:
        raise RefusedRequestError(f"{where}: Schemas contains too many optional parameters")
    if len(unions) > 16:
        raise RefusedRequestError(f"{where}: Schemas contains too many parameters with union types")


def _parts(schema: object) -> Iterator[dict[str, Any]]:
    """Yield the parts of a schema, without those behind references."""
    if isinstance(schema, list):
        for each in schema:
            yield from _parts(each)
    elif isinstance(schema, dict):
        yield schema
        for key in ("$defs", "properties"):
            for each in schema.get(key, {}).values():
                yield from _parts(each)
        for key in ("items", "anyOf", "allOf"):
            yield from _parts(schema.get(key))


def _check_part(schema: dict[str, Any], where: str) -> None:
    """Refuse objects that allow other fields, values of any kind, and limits of values."""
    for part in _parts(schema):
        if part.get("type") == "object" and part.get("additionalProperties") is not False:
            # https://github.com/veryfront/veryfront-code/pull/3921
            raise RefusedRequestError(
                f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to "
                "false"
            )
        if not {"type", "anyOf", "allOf", "enum", "const", "$ref"} & {*part}:
            # anthropic/lib/_parse/_transform.py in Anthropic's Python client
            raise RefusedRequestError(f"{where}: Schema must have a 'type'")
        for name in ("minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems"):
            if name in part:
                # https://github.com/BerriAI/litellm/pull/21045
                kind = part.get("type")
                raise RefusedRequestError(
                    f"{where}: For '{kind}' type, property '{name}' is not supported"
                )


def _check_cycle(schema: dict[str, Any], reference: str, path: tuple[str, ...]) -> None:
    """Refuse a definition that contains itself.

    https://github.com/egonSchiele/agency-lang/issues/487
    """
    definition = schema["$defs"][reference.removeprefix("#/$defs/")]
    for part in _parts(definition):
        inner = part.get("$ref")
        if inner in path:
            names = " -> ".join(each.removeprefix("#/$defs/") for each in (*path, inner))
            raise RefusedRequestError(
                f"Circular reference detected in schema definitions: {names}. Self-referencing or "
                "mutually-referencing definitions are not supported."
            )
        if inner is not None:
            _check_cycle(schema, inner, (*path, inner))


def check_messages(body: dict[str, Any]) -> None:
    """Refuse messages in a wrong order, without content, or with calls without results."""
    messages = body["messages"]
    if not messages:
        raise RefusedRequestError("messages: at least one message is required")
    for message in messages:
        if message["role"] == "system" and not TAKES_SYSTEM_TURNS.match(body["model"]):
            raise RefusedRequestError("role 'system' is not supported on this model")
    if messages[0]["role"] != "user":
        # https://github.com/lobehub/lobehub/issues/1601. Since 2025 some models answer with
        # nothing instead: https://github.com/anthropics/courses/issues/79
        raise RefusedRequestError('messages: first message must use the "user" role')
    for index, message in enumerate(messages):
        _check_content(index, message, is_last=index == len(messages) - 1)
    _check_results(messages)
    if messages[-1]["role"] == "assistant" and not _is_paused(messages[-1]):
        _check_prefill(body["model"], messages[-1])


def _check_content(index: int, message: dict[str, Any], *, is_last: bool) -> None:
    content = message["content"]
    if not content and not (is_last and message["role"] == "assistant"):
        # https://github.com/anthropics/claude-code/issues/6774
        raise RefusedRequestError(
            f"messages.{index}: all messages must have non-empty content except for the optional "
            "final assistant message"
        )
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if part["type"] == "thinking" and part.get("signature") != SIGNATURE:
            # https://github.com/anthropics/anthropic-sdk-python/issues/1598
            raise RefusedRequestError(
                f"messages.{index}.content.{place}: Invalid `signature` in `thinking` block"
            )
        if part["type"] == "text" and not part["text"]:
            # https://github.com/anthropics/claude-code/issues/59812
            raise RefusedRequestError("messages: text content blocks must be non-empty")
        if part["type"] == "text" and not part["text"].strip():
            # https://github.com/anthropics/claude-code/issues/23369
            raise RefusedRequestError(
                "messages: text content blocks must contain non-whitespace text"
            )
        if part["type"] == "tool_use" and not _ID.fullmatch(part["id"]):
            raise RefusedRequestError(
                f"messages.{index}.content.{place}.tool_use.id: String should match pattern "
                f"'^{_ID.pattern}$'"
            )
        if part["type"] == "tool_result" and message["role"] != "user":
            # https://github.com/tghamm/Anthropic.SDK/issues/128
            raise RefusedRequestError("`tool_result` blocks can only be in `user` messages")


def _check_results(messages: list[dict[str, Any]]) -> None:
    """Refuse calls without results in the next message, and results without calls.

    https://github.com/anthropics/claude-code/issues/8210 and /issues/13460
    """
    owed: list[str] = []
    for index, message in enumerate(messages):
        parts = message["content"] if isinstance(message["content"], list) else []
        given = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
        for place, part in enumerate(parts):
            if part["type"] == "tool_result" and part["tool_use_id"] not in owed:
                raise RefusedRequestError(
                    f"messages.{index}.content.{place}: unexpected `tool_use_id` found in "
                    f"`tool_result` blocks: {part['tool_use_id']}. Each `tool_result` block must "
                    "have a corresponding `tool_use` block in the previous message."
                )
        _refuse_owed(index - 1, [each for each in owed if each not in given])
        owed = [part["id"] for part in parts if part["type"] == "tool_use"]
    _refuse_owed(len(messages) - 1, owed)


def _refuse_owed(index: int, owed: list[str]) -> None:
    if owed:
        raise RefusedRequestError(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(owed)}. Each `tool_use` block must have a corresponding "
            "`tool_result` block in the next message."
        )


def _is_paused(message: dict[str, Any]) -> bool:
    """Return whether a message is a paused answer, which may end a request.

    https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
    """
    parts = message["content"] if isinstance(message["content"], list) else []
    return any(part["type"] == "server_tool_use" for part in parts)


def _check_prefill(model: str, message: dict[str, Any]) -> None:
    if WITHOUT_PREFILL.match(model):
        raise RefusedRequestError(
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message."
        )
    content = message["content"]
    text = content if isinstance(content, str) else content[-1].get("text", "")
    if text != text.rstrip():
        # https://github.com/tailcallhq/forgecode/issues/1872
        raise RefusedRequestError(
            "messages: final assistant content cannot end with trailing whitespace"
        )
