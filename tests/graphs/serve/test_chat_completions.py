"""Conversations as models with OpenAI's API, called by OpenAI's own client."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import openai
import pytest
from openai import AsyncStream
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from duologue.graphs import (
    Conversation,
    MaxMessages,
    SchemaFormat,
    Session,
    Speaker,
    chat,
    list_sessions,
    role_play,
    user_proxy,
)
from duologue.nodes.testing import Reply, Script, ScriptedToolCall
from support.files import PNG, block_of
from support.served import (
    OTHER_TOKEN,
    SESSION,
    TOKEN,
    hang_up,
    is_called,
    refusal_of,
    serve,
    turns,
)
from support.tables import read_rows

GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
GARDEN_SCRIPT = ["Instruction: Dig.", "Solution: Dug a bed. Next request.", "<CAMEL_TASK_DONE>"]


SERVER = "duologue.graphs.serve.chat_completions"


def make_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stream send comments soon."""
    for module in ("chat_completions", "chat_response"):
        monkeypatch.setattr(f"duologue.graphs.serve.{module}.SILENCE", 0.01)


PNG_PART = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"},
}
LOOK = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, PNG_PART]}


async def ask(
    client: openai.AsyncOpenAI, model: str, *texts: str, **options: Any
) -> ChatCompletion:
    answer: ChatCompletion = await client.chat.completions.create(
        model=model, messages=turns(*texts), **options
    )
    return answer


def text_of(answer: ChatCompletion) -> str:
    (choice,) = answer.choices
    assert choice.message.content is not None
    return choice.message.content


async def stream_of(
    client: openai.AsyncOpenAI,
    model: str,
    *texts: str,
    **options: Any,
) -> list[ChatCompletionChunk]:
    stream: AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(
        model=model, messages=turns(*texts), stream=True, **options
    )
    return [chunk async for chunk in stream]


def content_of(chunks: list[ChatCompletionChunk]) -> list[str]:
    deltas = (choice.delta.content for chunk in chunks for choice in chunk.choices)
    return [text for text in deltas if text]


def progress_of(chunks: list[ChatCompletionChunk]) -> list[str]:
    extra = [choice.delta.model_extra or {} for chunk in chunks for choice in chunk.choices]
    return [one["reasoning_content"] for one in extra if "reasoning_content" in one]


async def test_a_client_lists_models_and_receives_whole_and_streamed_answers(store: str) -> None:
    script = ["They dance.", "At noon.", *GARDEN_SCRIPT, *GARDEN_SCRIPT]
    async with serve(store, script, bees=chat(), garden=GARDEN) as served:
        client = served.client()
        assert [model.id async for model in client.models.list()] == ["bees", "garden"]
        assert (await client.models.retrieve("bees")).owned_by == "duologue"
        whole = await ask(client, "bees", "How do bees talk?")
        assert text_of(whole) == "They dance."
        assert (whole.choices[0].finish_reason, whole.model) == ("stop", "bees")
        chunks = await stream_of(client, "bees", "How do bees talk?", "They dance.", "When?")
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [one.choices[0].finish_reason for one in chunks[-2:]] == [None, "stop"]
        assert (content_of(chunks), progress_of(chunks)) == (["At ", "noon."], [])
        assert text_of(await ask(client, "garden", "Plan a balcony")) == GARDEN_SCRIPT[1]
        chunks = await stream_of(client, "garden", "Plan a balcony")
        assert content_of(chunks) == [GARDEN_SCRIPT[1]]
        assert progress_of(chunks) == ["Owner: Instruction: Dig.\nInput: None\n\n"]
    assert list_sessions(store=store) == []
    heard = served.model.calls[1].prompt[1:]
    assert [one["content"] for one in heard] == ["How do bees talk?", "They dance.", "When?"]


@pytest.mark.exhaustive
async def test_earlier_messages_are_part_of_the_task_if_no_person_takes_part(store: str) -> None:
    async with serve(store, GARDEN_SCRIPT, garden=GARDEN) as served:
        await ask(served.client(), "garden", "Plan a balcony", "Dug a bed.", "Make it smaller")
    task = (
        "Earlier messages:\n\nUser: Plan a balcony\n\nAssistant: Dug a bed.\n\n"
        "The task now:\n\nMake it smaller"
    )
    assert all(task in str(call.prompt[0]["content"]) for call in served.model.calls)
    assert "Plan a garden" not in str(served.model.calls[0].prompt)


