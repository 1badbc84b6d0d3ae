"""One run of a session, from a spec or the session's id to its events and its result."""

import asyncio
import json
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Final, NamedTuple, cast

from ...nodes.models.gate import Gate
from ...nodes.models.model import Models
from ...nodes.turn.node_context import Resources
from ...tools.registry.registry import Registered, Registry
from ..build import build_graph
from ..common.content import text_of
from ..common.content_input import load_content
from ..common.errors import SessionError, SpecError, list_names, naming_path
from ..common.settings import Settings, load_settings
from ..conversation.conversation import Conversation, write_conversation
from ..conversation.conversation_options import first_difference
from ..conversation.judges import SeparateJudge
from ..conversation.questions import Question
from ..ends.end import Facts
from ..ends.end_chat import EndChatMode
from ..events import Event, MessageSaid, Notice, SessionStarted
from ..kinds.load import ConversationLike, load_conversation
from ..rules.met_ends import limit_inner
from ..store.errors import unknown_session
from ..store.open import SessionLease, Store, open_store
from ..store.rows import SessionRow, check_session_id
from .checkpoints import stored_conversation
from .events import events_of_session
from .graph_steps import Begun, play, says_more
from .options import GivenAnswer, Options, check_run
from .progress import show_progress
from .questions import BoundInput, bind_answer, read_questions
from .session_row import read_session, title_of
from .stored_session import StoredSession, read_verdicts


