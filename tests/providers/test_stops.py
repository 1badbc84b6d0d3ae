"""Each provider's reasons to stop before a reply is complete, in conversations by each client."""

import json
from collections.abc import Callable
from html import unescape
from typing import Any, Final

import pytest

from duologue.graphs import Conversation, ModelError, Result
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from support.both_ways import RUNS, run_streamed
from support.log import fields_of
from support.tables import read_rows

from .base import ProviderRequest
from .fakes import client_of, fake
from .google_generative import BLOCKED

Run = Callable[..., Result]

OURS: Final = "ours"
"""The name of this project's own client, which calls the fake of OpenAI's API."""


def talk(**ann: Any) -> Conversation:
    fields = {
        "task": "Tell a story.",
        "speakers": [{"name": "Ann", **ann}, {"name": "Ben"}],
        "end_chat": {"max_iterations": 1},
    }
    return Conversation.model_validate(fields)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat a call without a wait."""
    monkeypatch.setattr("duologue.nodes.models.adapters.base._WAIT", 0)


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def play(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, Any]]:
    """Return a function that runs a conversation with a fake. Ben always says "Fine."."""

    def played(api: str, replies: list[Line], spec: Conversation, **options: Any) -> Any:  # noqa: ANN401
        left = iter(replies)

        def script(prompt: Prompt, request: ProviderRequest) -> Line:
            return next(left, "Fine.")

        with fake("openai_chat" if api == OURS else api, script) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            ours = options.pop("ours", "") or ("gpt-4.1-mini" if api == OURS else "")
            model = ours or client_of(api, server, **options)
            return run(spec, model), server

    return played


def stopped(result: Result) -> list[tuple[str, str, str]]:
    """Return the kind of each message whose model stopped early, with the cause and the word."""
    found = map(fields_of, result.messages)
    return [(one.kind, one.stop.cause.value, one.stop.word) for one in found if one.stop]


def check_shown(result: Result, words: str) -> None:
    """Check that the outcome, `why`, the page and the Markdown contain these words."""
    assert result.outcome is not None
    session = result.session
    for shown in (
        " ".join(result.outcome.warnings),
        " ".join(map(str, result.why())),
        session.export(format="markdown").replace("\\", ""),
        unescape(session.export(format="html")),
    ):
        assert words.casefold() in shown.casefold()


STOPS: Final = read_rows(__file__, "stops")


@pytest.mark.parametrize(("api", "word", "cause"), STOPS)
def test_half_a_text_is_said_and_marked(api: str, word: str, cause: str, play: Any) -> None:  # noqa: ANN401
    half = Reply(text="Once upon a ti", finish_reason=word)
    result, server = play(api, [half], talk())
    assert result.transcript == [("Ann", "Once upon a ti"), ("Ben", "Fine.")]
    assert stopped(result) == [("speech", cause, word)]
    assert len(server.calls) == 2
    check_shown(result, f"({word})")


@pytest.mark.parametrize(("api", "word", "cause"), STOPS)
def test_a_blank_reply_says_why_it_is_blank(api: str, word: str, cause: str, play: Any) -> None:  # noqa: ANN401
    """It is asked for once more, unless nearly the same prompt would be refused again."""
    blank = Reply(text="", finish_reason=word)
    result, server = play(api, [blank] * 9, talk())
    is_asked_again = cause != "refusal"
    expected = ["draft", "speech"] if is_asked_again else ["speech"]
    assert [kind for kind, *_ in stopped(result)] == expected * 2
    assert {one[1:] for one in stopped(result)} == {(cause, word)}
    assert len(server.calls) == len(expected) * 2
    assert result.outcome is not None
    assert result.outcome.reason == "blank_replies"
    assert f"({word})" in str(result.outcome)
    check_shown(result, f"({word})")


def test_a_withheld_reply_is_asked_for_in_other_words(play: Any) -> None:  # noqa: ANN401
    blank = Reply(text="", finish_reason="content_filter")
    result, server = play(OURS, [blank, "Once upon a time."], talk())
    assert result.transcript[0] == ("Ann", "Once upon a time.")
    assert "A content filter withheld your message." in json.dumps(server.calls[1].body)
    assert "Ann: stopped by a content filter (content_filter)" in result.outcome.warnings


@pytest.mark.parametrize("api", [OURS, "openai_chat", "openai_responses"])
def test_a_refusal_is_what_the_speaker_says(api: str, run: Run, play: Any) -> None:  # noqa: ANN401
    if api == "openai_chat" and run is run_streamed:
        pytest.skip("LangChain's client drops a refusal that is streamed")
    result, _ = play(api, [Reply(refusal="I can't help with that.")], talk())
    assert result.transcript == [("Ann", "I can't help with that."), ("Ben", "Fine.")]
    assert [cause for _, cause, _ in stopped(result)] == ["refusal"]
    check_shown(result, "refused by the model")


def test_a_refusal_has_the_providers_explanation(play: Any) -> None:  # noqa: ANN401
    reply = Reply(refusal="It could enable harm.", finish_reason="refusal")
    result, server = play("anthropic", [reply], talk())
    assert len(server.calls) == 2
    check_shown(result, "Refused by the model (refusal): It could enable harm.")


@pytest.mark.parametrize(("api", "word"), read_rows(__file__, "stops_of_calls"))
def test_a_call_before_a_stop_does_not_run(api: str, word: str, play: Any) -> None:  # noqa: ANN401
    half = {"expression": "2 * 3"} if api in ("google", "mistral") else '{"expression": "2 *'
    call = ScriptedToolCall(name="calculator", args=half, id="abcdefgh1")
    stop = Reply(tool_calls=(call,), finish_reason=word)
    result, _ = play(api, [stop, "It is 6."], talk(tools=["calculator"]))
    ran = [one for one in result.messages if one.type == "tool" and one.status != "error"]
    assert not ran
    assert result.transcript[0] == ("Ann", "It is 6.")
    assert stopped(result)[0][2] == word


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_gemini_can_t_read_is_asked_for_again(word: str, play: Any) -> None:  # noqa: ANN401
    good = ScriptedToolCall(name="calculator", args={"expression": "2 * 3"}, id="c1")
    blank = Reply(text="", finish_reason=word)
    replies = [blank, Reply(tool_calls=(good,)), "It is 6."]
    result, server = play("google", replies, talk(tools=["calculator"]))
    assert result.transcript[0] == ("Ann", "It is 6.")
    assert stopped(result) == [("draft", "call", word)]
    assert "Your tool call was not accepted." in json.dumps(server.calls[1].body)


def test_a_blocked_prompt_is_not_sent_again(play: Any) -> None:  # noqa: ANN401
    blocked = Reply(text="", finish_reason=BLOCKED)
    result, server = play("google", [blocked], talk())
    assert result.transcript == [("Ann", ""), ("Ben", "Fine.")]
    assert len(server.calls) == 2
    check_shown(result, "the provider blocked the prompt (PROHIBITED_CONTENT)")


@pytest.mark.parametrize(("api", "error", "cause"), read_rows(__file__, "blocks"))
def test_an_error_that_blocks_a_prompt_or_an_answer_is_a_stop(
    api: str,
    error: dict[str, Any],
    cause: str,
    play: Any,  # noqa: ANN401
) -> None:
    blocked = Reply(error=400, body={"type": "error", "error": error})
    result, server = play(api, ["Once.", blocked], talk())
    is_asked_again = cause == "content_filter"
    assert result.transcript == [("Ann", "Once."), ("Ben", "Fine." if is_asked_again else "")]
    assert [found for _, found, _ in stopped(result)] == [cause]
    assert len(server.calls) == (3 if is_asked_again else 2)
    check_shown(result, "content filter" if is_asked_again else "the provider blocked the prompt")


THINKING: Final[dict[str, dict[str, Any]]] = read_rows(__file__, "showing_thoughts")
"""The clients with a model that thinks, and its options."""


@pytest.mark.parametrize("api", THINKING)
def test_a_thought_that_uses_up_all_tokens_is_not_asked_for_again(api: str, play: Any) -> None:  # noqa: ANN401
    most = 4096 if api == "anthropic" else 2000
    thought = Reply(reasoning="I think and think and", finish_reason="length")
    spec = talk(model_settings={"max_tokens": most})
    called = "deepseek" if api == OURS else api
    result, server = play(called, [thought], spec, **THINKING[api])
    assert result.transcript == [("Ann", ""), ("Ben", "Fine.")]
    assert [one[:2] for one in stopped(result)] == [("speech", "thought")]
    assert len(server.calls) == 2
    check_shown(result, f"its thought used up the {most:,} tokens of max_tokens")


SEARCHING: Final = talk(tools=["calculator"])
"""A conversation with a tool, without which LangChain's client expects no tool of the server."""


