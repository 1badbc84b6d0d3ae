"""Recorded simulations: exact replays without models and servers, and what they refuse."""

import http.client
import os
import platform
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI

from duologue import Scenario, SpecError, asimulate
from duologue.graphs.scenarios import SimulationResult
from duologue.graphs.scenarios.recording import RecordingError, RecordMode, RecordOptions, record
from duologue.nodes.testing import Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.agents import serve_locally
from support.log import fields_of

GOAL = "Get one charge for order 1042 refunded."
SCENARIO = Scenario(GOAL, criteria=["The agent refunds."])
VERDICT = {"criterion_1": {"reason": "It does.", "message": 2, "finding": "met"}}

Agent = Callable[[Sequence[BaseMessage]], Any]


def refunds(messages: Sequence[BaseMessage]) -> str:
    return f"Refunded after {len(messages)} messages."


async def run(
    place: Path,
    mode: RecordMode,
    agent: Any = refunds,  # noqa: ANN401  # any agent
    *,
    scenario: Scenario = SCENARIO,
    patterns: Sequence[str] = (),
    allowed: Sequence[str] = (),
    **models: Any,
) -> SimulationResult:
    """Run a simulation with a recording, by default with scripted models."""
    given = {
        "model": ScriptedChatModel(["Refund order 1042.", "Thanks. ###STOP###"]),
        "judge_model": ScriptedChatModel([VERDICT]),
    } | models
    options = RecordOptions(mode, tuple(patterns), tuple(allowed))
    work = partial(asimulate, scenario, agent, store="memory:", **given)
    return await record(place, options, scenario, work)


NO_MODELS: dict[str, Any] = {"model": ScriptedChatModel([]), "judge_model": ScriptedChatModel([])}
"""Models that can't answer."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "recordings" / "test.json"


def read(place: Path) -> str:
    return place.read_text(encoding="utf-8") if place.exists() else ""


def write(place: Path, text: str) -> None:
    place.parent.mkdir()
    place.write_text(text, encoding="utf-8")


async def test_a_replay_asks_no_model_and_has_the_same_result(place: Path) -> None:
    """U7."""
    first = await run(place, "new")
    # A run that was killed while it wrote the file has left this.
    (place.parent / ".duologue-0.tmp").write_text("half")
    for mode in ("new", "none"):
        again = await run(place, mode, **NO_MODELS)
        assert again.transcript == first.transcript
        assert (again.ended, again.verdicts) == (first.ended, first.verdicts)
        assert again.passed
    assert not any(one.calls for one in NO_MODELS.values())
    assert [*place.parent.iterdir()] == [place]


async def test_a_thought_and_the_reason_of_a_stop_are_replayed(place: Path) -> None:
    cut = Reply(text="Refund order 10", reasoning="I ask.", finish_reason="content_filter")
    first = await run(place, "new", model=ScriptedChatModel([cut, "Thanks. ###STOP###"]))
    again = await run(place, "none", **NO_MODELS)
    for one in (first, again):
        messages = one.conversation.messages
        about = fields_of(next(each for each in messages if each.text == cut.text))
        assert about.stop.word == "content_filter"
        assert about.thought.text == "I ask."


async def test_all_records_again(place: Path) -> None:
    await run(place, "new")
    await run(place, "all", lambda _: "Changed.")
    replay = await run(place, "none", lambda _: "Changed.", **NO_MODELS)
    assert replay.transcript[1] == ("Agent", "Changed.")


@pytest.mark.exhaustive
async def test_models_named_in_the_settings_are_replayed_without_a_server(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = '{"criterion_1": {"reason": "It does.", "message": 2, "finding": "met"}}'
    lines = ["Refund order 1042.", "Thanks. ###STOP###", verdict]
    by_name: dict[str, Any] = {"model": None, "judge_model": "shop-judge"}
    with ScriptedServer(lines, models=["shop-user", "shop-judge"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-server")
        first = await run(place, "new", **by_name)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    again = await run(place, "none", **by_name)
    assert again.transcript == first.transcript
    assert again.passed
    assert "key-of-the-server" not in read(place)
    with pytest.raises(RecordingError, match="now uses the model 'other', which was not recorded"):
        await run(place, "none", model="other")


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"scenario": Scenario("Get order 7.", criteria=["The agent refunds."])},
            r"call 1 of a model \(by User\) differs: messages\.0\.text is",
        ),
        (
            {"agent": lambda _: "Refused."},
            r"call 2 .* differs: messages\.3\.text is 'Refused\.' instead of 'Refunded after",
        ),
        ({"scenario": Scenario(GOAL)}, r"call 3 of a model .* is no longer made"),
    ],
    ids=["the goal", "the agent's reply", "no judge"],
)
async def test_a_change_fails_and_names_the_first_difference(
    changes: dict[str, Any], words: str, place: Path
) -> None:
    await run(place, "new")
    for mode in ("new", "none"):
        with pytest.raises(RecordingError, match=words + ".*record it again by --simulate-record"):
            await run(place, mode, **changes, **NO_MODELS)


async def test_a_further_call_of_a_model_is_named(place: Path) -> None:
    await run(place, "new", scenario=Scenario(GOAL))
    with pytest.raises(RecordingError, match=r"asked once more than recorded \(call 3\)"):
        await run(place, "none", **NO_MODELS)


async def test_none_without_a_recording_runs_nothing(place: Path) -> None:
    with pytest.raises(RecordingError, match="there is no recording of this simulation; record it"):
        await run(place, "none", **NO_MODELS)
    assert not read(place)


async def test_a_simulation_that_fails_is_not_recorded(place: Path) -> None:
    with pytest.raises(Exception, match="no agent today"):
        await run(place, "new", fails)
    assert not read(place)


def fails(_: object) -> str:
    raise OSError("no agent today")


async def test_a_damaged_recording_is_one_error(place: Path) -> None:
    write(place, '{"version": 1, "calls": [{"answer": 3}]}')
    with pytest.raises(RecordingError, match=r"calls\.0\.request is not readable"):
        await run(place, "none", **NO_MODELS)


# HTTP


numbers = count(1)
"""The numbers of the shop's answers, which contain secrets."""