async def run_session(
    source: ConversationLike | None,
    session: str | None,
    options: Options,
    *,
    reset: bool,
    tokens: bool,
    reply: GivenAnswer | None = None,
    gate: Gate | None = None,
    queues: bool = False,
    settings: Settings | None = None,
    opened: Store | None = None,
) -> AsyncGenerator[Event | StoredSession, None]:
    """Run or resume a session.

    Args:
        source: The conversation. If None, the stored conversation is resumed.
        session: The session's id. If None, a new id is made.
        options: The options of the run.
        reset: Whether to delete the stored session first.
        tokens: Whether tokens are yielded as events.
        reply: An answer with which the run begins.
        gate: The gate that delays each model call until the limits of a batch allow it. If None, no
            call is delayed.
        queues: Whether the option ``message`` waits for its turn, even if another question waits
            when the run begins.
        settings: The settings of the run. If None, they are read.
        opened: The open store of the option ``store``. If None, it is opened.

    Yields:
        Events, then the result.
    """
    options = await _with_message(options)
    given = await _load_source(source)
    if session is not None:
        check_session_id(session)
    known = settings if settings else await asyncio.to_thread(load_settings)
    resources = make_resources(options, known, gate)
    if given is not None:
        resources.registry.bring(given)
    target = options.get("store")
    # Resuming must not create a store: a missing file probably means a mistyped path.
    create = source is not None or not target
    opening = open_store(target or known.store, create=create)
    async with opening if opened is None else nullcontext(opened) as store:
        before: SessionRow | None = None
        is_random = session is None
        if session is None:
            title = "session" if given is None else title_of(given)
            words = re.findall(r"[a-z0-9]+", title.casefold())[:5]
            session = "-".join([*words, secrets.token_hex(6)])[-128:]
        else:
            # Read before the lease is taken: a stop that was already requested was meant for an
            # earlier run.
            before = await store.get(session)
        message = options.get("message")
        is_bound = message is not None and not queues
        bound = await _bind_input(
            store, session, None if reset else before, reply, is_bound=is_bound
        )
        async with store.lock(session, is_new=before is None, is_random=is_random) as held:
            row = await store.get(session) if held.is_acquired else None
            if reset and given is not None and row is not None:
                # A run that would fail at once must not delete the old session.
                await resources.check(given)
                resources.registry.check_runtime_store(given, options.get("runtime_store"))
                await _prepare_all(resources, given, lambda text: None)
                await held.erase()
                before = row = None
            conversation = _choose_conversation(session, given, row, store.url)
            started = SessionStarted(
                session=session,
                store=store.address,
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
            # The check of the context window is only for new sessions: a session that has begun can
            # always be resumed.
            conversation = await (resources.check if row is None else resources.find)(conversation)
            resources.registry.check_runtime_store(conversation, options.get("runtime_store"))
            yield started
            await _note_resumption(held, row, before)
            async for event in _prepare_models(resources, conversation, is_new=row is None):
                yield event
            if row is None:
                await _begin(held, conversation, resources, options)
            running = replace(
                resources,
                stop_requested=held.stop_requested,
                written=held.drain,
                tokens=tokens,
            )
            waits = row is not None and row.status == "waiting"
            begun = Begun(running, conversation, result, person, waits=waits, is_new=row is None)
            async with aclosing(play(held, begun, bound.answer, options)) as events:
                async for event in events:
                    yield event


async def _begin(
    held: SessionLease, conversation: Conversation, resources: Resources, options: Options
) -> None:
    spec = write_conversation(conversation)
    places = json.dumps(resources.registry.locate_tools(conversation))
    await held.begin(title=title_of(conversation), spec=spec, tools=places)
    if options.get("durability") == "async":
        # Its calls don't wait for the first commit, and only a listed session can be resumed.
        await held.drain()


def make_resources(options: Options, settings: Settings, gate: Gate | None = None) -> Resources:
    """Return the resources of a run from its options."""
    models = Models(options.get("model"), options.get("models") or {}, settings, gate)
    kinds = Registered.__annotations__
    registered = {kind: given for kind, given in options.items() if kind in kinds}
    registry = Registry(cast("Registered", registered))
    return Resources(models, registry, allow_host=True, allow_paths=True, serves_clients=False)


async def check_here(
    conversation: Conversation,
    options: Options,
    gate: Gate | None = None,
    judges: Sequence[str] = (),
) -> None:
    """Check that a conversation can begin on this machine, and prepare its models.

    Args:
        conversation: The conversation.
        options: The options of the run.
        gate: The gate through which the model calls pass, or None.
        judges: The names of models that judge it, besides its own judge.
    """
    check_run(options)
    resources = make_resources(options, await asyncio.to_thread(load_settings), gate)
    await resources.check(conversation)
    resources.registry.check_runtime_store(conversation, options.get("runtime_store"))
    await _prepare_all(resources, conversation, lambda text: None, judges)


_REMEDY: Final = "Set another mode, such as end_chat_after_first_completion"

IDLE_JUDGE: Final = (
    "The judge will not be asked, because end_chat.mode is max_iterations_only. "
    f"{_REMEDY}, or remove the judge."
)
"""The notice that the judge has no effect."""

LATE_JUDGE: Final = (
    "The judge is asked only at a cap and can't end the conversation, because end_chat.mode is "
    f"max_iterations_only by default. {_REMEDY}, or set max_iterations_only to confirm that this "
    "is intended."
)
"""The notice that a separate judge only makes a final verdict, because no mode is set."""


def _judge_notice(conversation: Conversation) -> str | None:
    """Return a notice if the judge can't end the conversation, and the user may not expect that."""
    judge, end_chat = conversation.judge, conversation.end_chat
    if end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY:
        return None
    if isinstance(judge, SeparateJudge) and judge.final_verdict:
        return None if "mode" in end_chat.model_fields_set else LATE_JUDGE
    if "mode" in end_chat.model_fields_set and "final_verdict" in judge.model_fields_set:
        # The judge is meant to be asked after the end, by `Session.judge` or a batch.
        return None
    is_set = "judge" in conversation.model_fields_set
    return IDLE_JUDGE if is_set or isinstance(judge, SeparateJudge) else None


async def _note_resumption(
    held: SessionLease, row: SessionRow | None, before: SessionRow | None
) -> None:
    """Note in a session's row that it runs again, and clear a stop of an earlier run."""
    if row is not None:
        stops = before is not None and before.stop_requested
        await (held.clear_stop if stops else held.touch)()


async def _with_message(options: Options) -> Options:
    """Check the options, and read the files of the option ``message``."""
    check_run(options)
    given = options.get("message")
    if given is None:
        return options
    content = await load_content(given, "message")
    if not text_of(content).strip():
        raise SpecError("message: must not be empty; pass a text or a file")
    return {**options, "message": content}


async def _load_source(source: ConversationLike | None) -> Conversation | None:
    if source is None or isinstance(source, Conversation):
        return source
    return await asyncio.to_thread(load_conversation, source)


def _choose_conversation(
    session: str, given: Conversation | None, row: SessionRow | None, where: str
) -> Conversation:
    """Return the conversation to run, and raise if it differs from the stored one."""
    if row is None:
        if given is None:
            raise unknown_session(session, where)
        return given
    stored = stored_conversation(row, where)
    differs = "" if given is None else first_difference(stored, given)
    if differs:
        raise SessionError(
            f"Session {session!r} belongs to another conversation: {differs} differs; resume it "
            "by its id alone, choose another id, or pass reset=True (--reset) to delete it first."
        )
    return stored


async def _prepare_all(
    resources: Resources,
    conversation: Conversation,
    notify: Callable[[str], None],
    judges: Sequence[str] = (),
) -> None:
    """Prepare the models of a conversation, of its judges, and of the conversations inside it."""
    await resources.models.prepare(conversation, notify, judges)
    for path, inner in resources.registry.inner_of(conversation):
        with naming_path(path):
            limited = limit_inner(inner, conversation, Facts())
            await resources.models.prepare(limited, notify)


async def _prepare_models(
    resources: Resources, conversation: Conversation, *, is_new: bool
) -> AsyncGenerator[Event, None]:
    """Prepare the models before anything is stored; yield warnings and notices of slow steps."""
    # A stored spec does not contain which defaults were set, so the user reads this once.
    about_judge = _judge_notice(conversation) if is_new else None
    if about_judge is not None:
        yield Notice(text=about_judge)
    for warning in conversation.sandbox.warnings:
        yield Notice(text=warning)
    notices: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def notify(text: str) -> None:
        loop.call_soon_threadsafe(notices.put_nowait, text)

    async def prepare() -> None:
        try:
            await _prepare_all(resources, conversation, notify)
        finally:
            loop.call_soon(notices.put_nowait, None)

    preparing = asyncio.create_task(prepare())
    try:
        while (text := await notices.get()) is not None:
            yield Notice(text=text)
        await preparing
    finally:
        preparing.cancel()


def _person(conversation: Conversation, message: object) -> str:
    """Return the name of the person who says the option ``message``."""
    people = conversation.people
    if message is not None and len(people) != 1:
        who = f"people speak for {list_names(people)}" if people else "no person takes part"
        raise SpecError(
            f"message: {who} in this conversation; use add_message (say), which names the speaker"
        )
    return people[0] if people else ""


async def _bind_input(
    store: Store,
    session: str,
    row: SessionRow | None,
    reply: GivenAnswer | None,
    *,
    is_bound: bool,
) -> BoundInput:
    """Bind an answer or a message to the questions that are waiting before the lease is taken."""
    waiting: list[Question] = []
    if row is not None and (reply is not None or is_bound):
        graph = build_graph(checkpointer=store.checkpointer)
        waiting = await read_questions(graph, session)
    answer = None if reply is None else bind_answer(session, waiting, reply)
    return BoundInput(session, waiting, answer, is_bound)


async def _read(
    store: Store, row: SessionRow | None, conversation: Conversation
) -> tuple[StoredSession | None, Sequence[Question]]:
    """Read a stored session; raise if it is damaged.

    Returns:
        The session if it has ended, otherwise None; and the questions that it waits for.
    """
    if row is None:
        return None, ()
    graph = build_graph(checkpointer=store.checkpointer)
    found = await read_session(row.session, conversation, graph)
    if row.status == "finished" and found.outcome is not None:
        return replace(found, later_verdicts=await read_verdicts(store, row.session)), ()
    return None, found.pending


_log = logging.getLogger("duologue")


class FinishedRun(NamedTuple):
    """A session after a run, and the address of its store."""

    session: StoredSession
    store: str


async def run_to_end(
    source: ConversationLike | None,
    session: str | None,
    options: Options,
    *,
    reset: bool = False,
    reply: GivenAnswer | None = None,
    queues: bool = False,
) -> FinishedRun:
    """Run a session to its outcome or a question, with the arguments of `run_session`."""
    ended: StoredSession | None = None
    store = ""
    async with show_progress(options) as (shown, saw):
        run_of_it = run_session(
            source, session, shown, reset=reset, tokens=False, reply=reply, queues=queues
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
    """Log the progress, without the text of messages."""
    match event:
        case Notice():
            is_warning = event.text in (IDLE_JUDGE, LATE_JUDGE)
            _log.log(logging.WARNING if is_warning else logging.INFO, "%s", event.text)
        case MessageSaid():
            _log.info("%s said %d characters (%s)", event.speaker, len(event.text), event.id)
