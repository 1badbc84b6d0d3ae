"""The filter of keys and personal data: what it hides, what it keeps, and that it is stable."""

from base64 import b64encode

import pytest

from duologue import SpecError
from duologue.graphs.common.secrets_filter import SecretsFilter
from support.tables import read_rows

ENVIRONMENT = {
    "SHOP_API_KEY": "abc-def<123",
    "PATH": "/usr/bin:/bin",
    "MODE_TOKEN": "test",
    "SHOP_URL": "https://shop:word-of-shop@shop.example/api?token=token-of-shop",
}

RANDOM = "Kd83hfQm20dkWq7x"
"""A text that looks like a key."""

SECRET = read_rows(__file__, "secret")

PLAIN = read_rows(__file__, "plain")


@pytest.mark.parametrize(("text", "secret"), SECRET)
def test_keys_are_hidden_and_filtering_again_changes_nothing(text: str, secret: str) -> None:
    secrets = SecretsFilter(environment=ENVIRONMENT)
    shown = secrets.text(text)
    assert secret not in shown
    assert "[hidden]" in shown
    assert secrets.text(shown) == shown


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert SecretsFilter(personal=True, environment=ENVIRONMENT).text(text) == text


def test_personal_data_are_replaced_consistently_unless_they_are_known() -> None:
    secrets = SecretsFilter(personal=True, known=["My address is ann@shop.de."], environment={})
    text = (
        "ann@shop.de, bob@shop.de, Bob@shop.de, eve@example.com, +49 170 1234567, "
        "4111 1111 1111 1111, 4111 1111 1111 1112, DE89 3704 0044 0532 0130 00"
    )
    shown = secrets.text(text)
    ann, bob, same, eve, phone, card, no_card, iban = shown.split(", ")
    assert (ann, eve, no_card) == ("ann@shop.de", "eve@example.com", "4111 1111 1111 1112")
    assert bob == same != eve
    assert [one.split()[0] for one in (phone, card, iban)] == ["[phone", "[card", "[iban"]
    assert bob.endswith("@example.com")
    assert secrets.text(shown) == shown


def test_values_of_fields_and_of_queries_with_the_name_of_a_key_are_hidden() -> None:
    secrets = SecretsFilter(environment={})
    found = secrets.plain({"api_key": "short", "usage": {"tokens": 3}, "list": ["a", None]})
    assert found == {"api_key": "[hidden]", "usage": {"tokens": 3}, "list": ["a", None]}
    address = secrets.address("https://ann:pw@shop.test/x?key=k&page=2&code=c")
    assert address == "https://shop.test/x?key=[hidden]&page=2&code=[hidden]"
    assert secrets.address(address) == address
    random = {"key": RANDOM, "text": f"Your key is {RANDOM}."}
    assert secrets.plain(random) == {"key": "[hidden]", "text": "Your key is [hidden]."}


def test_keys_in_addresses_and_headers_are_hidden_wherever_they_are_repeated() -> None:
    secrets = SecretsFilter(environment={})
    url = f"https://ann:pass-of-ann@shop.test/{RANDOM}/x?token=token-of-ann&page=2"
    shown = secrets.address(url)
    assert shown == "https://shop.test/[hidden]/x?token=[hidden]&page=2"
    # A client encodes the words in an address from a replayed response.
    assert secrets.address("https://shop.test/%5Bhidden%5D/x") == "https://shop.test/[hidden]/x"
    basic = b64encode(b"bob:pass-of-bob").decode()
    secrets.headers({"Authorization": f"Basic {basic}"})
    for one in ("pass-of-ann", "token-of-ann", RANDOM, basic, "pass-of-bob"):
        assert secrets.text(f"The server repeats {one}.") == "The server repeats [hidden]."
        assert secrets.binary(f"\xff{one}\x00".encode("latin-1")) == b"\xff[hidden]\x00"


def test_own_patterns_are_hidden_and_a_wrong_one_is_named() -> None:
    secrets = SecretsFilter(patterns=[r"customer-\d+"], environment={})
    assert secrets.text("customer-77 and customer-x") == "[hidden] and customer-x"
    with pytest.raises(SpecError, match=r"pattern: '\(' is not a regular expression"):
        SecretsFilter(patterns=["("])
