"""Prompts that are too long for a model: how servers report them, and duologue's error."""

import tomllib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from drawn.player import too_long
from duologue.graphs import ContextTooLongError, ModelError
from duologue.graphs.common.settings import Settings
from duologue.graphs.conversation.usage import ESTIMATED
from duologue.graphs.log.metadata import Reflection
from duologue.nodes.models.adapters.composed import first_chat_model
from duologue.nodes.models.answers import normalise_answer, ran_out_of_room
from duologue.nodes.models.refusals import read_too_long
from duologue.nodes.testing import Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.cases import thorough
from support.models import Model, Models, chat_of, chosen, greet, model_at, model_of, silent
from support.replies_in_bytes import Server, chunk, stream_of
from support.tables import each_row, read_rows

Asked = Callable[[Model], Any]


SAID = r"of 3000 tokens .* limit is 2048"


class Sum(BaseModel):
    """A sum."""

    total: int


async def structured(model: Model) -> object:
    return await model.answer_by_schema(
        [HumanMessage("Hi")], Sum, chosen(), purpose=Reflection, instead="judge.form"
    )


async def ours(server: ScriptedServer) -> Model:
    """Return the model that a name in a specification refers to."""
    return await model_at(server.url, max_retries=0)


async def stock(server: ScriptedServer) -> Model:
    """Return a plain client, as a user makes it in Python."""
    chat = ChatOpenAI(model="scripted", base_url=server.url, api_key=SecretStr("k"), max_retries=0)
    return await Models(default=chat).get(None, silent)


def inner(message: str, **fields: object) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None} | fields}


BODIES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("long_prompts.toml").read_text("utf-8")
)
WAYS = tuple(product((greet, structured), (ours, stock)))


@thorough
async def test_every_servers_way_to_say_it_is_one_sentence_with_the_numbers(
    *, thorough: bool, subtests: pytest.Subtests
) -> None:
    """U5: context overflow. The quick run tries one way per body."""
    for number, (name, body) in enumerate(BODIES.items()):
        for ask, made in WAYS if thorough else [WAYS[number % len(WAYS)]]:
            with subtests.test(f"{name}, {ask.__name__}, {made.__name__}"):
                await check_sentence(body, ask, made)


async def check_sentence(body: dict[str, Any], ask: Asked, made: Any) -> None:  # noqa: ANN401
    reply = Reply(error=body.get("status", 400), body=body["body"])
    with ScriptedServer([reply]) as server:
        with pytest.raises(ContextTooLongError) as caught:
            await ask(await made(server))
        assert len(server.calls) == 1
    numbers = (body.get("prompt"), body.get("limit"))
    assert (caught.value.prompt_tokens, caught.value.limit) == numbers
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "scripted" in sentence
    assert "context" in sentence
    assert all(str(number) in sentence for number in numbers if number is not None)


@pytest.mark.parametrize("like", ["openai", "llama.cpp"])
@pytest.mark.parametrize("made", [ours, stock])
async def test_a_scripted_refusal_looks_like_the_servers(like: Any, made: Any) -> None:  # noqa: ANN401
    with (
        ScriptedServer([too_long(3000, 2048, like=like)]) as server,
        pytest.raises(ContextTooLongError, match=SAID) as caught,
    ):
        await greet(await made(server))
    assert (caught.value.prompt_tokens, caught.value.limit) == (3000, 2048)
    chat = ScriptedChatModel([too_long(3000, 2048, like=like)])
    with pytest.raises(ContextTooLongError, match=SAID):
        await greet(await Models(default=chat).get(None, silent))


@pytest.mark.parametrize("streaming", [True, False])
async def test_it_is_recognised_while_an_answer_streams(*, streaming: bool) -> None:
    with ScriptedServer([too_long(3000, 2048)]) as server:
        model = await ours(server)
        chat = first_chat_model(chat_of(model)).model_copy(update={"streaming": streaming})
        with pytest.raises(ContextTooLongError):
            await greet(model_of("scripted", chat))


OTHERS = read_rows(__file__, "other_reasons")


@pytest.mark.part(3)
@pytest.mark.parametrize("reason", OTHERS)
async def test_what_is_wrong_for_another_reason_stays_what_it_is(reason: str) -> None:
    with ScriptedServer(lambda _: Reply(**OTHERS[reason])) as server:
        with pytest.raises(ModelError) as caught:
            await greet(await ours(server))
        assert not isinstance(caught.value, ContextTooLongError)
        # Errors of a user's own model object stay unchanged.
        with pytest.raises(openai.APIStatusError):
            await greet(await stock(server))


