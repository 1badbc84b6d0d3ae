"""Running conversations from Python: from a spec, or a session's id, to an outcome.

The synchronous functions run the async ones on one background loop. How a run goes is in
`graphs.run.engine`; what sessions there are, and what they hold, in `graphs.sessions.listing`.
"""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Unpack

from ..common.background import in_background, iterate
from ..sessions.result import Result
from .answers import GivenAnswer
from .engine import ConversationLike, run_session
from .events import Event, MessageSaid, Notice
from .in_cell import shown_in_cell
from .options import Options

_log = logging.getLogger("duologue")


async def aconverse(
    conversation: ConversationLike,
    *,
    session: str | None = None,
    reset: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Run a conversation to its outcome.

    It gives nothing until then; the logger ``duologue`` tells of each message at the level INFO,
    and `stream` gives each event.

    A session that is known is not run twice: with the same conversation an unfinished one goes on
    where it was, and a finished one gives its stored result without any model call.

    Args:
        conversation: The spec, or a dict or file (``.toml``, ``.json``) that holds one.
        session: The session's id, 1 to 128 of letters, digits, ``.``, ``_`` and ``-``. None: a new
            one is made up from the task.
        reset: Whether to delete what is stored of that session first.
        **options: See `Options`.

    Returns:
        The result, with the outcome; or with what people are asked, where the session waits for
        them (see ``answer`` among the options).

    Raises:
        TypeError: There is no such option, or one is not what it must be.
        SpecError: The conversation, its file or a setting is not valid, or ``answer`` failed.
        ModelError: A model can't be had or did not answer. The session can be resumed.
        AnswerError: ``answer`` gave what does not fit, again and again. The session waits.
        SessionError: The id is odd, another run has the session, it belongs to another
            conversation (names the first field that differs), or the question that waited for the
            ``message`` at the call was already answered.
        StoreError: The store can't be opened or written.

    Example:
        >>> from duologue.graphs import converse, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
        >>> model = ScriptedChatModel(script=script)
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> converse(garden, model=model, store="memory:docs").outcome.reason.value
        'done_token'
    """
    return await run_to_result(conversation, session, options, reset=reset)


converse = in_background(aconverse)


async def aresume(session: str, **options: Unpack[Options]) -> Result:
    """Go on with a session, from its id alone.

    Args:
        session: The session's id.
        **options: See `Options`.

    Returns:
        The result, with the outcome or with what people are asked.

    Raises:
        SessionError: There is no such session, another run has it, or the question that waited for
            the ``message`` at the call was already answered.
        ModelError: A model can't be had or did not answer. The session can be resumed.
        StoreError: The store can't be opened or written.
    """
    return await run_to_result(None, session, options)


resume = in_background(aresume)


async def aanswer_session(
    session: str, value: object, *, question: str | None = None, **options: Unpack[Options]
) -> Result:
    """Answer what a session waits for, here or in another process, and go on.

    To follow what happens then, give `stream` the session and an ``answer`` instead.

    Args:
        session: The session's id.
        value: The answer: text for a `MessageQuestion`, else what the question's
            ``response_schema`` says.
        question: The id of the question that the answer is for. None: the only question that waits
            at the call.
        **options: See `Options`; ``answer`` in it answers what is asked after this.

    Returns:
        The result, with the outcome or with what people are asked next.

    Raises:
        AnswerError: The answer does not fit. The session waits on.
        SessionError: There is no such session, another run has it, several questions wait and none
            is named, or the question was already answered: nothing is changed.
        ModelError: A model can't be had or did not answer. The answer is kept, and the session can
            be resumed.
        StoreError: The store can't be opened or written.

    Example:
        >>> from duologue.graphs import answer_session, chat, converse
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(script=["Hello! What is it about?"])
        >>> result = converse(chat(), session="hi", model=model, store="memory:answer-docs")
        >>> result.pending[0].prompt
        'User, it is your turn. exit: leave.'
        >>> result = answer_session("hi", "Good morning.", model=model, store="memory:answer-docs")
        >>> result.speeches
        [('User', 'Good morning.'), ('Assistant', 'Hello! What is it about?')]
        >>> answer_session("hi", "exit", store="memory:answer-docs").outcome.reason.value
        'quit'
    """
    reply = GivenAnswer(value, question)
    return await run_to_result(None, session, options, reply=reply)


answer_session = in_background(aanswer_session)


def stream(
    conversation: ConversationLike | None,
    *,
    session: str | None = None,
    reset: bool = False,
    **options: Unpack[Options],
) -> Iterator[Event]:
    """Run a conversation and follow what happens, token by token.

    Args:
        conversation: The spec, or a dict or file that holds one. None: go on with the session.
        session: The session's id.
        reset: Whether to delete what is stored of that session first.
        **options: See `Options`.

    Yields:
        Events, the last of which is the outcome, or the question with which the session waits. A
        finished session yields its messages again.

    Raises:
        DuologueError: As in `converse`.
    """
    events = astream(conversation, session=session, reset=reset, **options)
    return iterate(events)


async def astream(
    conversation: ConversationLike | None,
    *,
    session: str | None = None,
    reset: bool = False,
    **options: Unpack[Options],
) -> AsyncGenerator[Event, None]:
    """Run a conversation and follow what happens; `stream` says how."""
    run_of_it = run_session(conversation, session, reset=reset, tokens=True, **options)
    async with aclosing(run_of_it) as events:
        async for event in events:
            if not isinstance(event, Result):
                yield event


async def run_to_result(
    source: ConversationLike | None,
    session: str | None,
    options: Options,
    *,
    reset: bool = False,
    reply: GivenAnswer | None = None,
    queues: bool = False,
) -> Result:
    """Run a session and return its result; `graphs.run.engine.run_session` says more."""
    result: Result | None = None
    async with shown_in_cell(options) as (shown, saw):
        run_of_it = run_session(
            source, session, reset=reset, tokens=False, reply=reply, queues=queues, **shown
        )
        async with aclosing(run_of_it) as events:
            async for event in events:
                if isinstance(event, Result):
                    result = event
                else:
                    saw(event)
                    _note(event)
    assert result is not None  # noqa: S101  # a run ends with its result or an error
    return result


def _note(event: Event) -> None:
    """Log progress, without what is said."""
    match event:
        case Notice():
            _log.info("%s", event.text)
        case MessageSaid():
            _log.info("%s has said %d characters (%s)", event.speaker, len(event.text), event.id)
