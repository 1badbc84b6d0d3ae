"""A filter that replaces keys and personal data in texts that are shown or written to files.

The same text is always replaced by the same words, and the words themselves are never replaced. So
two texts that were equal before they were filtered are equal afterwards, and a filtered text can be
filtered again.
"""

import os
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from .addresses import (
    KEY_FORMATS,
    KEY_WORDS,
    SHORT_NAMES,
    USED_SECRETS,
    KnownKeys,
    has_secret,
    is_key_name,
    is_parameter_of_key,
    list_secrets,
    looks_like_key,
)
from .errors import SpecError

T = TypeVar("T")

HIDDEN: Final = "[hidden]"
"""The words that replace a key."""

_ENVIRONMENT_NAME: Final = re.compile(
    r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|_PASS|_PWD|_PAT)"
)

_KEYS: Final = (
    *KEY_FORMATS,
    # The user and the password of an address. A port is no password.
    re.compile(r"(?<=://)[^\s/:@\[\]\"'<>]{0,80}:(?!\d+(?:[/?#\s]|$))[^\s\"'<>]{1,100}(?=@)"),
    # The user of an address, if it is as long as a key.
    re.compile(r"(?<=://)[^\s/:@\[\]\"'<>]{16,400}(?=@)"),
    re.compile(r"(?<=\b[Bb]earer )[\w.~+/=-]{6,}"),
    re.compile(r"(?<=\b[Bb]asic )[\w+/=-]{8,}"),
)

_KEY_TEXT: Final = r"[^\s\"',;&)}\]\\]"

_NAMED_KEY: Final = re.compile(
    rf"(?P<name>(?<![\w-])(?:[\w-]*[-_])?{KEY_WORDS}\\?[\"']?\s*[:=]\s*(?:SecretStr\()?\\?[\"']?)"
    rf"(?!\[hidden\]|(?:bearer|basic)\b)(?P<value>(?={_KEY_TEXT}*\d|{_KEY_TEXT}{{16}}){_KEY_TEXT}{{6,}})",
    re.IGNORECASE,
)
"""A key after its name, as in headers, URLs and the text of a dict. It has a digit or is long,
unlike the words of a sentence."""

_SHORT_NAME: Final = re.compile(
    rf"(?P<name>(?<![\w-])(?:{'|'.join(SHORT_NAMES)})\\?[\"']?\s*[:=]\s*\\?[\"']?)"
    rf"(?P<value>{_KEY_TEXT}{{16,}})",
    re.IGNORECASE,
)
"""A text after a name that has other uses, too. It is a key only if it looks like one."""

_E_MAIL: Final = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")

_RESERVED: Final = re.compile(
    r"(?:.*\.)?(?:example\.(?:com|org|net)|example|test|invalid|localhost)"
)
"""The domains of RFC 2606, which belong to nobody."""

_PHONE: Final = re.compile(r"(?<![\w+])\+\d(?:[ ()./-]{0,2}\d){7,14}\b")

