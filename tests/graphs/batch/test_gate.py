"""Each attempt of each call passes the gate, and a session paused there can continue."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from faults.broken_talks import CALLS, SCRIPTS, SPECS, World, told
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda

from duologue.graphs import BatchLimits, ModelError, ModelUnavailableError, SpecError
from duologue.graphs.batch.limiter import Limiter
from duologue.graphs.common.errors import PausedError
from duologue.graphs.conversation.usage import Usage, add_usage
from duologue.graphs.session.run import run_session
from duologue.nodes.models.gate import Gate, PlannedCall
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import Request, ScriptedServer
from support.faulty_server import Sent
from support.replies_in_bytes import Server as Bytes, chunk, json_of, say, stream_of
from support.results import StoredSession
from support.tables import read_rows


class Turnstile:
    """A gate that lets a few calls through, then pauses, and records its calls."""

    def __init__(self, most: int | None = None, *, needs_prices: bool = False) -> None:
        self.needs_prices = needs_prices
        self.left = most
        self.entered: list[tuple[str, int]] = []
        self.counted: list[tuple[str, Usage]] = []
        self.refusals: list[tuple[str, float | None]] = []
        self.outages: list[tuple[str, float | None]] = []
        self.ended: list[int] = []

    async def enter(self, call: PlannedCall) -> int:
        if self.left == 0 and not call.is_begun:
            raise PausedError("the batch is paused")
        if self.left:
            self.left -= 1
        self.entered.append((call.model, call.tokens))
        return len(self.outages)

    def count(self, model: str, used: Usage) -> None:
        self.counted.append((model, used))

    def refused(self, model: str, seconds: float | None) -> None:
        self.refusals.append((model, seconds))

    async def report_outage(
        self, model: str, why: str, seconds: float | None, *, is_reached: bool
    ) -> int | None:
        self.outages.append((why, seconds))
        return len(self.counted) or None

    def end_outage(self, model: str, number: int) -> None:
        self.ended.append(number)


async def run(
    source: Any,  # noqa: ANN401
    gate: Gate | None,
    store: str | Path,
    session: str = "garden",
    *,
    tokens: bool = False,
    **options: Any,
) -> StoredSession:
    events = run_session(
        source,
        session,
        cast("Any", {"store": store, **options}),
        reset=False,
        tokens=False,
        gate=gate,
    )
    last = [event async for event in events][-1]
    assert isinstance(last, StoredSession)
    return last


async def call_by_call(
    source: Any,  # noqa: ANN401
    store: Path,
    **options: Any,
) -> tuple[StoredSession, Turnstile]:
    """Run a session with a pause before each call."""
    gate = Turnstile(0)
    while True:
        gate.left = 1
        before = len(gate.entered)
        try:
            return await run(source, gate, store, **options), gate
        except PausedError as error:
            told = str(error)
        assert told == "the batch is paused"
        assert len(gate.entered) == before + 1, "a run makes one call"


@pytest.mark.part(1)
@pytest.mark.parametrize("name", SPECS)
async def test_paused_before_each_call_it_goes_on_and_repeats_none(
    name: str, tmp_path: Path
) -> None:
    plain, broken = World(), World()
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> Any:  # noqa: ANN401
        prompts.append(prompt)
        return SCRIPTS[name](prompt)

    model = ScriptedChatModel(answer)
    free = Turnstile()
    whole = await run(SPECS[name], free, tmp_path / "whole.db", model=model, **plain.options)
    undisturbed = [*prompts]
    prompts.clear()
    found, gate = await call_by_call(
        SPECS[name], tmp_path / "paused.db", model=model, **broken.options
    )
    assert told(found) == told(whole)
    assert Counter(map(str, prompts)) == Counter(map(str, undisturbed))
    assert broken.ran == plain.ran
    assert len(gate.entered) == len(gate.counted) == len(free.entered) == CALLS[name]
    assert all(tokens > 0 for _, tokens in gate.entered)
    assert found.outcome is not None
    used = add_usage(used for _, used in gate.counted)
    assert (
        used
        == add_usage(found.outcome.usage.values())
        == add_usage(used for _, used in free.counted)
    )


async def test_what_is_recorded_as_one_is_paused_before_its_first_call_alone(
    tmp_path: Path,
) -> None:
    """An answer that the token limit cut off and the next one are one step without a pause."""
    cut_off = Reply(text="Yes, and", finish_reason="length")
    script: list[str | Reply] = ["One.", "Two.", cut_off, "Yes.", "No."]
    model, gate = ScriptedChatModel(script), Turnstile(3)
    options: dict[str, Any] = {"store": tmp_path / "s.db", "model": model}
    with pytest.raises(PausedError):
        await run(talk(None, None, rounds=2), gate, **options)
    assert len(model.calls) == len(gate.counted) == 4
    gate.left = None
    found = await run(None, gate, **options)
    assert found.outcome is not None
    assert len(model.calls) == len(script) == add_usage(found.outcome.usage.values()).calls


def talk(*replies: Any, rounds: int = 1) -> dict[str, Any]:
    return {
        "task": "Plan a garden.",
        "speakers": [
            {"name": name, "replies": [reply]} if reply else {"name": name}
            for name, reply in zip(("Ann", "Bob"), replies, strict=True)
        ],
        "end_chat": {"max_iterations": rounds},
    }


AGENT = {"kind": "agent", "name": "researcher"}


def searching(asked: list[str]) -> Callable[[Prompt], str | Reply]:
    """Return a script that calls a tool in each turn, then speaks."""

    def answer(prompt: Prompt) -> str | Reply:
        turn = sum(message["role"] == "user" for message in prompt)
        found = prompt[-1]["role"] == "tool"
        asked.append(f"{turn} {found}")
        if found:
            return f"Beans {turn}."
        call = ScriptedToolCall(name="search", args={"query": "beans"}, id=f"c{turn}")
        return Reply(tool_calls=[call])

    return answer


def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


async def test_an_agents_calls_pass_the_gate_and_those_of_a_graph_are_not_repeated(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    model = ScriptedChatModel(searching(asked))
    agent = create_agent(model, [search])
    talked, source = ScriptedChatModel(["Yes.", "No."]), talk(AGENT, None, rounds=2)
    found, gate = await call_by_call(
        source, tmp_path / "s.db", agents={"researcher": agent}, model=talked
    )
    assert asked == ["1 False", "1 True", "2 False", "2 True"]
    assert len(gate.entered) == len(gate.counted) == 6
    assert found.outcome is not None
    assert add_usage(used for _, used in gate.counted) == add_usage(found.outcome.usage.values())


async def test_an_agent_that_begins_anew_is_paused_before_its_first_call_alone(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel(["One.", "Two.", "Yes."])

    async def twice(messages: Sequence[BaseMessage]) -> str:
        try:
            return str([(await model.ainvoke(messages)).text for _ in range(2)])
        except PausedError:
            return "It hides that it was paused."

    options: dict[str, Any] = {"agents": {"researcher": RunnableLambda(twice)}, "model": model}
    gate = Turnstile(0)
    with pytest.raises(PausedError):
        await run(talk(AGENT, None), gate, tmp_path / "s.db", **options)
    gate.left = 1
    with pytest.raises(PausedError):
        await run(None, gate, tmp_path / "s.db", **options)
    assert [one.prompt[-1]["role"] for one in model.calls] == ["user", "user"]
    gate.left = None
    found = await run(None, gate, tmp_path / "s.db", **options)
    assert found.messages[1].text == "['One.', 'Two.']"
    assert len(model.calls) == len(gate.counted) == 3


Serve = Callable[..., Any]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Yield a function that starts a server with a script, or a given server.

    OpenAI's client makes ``retries``, or its default number of them.
    """
    with ExitStack() as stack:

        def start(script: Any, model: str | None = "scripted", **options: Any) -> Any:  # noqa: ANN401
            retries = options.pop("retries", None)
            given: Any = script if isinstance(script, Bytes) else ScriptedServer(script, **options)
            server = stack.enter_context(given)
            env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k", "DUOLOGUE_MODEL": model}
            for name, value in (env | {"DUOLOGUE_MAX_RETRIES": retries}).items():
                if value is not None:
                    monkeypatch.setenv(name, value)
            return server

        yield start


