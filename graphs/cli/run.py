"""A run on the command line: its events are printed, and a signal interrupts it.

`graphs.cli.terminal.events` formats the events.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType

from pydantic import JsonValue

from ..common.content import Content
from ..common.errors import DuologueError, SessionError
from ..common.settings import load_settings
from ..conversation.questions import Question
from ..events import ConversationEnded, Event, SessionStarted
from ..kinds.load import ConversationLike
from ..session.options import GivenAnswer
from ..session.run import run_session
from ..session.stored_session import StoredSession
from ..store.open import open_store
from ..store.rows import SessionRow
from .follow_up import FollowUp
from .options import SIGNALS, ExitCode, handle_signals, run_to_exit
from .questions import Asker, print_question, ways_on
from .terminal.console import Lines, json_line, plain, stderr, stdout
from .terminal.events import Transcript
from .terminal.progress import Progress

_PATIENCE = 3  # signals; the first interrupts the run, and `uv run` may send it twice


def follow(
    source: ConversationLike | None,
    session: str | None,
    follow_up: FollowUp,
    *,
    as_json: bool,
    reset: bool = False,
    message: Content | None = None,
    reply: GivenAnswer | None = None,
) -> None:
    """Run a session to its end and print its events.

    Questions are asked at the terminal. With JSON they are printed, and the session waits.

    Args:
        source: The conversation. None for the stored session.
        session: The id of the session. None for a new one.
        follow_up: The commands to print, with the store and the model.
        as_json: Whether events are printed as JSON.
        reset: Whether the stored session is deleted first.
        message: The person's next message. None if there is none.
        reply: The answer with which the run begins. None if there is none.
    """
    run = _Run(follow_up, session if source is None else None)
    options = follow_up.run_options()
    if message is not None:
        options["message"] = message
    if not as_json:
        run.transcript = Transcript(follow_up, stdout(), stderr())
        asker = Asker(run.transcript, Lines(stdout(), stderr(), run.interrupt_reads))
        run.progress = progress = Progress(stderr(), "Starting")

        async def answer(question: Question) -> JsonValue:
            with progress.aside():
                return await asker.answer(question)

        options["answer"] = answer
        options["callbacks"] = [progress]
    events = run_session(source, session, options, reset=reset, tokens=True, reply=reply)
    run_to_exit(run.play(events, hold=reply is not None))


@dataclass
class _Run:
    follow_up: FollowUp
    session: str | None
    """The id of the session. None until a new session starts."""
    transcript: Transcript | None = None
    """The printed conversation. None with JSON."""
    progress: Progress | None = None
    """The progress line. None with JSON."""
    signals: list[int] = field(default_factory=list)
    has_left: bool = False

    async def play(
        self, run: AsyncGenerator[Event | StoredSession, None], *, hold: bool
    ) -> ExitCode:
        self._listen()
        try:
            async with aclosing(run) as events:
                with self.progress or nullcontext():
                    questions = await self._show(events, hold=hold)
        except (asyncio.CancelledError, KeyboardInterrupt):
            # On Windows the event loop itself turns Ctrl-C into this exception.
            code = ExitCode(128 + (self.signals or [signal.SIGINT])[0])
            self._pause()
            plain(stderr(), f"\n{'Interrupted' if code is ExitCode.INTERRUPTED else 'Terminated'}.")
            await self._say_how_to_go_on()
            return code
        except DuologueError as error:
            if not isinstance(error, SessionError):
                self._pause()
                await self._say_how_to_go_on()
            raise
        if not questions:
            return ExitCode.DONE
        await self._say_what_it_waits_for(questions)
        return ExitCode.WAITING

    async def _show(
        self, events: AsyncGenerator[Event | StoredSession, None], *, hold: bool
    ) -> tuple[Question, ...]:
        """Print the events, and return the questions that the session waits for.

        With `hold`, the events before the session starts are printed only once the next event shows
        that the answer was accepted.
        """
        held: list[Event] = []
        questions: tuple[Question, ...] = ()
        async for event in events:
            if isinstance(event, StoredSession):
                questions = event.pending
                if self.progress and self.transcript and event.outcome:
                    ended = ConversationEnded.of(event.session_id, event.outcome)
                    with self.progress.aside():
                        self.transcript.end(ended, event.why)
                continue
            held.append(event)
            if isinstance(event, SessionStarted):
                self.session = event.session
                if hold:
                    continue
            for one in held:
                if self.progress is None or self.transcript is None:
                    json_line(one.model_dump_json())
                elif not isinstance(one, ConversationEnded):
                    # The result comes next, and its steps are printed with the end.
                    self.progress.show(one, self.transcript)
            held.clear()
        return questions

    @contextmanager
    def interrupt_reads(self) -> Iterator[None]:
        """Raise KeyboardInterrupt on a signal while a blocking read holds up the loop."""

        def leave(number: int, _: FrameType | None) -> None:
            if not self.has_left:
                self.has_left = True
                self.signals.append(number)
                raise KeyboardInterrupt

        # No earlier signal may make this read deaf.
        self.has_left = False
        # Replaced directly: with no handler in between, a signal would kill the process.
        before = {number: signal.signal(number, leave) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _listen(self) -> None:
        run = asyncio.current_task()
        assert run is not None  # noqa: S101  # a coroutine runs in a task

        def stop(number: int) -> None:
            if self.has_left:
                # The loop handles the signal after `leave` has handled it.
                self.has_left = False
                return
            self.signals.append(number)
            if len(self.signals) == 1:
                run.cancel()
            elif len(self.signals) >= _PATIENCE:
                # Answered calls are stored already, so nothing is lost by exiting at once.
                if self.progress is not None:
                    self.progress.hide()
                os._exit(128 + number)

        handle_signals(stop)

    def _pause(self) -> None:
        if self.transcript is not None:
            self.transcript.pause()

    async def _say_what_it_waits_for(self, questions: tuple[Question, ...]) -> None:
        self._pause()
        assert self.session is not None  # noqa: S101  # it has begun
        for question in questions:
            print_question(stderr(), question, of=f"Session {self.session} waits")
        row = await _find_unfinished(self.session, self.follow_up.store)
        if row is not None:
            for way in ways_on(self.session, questions, self.follow_up.for_session(row)):
                plain(stderr(), way)

    async def _say_how_to_go_on(self) -> None:
        if self.session is None:
            return
        row = await _find_unfinished(self.session, self.follow_up.store)
        if row is not None:
            plain(stderr(), self.follow_up.for_session(row).hint(self.session))


async def _find_unfinished(session: str, store: str | None) -> SessionRow | None:
    """Return the row of an unfinished session in a store that another process can open."""
    try:
        async with open_store(store or load_settings().store) as opened:
            row = await opened.get(session) if opened.outlives_process else None
    except DuologueError:
        return None
    return None if row is None or row.status == "finished" else row
