"""Conversations with scripts as rows of TOML: how to run a row. No tests here."""

import tomllib
from pathlib import Path
from typing import Any

from langchain_core.tools import tool

from duologue.graphs import Conversation, Result, converse, load_conversation
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import fields_of, of_kind
from support.results import outcome_of


@tool
def close(reason: str) -> str:
    """Close the talk."""
    return f"closed: {reason}"


@tool
def look(where: str) -> str:
    """Look."""
    return where


TOOLS = [close, look]


def read_scripts(test: str) -> dict[str, dict[str, Any]]:
    """Return the rows of the file ``scripts.toml`` beside a test, by their names."""
    text = Path(test).with_name("scripts.toml").read_text(encoding="utf-8")
    return {row["name"]: row for row in tomllib.loads(text)["scripts"]}


def talk(**fields: Any) -> Conversation:
    """Return a conversation of Ann, who has tools, and Ben."""
    ann = {"name": "Ann", "tools": ["close", "look"], **fields.pop("ann", {})}
    ben = {"name": "Ben", **fields.pop("ben", {})}
    return load_conversation({"task": "Plan", "speakers": [ann, ben], **fields})


def read_line(row: Any) -> Line:  # noqa: ANN401  # a value of TOML
    """Return a line of a script."""
    match row:
        case {"tool": name, "args": args}:
            return Reply(tool_calls=[ScriptedToolCall(name=name, args=args, id=name)])
        case {"text": _}:
            return Reply(**row)
        case _:
            line: Line = row
            return line


def run(conversation: Conversation, *script: Line, **options: Any) -> Result:
    """Run a conversation on a script that must be used up."""
    model = ScriptedChatModel(script=list(script))
    options = {"store": "memory:", "tools": TOOLS, **options}
    result = converse(conversation, model=model, **options)
    assert len(model.calls) == len(script)
    return result


def run_row(row: dict[str, Any], **options: Any) -> Result:
    """Run the conversation of a row."""
    fields = {
        name: dict(one) if isinstance(one, dict) else one
        for name, one in row.get("fields", {}).items()
    }
    return run(talk(**fields), *map(read_line, row["script"]), **options)


def list_causes(result: Result) -> list[str]:
    return [str(cause) for cause in result.why()]


def list_view(result: Result, name: str) -> list[str]:
    """Return the messages of a speaker's view without the system prompt, each with its role."""
    return [f"{message.type}: {message.text}" for message in result.viewpoint(name)[1:]]


def describe_end(result: Result) -> dict[str, Any]:
    """Return the facts about the end of a conversation that a row may name."""
    outcome = outcome_of(result)
    drafts, speeches = (of_kind(result.messages, kind) for kind in ("draft", "speech"))
    return {
        "reasons": [reason.value for reason in outcome.reasons],
        "explanations": [*outcome.explanations],
        "summary": str(outcome),
        "by": outcome.by,
        "rounds": outcome.rounds,
        "messages": outcome.messages,
        "complete": "none" if outcome.complete is None else outcome.complete,
        "completed": [*outcome.completed],
        "warnings": [*outcome.warnings],
        "calls": outcome.total.calls,
        "final": [verdict.final for verdict in outcome.verdicts],
        "said": [text for _, text in result.transcript],
        "speakers": [name for name, _ in result.transcript],
        "flaws": [fields_of(one).flaw for one in drafts],
        "problems": [fields_of(one).problem for one in drafts],
        "speech_flaws": [fields_of(one).flaw or "none" for one in speeches],
        **{
            f"view_of_{name.lower()}": list_view(result, name) for name in result.conversation.names
        },
        "causes": list_causes(result),
    }