def test_a_paused_answer_is_continued(run: Run, play: Any) -> None:  # noqa: ANN401
    """Anthropic's rule: the answer so far is sent back unchanged, after the prompt."""
    pause = Reply(text="I search. ", finish_reason="pause_turn")
    result, server = play("anthropic", [pause, pause, "The tide is low."], SEARCHING)
    assert result.transcript[0] == ("Ann", "I search. I search. The tide is low.")
    assert not stopped(result)
    assert len(server.calls) == 4
    last = server.calls[2].body["messages"][-1]
    assert last["role"] == "assistant"
    kinds = [part["type"] for part in last["content"]]
    assert kinds == ["text", "server_tool_use"] * 2
    assert last["content"][1]["input"] == {"query": "tides"}
    assert result.outcome.total.output_tokens == sum(map(len, (["I", "search."] * 2, "0123", "4")))


def test_an_answer_is_not_continued_without_end(play: Any) -> None:  # noqa: ANN401
    pause = Reply(text="I search. ", finish_reason="pause_turn")
    result, server = play("anthropic", [pause] * 6, SEARCHING)
    assert stopped(result) == [("speech", "pause", "pause_turn")]
    assert result.transcript[0][1].count("I search.") == 6
    assert len(server.calls) == 7
    check_shown(result, "paused by the provider (pause_turn)")


