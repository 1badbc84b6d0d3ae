"""Load a dumped session, or a dumped memory."""

import asyncio
from pathlib import Path

from ..common.background import in_background
from ..sessions.dumps.dump import SessionDump, read_dump
from ..sessions.listing import known_store
from ..sessions.transfer import Dump, write_dump
from .session import Session


async def aload_session(
    dump: Dump,
    *,
    into: str | None = None,
    speaker: str | None = None,
    store: str | Path | None = None,
) -> Session:
    """Load what `Session.dump` returned, here or elsewhere.

    A whole session becomes a new one that resumes where it stopped, and can be forked from any
    message; a question that waits is asked again when it resumes. A speaker's memory replaces that
    of a speaker in a session that has begun: it keeps the messages that it has not answered. The
    others, and everything that ends or counts, stay as they were.

    Args:
        dump: The dump, or the path of a ``.json`` file that contains it.
        into: The new session's id. None: the id in the dump. For a memory: the session whose
            speaker receives it.
        speaker: The speaker that receives a memory. None: the speaker of the same name.
        store: The store. None: the setting, else one SQLite file in the user's data folder.

    Returns:
        The new session, or the session that received the memory.

    Raises:
        SpecError: It is not a duologue dump, or a newer release wrote it; names the file and the
            field. Nobody in the session has that name, or an argument is missing or too many.
        SessionError: The new id is odd or taken; the session that receives a memory does not exist,
            is running, or has not begun.
        StoreError: The store can't be opened, read or written.

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
    found = await asyncio.to_thread(read_dump, dump)
    async with known_store(store, create=isinstance(found, SessionDump)) as opened:
        return Session(await write_dump(opened, found, into, speaker), store=store)


load_session = in_background(aload_session)
