"""Settings from the environment and a ``.env`` file. A conversation's own fields override them.

The content of the file is not trusted. It may set keys, model names, an address and numbers. A key
from the environment is never sent to an address from the file, and no entry of the file can name
files or commands.
"""

import os
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import (
    AfterValidator,
    ByteSize,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PrivateAttr,
    SecretStr,
    ValidationError,
)

from .addresses import OPENAI, check_address, is_loopback, show_address
from .data import Data
from .errors import SpecError
from .validation import explain_error

_NAMING_SETTINGS: Final = {"store": "--store", "mcp_servers": None}
"""The settings that name files or commands, each with the command-line option that sets it. None if
there is no option."""

_SENT_VARIABLES: Final = ("OPENAI_CUSTOM_HEADERS", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
"""Variables whose values OpenAI's client sends to any address."""


class _FromFile(NamedTuple):
    """The settings from the file that the environment does not set."""

    values: dict[str, str | None]
    """The values by setting. None means that the setting counts as not set, whatever the
    environment contains."""
    faults: dict[str, str]
    """The reason and the remedy for each setting of the file that can't be used."""
    notice: str | None = None
    """A note for the user about the address in the file. None if there is none."""


class _FileSetting(NamedTuple):
    """A setting in the file."""

    variable: str
    """The name of the variable that sets it in the file."""
    value: str


def is_weights(model: str) -> bool:
    """Return whether the name of a model is the path of a file with its weights."""
    return model.strip().lower().endswith(".gguf")


def _read_env_file() -> _FromFile:
    """Read the settings of the file. The environment overrides them."""
    environment = {name.upper() for name, value in os.environ.items() if value}
    given = {name for name, names in _VARIABLES.items() if not environment.isdisjoint(names)}
    try:
        filed = _read_variables()
    except (OSError, ValueError) as error:
        # A file can't set names of files or commands anyway.
        lost = _VARIABLES.keys() - given - _NAMING_SETTINGS.keys()
        return _FromFile({}, dict.fromkeys(lost, f".env: can't be read: {error}"))
    url = None if "base_url" in given else filed.get("base_url")
    if url and "api_key" in given and url.value.strip().rstrip("/") == OPENAI:
        # The key in the environment is meant for this address.
        url = None
    left = {
        setting: one
        for setting, one in filed.items()
        if setting not in given or (url and setting == "api_key")
    }
    values: dict[str, str | None] = {setting: one.value for setting, one in left.items()}
    faults = {
        setting: wrong for setting, one in left.items() if (wrong := _find_fault(setting, one))
    }
    if url is None:
        return _FromFile(values, faults)
    has_key = "api_key" in left
    values.setdefault("api_key", None)
    try:
        where = check_address(url.value)
    except ValueError:
        # The validation of the settings reports this error.
        return _FromFile(values, faults)
    if wrong := _find_fault_of_address(url.variable, where, has_key=has_key):
        faults.setdefault("base_url", wrong)
    if has_key or "api_key" not in given:
        return _FromFile(values, faults)
    notice = (
        f"No key is sent to the server at {show_address(where)}: its address is in .env, but the "
        f"key is in the environment. If the server needs the key, put the key in .env, too, or "
        f"set {url.variable} in the environment."
    )
    return _FromFile(values, faults, notice)


def _read_content() -> bytes | None:
    """Return the bytes of the file, or None if there is none.

    Raises:
        OSError: It can't be read.
    """
    try:
        return Path(".env").read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None


def _read_variables() -> dict[str, _FileSetting]:
    written = _read_content()
    if written is None:
        return {}
    from dotenv.parser import parse_stream  # not needed without a file

    if b"\0" in written:
        raise ValueError("it is not UTF-8 text")
    # A line in another encoding must not make the other lines unreadable.
    text = written.decode("utf-8-sig", errors="replace")
    # Without interpolation, because `http://x/${SECRET}` would send any variable of the
    # environment.
    lines = [(one.key, one.value) for one in parse_stream(StringIO(text))]
    named = {name.upper(): _FileSetting(name, value) for name, value in lines if name and value}
    return {
        setting: next(named[name] for name in names if name in named)
        for setting, names in _VARIABLES.items()
        if any(name in named for name in names)
    }


def _find_fault(setting: str, one: _FileSetting) -> str | None:
    is_file = setting == "model" and is_weights(one.value)
    if setting in _NAMING_SETTINGS or is_file:
        option = "--model" if is_file else _NAMING_SETTINGS[setting]
        instead = f" or use {option}" if option else ""
        return (
            f"{one.variable}: .env can't name files or commands; remove it there, and set it in "
            f"the environment{instead}"
        )
    if "${" in one.value:
        return (
            f"{one.variable}: ${{…}} is not replaced in .env; write the value itself, or set the "
            "variable in the environment"
        )
    if "\N{REPLACEMENT CHARACTER}" in one.value:
        return f"{one.variable}: its value in .env is not UTF-8; save the file as UTF-8"
    return None


def _find_fault_of_address(variable: str, url: str, *, has_key: bool) -> str | None:
    if not has_key and not is_loopback(url):
        return (
            f"{variable}: the address in .env, {show_address(url)}, is used only with a key from "
            "the same file; set OPENAI_API_KEY there, too (any text if the server needs none), or "
            f"set {variable} in the environment"
        )
    sent = next((name for name in _SENT_VARIABLES if os.environ.get(name)), None)
    if sent is not None:
        return (
            f"{variable}: the address in .env is not used, because the value of {sent} in the "
            f"environment would be sent to it; set {variable} in the environment, too"
        )
    return None


EMBEDDED_CONTEXT = 8192
"""The default context of a model on this machine, in tokens."""

MAX_REPLY_SIZE = 16 * 2**20
"""The default maximum size of a model server's reply, in bytes."""


_PLACEHOLDER: Final = re.compile(
    r"(sk-)?(…|\.\.\.|x{3,})|<.*>|.*your[-_ ]?(own[-_ ]?)?(api[-_ ]?)?key.*", re.IGNORECASE
)
"""A key as pages print it, such as ``…``, ``sk-...`` or ``<your key>``."""


def _check_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if _PLACEHOLDER.fullmatch(text):
        raise ValueError("is still a placeholder; set your own key")
    if not text.isascii() or not text.isprintable():
        raise ValueError("must be printable ASCII")
    return SecretStr(text)


class Settings(Data):
    """The locations of models, sessions and MCP servers, and the limits of model calls.

    `load_settings` reads each field from the variable ``DUOLOGUE_`` plus its name in capitals, and
    the key and the address also from OpenAI's own variables.
    """

    api_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = None
    """The key of the model server."""
    base_url: Annotated[str, AfterValidator(check_address)] | None = Field(default=None, repr=False)
    """The address of a server with OpenAI's API. OpenAI if None."""
    model: str | None = None
    """The model of every call that names none: a name, ``embedded`` or the path of a ``.gguf``
    file."""
    store: str | None = Field(default=None, repr=False)
    """The store of sessions: a path or a URL. If None, a file in the user's data folder."""
    mcp_servers: Path | None = None
    """A JSON file with MCP servers: ``{"mcpServers": {name: {"command": …}}}``."""
    timeout: PositiveFloat = 120.0
    """Maximum seconds that one attempt of a model call waits for the whole reply, or for each event
    of a streamed reply."""
    max_retries: NonNegativeInt = 4
    """Maximum number of retries of a call if the server is busy, fails or can't be reached."""
    max_reply_size: Annotated[ByteSize, Field(ge=1024)] = ByteSize(MAX_REPLY_SIZE)
    """Maximum size of a model server's reply after decompression: bytes, or with a unit as in
    ``64MiB``. At least 1 KiB."""
    embedded_context: int = Field(default=EMBEDDED_CONTEXT, ge=512)
    """The context of the embedded model, or of a ``.gguf`` file, in tokens: prompt and answer
    together."""
    progress: bool = True
    """Whether `converse` shows its progress in a notebook, on a terminal or on stderr."""

    _faults: dict[str, str] = PrivateAttr(default_factory=dict)
    _notice: str | None = PrivateAttr(default=None)

    @property
    def notice(self) -> str | None:
        """Return a note for the user about the server's address, or None."""
        return self._notice

    def _refuse(self, faults: Mapping[str, str]) -> None:
        """Make these settings raise their errors when they are read."""
        self._faults.update(faults)
        for name in faults:
            del self.__dict__[name]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error of a setting that has a fault instead of a value."""
            if name in type(self).model_fields:
                raise SpecError(self._faults[name])
            return super().__getattr__(name)


_PREFIXES: Final = ("DUOLOGUE_", "OPENAI_")
"""The prefixes of all variables that settings are read from."""

_VARIABLES: Final = {
    name: [
        f"{prefix}{name.upper()}"
        for prefix in (_PREFIXES if name in ("api_key", "base_url") else _PREFIXES[:1])
    ]
    for name in Settings.model_fields
}
"""The variables that each setting is read from, the strongest one first."""

_Sources: TypeAlias = tuple[tuple[tuple[str, str], ...], bytes | None]
"""Variables of the environment with their values, and the content of the file."""

_MOST_LOADED: Final = 4

_LOADED: Final[dict[_Sources | None, Settings]] = {}
"""The loaded settings by their sources; they are cached because each session loads them."""


def load_settings() -> Settings:
    """Read the settings from the environment, and from a ``.env`` file of the working folder.

    The environment overrides the file. The file may set keys, model names, an address and numbers.
    The address in the file is used only with a key from the file, or without a key if it is an
    address of this machine. A key from the environment is never sent to it.

    Raises:
        SpecError: A variable of the environment has an invalid value.
    """
    sources = _sources()
    known = _LOADED.get(sources)
    if known is None:
        known = _read_sources()
        # Cached only if no source changed during the reading; else the result may be out of date.
        if sources is not None and sources == _sources():
            _LOADED[sources] = known
            while len(_LOADED) > _MOST_LOADED:
                _LOADED.pop(next(iter(_LOADED)), None)
    return known


def _sources() -> _Sources | None:
    """Return all sources of settings, or None if the file can't be read."""
    names = os.environ.items()
    environment = tuple(
        (name, value) for name, value in names if name.upper().startswith(_PREFIXES)
    )
    try:
        return environment, _read_content()
    except OSError:
        return None


def _read_sources() -> Settings:
    # A blank value counts as not set. The case of variable names is ignored.
    given = {name.upper(): value for name, value in os.environ.items() if value.strip()}
    environment = {
        field: next(given[name] for name in names if name in given)
        for field, names in _VARIABLES.items()
        if not given.keys().isdisjoint(names)
    }
    values, faults, notice = _read_env_file()
    while True:
        try:
            settings = Settings(**dict[str, Any](environment | values))
            break
        except ValidationError as error:
            field, _, wrong = explain_error(error, Settings).partition(": ")
            if field == "api_key":
                # The value may be most of a key.
                wrong = wrong.partition(", not ")[0]
            wrong = f"{' or '.join(_VARIABLES[field])}: {wrong}"
            if field not in values:
                raise SpecError(wrong) from error
            del values[field]
            faults.setdefault(field, wrong)
    settings._refuse(faults)
    settings._notice = notice
    return settings


def environment_variables() -> dict[str, str | None]:
    """Return the variables that give another process the same settings. None means not set."""
    filed = _read_env_file()
    given: dict[str, str | None] = {}
    for field, names in _VARIABLES.items():
        given |= dict.fromkeys(names)
        if field in filed.values:
            given[names[0]] = filed.values[field]
        elif field not in filed.faults:
            given |= {name: value for name in names if (value := os.environ.get(name, "")).strip()}
    return given