@pytest.fixture
def shop() -> Iterator[tuple[str, Callable[[], None]]]:
    """Return the address of a shop, and a function that stops it."""
    secrets = '"access_token": "token-of-shop", "mail": "bob@shop.de"'
    with ExitStack() as running:
        server = serve_locally(lambda path: f'{{"number": {next(numbers)}, {secrets}}}')
        yield f"http://127.0.0.1:{running.enter_context(server)}", running.close


KEY = "key-in-a-header-123"


def by_httpx(url: str, said: str) -> str:
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.post(f"{url}/a?key={KEY}", json={"said": said}, headers=headers).text


def by_httpx2(url: str, said: str) -> str:
    return httpx2.post(f"{url}/a", json={"said": said, "api_key": KEY}).text


def by_requests(url: str, said: str) -> str:
    return requests.post(f"{url}/a", data={"said": said, "token": KEY}, timeout=9).text


def by_urllib(url: str, said: str) -> str:
    request = urllib.request.Request(f"{url}/a", said.encode(), {"X-Api-Key": KEY})  # noqa: S310
    with urllib.request.urlopen(request) as response:  # noqa: S310
        text: str = response.read().decode()
    return text


def by_thread(url: str, said: str) -> str:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(by_httpx, url, said).result()


CLIENTS = [by_httpx, by_httpx2, by_requests, by_urllib, by_thread]


@pytest.mark.part(1)
@pytest.mark.parametrize("send", CLIENTS)
async def test_the_requests_of_an_agent_are_replayed_without_its_server(
    send: Callable[[str, str], str], place: Path, shop: tuple[str, Callable[[], None]]
) -> None:
    url, stop = shop

    def agent(messages: Sequence[BaseMessage]) -> str:
        return send(url, messages[-1].text)

    first = await run(place, "new", agent)
    stop()
    again = await run(place, "none", agent, **NO_MODELS)
    number = first.transcript[1][1].split(",")[0]
    assert again.transcript[1][1].startswith(number)
    assert again.passed
    secrets = (KEY, "token-of-shop", "cookie-77", "bob@shop.de")
    assert not [one for one in secrets if one in read(place)]

    def changed(messages: Sequence[BaseMessage]) -> str:
        try:
            return send(url, "Another.")
        except Exception:
            # An agent may go on after an error. The simulation ends nevertheless.
            return "It failed."

    with pytest.raises(RecordingError, match=r"the request POST .* differs from request 1: body"):
        await run(place, "none", changed, **NO_MODELS)
    replies = iter([text for name, text in again.transcript if name == "Agent"])
    with pytest.raises(RecordingError, match=r"request 1 \(POST .* is no longer sent"):
        await run(place, "none", lambda _: next(replies), **NO_MODELS)


