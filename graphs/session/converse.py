"""Running conversations from Python: from a spec to an outcome.

The synchronous functions run the async ones on one background loop. How a run goes is in
`graphs.session.run`; what can be done with a stored session, in `graphs.session.session`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar, Unpack, cast

from ...tools.registry.options import list_options
from ..common.threads import in_background, iterate_in_background
from ..events import Event
from ..kinds.load import ConversationLike
from .options import Options, StoreOptions
from .session import Result, Session, result_of
from .stored_session import StoredSession

G = TypeVar("G", bound=StoreOptions)


@list_options
async def aconverse(
    conversation: ConversationLike,
    *,
    session: str | Session | None = None,
    reset: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Run a conversation to its outcome.

    Nothing is shown until then. The logger ``duologue`` reports each message at the level INFO, and
    `stream` yields each event.

    A known session is not run twice: with the same conversation, an unfinished session resumes
    where it stopped, and a finished one returns its stored result without a model call.

    Args:
        conversation: The spec, or a dict or file (``.toml``, ``.json``) that contains one.
        session: The session's id, 1 to 128 of letters, digits, ``.``, ``_`` and ``-``; or its
            handle, whose store counts unless ``store`` is given. None: a new id is made from the
            task.
        reset: Whether to delete the stored session first.
        **options: The options of the run.

    Returns:
        The result, with the outcome; or with the questions that wait for people, unless the option
        ``answer`` answers them.

    Raises:
        TypeError: An option is unknown or has a wrong type.
        SpecError: The conversation, its file or a setting is not valid, or ``answer`` failed.
        ModelError: A model can't be had or did not answer. The session can be resumed.
        AnswerError: ``answer`` returned what does not fit, again and again. The session waits.
        SessionError: The id is odd, another run has the session, it belongs to another
            conversation (names the first field that differs), or the question that waited for the
            ``message`` at the call was already answered.
        StoreError: The store can't be opened or written.

    Example:
        >>> from duologue import converse, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
        >>> model = ScriptedChatModel(script=script)
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> converse(garden, model=model, store="memory:docs").stop_reason
        'done_token'
    """
    # Loads the nodes and the models, which importing `converse` does not.
    from .run import run_to_end

    session, options = locate_session(session, options)
    return result_of(*await run_to_end(conversation, session, options, reset=reset))


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
        conversation: The spec, or a dict or file that contains one.
        session: The session's id or handle, as in `converse`.
        reset: Whether to delete the stored session first.
        **options: The options of the run.

    Yields:
        Events. The last one is the outcome, or a question that waits. A finished session yields its
        messages again.

    Raises:
        DuologueError: As in `converse`.
    """
    from .run import run_session

    session, options = locate_session(session, options)
    run = run_session(conversation, session, reset=reset, tokens=True, **options)
    async with aclosing(run) as events:
        async for event in events:
            if not isinstance(event, StoredSession):
                yield event


stream = iterate_in_background(astream)


def locate_session(session: str | Session | None, options: G) -> tuple[str | None, G]:
    """Read a session's id, and its store if it is a handle and no other store is given."""
    if not isinstance(session, Session):
        return session, options
    found = {"store": session.store, **options}
    return session.id, cast("G", found)
