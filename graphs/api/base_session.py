"""The address of a stored session, and the methods that run nothing and make no other session."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Unpack

from langchain_core.messages import BaseMessage, MessageLikeRepresentation

from ...tools.registry.options import check_options, list_options
from ...tools.registry.registry import Registered, Registry
from ..common.addresses import redacted
from ..common.background import in_background
from ..sessions.dumps.dump import written
from ..sessions.listing import known_store
from ..sessions.prompting import read_prompt
from ..sessions.remembering import begin_anew, dump_session, replace_memory
from ..sessions.stop import stop_session
from ..sessions.transfer import ExportFormat, export_session
from ..speakers.private_messages import read_messages
from ..store.rows import check_session_id


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
        store = redacted(self.store) if isinstance(self.store, str) else self.store
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
        check_options(registered, Registered)
        async with known_store(self.store) as store:
            return await read_prompt(store, self.id, speaker, Registry(registered))

    prompt = in_background(aprompt)

    async def adump(self) -> dict[str, Any]:
        """Return the session, with all its steps, as plain JSON values.

        Returns:
            The dump, for `load_session` and ``json.dumps``.
        """
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
            format: ``markdown`` for a page to read; ``html`` for a page for a browser, in one file;
                ``jsonl`` for one JSON object a message; ``openai`` or ``sharegpt`` for examples to
                train models on, one object a speaker.
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
