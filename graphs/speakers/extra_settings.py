"""Further settings of a model call, which only the model's provider knows.

Whether they collide with those of each call is checked by the adapter of the model.
"""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, JsonValue

_SENT: Final = ("authorization", "content-length", "content-type", "host", "user-agent")

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.1)."""

_TEXT: Final = re.compile(r"[\x20-\x7e]*")


def _check_headers(given: dict[str, str]) -> dict[str, str]:
    for name, text in given.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} can't be the name of a header")
        if not _TEXT.fullmatch(text):
            raise ValueError(f"{name!r}: a header is one line of ASCII text")
        if name.lower() in _SENT or name.lower().startswith("x-stainless-"):
            raise ValueError(f"{name!r} is set by each call: remove it")
    return given


Further: TypeAlias = dict[str, JsonValue]
"""Settings by the names of the model's provider."""

Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_check_headers)]
"""Headers of a request."""
