"""The display of addresses: no secret is shown, however the address is written."""

from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from duologue.graphs import DuologueError
from duologue.graphs.common.addresses import has_secret, hide_addresses, show_address
from support.tables import read_rows

SHOWN: dict[str, str] = read_rows(__file__, "shown")
"""The addresses, each with its display."""


def test_an_address_is_shown_without_its_secrets() -> None:
    shown = {address: show_address(address) for address in SHOWN}
    assert shown == SHOWN
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
