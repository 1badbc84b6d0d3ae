"""Rules by which replies and errors of servers and clients are read, with a row for each case."""

import socket
import time
import tomllib
from copy import deepcopy
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_deepseek import ChatDeepSeek
from pydantic import SecretStr

from duologue.graphs import ModelUnavailableError
from duologue.graphs.conversation.usage import token_count
from duologue.graphs.speakers.reply_parts import THOUGHT, Reasoning, Thought
from duologue.nodes.models.client.failures import UnreadableReplyError
from duologue.nodes.models.client.reply_reader import failure_in, piece_of_reply, whole_reply
from duologue.nodes.models.opaque_fields import Family, family_of, prepare_prompt
from duologue.nodes.models.refusals import (
    find_refusal,
    is_for_now,
    is_outage,
    is_unavailable,
    read_retry_seconds,
)
from duologue.nodes.models.reported_errors import lacks_credit, read_status, read_wait
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


# Errors that servers report, and errors that clients raise

ERRORS, ROWS = (
    tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
    for name in ("reported_errors", "refused_calls")
)


def test_an_error_has_the_status_that_fits_it(subtests: pytest.Subtests) -> None:
    for name, (error, status) in (ERRORS["temporary"] | ERRORS["final"]).items():
        with subtests.test(name):
            assert read_status(error) == status
            assert lacks_credit(error) is (status == 402)


@each_row("an_error_may_say_how_long_to_wait")
def test_an_error_may_say_how_long_to_wait(error: object, seconds: float | None) -> None:
    assert read_wait(error) == seconds


def test_how_long_a_server_asks_to_wait() -> None:
    for row in ROWS["how_long_a_server_asks_to_wait"]:
        assert read_retry_seconds(httpx2.Headers(row["headers"])) == row.get("seconds"), row
    until = httpx2.Headers({"retry-after": formatdate(4e9, usegmt=True)})
    assert read_retry_seconds(until) == pytest.approx(4e9 - time.time(), rel=0.01)


class RaisedError(Exception):
    """An error that some client raises."""

    def __init__(self, text: str = "no", **fields: Any) -> None:
        super().__init__(text)
        self.__dict__.update(fields)


def raised(
    text: str = "no", retry_after: str | None = None, causes: int = 0, **fields: Any
) -> Exception:
    """Return the error that a row describes."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    if status := fields.pop("status", None):
        fields["response"] = SimpleNamespace(status_code=status, headers=httpx2.Headers(headers))
    if status := fields.pop("aws", None):
        about = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "4"}}
        fields["response"] = {"ResponseMetadata": about}
    error: Exception = RaisedError(text, **fields)
    for _ in range(causes):
        error = wrapped(error)
    return error


def wrapped(error: Exception) -> Exception:
    outer = RaisedError("It failed.")
    outer.__cause__ = error
    return outer


def round_and_round() -> Exception:
    error = RaisedError()
    error.__cause__ = wrapped(error)
    return error


def test_what_clients_raise(subtests: pytest.Subtests) -> None:
    rows = [(raised(**row.pop("error")), row) for row in deepcopy(ROWS["what_clients_raise"])]
    rows += [(round_and_round(), {}), (ValueError("404"), {})]
    rows += [(wrapped(ModelUnavailableError("There is none.")), {"is_lost": True})]
    for number, (error, row) in enumerate(rows):
        with subtests.test(f"{number}, {row}"):
            assert is_for_now(error) == ("waits" in row)
            assert is_unavailable(error) == row.get("is_lost", False)
            if "waits" in row:
                found = find_refusal(error)
                assert found is not None
                assert (read_retry_seconds(found.headers) or "untold") == row["waits"]


class TimedOutError(httpx2.ReadTimeout):
    """A client's own timeout."""


@pytest.mark.parametrize(
    ("error", "is_down"),
    [
        *((raised(**row), is_down) for row, is_down in ROWS["whether_a_server_is_down"]),
        (wrapped(httpx2.ConnectError("no")), True),
        (wrapped(httpx2.ConnectTimeout("no")), True),
        (wrapped(wrapped(httpx2.ReadError("no"))), True),
        (httpx2.RemoteProtocolError("no"), True),
        (ConnectionResetError("no"), True),
        (wrapped(socket.gaierror("no")), True),
        (wrapped(httpx2.ReadTimeout("no")), False),
        (TimedOutError("no"), False),
        (httpx2.UnsupportedProtocol("no"), False),
        (httpx2.DecodingError("no"), False),
        (ValueError("ConnectError"), False),
        (round_and_round(), False),
    ],
)
def test_whether_a_server_is_down(error: Exception, is_down: bool) -> None:
    assert is_outage(error) is is_down


# The families of models


def test_r26_a_thought_of_an_older_log_goes_back_by_the_rule_of_the_model_that_answers() -> None:
    call = ToolCall(name="look", args={}, id="c1", type="tool_call")
    unknown = Thought(text="Hm.", given=Reasoning(fields={"reasoning_content": "Hm."}))
    block: dict[str, Any] = {"type": "thinking", "thinking": "Hm."}
    about: dict[str, Any] = {"model_provider": "anthropic"}
    of_claude = Thought(text="Hm.", given=Reasoning(blocks=(block,), metadata=about))
    deepseek = family_of(ChatDeepSeek(model_name="deepseek-v4-pro", api_key=SecretStr("k")))

    def sent(thought: Thought, family: Family) -> BaseMessage:
        asked = AIMessage("", tool_calls=[call], additional_kwargs={THOUGHT: thought})
        result = ToolMessage("Nothing.", tool_call_id="c1")
        return prepare_prompt([HumanMessage("Hi."), asked, result], family)[1]

    assert sent(unknown, deepseek).additional_kwargs == {"reasoning_content": "Hm."}
    assert sent(of_claude, deepseek).content == ""
    assert "Hm." not in str(sent(of_claude, deepseek))
    assert "Hm." in str(sent(of_claude, Family("anthropic claude-sonnet-4-5")).content)
