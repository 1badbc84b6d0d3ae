"""Dump, load, reset, copy and export a session, or what one speaker remembers of it.

Lagent's agents have such a state each. Here a speaker's memory is what it has said and heard in
one log: resetting or replacing it changes what that speaker sees, and nothing that was said. What
a dump looks like is in `graphs.sessions.dumps.dump`, what is exported in `graphs.sessions.exports`.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

from ...tools.registry.registry import Registered, Registry, check_options
from ..common.background import in_background
from ..common.errors import SpecError
from ..common.validation import listing
from ..store.rows import check_session_id
from .dumps.dump import MemoryDump, read_dump, written
from .exports.page import read_page
from .exports.text import as_json_lines, as_markdown
from .exports.training import TRAINING, as_examples
from .remembering import begin_anew, dumped, load_whole, replace_memory
from .session import aget_session, check_speaker, made_up_id

Dump = Mapping[str, Any] | str | Path
"""A dump, or the path of a ``.json`` file that holds one."""

ExportFormat = Literal["markdown", "jsonl", "html", "openai", "sharegpt"]
"""What a session can be exported as."""


async def adump_session(
    session: str, *, speaker: str | None = None, store: str | Path | None = None
) -> dict[str, Any]:
    """Write a session, or what one speaker remembers of it, as plain JSON values.

    The session is only read: it may be finished or not, and even running.

    Args:
        session: The session's id.
        speaker: Whose memory to dump. None: the whole session, with all its steps.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        The dump: a dict with ``format``, ``version`` and what belongs to them, for `load_session`
        and ``json.dumps``.

    Raises:
        SpecError: Nobody in the session is called that.
        SessionError: There is no such session.
        StoreError: The store can't be opened or read.
    """
    return written(await dumped(session, speaker, store))


dump_session = in_background(adump_session)


async def aload_session(
    dump: Dump,
    *,
    into: str | None = None,
    speaker: str | None = None,
    store: str | Path | None = None,
) -> str:
    """Load what `dump_session` gave, here or elsewhere.

    A whole session becomes a new one that goes on exactly where it was, and can be forked from any
    message; a question that a person had not answered is asked again as it goes on. A speaker's
    memory replaces that of a speaker in a session that has begun: what it
    has heard since its latest turn stays, so that it has something to answer, after what it now
    remembers. The others, and whatever ends or counts, are left as they are. A session that has
    ended stays so, but a fork goes on with the new memory.

    Args:
        dump: The dump, or the path of a ``.json`` file that holds it.
        into: Of a whole session the new one's id. None: the id it had. Of a memory the session
            whose speaker is to remember it.
        speaker: Who is to remember it. None: the speaker of the same name.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        The session's id.

    Raises:
        SpecError: It is not a duologue dump, or a newer release wrote it; names the file and the
            field. Nobody in the session is called that, or an argument is missing or too many.
        SessionError: The new id is odd or taken; the session is unknown, is running, or has not
            begun.
        StoreError: The store can't be opened, read or written.

    Example:
        >>> from duologue.graphs import converse, dump_session, load_session, resume, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
        >>> model = ScriptedChatModel(script=script)
        >>> result = converse(garden, session="one", model=model, store="memory:dump-docs")
        >>> dump = dump_session("one", store="memory:dump-docs")
        >>> load_session(dump, store="memory:load-docs")
        'one'
        >>> resume("one", store="memory:load-docs") == result
        True
    """
    found = await asyncio.to_thread(read_dump, dump)
    if into is not None:
        check_session_id(into)
    if isinstance(found, MemoryDump):
        if into is None:
            raise SpecError("into: is missing: name the session whose speaker is to remember it")
        await replace_memory(into, speaker or found.speaker, store, found)
        return into
    if speaker is not None:
        raise SpecError("speaker: a whole session is loaded for all its speakers: leave it out")
    return await load_whole(found, into or check_session_id(found.session), store)


load_session = in_background(aload_session)


async def areset_session(
    session: str, *, speaker: str | None = None, store: str | Path | None = None
) -> None:
    """Forget what was said in a session, for all or for one speaker.

    A whole session keeps its id and its spec, and begins anew when it is resumed. A speaker forgets
    everything up to its latest finished turn; what it has heard since stays, so that it has
    something to answer. It is told again what the spec tells it in the log alone: its own task
    where all answered theirs in the opening, and its private lines. The log itself is not cut, and
    what the others see stays as it was. A session that has ended stays so, but a fork goes on
    without that memory.

    Args:
        session: The session's id.
        speaker: Whose memory to reset. None: the whole session.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Raises:
        SpecError: Nobody in the session is called that.
        SessionError: There is no such session, or it is running.
        StoreError: The store can't be opened, read or written.
    """
    if speaker is not None:
        await replace_memory(session, speaker, store, None)
        return
    await begin_anew(session, store)


reset_session = in_background(areset_session)


async def acopy_session(
    session: str,
    *,
    into: str | None = None,
    speaker: str | None = None,
    store: str | Path | None = None,
    to: str | Path | None = None,
) -> str:
    """Copy a session, or what one speaker remembers of it, within a store or into another one.

    Args:
        session: The session's id; it is only read.
        into: Of a whole session the copy's id. None: the same in another store, else one made from
            it. Of a speaker's memory the session whose speaker of that name is to remember it.
        speaker: Whose memory to copy, as `load_session` does. None: the whole session.
        store: Where the session is kept. None: the setting, else the user's data folder.
        to: Where the copy goes. None: the same store.

    Returns:
        The id of the copy, or of the session whose speaker now remembers.

    Raises:
        SpecError: Nobody in one of the sessions is called that, or ``into`` is missing.
        SessionError: A session is unknown; the new id is odd or taken; the session that is to
            remember is running, or has not begun.
        StoreError: A store can't be opened, read or written.
    """
    if into is not None:
        check_session_id(into)
    elif speaker is not None:
        raise SpecError("into: is missing: name the session whose speaker is to remember it")
    found = await dumped(session, speaker, store)
    target = to or store
    if isinstance(found, MemoryDump):
        assert into is not None  # noqa: S101  # as checked above
        await replace_memory(into, found.speaker, target, found)
        return into
    new = into or (session if to is not None else made_up_id(session, "copy"))
    return await load_whole(found, new, target)


copy_session = in_background(acopy_session)


async def aexport_session(
    session: str,
    *,
    format: ExportFormat,  # noqa: A002  # what it is called everywhere
    speaker: str | None = None,
    metadata: bool = True,
    store: str | Path | None = None,
    **registered: Unpack[Registered],
) -> str:
    """Write a session as a page for readers, or as JSON Lines for programs.

    Args:
        session: The session's id.
        format: ``markdown`` for a page to read; ``jsonl`` for JSON Lines, one object a message;
            ``html`` for a page for a browser, one file that needs nothing else: the talk, each
            speaker's view of it, why it ended and what it used; ``openai`` or ``sharegpt`` for
            examples to train models on, one object a speaker, as `export_batch` writes them.
        speaker: Whose memory to write down, or whose example. None: all that was said, or an
            example for each speaker for whom a model has spoken.
        metadata: Whether examples have ``metadata``: the session, why it ended, the models and the
            speaker. OpenAI's own service refuses keys that it does not know.
        store: Where sessions are kept. None: the setting, else the user's data folder.
        **registered: What was registered for the run, as for `converse`: examples tell of tools
            and schemas that are given here, or installed.

    Returns:
        The text, which ends in a newline where there is any.

    Raises:
        SpecError: There is no such format, or nobody in the session is called that.
        SessionError: There is no such session.
        StoreError: The store can't be opened or read.
    """
    check_options(registered, Registered)
    forms = {"markdown": as_markdown, "jsonl": as_json_lines}
    if format not in get_args(ExportFormat):
        raise SpecError(
            f"format: {format!r} is unknown; there are {listing(get_args(ExportFormat))}"
        )
    if format == "html":
        return await read_page(session, speaker, store)
    result = await aget_session(session, store=store)
    if speaker is not None:
        check_speaker(session, result.conversation, speaker)
    if format in TRAINING:
        return as_examples(result, format, speaker, Registry(registered), metadata=metadata)
    return forms[format](result, speaker)


export_session = in_background(aexport_session)
