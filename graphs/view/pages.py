"""The HTML of the local page: the list of sessions, a session, and its changes.

`Runs` runs the sessions that were answered on the page.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from markupsafe import Markup

from ..common.errors import DuologueError, SpecError
from ..conversation.questions import Question
from ..session.checkpoints import config_of
from ..session.options import GivenAnswer, Options
from ..session.page import read_for_page
from ..session.run import run_to_end
from ..show.page import PageSession, page_of
from ..show.page_data import Line, Page
from ..show.render import Drawn, draw_page, templates
from ..store.open import Store
from ..store.rows import SessionRow

_log = logging.getLogger("duologue")

Status = Literal["running", "waiting", "unfinished", "finished"]


class Standing(NamedTuple):
    """The status of a session, and the possible actions."""

    row: SessionRow
    """The stored row of the session."""
    status: Status
    """``running`` if a process is running the session, otherwise its stored status."""
    pending: Sequence[Question]
    """The open questions."""
    problem: str
    """The problem with the latest request on this page. Empty if there is none."""

    @property
    def questions(self) -> Sequence[Question]:
        """The open questions that can be answered on this page."""
        # A running session asks its questions in the process that runs it.
        return () if self.status == "running" else self.pending

    @property
    def is_stopping(self) -> bool:
        """Return whether a stop was requested while the session is running."""
        return self.status == "running" and self.row.stop_requested

    @property
    def can_stop(self) -> bool:
        """Return whether the session can be stopped."""
        return self.status in ("running", "waiting") and not self.is_stopping


async def status_of(store: Store, row: SessionRow) -> Status:
    """Return ``running`` if a process is running a session, otherwise its stored status."""
    return "running" if await store.is_locked(row.session) else row.status


_FOLDER: Final = Path(__file__).parent / "templates"

_SOURCES: Final = {"connect-src": "'self'", "form-action": "'self'", "frame-ancestors": "'none'"}


def draw_session_page(session: PageSession, standing: Standing) -> Drawn:
    """Draw the page of a session."""
    page = page_of(session)
    return draw(
        "session.html",
        "page.js",
        "live.js",
        many=len(page.players),
        page=page,
        parts=_draw_parts(page, standing, spending=True),
        mark=_mark(page.lines),
        standing=standing,
    )


def draw_news(session: PageSession, standing: Standing, seen: str) -> tuple[str, dict[str, Any]]:
    """Return the changes of a session's page.

    Args:
        session: The session. Its usage is drawn only if its steps were read.
        standing: The status of the session.
        seen: The mark of the content that the page already shows.

    Returns:
        The new mark, and the changes. If the shown lines have changed, for example because a memory
        was reset, the only change is the request to load the page again.
    """
    page = page_of(session)
    number = seen.partition("-")[0]
    is_count = number.isascii() and number.isdecimal() and len(number) < 9
    shown = page.lines[: int(number) if is_count else 0]
    if _mark(shown) != seen:
        return seen, {"reload": True}
    return _mark(page.lines), {
        "lines": "".join(_draw_macro("message", line) for line in page.lines[len(shown) :]),
        "parts": _draw_parts(page, standing, spending=bool(session.steps)),
        "done": standing.status == "finished",
    }


def draw(template: str, *scripts: str, **values: Any) -> Drawn:  # for a template
    """Draw a page from its template and scripts."""
    return draw_page(
        template, *scripts, folder=_FOLDER, sheet="view.css", sources=_SOURCES, **values
    )


def _draw_parts(page: Page, standing: Standing, *, spending: bool) -> dict[str, Any]:
    """Return the parts of a page that change while a session runs, each with its digest."""
    ending = page.ending
    # The panel of a session that has not ended contains the current status.
    words = {"running": "It is running.", "unfinished": "It was interrupted."}
    if standing.status in words and not ending.questions:
        ending = ending.model_copy(update={"sentence": words[standing.status]})
    drawn = {
        "standing": _draw_macro("standing", standing),
        "ending": _draw_macro("ending", ending),
        "questions": _draw_macro("questions", standing),
    }
    if spending:
        drawn["spending"] = _draw_macro("spending", page.spending) if page.spending else Markup()
    return {name: {"html": html, "is": _digest(html)} for name, html in drawn.items()}


def _draw_macro(name: str, given: object) -> Markup:
    """Draw a macro, whose template has its name."""
    macro = getattr(templates(_FOLDER).get_template(f"{name}.html").module, name)
    return Markup(macro(given))  # noqa: S704  # escaped


def _mark(lines: Sequence[Line]) -> str:
    """Return the mark of lines: their number and a digest of their content."""
    return f"{len(lines)}-{_digest(''.join(line.model_dump_json() for line in lines))}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:16]


_AT_ONCE: Final = 1.5
"""Seconds to wait for an early error of an answer, such as that another process has already
answered the question.
"""

_NOT_HERE: Final = (
    ". This page can use only the models in this environment, the tools of installed packages, and "
    "those of `duologue view --tools MODULE`. If the session needs others, continue it in Python."
)


class Runs:
    """A runner that answers the questions of sessions, and continues each session in a task.

    Args:
        options: The options of all runs.
    """

    def __init__(self, options: Options) -> None:
        self.problems: dict[str, str] = {}
        """The latest problem of each session, until the next request for it."""
        self.store, self._options = options.get("store"), options
        self._running = set[asyncio.Task[None]]()

    async def answer(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        """Answer a question of a session and continue it. `problems` then contains early errors."""
        self.problems.pop(session, None)
        task = asyncio.create_task(self._run(session, value, question))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait([task], timeout=_AT_ONCE)

    async def _run(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        try:
            reply = GivenAnswer(value, question)
            await run_to_end(None, session, self._options, reply=reply)
        except DuologueError as error:
            hint = _NOT_HERE if isinstance(error, SpecError) else ""
            self.problems[session] = str(error) if not hint else str(error).rstrip(".") + hint
        except Exception as error:
            _log.exception("session %s failed", session)
            self.problems[session] = f"The session failed: {type(error).__name__}: {error}"

    async def close(self) -> None:
        """Cancel the running sessions. They can be resumed."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


