"""README and the pages of `docs/` are true: code runs, files load, tables are complete."""

import configparser
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from importlib.metadata import entry_points, metadata
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import typer
from openinference.instrumentation.langchain import LangChainInstrumentor
from typer.testing import CliRunner

import duologue.graphs as graphs
import duologue.graphs.studio as studio
import duologue.tools as tools
from duologue.graphs import (
    Conversation,
    DuologueError,
    EndChat,
    EndChatMode,
    Guards,
    HumanReply,
    InterruptOn,
    Reason,
    Result,
    Sandbox,
    Session,
    Speaker,
    SpecError,
    ask,
    build_graph,
    chat,
    converse,
    draw,
    load_conversation,
)
from duologue.graphs.events import Event
from duologue.graphs.scenarios import load_suite
from duologue.nodes.testing import Script
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools import Hook
from support.cli_help import app
from support.graphs import GroupSolveForm, forms_by_kind
from support.page_replies import REPLIES

ROOT = Path(__file__).parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
PUBLIC = {name: getattr(graphs, name) for name in dir(graphs)}


class Fenced(NamedTuple):
    """A fenced block."""

    page: str
    language: str
    text: str
    following: "Fenced | None"
    """The next block on the page."""


def _fenced(page: str) -> list[Fenced]:
    found: list[Fenced] = []
    for language, text in reversed(re.findall(r"^```(\w*)\n(.*?)^```$", PAGES[page], re.M | re.S)):
        found.insert(0, Fenced(page, language, text, found[0] if found else None))
    return found


FENCED = [block for page in PAGES for block in _fenced(page)]


def blocks(language: str) -> list[Fenced]:
    """Return the fenced blocks in this language, of all pages."""
    return [block for block in FENCED if block.language == language]


SUITES = [block for block in blocks("toml") if "[scenarios." in block.text]
CONVERSATIONS = [
    block for block in blocks("toml") if block.page != "docs/batches.md" and block not in SUITES
]


def _page(block: Fenced) -> str:
    return block.page


def test_every_block_is_of_a_kind_that_is_looked_at() -> None:
    # Blocks of `py` need the dev server: tests/live runs them.
    known = {"python", "py", "toml", "json", "ini", "mermaid", "console", "text"}
    assert {block.language for block in FENCED} == known
    outputs = blocks("text")
    printed = [
        block.following
        for block in FENCED
        if "print(" in block.text and (block.language == "python" or block.following in outputs)
    ]
    assert outputs == printed


def test_the_pictures_are_the_compiled_graph_and_what_a_file_can_do() -> None:
    drawn = {block.page: block.text for block in blocks("mermaid")}
    assert drawn["docs/studio.md"] == build_graph().get_graph().draw_mermaid()
    garden = next(block for block in CONVERSATIONS if 'kind = "role_play"' in block.text)
    assert drawn["docs/conversations.md"] == draw(tomllib.loads(garden.text))


@pytest.mark.parametrize("block", CONVERSATIONS, ids=_page)
def test_the_files_load(block: Fenced) -> None:
    assert load_conversation(tomllib.loads(block.text)).speakers


