"""One run of a session: from a spec, or the session's id, to its events and its result.

If a notebook's cell waits for the result, a line below the cell shows how far the conversation is.
IPython is used if a kernel runs, and is never loaded.
"""

import asyncio
import json
import logging
import re
import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, NamedTuple, Unpack, cast
from uuid import uuid4

from ...nodes.models.gate import Gate
from ...nodes.models.model import Models
from ...nodes.turn.node_context import Resources
from ...tools.registry.registry import Registered, Registry
from ..build import build_graph
from ..common.errors import SessionError, SpecError
from ..common.settings import Settings, load_settings
from ..common.validation import list_names
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge
from ..conversation.merge import first_difference
from ..conversation.questions import Question
from ..ends.end_chat import EndChatMode
from ..events import Event, MessageSaid, Notice, QuestionAsked, SessionStarted
from ..kinds.load import ConversationLike, load_conversation
from ..store.errors import unknown_session
from ..store.open import SessionLease, Store, open_store
from ..store.rows import SessionRow, check_session_id
from .activity import AtWork
from .answers import BoundInput, bind_answer
from .checkpoints import questions_of, stored_conversation
from .events import events_of_session
from .graph_steps import Begun, play, says_more
from .options import GivenAnswer, Options, check_run
from .session_row import read_session, title_of
from .status import status
from .stored_session import StoredSession


async def run_session(
    source: ConversationLike | None,
    session: str | None,
    *,
    reset: bool,
    tokens: bool,
    reply: GivenAnswer | None = None,
    gate: Gate | None = None,
    queues: bool = False,
    **options: Unpack[Options],
) -> AsyncGenerator[Event | StoredSession, None]:
    """Run a session.

    Args:
        source: The conversation. None: go on with the session.
        session: The session's id. None: a new one is made up.
        reset: Whether to delete what is stored of that session first.
        tokens: Whether tokens are events.
        reply: An answer to begin with.
        gate: What the model calls pass.
        queues: Whether the message among the options waits for its turn, whatever is asked by then.
        **options: See `Options`.

    Yields:
        Events, then the result.
    """
    check_run(options)
    given = await _loaded(source)
    if session is not None:
        check_session_id(session)
    settings = await asyncio.to_thread(load_settings)
    resources = _resources(options, settings, gate)
    models = resources.models
    if given is not None:
        resources.registry.bring(given)
    target = options.get("store")
    # A session that goes on is not in a file that a mistyped name would make.
    create = source is not None or not target
    async with open_store(target or settings.store, create=create) as store:
        if session is None:
            session = _new_id("session" if given is None else title_of(given))
        # Nobody can ask while it is not run: what stands here was meant for an earlier run.
        before = await store.get(session)
        message = options.get("message")
        is_bound = message is not None and not queues
        bound = await _bound(store, session, None if reset else before, reply, is_bound=is_bound)
        async with store.lock(session) as held:
            row = await store.get(session)
            if reset and given is not None and row is not None:
                # What would end the new run at once must not cost the old one.
                await resources.check(given)
                await models.prepare(given, lambda text: None)
                await held.erase()
                before = row = None
            conversation = _agreed(session, given, row, store.url)
            started = SessionStarted(
                session=session,
                store=store.url,
                title=title_of(conversation),
                resumed=row is not None,
                people=conversation.people,
            )
            person = _person(conversation, message)
            result, waiting = await _read(store, row, conversation)
            bound.check(waiting, has_ended=result is not None)
            if result is not None and not says_more(message):
                ended = started.model_copy(update={"ended": True})
                for event in (ended, *events_of_session(result), result):
                    yield event
                return
            # What has begun goes on, however little room it has.
            conversation = await (resources.check if row is None else resources.find)(conversation)
            yield started
            await _forget_stop(held, before)
            async for event in _prepared(models, conversation):
                yield event
            if row is None:
                spec = json.dumps(conversation.stored(), ensure_ascii=False)
                await held.begin(title=title_of(conversation), spec=spec)
            running = replace(
                resources,
                stop_requested=store.stop_requested,
                written=held.drain,
                tokens=tokens,
            )
            waits = row is not None and row.status == "waiting"
            begun = Begun(running, conversation, result, person, waits=waits, is_new=row is None)
            async with aclosing(play(held, begun, bound.answer, options)) as events:
                async for event in events:
                    yield event


