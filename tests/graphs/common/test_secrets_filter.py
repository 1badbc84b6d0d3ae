"""The filter of keys and personal data: what it hides, what it keeps, and that it is stable."""

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from duologue import SpecError
from duologue.graphs.common.secrets_filter import SecretsFilter

ENVIRONMENT = {
    "SHOP_API_KEY": "abc-def<123",
    "PATH": "/usr/bin:/bin",
    "MODE_TOKEN": "test",
    "SHOP_URL": "https://shop:word-of-shop@shop.example/api?token=token-of-shop",
}

RANDOM = "Kd83hfQm20dkWq7x"
"""A text that looks like a key."""

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
    ("https://ann:p@ss/w12@shop.example/x", "ss/w12"),
    ("https://ghx-0123456789abcdef@shop.example/x", "ghx-0123456789abcdef"),
    # Values of the environment in other forms.
    ("https://shop.example/?q=abc-def%3c123", "abc-def%3c123"),
    ("https://shop.example/?q=abc-def%3C123", "abc-def%3C123"),
    (b64encode(b"abc-def<123").decode(), "YWJjLWRlZjwxMj"),
    (b64encode(b"u:abc-def<123!").decode(), "FiYy1kZWY8MTIz"),
    (urlsafe_b64encode(b"me:abc-def<123").decode(), "YWJjLWRlZjwxMj"),
    ("The server repeats word-of-shop.", "word-of-shop"),
    ("The server repeats token-of-shop.", "token-of-shop"),
    # Formats of providers.
    ("https://api.telegram.org/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe", "AAHdq"),
    ("https://hooks.slack.com/services/T0001/B0002/secretword", "secretword"),
    ("https://discord.com/api/webhooks/1234/abcdefghijklmnopqrstuvwx", "abcdefghijkl"),
    ("r8_abcdefghijklmnopqrstuvwxyz012345", "r8_abc"),
    ("nvapi-abcdefghijklmnopqrstuvwxyz012345", "nvapi-abc"),
    # Names with other uses, before a text that looks like a key.
    (f'{{"key": "{RANDOM}"}}', RANDOM),
    (f'{{\\"key\\": \\"{RANDOM}\\"}}', RANDOM),
    (f"https://shop.example/x?page=2&sig={RANDOM}", RANDOM),
    ("a token eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc", "eyJhbGciOiJIUzI1"),
]

PLAIN = [
    'max_tokens: 1000000, {"total_tokens": 12345678}',
    "The refund token: thanks. Bearer of bad news.",
    "order 1042, 19.90, 2026-11-26T00:15:20, f3a9c2d4",
    "test /usr/bin:/bin",
    "ssh://git@shop.example/x, http://shop.example:8000/@ann, https://shop.example/a@b",
    "https://shop.example/@ann/bot/2026:11, https://hooks.shop.example/services/refunds/42",
    *(
        json.dumps({"key": value})
        for value in (
            *("refund_policy", "checkout.title.cancel", "user:1042:profile", "ArrowLeft"),
            *("photos/2026/11/IMG_20261126_001520.jpg", "2026-11-26T00:15:20Z", "ISO-8859-1-text"),
            *("550e8400-e29b-41d4-a716-446655440000", "session:1732781234567", "x86_64-linux-gnu"),
            *("processPaymentConfirmationEmail", "Meta-Llama-3.1-8B-Instruct-Turbo", "v1beta1"),
            *("OrderPlacedEventHandlerV2", "gpt-4o-2024-08-06", "internationalization_settings"),
        )
    ),
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
