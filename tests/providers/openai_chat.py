"""A fake of OpenAI's Chat Completions."""

from typing import Any

from .base import OpenAILikeServer, RefusedRequestError
from .openai_rules import check_chat_request


class OpenAIChat(OpenAILikeServer):
    """OpenAI's Chat Completions. It shows no thoughts of its models."""

    models = ("gpt-4.1-mini", "gpt-5", "gpt-5.2", "gpt-5.4", "gpt-5.6", "o3", "o4-mini", "o3-mini")

    def check_body(self, body: dict[str, Any]) -> None:
        """Refuse a model that does not exist, and all bodies that OpenAI refuses."""
        model = body.get("model")
        if isinstance(model, str) and model not in self.models:
            # https://platform.openai.com/docs/guides/error-codes
            raise RefusedRequestError(
                f"The model `{model}` does not exist or you do not have access to it.",
                code="model_not_found",
                status=404,
            )
        check_chat_request(body, model if isinstance(model, str) else "")
