"""The tools that serve conversations: their names, their schemas and their arguments."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..common.data import Data
from ..common.errors import SpecError, check_depth, validate
from ..conversation.conversation import Conversation
from ..conversation.served import (
    check_host,
    describe_argument,
    describe_tool,
    first_argument,
    name_graph,
)
from ..kinds.load import load_conversation
from ..session.options import Options
from ..session.run import check_here


class ServedTool(NamedTuple):
    """A conversation that is served as a tool."""

    name: str
    """The name of the tool, which is unique on its server."""
    conversation: Conversation
    """The conversation that each call starts."""

    @property
    def description(self) -> str:
        """The title, the task and the speakers of the conversation, in one line."""
        return describe_tool(self.conversation)

    @property
    def first_argument(self) -> str | None:
        """The argument that starts a conversation: ``task`` or ``message``.

        None if several people take part.
        """
        return first_argument(self.conversation)

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        described = {}
        if self.first_argument is not None:
            name = self.first_argument
            described[name] = describe_argument(self.conversation, name)
        described["session"] = "The session to continue, as an earlier result named it."
        described["answer"] = "With session: the answer to its question, as text or JSON."
        fields = {name: {"type": "string", "description": text} for name, text in described.items()}
        return {"type": "object", "properties": fields, "additionalProperties": False}

    def start(self, call: "ToolCall") -> Conversation:
        """Return the conversation that a call starts."""
        changes = {} if call.task is None else {"task": call.task}
        return self.conversation.model_copy(update=changes)

    def read_call(self, arguments: dict[str, Any]) -> "ToolCall":
        """Read the arguments of a call.

        Raises:
            SpecError: An argument is unknown, blank or has a wrong type, or the arguments do not
                fit together or the conversation.
        """
        call = validate(ToolCall, arguments, check=check_depth)
        for name in ("task", "message"):
            if getattr(call, name) is None:
                continue
            if call.session is not None:
                raise SpecError(
                    f"{name}: a session that has begun keeps its own; leave it out, and pass "
                    "answer to answer a question"
                )
            if name != self.first_argument:
                other = self.first_argument
                remedy = f"pass {other} instead" if other else "leave it out"
                raise SpecError(f"{name}: this conversation has no such argument; {remedy}")
            if not getattr(call, name).strip():
                raise SpecError(f"{name}: must not be empty; enter a text or leave it out")
        if call.answer is not None and call.session is None:
            raise SpecError("answer: belongs to a session; pass the session that asks as session")
        return call


class ToolCall(Data):
    """The arguments of one call of a tool."""

    task: str | None = None
    """The task. The own task of the conversation or of its speakers if None."""
    message: str | None = None
    """The person's first message. The person is asked for it if None."""
    session: str | None = None
    """The session to continue. A new session if None."""
    answer: str | None = None
    """The answer to the question of the session."""


def read_tools(files: Sequence[Path]) -> list[ServedTool]:
    """Read the conversations of files as tools.

    Raises:
        SpecError: A file is not valid, its code would run without a sandbox, or two files have the
            same name.
    """
    tools: dict[str, ServedTool] = {}
    for file in files:
        conversation = load_conversation(file)
        try:
            check_host(conversation, "choose another level")
        except SpecError as error:
            raise SpecError(f"{file}: {error}") from error
        name = name_graph(conversation, file, "conversation")
        if name in tools:
            raise SpecError(f"{file}: another file is served as {name!r}, too; rename one of them")
        tools[name] = ServedTool(name, conversation)
    return list(tools.values())


async def load_tools(
    files: Sequence[Path], store: str | None, model: str | None
) -> list[ServedTool]:
    """Read the conversations of files as tools, and check that they can run here.

    Raises:
        SpecError: A file is not valid, as in `read_tools`, or its conversation can't run here.
        ModelError: A model is not available.
    """
    tools = await asyncio.to_thread(read_tools, files)
    for file, tool in zip(files, tools, strict=True):
        try:
            await check_here(tool.conversation, Options(store=store, model=model))
        except SpecError as error:
            raise SpecError(f"{file}: {error}") from error
    return tools
