"""Requests that the other APIs refuse, and requests that an API accepts."""

from .base import make_call
from .cases import (
    CALLING,
    CLAUDE_TOOL,
    GEMINI_CALL,
    GEMINI_RESULT,
    GEMINI_TOOLS,
    GEMINI_USER,
    LOOSE,
    RESULT,
    THINKING,
    TOOL,
    USER,
    Case,
    make_case,
)

GOOGLE = [
    make_case(
        "google",
        "Invalid JSON payload received. Unknown name \"max_tokens\" at 'generation_config': Cannot "
        "find field.",
        generationConfig={"max_tokens": 9},
    ),
    make_case(
        "google",
        'Invalid JSON payload received. Unknown name "temperature": Cannot find field.',
        temperature=0.2,
    ),
    make_case(
        "google",
        "Invalid value at 'generation_config.temperature' (TYPE_FLOAT), \"hot\"",
        generationConfig={"temperature": "hot"},
    ),
    make_case(
        "google", "* GenerateContentRequest.contents: contents is not specified", contents=[]
    ),
    make_case(
        "google",
        "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.",
        contents=[{"role": "user", "parts": []}],
    ),
    make_case(
        "google",
        "Please use a valid role: user, model.",
        contents=[{"role": "system", "parts": [{"text": "Be brief."}]}],
    ),
    make_case(
        "google",
        "Please ensure that function call turn comes immediately after a user turn",
        contents=[GEMINI_CALL, GEMINI_RESULT],
    ),
    make_case(
        "google",
        "Please ensure that function response turn comes immediately after a function call turn.",
        contents=[GEMINI_USER, GEMINI_RESULT],
    ),
    make_case(
        "google",
        "Please ensure that the number of function response parts is equal to the number of",
        contents=[GEMINI_USER, GEMINI_CALL, GEMINI_USER],
    ),
    make_case(
        "google",
        "Function calling with a response mime type: 'application/json' is unsupported",
        tools=GEMINI_TOOLS,
        generationConfig={"responseMimeType": "application/json"},
    ),
    make_case(
        "google",
        "The thinking budget (52428) is invalid.",
        generationConfig={"thinkingConfig": {"thinkingBudget": 52428}},
    ),
    Case(
        api="google",
        change={"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        words="Budget 0 is invalid. This model only works in thinking mode.",
        path="/v1beta/models/gemini-2.5-pro:generateContent",
    ),
    Case(
        api="google",
        change={"contents": [GEMINI_USER, GEMINI_CALL, GEMINI_RESULT], "tools": GEMINI_TOOLS},
        words="Function call is missing a thought_signature in functionCall parts.",
        path="/v1beta/models/gemini-3-pro-preview:generateContent",
    ),
    Case(
        api="google",
        change={},
        words="models/gemini-9 is not found for API version v1beta",
        status=404,
        path="/v1beta/models/gemini-9:generateContent",
    ),
]
GEMINI_OPENAI = [
    make_case(
        "gemini_openai",
        "Function call is missing a thought_signature in functionCall parts.",
        messages=[USER, CALLING, RESULT],
    ),
    make_case(
        "gemini_openai",
        "Corrupted thought signature.",
        messages=[
            USER,
            {
                **CALLING,
                "tool_calls": [
                    {
                        **CALLING["tool_calls"][0],
                        "extra_content": {"google": {"thought_signature": "b3RoZXI="}},
                    }
                ],
            },
            RESULT,
        ],
    ),
]
OLLAMA = [
    make_case("ollama", "model 'mistral' not found", 404, model="mistral"),
    make_case("ollama", "model is required", model=""),
    make_case(
        "ollama",
        "json: cannot unmarshal string into Go struct field ChatRequest.stream of type bool",
        stream="no",
    ),
    make_case(
        "ollama",
        "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type "
        "string",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Add."}]}],
    ),
    make_case(
        "ollama", 'option "temperature" must be of type float32', options={"temperature": "hot"}
    ),
    make_case(
        "ollama", 'option "num_predict" must be of type integer', options={"num_predict": "9"}
    ),
    make_case("ollama", 'option "stop" must be of type array', options={"stop": "END"}),
    make_case("ollama", '"llama3.2:3b" does not support thinking', think=True),
    make_case("ollama", "does not support tools", model="gemma2:2b", tools=[TOOL]),
]
MISTRAL = [
    make_case("mistral", "extra_forbidden", 422, seed=7),
    make_case("mistral", "extra_forbidden", 422, max_completion_tokens=7),
    make_case("mistral", "extra_forbidden", 422, stream_options={"include_usage": True}),
    make_case("mistral", "extra_forbidden", 422, messages=[{**USER, "name": "Ann"}]),
    make_case("mistral", "less_than_equal", 422, temperature=1.8),
    make_case(
        "mistral",
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        messages=[USER, make_call("call_1", "add"), {**RESULT, "tool_call_id": "call_1"}],
    ),
    make_case(
        "mistral",
        "Unexpected role 'user' after role 'tool'",
        messages=[USER, CALLING, RESULT, USER],
    ),
    make_case("mistral", "Unexpected role 'tool' after role 'user'", messages=[USER, RESULT]),
    make_case(
        "mistral",
        "Not the same number of function calls and responses",
        messages=[USER, CALLING, {"role": "assistant", "content": "It is 3."}, USER],
    ),
    make_case(
        "mistral",
        "Assistant message must have either content or tool_calls, but not both.",
        messages=[USER, {"role": "assistant", "content": ""}, USER],
    ),
    make_case(
        "mistral",
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got",
        messages=[USER, {"role": "assistant", "content": "Hi"}],
    ),
]
DEEPSEEK = [
    make_case(
        "deepseek",
        "Missing `reasoning_content` field in the assistant message at message index 3.",
        model="deepseek-v4-flash",
        messages=[
            USER,
            {**CALLING, "reasoning_content": "I add."},
            RESULT,
            {"role": "assistant", "content": "It is 3."},
        ],
    ),
    make_case("deepseek", "Model Not Exist", model="deepseek-9"),
    make_case(
        "deepseek",
        "Failed to deserialize the JSON body into the target type: response_format: "
        "response_format.type `json_schema` is unavailable now",
        response_format={"type": "json_schema"},
    ),
    make_case(
        "deepseek",
        "Failed to deserialize the JSON body into the target type: messages[0]: invalid type: "
        "sequence, expected a string",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Add."}]}],
    ),
    make_case(
        "deepseek", "An assistant message with 'tool_calls' must be", messages=[USER, CALLING]
    ),
    make_case("deepseek", "Messages with role 'tool' must be a response", messages=[USER, RESULT]),
    make_case(
        "deepseek",
        "Missing `reasoning_content` field in the assistant message at message index 1.",
        model="deepseek-reasoner",
        messages=[USER, CALLING, RESULT],
    ),
    make_case(
        "deepseek",
        "Thinking mode does not support this tool_choice",
        model="deepseek-reasoner",
        tools=[TOOL],
        tool_choice="required",
    ),
    make_case("deepseek_r1", "deepseek-reasoner does not support Function Calling", tools=[TOOL]),
    make_case(
        "deepseek_r1",
        "The reasoning_content is an intermediate result for display purposes only",
        messages=[USER, {"role": "assistant", "content": "Hi", "reasoning_content": "Hm"}, USER],
    ),
    make_case(
        "deepseek_r1",
        "deepseek-reasoner does not support successive user or assistant messages (messages[0] and "
        "messages[1] in your input).",
        messages=[USER, USER],
    ),
]
OTHERS = [
    make_case("openrouter", 'Input required: specify "prompt" or "messages"', messages=None),
    make_case("openrouter", "openai/gpt-9 is not a valid model ID", model="openai/gpt-9"),
    make_case("openrouter", "Expected number, received string", temperature="hot"),
    make_case(
        "openrouter",
        'Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified',
        reasoning={"effort": "low", "max_tokens": 99},
    ),
    make_case(
        "openrouter",
        "No endpoints found that support tool use.",
        404,
        model="deepseek/deepseek-r1",
        tools=[TOOL],
    ),
    make_case(
        "openrouter",
        "No endpoints found that can handle the requested parameters.",
        404,
        temperature=0.2,
        provider={"require_parameters": True},
    ),
    make_case("openrouter", "Provider returned error", messages=[USER, RESULT]),
    make_case("vllm", "The model `gpt` does not exist.", 404, model="gpt"),
    make_case("vllm", "'type': 'float_parsing', 'loc': ('body', 'temperature')", temperature="hot"),
    make_case("vllm", "temperature must be non-negative, got -1.0.", temperature=-1.0),
    make_case("vllm", "top_p must be in (0, 1], got 2.0.", top_p=2.0),
    make_case("vllm", "max_tokens must be at least 1, got 0.", max_tokens=0),
    make_case("vllm", "This model's maximum context length is 4096 tokens.", max_tokens=9999),
    make_case("vllm", "When using `tool_choice`, `tools` must be set.", tool_choice="auto"),
    make_case(
        "vllm",
        "You can only use one kind of structured outputs constraint",
        structured_outputs={"json": {}, "choice": ["a"]},
    ),
    Case(
        api="vllm",
        change={"tools": [TOOL]},
        words='"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be',
        options={"has_tool_parser": False},
    ),
    Case(
        api="vllm",
        change={"messages": [USER, USER]},
        words="Conversation roles must alternate user/assistant/user/assistant/...",
        options={"alternates": True},
    ),
    Case(
        api="vllm",
        change={"messages": [USER, CALLING, RESULT, USER]},
        words="Conversation roles must alternate user/assistant/user/assistant/...",
        options={"alternates": "without calls"},
    ),
    make_case(
        "litellm", "/chat/completions: Invalid model name passed in model=gpt-9.", model="gpt-9"
    ),
    make_case(
        "litellm",
        "litellm.UnsupportedParamsError: gpt-5 models (including gpt-5-codex) don't support "
        "temperature=0.2. Only temperature=1 is supported.",
        model="gpt-5",
        temperature=0.2,
    ),
    make_case(
        "litellm",
        "litellm.UnsupportedParamsError: openai does not support parameters: ['stop'], for "
        "model=gpt-5. To drop these, set `litellm.drop_params=True`",
        model="gpt-5",
        stop="x",
    ),
    make_case(
        "litellm",
        "litellm.UnsupportedParamsError: together_ai does not support parameters: "
        "['response_format'], for model=llama.",
        model="together_ai/llama",
        response_format={"type": "json_object"},
    ),
    make_case(
        "litellm",
        "litellm.BadRequestError: OpenAIException - Unrecognized request argument supplied: top_k. "
        "Received Model Group=gpt-4.1-mini",
        top_k=3,
    ),
]
ACCEPTED = [
    make_case("openai_chat", "", messages=[USER, CALLING, RESULT], tools=[TOOL]),
    make_case("openai_chat", "", model="gpt-5", temperature=1, max_completion_tokens=9),
    make_case("openai_chat", "", model="gpt-5.2", temperature=0.2),
    make_case("openai_chat", "", model="gpt-5.4", tools=[TOOL]),
    make_case("openai_chat", "", model="gpt-5.6", tools=[TOOL], reasoning_effort="none"),
    make_case("openai_chat", "", model="o3-mini", stop="x"),
    make_case("openai_responses", "", model="gpt-5.2", temperature=0.2),
    make_case("anthropic", "", messages=[USER, USER], temperature=0.5),
    make_case("anthropic", "", thinking=THINKING, temperature=1, tools=[CLAUDE_TOOL]),
    make_case("anthropic", "", model="claude-3-haiku-20240307", temperature=0.5, top_p=0.5),
    make_case("google", "", generationConfig={"maxOutputTokens": 9, "temperature": 0.2, "seed": 1}),
    make_case("google", "", contents=[GEMINI_USER, GEMINI_CALL, GEMINI_RESULT], tools=GEMINI_TOOLS),
    make_case(
        "ollama", "", seed=7, options={"temperature": 0.2, "num_predict": 9, "unheard_of": 1}
    ),
    make_case("mistral", "", random_seed=7, messages=[USER, CALLING, RESULT], tools=[TOOL]),
    make_case("deepseek", "", model="deepseek-reasoner", temperature=0.2, top_p=0.5),
    make_case(
        "deepseek",
        "",
        model="deepseek-reasoner",
        messages=[USER, {**CALLING, "reasoning_content": "Hm"}, RESULT],
    ),
    make_case("openrouter", "", temperature=0.2, unheard_of=1, reasoning={"effort": "low"}),
    make_case("vllm", "", top_k=3, unheard_of=1, max_tokens=9, guided_json=LOOSE),
    make_case("litellm", "", model="gpt-5", max_tokens=9),
    Case(
        api="litellm",
        change={"model": "gpt-5", "temperature": 0.2},
        words="",
        options={"drop_params": True},
    ),
]
"""Bodies that a rule which is too broad would refuse."""