@pytest.mark.parametrize("block", SUITES)
def test_suites_in_files_load(
    block: Fenced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text("def looks_up_first(result): ...")
    (tmp_path / "scenarios.toml").write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_suite(tmp_path / "scenarios.toml").scenarios


def test_settings_of_pytest_exist(pytestconfig: pytest.Config) -> None:
    (block,) = [block for block in blocks("ini") if "[pytest]" in block.text]
    parser = configparser.ConfigParser()
    parser.read_string(block.text)
    for name in parser["pytest"]:
        pytestconfig.getini(name)  # raises if the setting does not exist


def test_batches_in_files_are_those_that_the_pages_show(tmp_path: Path) -> None:
    (tmp_path / "tasks.csv").write_text("task,labels.answer\nAdd 1 and 2.,3\n")
    whole, *parts = [block.text for block in blocks("toml") if block.page == "docs/batches.md"]
    fields = {"task": "Plan a garden", "user_role": "Cook", "assistant_role": "Gardener"}
    for text in (whole, *parts):
        # A part is shown without the conversation that it varies.
        given = [f'{name} = "{value}"' for name, value in fields.items() if name not in text]
        given += ['kind = "role_play"', 'judge.criteria = ["It is done."]']
        conversation = "\n".join(["", "[conversation]", *given])
        (tmp_path / "batch.toml").write_text(text if text is whole else text + conversation)
        ran = CliRunner().invoke(app, ["batch", "run", "batch.toml", "--dry-run", "--json"])
        assert ran.exit_code == 0, ran.output
        cells = json.loads(ran.stdout)["sessions"]
        assert cells == (24 if text is whole else 2 if "vary" in text else 1)


def _reply(messages: list[dict[str, str]]) -> str:
    """Return a model's reply that fits its part in any conversation."""
    step = len(messages)
    if "Next request." in messages[0]["content"]:
        return f"Solution: Step {step} is done.\nNext request."
    if "TERMINATE" in messages[0]["content"]:
        return f"Step {step} is done.\nTERMINATE"
    return f"Instruction: Now do step {step}.\nInput: None"


TUTORIAL = "docs/tutorial.md"


def _script(block: Fenced) -> Script:
    """Return the replies written for this block, or replies that suit any conversation."""
    on_page = [one for one in blocks("python") if one.page == block.page]
    replies = REPLIES.get(block.page)
    return replies[on_page.index(block)] if replies else _reply


def _run(block: Fenced, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(script := _script(block)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        exec(compile(block.text, block.page, "exec"), names)  # noqa: S102  # our own pages
    assert callable(script) or len(server.calls) == len(script)


def _check_printed(block: Fenced, printed: str) -> None:
    shown = block.following.text if "print(" in block.text and block.following else ""
    # A line such as "[… four rounds later …]" represents any number of lines.
    parts = map(re.escape, re.split(r"^\[… .* …\]$", shown, flags=re.M))
    assert re.fullmatch(".+".join(parts), printed, re.S), printed


@pytest.mark.parametrize(
    "block", [block for block in blocks("python") if block.page != TUTORIAL], ids=_page
)
def test_the_code_runs_and_prints_the_text_below_it(
    block: Fenced,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DUOLOGUE_STORE", str(tmp_path / "sessions.db"))
    # No collector receives the spans.
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    _run(block, {}, monkeypatch)
    if (tracing := LangChainInstrumentor()).is_instrumented_by_opentelemetry:
        tracing.uninstrument()
    _check_printed(block, capsys.readouterr().out)


def test_each_step_of_the_tutorial_prints_the_text_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step uses names of the steps before it."""
    monkeypatch.setenv("DUOLOGUE_STORE", str(tmp_path / "sessions.db"))
    names: dict[str, Any] = {}
    steps = [block for block in blocks("python") if block.page == TUTORIAL]
    for step in steps:
        _run(step, names, monkeypatch)
        _check_printed(step, capsys.readouterr().out)
    assert len(re.findall(r"^## \d\. ", PAGES[TUTORIAL], re.M)) == 6


# Those of a server's graphs are served in tests/live.
SERVERS = [block for block in blocks("json") if block.page != "docs/studio.md"]


@pytest.mark.parametrize("block", SERVERS, ids=_page)
def test_the_file_of_mcp_servers_is_read(
    block: Fenced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "servers.json"
    file.write_text(block.text, encoding="utf-8")
    monkeypatch.setenv("DUOLOGUE_MCP_SERVERS", str(file))
    monkeypatch.setenv("SEARCH_TOKEN", "any")
    for name in json.loads(block.text)["mcpServers"]:
        with pytest.raises(SpecError, match="it is an MCP server, so name one of its tools"):
            converse(chat("Hi.", tools=[name]), store="memory:")


def test_the_entry_points_are_of_a_group_that_there_is() -> None:
    (block,) = [block for block in blocks("ini") if "entry-points" in block.text]
    parser = configparser.ConfigParser()
    parser.read_string(block.text)
    (section,) = parser.sections()
    group = section.removeprefix('project.entry-points."duologue.').removesuffix('"')
    assert group in _options()


def _group() -> typer.core.TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group


COMMANDS = [
    shlex.split(line.partition(" > ")[0])
    for block in blocks("console")
    for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE)
]


@pytest.mark.parametrize(
    "words",
    [words[words.index("duologue") + 1 :] for words in COMMANDS if "duologue" in words],
    ids=" ".join,
)
def test_the_commands_take_the_arguments_that_they_are_given(words: list[str]) -> None:
    name, *arguments = words
    command = _group().commands[name]
    if isinstance(command, typer.core.TyperGroup):
        name, *arguments = arguments
        command = command.commands[name]
    assert command.make_context(name, arguments).args == []


def test_the_first_commands_print_the_text_below_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = [block.text for block in blocks("console") if block.page == "docs/command-line.md"]
    shown = re.findall(r"^\$ duologue (.*)\n((?:(?!\$).*\n)*)", page[0], re.M)
    script = [
        "A kitchen garden of ten square metres.",
        "Instruction: Choose a place.\nInput: None",
        "Solution: The south wall. Next request.",
        "<CAMEL_TASK_DONE>",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUOLOGUE_STORE", str(tmp_path / "sessions.db"))
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for command, text in shown:
            printed = CliRunner().invoke(app, shlex.split(command)).stdout
            # The numbers of tokens depend on the prompts.
            tokens = r"\d+ (?=tokens|written)"
            assert not text or re.sub(tokens, "", printed) == re.sub(tokens, "", text)
    assert [command.split()[0] for command, text in shown if text] == ["run", "show"]


def test_the_two_commands_are_what_ci_runs() -> None:
    console = next(block for block in blocks("console") if "pip install uv" in block.text)
    assert console.page == "README.md"
    first, second = re.findall(r"^\$ (.*)$", console.text, re.MULTILINE)
    assert "pip install uv" in first
    assert "duologue run" in first
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def tables(header: str, page: str | None = None) -> dict[str, str]:
    """Return the rows of the tables whose first column has this header.

    Args:
        header: Header of the first column, without backticks.
        page: The page to read. All pages if None.

    Returns:
        The rest of each row, by each name in backticks in its first column.
    """
    found: dict[str, str] = {}
    for text in PAGES.values() if page is None else [PAGES[page]]:
        for first, rows in re.findall(r"^\| ([^|]*) \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.M):
            if first.replace("`", "") == header:
                for names, rest in re.findall(r"^\| ([^|]*) \|(.*)\|$", rows, re.M):
                    found |= dict.fromkeys(re.findall(r"`([^`]+)`", names), rest)
    return found


def test_the_tables_name_every_mode_and_reason() -> None:
    assert list(tables("mode")) == [mode.value for mode in EndChatMode]
    # The first end that is met is the reason, so the order matters.
    assert list(tables("reason")) == [reason.value for reason in Reason]


def test_the_tables_give_the_numbers_that_guards_and_caps_have() -> None:
    rows = tables("reason")
    for name, limit in Guards():
        assert rows[name].endswith(f"| guard, {limit} "), name
    assert rows["max_iterations"].endswith(f"`max_iterations`, {EndChat().max_iterations} ")
    for name in ("max_call_errors", "max_tool_errors"):
        limit = Conversation.model_fields[name].default
        assert rows[name.removeprefix("max_")].endswith(f"`{name}`, {limit} ")
    for name in ("seconds", "memory_mib", "output_kib"):
        assert tables("sandbox field")[name].startswith(f" {Sandbox.model_fields[name].default} ")


@pytest.mark.parametrize("reason", tables("reason"))
def test_what_sets_an_end_is_the_end_of_that_name(reason: str) -> None:
    for written in re.findall(r"`(\w+\([^`]*\))`", tables("reason")[reason].rpartition("|")[2]):
        end = eval(written, dict(PUBLIC))  # noqa: S307  # our own page
        assert end.kind in (reason, "human")
        # README lists all of them, too, except the end by a person.
        assert end.kind == "human" or f"`{type(end).__name__}`" in PAGES["README.md"]


def test_the_end_in_python_is_the_one_in_the_file() -> None:
    (code,) = [block.text for block in blocks("python") if "\nend_chat = EndChat(" in block.text]
    (text,) = [block.text for block in blocks("toml") if "[[end_chat.when]]" in block.text]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/ends.md", "exec"), names)  # noqa: S102  # our own page
    assert load_conversation(tomllib.loads(text)).end_chat == names["end_chat"]


OWN = ("conversation", "session", "reset")
"""The parameters of `converse` that are no options of a run."""


def _options() -> list[str]:
    """Return the names of the options of a run."""
    return [
        name
        for name in inspect.signature(converse).parameters
        if name not in ("conversation", *OWN)
    ]


def _options_of_ask() -> set[str]:
    """Return the other keyword arguments of `ask`, and `tools`, which has another meaning there."""
    found = inspect.signature(ask).parameters
    named = {name for name, one in found.items() if one.kind is one.KEYWORD_ONLY}
    return named - ({*_options()} - {"tools"})


def _members(annotation: object) -> list[type[Any]]:
    """Return the models of a union, however they are annotated."""
    inner = get_args(annotation)
    if isinstance(annotation, type) or not inner:
        return [annotation] if hasattr(annotation, "model_fields") else []  # type: ignore[list-item]
    return [member for one in inner for member in _members(one)]


def _kinds_of(model: type[Any], *fields: str) -> list[str]:
    """Return the kinds of the members of these fields."""
    members = [one for field in fields for one in _members(model.model_fields[field].annotation)]
    return [one.model_fields["kind"].default for one in members]


def _exit_codes() -> list[str]:
    told = CliRunner().invoke(app, ["--help"]).output
    return re.findall(r"^\s+(\d+)  ", told.partition("Exit codes:")[2], re.MULTILINE)


def _errors() -> list[str]:
    return [
        name
        for name, one in PUBLIC.items()
        if isinstance(one, type) and issubclass(one, DuologueError) and one is not DuologueError
    ]


GRAPHS = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))["graphs"]


def test_every_kind_has_a_graph_for_studio_and_a_public_function() -> None:
    forms = forms_by_kind()
    paths = {kind: f"{studio.__name__}:{kind}" for kind in forms}
    assert paths == {kind: graph["path"] for kind, graph in GRAPHS.items()}
    assert all(graph["description"] for graph in GRAPHS.values())
    for kind, form in forms.items():
        assert getattr(studio, kind).name == kind
        assert PUBLIC[kind].__module__ == form.__module__


@pytest.mark.parametrize(
    ("header", "page", "expected"),
    [
        ("kind", "docs/conversations.md", GRAPHS),
        ("graph", "docs/studio.md", GRAPHS),
        ("turn_order", None, _kinds_of(Conversation, "turn_order")),
        ("field of a speaker", None, Speaker.model_fields),
        ("human_input_mode", None, HumanReply.model_fields["human_input_mode"].annotation),
        ("decision", None, InterruptOn().allowed_decisions),
        ("tool", None, entry_points(group="duologue.tools").names),
        ("sandbox.level", None, get_args(Sandbox.model_fields["level"].annotation)),
        ("sandbox field", None, Sandbox.model_fields.keys() - {"level"}),
        (
            "kind",
            "docs/speakers.md",
            _kinds_of(Speaker, "replies", "format", "context"),
        ),
        ("function", "docs/speakers.md", [field.name for field in fields(Hook)]),
        ("option", None, _options()),
        ("option of ask", None, _options_of_ask()),
        ("event", None, [one.model_fields["event"].default for one in get_args(Event)]),
        ("error", None, _errors()),
        ("command", None, _group().commands),
        ("exit code", None, _exit_codes()),
        ("extra", None, metadata("duologue").get_all("Provides-Extra")),
    ],
)
def test_a_table_names_all_that_there_is(
    header: str, page: str | None, expected: Iterable[str]
) -> None:
    named = tables(header, page)
    assert set(named) == set(expected)
    assert named


def test_other_tables_name_what_there_is() -> None:
    assert tables("field of a group").keys() <= GroupSolveForm.model_fields.keys()
    of_result = {name.partition("(")[0] for name in tables("of a result")}
    public = {name for name in dir(Result) if not name.startswith("_")} - {"of"}
    assert of_result == public | {field.name for field in fields(Result)}
    of_session = {
        name for row in tables("method of a session") for name in re.findall(r"^\w+", row)
    }
    methods = {name for name in dir(Session) if not name.startswith("_")} - {"id", "store"}
    assert of_session == {name for name in methods if f"a{name}" in methods}


def _anchors(text: str) -> set[str]:
    """Return the possible targets of links on a page: its headings, as GitHub names them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_the_reference_names_all_public_names_once() -> None:
    lines = re.findall(r"^(?:`\w+`(?:, )?)+$", PAGES["docs/reference.md"], re.M)
    listed = re.findall(r"\w+", " ".join(lines))
    public = {*dir(graphs), *dir(tools)}
    assert sorted(listed) == sorted(
        name for name in public if not (name[0] == "a" and name[1:] in public)
    )


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_the_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)]*)\)", text):
        path, _, anchor = link.partition("#")
        target = (folder / path) if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("index", ["README.md", "docs/README.md"])
