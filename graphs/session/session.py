"""`Session`, the handle of a stored session, and `Result`.

Importing this module does not load the nodes and the models: each method imports what it needs.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Unpack

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, MessageLikeRepresentation

from ...nodes.models.adapters.composed import Chat
from ...tools.registry.registry import Registered, Registry
from ..common.addresses import show_address
from ..common.content_input import ContentInput
from ..common.errors import hide_frames
from ..common.model_help import check_options, list_changes, list_options
from ..common.threads import TaskIterator, in_background, iterate_in_background
from ..conversation.conversation_options import Changes
from ..conversation.judges import SeparateJudge, Verdict
from ..events import Event
from ..speakers.reply_parts import read_messages
from ..store.rows import check_session_id
from .export_formats import ExportFormat, export_session
from .listing import known_store, stop_session
from .options import GivenAnswer, MessageLike, Options, SessionOptions
from .stored_session import StoredSession


@dataclass(frozen=True)
class Session:
    """A handle of a stored session: its id and its store.

    Creating a handle opens nothing. Each method opens the store, and raises `SessionError` if the
    session does not exist, and `StoreError` if the store cannot be opened, read or written. Each
    method has an asynchronous twin whose name begins with ``a``, such as ``aresume``.
    ``str(session)`` is the id. Two handles are equal if their ids and addresses are equal.

    Args:
        id: The session's id: 1 to 128 letters, digits, ``.``, ``_`` and ``-``.
        store: The store: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. If None, the
            store in the settings, or else an SQLite file in the user's data folder.

    Raises:
        SessionError: The id is not valid.

    Example:
        >>> from duologue import Session, converse, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
        >>> model = ScriptedChatModel(script=script)
        >>> result = converse(garden, session="one", model=model, store="memory:docs")
        >>> result.session
        Session('one', store='memory:docs')
        >>> branch = result.session.fork(at=result.messages[2], into="two")
        >>> branch.resume(model=ScriptedChatModel(script=script[2:])).stop_reason
        'done_token'
        >>> Session("one", store="memory:docs").state() == result
        True
    """

    id: str
    """The session's id."""
    _: KW_ONLY
    store: str | Path | None = None
    """The store's path or address, as it was passed in."""

    # A generated one would add its frame to the traceback of an error.
    @hide_frames
    def __init__(self, id: str, *, store: str | Path | None = None) -> None:  # noqa: A002
        check_session_id(id)
        vars(self).update(id=id, store=store)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        store = show_address(self.store) if isinstance(self.store, str) else self.store
        return f"Session({self.id!r}, store={store!r})"

    @hide_frames
    @list_options
    async def aresume(self, **options: Unpack[SessionOptions]) -> "Result":
        """Resume the session at the point where it stopped.

        Args:
            **options: The options of the run.

        Returns:
            The result. It contains the outcome, or the questions that wait for people.

        Raises:
            TypeError: An option is unknown or has a wrong type.
            SessionError: Another run is using the session, or the question that was waiting for
                the ``message`` was already answered.
            ModelError: A model is not available or did not answer. The session can be resumed.
        """
        return await self._run(options)

    @hide_frames
    @list_options
    async def aanswer(
        self,
        value: object,
        *,
        question: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> "Result":
        """Answer a question that the session waits for, and resume the session.

        To receive the events of the run, call `stream` with an ``answer`` function instead.

        Args:
            value: The answer: text for a `MessageQuestion`, or a list of texts and files, as in
                the option ``message``; otherwise a value that fits the question's
                ``response_schema``.
            question: The id of the question. If None, the only question that is waiting.
            **options: The options of the run. The option ``answer`` answers later questions.

        Returns:
            The result. It contains the outcome, or the next questions.

        Raises:
            TypeError: An option is unknown or has a wrong type.
            AnswerError: The answer does not fit. The session still waits.
            SessionError: Another run is using the session; several questions wait and ``question``
                is None; or the question was already answered. Nothing is changed.
            ModelError: A model is not available or did not answer. The answer is stored, and the
                session can be resumed.

        Example:
            >>> from duologue import chat, converse
            >>> from duologue.nodes.testing import ScriptedChatModel
            >>> model = ScriptedChatModel(script=["Hello! What is it about?"])
            >>> result = converse(chat(), model=model, store="memory:")
            >>> print(result)
            Waiting for User: User, it is your turn. Enter exit to leave.
            >>> result = result.session.answer("Good morning.", model=model)
            >>> result.transcript
            [('User', 'Good morning.'), ('Assistant', 'Hello! What is it about?')]
            >>> result.session.answer("exit").stop_reason
            'quit'
        """
        return await self._run(options, GivenAnswer(value, question))

    @list_options
    async def astream(self, **options: Unpack[SessionOptions]) -> AsyncGenerator[Event, None]:
        """Resume the session, and yield each event as it happens, token by token.

        Args:
            **options: The options of the run.

        Yields:
            Events. The last event is the outcome, or a question that waits for a person. If the
            session has ended, the events for the stored messages.

        Raises:
            DuologueError: As in `resume`.
        """
        from .run import run_session

        with hide_frames:
            check_options(options, SessionOptions)
            given = Options(**options, store=self.store)
            run = run_session(None, self.id, given, reset=False, tokens=True)
            async with aclosing(TaskIterator(run)) as events:
                async for event in events:
                    if not isinstance(event, StoredSession):
                        yield event

    @hide_frames
    async def astate(self) -> "Result":
        """Read the session without running it.

        Returns:
            The session in its current state. Its outcome is None if it has not ended.
        """
        from .session_row import read_stored_session

        async with known_store(self.store) as store:
            return result_of(await read_stored_session(store, self.id), store.address)

    @hide_frames
    async def ajudge(
        self,
        criteria: SeparateJudge | Sequence[str] | None = None,
        *,
        model: Chat | str | None = None,
        callbacks: Sequence[BaseCallbackHandler] | None = None,
    ) -> Verdict:
        """Ask a judge about the messages of the session, without running it.

        The verdict is stored next to the session, in ``Result.later_verdicts``; the outcome does
        not change. The same judge is not asked again about the same messages: its stored verdict is
        returned.

        Args:
            criteria: The criteria, or a `SeparateJudge`. If None, the conversation's separate judge
                is used, and it is not asked again if it has judged the last message.
            model: The model that judges: a LangChain chat model, or a model's name. If None, the
                model of the judge, else that of the conversation, else the default.
            callbacks: LangChain callback handlers.

        Returns:
            The verdict. It is not ``readable`` if two answers of the judge could not be read.

        Raises:
            SpecError: The criteria are not valid, or missing and the conversation has no separate
                judge.
            SessionError: Another run is using the session, or nothing was said.
            ModelError: The model is not available or did not answer.

        Example:
            >>> from duologue import converse, role_play
            >>> from duologue.nodes.testing import ScriptedChatModel
            >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
            >>> script = ["Instruction: Dig.", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
            >>> model = ScriptedChatModel(script=script)
            >>> result = converse(garden, model=model, store="memory:")
            >>> judge = ScriptedChatModel(script=[{"criterion_1": "met"}])
            >>> result.session.judge(["Somebody has dug."], model=judge).complete
            True
        """
        from .judging import judge_with

        async with known_store(self.store) as store:
            given = Options(callbacks=callbacks)
            return (await judge_with(store, self.id, criteria, model, given)).verdict

    @hide_frames
    async def aadd_message(self, speaker: str, text: ContentInput) -> "Result":
        """Add a message in the name of a speaker. No run may be using the session.

        The message counts as a turn of that speaker, even if another speaker was next, and may end
        the conversation. ``exit`` has no special meaning here. A question that waits for a person
        is dropped, and the results of tool calls that wait for a person are recorded as unknown. If
        the session has ended, it continues: caps, guards, verdicts and other end conditions count
        from this message on, but budgets of money, tokens, calls and seconds count the whole
        session.

        Args:
            speaker: The name of the speaker.
            text: The message: text, or a list of texts and files, as in the option ``message``.

        Returns:
            The session in its current state. `resume` continues with the next speaker.

        Raises:
            SpecError: No speaker has that name, the text is blank, or a file is not accepted.
            SessionError: Another run is using the session, the opening has not finished, or a
                question was asked or answered while this call waited for the lease.
        """
        from .edits import add_message

        async with known_store(self.store) as store:
            return result_of(await add_message(store, self.id, speaker, text), store.address)

    @list_changes
    @hide_frames
    async def afork(
        self,
        at: MessageLike | None = None,
        *,
        into: str | None = None,
        **changes: Unpack[Changes],
    ) -> "Session":
        """Create a new session that continues from a message of this one, optionally with changes.

        This session does not change. It may be finished, unfinished or running.

        Args:
            at: The last message to keep: a message of ``result.messages``, its id, its place such
                as ``m0007``, or its number in the log. Messages that were written in the same
                step are kept as well. If None, the newest message.
            into: The new session's id. If None, an id made from this session's id.
            **changes: Fields of the conversation that change from here on. For nested fields, pass
                dicts of changes, and for speakers a dict by name, as in
                ``end_chat={"max_iterations": 9}`` or ``speakers={"Ann": {"system_prompt": "…"}}``.
                The opening and the speakers' names, private openings and memories cannot change. A
                changed task is used as written, without a task specification, and counts as not
                completed.

        Returns:
            The new session, in the same store. It has already ended if its rules end it at this
            point.

        Raises:
            SpecError: A change is not valid; the message names the field.
            SessionError: The message does not exist, or the new id is not valid or already used.
        """
        from .fork import fork_session

        async with known_store(self.store) as store:
            new = await fork_session(store, self.id, at, into, changes)
        return Session(new, store=self.store)

    @hide_frames
    async def acopy(self, *, into: str | None = None, to: str | Path | None = None) -> "Session":
        """Copy the session within its store or into another one.

        Args:
            into: The copy's id. If None, the same id in another store, or an id made from it in
                the same store.
            to: The store of the copy. If None, the same store.

        Returns:
            The handle of the copy.

        Raises:
            SessionError: The new id is not valid or already used.
        """
        from .fork import dump_session, load_dump
        from .session_row import new_session_id

        if into is None and to is None:
            into = new_session_id(self.id, "copy")
        async with known_store(self.store) as store:
            found = await dump_session(store, self.id)
        target = to or self.store
        async with known_store(target, create=True) as store:
            return Session(await load_dump(store, found, into), store=target)

    @hide_frames
    async def astop(self) -> bool:
        """Stop the session. A running session, in any process, stops after its current turn.

        A session that waits for a person, and that no run is using, ends at once.

        Returns:
            True if the session has ended; False if it will end after its current turn.

        Raises:
            SessionError: The session has already ended; it is neither running nor waiting; or it is
                waiting, and a stop alone does not meet its ``end_chat.when``.
        """
        async with known_store(self.store) as store:
            return await stop_session(store, self.id)

    @hide_frames
    @list_options
    async def aprompt(self, speaker: str, **registered: Unpack[Registered]) -> list[BaseMessage]:
        """Return the prompt that was sent to a speaker's model in the speaker's newest turn.

        Prompts are not stored: the prompt is rebuilt from the session's steps. It does not contain
        the tools' definitions, which many APIs receive separately from the messages.

        Args:
            speaker: The name of the speaker.
            **registered: The registered objects of the run that the prompt depends on: the schema
                of the speaker's format, or the tools if the history has a limit in tokens.

        Returns:
            LangChain messages, the system prompt first.

        Raises:
            SpecError: No speaker has that name, or a registered object is missing.
            SessionError: No model has spoken for the speaker yet.
        """
        from .session_row import read_prompt

        check_options(registered, Registered)
        async with known_store(self.store) as store:
            return await read_prompt(store, self.id, speaker, Registry(registered))

    @hide_frames
    async def adump(self) -> dict[str, Any]:
        """Return the session, with all its steps, as plain JSON values.

        Returns:
            The dump, for `load_session` and ``json.dumps``.
        """
        from .dump import to_plain
        from .fork import dump_session

        async with known_store(self.store) as store:
            return to_plain(await dump_session(store, self.id))

    @hide_frames
    @list_options
    async def aexport(
        self,
        format: ExportFormat,  # noqa: A002  # the usual name
        *,
        speaker: str | None = None,
        metadata: bool = True,
        **registered: Unpack[Registered],
    ) -> str:
        """Return the session as a page for readers, or as JSON Lines for programs.

        Args:
            format: A format that `duologue export --help` lists, such as ``markdown``, a page to
                read; ``html``, a page for a browser in one file; ``jsonl``, one JSON object for
                each message; ``openai`` or ``sharegpt``, training examples, one object for each
                speaker; ``inspect``, a log of Inspect in its JSON format.
            speaker: The speaker whose memory or training example is exported. If None, all
                messages, or one example for each speaker for whom a model has spoken.
            metadata: Whether each example has the key ``metadata`` with the session, the reason of
                its end, the models and the speaker. OpenAI's service rejects keys it does not know.
            **registered: The registered objects of the run. Examples describe the tools and schemas
                that are passed here or installed.

        Returns:
            The exported text.

        Raises:
            SpecError: The format is unknown or needs a package that is not installed, or no speaker
                has that name.
        """
        check_options(registered, Registered)
        known = Registry(registered)
        async with known_store(self.store) as store:
            return await export_session(store, self.id, format, speaker, known, metadata=metadata)

    @hide_frames
    async def areset(self, *, speaker: str | None = None) -> None:
        """Forget all messages of the session, or one speaker's memory of them.

        After a reset of the whole session, its id and its conversation remain, and it starts from
        the beginning when it is resumed. A speaker whose memory is reset forgets everything up to
        its latest finished turn, and keeps the messages that it has not answered. The log, and the
        memory of the other speakers, do not change.

        Args:
            speaker: The speaker whose memory is reset. If None, the whole session.

        Raises:
            SpecError: No speaker has that name.
            SessionError: Another run is using the session.
        """
        from .edits import replace_memory, restart_session

        async with known_store(self.store) as store:
            if speaker is None:
                await restart_session(store, self.id)
            else:
                await replace_memory(store, self.id, speaker)

    @hide_frames
    async def aset_memory(
        self, speaker: str, messages: Sequence[MessageLikeRepresentation]
    ) -> None:
        """Replace a speaker's memory with other messages.

        The speaker keeps the messages that it has not answered, its task and its private opening.
        The log, the memory of the other speakers, the end conditions and the counts do not change.

        Args:
            speaker: The name of the speaker.
            messages: LangChain messages, or anything that LangGraph's `add_messages` accepts, as in
                `Speaker.memory`. `Result.memory` returns such a list.

        Raises:
            SpecError: No speaker has that name, or a message is not valid.
            SessionError: Another run is using the session, or the session has not begun.
        """
        from .edits import replace_memory

        known = read_messages(messages, "messages")
        async with known_store(self.store) as store:
            await replace_memory(store, self.id, speaker, known)

    @hide_frames
    async def adelete(self) -> None:
        """Delete the session and everything it contains.

        Raises:
            SessionError: Another run is using the session.
        """
        async with known_store(self.store) as store:
            await store.delete(self.id)

    async def _run(self, options: SessionOptions, reply: GivenAnswer | None = None) -> "Result":
        from .run import run_to_end

        check_options(options, SessionOptions)
        given = Options(**options, store=self.store)
        return result_of(*await run_to_end(None, self.id, given, reply=reply))

    # The methods for code without an event loop.
    resume = in_background(aresume)
    answer = in_background(aanswer)
    stream = iterate_in_background(astream)
    state = in_background(astate)
    judge = in_background(ajudge)
    add_message = in_background(aadd_message)
    fork = in_background(afork)
    copy = in_background(acopy)
    stop = in_background(astop)
    prompt = in_background(aprompt)
    dump = in_background(adump)
    export = in_background(aexport)
    reset = in_background(areset)
    set_memory = in_background(aset_memory)
    delete = in_background(adelete)


@dataclass(frozen=True, repr=False)
class Result(StoredSession):
    """The state of a session that was run or read: ended, waiting for a person, or interrupted.

    `print` shows the messages and how the session ended, and a notebook shows them in colours. Two
    results are equal if their contents are equal, even in different stores.
    """

    session: Session = field(kw_only=True, compare=False)
    """The handle of the session, to resume, fork or export it."""


def result_of(found: StoredSession, store: str) -> Result:
    """Return a session that was read from a store as a result with its handle."""
    return Result(**vars(found), session=Session(found.session_id, store=store))
