"""Loading a dumped session."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.threads import in_background
from .dump import read_dump
from .listing import known_store
from .session import Session
from .transfer import load_dump


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
    found = await asyncio.to_thread(read_dump, dump)
    async with known_store(store, create=True) as opened:
        return Session(await load_dump(opened, found, into), store=store)


load_session = in_background(aload_session)