def _resources(options: Options, settings: Settings, gate: Gate | None = None) -> Resources:
    """Give what a run is given in its options."""
    models = Models(options.get("model"), options.get("models") or {}, settings, gate)
    kinds = Registered.__annotations__
    registered = {kind: given for kind, given in options.items() if kind in kinds}
    registry = Registry(cast("Registered", registered))
    return Resources(models, registry, allow_host=True, allow_paths=True, asks_again=False)


async def check_here(
    conversation: Conversation, gate: Gate | None = None, **options: Unpack[Options]
) -> None:
    """Make sure that a conversation could begin here, and make its models ready."""
    check_run(options)
    resources = _resources(options, await asyncio.to_thread(load_settings), gate)
    await resources.check(conversation)
    await resources.models.prepare(conversation, lambda text: None)


IDLE_JUDGE = (
    "The judge will not be asked: in end_chat.mode max_iterations_only it is asked at a cap alone, "
    "and judge.final_verdict is off."
)
"""What a user is told whose criteria have no effect."""


def _judge_is_idle(conversation: Conversation) -> bool:
    judge = conversation.judge
    idle = isinstance(judge, SeparateJudge) and not judge.final_verdict
    return idle and conversation.end_chat.mode is EndChatMode.MAX_ITERATIONS_ONLY


async def _forget_stop(held: SessionLease, row: SessionRow | None) -> None:
    """Forget that an earlier run was asked to stop."""
    if row is not None and row.stop_requested:
        await held.clear_stop()


async def _loaded(source: ConversationLike | None) -> Conversation | None:
    if source is None or isinstance(source, Conversation):
        return source
    return await asyncio.to_thread(load_conversation, source)


def _new_id(title: str) -> str:
    words = re.findall(r"[a-z0-9]+", title.casefold())[:5]
    return "-".join([*words, secrets.token_hex(3)])[-128:]


def _agreed(
    session: str, given: Conversation | None, row: SessionRow | None, where: str
) -> Conversation:
    """The conversation to run: the stored one where there is one; what is given must agree."""
    if row is None:
        if given is None:
            raise unknown_session(session, where)
        return given
    stored = stored_conversation(row, where)
    differs = "" if given is None else first_difference(stored, given)
    if differs:
        raise SessionError(
            f"session {session!r} belongs to another conversation: {differs} differs; resume it as "
            "it is, choose another id, or give reset=True (--reset), which deletes what is stored"
        )
    return stored


async def _prepared(models: Models, conversation: Conversation) -> AsyncGenerator[Event, None]:
    """Find the models before anything is stored; yield notices of what takes a while."""
    if _judge_is_idle(conversation):
        yield Notice(text=IDLE_JUDGE)
    for warning in conversation.sandbox.warnings:
        yield Notice(text=warning)
    notices: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def notify(text: str) -> None:
        loop.call_soon_threadsafe(notices.put_nowait, text)

    async def prepare() -> None:
        try:
            await models.prepare(conversation, notify)
        finally:
            loop.call_soon(notices.put_nowait, None)

    preparing = asyncio.create_task(prepare())
    try:
        while (text := await notices.get()) is not None:
            yield Notice(text=text)
        await preparing
    finally:
        preparing.cancel()


def _person(conversation: Conversation, message: str | None) -> str:
    """Return who says a message that is given to a run."""
    people = conversation.people
    if message is not None and len(people) != 1:
        who = f"people speak for {list_names(people)}" if people else "nobody is a person"
        raise SpecError(f"message: {who} in this conversation; use say, which names the speaker")
    return people[0] if people else ""


async def _bound(
    store: Store,
    session: str,
    row: SessionRow | None,
    reply: GivenAnswer | None,
    *,
    is_bound: bool,
) -> BoundInput:
    """Bind an answer, or a message, to the questions that wait before the session is waited for."""
    waiting: list[Question] = []
    if row is not None and (reply is not None or is_bound):
        graph = build_graph(checkpointer=store.checkpointer)
        waiting = await questions_of(graph, session)
    answer = None if reply is None else bind_answer(session, waiting, reply)
    return BoundInput(session, waiting, answer, is_bound)


