"""An MCP server with one tool per conversation, on stdin and stdout or by streamable HTTP.

A call starts a session, or continues one that an earlier call of the same client has started. The
server names the sessions. A client can continue only its own sessions; it gets the same error for
the sessions of others as for sessions that do not exist.

Questions become forms of MCP's elicitation. A form is flat: MCP allows only text, numbers, truth
values and choices as its fields. The fields are those of the form on the local page, so
`graphs.view.app.answer_of` reads the answer.
"""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.context import RequestContext
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..common.errors import AnswerError, DuologueError, SessionError, SpecError
from ..common.sanitize import clean, excerpt
from ..conversation.questions import ApprovalQuestion, MessageQuestion, Question
from ..conversation.served import describe_tool
from ..events import Event, MessageSaid, SessionStarted
from ..session.listing import known_store
from ..session.options import GivenAnswer, Options
from ..view.app import answer_of
from ..view.local_server import MOST_TEXT, read_body, read_json, run_server
from .security import TokenGuard, check_token
from .tools import (
    ServedTool,
    StartedSession,
    ToolCall,
    describe_question,
    load_tools,
    run_with_events,
)

_TRIES: Final = 3
"""Number of times that a person is asked for a form that can be read."""

_Context = RequestContext[ServerSession, dict[str, Any], Any]


class ConversationServer:
    """An MCP server that serves conversations.

    Args:
        tools: The conversations, each as a tool.
        options: The options of all runs.

    Attributes:
        server: The server, to run on a transport.
    """

    def __init__(self, tools: Sequence[ServedTool], options: Options) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._options = options
        # The key is the connection of a client, so its sessions are forgotten when it has gone.
        self._started = WeakKeyDictionary[ServerSession, dict[str, StartedSession]]()
        self.server = Server[dict[str, Any], Any]("duologue", version("duologue"))
        self.server.request_handlers[types.ListToolsRequest] = self._list_tools
        self.server.request_handlers[types.CallToolRequest] = self._call_tool

    async def _list_tools(self, _: types.ListToolsRequest) -> types.ServerResult:
        tools = [
            types.Tool(
                name=name,
                description=describe_tool(one.conversation),
                inputSchema=one.input_schema(),
            )
            for name, one in self._tools.items()
        ]
        return types.ServerResult(types.ListToolsResult(tools=tools))

    async def _call_tool(self, request: types.CallToolRequest) -> types.ServerResult:
        """Run a conversation, and return its output, its question to a person, or an error."""
        context, session = self.server.request_context, None
        try:
            name = request.params.name
            tool = self._tools.get(name)
            if tool is None:
                known = ", ".join(self._tools)
                raise SpecError(f"name: there is no tool {excerpt(name)!r}; call one of {known}")
            call = tool.read_call(request.params.arguments or {})
            session = self._find_session(context.session, tool, call)
            return types.ServerResult(await _Run(context, session).play(call, self._options))
        except DuologueError as error:
            text = str(error)
        except Exception as error:
            _log.exception("a call of %s failed", request.params.name)
            text = f"The conversation failed: {type(error).__name__}"
        if session is not None and session.is_stored:
            way_on = f"Call {session.tool.name} again with session {session.id!r} to continue."
            text = f"{text.rstrip('.')}. {way_on}"
        content = types.TextContent(type="text", text=text)
        return types.ServerResult(types.CallToolResult(content=[content], isError=True))

    def _find_session(
        self, client: ServerSession, tool: ServedTool, call: ToolCall
    ) -> StartedSession:
        """Return the session of a call: a new one, or one that this client has started."""
        started = self._started.setdefault(client, {})
        if call.session is None:
            name = f"{tool.name}-{secrets.token_hex(16)}"
            changes = {} if call.task is None else {"task": call.task}
            own = tool._replace(conversation=tool.conversation.model_copy(update=changes))
            started[name] = StartedSession(name, own)
            return started[name]
        found = started.get(call.session)
        if found is None or found.tool.name != tool.name:
            raise SessionError(
                f"session: there is no session {excerpt(call.session)!r}; leave session out to "
                "start a conversation"
            )
        return found


