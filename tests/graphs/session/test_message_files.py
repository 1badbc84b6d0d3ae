"""Images and files in messages, from the caller to the model, in stores, dumps and forks."""

import json
import sqlite3
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool

from duologue import (
    AnswerError,
    Conversation,
    Hook,
    MessageQuestion,
    ModelError,
    RunningSummary,
    Session,
    Speaker,
    SpecError,
    StoreError,
    ask,
    build_graph,
    chat,
    converse,
    load_session,
    remember,
    stream,
)
from duologue.graphs.events import Notice
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools import Turn
from providers.fakes import client_of, fake
from support.files import PDF, PNG, block_of, files_of
from support.graphs import ChatForm, RolePlayForm
from support.stores import EACH_STORE, store_address


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.png"
    path.write_bytes(PNG)
    return path


def kinds(message: BaseMessage) -> list[str]:
    return [one["type"] for one in message.content if isinstance(one, dict)]


def shown_files(model: ScriptedChatModel) -> list[list[str]]:
    """Return the types of the files in each message of the newest prompt."""
    return [[one["type"] for one in files_of(found)] for found in model.calls[-1].messages]


def calls(tool: str, name: str) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=tool, args={"name": name}, id="call_1")])


def test_a_question_with_images_reaches_the_server_in_openai_form(plan: Path) -> None:
    with fake("openai_chat", ["A plan."]) as server:
        files: Any = [plan, str(plan), PDF]
        found = ask(
            Speaker("Eye", "You see."),
            "What?",
            images=files,
            model=client_of("openai_chat", server),
            store="memory:",
        )
    assert found.text == "A plan."
    parts = server.calls[0].body["messages"][-1]["content"]
    url = f"data:image/png;base64,{b64encode(PNG).decode()}"
    assert parts[0] == {"type": "text", "text": "What?"}
    assert [one["image_url"]["url"] for one in parts[1:3]] == [url, url]
    assert parts[3]["file"]["file_data"].startswith("data:application/pdf;base64,")


def test_a_persons_message_with_a_file_is_heard_by_the_others(plan: Path, store: str) -> None:
    model = ScriptedChatModel(script=["A plan.", "Yes."])
    found = converse(chat(), message=["What is this?", plan], model=model, store=store, session="a")
    (message, _) = found.messages
    assert message.text == "What is this?"
    assert files_of(message)[0]["extras"] == {"filename": "plan.png"}
    assert shown_files(model) == [[], ["image"]]
    found = Session("a", store=store).answer(["And", PNG, "this?"], model=model)
    assert found.messages[2].text == "And\n\nthis?"
    assert kinds(found.messages[2]) == ["text", "image", "text"]
    assert shown_files(model)[-1] == ["image"]
    assert shown_files(model)[1] == ["image"]


def test_a_message_of_only_a_file_has_a_description_as_text() -> None:
    model = ScriptedChatModel(script=["A plan."])
    found = converse(chat(), message=[PNG], model=model, store="memory:")
    assert found.messages[0].text == "[image, 5 KB]"


def test_a_message_is_added_to_a_stored_session_with_a_file(store: str) -> None:
    model = ScriptedChatModel(script=["Hello.", "Nice."])
    a = converse(chat(), message="Hi", model=model, store=store, session="a").session
    a.add_message("User", ["Look:", block_of(PNG)])
    found = a.resume(model=model)
    assert kinds(found.messages[-2]) == ["text", "image"]
    assert found.text == "Nice."


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([b"no file"], r"message\.0: the file is not a PNG"),
        (["Look", Path("/nowhere/a.png")], r"message\.1: /nowhere/a\.png does not exist"),
        (["Look", {"type": "image", "url": "ftp://x/a.png"}], r"message\.1: ftp://x/a\.png must"),
        ([{"type": "image", "base64": "?"}], r"message\.0\.base64: is not valid base64"),
        ([{"type": "tool_use"}], r"message\.0: a block of the type 'tool_use' is not accepted"),
        ([PNG, PNG + bytes(20_000_000)], r"message\.1: the file is too large"),
        ([7], r"message\.0: must be a text, a path, bytes or a content block, not int"),
        ([], "message: must not be empty"),
    ],
)
def test_wrong_content_is_one_error_before_any_call(given: list[Any], words: str) -> None:
    model = ScriptedChatModel(script=[])
    with pytest.raises(SpecError, match=words):
        converse(chat(), message=given, model=model, store="memory:")
    found = converse(chat(), model=model, store="memory:")
    if given:
        with pytest.raises(AnswerError, match=f"the question stays open: {words}"):
            found.session.answer(given, model=model)
    assert not model.calls


