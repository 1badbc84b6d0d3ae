"""An MCP server with one tool per conversation.

A call starts a session, or continues one that an earlier call of the same client has started. The
server names the sessions. A client can continue only its own sessions; it gets the same error for
the sessions of others as for sessions that do not exist.
"""

import logging
import secrets
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.shared.context import RequestContext
from pydantic import JsonValue

from ...nodes.models.adapters.composed import Chat
from ..common.errors import AnswerError, DuologueError, SessionError, SpecError
from ..common.sanitize import excerpt
from ..conversation.conversation import Conversation
from ..conversation.questions import Question
from ..events import Event, MessageSaid, SessionStarted
from ..session.options import GivenAnswer, Options
from ..session.run import run_session
from ..session.stored_session import StoredSession
from .forms import describe_question, form_of, read_form
from .tools import ServedTool, ToolCall

_log = logging.getLogger("duologue")

_TRIES: Final = 3
"""Number of times that a person is asked for a form that can be read."""

_Context = RequestContext[ServerSession, dict[str, Any], Any]


@dataclass
class _StartedSession:
    """A session that a client has started."""

    id: str
    tool: ServedTool
    conversation: Conversation
    questions: Sequence[Question] = ()
    """The questions that the latest result named."""
    is_stored: bool = False


class ConversationServer:
    """An MCP server that serves conversations.

    Args:
        tools: The conversations, each as a tool.
        store: The store of the sessions. If None, the store in the settings.
        model: The model for conversations that name none.

    Attributes:
        server: The server, to run on a transport.
    """

    def __init__(
        self,
        tools: Sequence[ServedTool],
        store: str | Path | None = None,
        model: Chat | str | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._options = Options(store=store, model=model)
        # The key is the connection of a client, so its sessions are forgotten when it has gone.
        self._started = WeakKeyDictionary[ServerSession, dict[str, _StartedSession]]()
        self.server = Server[dict[str, Any], Any]("duologue", version("duologue"))
        self.server.request_handlers[types.ListToolsRequest] = self._list_tools
        self.server.request_handlers[types.CallToolRequest] = self._call_tool

    async def _list_tools(self, _: types.ListToolsRequest) -> types.ServerResult:
        return types.ServerResult(types.ListToolsResult(tools=[*map(_tool, self._tools.values())]))

    async def _call_tool(self, request: types.CallToolRequest) -> types.ServerResult:
        """Run a conversation, and return its output, its question to a person, or an error."""
        run = _Run(self.server.request_context)
        try:
            tool = self._find_tool(request.params.name)
            call = tool.read_call(request.params.arguments or {})
            session = self._find_session(run.context.session, tool, call)
            result = await run.play(session, call, self._options)
        except DuologueError as error:
            return types.ServerResult(_failure(run.add_way_on(str(error))))
        except Exception as error:
            _log.exception("a call of %s failed", request.params.name)
            text = f"The conversation failed: {type(error).__name__}"
            return types.ServerResult(_failure(run.add_way_on(text)))
        return types.ServerResult(result)

    def _find_tool(self, name: str) -> ServedTool:
        if name not in self._tools:
            known = ", ".join(self._tools)
            raise SpecError(f"name: there is no tool {excerpt(name)!r}; call one of {known}")
        return self._tools[name]

    def _find_session(
        self, client: ServerSession, tool: ServedTool, call: ToolCall
    ) -> _StartedSession:
        """Return the session of a call: a new one, or one that this client has started."""
        started = self._started.setdefault(client, {})
        if call.session is None:
            name = f"{tool.name}-{secrets.token_hex(16)}"
            started[name] = _StartedSession(name, tool, tool.start(call))
            return started[name]
        found = started.get(call.session)
        if found is None or found.tool is not tool:
            raise SessionError(
                f"session: there is no session {excerpt(call.session)!r}; leave session out to "
                "start a conversation"
            )
        return found


class _Run:
    """One call of a tool."""

    def __init__(self, context: _Context) -> None:
        self.context = context
        self._session: _StartedSession | None = None
        self._count = 0

    def add_way_on(self, error: str) -> str:
        """Return an error with a sentence on how to continue, if something is stored."""
        session = self._session
        if session is None or not session.is_stored:
            return error
        way_on = f"Call {session.tool.name} again with session {session.id!r} to continue."
        return f"{error.rstrip('.')}. {way_on}"

    async def play(
        self, session: _StartedSession, call: ToolCall, options: Options
    ) -> types.CallToolResult:
        """Run a session to its end, or until it waits for an answer that nobody gives now."""
        self._session = session
        options = {**options}
        if call.message is not None:
            options["message"] = call.message
        if _has_forms(self.context.session):
            options["answer"] = self._ask
        reply = None if call.answer is None else _bind_answer(session, call.answer)
        run = run_session(
            session.conversation, session.id, options, reset=False, tokens=False, reply=reply
        )
        ended: StoredSession | None = None
        async with aclosing(run) as events:
            async for event in events:
                if isinstance(event, StoredSession):
                    ended = event
                else:
                    await self._report(event)
        assert ended is not None  # noqa: S101  # a run ends with its session or an error
        session.questions, session.is_stored = ended.pending, True
        return _waiting(session) if ended.pending else _output(ended)

    async def _report(self, event: Event) -> None:
        """Notify the client of the start of a session and of each message that all hear."""
        session = self._session
        assert session is not None  # noqa: S101  # the run sets it first
        if isinstance(event, SessionStarted):
            await self._notify(f"Session {session.id} starts.")
        elif isinstance(event, MessageSaid):
            session.is_stored = True
            if event.audience is None:
                # A message that only ends the conversation is not heard.
                text = event.heard_text or event.text
                await self._notify(f"{excerpt(event.speaker)}: {excerpt(text)}")

    async def _notify(self, text: str) -> None:
        meta = self.context.meta
        token = None if meta is None else meta.progressToken
        if token is not None:
            self._count += 1
            await self.context.session.send_progress_notification(
                token, self._count, message=text, related_request_id=str(self.context.request_id)
            )

    async def _ask(self, question: Question) -> JsonValue:
        """Ask the person at the client, and return the answer. None if the person answers later."""
        problem = question.problem
        for _ in range(_TRIES):
            found = await self.context.session.elicit_form(
                "\n\n".join(filter(None, (problem, describe_question(question)))),
                form_of(question),
                self.context.request_id,
            )
            if found.action != "accept":
                return None
            try:
                answer: JsonValue = read_form(question, found.content or {})
            except AnswerError as error:
                problem = str(error)
            else:
                return answer
        return None


def _tool(tool: ServedTool) -> types.Tool:
    return types.Tool(name=tool.name, description=tool.description, inputSchema=tool.input_schema())


def _has_forms(client: ServerSession) -> bool:
    """Return whether a client can show a form to a person."""
    params = client.client_params
    can = None if params is None else params.capabilities.elicitation
    # A client of an older version of MCP names no mode, and can show forms only.
    return can is not None and (can.form is not None or can.url is None)


def _bind_answer(session: _StartedSession, text: str) -> GivenAnswer:
    """Bind an answer to the first question that the latest result named."""
    if not session.questions:
        raise SessionError(
            f"answer: session {session.id!r} does not wait for an answer; leave answer out"
        )
    question = session.questions[0]
    return GivenAnswer(question.read(text), question.id)


def _waiting(session: _StartedSession) -> types.CallToolResult:
    """Return the result of a call after which the session waits."""
    question = session.questions[0]
    sample = "" if question.sample() == "TEXT" else f", such as {question.sample()},"
    text = (
        f"{describe_question(question)}\n\nSession {session.id} waits for an answer. Ask the user, "
        f"then call {session.tool.name} again with this session and the answer{sample}."
    )
    asked = question.model_dump(mode="json")
    return _result(text, None, {"session": session.id, "question": asked})


def _output(ended: StoredSession) -> types.CallToolResult:
    """Return the output of a session that has ended."""
    output = ended.output
    about: dict[str, Any] = {"session": ended.session_id, "stop_reason": ended.stop_reason}
    text = ended.text or str(ended.outcome)
    return _result(text, output if isinstance(output, dict) else None, about)


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], isError=True)


def _result(
    text: str, structured: dict[str, Any] | None, meta: dict[str, Any]
) -> types.CallToolResult:
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structuredContent=structured, _meta=meta)
