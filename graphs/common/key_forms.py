"""The forms of keys: the names of their fields, the formats of providers, and random texts."""

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from json import dumps
from typing import Final
from urllib.parse import quote, quote_plus
from uuid import UUID

KEY_WORDS: Final = (
    r"(?:api[-_]?key|secret(?:[-_](?:access[-_])?key)?|access[-_]?key|private[-_]?key"
    r"|(?:ssl)?pass(?:word|wd|phrase)"
    r"|(?:access|auth|refresh|id|session|bearer)[-_]?token|token|(?:proxy[-_])?authorization"
    r"|credentials?|client[-_]?secret|signature|(?:set[-_])?cookie)"
)
"""The last words of names whose values are keys, as a regular expression."""

SHORT_NAMES: Final = ("key", "sig", "code", "auth")
"""Names whose values are keys in the query of an address. In JSON, these names have other uses."""

_KEY_NAME: Final = re.compile(rf"(?:.*[-_.])?{KEY_WORDS}", re.IGNORECASE)

KEY_FORMATS: Final = (
    # Formats of keys that providers publish.
    re.compile(
        r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|ghu|github_pat|glpat|pypi|r8|nvapi)[-_][\w-]{16,}"
    ),
    re.compile(r"\b(?:AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})"),
    # The token of a bot, in the path of an address: https://core.telegram.org/bots/api
    re.compile(r"(?:(?<=bot)|(?<!\w))\d{6,12}(?::|%3[Aa])[\w-]{30,}"),
    # The paths of webhooks of Slack and Discord:
    # https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    re.compile(r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/%-]+"),
    re.compile(r"(?<=/api/webhooks/)\d+/[\w-]{20,}"),
    # JSON Web Tokens.
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?"),
    re.compile(r"(?<=-----BEGIN PRIVATE KEY-----)[^-]+|(?<=-----BEGIN RSA PRIVATE KEY-----)[^-]+"),
)
"""Keys that are recognized without a name."""

_ODD: Final = 12
"""Minimum number of characters of a key that belong to no word and to no number."""

_ORDINARY: Final = re.compile(
    # Words such as `refund`, `OrderPlaced`, `order1042`, `speech2text` and `405b`, numbers, and
    # versions such as `v1beta1`.
    r"(?:[A-Z]{0,9}[a-z]{2,24}|[A-Z]{2,24}){1,8}V?\d{0,13}|[A-Za-z]\d*|[a-z]{3,9}\d[a-z]{3,9}"
    r"|\d+[A-Za-z]{0,3}|v\d+(?:alpha|beta|rc|preview)\d*|.{1,4}"
)


def is_key_name(name: str) -> bool:
    """Return whether a field, a header or a parameter with this name contains a key."""
    return _KEY_NAME.fullmatch(name) is not None


def is_parameter_of_key(name: str) -> bool:
    """Return whether a parameter of an address with this name contains a key."""
    return name.lower() in SHORT_NAMES or is_key_name(name)


def count_odd_characters(text: str) -> int:
    """Return how many characters belong to random parts: no words, numbers, versions or UUIDs."""
    try:
        UUID(text)
    except ValueError:
        parts = re.findall("[A-Za-z0-9]+", text)
        return sum(len(part) for part in parts if not _ORDINARY.fullmatch(part))
    return 0 if "-" in text else len(text)


def looks_like_key(text: str) -> bool:
    """Return whether a text is as long and as random as keys are."""
    shape = re.fullmatch(r"(?=.*\d|.{24})[\w+/=.~:-]{16,}", text, re.ASCII)
    return shape is not None and count_odd_characters(text) >= _ODD


SHORTEST_KNOWN: Final = 8
"""Length of the shortest key that is recognized by its text, in characters. Shorter texts, such as
``test``, also occur in ordinary words."""


class KnownKeys:
    """Keys that are recognized by their text, in all forms in which programs write them."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._forms: list[str] = []

    def add(self, key: str) -> None:
        """Recognize a key from now on, if it is long enough."""
        if len(key) >= SHORTEST_KNOWN and key not in self.keys:
            self.keys.add(key)
            forms = {*self._forms, *written_forms(key)}
            self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def hide(self, text: str, words: str) -> str:
        """Return a text in which words replace each key."""
        for form in self._forms:
            text = text.replace(form, words)
        return text


def written_forms(key: str) -> set[str]:
    """Return a key as programs write it: in HTML, in JSON, in addresses and in base64."""
    quoted = {quote(key, safe=""), quote(key), quote_plus(key)}
    lower = {re.sub("%..", lambda found: found[0].lower(), one) for one in quoted}
    return {key, escape(key), dumps(key)[1:-1], *quoted, *lower, *_base64_forms(key)}


def _base64_forms(key: str) -> Iterator[str]:
    """Yield a key's base64 form, and its part that does not depend on the text around the key."""
    data = key.encode(errors="replace")
    yield b64encode(data).decode()
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        # Each character encodes 6 bits.
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        yield encoded[first:last]
        yield encoded[first:last].translate(_URL_SAFE)


_URL_SAFE: Final = str.maketrans("+/", "-_")