def test_a_file_is_downloaded_only_within_the_limit(tmp_path: Path) -> None:
    import functools
    import threading
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "big.png").write_bytes(PNG + bytes(20_000_000))
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            model = ScriptedChatModel(script=["A plan."])
            found = ask(
                Speaker("Eye"), "What?", images=[f"{url}/a.png"], model=model, store="memory:"
            )
            assert files_of(found.messages[0])[0]["extras"]["filename"] == "a.png"
            with pytest.raises(SpecError, match=r"images\.0: big\.png is too large"):
                ask(Speaker("Eye"), "What?", images=[f"{url}/big.png"], model=model)
            with pytest.raises(SpecError, match=r"images\.0: .* HTTP 404; correct the address"):
                ask(Speaker("Eye"), "What?", images=[f"{url}/none.png"], model=model)
        finally:
            server.shutdown()
            thread.join()


def test_bytes_of_a_file_are_stored_once_for_each_session(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    model = ScriptedChatModel(script=["One.", "Two.", "Three."])
    found = converse(chat(), message=["Look", PNG], model=model, store=place, session="a")
    found = found.session.answer(["Again", PNG], model=model)
    branch = found.session.fork(at=1, into="b")
    encoded = b64encode(PNG)
    with sqlite3.connect(place) as database:
        rows = database.execute("SELECT session, data FROM duologue_files ORDER BY session")
        assert rows.fetchall() == [("a", PNG), ("b", PNG)]
        for table, column in (("writes", "value"), ("checkpoints", "checkpoint")):
            for (value,) in database.execute(f"SELECT {column} FROM {table}"):  # noqa: S608
                assert encoded[:200] not in (value or b"")
    found.session.delete()
    assert kinds(branch.state().messages[0]) == ["text", "image"]
    branch.delete()
    with sqlite3.connect(place) as database:
        assert database.execute("SELECT count(*) FROM duologue_files").fetchone() == (0,)


def test_a_fork_keeps_its_files_if_its_origin_is_deleted(store: str) -> None:
    model = ScriptedChatModel(script=["One.", "Two."])
    found = converse(chat(), message=["Look", PNG], model=model, store=store, session="a")
    origin = found.session
    branch = origin.fork(into="b")
    copy = origin.copy(into="c")
    origin.delete()
    for session in (branch, copy):
        assert session.state().messages[0].content == found.messages[0].content
    branch.resume(message="Go on.", model=model)
    assert shown_files(model)[1] == ["image"]


@pytest.mark.parametrize(
    "damage", ["DELETE FROM duologue_files", "UPDATE duologue_files SET data = 'x'"]
)
def test_a_missing_or_changed_file_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    place = tmp_path / "sessions.db"
    model = ScriptedChatModel(script=["One."])
    found = converse(chat(), message=["Look", PNG], model=model, store=place, session="a")
    with sqlite3.connect(place) as database:
        ((digest,),) = database.execute("SELECT digest FROM duologue_files").fetchall()
        database.execute(damage)
    with pytest.raises(StoreError, match=f"session 'a' can't be read: the file {digest}"):
        found.session.state()


def test_a_dump_contains_each_file_once_and_can_be_loaded(store: str) -> None:
    a = Session("a", store=store)
    model = ScriptedChatModel(script=["One.", "Two.", "Three."])
    found = converse(chat(), message=["Look", PNG], model=model, store=store, session="a")
    found = a.answer(["Again", PNG], model=model)
    dump = a.dump()
    assert json.dumps(dump).count(b64encode(PNG).decode()) == 1
    a.delete()
    loaded = load_session(dump, store=store)
    assert [one.content for one in loaded.state().messages] == [
        one.content for one in found.messages
    ]
    assert loaded.dump() == {**dump, "session": loaded.id}
    (digest,) = dump["files"]
    for files, words in (
        ({}, f"the file {digest} is missing"),
        ({digest: "AAAA"}, "does not have this digest"),
    ):
        with pytest.raises(SpecError, match=words):
            load_session({**dump, "files": files}, store=store, into="x")


@tool
def draw(name: str) -> list[dict[str, Any]]:
    """Draw a plan."""
    return [{"type": "text", "text": f"Here is {name}."}, block_of(PNG)]


@tool
def link(name: str) -> list[dict[str, Any]]:
    """Return an address."""
    return [{"type": "image", "url": "http://127.0.0.1:9/a.png"}, {"type": "image", "path": name}]


def test_an_image_of_a_tool_follows_its_result_in_a_message_of_the_user(store: str) -> None:
    script: list[Any] = [calls("draw", "A"), "A plan."]
    with fake("openai_chat", script) as server:
        ask(
            Speaker("Eye", tools=[draw]),
            "Draw it.",
            model=client_of("openai_chat", server),
            store=store,
            session="a",
        )
    sent = server.calls[1].body["messages"]
    assert [one["role"] for one in sent[-4:]] == ["assistant", "tool", "assistant", "user"]
    assert sent[-3]["content"] == "Here is A.\n[image, 5 KB]"
    assert [one["type"] for one in sent[-1]["content"]] == ["text", "image_url"]
    result = next(
        one for one in Session("a", store=store).state().messages if isinstance(one, ToolMessage)
    )
    assert result.text == "Here is A."
    assert len(files_of(result)) == 1


@pytest.mark.parametrize("made", [link])
def test_an_address_in_the_result_of_a_tool_is_not_opened(made: BaseTool, plan: Path) -> None:
    model = ScriptedChatModel(script=[calls("link", str(plan)), "No."])
    found = ask(Speaker("Eye", tools=[made]), "Show it.", model=model, store="memory:")
    result = next(one for one in found.messages if isinstance(one, ToolMessage))
    assert result.content == "[image, not shown]\n[image, not shown]"


def test_a_path_in_the_reply_of_a_model_is_not_opened(plan: Path) -> None:
    model = ScriptedChatModel(script=[f"![a]({plan})", "So."])
    found = ask(Speaker("Eye"), "Show it.", model=model, store="memory:")
    assert found.messages[-1].content == f"![a]({plan})"


async def test_graphs_accept_inline_files_and_refuse_addresses(plan: Path) -> None:
    graph = build_graph(form=ChatForm, model=(model := ScriptedChatModel(script=["A plan."])))
    image = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"},
    }
    found = await graph.ainvoke(
        {"messages": [HumanMessage([{"type": "text", "text": "See"}, image])]}
    )
    assert kinds(found["messages"][0]) == ["text", "image"]
    assert shown_files(model)[-1] == ["image"]
    for block in (
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}},
        {"type": "image", "url": f"file://{plan}"},
        {"type": "image", "path": str(plan)},
    ):
        with pytest.raises(SpecError, match=r"messages\.content\.0: an? \w+ is not opened here"):
            await graph.ainvoke({"messages": [{"role": "user", "content": [block]}]})
    roles = build_graph(form=RolePlayForm, model=ScriptedChatModel(script=[]))
    with pytest.raises(SpecError, match="no person takes part"):
        await roles.ainvoke({"messages": [HumanMessage([block_of(PNG)])]})


