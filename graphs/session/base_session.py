"""The base of `Session`: the methods that stop, read, reset or remove a stored session."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Unpack

from langchain_core.messages import BaseMessage, MessageLikeRepresentation

from ...tools.registry.registry import Registered, Registry
from ..common.addresses import show_address
from ..common.model_help import check_options, list_options
from ..common.threads import in_background
from ..speakers.reply_parts import read_messages
from ..store.rows import check_session_id
from .export_formats import ExportFormat, export_session
from .listing import known_store
from .stop import stop_session

# Importing `converse` or creating a handle must not load the nodes and the models. So each method
# imports the module that runs, reads or changes a session.


@dataclass(frozen=True)
class BaseSession:
    """The base of `Session`: its id, its store, and the methods that do not run the session."""

    id: str
    """The session's id."""
    _: KW_ONLY
    store: str | Path | None = None
    """The store's path or address, as it was passed in."""

    def __post_init__(self) -> None:
        check_session_id(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        store = show_address(self.store) if isinstance(self.store, str) else self.store
        return f"{type(self).__name__}({self.id!r}, store={store!r})"

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

    stop = in_background(astop)

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
        registry = Registry(registered)
        async with known_store(self.store) as store:
            return await export_session(
                store, self.id, format, speaker, registry, metadata=metadata
            )

    export = in_background(aexport)

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
        from .memory_reset import replace_memory

        known = read_messages(messages, "messages")
        async with known_store(self.store) as store:
            await replace_memory(store, self.id, speaker, known)

    set_memory = in_background(aset_memory)

    async def adelete(self) -> None:
        """Delete the session and everything it contains.

        Raises:
            SessionError: Another run is using the session.
        """
        async with known_store(self.store) as store:
            await store.delete(self.id)

    delete = in_background(adelete)