_CARD: Final = re.compile(r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{3,4}(?![\w.-]*\d)")

_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


class SecretsFilter:
    """A filter for keys, and optionally for personal data.

    It hides the values of environment variables whose names end with a word such as ``KEY`` or
    ``TOKEN``, also in base64 and as addresses encode them; the secrets of addresses in the
    environment, and of those that this process uses; keys in the usual formats; and values behind
    names such as ``api_key``. Personal data are e-mail addresses outside the reserved domains, such
    as ``example.com``, international phone numbers, card numbers and IBANs.

    Args:
        personal: Whether to replace personal data, too.
        patterns: Regular expressions of further texts to hide.
        known: Texts that contain no secrets: personal data in them are not replaced elsewhere.
        environment: The environment. That of the process if None.

    Raises:
        SpecError: A pattern is not a regular expression.
    """

    def __init__(
        self,
        *,
        personal: bool = False,
        patterns: Sequence[str] = (),
        known: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._personal = personal
        self._patterns = [*map(_compile, patterns)]
        self._known = "\n".join(known)
        self._values = KnownKeys()
        if environment is None:
            environment = os.environ
            self.remember(*USED_SECRETS.keys)
        for name, value in environment.items():
            if _ENVIRONMENT_NAME.fullmatch(name.upper()):
                self.remember(value)
            elif has_secret(value):
                self.remember(*list_secrets(value))

    def remember(self, *values: str) -> None:
        """Hide keys wherever they occur from now on, if they are long enough to be recognized."""
        for value in values:
            if HIDDEN not in value:
                self._values.add(value)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = self._values.hide(text, HIDDEN)
        for key in (*_KEYS, *self._patterns):
            text = key.sub(HIDDEN, text)
        text = _NAMED_KEY.sub(rf"\g<name>{HIDDEN}", text)
        text = _SHORT_NAME.sub(
            lambda at: f"{at['name']}{HIDDEN}" if looks_like_key(at["value"]) else at[0], text
        )
        if self._personal:
            text = _E_MAIL.sub(self._replace_e_mail, text)
            for kind, pattern in (("iban", _IBAN), ("card", _CARD), ("phone", _PHONE)):
                text = pattern.sub(partial(self._replace, kind), text)
        return text

    def binary(self, data: bytes) -> bytes:
        """Return data that is no text without the known keys."""
        # Latin-1 has a character for each byte.
        return self._values.hide(data.decode("latin-1"), HIDDEN).encode("latin-1")

    def plain(self, value: T) -> T:
        """Return JSON's values without secrets.

        Values of fields with a key's name are hidden, and remembered.
        """
        return self._plain(value)  # type: ignore[no-any-return]  # the same types of JSON

    def _plain(self, value: Any) -> Any:  # noqa: ANN401  # any value of JSON
        match value:
            case str():
                return self.text(value)
            case list() | tuple():
                return [*map(self._plain, value)]
            case dict():
                return {name: self._field(str(name), one) for name, one in value.items()}
        return value

    def _field(self, name: str, value: object) -> Any:  # noqa: ANN401
        if isinstance(value, str) and value:
            is_random = name.lower() in SHORT_NAMES and looks_like_key(value)
            if is_random or is_key_name(name):
                self.remember(value)
                return HIDDEN
        return self._plain(value)

    def headers(self, headers: Mapping[str, object]) -> None:
        """Remember the keys in the headers of a request, which are never written."""
        for name, value in headers.items():
            if is_parameter_of_key(name):
                key = re.sub("(?i)^(?:bearer|basic) ", "", str(value)).strip()
                self.remember(key)
                with suppress(ValueError):
                    # The user and the password (RFC 7617), or another key in base64.
                    self.remember(b64decode(key, validate=True).decode().partition(":")[2])

    def address(self, url: str) -> str:
        """Return a URL without keys in its path and its query, and without a password.

        The other values of the query stay, because they are different requests.
        """
        self.remember(*list_secrets(url))
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        query = urlencode(
            [
                (name, HIDDEN if is_parameter_of_key(name) else self.text(value))
                for name, value in pairs
            ],
            safe="[]",
        )
        place = parts.netloc.rpartition("@")[2]
        # Clients encode the words that replaced a key in an earlier response.
        path = parts.path.replace(quote(HIDDEN), HIDDEN)
        whole = urlunsplit((parts.scheme, place, path, query, ""))
        return self.text(whole)

    def _replace_e_mail(self, found: re.Match[str]) -> str:
        address = found[0]
        if address in self._known or _RESERVED.fullmatch(address.partition("@")[2].lower()):
            return address
        return f"person-{_digest(address.lower())}@example.com"

    def _replace(self, kind: str, found: re.Match[str]) -> str:
        plain = "".join(one for one in found[0] if one.isalnum())
        is_other = kind == "card" and not _is_card(plain)
        if is_other or found[0] in self._known:
            return found[0]
        return f"[{kind} {_digest(plain)}]"


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SpecError(
            f"pattern: {pattern!r} is not a regular expression: {error}; correct it"
        ) from error


def _digest(text: str) -> str:
    """Return six hexadecimal digits: enough to tell texts apart, too few to find them again."""
    return sha256(text.encode()).hexdigest()[:6]


def _is_card(digits: str) -> bool:
    """Return whether the last digit is the check digit of a card number (ISO/IEC 7812)."""
    if not digits.isdecimal():
        return False
    doubled = [int(one) * (1 + place % 2) for place, one in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0
