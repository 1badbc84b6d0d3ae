"""The local page: its server, its routes, and the forms that they read."""

import json
import webbrowser
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Annotated, Any, Final, NamedTuple, cast, get_args
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ..batch.status import format_duration, read_status, read_statuses
from ..common.content import Block, file_block, files_of, make_content
from ..common.content_input import MOST_BYTES, read_content
from ..common.errors import (
    AnswerError,
    BatchError,
    DuologueError,
    SessionError,
    SpecError,
    StoreError,
)
from ..common.files import parse_json
from ..common.threads import in_thread
from ..conversation.questions import EXIT, ApprovalQuestion, MessageQuestion, Question
from ..ends.end_chat import Reason
from ..session.listing import known_store, stop_session
from ..session.page import read_for_page
from ..session.session_row import count_messages, read_stored_session
from ..show.render import Drawn
from ..store.batches import CellStatus, CellsWanted, check_batch_name
from ..store.errors import unknown_session
from ..store.open import Store
from ..store.rows import SessionRow, SessionStatus, Wanted, check_session_id, place
from .local_server import Guard, body_parts, page_to, read_body, run_server
from .pages import Runs, Standing, draw, draw_session_page, follow, status_of

Form = Mapping[str, str]
"""The fields of a submitted form."""


def answer_of(question: Question, form: Form, files: Sequence[Block] = ()) -> Any:  # noqa: ANN401  # depends on the question
    """Read the answer to a question from a form.

    Args:
        question: The question.
        form: The fields. ``leave``: the person leaves. ``text``: a message or another answer.
            ``decision0``, ``args0`` and ``text0``: the decision on the first call, and so on.
        files: The files of a message, as content blocks.

    Returns:
        The answer.

    Raises:
        AnswerError: The form contains no valid answer.
    """
    if "leave" in form:
        return EXIT
    if isinstance(question, ApprovalQuestion):
        calls = range(len(question.action_requests))
        return {"decisions": [_decision(question, form, number) for number in calls]}
    # Browsers send line breaks as CR LF.
    text = "" if "nothing" in form else form.get("text", "").replace("\r\n", "\n")
    if not text.strip() and not isinstance(question, MessageQuestion):
        raise AnswerError('the answer is missing; enter "" for an empty text')
    if isinstance(question, MessageQuestion) and "nothing" not in form:
        return make_content(text, files)
    return question.read(text)


def _decision(question: ApprovalQuestion, form: Form, number: int) -> dict[str, Any]:
    call = question.action_requests[number]
    decision = form.get(f"decision{number}", "")
    text = form.get(f"text{number}", "").replace("\r\n", "\n")
    if decision == "edit":
        args = _arguments(str(call["name"]), form.get(f"args{number}", ""))
        return {"type": decision, "edited_action": {"name": call["name"], "args": args}}
    if decision == "respond" or (decision == "reject" and text.strip()):
        return {"type": decision, "message": text}
    return {"type": decision}


