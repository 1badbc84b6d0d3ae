"""What a ``.env`` file of the working folder may set: the folder may be anybody's.

It gives keys, model names, an address and numbers. A key of the environment is never sent to an
address that stands in the file, and nothing in it names files or commands.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from dotenv import dotenv_values

from duologue.graphs.addresses import is_loopback
from duologue.graphs.errors import SpecError
from duologue.graphs.store_errors import redacted

NAME = ".env"

_PLACES = {"store": "--store", "mcp_servers": None}
"""The settings that name files or commands, and the option that gives them."""


class Filed(NamedTuple):
    """A setting as it stands in the file."""

    variable: str
    """The variable that sets it."""
    value: str


def read(variables: Mapping[str, Collection[str]]) -> dict[str, Filed]:
    """Read the settings that stand in the file.

    Args:
        variables: The variables that each setting is read from; the first that is there counts.

    Returns:
        The settings by name; none where there is no file. An empty one counts as not set.

    Raises:
        SpecError: The file can't be read.
    """
    try:
        # As it stands: filled in, an address could carry away any variable of the environment.
        values = dotenv_values(Path(NAME), interpolate=False, encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise SpecError(f"{NAME}: can't be read: {error}") from error
    found = {name.upper(): Filed(name, value) for name, value in values.items() if value}
    return {
        setting: next(found[name] for name in names if name in found)
        for setting, names in variables.items()
        if any(name in found for name in names)
    }


def accepted(filed: Mapping[str, Filed], given: Collection[str]) -> dict[str, str | None]:
    """Give what the file sets, beside what the environment does.

    Args:
        filed: The settings that stand in the file. An address is sound.
        given: The settings that the environment gives. These win.

    Returns:
        The values by setting. An address comes with the key of the file, or with none on this
        machine, whatever key the environment gives.

    Raises:
        SpecError: Something in it is not for the file to set; names it and says what to do.
    """
    with_key = "base_url" in filed and "base_url" not in given
    left = {
        setting: one
        for setting, one in filed.items()
        if setting not in given or (with_key and setting == "api_key")
    }
    for setting, one in left.items():
        _check(setting, one)
    values: dict[str, str | None] = {setting: one.value for setting, one in left.items()}
    if with_key:
        _check_address(left["base_url"], has_key="api_key" in left)
        values.setdefault("api_key", None)
    return values


def _check(setting: str, one: Filed) -> None:
    if "${" in one.value:
        raise SpecError(
            f"{one.variable}: {NAME} is read as it stands, so ${{…}} is not filled in: write the "
            "value itself, or set the variable in the environment"
        )
    is_file = setting == "model" and one.value.endswith(".gguf")
    if setting in _PLACES or is_file:
        option = "--model" if is_file else _PLACES[setting]
        instead = f" or give {option}" if option else ""
        raise SpecError(
            f"{one.variable}: {NAME} can't set what names files or commands: take it out of there, "
            f"and set it in the environment{instead}"
        )


def _check_address(one: Filed, *, has_key: bool) -> None:
    if not has_key and not is_loopback(one.value):
        raise SpecError(
            f"{one.variable}: the address in {NAME}, {redacted(one.value)}, is used only with a "
            "key from the same file: put OPENAI_API_KEY there, too (any text, if the server wants "
            f"none), or set {one.variable} in the environment"
        )
    if os.environ.get("OPENAI_CUSTOM_HEADERS"):
        # OpenAI's client sends them to whatever address it is given.
        raise SpecError(
            f"{one.variable}: the address in {NAME} is not used while OPENAI_CUSTOM_HEADERS is "
            f"set, since these headers would be sent there: set {one.variable} in the environment"
        )