@pytest.mark.part(3)
@pytest.mark.parametrize("busy", read_rows(__file__, "busy"))
async def test_each_try_passes_the_gate_which_alone_waits(
    busy: dict[str, Any], tmp_path: Path, serve: Serve
) -> None:
    """Each attempt passes the gate, which waits longer than OpenAI's client would."""
    gate = Turnstile()
    server = serve([Reply(**busy)] * 12 + ["Yes.", "No."])
    await run(talk(None, None), gate, tmp_path / "s.db")
    assert len(server.calls) == len(gate.entered) == 14
    assert gate.refusals == [("scripted", busy.get("retry_after"))] * 12
    assert [used.calls for _, used in gate.counted] == [1, 1]


async def test_one_refused_call_holds_back_all_sessions_and_those_under_way_are_kept(
    tmp_path: Path, serve: Serve
) -> None:
    def answer(prompt: Prompt, request: Request) -> str | Reply:
        is_third = server.calls.index(request) == 2
        return Reply(error=429, retry_after=3000) if is_third else "Yes."

    server = serve(answer, hold=(0, 1))
    gate, store = Limiter(BatchLimits()), tmp_path / "s.db"
    sessions = []
    for number in range(3):
        source = talk(None, None, rounds=2)
        going = run(source, gate, store, session=f"s{number}")
        sessions.append(asyncio.create_task(going))
        await asyncio.to_thread(server.wait_for, number + 1)
    # Two calls are running when the third is refused.
    while gate.figures().refusals == 0:  # noqa: ASYNC110  # another thread changes it
        await asyncio.sleep(0.01)
    server.release()
    while gate.figures().waiting < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert gate.figures().used.calls == 2
    gate.pause("that is enough")
    ended = await asyncio.gather(*sessions, return_exceptions=True)
    assert [(type(one), str(one)) for one in ended] == [(PausedError, "that is enough")] * 3
    assert len(server.calls) == 3
    free = Limiter(BatchLimits())
    for number in range(3):
        found = await run(None, free, store, session=f"s{number}")
        assert len(found.messages) == 5
    assert len(server.calls) == 3 + 10
    assert free.figures().used.calls == 10


