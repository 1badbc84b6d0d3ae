"""The filter of keys and personal data: what it hides, what it keeps, and that it is stable."""

import pytest

from duologue import SpecError
from duologue.graphs.common.secrets_filter import SecretsFilter

ENVIRONMENT = {"SHOP_API_KEY": "abc-def<123", "PATH": "/usr/bin:/bin", "MODE_TOKEN": "test"}

SECRET = [
    ("the key is abc-def<123.", "abc-def<123"),
    ("on a page: abc-def&lt;123", "abc-def&lt;123"),
    ("Authorization: Bearer abcdefghij", "abcdefghij"),
    ("{'X-Api-Key': 'hello12345'}", "hello12345"),
    ('{"token": "abcdefgh1"}', "abcdefgh1"),
    ('{\\"password\\": \\"abcdefgh1\\"}', "abcdefgh1"),
    ("api_key=SecretStr('abcdefgh1')", "abcdefgh1"),
    ("refused: sk-proj-abcdefghijklmnopqrst", "sk-proj-abcdefghijklmnopqrst"),
    ("postgresql://ann:pw12@db/shop", "pw12"),
    ("a token eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc", "eyJhbGciOiJIUzI1"),
]

PLAIN = [
    'max_tokens: 1000000, {"total_tokens": 12345678}',
    "The refund token: thanks. Bearer of bad news.",
    "order 1042, 19.90, 2026-11-26T00:15:20, f3a9c2d4",
    "test /usr/bin:/bin",
]


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


def test_own_patterns_are_hidden_and_a_wrong_one_is_named() -> None:
    secrets = SecretsFilter(patterns=[r"customer-\d+"], environment={})
    assert secrets.text("customer-77 and customer-x") == "[hidden] and customer-x"
    with pytest.raises(SpecError, match=r"pattern: '\(' is not a regular expression"):
        SecretsFilter(patterns=["("])
