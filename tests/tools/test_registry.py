"""Objects that conversations name: registered in Python, or installed as entry points."""

import json
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from duologue.graphs import (
    Conversation,
    SpecError,
    build_graph,
    converse,
    list_sessions,
    load_conversation,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook
from duologue.tools.registry.functions import NOUNS, check_kind
from duologue.tools.registry.registry import Registered, Registry
from support.tables import check_rows, read_rows

FIELDS = read_rows(__file__, "fields")


def naming(kind: str, name: str) -> Conversation:
    """Return a conversation that names an object of a kind."""
    fields = json.dumps(read_rows(__file__, "naming")[kind]).replace('"NAME"', json.dumps(name))
    return load_conversation({"task": "Plan.", **json.loads(fields)})


@tool
def thing() -> str:
    """Return a fixed text."""
    return "a thing"


class Thing(BaseModel):
    words: str


GIVEN: dict[str, Any] = {
    "tools": [thing],
    "functions": {"thing": lambda turn: "A thing."},
    "agents": {"thing": RunnableLambda(lambda messages: "A thing.")},
    "hooks": {"thing": Hook()},
    "schemas": {"thing": Thing},
    "predicates": {"thing": lambda said: True},
    "orders": {"thing": lambda said, names: names[0]},
    "prompts": {"thing": "Begin with a thing."},
}

INSTALLED = """
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from pydantic import BaseModel

    from duologue.tools import Hook


    @tool
    def thing() -> str:
        "Give an installed thing."
        return "an installed thing"


    @tool
    def odd() -> str:
        "Is called otherwise."
        return "odd"


    class Thing(BaseModel):
        words: str


    def reply(turn):
        return "An installed reply."


    def over(said):
        return True


    def last(said, names):
        return names[-1]


    agent = RunnableLambda(lambda messages: "An installed agent's reply.")
    signs = Hook(after_speaker=lambda turn, reply: AIMessage(reply.text + " (installed)"))
    words = "Begin with an installed thing."
    nothing = None
    number = 7
"""

ENTRIES = read_rows(__file__, "entries")

_numbers = count()


class Site:
    """A folder of packages on Python's path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(self, code: str, **entries: str) -> str:
        """Install a distribution of one module; `entries` maps each group to its object ``thing``.

        Returns:
            The module's name.
        """
        name = f"installed_things_{next(_numbers)}"
        (self._folder / f"{name}.py").write_text(dedent(code))
        about = self._folder / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = (f"[duologue.{kind}]\nthing = {name}:{what}\n" for kind, what in entries.items())
        (about / "entry_points.txt").write_text("\n".join(groups))
        return name


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    sys.path.insert(0, str(folder))
    yield Site(folder)
    sys.path.remove(str(folder))


@pytest.mark.part(3)
@pytest.mark.parametrize("kind", NOUNS)
def test_what_is_installed_is_found_by_its_name(kind: str, site: Site) -> None:
    """A file can therefore name it."""
    site.install(INSTALLED, **ENTRIES)
    registry = Registry()
    assert not registry.knows(naming(kind, "thing"))
    registry.check(naming(kind, "thing"))
    assert registry.knows(naming(kind, "thing"))


def test_a_file_names_what_is_installed_and_runs(site: Site, tmp_path: Path) -> None:
    site.install(INSTALLED, **ENTRIES)
    file = tmp_path / "talk.toml"
    file.write_text(
        dedent(
            """
            task = "Plan."
            turn_order = { kind = "function", name = "thing" }

            [[speakers]]
            name = "Ann"
            hooks = ["thing"]
            tools = ["thing"]

            [[speakers]]
            name = "Bob"
            replies = [{ kind = "function", name = "thing" }]

            [end_chat]
            when = [{ kind = "all", of = [
                { kind = "predicate", name = "thing" },
                { kind = "max_messages", limit = 3 },
            ] }]
            """
        )
    )
    call = ScriptedToolCall(name="thing", id="c1")
    model = ScriptedChatModel(script=[Reply(tool_calls=[call]), "Hello."])
    result = converse(file, model=model, store="memory:installed")
    assert result.transcript == [
        ("Ann", "Hello. (installed)"),
        ("Bob", "An installed reply."),
        ("Bob", "An installed reply."),
    ]
    assert model.calls[1].prompt[-1]["content"] == "an installed thing"
    assert result.outcome is not None
    assert result.outcome.reasons[0].value == "predicate"


def test_what_is_given_in_python_wins_over_what_is_installed(site: Site) -> None:
    module = site.install("raise OSError('not to be imported')", **ENTRIES)
    for kind in NOUNS:
        given: Any = {kind: GIVEN[kind]}
        registry = Registry(given)
        assert registry.knows(naming(kind, "thing"))
        registry.check(naming(kind, "thing"))
    assert module not in sys.modules
    registry = Registry({"functions": GIVEN["functions"]})
    registry.check(naming("functions", "thing"))
    assert registry.function("thing") is GIVEN["functions"]["thing"]


def test_what_nobody_names_is_not_imported(site: Site) -> None:
    module = site.install("raise OSError('not to be imported')", tools="thing")
    Registry().check(load_conversation({"task": "x", "speakers": [{"name": "A"}, {"name": "B"}]}))
    assert module not in sys.modules


def test_a_hook_given_as_none_takes_an_installed_one_away(site: Site) -> None:
    """L7: installed hooks can be removed."""
    site.install(INSTALLED, **ENTRIES)
    registry = Registry({"hooks": {"thing": None}})
    spec = naming("hooks", "thing")
    registry.check(spec)
    assert registry.hooks_of(spec.speakers[0]) == []


def refusal(registry: Registry, kind: str, name: str = "thing") -> str:
    with pytest.raises(SpecError) as caught:
        registry.check(naming(kind, name))
    return str(caught.value)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("kind", "wanted"),
    read_rows(__file__, "what_is_no_such_thing_is_refused_wherever_it_comes_from"),
)
def test_what_is_no_such_thing_is_refused_wherever_it_comes_from(
    kind: str, wanted: str, site: Site
) -> None:
    module = site.install(INSTALLED, **{kind: "number"})
    assert refusal(Registry(), kind) == (
        f"{FIELDS[kind]}: the {NOUNS[kind]} 'thing' of {module}:number must be {wanted}, not int"
    )
    given: Any = {kind: [7] if kind == "tools" else {"thing": 7}}
    named = "tools.0" if kind == "tools" else f"{kind}: 'thing'"
    with pytest.raises(SpecError) as caught:
        Registry(given)
    assert str(caught.value) == f"{named} must be {wanted}, not int"
    with pytest.raises(SpecError, match=wanted):
        build_graph(**given)


def plain() -> None: ...


REFUSED: list[tuple[Any, str]] = [
    *(
        ({"schemas": {"thing": one}}, "schemas: 'thing' must be a pydantic model's class, not ")
        for one in (Thing(words="x"), dict, "Thing", None)
    ),
    # A class in the place of an object is named.
    ({"tools": [Thing]}, "tools: 'Thing' must be a function or a LangChain tool, not the class"),
    ({"hooks": {"h": Hook}}, "hooks: 'h' must be a Hook, not the class Hook"),
    ({"schemas": {"s": int}}, "schemas: 's' must be a pydantic model's class, not the class int"),
    ({"tools": [plain]}, "tools.0: the function 'plain' has no docstring; add"),
    ({"tools": [thing, thing]}, "tools: two tools are named 'thing'; give each a unique name"),
    *(
        ({kind: one}, f"{kind}: must be a dict from names to {kind}, not ")
        for kind in sorted(NOUNS.keys() - {"tools"})
        for one in ([thing], 7, "thing")
    ),
    *(
        ({"tools": one}, f"tools: must be a list of tools, not {type(one).__name__}")
        for one in (thing, {"thing": thing}, "thing", 7)
    ),
    # A function that can't be called.
    ({"functions": {"f": lambda: "x"}}, "functions: 'f' must take (turn): "),
    ({"predicates": {"f": lambda a, b: True}}, "predicates: 'f' must take (messages): "),
    ({"orders": {"f": lambda said: "A"}}, "orders: 'f' must take (messages, names): "),
    (
        {"hooks": {"f": Hook(after_speaker=lambda turn: None)}},  # type: ignore[arg-type, misc]  # that is the point
        "hooks: 'f': after_speaker must take (turn, reply): ",
    ),
    (
        {"hooks": {"f": Hook(before_tool=3)}},  # type: ignore[arg-type]  # that is the point
        "hooks: 'f': before_tool must be a function, not int",
    ),
]


def test_what_can_not_be_used_is_refused_before_any_call() -> None:
    def check(given: Any, words: str) -> None:  # noqa: ANN401
        with pytest.raises(SpecError, match=f"^{re.escape(words)}"):
            Registry(given)

    check_rows(REFUSED, check)


@pytest.mark.parametrize("kind", sorted(NOUNS.keys() - {"tools"}))
@pytest.mark.parametrize("name", ["", " ", " thing", "thing\n", "two\nlines", 81 * "x", 7, None])
def test_a_name_that_no_conversation_can_hold_is_refused(kind: str, name: object) -> None:
    """Such an object could never be used."""
    registered: Any = {kind: {name: GIVEN[kind]["thing"]}}
    with pytest.raises(SpecError) as caught:
        Registry(registered)
    assert str(caught.value) == (
        f"{kind}: {name!r} can't be a name; use text on one line, of up to 80 characters "
        "without spaces around it"
    )


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("code", "what", "words"),
    read_rows(__file__, "what_can_not_be_imported_is_one_clear_error"),
)
def test_what_can_not_be_imported_is_one_clear_error(
    code: str, what: str, words: str, site: Site
) -> None:
    module = site.install(code, **{what: "missing"})
    said = refusal(Registry(), what)
    assert said.startswith(
        f"{FIELDS[what]}: the {NOUNS[what]} 'thing' of {module}:missing can't be loaded: {words}"
    )


def test_an_installed_tool_that_calls_itself_otherwise_is_refused(site: Site) -> None:
    """Otherwise the model would call a name that no file contains."""
    module = site.install(INSTALLED, tools="odd")
    assert refusal(Registry(), "tools") == (
        f"speakers.0.tools: the tool 'thing' of {module}:odd has the name 'odd' in its code; "
        "give it the same name in both places"
    )


@pytest.mark.part(3)
@pytest.mark.parametrize("kind", NOUNS)
@pytest.mark.parametrize("where", ["python", "installed"])
def test_a_name_that_there_is_not_comes_with_the_near_ones(
    kind: str, where: str, site: Site
) -> None:
    if where == "installed":
        site.install(INSTALLED, **ENTRIES)
    registered: Any = {kind: GIVEN[kind]} if where == "python" else {}
    registry = Registry(registered)
    # A name that was found before is suggested once, not twice.
    registry.check(naming(kind, "thing"))
    start = f"{FIELDS[kind]}: there is no {NOUNS[kind]}"
    assert refusal(registry, kind, "thin").startswith(f"{start} 'thin'; did you mean 'thing'")
    assert refusal(registry, kind, "thin").count("'thing'") == 1
    far = refusal(registry, kind, "zebra")
    by_module = "name its module by --tools on the command line, " if kind == "tools" else ""
    assert far.startswith(
        f"{start} 'zebra'; pass it in Python, as {kind} of converse, {by_module}install the "
        f"package that offers it as duologue.{kind}, or use one of "
    )
    assert far.count("'thing'") == 1


@pytest.mark.parametrize("kind", sorted(NOUNS.keys() - {"tools"}))
def test_no_names_are_listed_if_nothing_of_the_kind_is_there(kind: str) -> None:
    assert refusal(Registry(), kind, "zebra") == (
        f"{FIELDS[kind]}: there is no {NOUNS[kind]} 'zebra'; pass it in Python, as {kind} of "
        f"converse, or install the package that offers it as duologue.{kind}"
    )


@pytest.mark.part(4)
@pytest.mark.parametrize("kind", NOUNS)
def test_what_is_missing_shows_before_any_call_and_nothing_is_stored(
    kind: str, tmp_path: Path
) -> None:
    model = ScriptedChatModel(script=[])
    with pytest.raises(SpecError, match=FIELDS[kind].replace(".", r"\.")):
        converse(naming(kind, "zebra"), model=model, store=tmp_path / "s.db", session="s")
    assert list_sessions(store=tmp_path / "s.db") == []
    assert model.calls == []


def test_options_that_there_are_not_are_refused_by_name() -> None:
    unknown: Any = {"hook": {}}
    with pytest.raises(TypeError, match="there is no option 'hook'; did you mean 'hooks'"):
        build_graph(**unknown)
    with pytest.raises(TypeError, match="there is no option 'hook'; did you mean 'hooks'"):
        converse(naming("orders", "thing"), **unknown)
    assert [*Registered.__annotations__] == [*NOUNS, "mcp_servers"]


def test_a_hook_has_no_subclasses_whose_methods_would_not_be_called() -> None:
    """L7: in Lagent a hook is a subclass; here its fields would hide the methods."""
    with pytest.raises(
        TypeError, match="Loud: Hook can't have subclasses; pass it functions or an"
    ):

        class Loud(Hook):  # type: ignore[misc]  # that is the point
            def after_speaker(self, turn: object, reply: object) -> None:
                """Do nothing; this is never called."""


def test_a_name_that_is_registered_as_something_else_says_so() -> None:
    registry = Registry({"functions": {"thing": lambda turn: None}})
    assert refusal(registry, "hooks").endswith("'thing'; it is registered as a function")


def test_a_name_that_is_installed_as_something_else_says_so(site: Site) -> None:
    module = site.install(INSTALLED, functions="reply")
    assert refusal(Registry(), "hooks").endswith("'thing'; it is registered as a function")
    assert module not in sys.modules


# Tests that a tool that cannot be described to a model is refused at registration.


class Odd:
    """A type that pydantic does not support."""


class TakesOdd(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    odd: Odd


class Node(BaseModel):
    value: int
    children: list["Node"] = Field(default_factory=list)


def made(name: str = "add", description: str = "Adds.", schema: object = None) -> StructuredTool:
    arguments: Any = {"type": "object", "properties": {}} if schema is None else schema
    return StructuredTool(
        name=name, description=description, args_schema=arguments, func=lambda **_: 1
    )


ODD_TOOLS: list[tuple[dict[str, Any], str]] = [
    *read_rows(__file__, "a_tool_that_no_model_could_be_told_of_is_refused"),
    ({"name": "a\ud800"}, r"'a\ud800' can't be a tool's name"),
    ({"description": "Adds \ud800."}, "can't be written as a JSON schema"),
    ({"schema": TakesOdd}, "the arguments of the tool 'add' can't be written as a JSON schema"),
    (
        {"schema": {"type": "object", "properties": {"a": {"default": {1, 2}}}}},
        "the arguments of the tool 'add' can't be written as a JSON schema",
    ),
]


def test_a_tool_that_no_model_could_be_told_of_is_refused() -> None:
    def check(fields: dict[str, Any], words: str) -> None:
        with pytest.raises(SpecError) as caught:
            build_graph(tools=[made(**fields)])
        assert str(caught.value).startswith(("tools: ", "tools.0: "))
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    check_rows(ODD_TOOLS, check)


def test_odd_names_and_schemas_are_no_fault() -> None:
    for name in ("server.tool", "höchster Wert", "x" * 80, "any"):
        check_kind("tools", made(name), "tools: 'one'")
    refers = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}
    for schema in (Node, {"type": "object"}, refers):
        check_kind("tools", made(schema=schema), "tools: 'one'")


def test_what_the_runtime_fills_in_is_not_part_of_the_schema() -> None:
    @tool
    def look(
        limit: int,
        runtime: ToolRuntime[Path, dict[str, Any]],
        config: RunnableConfig,
        call_id: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Looks."""
        return ""

    check_kind("tools", look, "tools: 'look'")
    told = convert_to_openai_tool(look)["function"]["parameters"]
    assert told["properties"].keys() == {"limit"}
