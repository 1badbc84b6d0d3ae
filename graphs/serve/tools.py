"""Conversations as tools: their names, schemas and arguments, and their runs in other agents."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp

from ...nodes.models.adapters.composed import Chat
from ...nodes.models.model import Models
from ...nodes.turn.agents import (
    INNER_STATE,
    close_inner,
    describe_error,
    input_of_inner,
    read_output,
)
from ...nodes.turn.node_context import Resources
from ...tools.registry.registry import ConversationTool, Registry
from ..build import compile_inner
from ..common.data import Data
from ..common.errors import ModelError, SpecError, hide_frames
from ..common.sanitize import clean
from ..common.validation import check_depth, validate
from ..conversation.conversation import Conversation
from ..conversation.questions import MessageQuestion, Question
from ..conversation.served import (
    check_host,
    describe_argument,
    describe_tool,
    first_argument,
    name_graph,
)
from ..events import Event
from ..kinds.load import ConversationLike, load_conversation
from ..log.state import State, log_of
from ..rules.outcome import Outcome
from ..rules.position import max_steps
from ..session.options import GivenAnswer, Options
from ..session.run import check_here, run_session
from ..session.stored_session import StoredSession


class ServedTool(NamedTuple):
    """A conversation that is served as a tool."""

    name: str
    """The name of the tool, which is unique on its server."""
    conversation: Conversation
    """The conversation that each call starts."""

    @property
    def first_argument(self) -> str | None:
        """The argument that starts a conversation: ``task`` or ``message``.

        None if several people take part.
        """
        return first_argument(self.conversation)

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        described = {}
        if (name := self.first_argument) is not None:
            described[name] = describe_argument(self.conversation, name)
        described["session"] = "The session to continue, as an earlier result named it."
        described["answer"] = "With session: the answer to its question, as text or JSON."
        fields = {name: {"type": "string", "description": text} for name, text in described.items()}
        return {"type": "object", "properties": fields, "additionalProperties": False}

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


async def load_tools(files: Sequence[Path], options: Options) -> list[ServedTool]:
    """Read the conversations of files as tools, and check that they can run here.

    Raises:
        SpecError: A file is not valid, its code would run without a sandbox, its conversation can't
            run here, or two files have the same name.
        ModelError: A model is not available.
    """
    tools: dict[str, ServedTool] = {}
    for file in files:
        conversation = load_conversation(file)
        name = name_graph(conversation, file, "conversation")
        if name in tools:
            raise SpecError(f"{file}: another file is served as {name!r}, too; rename one of them")
        try:
            check_host(conversation, "choose another level")
            await check_here(conversation, options)
        except SpecError as error:
            raise SpecError(f"{file}: {error}") from error
        tools[name] = ServedTool(name, conversation)
    return list(tools.values())


@dataclass
class StartedSession:
    """A session that a client has started."""

    id: str
    tool: ServedTool
    """The tool, with the conversation of this session."""
    questions: Sequence[Question] = ()
    """The questions for which the session waits since the latest answer."""
    is_stored: bool = False
    """Whether the client can continue the session."""


async def run_with_events(
    source: Conversation | None,
    session: str,
    options: Options,
    note: Callable[[Event], Awaitable[None]],
    *,
    reply: GivenAnswer | None,
    tokens: bool = False,
) -> StoredSession:
    """Run a session to its end or a question, and pass its events to a function."""
    ended: StoredSession | None = None
    run = run_session(source, session, options, reset=False, tokens=tokens, reply=reply)
    async with aclosing(run) as events:
        async for event in events:
            if isinstance(event, StoredSession):
                ended = event
            else:
                await note(event)
    assert ended is not None  # noqa: S101  # a run ends with its session or an error
    return ended


def describe_question(question: Question) -> str:
    """Return a question with the messages that the person has not answered yet, as text."""
    heard = question.heard if isinstance(question, MessageQuestion) else ""
    return clean("\n\n".join(filter(None, (heard, question.summary()))))


@hide_frames
def as_tool(
    conversation: ConversationLike,
    *,
    name: str | None = None,
    description: str | None = None,
    model: Chat | str | None = None,
    models: Mapping[str, Chat] | None = None,
) -> ConversationTool:
    """Return a LangChain tool that runs a conversation and returns its output.

    A speaker of another conversation can call the tool, and so can any LangChain agent. The
    argument of a call is ``task``, or ``message`` if one person takes part in the conversation.
    Each call runs a new conversation. If a speaker calls the tool, the session of the speaker
    contains the inner session, counts its usage and asks its questions. In an agent, the
    conversation is a subgraph of the agent's graph.

    Args:
        conversation: The conversation, or a dict or file (``.toml``, ``.json``) that contains it.
        name: The tool's name. If None, the file's name, or else the conversation's title or task.
        description: The tool's description for models. If None, the title, the task and the
            speakers of the conversation.
        model: The model for speakers without one: a LangChain chat model or a model's name. If a
            speaker calls the tool, the models of the speaker's own run speak instead.
        models: LangChain chat models by the names that the conversation uses; they have no effect
            either if a speaker calls the tool.

    Returns:
        The tool. Outside of a duologue conversation its errors are results with the status
        ``error``.

    Raises:
        SpecError: The conversation or its file is not valid.

    Example:
        >>> from duologue import as_tool, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> options = {"specify_task": False, "max_iterations": 1}
        >>> garden = role_play("A garden", "Owner", "Gardener", **options)
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request."]
        >>> tool = as_tool(garden, name="garden", model=ScriptedChatModel(script))
        >>> tool.invoke({"task": "Plan a garden."})
        'Solution: Dug. Next request.'
    """
    found = (
        conversation if isinstance(conversation, Conversation) else load_conversation(conversation)
    )
    argument = first_argument(found) or "task"
    described = {"type": "string", "description": describe_argument(found, argument)}
    resources = Resources(
        Models(model, models or {}),
        Registry(),
        allow_host=True,
        allow_paths=True,
        is_inner=True,
    )
    called = name or name_graph(found, conversation, "conversation")

    async def run(text: str | None) -> str:
        try:
            return await _run(found, called, resources, text)
        except GraphBubbleUp:
            raise
        except Exception as error:
            # Objects that users pass, such as chat models, may raise any error.
            raise ToolException(f"{called} failed: {describe_error(error)}") from error

    return ConversationTool(
        name=called,
        description=description or describe_tool(found),
        args_schema={
            "type": "object",
            "properties": {argument: described},
            "additionalProperties": False,
        },
        handle_tool_error=True,
        conversation=found,
        argument=argument,
        run_conversation=run,
    )


async def _run(
    conversation: Conversation, name: str, resources: Resources, text: str | None
) -> str:
    """Run the conversation as a part of the graph that runs now, or alone."""
    resources.registry.bring(conversation)
    graph = compile_inner(resources)
    given = input_of_inner(conversation, text)
    limit = RunnableConfig(recursion_limit=max_steps(conversation))
    state = cast("State", await graph.ainvoke(given, limit, output_keys=[*INNER_STATE]))
    ended = state.get("outcome")
    await close_inner(state)
    if not ended:
        raise SpecError(
            f"the conversation of the tool {name!r} waits for a person; call the tool in a graph "
            "with a checkpointer, and resume the graph with the answer"
        )
    output = read_output(conversation, log_of(state))
    if output is None:
        end = Outcome.model_validate(ended)
        raise ModelError(f"its conversation has ended without an output: {end}")
    return output.text
