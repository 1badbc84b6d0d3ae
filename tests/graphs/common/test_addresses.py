"""The display of addresses: no secret is shown, however the address is written."""

from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from duologue.graphs.common.addresses import has_secret, hide_addresses, show_address
from duologue.graphs.common.errors import DuologueError

SHOWN = {
    # Users and passwords, also those that are not percent-encoded.
    "a2a:http://user:password@host?token=abc": "a2a:http://***@host?token=***",
    "http://u:p%40ss@[::1]:8000/v1?a=b": "http://***@[::1]:8000/v1?a=***",
    "http://u:p@ss@host/v1#part": "http://***@host/v1",
    "http://u:p/ss@host/v1": "http://***@host/v1",
    "http://u:p?ss@host/v1": "http://***",
    "http://u:p#ss@host/v1": "http://***",
    "http://u:p ss@host/v1": "http://***@host/v1",
    "http://u:ss/@host/v1": "http://***@host/v1",
    "https://sk_live_1:@host/v1": "https://***@host/v1",
    "https://TOKEN@host/v1": "https://***@host/v1",
    "wss://u:ss@host/x": "wss://***@host/x",
    "redis://:ss@host/0": "redis://***@host/0",
    # Without a scheme, or with a mistyped one.
    "user:ss@host:8000/v1": "***@host:8000/v1",
    "http:/user:ss@host": "***@host",
    # The @ of a path.
    "https://host/@owner/name/mcp?api_key=ss": "https://host/@owner/name/mcp?api_key=***",
    "http://localhost:80/@owner/mcp": "http://localhost:80/@owner/mcp",
    # Queries and fragments.
    "https://b.s3.amazonaws.com/x.png?X-Amz-Expires=3&X-Amz-Signature=ss": (
        "https://b.s3.amazonaws.com/x.png?X-Amz-Expires=***&X-Amz-Signature=***"
    ),
    "https://h/v1?key=ss&sig=ss&flag": "https://h/v1?key=***&sig=***&***",
    "https://h/v1?QUJDRA==": "https://h/v1?***",
    # Keys in paths, and paths without keys.
    "https://api.telegram.org/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe": (
        "https://api.telegram.org/***/getMe"
    ),
    "https://hooks.slack.com/services/T0001/B0002/secretword": "https://hooks.slack.com/***",
    "https://mcp.example/s/NTk4ZDY0OTktYjM4ZC00/mcp": "https://mcp.example/s/***/mcp",
    "http://127.0.0.1:2024/a2a/fe096781-5601-53d2-b2f6-0d3403f7e9ca": None,
    "https://generativelanguage.googleapis.com/v1beta/openai/": None,
    "https://host/openai/deployments/gpt-4o-2024-08-06/speech2text": None,
    # Databases: the user's name and the server's parameters stay.
    "postgresql://me:ss@host/db?x=1&sslmode=require": (
        "postgresql://me:***@host/db?x=1&sslmode=require"
    ),
    "postgresql://me:s@s/s@host/db": "postgresql://me:***@host/db",
    "postgresql://host/db?user=me&password=ss&sslpassword=ss": (
        "postgresql://host/db?user=me&password=***&sslpassword=***"
    ),
    "postgresql://me@host/db": None,
    "host=localhost password=ss dbname=x": "host=localhost password=*** dbname=x",
    "dbname=x password = 's s'": "dbname=x password = ***",
    # Files are no addresses of servers.
    "sqlite:////home/me@corp/tmpAb12Cd34Ef56/x.db": None,
    "/home/a:b/x.db": None,
    "memory:x": None,
}
"""The addresses, each with its display. None if the address itself is shown."""


def test_an_address_is_shown_without_its_secrets() -> None:
    shown = {address: show_address(address) for address in SHOWN}
    assert shown == {address: wanted or address for address, wanted in SHOWN.items()}
    assert [one for one in shown.values() if show_address(one) != one] == []


def test_addresses_in_errors_are_hidden() -> None:
    texts = {
        "at http://u:ss@h/x?token=ss; check (http://u:ss@h/?b=ss).": (
            "at http://***@h/x?token=***; check (http://***@h/?b=***)."
        ),
        # As `repr` quotes them.
        f"not {'http://u:s s@h/v1'!r}": "not 'http://***@h/v1'",
        f"""not {"http://u:s's@h/v1"!r}""": 'not "http://***@h/v1"',
        "don't call 'http://h' if it's http://u:ss@h": "don't call 'http://h' if it's http://***@h",
        "must begin with http://, not 'user:ss@host/v1'": (
            "must begin with http://, not '***@host/v1'"
        ),
        "can't connect by host=h password=ss: refused": (
            "can't connect by host=h password=***: refused"
        ),
        "mail ann@shop.de about a = b, 'c:d' and http://shop.de/@ann": None,
    }
    shown = {text: hide_addresses(text) for text in texts}
    assert shown == {text: wanted or text for text, wanted in texts.items()}
    assert str(DuologueError(next(iter(texts)))) == next(iter(shown.values()))
    # The address is read before a long text is shortened.
    long = f"{'x' * 1150} http://user:{'secret' * 40}@host/ {'y' * 9000}"
    assert "secret" not in str(DuologueError(long))


@given(
    st.text(min_size=4).map(lambda text: f"S3{text}"),
    st.sampled_from(["http", "https", "wss", "a2a:http", "postgresql", "ftp"]),
    st.booleans(),
)
def test_no_password_is_shown(password: str, scheme: str, encoded: bool) -> None:
    written = quote(password, safe="") if encoded else password
    address = f"{scheme}://me:{written}@host:80/path"
    assert has_secret(address)
    for text in (show_address(address), hide_addresses(f"not {address!r}; correct it")):
        assert "S3" not in text


@pytest.mark.parametrize(
    "part", ["a", "'", "a:", "'a", "http://", "x@", "'a:b@", "=password", "a."]
)
def test_a_long_text_is_read_quickly(part: str) -> None:
    """A pattern that tries again at each character would take minutes."""
    text = part * (200_000 // len(part))
    assert len(hide_addresses(text)) <= len(text)
