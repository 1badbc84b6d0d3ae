"""Settings from the environment and a ``.env`` file. What a conversation says itself wins."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    NonNegativeInt,
    PositiveFloat,
    SecretStr,
    ValidationError,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from duologue.graphs.errors import SpecError
from duologue.graphs.validation import explained

EMBEDDED_CONTEXT = 8192
"""The context of a model on this machine, in tokens, unless set otherwise."""


def address(text: str) -> str:
    """Make sure that a text is the address of a server.

    Raises:
        ValueError: It is not.
    """
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    try:
        parts = urlsplit(text)
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be an address such as http://localhost:8000/v1")
    return text


def _key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if not text.isascii() or not text.isprintable():
        raise ValueError("must be printable ASCII")
    return SecretStr(text)


class Settings(BaseSettings):
    """Where models, sessions and MCP servers are found.

    Each field is read from ``DUOLOGUE_`` and its name in capitals, in the environment or in a
    ``.env`` file of the working folder; the key and the address also from OpenAI's own names.
    """

    model_config = SettingsConfigDict(
        env_prefix="DUOLOGUE_",
        env_file=".env",
        env_ignore_empty=True,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    api_key: Annotated[SecretStr, AfterValidator(_key)] | None = Field(
        default=None, validation_alias=AliasChoices("DUOLOGUE_API_KEY", "OPENAI_API_KEY")
    )
    """The key of the model server."""
    base_url: Annotated[str, AfterValidator(address)] | None = Field(
        default=None,
        validation_alias=AliasChoices("DUOLOGUE_BASE_URL", "OPENAI_BASE_URL"),
    )
    """The address of a server that speaks OpenAI's API. None: OpenAI."""
    model: str | None = None
    """The model for all that name none: a name, ``embedded`` or the path of a ``.gguf`` file."""
    store: str | None = None
    """Where sessions are kept: a path or an URL. None: one file in the user's data folder."""
    mcp_servers: Path | None = None
    """A JSON file with MCP servers: ``{"mcpServers": {name: {"command": …}}}``."""
    timeout: PositiveFloat = 120.0
    """How long a try of a model call waits for the server to go on, in seconds."""
    max_retries: NonNegativeInt = 4
    """How often a call is tried again when the server is busy, fails or can't be reached."""
    embedded_context: int = Field(default=EMBEDDED_CONTEXT, ge=512)
    """The context of the embedded model, or of a ``.gguf`` file, in tokens: prompt and answer."""


def load_settings() -> Settings:
    """Read the settings.

    Returns:
        The settings.

    Raises:
        SpecError: A variable is wrong; names it.
    """
    try:
        return Settings()
    except ValidationError as error:
        name, _, wrong = explained(error, Settings).partition(": ")
        raise SpecError(f"{_variables(name)}: {wrong}") from error


def _variables(name: str) -> str:
    """The variables that a setting is read from; pydantic names its field or the first of them."""
    for field, info in Settings.model_fields.items():
        alias = info.validation_alias
        choices = [str(it) for it in alias.choices] if isinstance(alias, AliasChoices) else []
        if name == field or name in choices:
            return " or ".join(choices) or f"DUOLOGUE_{field.upper()}"
    return name
