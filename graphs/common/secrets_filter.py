"""A filter that replaces keys and personal data in texts that are shown or written to files.

The same text is always replaced by the same words, and the words themselves are never replaced. So
two texts that were equal before they were filtered are equal afterwards, and a filtered text can be
filtered again.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from html import escape
from json import dumps
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from .errors import SpecError

T = TypeVar("T")

HIDDEN: Final = "[hidden]"
"""The words that replace a key."""

_SHORTEST: Final = 8
"""Length of the shortest value of the environment that is hidden, in characters. Shorter values,
such as ``test``, also occur in ordinary texts."""

_KEY_WORDS: Final = (
    r"(?:api[-_]?key|secret(?:[-_](?:access[-_])?key)?|access[-_]?key|private[-_]?key|pass(?:word|wd)"
    r"|(?:access|auth|refresh|id|session|bearer)[-_]?token|token|(?:proxy[-_])?authorization"
    r"|credentials?|client[-_]?secret|signature|(?:set[-_])?cookie)"
)
"""The last words of names whose values are keys."""

_KEY_NAME: Final = re.compile(rf"(?:.*[-_.])?{_KEY_WORDS}", re.IGNORECASE)

_QUERY_NAMES: Final = ("key", "sig", "code", "auth")
"""Further names of keys, in the query of a URL."""

_ENVIRONMENT_NAME: Final = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")

_KEYS: Final = (
    # Formats of keys that providers publish.
    re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|github_pat|glpat|pypi)[-_][\w-]{16,}"),
    re.compile(r"\b(?:AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})"),
    # JSON Web Tokens.
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?"),
    re.compile(r"(?<=-----BEGIN PRIVATE KEY-----)[^-]+|(?<=-----BEGIN RSA PRIVATE KEY-----)[^-]+"),
    # The password of an address.
    re.compile(r"(?<=://)[^\s/:@\[\]]*:[^\s/@\[\]]+(?=@)"),
    re.compile(r"(?<=\b[Bb]earer )[\w.~+/=-]{6,}"),
    re.compile(r"(?<=\b[Bb]asic )[\w+/=-]{8,}"),
)

_KEY_TEXT: Final = r"[^\s\"',;&)}\]\\]"

_NAMED_KEY: Final = re.compile(
    rf"(?P<name>(?<![\w-])(?:[\w-]*[-_])?{_KEY_WORDS}\\?[\"']?\s*[:=]\s*(?:SecretStr\()?\\?[\"']?)"
    rf"(?!\[hidden\]|(?:bearer|basic)\b)(?P<value>(?={_KEY_TEXT}*\d|{_KEY_TEXT}{{16}}){_KEY_TEXT}{{6,}})",
    re.IGNORECASE,
)
"""A key after its name, as in headers, URLs and the text of a dict. It has a digit or is long,
unlike the words of a sentence."""

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
    ``TOKEN``, keys in the usual formats, and values behind names such as ``api_key``. Personal data
    are e-mail addresses outside the reserved domains, such as ``example.com``, international phone
    numbers, card numbers and IBANs.

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
        environment = os.environ if environment is None else environment
        self._values = [
            value
            for name, value in environment.items()
            if len(value) >= _SHORTEST and _ENVIRONMENT_NAME.fullmatch(name.upper())
        ]

    def remember(self, value: str) -> None:
        """Hide a key wherever it occurs from now on, if it is long enough to be recognized."""
        if len(value) >= _SHORTEST and value not in self._values and HIDDEN not in value:
            self._values.append(value)
            self.__dict__.pop("_all_values", None)

    @cached_property
    def _all_values(self) -> re.Pattern[str] | None:
        """Return a pattern of the secret values of the environment, also as pages quote them."""
        quoted = {
            one for value in self._values for one in (value, escape(value), dumps(value)[1:-1])
        }
        longest_first = sorted(quoted, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))) if quoted else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._all_values is not None:
            text = self._all_values.sub(HIDDEN, text)
        for key in (*_KEYS, *self._patterns):
            text = key.sub(HIDDEN, text)
        text = _NAMED_KEY.sub(rf"\g<name>{HIDDEN}", text)
        return self._without_personal_data(text) if self._personal else text

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
        if isinstance(value, str) and value and _KEY_NAME.fullmatch(name):
            self.remember(value)
            return HIDDEN
        return self._plain(value)

    def headers(self, headers: Mapping[str, object]) -> None:
        """Remember the keys in the headers of a request, which are never written."""
        for name, value in headers.items():
            if is_key_name(name):
                self.remember(str(value).removeprefix("Bearer ").strip())

    def address(self, url: str) -> str:
        """Return a URL without keys in its query and without a password."""
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        query = urlencode(
            [(name, HIDDEN if is_key_name(name) else self.text(value)) for name, value in pairs],
            safe="[]",
        )
        place = parts.netloc.rpartition("@")[2]
        whole = urlunsplit((parts.scheme, place, parts.path, query, parts.fragment))
        return self.text(whole)

    def _without_personal_data(self, text: str) -> str:
        text = _E_MAIL.sub(self._replace_e_mail, text)
        for kind, pattern in (("iban", _IBAN), ("card", _CARD), ("phone", _PHONE)):
            text = pattern.sub(partial(self._replace, kind), text)
        return text

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


def is_key_name(name: str) -> bool:
    """Return whether a header or a parameter of a URL with this name contains a key."""
    return name.lower() in _QUERY_NAMES or _KEY_NAME.fullmatch(name) is not None


def _digest(text: str) -> str:
    """Return six hexadecimal digits: enough to tell texts apart, too few to find them again."""
    return sha256(text.encode()).hexdigest()[:6]


def _is_card(digits: str) -> bool:
    """Return whether the last digit is the check digit of a card number (ISO/IEC 7812)."""
    if not digits.isdecimal():
        return False
    doubled = [int(one) * (1 + place % 2) for place, one in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0
