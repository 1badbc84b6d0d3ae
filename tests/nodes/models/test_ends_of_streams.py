"""A streamed reply needs a sign of its end; the form of a reply is read from its content (R25)."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.outputs import LLMResult

from duologue.graphs import Conversation, ModelError, chat, converse, stream
from duologue.graphs.events import ConversationEnded, Event, MessageSaid, MessageToken, Notice
from support.faulty_server import Sent
from support.replies_in_bytes import (
    EVENTS,
    Server,
    chunk,
    events,
    json_of,
    say,
    stream_of,
    use_server,
    whole,
)

Tool = Callable[..., str]

HALF = chunk({"content": "I will ref"})


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DUOLOGUE_MODEL", "DUOLOGUE_API_KEY"):
        monkeypatch.setenv(name, "m")


def clerk(**fields: Any) -> Conversation:
    """Return a conversation in which a clerk answers one message, and may call a tool."""
    return chat("Refund order 1042.", assistant="Clerk", max_iterations=1, **fields)


def events_of(server: Server, conversation: Conversation | dict[str, Any]) -> list[Event]:
    with use_server(server):
        return list(stream(conversation, store="memory:ends-of-streams"))


def usage_of(server: Server, conversation: Conversation, *, streams: bool) -> tuple[int, int]:
    """Run a conversation, streamed or not; return the tokens of its prompts and answers."""
    if streams:
        ended = events_of(server, conversation)[-1]
        assert isinstance(ended, ConversationEnded)
        used = ended.usage["m"]
    else:
        with use_server(server):
            outcome = converse(conversation, store="memory:ends-of-streams").outcome
        assert outcome is not None
        used = outcome.usage["m"]
    return used.input_tokens, used.output_tokens


def said(found: list[Event]) -> list[tuple[str, bool]]:
    return [(one.text, one.cut_off) for one in found if isinstance(one, MessageSaid)][1:]


def call(arguments: object, place: int = 0, name: str = "refund_orders") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": place, "id": f"c{place}", "type": "function", "function": function}


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": list(made)})


UNENDED = {
    "half a text": [HALF],
    "a name": [calls(call(""))],
    "a name and null": [calls(call(None))],
    "a name without arguments": [calls({"index": 0, "id": "c", "function": {"name": "f"}})],
    "a call and a name": [calls(call('{"only_order": "1"}')), calls(call("", 1))],
    "a whole call": [calls(call('{"only_order": "1"}'))],
    "half the arguments": [calls(call('{"only_or'))],
    "an empty reason": [chunk({"content": "I will"}, "")],
    "usage at the end": [HALF, {"choices": [], "usage": {"prompt_tokens": 5}}],
}


@pytest.fixture
def refunds() -> Iterator[list[Tool]]:
    """Yield a list of a tool that must not run."""

    def refund_orders(only_order: str = "*") -> str:
        """Refund one order, or all of them."""
        ran.append(only_order)
        return "ok"

    ran: list[str] = []
    yield [refund_orders]
    assert ran == []


@pytest.mark.parametrize("name", UNENDED)
def test_a_stream_without_a_sign_of_its_end_is_repeated(name: str, refunds: list[Tool]) -> None:
    """Neither its text counts, nor its calls."""
    with Server(stream_of(*UNENDED[name], done=False)) as server:
        found = events_of(server, clerk(tools=refunds))
    assert said(found) == [("Fine.", False)]
    assert len(server.asked) == 2
    notices = [one.text for one in found if isinstance(one, Notice)]
    assert notices == ["m stopped in mid-answer: trying again"]


def test_an_event_that_is_cut_in_the_middle_is_no_reply() -> None:
    half = events(HALF, HALF, done=False)[:-20]
    with Server(Sent(half, headers=EVENTS)) as server:
        found = events_of(server, clerk())
    assert said(found) == [("Fine.", False)]


ENDED = {
    "a reason only": events(chunk({"content": "So."}), chunk({}, "stop"), done=False),
    "a reason with the text": events(chunk({"content": "So."}, "eos"), done=False),
    "the sign only": events(chunk({"content": "So."})),
    "the sign without an empty line": events(chunk({"content": "So."}))[:-2],
    "a reason without an empty line": events(chunk({"content": "So."}, "stop"), done=False)[:-2],
    "more after the sign": events(chunk({"content": "So."})) + b"data: x\n\n",
}


@pytest.mark.parametrize("name", ENDED)
def test_a_reason_or_the_sign_ends_a_stream(name: str) -> None:
    with Server(Sent(ENDED[name], headers=EVENTS)) as server:
        found = events_of(server, clerk())
    assert said(found) == [("So.", False)]
    assert len(server.asked) == 1


@pytest.mark.parametrize("retries", [0, 4])
def test_a_server_that_never_sends_an_end_is_remembered(
    retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its texts count as cut off, with one warning per session, and no request for the rest."""
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", str(retries))
    talk = {
        "task": "Talk.",
        "speakers": [{"name": name, "on_length": "continue"} for name in ("Ann", "Bob")],
        "end_chat": {"max_iterations": 2},
    }
    unended = stream_of(chunk({"content": "Well, yes."}), done=False)
    monkeypatch.setenv("DUOLOGUE_STORE", "memory:never-an-end")
    with Server(*[unended] * 12) as server, use_server(server):
        for first in (True, False):
            before = len(server.asked)
            found = list(stream(talk))
            messages = [one for one in found if isinstance(one, MessageSaid)]
            assert [one.cut_off for one in messages] == [True] * 4
            assert isinstance(found[-1], ConversationEnded)
            assert len(server.asked) - before == 4 + bool(first and retries)
            (warning,) = [
                one.text for one in found if isinstance(one, Notice) and server.url in one.text
            ]
            assert "finish reason" in warning