@pytest.mark.exhaustive
async def test_a_message_of_the_system_is_a_message_of_the_user(store: str) -> None:
    async with serve(store, ["They dance.", *GARDEN_SCRIPT], bees=chat(), garden=GARDEN) as served:
        for model in ("bees", "garden"):
            body = {
                "model": model,
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "How do bees talk?"}]},
                ],
            }
            assert (await served.post(body)).status_code == 200
    first, second, *_ = served.model.calls
    assert first.prompt[-1]["content"] == "Be brief.\n\nHow do bees talk?"
    assert "Be brief." not in first.prompt[0]["content"]
    assert "Be brief.\n\nHow do bees talk?" in second.prompt[0]["content"]


@pytest.mark.exhaustive
async def test_the_message_of_the_request_replaces_the_first_message_of_the_file(
    store: str,
) -> None:
    sums = user_proxy("What is 2 + 2?", human_input_mode="NEVER", code=False)
    script = ["They dance.", "It is 6. TERMINATE"]
    async with serve(store, script, bees=chat("Hello!"), sums=sums) as served:
        client = served.client()
        assert text_of(await ask(client, "bees", "How do bees talk?")) == "They dance."
        assert text_of(await ask(client, "sums", "What is 2 * 3?")) == "It is 6."
    for call, text in zip(served.model.calls, ("How do bees talk?", "What is 2 * 3?"), strict=True):
        assert [one["content"] for one in call.prompt[1:]] == [text]


class Bed(BaseModel):
    """A bed of a garden."""

    plant: str
    rows: int


@pytest.mark.exhaustive
async def test_an_output_with_a_schema_is_json(store: str) -> None:
    planner = Speaker("Planner", format=SchemaFormat(Bed), writes_output=True)
    talk = Conversation("Plan a bed", [planner, Speaker("Gardener")], end_chat=MaxMessages(1))
    script = ['{"plant": "b\u00e9an", "rows": 3}'] * 2
    async with serve(store, script, beds=talk) as served:
        whole = text_of(await ask(served.client(), "beds", "Plan"))
        (streamed,) = content_of(await stream_of(served.client(), "beds", "Plan"))
    assert whole == streamed == '{"plant": "b\u00e9an", "rows": 3}'


@pytest.mark.exhaustive
async def test_the_usage_is_that_of_the_whole_conversation(store: str) -> None:
    script = [*GARDEN_SCRIPT, *GARDEN_SCRIPT]
    async with serve(store, script, garden=GARDEN) as served:
        whole = await ask(served.client(), "garden", "Plan a garden")
        options = {"stream_options": {"include_usage": True}}
        chunks = await stream_of(served.client(), "garden", "Plan a garden", **options)
    assert whole.usage is not None
    words = sum(len(line.split()) for line in GARDEN_SCRIPT)
    assert whole.usage.completion_tokens == words
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + words
    assert (chunks[-1].usage, chunks[-1].choices) == (whole.usage, [])
    assert chunks[-2].usage is None


@pytest.mark.exhaustive
async def test_a_reply_that_was_cut_off_ends_with_length(store: str) -> None:
    cut = Reply(text="They dance and", finish_reason="length")
    async with serve(store, [cut, cut], bees=chat()) as served:
        whole = await ask(served.client(), "bees", "How do bees talk?")
        chunks = await stream_of(served.client(), "bees", "How do bees talk?")
    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.exhaustive
async def test_a_stream_sends_the_reply_that_replaces_a_rejected_one(store: str) -> None:
    question = "Tell me how the bees in my garden talk to one another."
    async with serve(store, [question, "They dance."], bees=chat()) as served:
        content = content_of(await stream_of(served.client(), "bees", question))
    assert "".join(content) == f"{question}\n\nThey dance."


@pytest.mark.exhaustive
async def test_progress_leaves_out_the_output_and_private_messages(store: str) -> None:
    speakers = [
        Speaker("Ann", writes_output=True),
        Speaker("Bob"),
        Speaker("Cid", speaks_to=["Ann"]),
    ]
    talk = Conversation("Plan a bed", speakers, end_chat=MaxMessages(5))
    script = ["Beans here.", "Peas there.", "Cress, secretly.", "Beans and peas.", "Very well."]
    async with serve(store, script, beds=talk) as served:
        chunks = await stream_of(served.client(), "beds", "Plan a bed")
    assert content_of(chunks) == ["Beans and peas."]
    assert progress_of(chunks) == [
        "Ann: Beans here.\n\n",
        "Bob: Peas there.\n\n",
        "Ann: Beans and peas.\n\n",
        "Bob: Very well.\n\n",
    ]


