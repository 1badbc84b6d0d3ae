"""Functions for a single agent: `ask` asks it a question, `remember` gives it a memory.

They follow Yacana's tasks, which one agent solves alone, and Lagent's agents, which are callables.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

from langchain_core.messages import HumanMessage
from pydantic import BaseModel

from ...nodes.turn.long_histories import transcript
from ..build import build_graph
from ..common.content import Content, make_content
from ..common.content_input import read_files
from ..common.data import Fields, check_whole, is_agent
from ..common.errors import SpecError, UnreadableAnswerError, hide_frames, name_type
from ..common.model_help import check_options, list_options
from ..common.sanitize import excerpt
from ..common.settings import load_settings
from ..common.threads import in_background
from ..conversation.conversation import Conversation
from ..conversation.conversation_options import AnySpeaker
from ..conversation.questions import MessageQuestion, is_exit
from ..conversation.sandbox import Sandbox
from ..conversation.usage import Price
from ..ends.end import End
from ..log.memory import memory
from ..log.messages import metadata, speeches
from ..log.metadata import is_by_person
from ..prompts import prompts
from ..speakers.formats import SchemaFormat
from ..speakers.speaker import Speaker
from ..store.open import open_store
from ..store.rows import check_session_id
from ..text.words import cut
from .checkpoints import stored_conversation
from .converse import locate_session
from .options import Options, StoreOptions
from .run import run_to_end
from .session import Result, Session, result_of
from .session_row import read_session


class AskOptions(StoreOptions, total=False):
    """The options of `ask`: the options of a run, and some fields of a conversation.

    If a field of the conversation is None, its default applies.
    """

    end_when: End | Sequence[End] | None
    """One or several additional end conditions, such as ``MaxCost(0.05)``. The values are the same
    as in ``end_chat.when``. Budgets count all questions of a session.
    """
    prices: Mapping[str, Price | Fields] | None
    """The prices of the models, by model name."""
    sandbox: Sandbox | str | Fields | None
    """The sandbox in which the agent's code runs."""
    seed: int | None
    """The seed for models that support one, so that they return the same answers again."""
    max_tool_rounds: int | None
    """Maximum number of rounds of tool calls before the agent must answer."""


OnFailure = Literal["raise", "return"]
"""The ways in which `ask` reports an answer that does not fit its schema."""


@hide_frames
@list_options
async def aask(
    agent: AnySpeaker,
    text: str,
    *,
    images: Sequence[str | Path | bytes | Mapping[str, Any]] = (),
    session: str | Session | None = None,
    reset: bool = False,
    schema: type[BaseModel] | None = None,
    on_failure: OnFailure = "raise",
    user: str = "User",
    **options: Unpack[AskOptions],
) -> Result:
    """Ask one agent a question. The agent uses its model, its tools and all its other settings.

    The question and the answer are a conversation of two speakers, stored as a session like any
    other.

    Args:
        agent: A `Speaker`, or a dict with a speaker's fields.
        text: The question or order.
        images: Images, PDFs and audio files that belong to the question: paths, addresses
            (``https://…``), bytes, or LangChain's content blocks.
        session: The session's id or handle, as in `converse`. In a known session the agent
            remembers the earlier questions. If a run was killed before the answer, asking the
            same question again resumes the run. If None, a new id is made.
        reset: Whether to delete the stored session first.
        schema: A pydantic model that the answer must fit. `Result.output` is a dict with its
            fields; ``Menu.model_validate(result.output)`` makes a ``Menu`` from it.
        on_failure: The behaviour if the answer does not fit the schema after the retries. ``raise``
            raises `UnreadableAnswerError`; ``return`` returns the result, and `Result.output` is
            None.
        user: The name of the speaker who asks.
        **options: The options of the run. ``tools`` are added to the agent's own tools.
            ``end_when``, ``prices``, ``sandbox``, ``seed`` and ``max_tool_rounds`` are settings of
            the conversation.

    Returns:
        The session: ``result.text`` is the answer, ``result.output`` the dict with the fields. If a
        person must approve a tool call first, ``result.pending`` contains the question; answer it
        with ``result.session.answer(…)``.

    Raises:
        SpecError: The agent or an option is not valid, the text is blank or only ``exit``, or a
            file can't be read or is not accepted.
        SessionError: Another run is using the session, it waits for another answer, or it belongs
            to another agent (the message names the first field that differs).
        ModelError: The model is not available or did not answer. The session can be resumed.
        UnreadableAnswerError: The answer does not fit the schema. It is stored in the session.
        StoreError: The store cannot be opened or written.

    Example:
        >>> from duologue import Speaker, ask
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> chef = Speaker("Chef", "You plan meals.")
        >>> model = ScriptedChatModel(script=["Soup, then fish.", "Plums."])
        >>> ask(chef, "Plan a menu.", session="menu", model=model, store="memory:ask").text
        'Soup, then fish.'
        >>> ask(chef, "And a dessert?", session="menu", model=model, store="memory:ask").text
        'Plums.'
    """
    name = locate_session(session, options)
    known = ("images", "session", "reset", "schema", "on_failure", "user")
    check_options(options, AskOptions, *known)
    _check_text(text)
    if on_failure not in get_args(OnFailure):
        raise SpecError(f"on_failure: must be 'raise' or 'return', not {on_failure!r}")
    equipped = _equip_agent(agent, options.get("tools"), schema)
    asked = _make_conversation(equipped, user, options)
    run: StoreOptions = options
    content: Content = text
    if images:
        content = make_content(text, await asyncio.to_thread(read_files, images, "images"))
    waits = name is not None and not reset and await _is_unanswered(name, content, options)
    # The text is a new message. It must not answer a question that already waits, such as an
    # approval.
    given = Options(**run, message=None if waits else content)
    result = result_of(*await run_to_end(asked, name, given, reset=reset, queues=True))
    if schema is not None and on_failure == "raise":
        _check_answer(result, schema)
    return result