@pytest.mark.parametrize("order", ["round_robin", "concurrent"])
def test_an_unended_reply_is_never_continued(order: str) -> None:
    """Also not if it waits in the log for its speaker's turn."""
    talk = {
        "task": "Talk.",
        "speakers": [{"name": name, "on_length": "retry"} for name in ("Ann", "Bob")],
        "end_chat": {"max_iterations": 1},
        "turn_order": order,
    }
    unended = stream_of(chunk({"content": "Yes."}), done=False)
    with Server(*[unended] * 12) as server:
        found = events_of(server, talk)
    messages = [(one.text, one.cut_off) for one in found if isinstance(one, MessageSaid)]
    assert messages == [("Yes.", True)] * 2


def test_a_call_of_an_unended_reply_without_its_arguments_never_runs(refunds: list[Tool]) -> None:
    """Also if the second try ends so, too."""
    unended = stream_of(calls(call("")), done=False)
    with Server(unended, unended) as server:
        found = events_of(server, clerk(tools=refunds))
    assert said(found)[-1] == ("Fine.", False)


FORMS = {
    "plain JSON": json_of(whole("So.")),
    "JSON with a mark": Sent(b"\xef\xbb\xbf" + json.dumps(whole("So.")).encode()),
    "JSON called a stream": Sent(json.dumps(whole("So.")).encode(), headers=EVENTS),
    "events": stream_of(chunk({"content": "S"}), chunk({"content": "o."}, "stop")),
    "events called JSON": Sent(events(chunk({"content": "So."}, "stop"))),
    "events with a mark": Sent(
        b"\xef\xbb\xbf" + events(chunk({"content": "So."}, "stop")), headers=EVENTS
    ),
    "comments": Sent(
        b": hello\n\n\n:\n\n" + events(chunk({"content": "So."}, "stop")), headers=EVENTS
    ),
    "other fields": Sent(
        b"retry: 5\nid: 7\n\n" + events(chunk({"content": "So."}, "stop")), headers={}
    ),
    "empty data": stream_of("", chunk({"content": "So."}), "", chunk({}, "stop")),
    "no delta at first": stream_of(chunk(None), chunk({"content": "So."}), chunk(None, "stop")),
    "the message repeated": stream_of(
        chunk({"content": "S"}),
        chunk({"content": "o."}),
        {
            "choices": [
                {"message": {"role": "assistant", "content": "So."}, "finish_reason": "stop"}
            ]
        },
    ),
    "the message repeated beside an empty delta": stream_of(
        chunk({"content": "So."}), chunk(None, "stop", message={"content": "So."})
    ),
    "pieces of the message": stream_of(
        {"choices": [{"message": {"content": "S"}}]},
        {"choices": [{"message": {"content": "o."}, "finish_reason": "stop"}]},
    ),
    "the message only": stream_of(
        {"choices": [{"message": {"content": "So."}, "finish_reason": "stop"}]}
    ),
    "without spaces": Sent(events(chunk({"content": "So."}, "stop")).replace(b"data: ", b"data:")),
    "with returns": Sent(events(chunk({"content": "So."}, "stop")).replace(b"\n", b"\r\n")),
    "a ping": stream_of({"type": "ping"}, {}, chunk({"content": "So."}, "stop")),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("streams", [False, True])
def test_a_reply_is_read_by_its_content(name: str, streams: bool) -> None:
    """A server may answer in the form that the request did not ask for."""
    with Server(FORMS[name]) as server:
        if streams:
            assert said(events_of(server, clerk())) == [("So.", False)]
        else:
            with use_server(server):
                found = converse(clerk(), store="memory:forms")
            assert [one.text for one in found.messages[1:]] == ["So."]
    assert len(server.asked) == 1
    assert bool(server.asked[0].get("stream")) is streams


@pytest.mark.parametrize("streams", [False, True])
def test_calls_are_read_from_either_form(streams: bool) -> None:
    ran: list[int] = []

    def count(number: int) -> str:
        """Count to a number."""
        ran.append(number)
        return "ok"

    made = call('{"number": 3}', name="count")
    pieces = (calls({**made, "function": {"name": "count", "arguments": '{"num'}}),)
    rest = calls({"index": 0, "function": {"arguments": 'ber": 3}'}})
    other = (
        json_of(whole("", tool_calls=[made]))
        if streams
        else stream_of(*pieces, rest, chunk({}, "tool_calls"))
    )
    with Server(other, say("Done.")) as server:
        usage_of(server, clerk(tools=[count]), streams=streams)
    assert ran == [3]


def test_text_beside_a_call_is_streamed_before_the_text_in_the_call() -> None:
    def count(number: int) -> str:
        """Count to a number."""
        return "ok"

    made = call('{"to_user": "Wait.", "number": 3}', name="count")
    reply = json_of(whole("I count.", tool_calls=[made]))
    for _ in range(8):  # LangChain calls separate callbacks in a random order.
        with Server(reply, say("Done.")) as server:
            talk = clerk(tools=[count], speaks_with_tool_calls=True)
            found = events_of(server, talk)
        texts = [one.text for one in found if isinstance(one, MessageToken)]
        assert texts[:2] == ["I count.", "\n\nWait."]


@pytest.mark.parametrize("streams", [False, True])
def test_usage_is_read_from_either_form(streams: bool) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    plain = json_of({**whole("So."), "usage": usage})
    parts = (chunk({"content": "So."}, "stop"), {"choices": [], "usage": usage})
    with Server(plain if streams else stream_of(*parts)) as server:
        assert usage_of(server, clerk(), streams=streams) == (9, 4)


def test_callbacks_receive_the_usage_by_openais_names() -> None:
    """Tracers read it there."""
    seen: list[dict[str, Any]] = []

    class Handler(AsyncCallbackHandler):
        async def on_llm_end(self, response: LLMResult, **_: Any) -> None:
            seen.append((response.llm_output or {})["token_usage"])

    kinds = {"cached_tokens": 5, "cache_write_tokens": 2, "audio_tokens": 1}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": kinds}
    with Server(json_of({**whole("So."), "usage": usage})) as server, use_server(server):
        converse(clerk(), store="memory:", callbacks=[Handler()])
    assert [told["prompt_tokens_details"] for told in seen] == [kinds]


@pytest.mark.parametrize(
    "nothing", [stream_of(done=False), stream_of(), Sent(b": wait\n\n: wait\n\n", headers=EVENTS)]
)
def test_a_stream_without_a_message_is_repeated(
    nothing: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duologue.nodes.models.client.failures._LONGEST_PAUSE", 0)
    with Server(nothing) as server:
        assert said(events_of(server, clerk())) == [("Fine.", False)]
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "1")
    with (
        Server(nothing, nothing) as server,
        pytest.raises(ModelError, match="the reply contains no message"),
    ):
        events_of(server, clerk())
