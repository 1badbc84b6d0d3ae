"""A package with entry points, as an installer writes it to a folder of `sys.path`. No tests here.

Conversations can name its objects although nothing is registered in Python.
"""

from pathlib import Path
from typing import Any

PACKAGE = """
import json

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import interrupt
from pydantic import BaseModel

from duologue.tools import Hook


class Bed(BaseModel):
    bed: str


def weather(turn):
    return f"It rains on {turn.heard} " + "and rains " * 40


async def louder(turn, reply):
    return AIMessage(reply.text.replace("bed ", "BED "))


loud = Hook(after_speaker=louder)


def no_ink(turn, reply):
    raise OSError("no ink")


blotted = Hook(after_speaker=no_ink)


@tool
def dig(depth: int) -> str:
    "Digs."
    return f"{depth} cm"


@tool
def pick(what: str) -> str:
    "Has a person pick one."
    return f"picked {interrupt({'pick': what})}"


@tool
def send(to: str, body: str) -> str:
    "Has a person decide, as LangChain's middleware does."
    args = {"to": to, "body": body}
    told = f"Assistant wants to call send with {json.dumps(args)}."
    ways = ["approve", "edit", "reject", "respond"]
    return str(
        interrupt(
            {
                "action_requests": [{"name": "send", "args": args, "description": told}],
                "review_configs": [{"action_name": "send", "allowed_decisions": ways}],
            }
        )
    )


def rain(messages):
    return len(messages) == 3


def backwards(messages, names):
    return names[1 - len(messages) % 2]
"""

ENTRY_POINTS = """
[duologue.tools]
dig = garden_package:dig
shovel = garden_package:dig
pick = garden_package:pick
send = garden_package:send

[duologue.functions]
weather = garden_package:weather
broken = garden_package:gone

[duologue.hooks]
loud = garden_package:loud
blotted = garden_package:blotted
no_hook = garden_package:weather

[duologue.schemas]
Bed = garden_package:Bed

[duologue.predicates]
rain = garden_package:rain

[duologue.orders]
backwards = garden_package:backwards
"""


def install_package(folder: Path) -> None:
    """Write the files that an installer would write to a folder."""
    (folder / "garden_package.py").write_text(PACKAGE)
    about = folder / "garden_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: garden-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)


def shaped(author: dict[str, Any] | None = None, weather: str = "weather") -> dict[str, Any]:
    """Return a conversation that names the package's objects; `author` changes a speaker."""
    return {
        "task": "Plan a garden",
        "speakers": [
            {
                "name": "Author",
                "system_prompt": "You plan beds.",
                "format": {"kind": "schema", "name": "Bed"},
                "hooks": ["loud"],
                "context": {"kind": "tokens", "limit": 500},
            }
            | (author or {}),
            {"name": "Weather", "replies": [{"kind": "function", "name": weather}]},
        ],
        # This speaker counts its turns by its prompt, so it repeats itself after the prompt is
        # shortened.
        "end_chat": {"max_iterations": 6, "guards": {"same_replies": 0, "standstill": 0}},
    }
