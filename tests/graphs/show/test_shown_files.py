"""Files of messages for people and programs: pages, exports, the terminal, the local page."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from starlette.testclient import TestClient

from duologue import Session, chat, converse, stream
from duologue.graphs.cli.options import ExitCode
from duologue.graphs.events import MessageSaid, ToolCallFinished
from duologue.graphs.view.app import view_app
from duologue.graphs.view.local_server import Guard
from duologue.graphs.view.pages import Runs
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.cli_help import duologue, isolate, serving
from support.files import PDF, PNG, block_of
from support.html import Seen

MOST_ON_PAGE = "duologue.graphs.show.page.MOST_ON_PAGE"
DATA = b64encode(PNG).decode()
PORT = 4322
HOME = f"http://127.0.0.1:{PORT}"


def named(name: str, data: bytes = PNG) -> dict[str, Any]:
    return {**block_of(data), "extras": {"filename": name}}


def session_with(*parts: Any) -> Session:
    model = ScriptedChatModel(script=["A plan."])
    return converse(chat(), message=[*parts], model=model, store="memory:shown").session


def chart_tool() -> BaseTool:
    @tool
    def draw() -> list[dict[str, Any]]:
        """Draw a chart."""
        return [{"type": "text", "text": "Done."}, named("chart.png")]

    return draw


def test_a_page_contains_the_images_and_offers_other_files_as_downloads() -> None:
    page = Seen(session_with("Look", named("plan.png"), named('"><b>.pdf', PDF)).export("html"))
    (image,) = page.all("img")
    assert image == {"src": f"data:image/png;base64,{DATA}", "alt": "image plan.png, 5 KB"}
    (link,) = [one for one in page.all("a") if "download" in one]
    assert link["download"] == '"><b>.pdf'
    assert (link["href"] or "").startswith("data:application/pdf;base64,")
    (policy,) = [one["content"] or "" for one in page.all("meta") if "http-equiv" in one]
    assert "img-src data:; media-src data:" in policy


def test_a_page_describes_files_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOST_ON_PAGE, len(PNG) * 3 // 2)
    page = Seen(session_with("Look", named("a.png"), named("b.png")).export("html"))
    assert [one["alt"] for one in page.all("img")] == ["image a.png, 5 KB"]
    assert "image b.png, 5 KB, not on this page" in page.text


def test_the_limit_of_a_page_counts_the_bytes_of_all_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_with("Look", named("a.png"))
    session.add_message("User", ["And", named("b.png")])
    monkeypatch.setattr(MOST_ON_PAGE, 2 * len(PNG))
    assert len(Seen(session.export("html")).all("img")) == 2
    monkeypatch.setattr(MOST_ON_PAGE, 2 * len(PNG) - 1)
    assert len(Seen(session.export("html")).all("img")) == 1


def test_a_memory_contains_only_the_files_that_the_speaker_received() -> None:
    session = session_with("Look", named("plan.png"))
    assert Seen(session.export("html", speaker="Assistant")).all("img")


def test_a_notebook_shows_the_images() -> None:
    shown = session_with("Look", named("plan.png")).state()._repr_html_()
    assert f'<img src="data:image/png;base64,{DATA}"' in shown


def test_exports_for_readers_describe_files_and_those_for_models_contain_them() -> None:
    session = session_with("Look", named("plan.png"))
    assert "*[image plan.png, 5 KB]*" in session.export("markdown").replace("\\", "")
    (line,) = map(json.loads, session.export("openai").splitlines())
    url = {"url": f"data:image/png;base64,{DATA}"}
    expected = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": url}]
    asked = next(one for one in line["messages"] if one["role"] == "user")
    assert asked["content"] == expected
    (line,) = map(json.loads, session.export("sharegpt").splitlines())
    assert line["conversations"][1]["value"] == "Look\n[image, 5 KB]"
    (first, _) = session.state().trajectory()
    assert first["content"] == expected


def test_events_contain_files_but_not_their_json() -> None:
    call = Reply(tool_calls=[ScriptedToolCall(name="draw", args={}, id="c1")])
    model = ScriptedChatModel(script=[call, "Here."])
    talk = chat(tools=[chart_tool()])
    found = list(stream(talk, message=["Draw", named("a.png")], model=model, store="memory:"))
    said = next(one for one in found if isinstance(one, MessageSaid))
    assert said.files == (named("a.png"),)
    assert DATA not in said.model_dump_json()
    result = next(one for one in found if isinstance(one, ToolCallFinished))
    assert (result.text, result.files) == ("Done.", (named("chart.png"),))
    page = Seen(Session(found[0].session, store="memory:").export("html"))  # type: ignore[union-attr]
    assert [one["alt"] for one in page.all("img")] == [
        "image a.png, 5 KB",
        "image chart.png, 5 KB",
    ]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    path = tmp_path / "plan.png"
    path.write_bytes(PNG)
    return path


def test_files_are_attached_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, plan: Path
) -> None:
    with serving(monkeypatch, "A plan.", "The same.") as server:
        chat_, attach = ["chat", "What?", "--session", "c"], ["--attach", str(plan)]
        assert duologue(*chat_, *attach).exit_code == ExitCode.WAITING
        (text, image) = server.calls[0].body["messages"][-1]["content"]
        assert (text["text"], image["type"]) == ("What?", "image_url")
        ran = duologue("answer", "c", "And this?", *attach)
        assert len(server.calls[1].body["messages"][-1]["content"]) == 2
    assert "[image plan.png, 5 KB]" in ran.stdout
    assert duologue("say", "c", "User", "Last.", *attach).exit_code == 0
    assert duologue("show", "c").stdout.count("[image plan.png, 5 KB]") == 3


def test_an_attached_file_that_is_missing_is_one_error(plan: Path) -> None:
    ran = duologue("chat", "What?", "--attach", "none.png")
    assert (ran.exit_code, ran.stdout) == (ExitCode.BAD_INPUT, "")
    assert "--attach.0: none.png does not exist; correct the path" in ran.stderr


@pytest.fixture
def user() -> Any:  # noqa: ANN401
    model = ScriptedChatModel(script=["A plan."])
    converse(chat(), session="asked", store="memory:view-files", model=model)
    guard = Guard(view_app(Runs("memory:view-files", model), lambda: False), PORT, "the token")
    with TestClient(guard, base_url=HOME, follow_redirects=False) as client:
        client.get("/", params={"token": "the token"})
        client.headers["Origin"] = HOME
        yield client
    Session("asked", store="memory:view-files").delete()


def answered(user: TestClient, *files: tuple[str, bytes]) -> int:
    form = {"question": Session("asked", store="memory:view-files").state().pending[0].id}
    sent = [("files", (name, data, "text/plain")) for name, data in files]
    return user.post(
        "/sessions/asked/answer", data={**form, "text": "Look"}, files=sent
    ).status_code


def test_an_answer_on_the_local_page_contains_the_chosen_files(user: TestClient) -> None:
    assert answered(user, ("", b""), ("plan.png", PNG)) == 303
    first = Session("asked", store="memory:view-files").state().messages[0]
    assert first.content[1] == named("plan.png")
    assert Seen(user.get("/sessions/asked").text).all("img")


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"<script>", 303, "files.0: plan.png is not a PNG"),
        (PNG + bytes(20_000_000), 303, "files.0: plan.png is too large"),
        (bytes(22_000_000), 413, ""),
    ],
)
def test_a_wrong_file_on_the_local_page_is_an_error_on_the_page(
    user: TestClient, data: bytes, status: int, words: str
) -> None:
    assert answered(user, ("plan.png", data)) == status
    assert words in user.get("/sessions/asked").text
    assert Session("asked", store="memory:view-files").state().pending
