"""Clients that a provider's fake answers."""

import pytest


@pytest.fixture(autouse=True)
def _no_keys_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out keys and addresses of providers that the user has set. Our client has a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    for provider in (
        *("ANTHROPIC", "DEEPSEEK", "GEMINI", "GOOGLE", "MISTRAL", "OLLAMA", "OPENROUTER"),
    ):
        for name in ("API_KEY", "API_BASE", "BASE_URL", "HOST"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)