async def _read(
    store: Store, row: SessionRow | None, conversation: Conversation
) -> tuple[StoredSession | None, Sequence[Question]]:
    """Read a stored session, which raises if it is damaged.

    Returns:
        Its result if it has ended, and the questions that it waits with.
    """
    if row is None:
        return None, ()
    graph = build_graph(checkpointer=store.checkpointer)
    found = await read_session(row.session, conversation, graph)
    if row.status == "finished" and found.outcome is not None:
        return found, ()
    return None, found.pending


_log = logging.getLogger("duologue")

_PATIENCE: Final = 1.0
"""How long nothing is shown, in seconds: what is short is over before it could be read."""

_TICK: Final = 0.5
"""How often the line is drawn, in seconds."""


@asynccontextmanager
async def _shown_in_cell(
    options: Options,
) -> AsyncIterator[tuple[Options, Callable[[Event], object]]]:
    """Show how far a run is while the block lasts, if a notebook's cell waits for it.

    Args:
        options: The run's options.

    Yields:
        The options to run it with, and what is to be told each of its events.
    """
    show, callbacks = _shows(), options.get("callbacks")
    # Callbacks that are none are refused where the others are checked.
    if show is None or not isinstance(callbacks, list | tuple | None):
        yield options, lambda event: None
        return
    progress = _Progress()
    line = asyncio.create_task(_draw(progress, show))
    try:
        yield Options(**{**options, "callbacks": [*(callbacks or ()), progress]}), progress.saw
    finally:
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)


def _shows() -> Callable[..., object] | None:
    """What shows something in a notebook; None where no kernel runs."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    shows: Callable[..., object] = shell.display_pub.publish
    return shows


async def _draw(progress: "_Progress", show: Callable[..., object]) -> None:
    """Show the line until it is cancelled, and erase it then."""
    place, is_drawn = {"display_id": uuid4().hex}, False
    await asyncio.sleep(_PATIENCE)
    try:
        while True:
            # A kernel takes it from any thread, such as that of the loop for synchronous functions.
            show(data={"text/plain": progress.line()}, transient=place, update=is_drawn)
            is_drawn = True
            await asyncio.sleep(_TICK)
    finally:
        if is_drawn:
            show(data={"text/plain": ""}, transient=place, update=True)


class _Progress(AtWork):
    """Knows what a run waits for, and how far it is."""

    def __init__(self) -> None:
        super().__init__()
        self._doing = "Working", self.clock()

    def saw(self, event: Event) -> None:
        """Note an event: it tells whether somebody is to answer."""
        if isinstance(event, QuestionAsked):
            # What has asked has stopped.
            self.running.clear()
            self._doing = "Waiting for an answer", self.clock()
        elif self._doing[0] != "Working":
            self._doing = "Working", self.clock()

    def line(self) -> str:
        """Say who is at work for how long, and how far it is."""
        doing, since = next(reversed(self.running.values()), self._doing)
        return " · ".join([f"{doing}… {self.clock() - since:.0f} s", *status(self.state or {})])


class FinishedRun(NamedTuple):
    """A session after a run, and where it is stored."""

    session: StoredSession
    store: str
    """The address of the store."""


async def run_to_end(
    source: ConversationLike | None,
    session: str | None,
    options: Options,
    *,
    reset: bool = False,
    reply: GivenAnswer | None = None,
    queues: bool = False,
) -> FinishedRun:
    """Run a session to its outcome or a question; `graphs.session.run.run_session` says more."""
    ended: StoredSession | None = None
    store = ""
    async with _shown_in_cell(options) as (shown, saw):
        run_of_it = run_session(
            source, session, reset=reset, tokens=False, reply=reply, queues=queues, **shown
        )
        async with aclosing(run_of_it) as events:
            async for event in events:
                if isinstance(event, StoredSession):
                    ended = event
                    continue
                if isinstance(event, SessionStarted):
                    store = event.store
                saw(event)
                _note(event)
    assert ended is not None  # noqa: S101  # a run ends with its session or an error
    return FinishedRun(ended, store)


def _note(event: Event) -> None:
    """Log progress, without what is said."""
    match event:
        case Notice():
            _log.info("%s", event.text)
        case MessageSaid():
            _log.info("%s has said %d characters (%s)", event.speaker, len(event.text), event.id)