FAILURES: Final = read_rows(__file__, "failures")


@pytest.mark.parametrize(
    ("api", "word", "text"),
    # Ollama sends no text before "load".
    [
        (*one, text)
        for one in FAILURES
        for text in ("", "Once upon")
        if not (text and "load" in one)
    ],
)
def test_a_failure_of_the_server_is_repeated(api: str, word: str, text: str, play: Any) -> None:  # noqa: ANN401
    failed = Reply(text=text, finish_reason=word)
    result, server = play(api, [failed, failed, "Once upon a time."], talk())
    assert result.transcript[0] == ("Ann", "Once upon a time.")
    assert not stopped(result)
    assert len(server.calls) == 4
    assert server.calls[0].prompt == server.calls[2].prompt


@pytest.mark.parametrize(("api", "word"), FAILURES)
def test_a_failure_that_lasts_is_one_error(api: str, word: str, play: Any) -> None:  # noqa: ANN401
    failed = Reply(text="", finish_reason=word)
    with pytest.raises(ModelError, match=r"stops each answer before its first word \(\w+\)"):
        play(api, [failed] * 9, talk())


def test_half_a_text_of_a_failure_that_lasts_is_said(play: Any) -> None:  # noqa: ANN401
    failed = Reply(text="Once upon", finish_reason="abort")
    result, _ = play(OURS, [failed] * 3, talk())
    assert result.transcript[0] == ("Ann", "Once upon")
    check_shown(result, "stopped by a failure of the server (abort)")


@pytest.mark.parametrize("form", ["structured", "lines"])
@pytest.mark.parametrize("api", [OURS, "openai_responses", "anthropic", "google"])
def test_a_refused_verdict_is_unreadable_with_the_reason(api: str, form: str, play: Any) -> None:  # noqa: ANN401
    judge = {"kind": "separate", "criteria": ["Ben agrees."], "form": form}
    word = {"anthropic": "refusal", "google": "SAFETY"}.get(api, "stop")
    refusal = None if api == "google" else "1: met, but no, I can't judge."
    refused = Reply(text="", refusal=refusal, finish_reason=word)
    spec = talk().replace(
        judge=judge, end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 1}
    )
    result, _ = play(api, ["Once.", "Fine.", refused, refused], spec)
    assert result.outcome is not None
    assert [verdict.readable for verdict in result.outcome.verdicts] == [False]
    reflections = [one for one in map(fields_of, result.messages) if one.kind == "reflection"]
    causes = {one.stop.cause for one in reflections if one.stop is not None}
    assert causes == {"content_filter" if api == "google" else "refusal"}
    check_shown(result, "the verdict of the judge: ")


@pytest.mark.parametrize(
    ("word", "cause"),
    [("PROHIBITED_CONTENT", "content_filter"), ("MALFORMED_FUNCTION_CALL", "call")],
)
def test_the_native_reason_of_openrouter_is_read(word: str, cause: str, play: Any) -> None:  # noqa: ANN401
    """OpenRouter's own client drops this field, so LangChain's client does not know it."""
    half = Reply(text="Half of it", finish_reason=word)
    result, _ = play("openrouter", [half], talk(), ours="openai/gpt-5")
    assert stopped(result) == [("speech", cause, word)]