async def test_a_pause_between_the_tries_of_a_call_comes_out_as_it_is(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(["Yes.", Reply(error=429), "No."])
    gate = Turnstile(2)
    for streamed in (False, True):
        with pytest.raises(PausedError):
            await run(talk(None, None), gate, tmp_path / "s.db", tokens=streamed)
    gate.left = None
    found = await run(None, gate, tmp_path / "s.db")
    assert len(server.calls) == 3
    assert [one.text for one in found.messages[1:]] == ["Yes.", "No."]


async def test_a_model_of_the_users_own_is_held_back_and_asked_again(tmp_path: Path) -> None:
    busy = Reply(error=429, retry_after=7)
    model, gate = ScriptedChatModel([busy, busy, "Yes.", Reply(error=500)]), Turnstile()
    with pytest.raises(openai.InternalServerError, match="500"):
        await run(talk(None, None), gate, tmp_path / "s.db", model=model)
    assert gate.refusals == [("ScriptedChatModel", 7)] * 2
    assert len(gate.entered) == 4
    assert len(gate.counted) == 1


async def test_of_a_model_of_the_users_own_it_is_known_too_whether_it_can_be_had(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel([Reply(error=401)])
    with pytest.raises(ModelUnavailableError, match="401"):
        await run(talk(None, None), Turnstile(), tmp_path / "s.db", model=model)
    # With a single session, the user sees the error.
    model = ScriptedChatModel([Reply(error=401)])
    with pytest.raises(openai.AuthenticationError):
        await run(talk(None, None), None, tmp_path / "t.db", model=model)


async def test_what_counts_money_needs_all_prices(tmp_path: Path) -> None:
    gate = Turnstile(needs_prices=True)
    model = ScriptedChatModel(["Yes.", "No."])
    with pytest.raises(SpecError, match="max_cost needs a price"):
        await run(talk(None, None), gate, tmp_path / "s.db", model=model)
    agents = {"researcher": create_agent(model, [])}
    with pytest.raises(SpecError, match="max_cost needs a price"):
        await run(talk(AGENT, AGENT), gate, tmp_path / "a.db", agents=agents, model=model)
    assert not model.calls
    assert not gate.entered
    priced = {"prices": {"ScriptedChatModel": {"input": 1e6, "output": 1e6}}}
    await run({**talk(None, None), **priced}, gate, tmp_path / "b.db", model=model)
    assert [used.cost for _, used in gate.counted] == [
        used.input_tokens + used.output_tokens for _, used in gate.counted
    ]
    assert (gate.counted[0][1].cost or 0) > 0


@pytest.mark.part(1)
@pytest.mark.parametrize("down", read_rows(__file__, "down"))
@pytest.mark.parametrize("tokens", [False, True])
async def test_a_call_is_repeated_until_its_server_is_up_again(
    down: dict[str, Any], tokens: bool, tmp_path: Path, serve: Serve
) -> None:
    gate = Turnstile()
    server = serve(["Yes."] + [Reply(**down)] * 12 + ["No."], retries="0")
    last = await run(talk(None, None), gate, tmp_path / "s.db", tokens=tokens)
    assert [one.text for one in last.messages[1:]] == ["Yes.", "No."]
    assert len(server.calls) == 14
    why = "can't be reached" if "text" in down else f"answers with an error ({down['error']})"
    outage = (f"the model server at {server.url} {why}", down.get("retry_after"))
    assert gate.outages == [outage] * 12
    assert gate.ended[-1] == 12
    assert [used.calls for _, used in gate.counted] == [1, 1]


BUSY = {"error": {"code": "429", "message": "slow", "metadata": {"retry_after": 7}}}
DOWN = {"error": {"code": 503, "message": "down"}}


@pytest.mark.part(2)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize(
    ("sent", "refusals", "outages"),
    [
        (json_of(BUSY), [7], []),
        (stream_of(BUSY), [7], []),
        (stream_of(chunk({"content": "N"}), BUSY), [7], []),
        (json_of(DOWN), [], [(503, None)]),
        (json_of(DOWN, **{"Retry-After": "8"}), [], [(503, 8)]),
        (stream_of(chunk({"content": "N"}), DOWN), [], [(503, None)]),
        (Sent(b"<html>"), [], [(502, None)]),
        (Sent(b'{"choices": [{"mess'), [], [(502, None)]),
    ],
)
async def test_an_error_inside_a_reply_reaches_the_gate_as_a_status_does(
    sent: Sent,
    refusals: list[float],
    outages: list[tuple[int, float | None]],
    tokens: bool,
    tmp_path: Path,
    serve: Serve,
) -> None:
    """An outage lasts until a whole reply has arrived, not until the next status 200."""
    gate = Turnstile()
    server = serve(Bytes(say("Yes."), *[sent] * 10, say("No.")), retries="0")
    last = await run(talk(None, None), gate, tmp_path / "s.db", tokens=tokens)
    name = f"the model server at {server.url} answers with an error"
    assert [one.text for one in last.messages[1:]] == ["Yes.", "No."]
    assert len(server.asked) == len(gate.entered) == 12
    assert [seconds for _, seconds in gate.refusals] == refusals * 10
    assert gate.outages == [(f"{name} ({status})", wait) for status, wait in outages] * 10
    assert gate.ended == [10] * len(outages)


@pytest.mark.parametrize("down", [Reply(error=503), Reply(error="drop")])
async def test_before_the_first_answer_a_server_that_is_down_is_not_waited_for(
    down: Reply, tmp_path: Path, serve: Serve
) -> None:
    server = serve([down], retries="0")
    with pytest.raises(ModelError):
        await run(talk(None, None), Turnstile(), tmp_path / "s.db")
    assert len(server.calls) == 1


class Busy(Turnstile):
    """A gate of a batch whose other calls are answered: each failure is another outage."""

    async def report_outage(
        self, model: str, why: str, seconds: float | None, *, is_reached: bool
    ) -> int | None:
        self.outages.append((why, seconds))
        return len(self.outages)


async def test_a_prompt_that_breaks_each_connection_is_given_up(
    tmp_path: Path, serve: Serve
) -> None:
    gate = Busy()
    server = serve(lambda prompt: Reply(error="drop"), retries="0")
    with pytest.raises(ModelError, match=r"closing the connection|incomplete"):
        await run(talk(None, None), gate, tmp_path / "s.db")
    assert len(server.calls) == 11


async def test_a_model_of_the_users_own_waits_for_its_server(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str | Reply:
        if 2 <= len(model.calls) <= 4:
            return Reply(error=503)
        if 5 <= len(model.calls) <= 7:
            raise ConnectionRefusedError("no server")
        return "Yes."

    model, gate = ScriptedChatModel(answer), Turnstile()
    found = await run(talk(None, None), gate, tmp_path / "s.db", model=model)
    assert found.outcome is not None
    assert len(model.calls) == 8
    assert gate.ended == [6]
    name = "the model ScriptedChatModel"
    assert gate.outages == [
        *[(f"{name} answers with an error (503)", None)] * 3,
        *[(f"{name} can't be reached", None)] * 3,
    ]


async def test_the_sessions_of_a_batch_ask_only_once_which_model_the_server_has(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(lambda prompt: "Yes.", model=None)
    for gate in (Turnstile(), Turnstile()):
        for number in range(3):
            await run(talk(None, None), gate, tmp_path / "s.db", session=f"{id(gate)}{number}")
    assert [one.path for one in server.requests].count("/v1/models") == 2
