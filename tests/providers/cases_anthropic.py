"""Requests that Anthropic's API refuses."""

from .cases import CLAUDE_RESULT, CLAUDE_TOOL, CLAUDE_USE, LOOSE, THINKING, USER, make_case

ANTHROPIC = [
    make_case("anthropic", "seed: Extra inputs are not permitted", seed=1),
    make_case("anthropic", "stop: Extra inputs are not permitted", stop=["x"]),
    make_case("anthropic", "response_format: Extra inputs are not permitted", response_format={}),
    make_case(
        "anthropic",
        "messages.0.content.0.text.name: Extra inputs are not permitted",
        messages=[{"role": "user", "content": [{"type": "text", "text": "a", "name": "b"}]}],
    ),
    make_case("anthropic", "max_tokens: Field required", max_tokens=None),
    make_case("anthropic", "temperature: Input should be a valid number", temperature="hot"),
    make_case("anthropic", "max_tokens: Input should be a valid integer", max_tokens="9"),
    make_case("anthropic", "model: claude-9", 404, model="claude-9"),
    make_case("anthropic", "temperature: range: 0..1", temperature=1.3),
    make_case(
        "anthropic",
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        temperature=0.5,
        top_p=0.5,
    ),
    make_case(
        "anthropic",
        "`temperature` is deprecated for this model.",
        model="claude-opus-4-7",
        temperature=0.2,
    ),
    make_case(
        "anthropic", "`top_k` is deprecated for this model.", model="claude-opus-4-7", top_k=3
    ),
    make_case(
        "anthropic",
        "max_tokens: 9999 > 4096, which is the maximum allowed number of output tokens for",
        model="claude-3-haiku-20240307",
        max_tokens=9999,
    ),
    make_case(
        "anthropic",
        "`temperature` may only be set to 1 when thinking is enabled.",
        thinking=THINKING,
        temperature=0.2,
    ),
    make_case("anthropic", "`top_k` must be unset when thinking", thinking=THINKING, top_k=3),
    make_case(
        "anthropic",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        thinking=THINKING,
        max_tokens=500,
    ),
    make_case(
        "anthropic",
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        thinking={"type": "enabled", "budget_tokens": 100},
    ),
    *[
        make_case(
            "anthropic",
            "Thinking may not be enabled when tool_choice forces tool use.",
            thinking=THINKING,
            tools=[CLAUDE_TOOL],
            tool_choice=choice,
        )
        for choice in ({"type": "any"}, {"type": "tool", "name": "add"})
    ],
    make_case(
        "anthropic",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found",
        thinking=THINKING,
        tools=[CLAUDE_TOOL],
        messages=[
            USER,
            {"role": "assistant", "content": [CLAUDE_USE]},
            {"role": "user", "content": [CLAUDE_RESULT]},
        ],
    ),
    make_case(
        "anthropic",
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        tools=[{**CLAUDE_TOOL, "name": "add up"}],
    ),
    make_case("anthropic", "tools: Tool names must be unique.", tools=[CLAUDE_TOOL, CLAUDE_TOOL]),
    make_case(
        "anthropic",
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly "
        "set to false",
        output_config={"format": {"type": "json_schema", "schema": LOOSE}},
    ),
    make_case(
        "anthropic",
        "role 'system' is not supported on this model",
        messages=[USER, {"role": "system", "content": "Be brief."}, USER],
    ),
    make_case(
        "anthropic",
        'messages: first message must use the "user" role',
        messages=[{"role": "assistant", "content": "Hi"}, USER],
    ),
    make_case(
        "anthropic",
        "messages.0: all messages must have non-empty",
        messages=[{**USER, "content": ""}],
    ),
    make_case(
        "anthropic",
        "messages: text content blocks must be non-empty",
        messages=[{"role": "user", "content": [{"type": "text", "text": ""}]}],
    ),
    make_case(
        "anthropic",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
        "toolu_1.",
        messages=[USER, {"role": "assistant", "content": [CLAUDE_USE]}, USER],
    ),
    make_case(
        "anthropic",
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        messages=[{"role": "user", "content": [CLAUDE_RESULT]}],
    ),
    make_case(
        "anthropic",
        "This model does not support assistant message prefill.",
        messages=[USER, {"role": "assistant", "content": "It is"}],
    ),
    make_case(
        "anthropic",
        "messages: final assistant content cannot end with trailing whitespace",
        model="claude-sonnet-4-5",
        messages=[USER, {"role": "assistant", "content": "It is "}],
    ),
]
