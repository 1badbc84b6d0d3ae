"""Replies of servers in the form of OpenAI's API."""

from typing import Any

import pytest

from duologue.graphs.conversation.usage import token_count
from duologue.nodes.models.client.failures import UnreadableReplyError
from duologue.nodes.models.client.reply_reader import failure_in, piece_of_reply, whole_reply
from support.tables import each_row


def message(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = whole_reply({"choices": [{"message": fields}]})["choices"][0]["message"]
    return found


@pytest.mark.parametrize(
    ("told", "count"),
    [
        *((0, 0), (7, 7), (7.0, 7), (6.6, 7), (-1, None), (True, None), (None, None), ("7", None)),
        *((float("nan"), None), (float("inf"), None), (2**64, None), ([7], None)),
    ],
)
def test_what_is_no_count_of_tokens_is_none(told: object, count: int | None) -> None:
    assert token_count(told) == count


@each_row("content_is_text")
def test_content_is_text(content: object, text: str | None) -> None:
    assert message(content=content).get("content") == text


@pytest.mark.parametrize("part", [{"type": "audio", "text": "So."}, {"type": "text"}, {}, None, 5])
def test_content_without_a_readable_part_is_refused(part: object) -> None:
    with pytest.raises(UnreadableReplyError, match=r"^the reply has no text in its content: \["):
        message(content=[part])


def test_whoever_a_reply_is_from_it_is_the_assistants() -> None:
    assert message(role="user")["role"] == "assistant"
    assert message()["role"] == "assistant"


@pytest.mark.parametrize(
    ("calls", "read"),
    [
        (None, []),
        ("x", []),
        (
            [{"id": "c"}, 7, {"function": None}],
            [("c", None, None), (None, None, None), (None,) * 3],
        ),
        ([{"function": {"arguments": " 1}"}}], [(None, None, " 1}")]),
        *(
            (
                [{"id": 7, "index": -1, "function": {"name": ["x"], "arguments": arguments}}],
                [("7", None, text)],
            )
            for arguments, text in (('{"a"', '{"a"'), ({"a": 1}, '{"a": 1}'), ([], "[]"))
        ),
    ],
)
def test_calls_keep_what_was_sent(calls: object, read: list[tuple[str | None, ...]]) -> None:
    found = message(tool_calls=calls).get("tool_calls", [])
    assert [(call["id"], call["name"], call["arguments"]) for call in found] == read
    assert not any("index" in call for call in found)


@pytest.mark.parametrize(
    ("told", "reason"),
    [("length", "length"), ("SAFETY", "SAFETY"), ("eos", "eos"), (5, None), ("", None)],
)
def test_an_ending_keeps_the_providers_word(told: object, reason: str | None) -> None:
    piece = piece_of_reply({"choices": [{"delta": {}, "finish_reason": told}]}, set())
    assert piece["choices"][0]["finish_reason"] == reason


def test_a_filter_may_leave_only_the_reason() -> None:
    [choice] = whole_reply({"choices": [{"finish_reason": "content_filter"}]})["choices"]
    assert (choice["finish_reason"], "content" in choice["message"]) == ("content_filter", False)


def test_usage_that_lacks_a_count_is_not_told() -> None:
    assert piece_of_reply({"usage": {"prompt_tokens": 5}}, set())["usage"] is None
    given = {"prompt_tokens": 5, "completion_tokens": 2.0, "prompt_tokens_details": {"x": -1}}
    assert piece_of_reply({"usage": given}, set())["usage"] == {
        **{"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


@pytest.mark.parametrize(
    "found", [None, [], "x", {}, {"choices": []}, {"choices": [{"delta": {}}]}]
)
def test_a_reply_without_a_message_is_refused(found: object) -> None:
    with pytest.raises(UnreadableReplyError, match=r"^the reply "):
        whole_reply(found)


def test_an_event_may_hold_a_whole_message() -> None:
    call = {"id": "c", "function": {"name": "add", "arguments": "{}"}}
    event = {"choices": [{"message": {"content": "So.", "tool_calls": [call]}}]}
    delta = piece_of_reply(event, set())["choices"][0]["delta"]
    read = {"id": "c", "name": "add", "arguments": "{}"}
    assert delta == {"content": "So.", "tool_calls": [read]}


def test_a_whole_message_adds_only_the_fields_that_no_piece_has_brought() -> None:
    """A server may repeat the whole message at the end of a stream."""
    message = {"content": "So.", "tool_calls": [], "reasoning": "Hm."}
    event = {"choices": [{"delta": None, "message": message, "finish_reason": "stop"}]}
    delta = piece_of_reply(event, {"content"})["choices"][0]["delta"]
    assert delta == {"reasoning": "Hm."}


@pytest.mark.parametrize("choice", [{}, {"message": "So."}, {"text": "So."}])
def test_an_event_whose_choice_says_nothing_is_refused(choice: object) -> None:
    with pytest.raises(UnreadableReplyError, match=r"^the reply contains no message"):
        piece_of_reply({"choices": [choice]}, set())


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
        {"choices": [{"delta": None}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
        {"choices": [{"delta": None, "finish_reason": "stop"}]},
        {"choices": [{"delta": None}]},
        {"type": "ping"},
        {},
    ],
)
def test_an_event_may_add_nothing_to_the_message(event: object) -> None:
    assert not any(choice["delta"] for choice in piece_of_reply(event, set())["choices"])


@each_row("a_failure_of_the_server_is_found_wherever_it_stands")
def test_a_failure_of_the_server_is_found_wherever_it_stands(found: object, told: object) -> None:
    assert failure_in(found) == told
    assert (
        failure_in({"error": None, "choices": [{"message": {"content": "boom"}, "error": {}}]})
        is None
    )
