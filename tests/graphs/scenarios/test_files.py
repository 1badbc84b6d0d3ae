"""Images and other files in simulations: what the user sends, and what the agent receives."""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import MessagesState

from duologue import AgentError, Scenario, SpecError, simulate
from duologue.graphs.scenarios import HttpAgent, Suite, agent, load_suite, proceed, run_suite, user
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel
from support.agents import graph_of
from support.faulty_server import Body, FaultyServer, Sent

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DATA = b64encode(PNG).decode()
IMAGE = {"type": "image", "base64": DATA, "mime_type": "image/png"}
ADDRESS = f"data:image/png;base64,{DATA}"
NAMED = IMAGE | {"extras": {"filename": "receipt.png"}}
BY_ADDRESS: Any = {"type": "image_url", "image_url": {"url": ADDRESS}}


RECEIPT = "images/receipt.png"


@pytest.fixture
def receipt(tmp_path: Path) -> Path:
    path = tmp_path / "receipt.png"
    path.write_bytes(PNG)
    return path


class Looking:
    """An agent that keeps what it has received."""

    __name__ = "looking"

    def __init__(self) -> None:
        self.newest: list[Any] = []

    def __call__(self, messages: Sequence[BaseMessage]) -> str:
        self.newest.append(messages[-1].content)
        return "I see it."


def user_that_sends(path: Path) -> tuple[Scenario, ScriptedChatModel]:
    """Return a user that sends a file by a tool call and then says that its goal is met."""
    call = {"name": "send_receipt_png", "args": {"message": "Here it is."}, "id": "1"}
    model = ScriptedChatModel([Reply(tool_calls=[call]), "###STOP###"])
    return Scenario("Get a refund for the receipt.", files=[path]), model


