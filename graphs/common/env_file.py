"""The ``.env`` file of the working folder, whose content is not trusted.

It may set keys, model names, an address and numbers. A key from the environment is never sent to an
address from the file, and no entry of the file can name files or commands.
"""

import os
from collections.abc import Collection, Mapping
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from .addresses import OPENAI, check_address, is_loopback, show_address

NAME = ".env"

_NAMING_SETTINGS = {"store": "--store", "mcp_servers": None}
"""The settings that name files or commands, each with the command-line option that sets it. None if
there is no option."""

_SENT_VARIABLES = ("OPENAI_CUSTOM_HEADERS", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
"""Variables whose values OpenAI's client sends to any address."""


class Found(NamedTuple):
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


def read_env_file(variables: Mapping[str, Collection[str]]) -> Found:
    """Read the settings of the file. The environment overrides them."""
    environment = {name.upper() for name, value in os.environ.items() if value}
    given = {name for name, names in variables.items() if not environment.isdisjoint(names)}
    try:
        filed = _read(variables)
    except (OSError, ValueError) as error:
        # A file can't set names of files or commands anyway.
        lost = variables.keys() - given - _NAMING_SETTINGS.keys()
        return Found({}, dict.fromkeys(lost, f"{NAME}: can't be read: {error}"))
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
    faults = {setting: wrong for setting, one in left.items() if (wrong := _fault(setting, one))}
    if url is None:
        return Found(values, faults)
    has_key = "api_key" in left
    values.setdefault("api_key", None)
    try:
        where = check_address(url.value)
    except ValueError:
        # The validation of the settings reports this error.
        return Found(values, faults)
    if wrong := _fault_of_address(url.variable, where, has_key=has_key):
        faults.setdefault("base_url", wrong)
    if has_key or "api_key" not in given:
        return Found(values, faults)
    notice = (
        f"No key is sent to the server at {show_address(where)}: its address is in {NAME}, but the "
        f"key is in the environment. If the server needs the key, put the key in {NAME}, too, or "
        f"set {url.variable} in the environment."
    )
    return Found(values, faults, notice)


def read_content() -> bytes | None:
    """Return the bytes of the file, or None if there is none.

    Raises:
        OSError: It can't be read.
    """
    try:
        return Path(NAME).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None


def _read(variables: Mapping[str, Collection[str]]) -> dict[str, _FileSetting]:
    written = read_content()
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
        for setting, names in variables.items()
        if any(name in named for name in names)
    }


def _fault(setting: str, one: _FileSetting) -> str | None:
    is_file = setting == "model" and is_weights(one.value)
    if setting in _NAMING_SETTINGS or is_file:
        option = "--model" if is_file else _NAMING_SETTINGS[setting]
        instead = f" or use {option}" if option else ""
        return (
            f"{one.variable}: {NAME} can't name files or commands; remove it there, and set it in "
            f"the environment{instead}"
        )
    if "${" in one.value:
        return (
            f"{one.variable}: ${{…}} is not replaced in {NAME}; write the value itself, or set the "
            "variable in the environment"
        )
    if "\N{REPLACEMENT CHARACTER}" in one.value:
        return f"{one.variable}: its value in {NAME} is not UTF-8; save the file as UTF-8"
    return None


def _fault_of_address(variable: str, url: str, *, has_key: bool) -> str | None:
    if not has_key and not is_loopback(url):
        return (
            f"{variable}: the address in {NAME}, {show_address(url)}, is used only with a key from "
            "the same file; set OPENAI_API_KEY there, too (any text if the server needs none), or "
            f"set {variable} in the environment"
        )
    sent = next((name for name in _SENT_VARIABLES if os.environ.get(name)), None)
    if sent is not None:
        return (
            f"{variable}: the address in {NAME} is not used, because the value of {sent} in the "
            f"environment would be sent to it; set {variable} in the environment, too"
        )
    return None