_PAUSE: Final = 0.3
"""Seconds between two checks of a running session."""

_PATIENCE: Final = 50
"""Number of checks without a change after which a session that does not run is checked less often.
"""

_STILL: Final = 2.0
"""Seconds between two checks of a session that is checked less often."""


async def follow(
    store: Store, runs: Runs, session: str, seen: str, is_closing: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield the changes of a session until it has ended or the page is closed.

    Args:
        store: The store of the session.
        runs: The sessions that this page runs.
        session: The session's id.
        seen: The mark of the content that the page already shows.
        is_closing: A function that returns whether the page is being closed.

    Yields:
        Server-sent events.
    """
    known: object = None
    looks = 0
    while not is_closing():
        try:
            row = await store.get(session)
            if row is None:
                yield _event(seen, {"reload": True})
                return
            status = await status_of(store, row)
            newest = await store.checkpointer.aget_tuple(config_of(session))
            place = newest and (newest.checkpoint["id"], len(newest.pending_writes or ()))
            found = (place, status, row.reason, row.stop_requested, runs.problems.get(session, ""))
            if found != known:
                known, looks = found, 0
                read = await read_for_page(store, session, past=status == "finished")
                standing = Standing(row, status, read.pending, runs.problems.get(session, ""))
                seen, news = await asyncio.to_thread(draw_news, read, standing, seen)
                yield _event(seen, news)
                if news.get("reload") or news.get("done"):
                    return
            elif not looks % 50:
                # A closed connection is noticed only when something is sent.
                yield ":\n\n"
        except DuologueError as error:
            yield _event(seen, {"problem": str(error)})
            return
        looks += 1
        await asyncio.sleep(_STILL if looks > _PATIENCE and status != "running" else _PAUSE)


def _event(mark: str, news: dict[str, object]) -> str:
    # JSON has no line breaks. A browser that reconnects sends the id of the latest event.
    return f"id: {mark}\ndata: {json.dumps(news)}\n\n"