CALL = ScriptedToolCall(name="calculator", args={"expression": "2*3"}, id="c1")
SUMS = chat(tools=["calculator"], interrupt_on={"calculator": True})
APPROVAL = json.dumps({"decisions": [{"type": "approve"}]})


@pytest.mark.exhaustive
async def test_a_chat_with_tools_sends_the_text_beside_calls_as_progress(store: str) -> None:
    to_user = {"expression": "2*3", "to_user": "I calculate."}
    call = Reply(tool_calls=[ScriptedToolCall(name="calculator", args=to_user, id="c1")])
    async with serve(store, [call, "It is six."], sums=chat(tools=["calculator"])) as served:
        chunks = await stream_of(served.client(), "sums", "What is 2 * 3?")
    assert content_of(chunks) == ["It is six."]
    assert progress_of(chunks) == ["Assistant: I calculate.\n\n"]


async def test_a_session_is_named_by_the_server_and_belongs_to_a_token(store: str) -> None:
    async with serve(store, ["They dance.", "At noon."], bees=chat(), ants=chat()) as served:
        client = served.client()
        first = await client.chat.completions.with_raw_response.create(
            model="bees", messages=turns("How do bees talk?"), extra_headers={SESSION: "new"}
        )
        name = first.headers[SESSION]
        headers = {SESSION: name}
        with pytest.raises(openai.NotFoundError, match="There is no session") as refused:
            await ask(served.client(OTHER_TOKEN), "bees", "When?", extra_headers=headers)
        assert refused.value.code == "session_not_found"
        for model, session in (("ants", name), ("bees", "another")):
            with pytest.raises(openai.NotFoundError, match="There is no session"):
                await ask(client, model, "When?", extra_headers={SESSION: session})
        later = await ask(client, "bees", "When?", extra_headers=headers)
        with pytest.raises(openai.BadRequestError, match="send only the new message of the user"):
            await ask(client, "bees", "When?", "At noon.", "Why?", extra_headers=headers)
    usages = [first.parse().usage, later.usage]
    assert [one.completion_tokens for one in usages if one is not None] == [2, 2]
    said = [text for _, text in Session(name, store=store).state().transcript]
    assert said == ["How do bees talk?", "They dance.", "When?", "At noon."]


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_next_message_of_a_session_answers_its_question(
    store: str, is_streamed: bool
) -> None:
    async with serve(store, [Reply(tool_calls=[CALL]), "Six."], sums=SUMS) as served:
        body = {"model": "sums", "messages": turns("How many?"), "stream": is_streamed}
        asked = await served.post(body, **{SESSION: "new"})
        headers = {SESSION: asked.headers[SESSION]}
        for answer, problem in (("maybe", "is not JSON"), ('{"decisions": []}', "open: decisions")):
            body = {"model": "sums", "messages": turns(answer)}
            status, error = await refusal_of(served, body, **headers)
            assert (status, problem in error["message"]) == (400, True)
            assert "to continue" not in error["message"]
        more = await ask(served.client(), "sums", APPROVAL, extra_headers=headers)
    assert 'calculator with {\\"expression\\": \\"2*3\\"}' in asked.text
    assert json.dumps(f"\n\nFor example: {APPROVAL}")[1:-1] in asked.text
    assert text_of(more) == "Six."


