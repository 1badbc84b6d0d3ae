"""Checks of server addresses, their display without secrets, and the forms of keys.

`show_address` decides which parts of an address people may see. Errors, stored errors and log lines
pass through `hide_addresses`, which applies it to each address in a text. Recordings keep more of
an address, because requests differ by it: see `SecretsFilter.address`.
"""

import logging
import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from ipaddress import ip_address
from json import dumps
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus, unquote_plus, urlsplit
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
            forms = {*self._forms, *_iter_written_forms(key)}
            self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def hide(self, text: str, words: str) -> str:
        """Return a text in which words replace each key."""
        for form in self._forms:
            text = text.replace(form, words)
        return text


def _iter_written_forms(key: str) -> Iterator[str]:
    """Yield a key as programs write it: in HTML, in JSON, in addresses and in base64."""
    yield from (key, escape(key), dumps(key)[1:-1])
    for quoted in (quote(key, safe=""), quote(key), quote_plus(key)):
        yield quoted
        yield re.sub("%..", lambda found: found[0].lower(), quoted)
    # The base64 form, and its part that does not depend on the text around the key.
    data = key.encode(errors="replace")
    yield b64encode(data).decode()
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        # Each character encodes 6 bits.
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        yield encoded[first:last]
        yield encoded[first:last].translate(_URL_SAFE)


_URL_SAFE: Final = str.maketrans("+/", "-_")


OPENAI = "https://api.openai.com/v1"
"""OpenAI's own address, used if no other is set."""

_HIDDEN: Final = "***"


def check_address(text: str) -> str:
    """Return a server's address without surrounding space, or raise an error if it is not valid."""
    text = text.strip()
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


def show_address(address: str) -> str:
    """Return an address for display: without passwords, tokens, values of queries and fragments.

    The address may be invalid, for example because its password is not percent-encoded. The name of
    a database's user and the parameters of a database stay, unless their names are those of keys.
    """
    shown, done = "", 0
    for one in _find_secrets(address):
        shown += address[done : one.start] + _HIDDEN
        done = one.end
    shown += address[done:]
    return shown if _is_of_database(address) else shown.partition("#")[0]


def has_secret(text: str) -> bool:
    """Return whether a text is an address with a secret."""
    return re.match(rf"\s*{_SCHEME}", text) is not None and show_address(text) != text


def hide_addresses(text: str) -> str:
    """Return a text in which each address is displayed by `show_address`.

    Secrets of the addresses that this process uses are hidden without their addresses, too.
    """
    if any(sign in text for sign in ("://", "@", "=")):
        text = _ADDRESS.sub(lambda found: show_address(found[0]), text)
    return USED_SECRETS.hide(text, _HIDDEN)


def remember_secrets(address: str) -> None:
    """Let `hide_addresses` hide the secrets of an address that this process uses.

    Servers and clients can repeat them in their errors, for example without the address.
    """
    for one in list_secrets(address):
        USED_SECRETS.add(one)
    for name in _LOGGERS if has_secret(address) else ():
        # A logger has each filter only once.
        logging.getLogger(name).addFilter(_hide_in_log)


def list_secrets(address: str) -> list[str]:
    """Return the secrets of an address that are recognized elsewhere, too.

    A user without a password and a value of a query are such secrets only if they look like a key,
    or if the value has the name of a key. HTTP clients send a user and a password as one text.
    """
    parts: list[str] = []
    for one in _find_secrets(address):
        value = address[one.start : one.end]
        if one.is_key or looks_like_key(value):
            parts += [value, value.partition(":")[2]]
    return sorted({one for part in parts for one in (part, unquote_plus(part)) if one})


USED_SECRETS: Final = KnownKeys()
"""The secrets of the addresses that this process uses."""

_LOGGERS: Final = (
    *("httpx", "httpx2", "openai._base_client"),
    *("httpcore.http11", "httpcore2.http11", "mcp.client.sse", "mcp.client.streamable_http"),
)
"""The loggers of clients whose messages contain addresses."""