def _arguments(name: str, text: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise AnswerError(f"the arguments of {name} are not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise AnswerError(f'the arguments of {name} must be an object, such as {{"name": "value"}}')
    return found


_ON_A_PAGE: Final = 50
"""Maximum number of sessions on one page of the list."""

_MOST: Final = 1_000_000
"""Maximum size of the texts of a form in bytes."""

_MOST_FILES: Final = 20
"""Maximum number of files in a form."""

_GONE: Final = "this question was already answered or withdrawn, so your answer was not used"

_PLACE: Final = TypeAdapter(tuple[str, str])
_CELL: Final = TypeAdapter(tuple[Annotated[int, Field(ge=0, lt=2**63)], str])


def view_app(runs: Runs, is_closing: Callable[[], bool]) -> Starlette:
    """Return the application, which must be wrapped in a `Guard`.

    Args:
        runs: The runner of the sessions that are answered on the page, with their store.
        is_closing: A function that returns whether the server is about to stop.
    """
    view = _View(runs, is_closing)
    return Starlette(
        routes=[
            Route("/", view.sessions),
            Route("/batches", view.batches),
            Route("/batches/{batch}", view.batch),
            Route("/sessions/{session}", view.session),
            Route("/sessions/{session}/events", view.events),
            Route("/sessions/{session}/answer", view.answer, methods=["POST"]),
            Route("/sessions/{session}/stop", view.stop, methods=["POST"]),
        ],
        exception_handlers={DuologueError: _respond_error, HTTPException: _respond_http_error},
        lifespan=view.lifespan,
    )


class _View:
    """The handlers of the routes, for one store."""

    store: Store

    def __init__(self, runs: Runs, is_closing: Callable[[], bool]) -> None:
        self._runs = runs
        self._is_closing = is_closing

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Keep the store open while the application runs."""
        async with known_store(self._runs.store) as self.store:
            try:
                yield
            finally:
                await self._runs.close()

    async def sessions(self, request: Request) -> Response:
        """Show the list of the sessions that match the search."""
        wanted, show = _read_search(request), request.query_params.get("show", "")
        found = await self.store.find(wanted)
        older, on_page = "", found[:_ON_A_PAGE]
        rows: list[tuple[SessionRow, str, int | None]] = []
        for row in on_page:
            messages = None
            # A damaged session does not keep the others from being listed.
            with suppress(StoreError):
                messages = await count_messages(self.store, row.session)
            rows.append((row, await status_of(self.store, row), messages))
        if len(found) > len(on_page):
            query = {"q": wanted.text, "show": show, "after": json.dumps(place(on_page[-1]))}
            older = urlencode({name: value for name, value in query.items() if value})
        return _page(
            draw(
                "sessions.html",
                "sessions.js",
                rows=rows,
                store_url=self.store.url,
                wanted=wanted,
                show=show,
                reasons=[reason.value for reason in Reason],
                older=older,
            )
        )

    async def batches(self, request: Request) -> Response:
        """Show the list of batches."""
        found = await read_statuses(self.store)
        return _page(draw("batches.html", "sessions.js", batches=found, store_url=self.store.url))

    async def batch(self, request: Request) -> Response:
        """Show the progress of a batch, and the cells that match the filter."""
        status = await read_status(self.store, check_batch_name(request.path_params["batch"]))
        wanted = _read_cell_filter(request, status.batch)
        cells = await self.store.batches.find(wanted)
        more, on_page = "", cells[:_ON_A_PAGE]
        if len(cells) > len(on_page):
            after = json.dumps([on_page[-1].number, on_page[-1].session])
            more = urlencode({"status": wanted.status or "", "after": after})
        return _page(
            draw(
                "batch.html",
                "sessions.js",
                batch=status,
                duration=format_duration(status.seconds),
                cells=[
                    (cell, [(path, _show_value(value)) for path, value in cell.varied.items()])
                    for cell in on_page
                ],
                statuses=get_args(CellStatus),
                wanted=wanted,
                is_first="after" not in request.query_params,
                more=more,
            )
        )

    async def session(self, request: Request) -> Response:
        """Show a session."""
        row = await self._row(request)
        status = await status_of(self.store, row)
        session = await read_for_page(self.store, row.session)
        problem = self._runs.problems.get(row.session, "")
        standing = Standing(row, status, session.pending, problem)
        return _page(await in_thread(draw_session_page, session, standing))

    async def events(self, request: Request) -> Response:
        """Stream the changes of a session."""
        row = await self._row(request)
        given = request.headers.get("last-event-id") or request.query_params.get("mark", "")
        events = follow(self.store, self._runs, row.session, given, self._is_closing)
        return StreamingResponse(events, media_type="text/event-stream")

    async def answer(self, request: Request) -> Response:
        """Answer a question of a session, which then continues in this process."""
        row, (form, uploads) = await self._row(request), await _form(request)
        try:
            asked = (await read_stored_session(self.store, row.session)).pending
            question = next((one for one in asked if one.id == form.get("question")), None)
            if question is None:
                raise AnswerError(_GONE)
            value = answer_of(question, form, await in_thread(_read_uploads, uploads))
        except (AnswerError, SpecError) as error:
            self._runs.problems[row.session] = str(error)
        else:
            await self._runs.answer(row.session, value, question.id)
        # Back to the place on the page where the answer was given.
        return _redirect_back(row, "#questions")

    async def stop(self, request: Request) -> Response:
        """Stop a session."""
        row = await self._row(request)
        self._runs.problems.pop(row.session, None)
        try:
            await stop_session(self.store, row.session)
        except SessionError as error:
            self._runs.problems[row.session] = str(error)
        return _redirect_back(row)

    async def _row(self, request: Request) -> SessionRow:
        session = check_session_id(request.path_params["session"])
        row = await self.store.get(session)
        if row is None:
            raise unknown_session(session, self.store.url)
        return row


def _show_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_search(request: Request) -> Wanted:
    """Read the search from a request. Invalid values are ignored."""
    query = request.query_params
    show = query.get("show", "")
    try:
        after = _PLACE.validate_json(query["after"]) if "after" in query else None
    except ValidationError:
        after = None
    return Wanted(
        text=query.get("q", "").replace("\0", "").strip(),
        status=cast("SessionStatus", show) if show in get_args(SessionStatus) else None,
        reason=show if show in set(Reason) else None,
        after=after,
        # One more than a page shows, to find out whether there are older sessions.
        limit=_ON_A_PAGE + 1,
    )


def _read_cell_filter(request: Request, batch: str) -> CellsWanted:
    """Read the filter of a batch's cells from a request. Invalid values are ignored."""
    show = request.query_params.get("status", "")
    after = (0, "")
    with suppress(ValidationError):
        after = _CELL.validate_json(request.query_params.get("after", ""))
    return CellsWanted(
        batch=batch,
        status=cast("CellStatus", show) if show in get_args(CellStatus) else None,
        after=after,
        limit=_ON_A_PAGE + 1,
    )


class _Upload(NamedTuple):
    """A file that a browser has sent."""

    name: str
    data: bytes


async def _form(request: Request) -> tuple[Form, list[_Upload]]:
    """Read the fields and the files of a submitted form."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        body = await read_body(request, _MOST)
        try:
            return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1_000)), []
        except ValueError as error:
            raise HTTPException(400, "The form is not valid.") from error
    parser = MultiPartParser(
        request.headers,
        body_parts(request, _MOST + MOST_BYTES),
        max_files=_MOST_FILES,
        max_fields=1_000,
        max_part_size=_MOST,
    )
    try:
        found = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"The form is not valid: {error.message}") from error
    async with AsyncExitStack() as opened:
        opened.push_async_callback(found.close)
        fields = {name: value for name, value in found.multi_items() if isinstance(value, str)}
        uploads = [
            _Upload(value.filename or "", await value.read())
            for _, value in found.multi_items()
            if isinstance(value, UploadFile)
        ]
    # A browser sends an empty file without a name if the person has chosen none.
    return fields, [one for one in uploads if one.name or one.data]


def _read_uploads(uploads: Sequence[_Upload]) -> list[Block]:
    """Read the files of a form. The type of each is found in its bytes."""
    blocks = [
        file_block(b64encode(one.data).decode(), "application/octet-stream", one.name)
        for one in uploads
    ]
    return files_of(read_content(blocks, "files")) if blocks else []


def _page(drawn: Drawn, status: int = 200) -> Response:
    # Lone surrogates have no encoding; they become question marks.
    body = drawn.html.encode(errors="replace")
    return HTMLResponse(body, status, {"Content-Security-Policy": drawn.policy})


def _redirect_back(row: SessionRow, place: str = "") -> Response:
    return RedirectResponse(f"/sessions/{row.session}{place}", 303)


def _respond_error(request: Request, error: Exception) -> Response:
    # A name that is not valid is the name of no batch.
    is_unknown = isinstance(error, SessionError | BatchError | SpecError)
    page = draw("notice.html", title="This page is not available", text=str(error))
    return _page(page, 404 if is_unknown else 500)


def _respond_http_error(request: Request, error: Any) -> Response:  # noqa: ANN401  # as in Starlette
    page = draw("notice.html", title="Page not found", text=error.detail)
    return _page(page, error.status_code)


def serve(
    runs: Runs,
    session: str | None,
    port: int,
    opens: bool,
    tell: Callable[[str], None],
) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C.

    Args:
        runs: The runner of the sessions that are answered on the page, with their store.
        session: The id of the session to show first. If None, the list of sessions.
        port: The port. If 0, any free port.
        opens: Whether to open a browser.
        tell: A function that receives the address once the server accepts requests.

    Raises:
        SpecError: The port is not available.
        StoreError: The store can't be opened.
    """
    closing = Event()
    with TemporaryDirectory() as private:

        def begin(address: str, guard: Guard) -> None:
            path = "/" if session is None else f"/sessions/{quote(session)}"
            first = f"{address}{path}?token={guard.token}"
            tell(first)
            if opens:
                # Through a private file, because all users see a process's arguments.
                page = Path(private) / "open.html"
                page.touch(mode=0o600)
                page.write_text(page_to(first))
                webbrowser.open(page.as_uri())

        app = view_app(runs, closing.is_set)
        run_server(lambda port: Guard(app, port), begin, runs.store, port, end=closing.set)
