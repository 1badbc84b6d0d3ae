"""Scenarios that a model writes from an agent's tools and its policy. A person edits them.

The number of scenarios that the policy forbids, the form of each scenario and the checks of tool
calls come from code. Only the texts come from the model.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Unpack

from pydantic import BaseModel, Field, StringConstraints, create_model

from ..common.errors import SpecError, UnreadableAnswerError, hide_frames, name_type
from ..common.files import parse_json
from ..common.threads import in_background
from ..prompts.prompts import fill_template
from ..session.ask import aask
from ..session.options import Options
from ..speakers.speaker import Speaker
from .suite import load_suite
from .tested_agent import import_agent

_TEXTS: Final[Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)

_TRIES: Final = 4
"""Maximum number of answers for one scenario."""

_ALIKE: Final = 0.9
"""The similarity from which two goals are the same."""

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=400)]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
"""The Python types of JSON values, by the names in a schema."""


class _Argument(BaseModel):
    """An argument of a tool call."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    value: Annotated[str, StringConstraints(min_length=1, max_length=100)]


class _Draft(BaseModel):
    """A scenario as the model writes it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    goal: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=400)]
    knows: _Text
    criteria: Annotated[list[_Text], Field(min_length=1, max_length=3)]
    tool: str | None
    arguments: Annotated[list[_Argument], Field(max_length=6)]


def list_tools(agent: object) -> dict[str, Any]:
    """Return the tools of an agent by their names. Empty if they are not visible.

    Args:
        agent: The agent, as `simulate` accepts it. Only the tools of a graph are visible.
    """
    found: dict[str, Any] = {}
    for node in (getattr(agent, "nodes", None) or {}).values():
        # A node of a compiled graph is a channel around the ToolNode.
        inner = getattr(node, "bound", node)
        found |= getattr(inner, "tools_by_name", None) or {}
    return found


@hide_frames
async def agenerate_scenarios(
    agent: object, policy: str, count: int, **options: Unpack[Options]
) -> str:
    """Return scenarios for an agent as TOML, which a person edits.

    At least a third of them want something that the policy forbids. If the model can't write
    another one, a comment in the first line says so.

    Args:
        agent: The agent. The tools of a graph are read; it is not called.
        policy: The policy of the agent: what it must do, and what it must not do.
        count: The number of scenarios.
        **options: The options of a run. ``model`` is the model that writes the scenarios.

    Raises:
        TypeError: The count is no number.
        SpecError: The policy is blank, the count is below 1, or no answer of the model has the
            form.
        ModelError: The model is not available.
    """
    if not isinstance(policy, str) or not policy.strip():
        raise SpecError("policy: must not be empty; describe what the agent must and must not do")
    if not isinstance(count, int):
        raise TypeError(f"count: must be a number, not {name_type(count)}")
    if count < 1:
        raise SpecError(f"count: must be 1 or more, not {count}")
    tools = list_tools(import_agent(agent))
    found: dict[str, dict[str, Any]] = {}
    note = ""
    for number in range(count):
        is_forbidden = number % 3 == 0
        try:
            name, fields = await _write_scenario(tools, policy, found, options, is_forbidden)
        except SpecError as error:
            if not found:
                raise
            note = f"# {len(found)} of {count} scenarios, because {error}\n\n"
            break
        found[name] = fields
    suite = {"scenarios": found}
    load_suite(suite)
    # Imported here, because only this function and exports write TOML.
    import tomli_w

    return note + tomli_w.dumps(suite, multiline_strings=False)


generate_scenarios = in_background(agenerate_scenarios)


async def _write_scenario(
    tools: Mapping[str, Any],
    policy: str,
    known: Mapping[str, Mapping[str, Any]],
    options: Options,
    is_forbidden: bool,
) -> tuple[str, dict[str, Any]]:
    """Return the name and the fields of a scenario that differs from those that are known."""
    schema = _Draft
    if tools:
        names: Any = Literal[tuple(tools)]
        schema = create_model("Draft", __base__=_Draft, tool=(names | None, ...))
    kind = "forbidden" if is_forbidden else "allowed"
    writer = Speaker("Writer", system_prompt=_TEXTS["system"].strip())
    task = fill_template(
        _TEXTS["task"].strip(),
        tools="\n".join(_describe_tools(tools)) or "(none are known)",
        policy=policy.strip(),
        kind=_TEXTS[kind].strip(),
        tool=_TEXTS[f"{kind}_tool"].strip(),
        known="\n".join(f"- {one['goal']}" for one in known.values()) or "(none)",
    )
    problem = ""
    for _ in range(_TRIES):
        try:
            # No session, since the answer is only of use in the file.
            own: Any = {**options, "store": "memory:"}
            answer = await aask(writer, task + problem, schema=schema, **own)
        except UnreadableAnswerError:
            problem = "\n\nReply with JSON in the form of the schema."
            continue
        draft = schema.model_validate(answer.output)
        goal = " ".join(draft.goal.split())
        same = next((one for one in known.values() if _is_same(one["goal"], goal)), None)
        if same is None:
            return _name(draft.name, known), _make_fields(draft, goal, tools, is_forbidden)
        problem = f"\n\nYou have already written this one. Write another goal than: {goal}"
    raise SpecError(
        f"generate: {_TRIES} answers of the model in a row repeated a scenario or did not fit the "
        "form; ask for fewer, or choose a larger model"
    )


def _describe_tools(tools: Mapping[str, Any]) -> Iterator[str]:
    for name, tool in tools.items():
        arguments = ", ".join(
            f"{one}: {about.get('type', 'any')}" for one, about in tool.args.items()
        )
        yield f"- {name}({arguments}): {' '.join(str(tool.description).split())}"


def _is_same(one: str, other: str) -> bool:
    words, others = (re.findall(r"\w+", text.casefold()) for text in (one, other))
    found: float = SequenceMatcher(None, " ".join(words), " ".join(others)).ratio()
    return found >= _ALIKE


def _name(text: str, known: Mapping[str, object]) -> str:
    """Return a name for a table of a file that is not taken."""
    words = re.findall(r"[a-z0-9]+", text.casefold())
    name = "_".join(words)[:40].strip("_") or "scenario"
    numbers = (f"{name}_{number}" for number in range(2, len(known) + 3))
    return next(one for one in (name, *numbers) if one not in known)


def _make_fields(
    draft: _Draft, goal: str, tools: Mapping[str, Any], is_forbidden: bool
) -> dict[str, Any]:
    criteria = [*dict.fromkeys(text.strip() for text in draft.criteria if text.strip())]
    knows = " ".join(draft.knows.split())
    fields: dict[str, Any] = {"goal": goal, "knows": knows, "criteria": criteria}
    if is_forbidden:
        fields["expected_ends"] = ["gave_up", "handed_over"]
    if draft.tool is not None and draft.tool in tools:
        known = _read_arguments(draft.arguments, tools[draft.tool].args, f"{goal} {knows}")
        check = {"not_called" if is_forbidden else "called": draft.tool}
        fields["checks"] = [check | ({"arguments": known} if known else {})]
    return fields


def _read_arguments(
    arguments: Sequence[_Argument], schema: Mapping[str, Mapping[str, Any]], said: str
) -> dict[str, Any]:
    """Return the arguments that the tool has, and whose values the user can say."""
    found: dict[str, Any] = {}
    for one in arguments:
        kind = schema.get(one.name, {}).get("type")
        if kind is None or one.value.casefold() not in said.casefold():
            continue
        if kind == "string":
            found[one.name] = one.value
        elif kind in _TYPES:
            try:
                value = parse_json(one.value)
            except ValueError:
                continue
            # Not by `isinstance`, for which a bool is an int.
            if type(value) in _TYPES[kind]:
                found[one.name] = value
    return found
