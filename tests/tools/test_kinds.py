"""Tests that a tool that cannot be described to a model is refused at registration."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from duologue.graphs import SpecError, build_graph
from duologue.tools.registry.functions import check_kind


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


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (made(description=""), "the tool 'add' has no description for models"),
        (made(description=" \n"), "the tool 'add' has no description"),
        (made(""), "'' can't be a tool's name"),
        (made("  "), "'  ' can't be a tool's name"),
        (made("a\nb"), r"'a\nb' can't be a tool's name"),
        (made("a\ud800"), r"'a\ud800' can't be a tool's name"),
        (
            made("auto"),
            "'auto' can't be a tool's name, since tool_choice gives this word a meaning",
        ),
        (made("required"), "'required' can't be a tool's name"),
        (made("none"), "'none' can't be a tool's name"),
        (
            made(schema=TakesOdd),
            "the arguments of the tool 'add' can't be written as a JSON schema",
        ),
        (made(schema={"type": "array"}), "(they are not an object, but 'array')"),
        (
            made(schema={"type": "object", "properties": {"a": {"default": {1, 2}}}}),
            "the arguments of the tool 'add' can't be written as a JSON schema",
        ),
        (
            made(schema={"type": "object", "properties": {"a": {"maximum": float("inf")}}}),
            "the arguments of the tool 'add' can't be written as a JSON schema",
        ),
        (made(description="Adds \ud800."), "can't be written as a JSON schema"),
    ],
)
def test_a_tool_that_no_model_could_be_told_of_is_refused(
    wrong: StructuredTool, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        build_graph(tools=[wrong])
    assert str(caught.value).startswith(("tools: ", "tools.0: "))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fine",
    [
        made("server.tool"),
        made("höchster Wert"),
        made("x" * 80),
        made("any"),
        made(schema=Node),
        made(schema={"type": "object"}),
        made(
            schema={
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {}},
            }
        ),
    ],
)
def test_odd_names_and_schemas_are_no_fault(fine: StructuredTool) -> None:
    check_kind("tools", fine, "tools: 'one'")


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
