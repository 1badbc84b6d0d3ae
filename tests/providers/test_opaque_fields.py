"""Fields that a provider requires back in later requests, and calls that other models made."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel

from duologue.graphs import (
    Conversation,
    Result,
    Speaker,
    ask,
    converse,
    load_session,
    remember,
    stream,
)
from duologue.nodes.testing import (
    Line,
    Prompt,
    Reply,
    Script,
    ScriptedChatModel,
    ScriptedToolCall,
)
from duologue.tools import Turn
from support.log import fields_of, kind_of
from support.models import Chat
from support.tables import read_rows

from .base import FakeServer, ProviderRequest
from .fakes import client_of, fake
from .gemini_openai import SIGNATURE
from .google_rules import SIGNATURE as GOOGLES

APIS: Final[dict[str, tuple[str, dict[str, Any]]]] = read_rows(__file__, "thinking_clients")
"""The API of each client, and the options with which its model thinks."""


def look(place: str) -> str:
    """Look somewhere."""
    return f"Nothing in {place}."


def script(prompt: Prompt, request: ProviderRequest) -> Line:
    """Call the tool in each turn, or hand over, and then answer; think in each message."""
    number = f"{len(prompt):03}"
    if request.tools == ["look", "hand_off"] and prompt[-1]["role"] == "tool":
        args = {"to": "Bob", "message": f"It is empty, says {number}."}
        over = ScriptedToolCall(name="hand_off", args=args, id=f"abcdef{number}")
        return Reply(tool_calls=(over,), reasoning=f"Ask Bob at {number}.")
    if prompt[-1]["role"] == "tool" or not request.tools:
        return Reply(text=f"It is empty, says {number}.", reasoning=f"Now I know {number}.")
    call = ScriptedToolCall(name="look", args={"place": number}, id=f"abcdef{number}")
    return Reply(tool_calls=(call,), reasoning=f"Look at {number}.")


@contextmanager
def model_of(
    name: str, answers: Script = script
) -> Iterator[tuple[BaseChatModel, FakeServer[Any]]]:
    """Yield the client of an API whose models think, and its fake."""
    api, options = APIS[name]
    with fake(api, answers) as server:
        yield client_of(api, server, **options), server


REQUIRING: Final = [
    "google",
    "gemini through OpenAI's API",
    "deepseek",
    "deepseek through OpenAI's API",
]
"""Clients of providers that require fields of calls in later requests."""

ANN: Final = Speaker("Ann", tools=[look])
BOB: Final = Speaker("Bob", model="bob")
MODELS: Final = {"bob": ScriptedChatModel(lambda prompt: "I see.")}


def talk(*speakers: Speaker, rounds: int = 3, **fields: Any) -> Conversation:
    return Conversation(
        "Plan.", [*(speakers or (ANN, BOB))], end_chat={"max_iterations": rounds}, **fields
    )


def run(conversation: Conversation, model: Chat, **options: Any) -> Result:
    options = {"store": "memory:fields", "models": MODELS, "tools": [look], **options}
    return converse(conversation, model=model, **options)


def by_next_turn(model: BaseChatModel) -> Result:
    return run(talk(), model)


def by_stream(model: BaseChatModel) -> Result:
    events = list(stream(talk(), model=model, models=MODELS, tools=[look], store="memory:fields"))
    assert events[0].event == "session"
    return run(talk(), model, session=events[0].session)


def by_ask(model: BaseChatModel) -> Result:
    session = uuid4().hex
    for question in ("Here?", "There?", "Where?"):
        found = ask(ANN, question, session=session, model=model, store="memory:fields")
    return found


def by_remember(model: BaseChatModel) -> Result:
    known = remember(ANN, run(talk(), model))
    # As a file would contain it.
    spec = Conversation.model_validate_json(talk(known, BOB).model_dump_json())
    return run(spec, model)


def by_set_memory(model: BaseChatModel) -> Result:
    first = run(talk(rounds=1), model)
    second = run(talk(rounds=1), model)
    second.session.set_memory("Ann", first.memory("Ann"))
    branch = second.session.fork(end_chat={"max_iterations": 3})
    return branch.resume(model=model, models=MODELS, tools=[look])


def by_own_judge(model: BaseChatModel) -> Result:
    ann = ANN.replace(task="Look.", checks_completion=True)
    return run(talk(ann, BOB, judge={"form": "two_questions"}), model)


def by_handoff(model: BaseChatModel) -> Result:
    return run(talk(turn_order="handoff"), model)


def by_fork(model: BaseChatModel) -> Result:
    branch = run(talk(), model).session.fork(end_chat={"max_iterations": 5})
    return branch.resume(model=model, models=MODELS, tools=[look])


def by_resume(model: BaseChatModel) -> Result:
    def fail(turn: Turn) -> str:
        if failures:
            raise failures.pop()
        return "I see."

    failures = [RuntimeError("down")]
    bob = Speaker("Bob", replies=[{"kind": "function", "name": "fail"}])
    session = uuid4().hex
    with pytest.raises(RuntimeError, match="down"):
        run(talk(ANN, bob), model, session=session, functions={"fail": fail})
    return run(talk(ANN, bob), model, session=session, functions={"fail": fail})


def by_inner_conversation(model: BaseChatModel) -> Result:
    return run(talk(Speaker("Team", replies=[talk()]), BOB), model)


def by_dump(model: BaseChatModel) -> Result:
    first = run(talk(), model)
    loaded = load_session(first.session.dump(), store="memory:loaded")
    branch = loaded.fork(end_chat={"max_iterations": 5})
    return branch.resume(model=model, models=MODELS, tools=[look])


WAYS: Final = [
    *(by_next_turn, by_stream, by_ask, by_remember, by_set_memory, by_own_judge, by_handoff),
    *(by_fork, by_resume, by_inner_conversation, by_dump),
]


@pytest.mark.part(2)
@pytest.mark.parametrize("name", REQUIRING)
def test_required_fields_come_back_in_every_later_request(
    name: str, subtests: pytest.Subtests
) -> None:
    # Each way with both a native client and a client for OpenAI's API, of different providers.
    for way in WAYS[REQUIRING.index(name) in (1, 2) :: 2]:
        with subtests.test(way.__name__), model_of(name) as (model, server):
            result = way(model)
            assert not server.refused
            assert result.outcome is not None
            assert result.outcome.reason in ("max_iterations", "answered")
            bodies = json.dumps([request.body for request in server.calls[-1:]])
            assert "skip_thought" not in bodies
            assert "I call" not in bodies
            assert "Look at" in bodies or SIGNATURE in bodies or GOOGLES in bodies


@pytest.mark.part(1)
@pytest.mark.parametrize("distance", [1, 4, 6])
def test_another_model_goes_on_in_the_middle_of_a_tool_turn(
    distance: int, subtests: pytest.Subtests
) -> None:
    """Each model goes on after three others, and before three others."""
    names = [*APIS]
    for place, first in enumerate(names):
        second = names[(place + distance) % len(names)]
        with subtests.test(f"{first}, {second}"):
            check_change_of_models(first, second)


def check_change_of_models(first: str, second: str) -> None:
    """Check that two models answer in turn, each to the calls of the other."""
    conversation = talk(ANN.replace(interrupt_on={"look": True}), BOB)
    with model_of(first) as (one, server), model_of(second) as (other, others):
        result = run(conversation, one)
        for model in (other, one, other):
            assert result.pending is not None
            result = result.session.answer(
                {"decisions": [{"type": "approve"}]}, model=model, tools=[look], models=MODELS
            )
    # Some models refuse the default temperature once; then it is left out.
    refused = [*server.refused, *others.refused]
    assert not [text for text in refused if "temperature" not in text]
    assert result.outcome is not None
    assert result.outcome.reason == "max_iterations"


def test_openais_responses_api_receives_its_reasoning_items_again() -> None:
    with model_of("openai's responses") as (model, server):
        run(talk(rounds=1), model)
    items = [one.get("type", "message") for one in server.calls[-1].body["input"]]
    assert items[-3:] == ["reasoning", "function_call", "function_call_output"]


def test_claude_replies_to_another_models_calls_without_thinking() -> None:
    conversation = talk(ANN.replace(interrupt_on={"look": True}), BOB)
    with model_of("ollama") as (other, _), model_of("anthropic") as (claude, server):
        result = run(conversation, other)
        for _ in range(2):
            result = result.session.answer(
                {"decisions": [{"type": "approve"}]}, model=claude, tools=[look], models=MODELS
            )
    # The first request follows the other model's call, the next ones are Claude's own.
    assert ["thinking" in request.body for request in server.calls] == [False, True, True, True]
    assert "Look at" in json.dumps(server.calls[2].body)
    assert not server.refused


def failing(with_results: bool) -> Callable[[Prompt, ProviderRequest], Line]:
    """Return the script of a model whose server fails, either after results or before calls."""

    def answer(prompt: Prompt, request: ProviderRequest) -> Line:
        is_after_results = prompt[-1]["role"] == "tool"
        return Reply(error=400) if is_after_results == with_results else script(prompt, request)

    return answer


FALLBACKS: Final = [name for name in APIS if name != "openai's responses"]
"""The clients whose models accept the default temperature, which no fallback negotiates."""


@pytest.mark.part(1)
@pytest.mark.parametrize("with_results", [True, False])
def test_a_fallback_goes_on_in_the_middle_of_a_tool_turn(
    with_results: bool, subtests: pytest.Subtests
) -> None:
    pairs = pairwise([*FALLBACKS, FALLBACKS[0]])
    for first, second in [*pairs][with_results::2]:
        with subtests.test(f"{first}, {second}"):
            check_fallback(first, second, with_results=with_results)


def check_fallback(first: str, second: str, *, with_results: bool) -> None:
    """Check that the second model answers for the first one, whose server fails."""
    answers = failing(with_results)
    with model_of(first, answers) as (one, server), model_of(second) as (other, others):
        result = run(talk(), one.with_fallbacks([other]))
    assert not [*server.refused, *others.refused]
    assert result.outcome is not None
    assert result.outcome.reason == "max_iterations"
    families = {
        kind_of(message) == "tool_calls": thought.family
        for message in result.messages
        if (thought := fields_of(message).thought) is not None
    }
    # A thought names the model that answered, not the first of the composition.
    if len(families) == 2 and APIS[first][0] != APIS[second][0]:
        assert families[True] != families[False]
