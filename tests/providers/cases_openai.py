"""Requests that OpenAI's APIs refuse."""

from .cases import CALLING, LOOSE, RESULT, TOOL, USER, make_case

ONLY_ONE = "Only the default (1) value is supported."
OPENAI = [
    make_case("openai_chat", "Unrecognized request argument supplied: top_k", top_k=3),
    make_case(
        "openai_chat", "Unknown parameter: 'messages[0].cache'.", messages=[{**USER, "cache": 1}]
    ),
    make_case(
        "openai_chat",
        "Invalid type for 'temperature': expected a decimal, but got a string instead.",
        temperature="hot",
    ),
    make_case(
        "openai_chat",
        "Invalid type for 'messages[0].content': expected one of a string or an array, but got an "
        "object instead.",
        messages=[{"role": "user", "content": {}}],
    ),
    make_case("openai_chat", "Missing required parameter: 'messages'.", messages=None),
    make_case(
        "openai_chat", "Missing required parameter: 'messages[0].role'.", messages=[{"content": ""}]
    ),
    make_case("openai_chat", "Invalid 'messages': empty array.", messages=[]),
    make_case("openai_chat", "The model `gpt-9` does not exist or you do not", 404, model="gpt-9"),
    make_case(
        "openai_chat",
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 "
        "instead.",
        temperature=3,
    ),
    make_case(
        "openai_chat",
        "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 "
        "instead.",
        max_tokens=0,
    ),
    make_case("openai_chat", "Invalid 'stop': array too long.", stop=list("abcde")),
    make_case(
        "openai_chat",
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        max_tokens=9,
        max_completion_tokens=9,
    ),
    make_case("openai_chat", "Invalid value for 'tool_choice'", tool_choice="auto"),
    make_case(
        "openai_chat",
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        stream_options={"include_usage": True},
    ),
    make_case(
        "openai_chat",
        "Invalid 'messages[0].name': string does not match pattern.",
        messages=[{**USER, "name": "Ann Lee"}],
    ),
    make_case(
        "openai_chat",
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message",
        messages=[USER, RESULT],
    ),
    make_case(
        "openai_chat",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        "abcdefgh1",
        messages=[USER, CALLING, USER],
    ),
    make_case(
        "openai_chat",
        "'messages' must contain the word 'json' in some form",
        response_format={"type": "json_object"},
    ),
    make_case(
        "openai_chat",
        "Invalid schema for response_format 'n': In context=(), 'additionalProperties' is required",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "n", "strict": True, "schema": LOOSE},
        },
    ),
    make_case(
        "openai_chat",
        "Unrecognized request argument supplied: reasoning_effort",
        reasoning_effort="low",
    ),
    *[
        make_case("openai_chat", words, model=model, **{name: value})
        for model in ("gpt-5", "o4-mini", "o3", "o3-mini")
        for name, value, words in (
            (
                "temperature",
                0.2,
                "Unsupported value: 'temperature' does not support 0.2 with this model. "
                + ONLY_ONE,
            ),
            (
                "max_tokens",
                9,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
            ),
            ("top_p", 0.5, "Unsupported parameter: 'top_p' is not supported with this model."),
            ("presence_penalty", 1, "Unsupported parameter: 'presence_penalty' is not supported"),
            ("logprobs", True, "Unsupported parameter: 'logprobs' is not supported"),
        )
    ],
    *[
        make_case(
            "openai_chat", "Unsupported parameter: 'stop' is not supported", model=model, stop="x"
        )
        for model in ("gpt-5", "o4-mini", "o3", "gpt-5.2")
    ],
    make_case(
        "openai_chat",
        "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
        model="o4-mini",
        tools=[TOOL],
        parallel_tool_calls=False,
    ),
    make_case(
        "openai_chat",
        "Unsupported value: 'temperature' does not support 0.2",
        model="gpt-5.2",
        reasoning_effort="low",
        temperature=0.2,
    ),
    make_case(
        "openai_chat",
        "Function tools with reasoning_effort are not supported for gpt-5.4 in",
        model="gpt-5.4",
        reasoning_effort="low",
        tools=[TOOL],
    ),
    make_case(
        "openai_chat",
        "Function tools with reasoning_effort are not supported for gpt-5.6 in",
        model="gpt-5.6",
        tools=[TOOL],
    ),
]
RESPONSES = [
    make_case(
        "openai_responses",
        "Unsupported parameter: 'max_tokens'. In the Responses API, this parameter has moved to "
        "'max_output_tokens'.",
        max_tokens=99,
    ),
    make_case("openai_responses", "Unsupported parameter: 'response_format'.", response_format={}),
    make_case("openai_responses", "Unknown parameter: 'seed'.", seed=1),
    make_case("openai_responses", "Unknown parameter: 'stop'.", stop=["x"]),
    make_case("openai_responses", "Invalid type for 'top_p': expected a decimal", top_p="x"),
    make_case(
        "openai_responses",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got "
        "5 instead.",
        max_output_tokens=5,
    ),
    make_case(
        "openai_responses",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        model="gpt-5",
        temperature=1,
    ),
    make_case(
        "openai_responses",
        "No tool call found for function call output with call_id c.",
        input=[{"type": "function_call_output", "call_id": "c", "output": "3"}],
    ),
    make_case(
        "openai_responses",
        "No tool output found for function call c.",
        input=[{"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}],
    ),
]
