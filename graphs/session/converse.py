"""Functions that run a conversation to its outcome, or load a dumped session.

The synchronous functions run the asynchronous ones on one background event loop.
`graphs.session.run` runs a session, `graphs.session.session` has the methods of a stored session.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Unpack

from ..common.errors import hide_frames
from ..common.model_help import list_options
from ..common.threads import TaskIterator, in_background, iterate_in_background
from ..events import Event
from ..kinds.load import ConversationLike
from .listing import known_store
from .options import Options, StoreOptions
from .session import Result, Session, result_of
from .stored_session import StoredSession

# Importing `converse` must not load the nodes and the models. So each function imports the module
# that it uses.


@hide_frames
@list_options
async def aconverse(
    conversation: ConversationLike,
    *,
    session: str | Session | None = None,
    reset: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Run a conversation to its outcome.

    A notebook or a terminal shows one line of progress during the run. If stderr is neither, a run
    of more than 10 seconds writes a line to it now and then. The environment variable
    ``DUOLOGUE_PROGRESS=0`` turns both off. The logger ``duologue`` logs each message at the level
    INFO, and `stream` yields each event.

    A known session is not run twice: with the same conversation, an unfinished session resumes at
    the point where it stopped, and a finished session returns its stored result without a model
    call.

    Args:
        conversation: The spec, or a dict or file (``.toml``, ``.json``) that contains it.
        session: The session's id (1 to 128 letters, digits, ``.``, ``_`` and ``-``), or its handle.
            A handle's store applies unless ``store`` is passed. If None, a new id is made from
            the conversation's title or task.
        reset: Whether to delete the stored session first.
        **options: The options of the run.

    Returns:
        The result. It contains the outcome, or the questions that wait for people if the option
        ``answer`` does not answer them.

    Raises:
        TypeError: An option is unknown or has a wrong type.
        SpecError: The conversation, its file or a setting is not valid, or the function ``answer``
            raised an error.
        ModelError: A model is not available or did not answer. The session can be resumed.
        AnswerError: ``answer`` repeatedly returned a value that does not fit the question. The
            session still waits for an answer.
        SessionError: The id is not valid; another run is using the session; the session belongs
            to another conversation (the message names the first field that differs); or the
            question that was waiting for the ``message`` was already answered.
        StoreError: The store cannot be opened or written.

    Example:
        >>> from duologue import converse, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
        >>> model = ScriptedChatModel(script=script)
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> converse(garden, model=model, store="memory:docs").stop_reason
        'done_token'
    """
    from .run import run_to_end

    name = locate_session(session, options)
    return result_of(*await run_to_end(conversation, name, options, reset=reset))


converse = in_background(aconverse)


@list_options
async def astream(
    conversation: ConversationLike,
    *,
    session: str | Session | None = None,
    reset: bool = False,
    **options: Unpack[Options],
) -> AsyncGenerator[Event, None]:
    """Run a conversation and yield each event as it happens, token by token.

    Args:
        conversation: The spec, or a dict or file (``.toml``, ``.json``) that contains it.
        session: The session's id or handle, as in `converse`.
        reset: Whether to delete the stored session first.
        **options: The options of the run.

    Yields:
        Events. The last event is the outcome, or a question that waits for a person. For a
        finished session, the events for the stored messages.

    Raises:
        DuologueError: As in `converse`.
    """
    from .run import run_session

    name = locate_session(session, options)
    run = run_session(conversation, name, options, reset=reset, tokens=True)
    with hide_frames:
        async with aclosing(TaskIterator(run)) as events:
            async for event in events:
                if not isinstance(event, StoredSession):
                    yield event


stream = iterate_in_background(astream)


@hide_frames
async def aload_session(
    dump: Mapping[str, Any] | str | Path,
    *,
    into: str | None = None,
    store: str | Path | None = None,
) -> Session:
    """Load a session from the dump that `Session.dump` returned, here or on another machine.

    The dump becomes a new session. It resumes at the point where the old session stopped, and can
    be forked from any message. A question that waits is asked again when the session resumes.

    Args:
        dump: The dump, or the path of a ``.json`` file that contains it.
        into: The new session's id. If None, the id in the dump.
        store: The store. If None, the store in the settings, or else an SQLite file in the user's
            data folder.

    Returns:
        The handle of the new session.

    Raises:
        SpecError: The dump is not a duologue dump, or a newer release wrote it; the message names
            the file and the field.
        SessionError: The new id is not valid or already used.
        StoreError: The store cannot be opened, read or written.

    Example:
        >>> from duologue import converse, load_session, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
        >>> model = ScriptedChatModel(script=script)
        >>> result = converse(garden, session="one", model=model, store="memory:dump-docs")
        >>> copy = load_session(result.session.dump(), store="memory:load-docs")
        >>> copy.state() == result
        True
    """
    from .dump import read_dump
    from .fork import load_dump

    found = await asyncio.to_thread(read_dump, dump)
    async with known_store(store, create=True) as opened:
        return Session(await load_dump(opened, found, into), store=store)


load_session = in_background(aload_session)


def locate_session(session: str | Session | None, options: StoreOptions) -> str | None:
    """Return a session's id. A handle's store becomes the default of the option ``store``."""
    if not isinstance(session, Session):
        return session
    options.setdefault("store", session.store)
    return session.id
