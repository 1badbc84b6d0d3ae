"""The handles of stored sessions, `Session` and its base, and `Result`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Unpack

from langchain_core.messages import BaseMessage, MessageLikeRepresentation

from ...tools.registry.options import check_options, list_changes, list_options
from ...tools.registry.registry import Registered, Registry
from ..common.addresses import redact_address
from ..common.threads import in_background, iterate_in_background
from ..conversation.conversation_options import Changes
from ..events import Event
from ..speakers.private_messages import read_messages
from ..store.rows import check_session_id
from .export_formats import ExportFormat, export_session
from .listing import known_store
from .options import GivenAnswer, MessageLike, Options, SessionOptions
from .stop import stop_session
from .stored_session import StoredSession

# What runs, reads or changes sessions loads the nodes and the models: the methods below import it,
# so that importing `converse`, or making a handle, does not.


@dataclass(frozen=True)
class BaseSession:
    """The base of `Session`: its id and store, and the methods that only read or remove."""

    id: str
    """The session's id."""
    _: KW_ONLY
    store: str | Path | None = None
    """The address of the store, as it was given."""

    def __post_init__(self) -> None:
        check_session_id(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        store = redact_address(self.store) if isinstance(self.store, str) else self.store
        return f"{type(self).__name__}({self.id!r}, store={store!r})"

    async def astop(self) -> bool:
        """Stop the session: after the current turn if it runs, here or in another process.

        A session that waits for a person, and that nobody runs, ends at once.

        Returns:
            Whether it has ended. False: it ends after its current turn.

        Raises:
            SessionError: The session has ended already, or neither runs nor waits; or it waits, and
                by its rules a stop alone does not end it.
        """
        async with known_store(self.store) as store:
            return await stop_session(store, self.id)

    stop = in_background(astop)

    @list_options
    async def aprompt(self, speaker: str, **registered: Unpack[Registered]) -> list[BaseMessage]:
        """Return the prompt that a speaker's model was sent at its newest turn.

        Prompts are not stored: this one is made again from the session's steps. The definitions of
        tools, which many endpoints take beside the messages, are not part of it.

        Args:
            speaker: The name of the speaker.
            **registered: Objects that were registered for the run, if the prompt depends on them:
                the schema of the speaker's format, or tools beside a limit in tokens.

        Returns:
            LangChain messages, the system prompt first.

        Raises:
            SpecError: Nobody has that name, or a registered object is missing.
            SessionError: No model has spoken for the speaker.
        """
        from .session_row import read_prompt

        check_options(registered, Registered)
        async with known_store(self.store) as store:
            return await read_prompt(store, self.id, speaker, Registry(registered))

    prompt = in_background(aprompt)

    async def adump(self) -> dict[str, Any]:
        """Return the session, with all its steps, as plain JSON values.

        Returns:
            The dump, for `load_session` and ``json.dumps``.
        """
        from .dump import written
        from .transfer import dump_session

        async with known_store(self.store) as store:
            return written(await dump_session(store, self.id))

    dump = in_background(adump)

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
            format: One of those that `duologue export --help` lists: ``markdown`` for a page to
                read; ``html`` for a page for a browser, in one file; ``jsonl`` for one JSON object
                a message; ``openai`` or ``sharegpt`` for examples to train models on, one object a
                speaker; and so on.
            speaker: The speaker whose memory, or whose example, to export. None: all messages, or
                an example for each speaker for whom a model has spoken.
            metadata: Whether examples have ``metadata``: the session, why it ended, the models and
                the speaker. OpenAI's own service refuses keys that it does not know.
            **registered: Objects that were registered for the run: examples describe the tools and
                schemas that are given here, or installed.

        Returns:
            The text.

        Raises:
            SpecError: There is no such format, or nobody has that name.
        """
        check_options(registered, Registered)
        registry = Registry(registered)
        async with known_store(self.store) as store:
            return await export_session(
                store, self.id, format, speaker, registry, metadata=metadata
            )

    export = in_background(aexport)

    async def areset(self, *, speaker: str | None = None) -> None:
        """Forget all messages of the session, or one speaker's memory of them.

        A whole session keeps its id and its conversation, and begins anew when it is resumed. A
        speaker forgets everything up to its latest finished turn, and keeps the messages that it
        has not answered. The log, and the memory of the others, stay as they were.

        Args:
            speaker: The speaker whose memory to reset. None: the whole session.

        Raises:
            SpecError: Nobody has that name.
            SessionError: Another run has the session.
        """
        from .memory_reset import begin_anew, replace_memory

        async with known_store(self.store) as store:
            if speaker is None:
                await begin_anew(store, self.id)
            else:
                await replace_memory(store, self.id, speaker)

    reset = in_background(areset)

    async def aset_memory(
        self, speaker: str, messages: Sequence[MessageLikeRepresentation]
    ) -> None:
        """Replace what a speaker remembers by other messages.

        It keeps the messages that it has not answered, its task and its private opening. The log,
        the memory of the others, and everything that ends or counts, stay as they were.

        Args:
            speaker: The name of the speaker.
            messages: LangChain messages, or what `add_messages` accepts, as in `Speaker.memory`.
                `Result.memory` returns such a list.

        Raises:
            SpecError: Nobody has that name, or a message is not valid.
            SessionError: Another run has the session, or the session has not begun.
        """
        from .memory_reset import replace_memory

        known = read_messages(messages, "messages")
        async with known_store(self.store) as store:
            await replace_memory(store, self.id, speaker, known)

    set_memory = in_background(aset_memory)

    async def adelete(self) -> None:
        """Delete the session and everything it contains.

        Raises:
            SessionError: Another run has the session.
        """
        async with known_store(self.store) as store:
            await store.delete(self.id)

    delete = in_background(adelete)


@dataclass(frozen=True, repr=False)
class Session(BaseSession):
    """A handle of a stored session: its id, and the store that contains it.

    Making a handle opens nothing. Each method opens the store, and raises `SessionError` if there
    is no such session, and `StoreError` if the store can't be opened, read or written. Each method
    has an asynchronous twin with an ``a`` in front, such as ``aresume``. ``str(session)`` is the
    id. Handles are equal if their ids and addresses are.

    Args:
        id: The session's id, 1 to 128 of letters, digits, ``.``, ``_`` and ``-``.
        store: The store: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. None: the
            setting, else one SQLite file in the user's data folder.

    Raises:
        SessionError: The id can't be a session's.

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

    @list_options
    async def aresume(self, **options: Unpack[SessionOptions]) -> "Result":
        """Resume the session where it stopped.

        Args:
            **options: The options of the run.

        Returns:
            The result, with the outcome or with the questions that wait for people.

        Raises:
            TypeError: An option is unknown or has a wrong type.
            SessionError: Another run has the session, or the question that waited for the
                ``message`` at the call was already answered.
            ModelError: A model can't be had or did not answer. The session can be resumed.
        """
        return await self._run(options)

    resume = in_background(aresume)

    @list_options
    async def aanswer(
        self,
        value: object,
        *,
        question: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> "Result":
        """Answer the question that the session waits with, and resume it.

        To follow the run, give `stream` an ``answer`` instead.

        Args:
            value: The answer: text for a `MessageQuestion`, else a value that fits the question's
                ``response_schema``.
            question: The id of the question. None: the only question that waits at the call.
            **options: The options of the run. The option ``answer`` answers later questions.

        Returns:
            The result, with the outcome or with the next questions.

        Raises:
            TypeError: An option is unknown or has a wrong type.
            AnswerError: The answer does not fit. The session still waits.
            SessionError: Another run has the session, several questions wait and none is named, or
                the question was already answered. Nothing is changed.
            ModelError: A model can't be had or did not answer. The answer is stored, and the
                session can be resumed.

        Example:
            >>> from duologue import chat, converse
            >>> from duologue.nodes.testing import ScriptedChatModel
            >>> model = ScriptedChatModel(script=["Hello! What is it about?"])
            >>> result = converse(chat(), model=model, store="memory:")
            >>> print(result)
            Waiting for User: User, it is your turn. exit: leave.
            >>> result = result.session.answer("Good morning.", model=model)
            >>> result.transcript
            [('User', 'Good morning.'), ('Assistant', 'Hello! What is it about?')]
            >>> result.session.answer("exit").stop_reason
            'quit'
        """
        return await self._run(options, GivenAnswer(value, question))

    answer = in_background(aanswer)

    @list_options
    async def astream(self, **options: Unpack[SessionOptions]) -> AsyncGenerator[Event, None]:
        """Resume the session, and yield each event as it happens, token by token.

        Args:
            **options: The options of the run.

        Yields:
            Events. The last one is the outcome, or a question that waits. If the session has ended,
            its messages are yielded again.

        Raises:
            DuologueError: As in `resume`.
        """
        from .run import run_session

        check_options(options, SessionOptions)
        given = Options(**options, store=self.store)
        run = run_session(None, self.id, reset=False, tokens=True, **given)
        async with aclosing(run) as events:
            async for event in events:
                if not isinstance(event, StoredSession):
                    yield event

    stream = iterate_in_background(astream)

    async def astate(self) -> "Result":
        """Read the session without running it.

        Returns:
            The session as it is now. Its outcome is None if it has not ended.
        """
        from .session_row import read_stored_session

        async with known_store(self.store) as store:
            return result_of(await read_stored_session(store, self.id), store.url)

    state = in_background(astate)

    async def aadd_message(self, speaker: str, text: str) -> "Result":
        """Add a message of one of the speakers, while nobody runs the session.

        The message counts as a turn of that speaker, whosever turn it was, and may end the
        conversation. It is said as it is, even ``exit``. A question to a person that waits is
        dropped; calls of tools that wait get a result that says so. A session that has ended goes
        on: caps, guards, verdicts and other ends count anew from this message; budgets of money,
        tokens, calls and seconds do not.

        Args:
            speaker: The name of the speaker.
            text: The message.

        Returns:
            The session as it is now; `resume` goes on with the next speaker.

        Raises:
            SpecError: Nobody has that name, or the text is blank.
            SessionError: Another run has the session, its opening is not over, or a question was
                asked or answered since the call.
        """
        from .take_over import add_message

        async with known_store(self.store) as store:
            return result_of(await add_message(store, self.id, speaker, text), store.url)

    add_message = in_background(aadd_message)

    @list_changes
    async def afork(
        self,
        at: MessageLike | None = None,
        *,
        into: str | None = None,
        **changes: Unpack[Changes],
    ) -> "Session":
        """Make a new session that goes on from a message of this one, by other rules if wanted.

        This session, finished or not, running or not, stays as it is.

        Args:
            at: The last message to keep: a message of ``result.messages``, its id, its place such
                as ``m0007``, or the number of its place. Messages that were written in one step
                with it are kept, too. None: the newest message.
            into: The new session's id. None: made from this session's id.
            **changes: Fields of the conversation that change from here on. Nested fields are dicts
                of changes, speakers by their names, as in ``end_chat={"max_iterations": 9}`` or
                ``speakers={"Ann": {"system_prompt": "…"}}``. The speakers and the opening can't
                change. A new task is not rewritten, and nobody has completed it yet.

        Returns:
            The new session, in the same store. It has ended already if it is over by its rules.

        Raises:
            SpecError: A change is not valid; the message names the field.
            SessionError: There is no such message, or the new id is odd or taken.
        """
        from .fork import fork_session

        async with known_store(self.store) as store:
            new = await fork_session(store, self.id, at, into, changes)
        return Session(new, store=self.store)

    fork = in_background(afork)

    @list_options
    async def areplay(self, **registered: Unpack[Registered]) -> "Result":
        """Run the recorded session again without a model, and compare.

        Every answer of a model, of an agent of yours and of a person is taken from the record.
        Tools, functions, hooks and code run again. Nothing is stored. A session that was forked by
        other rules, loaded in part, whose memory was reset, or that had `add_message` before its
        end, may differ.

        Args:
            **registered: The objects that the conversation names: tools, functions, hooks …

        Returns:
            The same messages. Tokens and seconds are not recorded call by call: the outcome is None
            if they, or a request to stop, ended the session.

        Raises:
            SessionError: A message differs; the error names the first one. Or a tool asks a person
                by ``interrupt()``: no log records the answer.
            SpecError: An object that the conversation names is not registered, or failed.
        """
        from .replay import replay_session
        from .session_row import read_stored_session

        check_options(registered, Registered)
        async with known_store(self.store) as store:
            recorded = await read_stored_session(store, self.id)
        return result_of(await replay_session(recorded, registered), store.url)

    replay = in_background(areplay)

    async def acopy(self, *, into: str | None = None, to: str | Path | None = None) -> "Session":
        """Copy the session within its store or into another one.

        Args:
            into: The copy's id. None: the same id in another store, else an id made from it.
            to: The store of the copy. None: the same store.

        Returns:
            The copy.

        Raises:
            SessionError: The new id is odd or taken.
        """
        from .session_row import new_session_id
        from .transfer import dump_session, load_dump

        if into is None and to is None:
            into = new_session_id(self.id, "copy")
        async with known_store(self.store) as store:
            found = await dump_session(store, self.id)
        target = to or self.store
        async with known_store(target, create=True) as store:
            return Session(await load_dump(store, found, into), store=target)

    copy = in_background(acopy)

    async def _run(self, options: SessionOptions, reply: GivenAnswer | None = None) -> "Result":
        from .run import run_to_end

        check_options(options, SessionOptions)
        ran = await run_to_end(None, self.id, Options(**options, store=self.store), reply=reply)
        return result_of(*ran)


@dataclass(frozen=True, repr=False)
class Result(StoredSession):
    """A session as it was read or run: ended, waiting for a person, or broken off.

    `print` shows who said what and how it ended, and a notebook shows it in colours. Results are
    equal if they say the same, wherever the session is stored.
    """

    session: Session = field(kw_only=True, compare=False)
    """The handle of the session, to resume, fork or export it."""


def result_of(found: StoredSession, store: str) -> Result:
    """Return a session that was read from a store with the handle that leads back to it."""
    return Result(**vars(found), session=Session(found.session_id, store=store))
