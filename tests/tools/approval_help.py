"""A conversation whose calls a person must approve, or whose tools ask. No tests here."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, Interrupt, interrupt
from pydantic import BaseModel

from duologue.graphs import build_graph
from duologue.nodes.testing import Line as Scripted, Reply, ScriptedChatModel, ScriptedToolCall
from support.graphs import Graph
from support.log import kind_of, log_of

Saver = BaseCheckpointSaver[Any]

APPROVE: dict[str, Any] = {"type": "approve"}
REJECT: dict[str, Any] = {"type": "reject", "message": "Not on a Sunday."}
RESPOND: dict[str, Any] = {"type": "respond", "message": "Already sent."}


def edited(name: str = "mail", **args: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": args}}


class Size(BaseModel):
    """An answer to a tool."""

    size: int


class Talk:
    """A conversation of Ann, who has tools, and Bob, with a record of each run of a tool."""

    def __init__(self, saver: Saver, script: Sequence[Scripted], **ann: Any) -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.model = ScriptedChatModel(script=script)
        self.more: dict[str, Any] = ann.pop("more", {})
        self.fields: dict[str, Any] = ann.pop("fields", {})
        tools = {one.name: one for one in self._tools()}
        self.spec = {
            "task": "Write.",
            "speakers": [{"name": "Ann", "tools": list(tools)} | ann, {"name": "Bob"}],
            "end_chat": {"max_iterations": 1},
        } | self.fields
        given: Any = {"model": self.model, "tools": list(tools.values())} | self.more
        self.graph: Graph = build_graph(checkpointer=saver, **given)
        self.config: Any = {"configurable": {"thread_id": "s"}}

    def _tools(self) -> list[BaseTool]:
        ran = self.ran

        @tool
        async def mail(to: str) -> str:
            """Sends a mail."""
            ran.append(("mail", to))
            return f"Sent to {to}."

        @tool
        def look(at: str) -> str:
            """Looks at something."""
            ran.append(("look", at))
            return f"Seen {at}."

        @tool
        async def ask(what: str) -> str:
            """Asks a person."""
            ran.append(("ask", what))
            found = interrupt({"what": what}, response_schema=Size)
            ran.append(("asked", what))
            return f"{what}: {found.size}"

        @tool
        def ask_freely(what: str) -> str:
            """Asks a person for anything."""
            ran.append(("ask_freely", what))
            return f"{what}: {interrupt(what)}"

        return [mail, look, ask, ask_freely]

    async def start(self) -> list[Interrupt]:
        return await self._on({"conversation": self.spec})

    async def answer(self, value: Any) -> list[Interrupt]:  # noqa: ANN401
        return await self._on(Command(resume=value))

    async def decide(self, *decisions: dict[str, Any]) -> list[Interrupt]:
        return await self.answer({"decisions": [*decisions]})

    async def go_on(self) -> list[Interrupt]:
        return await self._on(None)

    async def _on(self, given: Any) -> list[Interrupt]:  # noqa: ANN401
        found = await self.graph.ainvoke(given, self.config, durability="sync")
        return list(found.get("__interrupt__", []))

    async def pending(self) -> list[Interrupt]:
        return list((await self.graph.aget_state(self.config)).interrupts)

    async def values(self) -> Any:  # noqa: ANN401
        return (await self.graph.aget_state(self.config)).values

    async def reasons(self) -> list[str]:
        """Return the reasons of the end."""
        return list((await self.values())["outcome"]["reasons"])

    async def results(self) -> list[ToolMessage]:
        log = log_of(await self.values())
        return [one for one in log if isinstance(one, ToolMessage)]

    async def said(self) -> list[str]:
        log = log_of(await self.values())
        return [one.text for one in log if kind_of(one) == "speech"]


def call(name: str, call_id: str, **args: Any) -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=call_id)


def calls(*made: ScriptedToolCall) -> Reply:
    return Reply(tool_calls=made)


MAIL = call("mail", "c1", to="Bob")
LOOK = call("look", "c2", at="it")
BOTH = calls(MAIL, LOOK)
END: list[Scripted] = ["Done.", "Fine."]
ASKS: dict[str, Any] = {"interrupt_on": {"mail": True}}


async def decided(
    saver: Saver, *decisions: dict[str, Any], made: Reply | None = None, **ann: Any
) -> Talk:
    """Run a conversation in which Ann makes calls, with a person's decisions about them."""
    talk = Talk(saver, [made or calls(MAIL), *END], **ASKS | ann)
    await talk.start()
    assert await talk.decide(*decisions) == []
    return talk