def _hide_in_log(record: logging.LogRecord) -> bool:
    record.msg, record.args = hide_addresses(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = hide_addresses(logging.Formatter().formatException(record.exc_info))
    return True


_SCHEME: Final = r"(?:a2a:)?[A-Za-z][A-Za-z0-9+.-]{0,20}://"

_LIBPQ: Final = (
    r"\b\w*(?:pass(?:word|wd)|secret)\s*=\s*(?P<value>'(?:[^'\\]|\\.)*'|[^\s&;'\"]*[^\s&;'\".,:])"
)
"""A password in libpq's other form of an address, ``host=… password=…``."""

_ADDRESS: Final = re.compile(
    # In quotation marks, as `repr` writes it: the password may contain spaces.
    rf"(?<='){_SCHEME}(?:\\.|[^'\\\n])+(?=')|(?<=\"){_SCHEME}(?:\\.|[^\"\\\n])+(?=\")"
    rf"|\b{_SCHEME}[^\s<>`]*[^\s<>`'\".,;:!?)\]}}]"
    # Without a scheme, or with a mistyped one.
    r"|(?<=['\"])[^\s'\"@:]{1,200}:[^\s'\"@]{1,200}@[^\s'\"]+"
    rf"|{_LIBPQ}"
)


def _is_of_database(address: str) -> bool:
    return re.match(r"\s*(?:postgres(?:ql)?|mysql|sqlite)\b[^:]*:", address) is not None


class _Secret(NamedTuple):
    """A secret part of an address."""

    start: int
    """The index of its first character."""
    end: int
    """The index after its last character."""
    is_key: bool = True
    """Whether it is a key for sure, and not only a user or a value of a query."""


def _find_secrets(address: str) -> Iterator[_Secret]:
    """Yield the secret parts of an address, in their order."""
    found = re.match(rf"\s*{_SCHEME}", address)
    if address.startswith("sqlite:"):
        return
    if found is None and (passwords := [*re.finditer(_LIBPQ, address)]):
        yield from (_Secret(*one.span("value")) for one in passwords)
        return
    if found is None and not re.search(":.*@", address, re.DOTALL):
        return
    start = found.end() if found else 0
    tail = _find_index("[?#]", address, start)
    if "@" in address[tail:]:
        # The ? or # may belong to a password.
        yield _Secret(start, len(address))
        return
    path = _find_end_of_user(address, start, tail)
    # The name of a database's user is no secret.
    user = _find_index(":", address, start) + 1 if _is_of_database(address) else start
    if user < path:
        yield _Secret(user, path - 1, ":" in address[user:path] or _is_of_database(address))
    if not _is_of_database(address):
        yield from _find_keys_in_path(address, path, tail)
    yield from _find_keys_in_query(address, tail)


def _find_index(pattern: str, text: str, start: int) -> int:
    """Return the index of the first match from an index on, or the length of the text."""
    found = re.compile(pattern).search(text, start)
    return len(text) if found is None else found.start()


def _find_end_of_user(address: str, start: int, end: int) -> int:
    """Return the index after the @ behind the user and the password, or `start` if there is none.

    A password that is not percent-encoded can contain @ and /. The @ of a path such as ``/@name``
    does not end a user, unless the text before it can't be a host.
    """
    host = address[start : _find_index("/", address, start)]
    is_host = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d*)?", host) is not None
    at = address.rfind("@", start, end)
    while is_host and at > start and address[at - 1] == "/":
        at = address.rfind("@", start, at)
    return max(start, at + 1)


_ODD_IN_PATH: Final = 6
"""Minimum number of characters of a key in a path that belong to no word and to no number."""


def _find_keys_in_path(address: str, start: int, end: int) -> Iterator[_Secret]:
    """Yield the keys in a path: those in the format of a provider, and random texts."""
    host = _find_index("/", address, start)
    segments = [one.span() for one in re.compile("[^/]+").finditer(address, host, end)]
    keys = [
        *(one.span() for key in KEY_FORMATS for one in key.finditer(address, start, end)),
        *(one for one in segments if count_odd_characters(address[slice(*one)]) >= _ODD_IN_PATH),
    ]
    for first, last in sorted(keys):
        if first >= start:
            yield _Secret(first, last)
            start = last


def _find_keys_in_query(address: str, start: int) -> Iterator[_Secret]:
    end = _find_index("#", address, start)
    for one in re.compile("[^?&]+").finditer(address, start, end):
        name, _, value = one[0].partition("=")
        is_key = is_parameter_of_key(name)
        if is_key or not _is_of_database(address):
            # A text without a name may be a key in base64, which ends with =.
            begin = len(name) + 1 if value.strip("=") else 0
            yield _Secret(one.start() + begin, one.end(), is_key)


def is_loopback(url: str) -> bool:
    """Return whether an address points to this machine, without asking a name server."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if set("@\\%") & set(parts.netloc):
        return False
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
