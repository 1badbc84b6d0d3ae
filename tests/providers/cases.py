"""Requests that the fakes accept, and changes that they refuse."""

from typing import Any, Final

from pydantic import BaseModel

from .base import make_call

USER: Final = {"role": "user", "content": "Add."}
TOOL: Final = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}
CALLING: Final = make_call("abcdefgh1", "add")
RESULT: Final = {"role": "tool", "content": "3", "tool_call_id": "abcdefgh1"}
CHAT: Final[dict[str, Any]] = {"messages": [USER]}
CLAUDE_USE: Final = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
CLAUDE_RESULT: Final = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}
CLAUDE_TOOL: Final = {"name": "add", "input_schema": {"type": "object", "properties": {}}}
THINKING: Final = {"type": "enabled", "budget_tokens": 2000}
GEMINI_USER: Final = {"role": "user", "parts": [{"text": "Add."}]}
GEMINI_CALL: Final = {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {}}}]}
GEMINI_RESULT: Final = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "add", "response": {"output": "3"}}}],
}
GEMINI_TOOLS: Final = [{"functionDeclarations": [{"name": "add"}]}]
LOOSE: Final = {"type": "object", "properties": {"n": {"type": "integer"}}}

BASES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "openai_chat": ("/v1/chat/completions", {"model": "gpt-4.1-mini", **CHAT}),
    "openai_responses": ("/v1/responses", {"model": "gpt-4.1-mini", "input": "Add."}),
    "anthropic": (
        "/v1/messages",
        {"model": "claude-sonnet-4-6", "max_tokens": 4000, **CHAT},
    ),
    "google": (
        "/v1beta/models/gemini-2.5-flash:generateContent",
        {"contents": [GEMINI_USER]},
    ),
    "gemini_openai": (
        "/v1beta/openai/chat/completions",
        {"model": "gemini-3-pro-preview", **CHAT},
    ),
    "ollama": ("/api/chat", {"model": "llama3.2:3b", "stream": False, **CHAT}),
    "mistral": ("/v1/chat/completions", {"model": "mistral-small-latest", **CHAT}),
    "deepseek": ("/chat/completions", {"model": "deepseek-chat", **CHAT}),
    "deepseek_r1": ("/chat/completions", {"model": "deepseek-reasoner", **CHAT}),
    "openrouter": ("/api/v1/chat/completions", {"model": "openai/gpt-5", **CHAT}),
    "vllm": ("/v1/chat/completions", {"model": "Qwen/Qwen3-8B", **CHAT}),
    "litellm": ("/v1/chat/completions", {"model": "gpt-4.1-mini", **CHAT}),
}
"""The path of each API, and a body that it accepts."""


class Case(BaseModel):
    """A change of an accepted body, and the words of the error for it."""

    api: str
    change: dict[str, Any]
    words: str
    status: int = 400
    path: str | None = None
    options: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.api}: {self.words[:60]}"


def make_case(api: str, words: str, status: int = 400, /, **change: Any) -> Case:
    return Case(api=api, change=change, words=words, status=status)