def test_a_model_without_images_reads_a_description_and_warns_once(plan: Path) -> None:
    model = ScriptedChatModel(script=["One.", "Two."], profile={"image_inputs": False})
    answers = iter([["And this?", PNG], "exit"])
    events = [
        *stream(
            chat(),
            message=["See", plan],
            model=model,
            store="memory:",
            answer=lambda _: next(answers),
        )
    ]
    assert [one.text for one in model.calls[-1].messages[1:]] == [
        "See\n[image plan.png, 5 KB, not shown]",
        "One.",
        "And this?\n[image, 5 KB, not shown]",
    ]
    warned = [one.text for one in events if isinstance(one, Notice)]
    assert len([one for one in warned if "does not accept images" in one]) == 1


@pytest.mark.parametrize(("attachments", "shown"), [(True, ["image"]), (False, [])])
def test_a_setting_decides_whether_files_are_sent(attachments: bool, shown: list[str]) -> None:
    model = ScriptedChatModel(script=["One."], profile={"image_inputs": False})
    eye = Speaker("Eye", model_settings={"attachments": attachments})
    ask(eye, "See", images=[PNG], model=model, store="memory:")
    assert shown_files(model)[-1] == shown


def test_the_refusal_of_a_file_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Reply(error=400, message="This model reads no images.")
    with ScriptedServer([refusal], models=["blind"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        words = r"set speakers\.1\.model_settings\.attachments = false"
        with pytest.raises(ModelError, match=words):
            ask(Speaker("Eye", model="blind"), "See", images=[PNG], store="memory:")


def test_examples_may_contain_images(plan: Path) -> None:
    examples: Any = [{"role": "user", "content": ["What is it?", plan]}, ("assistant", "A plan.")]
    eye = Speaker("Eye", examples=examples)
    model = ScriptedChatModel(script=["One."])
    ask(eye, "And this?", images=[PNG], model=model, store="memory:")
    assert shown_files(model) == [[], ["image"], [], ["image"]]
    spec = Conversation("Look.", [eye, Speaker("Other")])
    assert Conversation.model_validate(spec.stored()) == spec
    for content, words in (
        ([{"type": "image", "url": "http://x/a.png"}], "an address is not opened here"),
        ([{"type": "image", "path": str(plan)}], "a path is not opened here"),
    ):
        with pytest.raises(SpecError, match=words):
            Speaker("Eye", examples=[{"role": "user", "content": content}, ("assistant", "No.")])
    with pytest.raises(SpecError, match="a message of the assistant can't contain files"):
        Speaker("Eye", examples=[("user", "Draw."), {"role": "assistant", "content": [PNG]}])


def test_a_run_that_was_stopped_goes_on_with_the_image(store: str) -> None:
    class StoppedError(RuntimeError): ...

    def stop(messages: object) -> str:
        raise StoppedError

    with pytest.raises(StoppedError):
        converse(
            chat(),
            message=["Look", PNG],
            model=ScriptedChatModel(script=stop),
            store=store,
            session="a",
        )
    model = ScriptedChatModel(script=["A plan."])
    found = Session("a", store=store).resume(model=model)
    assert found.text == "A plan."
    assert shown_files(model)[-1] == ["image"]


def test_a_hook_that_changes_the_text_heard_keeps_the_files() -> None:
    def shout(turn: Turn) -> HumanMessage:
        return HumanMessage(turn.heard.upper())

    eye = Speaker("Eye", hooks=["shout"])
    model = ScriptedChatModel(script=["One.", "Two."])
    hooks = {"shout": Hook(before_speaker=shout)}
    found = ask(eye, "See", images=[PNG], model=model, store="memory:", hooks=hooks)
    assert model.calls[-1].messages[-1].text == "SEE"
    assert shown_files(model)[-1] == ["image"]
    ask(eye, "And?", model=model, session=found.session, hooks=hooks)
    assert shown_files(model)[1] == ["image"]


def test_an_agent_receives_the_files_of_messages() -> None:
    seen: list[list[str]] = []

    def answer(messages: list[BaseMessage]) -> str:
        seen.append([one["type"] for one in files_of(messages[-1])])
        return "A plan."

    eye = Speaker("Eye", replies=[RunnableLambda(answer)])
    assert ask(eye, "See", images=[PNG], store="memory:").text == "A plan."
    assert seen == [["image"]]


def test_a_result_that_becomes_the_message_shows_its_image_to_the_others() -> None:
    painter = Speaker("Painter", tools=[draw], return_direct=True)
    model = ScriptedChatModel(script=[calls("draw", "A"), "Nice."])
    talk = Conversation("Draw.", [painter, Speaker("Critic")], end_chat={"max_iterations": 1})
    found = converse(talk, model=model, store="memory:")
    assert shown_files(model)[-1] == ["image"]
    spoken = next(one for one in found.messages if one.name == "Painter" and files_of(one))
    assert spoken.text == "Here is A."


def test_a_summary_describes_the_files_that_it_replaces(plan: Path) -> None:
    eye = Speaker("Eye", context=RunningSummary(1000))
    model = ScriptedChatModel(script=["One.", "A plan was shown.", "Two."])
    found = ask(eye, "See", images=[plan], model=model, store="memory:", session="summed")
    ask(eye, "And?", model=model, session=found.session)
    asked = next(call for call in model.calls if call.purpose == "summary")
    assert "See\n    [image plan.png, 5 KB]" in asked.messages[-1].text
    assert not any(files_of(one) for one in asked.messages)


def test_a_person_reads_a_description_of_an_image_that_was_said() -> None:
    people = [Speaker(name, replies=["human"]) for name in ("Ann", "Ben")]
    talk = Conversation("Talk.", people)
    found = converse(talk, store="memory:people")
    found = found.session.answer(["See", PNG])
    (question,) = found.pending
    assert isinstance(question, MessageQuestion)
    assert question.heard.endswith("See\n[image, 5 KB]")


def test_a_speaker_remembers_images_in_another_conversation() -> None:
    eye = Speaker("Eye")
    model = ScriptedChatModel(script=["One.", "Two."])
    found = ask(eye, "See", images=[PNG], model=model, store="memory:")
    knows = remember(eye, found)
    assert files_of(knows.memory[0])
    ask(knows, "What did I show?", model=model, store="memory:")
    assert shown_files(model)[1] == ["image"]