async def test_a_server_that_starts_anew_knows_the_question_of_a_session(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": "sums", "messages": turns("What is 2 * 3?")}
    async with serve(store, [Reply(tool_calls=[CALL])], sums=SUMS) as served:
        started = await served.post(body, **{SESSION: "new"})
    headers = {SESSION: started.headers[SESSION]}
    # The second server forgets the session after each request, as one with many sessions does.
    monkeypatch.setattr(f"{SERVER}._MOST_KEPT", 0)
    async with serve(store, ["It is six.", "Yes."], sums=chat()) as served:
        status, error = await refusal_of(served, {**body, "messages": turns("maybe")}, **headers)
        assert (status, "the answer is not JSON" in error["message"]) == (400, True)
        answer = {**body, "messages": turns(APPROVAL)}
        assert (await served.post(answer, token=OTHER_TOKEN, **headers)).status_code == 404
        answered = (await served.post(answer, **headers)).json()
        more = (await served.post({**body, "messages": turns("Sure?")}, **headers)).json()
    contents = [one["choices"][0]["message"]["content"] for one in (answered, more)]
    assert contents == ["It is six.", "Yes."]
    # Only the calls of each request count.
    counts = [one["usage"]["completion_tokens"] for one in (answered, more)]
    assert counts == [3, 1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_question_that_is_not_a_message_needs_a_session(
    store: str, is_streamed: bool
) -> None:
    async with serve(store, [Reply(tool_calls=[CALL])], sums=SUMS) as served:
        body = {"model": "sums", "messages": turns("How many?"), "stream": is_streamed}
        status, error = await refusal_of(served, body)
    assert (status, error["code"]) == (409, "answer_required")
    assert "X-Duologue-Session: new to start a session" in error["message"]


@pytest.mark.exhaustive
async def test_an_empty_message_is_an_answer_if_the_question_allows_it(store: str) -> None:
    proxy = user_proxy("How many?", tools=["calculator"], code=False)
    script: list[str | Reply] = [Reply(tool_calls=[CALL]), "Six."]
    async with serve(store, script, sums=proxy, bees=chat()) as served:
        body = {"model": "sums", "messages": turns("How many?")}
        assert (await refusal_of(served, body))[0] == 409
    async with serve(store, [*script, "They dance."], sums=proxy, bees=chat()) as served:
        asked = await served.post(body, **{SESSION: "new"})
        assert "Empty: the calls run." in asked.json()["choices"][0]["message"]["content"]
        headers = {SESSION: asked.headers[SESSION]}
        more = await ask(served.client(), "sums", "", extra_headers=headers)
        assert text_of(more) == "Six."
        asked = await served.post({**body, "model": "bees"}, **{SESSION: "new"})
        headers = {SESSION: asked.headers[SESSION]}
        with pytest.raises(openai.BadRequestError, match="it must not be empty"):
            await ask(served.client(), "bees", " ", extra_headers=headers)


@pytest.mark.exhaustive
async def test_a_session_that_failed_continues_without_a_message(store: str) -> None:
    script: Script = [GARDEN_SCRIPT[0], Reply(error=401), *GARDEN_SCRIPT[1:]]
    async with serve(store, script, garden=GARDEN) as served:
        body: dict[str, Any] = {"model": "garden", "messages": turns("Plan a garden")}
        failed = await served.post(body, **{SESSION: "new"})
        name = failed.headers[SESSION]
        assert failed.status_code == 502
        assert f"Send X-Duologue-Session: {name} with an empty list of" in failed.text
        headers = {SESSION: name}
        ended = await ask(served.client(), "garden", extra_headers=headers)
        again = await ask(served.client(), "garden", extra_headers=headers)
        status, error = await refusal_of(served, body, **headers)
    assert text_of(ended) == text_of(again) == GARDEN_SCRIPT[1]
    assert again.usage is not None
    assert again.usage.total_tokens == 0
    assert (status, "takes no further message" in error["message"]) == (409, True)
    assert len(served.model.calls) == 4


@pytest.mark.exhaustive
async def test_a_session_that_never_began_is_unknown(store: str) -> None:
    talk = chat().replace(model="nothing:else")
    async with serve(store, [], bees=talk) as served:
        body = {"model": "bees", "messages": turns("How do bees talk?")}
        failed = await served.post(body, **{SESSION: "new"})
        again = await served.post(body, **{SESSION: failed.headers[SESSION]})
    assert (failed.status_code, again.status_code) == (502, 404)
    assert "to continue" not in failed.text


@pytest.mark.exhaustive
async def test_a_chat_that_the_person_left_continues_with_a_message(store: str) -> None:
    async with serve(store, ["They dance.", "Yes."], bees=chat()) as served:
        body = {"model": "bees", "messages": turns("How do bees talk?")}
        headers = {SESSION: (await served.post(body, **{SESSION: "new"})).headers[SESSION]}
        left = await ask(served.client(), "bees", "exit", extra_headers=headers)
        more = await ask(served.client(), "bees", "Really?", extra_headers=headers)
    assert (text_of(left), text_of(more)) == ("They dance.", "Yes.")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("reply", "status"), [(Reply(error=401), 502), (Reply(error=500), 502), (Reply(error=429), 429)]
)
async def test_an_error_of_the_model_is_an_error_of_the_request(
    store: str, reply: Reply, status: int
) -> None:
    async with serve(store, lambda _: reply, bees=chat()) as served:
        for is_streamed in (False, True):
            body = {"model": "bees", "messages": turns("Hello"), "stream": is_streamed}
            found, error = await refusal_of(served, body)
            assert (found, error["code"]) == (status, "model_error")
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.exhaustive
async def test_a_stream_that_fails_in_the_middle_ends_with_the_error(store: str) -> None:
    async with serve(store, [*GARDEN_SCRIPT[:2], Reply(error=401)], garden=GARDEN) as served:
        with pytest.raises(openai.APIError, match="The model did not answer"):
            await stream_of(served.client(), "garden", "Plan a garden")


@pytest.mark.exhaustive
async def test_a_prompt_that_is_too_long_is_the_error_of_the_client(store: str) -> None:
    refused = Reply(error=400, code="context_length_exceeded", message="maximum context length")
    async with serve(store, lambda _: refused, bees=chat()) as served:
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(served.client(), "bees", "Hello")
    assert raised.value.code == "context_length_exceeded"


IGNORED = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed"),
    *("stop", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
    *("reasoning_effort", "verbosity", "user", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "metadata", "store", "service_tier", "parallel_tool_calls"),
)


@pytest.mark.exhaustive
async def test_sampling_parameters_have_no_effect(store: str) -> None:
    async with serve(store, ["They dance."], bees=chat()) as served:
        body = {"model": "bees", "messages": turns("Hello"), "n": 1, "tools": None}
        unset = {"response_format": {"type": "text", "json_schema": None}}
        response = await served.post(body | dict.fromkeys(IGNORED, 1) | unset)
    assert response.json()["choices"][0]["message"]["content"] == "They dance."


async def test_a_client_sends_images_of_the_user_in_a_request_and_in_a_session(store: str) -> None:
    async with serve(store, ["A plan.", "Yes.", "Again."], bees=chat("Not this one.")) as served:
        body = {"model": "bees", "messages": [LOOK]}
        assert (await served.post(body)).status_code == 200
        earlier = [LOOK, {"role": "assistant", "content": "A plan."}, *turns("Sure?")]
        assert (await served.post({**body, "messages": earlier})).status_code == 200
        started = await served.post(body, **{SESSION: "new"})
        assert started.status_code == 200
        await served.post(body, **{SESSION: started.headers[SESSION]})
    prompts = [
        ["image" in str(message.content) for message in call.messages]
        for call in served.model.calls
    ]
    first = [False, True]
    assert prompts == [first, [*first, False, False], first, first * 2]
    assert block_of(PNG) in served.model.calls[0].messages[1].content


async def test_a_task_contains_no_images(store: str) -> None:
    async with serve(store, [], garden=GARDEN) as served:
        status, error = await refusal_of(served, {"model": "garden", "messages": [LOOK]})
    assert (status, error["param"]) == (400, "messages")
    assert "images and files are not accepted by this model" in error["message"]


REFUSED = [
    *read_rows(__file__, "refused_requests"),
    ({"model": None}, 400, "model: is missing"),
    ({"messages": None}, 400, "messages: is missing"),
    (
        {"messages": [{"role": "assistant", "content": [PNG_PART]}, *turns("Hello")]},
        400,
        "messages.0.content: only a message of the user can contain files; send text",
    ),
]


@pytest.mark.part(3)
@pytest.mark.parametrize(("changes", "status", "problem"), REFUSED)
async def test_a_refused_request_is_one_sentence_and_calls_no_model(
    store: str, changes: dict[str, Any], status: int, problem: str
) -> None:
    async with serve(store, [], bees=chat()) as served:
        body = {"model": "bees", "messages": turns("Hello"), **changes}
        found, error = await refusal_of(served, body)
    assert (found, error["message"][: len(problem)]) == (status, problem)
    assert error["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    assert status != 400 or error["param"] == problem.partition(":")[0]
    assert served.model.calls == []


@pytest.mark.exhaustive
async def test_a_body_that_is_no_json_is_refused(store: str) -> None:
    async with (
        serve(store, [], bees=chat()) as served,
        served.http(Authorization=f"Bearer {TOKEN}") as http,
    ):
        half = b'{"model": "bees", "messages": [{"role": "user", "content": "\\ud800"}]}'
        for content in (b"{", b"[" * 100_000, half, '["UTF-16"]'.encode("utf-16")):
            response = await http.post("/v1/chat/completions", content=content)
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["message"].startswith("the body can't be read as JSON (")
        assert (await http.get("/v1/chat/completions")).status_code == 405
        response = await http.get("/v1/completions")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")


@pytest.mark.parametrize(("header", "value", "status"), read_rows(__file__, "refused_headers"))
async def test_only_programs_with_a_token_are_admitted(
    header: str, value: str, status: int, store: str
) -> None:
    async with (
        serve(store, [], bees=chat()) as served,
        served.http(Authorization=f"Bearer {OTHER_TOKEN}") as http,
    ):
        assert (await http.get("/v1/models")).status_code == 200
        refused = await http.get("/v1/models", headers={header: value})
    assert refused.status_code == status
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
    assert refused.headers["Cache-Control"] == "no-store"


NEVER = Reply(text="Later.", delay=3600)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_run_ends_if_its_client_has_gone(
    store: str, monkeypatch: pytest.MonkeyPatch, is_streamed: bool
) -> None:
    script: Script = [NEVER, "They dance.", NEVER, "At noon.", NEVER, "By scent.", "At dusk."]
    async with serve(store, script, most_runs=1, bees=chat()) as served:
        body = {"model": "bees", "messages": turns("How do bees talk?"), "stream": is_streamed}
        await hang_up(served, body)
        # With one run at a time, this would wait for the first.
        assert text_of(await ask(served.client(), "bees", "How do bees talk?")) == "They dance."
        await hang_up(served, body, **{SESSION: "new"})
        (row,) = list_sessions(store=store)
        assert Session(row.session, store=store).state().outcome is None
        headers = {SESSION: row.session}
        assert text_of(await ask(served.client(), "bees", extra_headers=headers)) == "At noon."
        await hang_up(served, {**body, "messages": turns("Why?")}, **headers)
        # The question that this message has answered is not the question of the next message.
        later = await ask(served.client(), "bees", "And when?", extra_headers=headers)
        assert text_of(later) == "At dusk."
    said = [text for _, text in Session(row.session, store=store).state().transcript]
    assert said[2:] == ["Why?", "By scent.", "And when?", "At dusk."]


@pytest.mark.exhaustive
async def test_a_stream_that_has_begun_ends_if_its_client_has_gone(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_impatient(monkeypatch)
    async with serve(store, [NEVER, "They dance."], most_runs=1, bees=chat()) as served:
        body = {"model": "bees", "messages": turns("Hello"), "stream": True}
        sent = await hang_up(served, body)
        # On a busy machine the client has gone before the stream begins.
        assert not sent or sent[0]["status"] in (200, 499)
        assert text_of(await ask(served.client(), "bees", "Hello")) == "They dance."


@pytest.mark.exhaustive
async def test_a_silent_stream_sends_comments(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_impatient(monkeypatch)
    late = Reply(text="They dance.", delay=0.3)
    async with serve(store, [late, Reply(error=401, delay=0.3)], bees=chat()) as served:
        body = {"model": "bees", "messages": turns("Hello"), "stream": True}
        response, failed = await served.post(body), await served.post(body)
    assert response.text.startswith("data: {")
    assert "\n\n:\n\n" in response.text
    assert response.text.endswith("data: [DONE]\n\n")
    # It has begun, so the error is a part of it.
    assert failed.status_code == 200
    assert json.loads(failed.text.split("data: ")[-1])["error"]["code"] == "model_error"


@pytest.mark.exhaustive
async def test_further_requests_wait_and_too_many_are_refused(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SERVER}._MOST_WAITING", 1)
    async with serve(store, [NEVER, "They dance."], most_runs=1, bees=chat()) as served:
        first = asyncio.create_task(ask(served.client(), "bees", "Hello"))
        await is_called(served.model, 1)
        second = asyncio.create_task(ask(served.client(), "bees", "Hello"))
        await asyncio.sleep(0.05)
        response = await served.post({"model": "bees", "messages": turns("Hello")})
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
        assert response.json()["error"]["type"] == "rate_limit_error"
        first.cancel()
        assert text_of(await second) == "They dance."