def test_every_page_is_in_the_index(index: str) -> None:
    found = re.findall(r"\]\((?!https?:)([^)#]*)", PAGES[index])
    linked = {((ROOT / index).parent / path).resolve() for path in found}
    # The README leads to the guides; the index also leads to the measurements.
    folder = "docs/measurements/" if index == "README.md" else "none"
    listed = (page for page in PAGES if page.startswith("docs/") and not page.startswith(folder))
    pages = {(ROOT / page).resolve() for page in listed}
    assert pages - {ROOT / "docs" / "README.md"} <= linked


def test_the_page_of_behaviour_has_the_rows_that_tests_and_code_name() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \| .+ \| .+ \|$", PAGES["docs/behaviour.md"], re.M)
    named: dict[str, str] = {}
    for folder in ("graphs", "nodes", "tools", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            found = re.findall(r"(?<![\w-])[AGLRUYZ][1-9]\d?\b", text)
            for test in re.findall(r"def (test_\w+)", text):
                found += re.findall(r"(?<=_)[aglruyz][1-9]\d?(?=_)", test)
            named |= {row.upper(): str(path.relative_to(ROOT)) for row in found}
    assert {row: path for row, path in named.items() if row not in rows} == {}
    assert sorted(rows) == sorted(named)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/how-it-works.md"])
def test_every_module_that_is_named_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:graphs|nodes|tools|tests)/[\w/.]*)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_function_that_is_named_with_its_module_is_there() -> None:
    """A stranger finds from the steps of a turn the function that does each."""
    text = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+(?:\.\w+)?)`\s+in\s+`((?:graphs|nodes)/[\w/]+\.py)`", text)
    assert len(named) > 20
    missing = []
    for name, path in named:
        module = import_module(f"duologue.{path.removesuffix('.py').replace('/', '.')}")
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if getattr(found, "__module__", None) != module.__name__ or not callable(found):
            missing.append((name, path))
    assert missing == []