class _Run:
    """One call of a tool."""

    def __init__(self, context: _Context, session: StartedSession) -> None:
        self.context = context
        self._session = session
        self._count = 0

    async def play(self, call: ToolCall, options: Options) -> types.CallToolResult:
        """Run the session to its end, or until it waits for an answer that nobody gives now."""
        session, options = self._session, {**options}
        if call.message is not None:
            options["message"] = call.message
        if _has_forms(self.context.session):
            options["answer"] = self._ask
        reply = None
        if call.answer is not None:
            if not session.questions:
                raise SessionError(
                    f"answer: session {session.id!r} does not wait for an answer; leave answer out"
                )
            question = session.questions[0]
            reply = GivenAnswer(question.read(call.answer), question.id)
        talk = session.tool.conversation
        ended = await run_with_events(talk, session.id, options, self._report, reply=reply)
        session.questions, session.is_stored = ended.pending, True
        if ended.pending:
            return _ask_for_answer(session)
        about = {"session": ended.session_id, "stop_reason": ended.stop_reason}
        output = ended.output if isinstance(ended.output, dict) else None
        return _result(ended.text or str(ended.outcome), output, about)

    async def _report(self, event: Event) -> None:
        """Notify the client of the start of a session and of each message that all hear."""
        if isinstance(event, SessionStarted):
            await self._notify(f"Session {self._session.id} starts.")
        elif isinstance(event, MessageSaid):
            self._session.is_stored = True
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
            content = (found.content or {}).items()
            form = {name: value for name, value in content if isinstance(value, str)}
            try:
                answer: JsonValue = answer_of(question, form)
            except AnswerError as error:
                problem = str(error)
            else:
                return answer
        return None


def _has_forms(client: ServerSession) -> bool:
    """Return whether a client can show a form to a person."""
    params = client.client_params
    can = None if params is None else params.capabilities.elicitation
    # A client of an older version of MCP names no mode, and can show forms only.
    return can is not None and (can.form is not None or can.url is None)


def _ask_for_answer(session: StartedSession) -> types.CallToolResult:
    """Return the result of a call after which the session waits."""
    question = session.questions[0]
    sample = "" if question.sample() == "TEXT" else f", such as {question.sample()},"
    text = (
        f"{describe_question(question)}\n\nSession {session.id} waits for an answer. Ask the user, "
        f"then call {session.tool.name} again with this session and the answer{sample}."
    )
    asked = question.model_dump(mode="json")
    return _result(text, None, {"session": session.id, "question": asked})


def _result(
    text: str, structured: dict[str, Any] | None, meta: dict[str, Any]
) -> types.CallToolResult:
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structuredContent=structured, _meta=meta)


def form_of(question: Question) -> dict[str, Any]:
    """Return the JSON schema of the form that asks a question."""
    if isinstance(question, ApprovalQuestion):
        fields: dict[str, Any] = {}
        for number, call in enumerate(question.action_requests):
            fields |= _decision_fields(question, call, number)
        required = [name for name in fields if name.startswith("decision")]
        return {"type": "object", "properties": fields, "required": required}
    if isinstance(question, MessageQuestion):
        title, text = clean(question.speaker), "The message; exit leaves."
        required = ["text"] if question.empty is None else []
    else:
        title, text, required = "Answer", "The answer, as text or JSON.", ["text"]
    fields = {"text": {"type": "string", "title": title, "description": text}}
    return {"type": "object", "properties": fields, "required": required}


def _decision_fields(
    question: ApprovalQuestion, call: dict[str, Any], number: int
) -> dict[str, Any]:
    """Return the fields for the decision on one call."""
    name, allowed = clean(str(call.get("name"))), question.allowed(call)
    choice = {"type": "string", "title": f"Decision on {name}", "enum": allowed}
    fields: dict[str, Any] = {f"decision{number}": choice}
    if "edit" in allowed:
        about = "Only for edit: the new arguments, as a JSON object."
        fields[f"args{number}"] = {"type": "string", "title": name, "description": about}
    if "respond" in allowed or "reject" in allowed:
        about = "Only for respond or reject: the text that the model receives."
        fields[f"text{number}"] = {"type": "string", "title": name, "description": about}
    return fields