async def test_langchains_own_word_for_it_is_understood_from_any_model() -> None:
    error = ContextOverflowError("prompt is too long: 9 tokens > 8")
    model = model_of("mine", ScriptedChatModel([error]))
    with pytest.raises(ContextTooLongError, match="model mine") as caught:
        await greet(model)
    assert (caught.value.prompt_tokens, caught.value.limit) == (9, 8)


async def test_another_models_own_errors_pass_as_they_are() -> None:
    model = model_of("mine", ScriptedChatModel([KeyError("maximum context length is 8")]))
    with pytest.raises(KeyError, match="context length"):
        await greet(model)


@pytest.mark.parametrize("code", ["context_length_exceeded", None])
async def test_it_is_recognised_in_the_middle_of_a_stream_and_not_asked_again(
    code: str | None,
) -> None:
    """Some servers answer 200, and send the error as an event after the first tokens."""
    told = inner("the request exceeds the available context size", code=code)
    events = stream_of(chunk({"role": "assistant", "content": "We"}), told, done=False)
    with Server(events) as server:
        model = await model_at(server.url)
        chat = first_chat_model(chat_of(model)).model_copy(update={"streaming": True})
        with pytest.raises(ContextTooLongError):
            await greet(model_of("scripted", chat))
    assert len(server.asked) == 1


def test_an_error_in_a_stream_is_recognised_without_a_status() -> None:
    """An overflow error is recognized in a stream that began with status 200."""
    import httpx2

    request = httpx2.Request("POST", "http://here/v1/chat/completions")
    body = {"message": "Your input exceeds the context window of this model.", "code": None}
    assert (
        read_too_long(openai.APIError(body["message"] or "", request, body=body), "m") is not None
    )
    assert read_too_long(openai.APIError("on fire", request, body=None), "m") is None


@each_row("an_answer_ran_out_of_room_where_it_was_cut_off_before_its_own_limit")
def test_an_answer_ran_out_of_room_where_it_was_cut_off_before_its_own_limit(
    reason: str | None,
    tokens: int | None,
    max_tokens: int | None,
    estimated: bool | None,
    is_full: bool,
) -> None:
    used = {"input_tokens": 90, "output_tokens": tokens, "total_tokens": 90 + (tokens or 0)}
    answer = AIMessage(
        "And so",
        response_metadata={"finish_reason": reason, **({ESTIMATED: True} if estimated else {})},
        usage_metadata=used if tokens is not None else None,
    )
    assert ran_out_of_room(normalise_answer(answer, "m"), max_tokens) is is_full


@pytest.mark.exhaustive
@pytest.mark.live
async def test_the_embedded_model_says_it_with_a_small_context_and_answers_a_short_prompt() -> None:
    """L9: the embedded model's context can be made small, so a short test reaches the limit."""
    settings = Settings(embedded_context=512)
    model = await Models(settings=settings).get("embedded", silent)
    # This is slightly more than the small context takes; the large one reads it whole.
    prompt = [HumanMessage("So be it. " * 130)]
    with pytest.raises(ContextTooLongError) as caught:
        await greet(model, prompt)
    assert caught.value.limit == 512
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 512
    assert "whose limit is 512" in str(caught.value)
    said = await greet(model, settings=chosen(max_tokens=8))
    assert said.text
    # A different context size needs another child process.
    roomy = await Models(settings=Settings(embedded_context=4096)).get("embedded", silent)
    long = await greet(roomy, prompt, settings=chosen(max_tokens=8))
    assert long.usage_metadata is not None
    assert long.usage_metadata["input_tokens"] == caught.value.prompt_tokens


@pytest.mark.exhaustive
@pytest.mark.live
async def test_the_embedded_model_stops_where_its_context_is_full() -> None:
    model = await Models(settings=Settings(embedded_context=512)).get("embedded", silent)
    prompt = [HumanMessage("So be it. " * 110)]
    said = await chat_of(model).ainvoke(prompt, max_tokens=400, extra_body={"ignore_eos": True})
    assert said.usage_metadata is not None
    assert said.usage_metadata["output_tokens"] < 400
    assert ran_out_of_room(normalise_answer(said, "m"), 400)
    short = await chat_of(model).ainvoke("Hi", max_tokens=8, extra_body={"ignore_eos": True})
    assert short.response_metadata["finish_reason"] == "length"
    assert not ran_out_of_room(normalise_answer(short, "m"), 8)
