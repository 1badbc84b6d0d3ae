"""Load a dumped session."""

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
    """Load what `Session.dump` returned, here or elsewhere.

    It becomes a new session that resumes where it stopped, and can be forked from any message; a
    question that waits is asked again when it resumes.

    Args:
        dump: The dump, or the path of a ``.json`` file that contains it.
        into: The new session's id. None: the id in the dump.
        store: The store. None: the setting, else one SQLite file in the user's data folder.

    Returns:
        The new session.

    Raises:
        SpecError: It is not a duologue dump, or a newer release wrote it; names the file and the
            field.
        SessionError: The new id is odd or taken.
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
    async with known_store(store, create=True) as opened:
        return Session(await load_dump(opened, found, into), store=store)


load_session = in_background(aload_session)