ask = in_background(aask)


def _check_text(text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise SpecError("text: must be text that is not empty")
    if is_exit(text):
        # `exit` as a person's message would leave the session without asking anything.
        raise SpecError(
            f"text: {text.strip()!r} alone leaves the conversation; write a whole sentence"
        )


def _check_answer(result: Result, schema: type[BaseModel]) -> None:
    """Raise `UnreadableAnswerError` if the agent's answer does not fit the schema.

    If the agent has not answered at all, do not raise: the outcome contains the reason.
    """
    said = speeches(result.messages)
    is_answered = bool(said) and not is_by_person(metadata(said[-1]))
    if result.outcome is None or not is_answered or result.output is not None:
        return
    answer = excerpt(result.text).strip() or "it is blank"
    raise UnreadableAnswerError(
        f"the answer does not fit {schema.__name__!r}: {answer}; simplify the schema, describe it "
        "in the question, or pass on_failure='return' to get the text",
        reply=result.text,
        session=result.session.id,
    )


def _equip_agent(agent: AnySpeaker, tools: Any, schema: type[BaseModel] | None) -> Speaker:  # noqa: ANN401
    """Return the agent with the tools and the output format that this question needs."""
    speaker = _speaker(agent, "agent")
    changes: dict[str, Any] = {}
    if isinstance(tools, str) or not isinstance(tools, Sequence | None):
        raise SpecError("tools: must be a list of tools")
    named = (
        (getattr(one, "name", None) or getattr(one, "__name__", None), one) for one in tools or ()
    )
    more = [one for name, one in named if name not in speaker.tools]
    if more:
        changes["tools"] = (*speaker.tools, *more)
    if schema is not None:
        if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            raise SpecError(
                "schema: must be a pydantic model's class, which derives from BaseModel, not "
                f"{name_type(schema)}; write one with a field for each value, or omit schema to "
                "get a text"
            )
        # A model that is restricted to a schema cannot call tools.
        form = "text" if more or speaker.tools else "structured"
        changes["format"] = SchemaFormat(schema, form=form)
    return speaker.replace(**changes)


def _speaker(given: object, field: str) -> Speaker:
    """Return a speaker from a `Speaker` or a dict with a speaker's fields."""
    if isinstance(given, Speaker):
        return given
    if not isinstance(given, Mapping):
        hint = "; add it to the replies of a Speaker" if is_agent(given) else ""
        raise SpecError(
            f"{field}: must be a Speaker or a dict with a speaker's fields, not "
            f"{name_type(given)}{hint}"
        )
    return Speaker(**given)


def _make_conversation(agent: Speaker, user: str, options: AskOptions) -> Conversation:
    """Return the conversation of a user and an agent. Its fields are removed from the options."""
    end_when = options.pop("end_when", None)
    when = {} if end_when is None else {"when": end_when}
    fields: dict[str, Any] = {
        "prices": options.pop("prices", None),
        "sandbox": options.pop("sandbox", None),
        "seed": options.pop("seed", None),
        "max_tool_rounds": options.pop("max_tool_rounds", None),
    }
    found = Conversation(
        title=f"Questions to {agent.name}",
        speakers=({"name": user, "replies": ("human",)}, agent),
        end_chat={"max_iterations": 1, **when},
        **{name: value for name, value in fields.items() if value is not None},
    )
    # The user did not set the title. A later question, perhaps from a release that words the title
    # differently, must not be compared with it.
    found.model_fields_set.discard("title")
    return found


async def _is_unanswered(session: str, content: Content, options: StoreOptions) -> bool:
    """Return whether a session was interrupted before this question was answered."""
    check_session_id(session)
    target = options.get("store") or (await asyncio.to_thread(load_settings)).store
    async with open_store(target) as store:
        row = await store.get(session)
        if row is None or row.status == "finished":
            return False
        graph = build_graph(checkpointer=store.checkpointer)
        found = await read_session(session, stored_conversation(row, store.url), graph)
    said = speeches(found.messages)
    is_asked = bool(said) and is_by_person(metadata(said[-1])) and said[-1].content == content
    return is_asked and not any(isinstance(one, MessageQuestion) for one in found.pending)


@hide_frames
@list_options
async def aremember(
    speaker: AnySpeaker,
    *results: Result,
    name: str | None = None,
    words: int | None = None,
    **options: Unpack[AskOptions],
) -> Speaker:
    """Return a copy of a speaker that remembers earlier conversations.

    The memory is stored in the speaker's field ``memory``, so a new session with this speaker does
    not need the old sessions. The other speakers do not see the memory. The memory replaces
    the speaker's earlier memory, because a result already contains the memory with which its
    conversation began.

    Args:
        speaker: The `Speaker`, or a dict with a speaker's fields.
        *results: The conversations, oldest first, of any kind, finished or not.
        name: The speaker's name in these conversations. If None, its current name.
        words: Maximum length of a summary, in words. The speaker's model writes the summary in a
            separate session. If None, the speaker remembers every message.
        **options: The options of the summary, as in `ask`.

    Returns:
        The same speaker with this memory.

    Raises:
        KeyError: One of the conversations has no speaker of that name.
        SpecError: ``words`` is less than 1, or the speaker is not valid.
        TypeError: One of ``results`` is not a `Result`, or an option is unknown.
        DuologueError: The summary failed, as in `ask`.

    Example:
        >>> from duologue import Speaker, ask, remember
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> chef = Speaker("Chef", "You plan meals.")
        >>> model = ScriptedChatModel(script=["Soup, then fish."])
        >>> menu = ask(chef, "Plan a menu.", model=model, store="memory:ask")
        >>> [(message.type, message.text) for message in remember(chef, menu).memory]
        [('human', 'Plan a menu.'), ('ai', 'Soup, then fish.')]
    """
    check_options(options, AskOptions, "name", "words")
    if words is not None:
        check_whole("words", words)
    now = _speaker(speaker, "speaker")
    was = name or now.name
    for place, result in enumerate(results):
        if not isinstance(result, Result):
            raise TypeError(f"results.{place}: must be a Result, not {name_type(result)}")
        result.conversation.speaker(was)
    found = [message for result in results for message in result.memory(was)]
    if words is not None and found:
        messages = [message for result in results for message in memory(result.messages, was)]
        render_prompt = results[-1].conversation.render_prompt
        request = render_prompt(
            prompts.SUMMARY_REQUEST,
            me=was,
            before=render_prompt(prompts.NO_EARLIER_SUMMARY),
            transcript=transcript(messages, was),
            words=words,
        )
        keeper = Speaker(
            name=now.name,
            model=now.model,
            system_prompt=render_prompt(prompts.SUMMARY_ROLE, me=was),
        )
        summary = cut((await aask(keeper, request, **options)).text.strip(), words)
        if summary:
            found = [HumanMessage(render_prompt(prompts.SUMMARY_HEADING, summary=summary))]
    return now.replace(memory=found)


remember = in_background(aremember)
