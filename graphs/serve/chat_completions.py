"""The server of OpenAI's Chat Completions API, behind which conversations answer as models.

Without a session, a request is a whole conversation: its messages are the history, and nothing is
stored. With the header ``X-Duologue-Session: new``, it starts a session, which the server names. A
later request with this name contains only the new message, or no message to continue a run that
failed. A session belongs to the token that started it, also after a restart; for other tokens it
does not exist.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..common.errors import AnswerError, DuologueError, SpecError, list_names
from ..common.sanitize import excerpt
from ..common.threads import LoopThread
from ..conversation.served import check_host
from ..events import Event
from ..session.listing import known_store
from ..session.options import Options
from ..session.session_row import discard_session, read_stored_session, read_total_usage
from ..store.base import settled
from ..view.local_server import read_body, read_json, run_server
from .chat_response import SILENCE, ChatResponse, Client, GoneError
from .chat_turns import (
    LARGE,
    MESSAGE_WEIGHT,
    NEW_SESSION,
    SESSION,
    Answer,
    ChatSession,
    ChatTurn,
    answer_of,
    continue_session,
    start_conversation,
    usage_since,
)
from .openai_format import (
    ChatRequest,
    RefusedError,
    describe_model,
    error_body,
    failure_of,
    read_request,
)
from .security import CALLER, ModelGuard, check_token, is_session_of, name_session
from .tools import ServedTool, load_tools, run_with_events

_LARGEST: Final = 8_000_000
"""Maximum size of a request in bytes: its texts, and files in base64."""

_LARGE_RUNS: Final = LoopThread("duologue-large")
"""The event loop of large conversations, apart from the one that answers all other clients."""

_MOST_WAITING: Final = 64
"""Maximum number of requests that wait for their body or their run. Others are refused."""

_MOST_KEPT: Final = 1000
"""Maximum number of sessions of which the server remembers the questions that its answers asked."""


class ChatCompletions:
    """The handlers of the routes.

    Args:
        tools: The conversations, each of which is a model.
        options: The options of all runs.
        most_runs: Maximum number of conversations that run at the same time. Further requests wait.
    """

    def __init__(self, tools: Sequence[ServedTool], options: Options, most_runs: int) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._options = options
        # Conversations that are not sessions are here only while they run.
        self._passing = f"memory:serve-{secrets.token_hex(8)}"
        self._sessions: dict[str, ChatSession] = {}
        self._slots = asyncio.Semaphore(most_runs)
        self._most_open = most_runs + _MOST_WAITING
        self._reading = 0
        self._running = set[asyncio.Task[Answer]]()
        self._created = int(time.time())

    def app(self) -> Starlette:
        """Return the application, which must be wrapped in a `ModelGuard`."""
        return Starlette(
            routes=[
                Route("/v1/models", self._list_models),
                Route("/v1/models/{model}", self._show_model),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ],
            exception_handlers={
                DuologueError: _respond_refused,
                HTTPException: _respond_http_error,
            },
            lifespan=self._lifespan,
        )

    def stop(self) -> None:
        """Cancel all runs, so that open requests end. Sessions can be resumed."""
        for task in self._running:
            task.cancel()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.stop()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _list_models(self, _: Request) -> Response:
        models = [describe_model(name, self._created) for name in self._tools]
        return JSONResponse({"object": "list", "data": models})

    async def _show_model(self, request: Request) -> Response:
        tool = self._find_model(request.path_params["model"])
        return JSONResponse(describe_model(tool.name, self._created))

    async def _complete(self, request: Request) -> Response:
        """Run a conversation, and return its answer, whole or as a stream."""
        try:
            body = await self._read(request)
            asked = await _parse(body)
            turn = await self._turn(request, asked, len(body))
        except (AnswerError, SpecError) as error:
            raise RefusedError(400, str(error)) from error
        reply = ChatResponse(asked, turn.session.tool.conversation)
        run = asyncio.create_task(self._run(turn, reply))
        self._running.add(run)
        run.add_done_callback(self._running.discard)
        run.add_done_callback(lambda _: reply.end())
        client = Client(request, run)
        is_streamed = False
        try:
            begun = [reply.begun] if asked.stream else []
            if not await client.waits_for(run, *begun, seconds=SILENCE if begun else None):
                return Response(status_code=499)
            failure = await self._failure(turn, run) if run.done() else None
            if failure is not None:
                headers = {**turn.headers, **failure.headers}
                return JSONResponse(failure.body, failure.status, headers)
            if not asked.stream:
                return JSONResponse(reply.whole(run.result()), headers=turn.headers)
            is_streamed = True
            parts = self._stream(turn, reply, run, client)
            return StreamingResponse(parts, headers=turn.headers, media_type="text/event-stream")
        finally:
            if not is_streamed:
                client.close()
                run.cancel()

    async def _stream(
        self, turn: ChatTurn, reply: ChatResponse, run: asyncio.Task[Answer], client: Client
    ) -> AsyncIterator[str]:
        """Yield the events of a streamed answer. The run is cancelled if the client has gone."""
        try:
            yield _event(reply.envelope.chunk({"role": "assistant", "content": ""}))
            while (delta := await client.next_delta(reply.news)) is not None:
                # An event that is a comment shows that the server still works.
                yield _event(reply.envelope.chunk(delta)) if delta else ":\n\n"
            failure = await self._failure(turn, run)
            if failure is not None:
                yield _event(failure.body)
                return
            for chunk in reply.last_chunks(run.result()):
                yield _event(chunk)
            yield "data: [DONE]\n\n"
        except GoneError:
            return
        finally:
            client.close()
            run.cancel()

    async def _read(self, request: Request) -> bytes:
        """Return the body of a request, unless too many other requests are open."""
        if self._reading + len(self._running) >= self._most_open:
            raise RefusedError(429, "Too many requests wait already; send the request again later.")
        self._reading += 1
        try:
            return await read_body(request, _LARGEST)
        finally:
            self._reading -= 1

    async def _turn(self, request: Request, asked: ChatRequest, size: int) -> ChatTurn:
        """Return the run that a request of some bytes starts.

        Raises:
            RefusedError: There is no such model or session, or the session needs no message.
            SpecError: The messages do not fit.
        """
        tool = self._find_model(asked.model)
        named, caller = request.headers.get(SESSION), request.scope[CALLER]
        weight = size + len(asked.messages) * MESSAGE_WEIGHT
        if named is None or named == NEW_SESSION:
            source, message = start_conversation(tool.conversation, asked.messages)
            session = ChatSession(name_session(tool.name, caller), tool, weight=weight)
            options = Options(**{**self._options, "message": message})
            if named is None:
                options["store"] = self._passing
            else:
                self._keep(session)
            return ChatTurn(session, source, options)
        known = is_session_of(caller, tool.name, named) and await self._find_session(named, tool)
        if not known:
            raise RefusedError(
                404,
                f"There is no session {excerpt(named)!r}; send {SESSION}: {NEW_SESSION} to start "
                "a session.",
                "session_not_found",
            )
        known.weight += weight
        return continue_session(known, asked.messages, self._options)

    def _keep(self, session: ChatSession) -> ChatSession:
        """Remember a session. The oldest is forgotten if there are many; the store has it."""
        session.is_stored = True
        self._sessions[session.id] = session
        if len(self._sessions) > _MOST_KEPT:
            del self._sessions[next(iter(self._sessions))]
        return session

    async def _find_session(self, session: str, tool: ServedTool) -> ChatSession | None:
        """Return a session of the caller, also if the server has started anew since."""
        if session in self._sessions:
            return self._sessions[session]
        loaded = await _LARGE_RUNS.call(lambda: self._load_session(session, tool))
        return None if loaded is None else self._keep(loaded)

    async def _load_session(self, session: str, tool: ServedTool) -> ChatSession | None:
        async with known_store(self._options.get("store"), create=True) as store:
            if await store.get(session) is None:
                return None
            found = await read_stored_session(store, session)
            usage = await read_total_usage(store, session)
        check_host(found.conversation, "choose another level")
        stored = tool._replace(conversation=found.conversation)
        weight = sum(len(one.text) + MESSAGE_WEIGHT for one in found.messages)
        return ChatSession(session, stored, found.pending, usage=usage, weight=weight)

    def _find_model(self, name: str) -> ServedTool:
        if name not in self._tools:
            known = ", ".join(self._tools)
            text = f"model: there is no model {excerpt(name)!r}; use one of {known}"
            raise RefusedError(404, text, "model_not_found")
        return self._tools[name]

    async def _run(self, turn: ChatTurn, reply: ChatResponse) -> Answer:
        """Run a conversation to its end or a question, when its turn comes."""
        async with self._slots:
            loop = asyncio.get_running_loop()

            async def note(event: Event) -> None:
                loop.call_soon_threadsafe(reply.note, event)

            if turn.session.weight < LARGE:
                return await self._play(turn, note, tokens=reply.shows_tokens)
            return await _LARGE_RUNS.call(lambda: self._play(turn, note, tokens=reply.shows_tokens))

    async def _play(
        self, turn: ChatTurn, note: Callable[[Event], Awaitable[None]], *, tokens: bool
    ) -> Answer:
        session, source, options, reply = turn
        async with known_store(options.get("store"), create=True) as store:
            # If the run is cancelled or fails, only another run finds out for what the session
            # waits.
            questions, session.questions = session.questions, ()
            try:
                ended = await run_with_events(
                    source, session.id, options, note, reply=reply, tokens=tokens
                )
                usage = await read_total_usage(store, session.id)
            except AnswerError:
                session.questions = questions
                raise
            finally:
                if not session.is_stored:
                    # Also if the client has gone: nothing of this conversation is stored.
                    await settled(discard_session(store, session.id))
        since, session.usage = usage_since(session.usage, usage), usage
        session.questions = ended.pending
        return answer_of(ended, since, is_session=session.is_stored)

    async def _failure(self, turn: ChatTurn, run: asyncio.Task[Answer]) -> RefusedError | None:
        """Return the error of a run that has ended, or None."""
        try:
            error = run.exception()
        except asyncio.CancelledError:
            return RefusedError(503, "The server stops; send the request again later.")
        if error is None:
            return None
        if not isinstance(error, Exception):
            raise error
        failure = failure_of(error)
        if failure.status == 500:
            _log.error("a request to %s failed", turn.session.tool.name, exc_info=error)
        session = turn.session
        if not session.is_stored:
            return failure
        async with known_store(turn.options.get("store"), create=True) as store:
            if await store.get(session.id) is None:
                self._sessions.pop(session.id, None)
                return failure
        if failure.status == 400:
            return failure
        way_on = f"Send {SESSION}: {session.id} with an empty list of messages to continue."
        text = f"{str(failure).rstrip('.')}. {way_on}"
        return RefusedError(failure.status, text, failure.code)


async def _parse(body: bytes) -> ChatRequest:
    """Read a request, in a thread if that takes long."""

    def parse() -> ChatRequest:
        return read_request(read_json(body))

    return parse() if len(body) < LARGE else await asyncio.to_thread(parse)


def _event(data: dict[str, Any]) -> str:
    # JSON has no line breaks.
    return f"data: {json.dumps(data)}\n\n"


def _respond_refused(_: Request, error: Exception) -> Response:
    failure = failure_of(error)
    return JSONResponse(failure.body, failure.status, failure.headers)


def _respond_http_error(request: Request, error: Any) -> Response:  # noqa: ANN401  # as in Starlette
    status, text = error.status_code, error.detail
    if status not in (404, 405):
        return JSONResponse(error_body(status, text), status)
    path = excerpt(request.url.path)
    text = f"There is no {request.method} {path}; use POST /v1/chat/completions."
    return JSONResponse(error_body(status, text, "unknown_url"), status)


def serve_models(
    files: Sequence[Path],
    options: Options,
    port: int,
    tokens: Sequence[str],
    most_runs: int,
    tell: Callable[..., None],
) -> None:
    """Serve the conversations of files as models on 127.0.0.1, until Ctrl-C.

    Args:
        files: The files.
        options: The options of all runs.
        port: The port. If 0, any free port.
        tokens: The tokens that admit clients, one for each client that has its own sessions. If
            there are none, a random token.
        most_runs: Maximum number of conversations that run at the same time.
        tell: A function that receives lines once the server accepts requests: the address, the
            models' names, and the token if it is random.

    Raises:
        SpecError: A file is not valid, its conversation can't run here or needs several people, the
            port is not available, or a token is too short.
        ModelError: A model is not available.
        StoreError: The store can't be opened.
    """
    for token in tokens:
        check_token(token, "--token")
    tools = asyncio.run(load_tools(files, options))
    for file, tool in zip(files, tools, strict=True):
        if len(people := tool.conversation.people) > 1:
            raise SpecError(
                f"{file}: people speak for {list_names(people)}; at most one person can take part "
                "in a conversation that is served as a model"
            )
    served = ChatCompletions(tools, options, most_runs)

    def begin(address: str, guard: ModelGuard) -> None:
        keys = [] if tokens else [f"API key: {guard.token}"]
        tell(f"{address}/v1", f"Models: {', '.join(tool.name for tool in tools)}", *keys)

    run_server(
        lambda port: ModelGuard(served.app(), port, *tokens),
        begin,
        options.get("store"),
        port,
        create=True,
        end=served.stop,
    )


_log = logging.getLogger("duologue")