_PATIENCE: Final = 3600
"""Seconds after which a client without an open request is forgotten.

A client that has gone without closing its connection may have left a question open. Until then,
nobody else can continue that session.
"""


def _is_of_interest(record: logging.LogRecord) -> bool:
    """Return whether a log record says more than that a client has closed its connection."""
    return not (record.exc_info and isinstance(record.exc_info[1], anyio.ClosedResourceError))


# The library logs a traceback for each client that closes its connection.
logging.getLogger("mcp.server.streamable_http").addFilter(_is_of_interest)


def serve_stdio(files: Sequence[Path], read_options: Callable[[], Options]) -> None:
    """Serve the conversations of files on stdin and stdout, until stdin ends.

    Args:
        files: The files.
        read_options: A function that returns the options of all runs.

    Raises:
        SpecError: A file is not valid, or its conversation can't run here.
        ModelError: A model is not available.
        StoreError: The store can't be opened.
    """
    # Reading stdin can't be interrupted. Nothing is lost: the sessions can be continued.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def run() -> None:
        # First of all, because modules of tools and libraries of models may print.
        streams, options = _take_streams(), read_options()
        server = ConversationServer(await load_tools(files, options), options).server
        opening = known_store(options.get("store"), create=True)
        async with opening, stdio_server(*streams) as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    asyncio.run(run())


def _take_streams() -> tuple[anyio.AsyncFile[str], anyio.AsyncFile[str]]:
    """Keep stdin and stdout for the protocol.

    Everything else that reads stdin finds its end, and everything that is printed, for example by a
    tool or a library, goes to stderr.
    """
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return (
        anyio.wrap_file(TextIOWrapper(os.fdopen(reads, "rb"), "utf-8", errors="replace")),
        anyio.wrap_file(TextIOWrapper(os.fdopen(writes, "wb"), "utf-8", newline="\n")),
    )


def serve_http(
    files: Sequence[Path],
    options: Options,
    port: int,
    token: str | None,
    tell: Callable[..., None],
) -> None:
    """Serve the conversations of files by streamable HTTP on 127.0.0.1, until Ctrl-C.

    Args:
        files: The files.
        options: The options of all runs.
        port: The port. If 0, any free port.
        token: The token that admits clients. If None, a random token.
        tell: A function that receives lines once the server accepts requests: the address, and
            the header with the token.

    Raises:
        SpecError: A file is not valid, its conversation can't run here, the port is not available,
            or the token is too short.
        ModelError: A model is not available.
        StoreError: The store can't be opened.
    """
    check_token(token, "DUOLOGUE_MCP_TOKEN")
    app = http_app(ConversationServer(asyncio.run(load_tools(files, options)), options))
    run_server(
        lambda port: TokenGuard(app, port, token),
        lambda address, guard: tell(f"{address}/mcp", f"Authorization: Bearer {guard.token}"),
        options.get("store"),
        port,
        option="--http",
        create=True,
    )


def http_app(server: ConversationServer) -> Starlette:
    """Return the application of streamable HTTP, which must be wrapped in a `TokenGuard`."""
    manager = StreamableHTTPSessionManager(server.server, session_idle_timeout=_PATIENCE)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", _Endpoint(manager))], lifespan=lifespan)


class _Endpoint:
    """The address of the protocol. Starlette passes all methods to an object like this one."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            # The library would parse any number of values, and would not read deep JSON.
            body = await read_body(request, MOST_TEXT)
            try:
                read_json(body)
            except SpecError as error:
                await _refuse(str(error))(scope, receive, send)
                return
            first = iter([{"type": "http.request", "body": body}])

            async def receive_again() -> Message:
                return next(first, None) or await receive()

            await self._manager.handle_request(scope, receive_again, send)
            return
        await self._manager.handle_request(scope, receive, send)


def _refuse(text: str) -> Response:
    """Return the response to a body that is not read, as the library returns it."""
    error = types.ErrorData(code=types.PARSE_ERROR, message=text)
    refused = types.JSONRPCError(jsonrpc="2.0", id="server-error", error=error)
    return JSONResponse(refused.model_dump(exclude_none=True), 400)


_log = logging.getLogger("duologue")