@pytest.mark.parametrize("file", [RECEIPT, {"type": "image", "path": RECEIPT}])
def test_paths_in_the_file_of_a_suite_are_relative_to_it(
    file: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests"
    (folder / "images").mkdir(parents=True)
    (folder / "images/receipt.png").write_bytes(PNG)
    block = {"type": "image", "url": ADDRESS, "filename": "other.png"}
    absolute = str(folder / "images/receipt.png")
    for form in ("toml", "json"):
        fields = {
            "shared": {"files": [file, block]},
            "scenarios": {"a": {"goal": "x"}, "b": {"goal": "x", "files": [absolute]}},
        }
        path = folder / f"suite.{form}"
        path.write_text(json.dumps(fields) if form == "json" else tomli_w.dumps(fields))
        monkeypatch.chdir(tmp_path)
        suite = load_suite(f"tests/suite.{form}")
        assert [*suite.scenarios["a"].user_tools] == ["send_receipt_png", "send_other_png"]
        assert [*suite.scenarios["b"].user_tools] == ["send_receipt_png"]
    monkeypatch.chdir(folder)
    assert load_suite(fields).scenarios["a"].files == suite.scenarios["a"].files


def test_a_script_sends_images_with_and_without_text(receipt: Path) -> None:
    looking = Looking()
    script = [user(["See this.", PNG]), agent(), user([receipt]), agent(), user("Done?"), agent()]
    model = ScriptedChatModel([])
    result = simulate(Scenario("Show it.", script=script), looking, store="memory:", model=model)
    assert result.ended.kind == "script_finished"
    text = {"type": "text", "text": "[image receipt.png, 70 bytes]"}
    assert looking.newest == [
        [{"type": "text", "text": "See this."}, IMAGE],
        [text, NAMED],
        "Done?",
    ]
    assert "1. User: See this.\n    [image, 70 bytes]" in result.report()


def test_a_user_sends_a_file_of_its_scenario_by_a_tool_call(receipt: Path) -> None:
    looking = Looking()
    scenario, model = user_that_sends(receipt)
    result = simulate(scenario, looking, model=model, store="memory:")
    assert result.passed
    assert looking.newest == [[{"type": "text", "text": "Here it is."}, NAMED]]
    (tool,) = model.calls[0].tools
    assert tool["function"]["description"] == (
        "Send your next message to the agent with your file: image receipt.png, 70 bytes."
    )
    assert [*tool["function"]["parameters"]["properties"]] == ["message"]


@pytest.mark.parametrize(
    "first",
    [
        AIMessage([{"type": "text", "text": "See."}, IMAGE]),
        AIMessage([BY_ADDRESS]),
        AIMessage("See.", additional_kwargs={"images": [BY_ADDRESS]}),
    ],
    ids=["standard", "address", "beside"],
)
def test_an_image_of_the_user_s_model_reaches_the_agent(first: AIMessage) -> None:
    looking = Looking()
    model = GenericFakeChatModel(messages=iter([first, AIMessage("###STOP###")]))
    result = simulate(Scenario("Show it."), looking, model=model, store="memory:")
    assert result.passed
    assert looking.newest[0][-1] == IMAGE


def test_an_image_behind_an_address_is_named_instead_of_dropped() -> None:
    looking = Looking()
    block = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    replies = [AIMessage([{"type": "text", "text": "See."}, block]), AIMessage("###STOP###")]
    model = GenericFakeChatModel(messages=iter(replies))
    simulate(Scenario("Show it."), looking, model=model, store="memory:")
    assert looking.newest == ["See.\n[image_url, not shown]"]


def test_an_image_of_the_agent_reaches_the_user() -> None:
    def paint(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage([IMAGE])

    model = ScriptedChatModel(["Paint it.", "###STOP###"])
    result = simulate(Scenario("Get a picture."), paint, model=model, store="memory:")
    assert result.passed
    assert IMAGE in model.calls[1].messages[-1].content


def test_a_graph_receives_the_image(receipt: Path) -> None:
    seen: list[Any] = []

    def step(state: MessagesState) -> dict[str, Any]:
        seen.append(state["messages"][-1].content)
        return {"messages": [AIMessage("I see it.")]}

    scenario, model = user_that_sends(receipt)
    assert simulate(scenario, graph_of(step), model=model, store="memory:").passed
    assert seen[0][-1] == NAMED


@pytest.mark.parametrize("refuses", [False, True], ids=["0.3", "1.0"])
def test_an_a2a_endpoint_receives_the_image(receipt: Path, refuses: bool) -> None:
    parts: list[Any] = []

    def reply(_: str, body: Body) -> Sent:
        found: dict[str, Any] = {"jsonrpc": "2.0", "id": body["id"]}
        if refuses and body["method"] != "SendMessage":
            return Sent(json.dumps(found | {"error": {"code": -32601}}).encode())
        parts.append(body["params"]["message"]["parts"])
        said = {"role": "ROLE_AGENT", "parts": [{"text": "I see it."}]}
        return Sent(json.dumps(found | {"result": {"message": said}}).encode())

    scenario, model = user_that_sends(receipt)
    with FaultyServer(reply) as server:
        result = simulate(scenario, f"a2a:{server.url}/a2a", model=model, store="memory:")
    assert result.passed
    old = {"bytes": DATA, "mimeType": "image/png", "name": "receipt.png"}
    new = {"raw": DATA, "mediaType": "image/png", "filename": "receipt.png"}
    assert parts[0][1:] == [new if refuses else {"kind": "file", "file": old}]


def test_an_endpoint_of_json_receives_the_image_or_the_error_names_the_remedy(
    receipt: Path,
) -> None:
    bodies: list[Body] = []

    def reply(_: str, body: Body) -> Sent:
        bodies.append(body)
        return Sent(b'{"reply": "I see it."}')

    sends_files: dict[str, Any] = {"q": "{message}", "images": "{files}"}
    with FaultyServer(reply) as server:
        for request in (sends_files, {"all": "{messages}"}):
            scenario, model = user_that_sends(receipt)
            shop = HttpAgent(f"{server.url}/ask", request=request)
            assert simulate(scenario, shop, model=model, store="memory:").passed
        scenario, model = user_that_sends(receipt)
        with pytest.raises(AgentError) as caught:
            simulate(scenario, HttpAgent(f"{server.url}/ask"), model=model, store="memory:")
    assert bodies[0] == {"q": "Here it is.", "images": [ADDRESS]}
    assert ADDRESS in json.dumps(bodies[1])
    assert (
        "agent.request: the user's message has a file, which this request does not send; add a "
        "value '{files}' or '{messages}'" in str(caught.value)
    )


def test_each_scenario_of_a_suite_has_its_files(receipt: Path) -> None:
    looking = Looking()

    def write(prompt: Prompt) -> Reply | str:
        if prompt[-1]["content"] == "I see it.":
            return "###STOP###"
        if "Ask." in prompt[0]["content"]:
            return "What is it?"
        call = {"name": "send_receipt_png", "args": {"message": "Here it is."}, "id": "1"}
        return Reply(tool_calls=[call])

    suite = Suite({"sends": Scenario("Send it.", files=[receipt]), "asks": Scenario("Ask.")})
    model = ScriptedChatModel(write)
    report = run_suite(suite, looking, model=model, store="memory:", name="s")
    assert [row.outcomes for row in report.scenarios] == [{"passed": 1}, {"passed": 1}]
    sent = [{"type": "text", "text": "Here it is."}, NAMED]
    assert sorted(looking.newest, key=len) == [sent, "What is it?"]


def test_files_with_one_name_or_alike_names_are_the_same_file(receipt: Path) -> None:
    other = NAMED | {"base64": b64encode(PNG + b"\n").decode()}
    problem = r"'receipt\.png' is another file than 'receipt\.png' in 'a'; rename one of them$"
    with pytest.raises(SpecError, match=rf"^scenarios\.b\.files: {problem}"):
        Suite({"a": Scenario("A.", files=[receipt]), "b": Scenario("B.", files=[other])})
    files = [
        NAMED | {"base64": b64encode(PNG + end).decode(), "extras": {"filename": name}}
        for name, end in (("a-b.png", b""), ("a_b.png", b"\n"))
    ]
    with pytest.raises(SpecError, match=r"'a_b\.png' is another file than 'a-b\.png' in 'a'"):
        Suite({name: Scenario("A.", files=[file]) for name, file in zip("ab", files, strict=True)})
    with pytest.raises(SpecError, match="differs only in signs"):
        Scenario("A.", files=files)
    long = NAMED | {"extras": {"filename": f"{'x' * 150}.png"}}
    (tool,) = Scenario("A.", files=[long]).user_tools
    assert len(tool) == 80


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([PNG], "files: a file has no name; pass its path, or a block with a filename"),
        ([NAMED, NAMED], "files: two files have the name 'receipt.png', or one that differs"),
        ("a.png", "file: must be a list of paths, addresses or bytes"),
        (["missing.png"], "missing.png does not exist; correct the path"),
        ([b"text"], "is not a PNG, JPEG, WebP or GIF image"),
    ],
)
def test_a_wrong_file_is_one_error(files: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError) as caught:
        Scenario("Show it.", files=files)
    assert words in str(caught.value)


def test_a_turn_without_anything_is_refused() -> None:
    with pytest.raises(SpecError, match="user: must not be empty; pass a text or a file"):
        user([])
    assert Scenario("Show it.", script=[user(), agent(), proceed()]).script is not None