@pytest.mark.exhaustive
async def test_an_agent_that_is_a_chat_model_is_replayed(place: Path) -> None:
    with ScriptedServer(["Refunded.", "Bye."], models=["agent"]) as server:
        agent = ChatOpenAI(base_url=server.url, model="agent", api_key=lambda: KEY)
        first = await run(place, "new", agent)
    again = await run(place, "none", agent, **NO_MODELS)
    assert again.transcript == first.transcript
    assert KEY not in read(place)


async def test_requests_with_the_ids_of_messages_are_replayed(
    place: Path, shop: tuple[str, Callable[[], None]]
) -> None:
    url, stop = shop
    sent: list[str] = []

    def agent(messages: Sequence[BaseMessage]) -> str:
        sent.append(f"{messages[-1].id}")
        text = httpx.post(f"{url}/{sent[-1]}", json={"ids": [one.id for one in messages]}).text
        return text.split(",")[0]

    first = await run(place, "new", agent)
    stop()
    again = await run(place, "none", agent, **NO_MODELS)
    assert again.transcript == first.transcript
    assert len({*sent}) == len(sent)

    def changed(messages: Sequence[BaseMessage]) -> str:
        return httpx.post(f"{url}/{messages[0].id}", json={"ids": []}).text

    with pytest.raises(RecordingError, match=r"the request POST .* differs from request 1: body"):
        await run(place, "none", changed, **NO_MODELS)


async def test_a_folder_that_cannot_be_made_is_reported_before_a_model_is_called(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    asked: list[str] = []

    def agent(messages: Sequence[BaseMessage]) -> str:
        asked.append(messages[-1].text)
        return "Yes."

    for name in ("file", "dangling"):
        problem = f"{name}/test.json: can't be written: a part of its path is a file, or a link"
        with pytest.raises(SpecError, match=problem):
            await run(tmp_path / name / "test.json", "new", agent)
    assert not asked


async def test_a_client_may_describe_this_machine_in_a_replay(place: Path) -> None:
    def describes(_: object) -> str:
        # The programs `file` and, at the first call of a process, `uname`.
        found = platform.architecture()[0], platform.uname().processor
        return f"A client for {found}."

    await run(place, "new", describes)
    vars(platform.uname()).pop("processor", None)
    again = await run(place, "none", describes, **NO_MODELS)
    assert again.passed


async def test_calls_that_nothing_can_record_are_refused_and_named(place: Path) -> None:
    await run(place, "new")

    def connects(_: object) -> str:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
        return "connected"

    def starts(_: object) -> str:
        subprocess.run([sys.executable, "-c", ""], check=True)
        return "started"

    with pytest.raises(RecordingError, match=r"was asked to connect to 127\.0\.0\.1:9"):
        await run(place, "none", connects, **NO_MODELS)
    with pytest.raises(RecordingError, match="was asked to start the program 'python"):
        await run(place, "none", starts, **NO_MODELS)
    with pytest.raises(RecordingError, match="was asked to start the program 'uname'"):
        await run(place, "none", lambda _: f"{os.system('uname -a')}", **NO_MODELS)  # noqa: S605
    # Only inside a replay, and not if it is allowed.
    program = Path(sys.executable).name
    with pytest.raises(RecordingError, match="'started' instead of"):
        await run(place, "none", starts, allowed=[program], **NO_MODELS)
    assert starts(None) == "started"


async def test_hosts_that_are_allowed_are_neither_recorded_nor_refused(
    place: Path, shop: tuple[str, Callable[[], None]]
) -> None:
    url, _ = shop

    def agent(_: object) -> str:
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        connection.request("GET", "/")
        return f"Status {connection.getresponse().status}."

    before = next(numbers)
    for mode in ("new", "none"):
        await run(place, mode, agent, allowed=["127.0.0.1"])
    assert next(numbers) > before + 2
    assert "exchanges" not in read(place)


async def test_own_patterns_are_hidden(place: Path) -> None:
    user = ScriptedChatModel(["I am customer-77.", "Thanks. ###STOP###"])
    options: dict[str, Any] = {"patterns": [r"customer-\d+"]}
    await run(place, "new", model=user, **options)
    assert "customer-77" not in read(place)
    again = await run(place, "none", **options, **NO_MODELS)
    assert again.transcript[0] == ("User", "I am [hidden].")
