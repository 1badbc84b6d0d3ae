"""One agent by itself: it is asked, remembers, and takes what it remembers into what comes next.

After Yacana's tasks, which an agent solves alone, and Lagent's agents, which are called.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, cast, get_args

from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from ...nodes.turn.prompt import transcript
from ...tools.registry.options import check_options, list_options
from ..build import build_graph
from ..common.data import Fields, is_agent
from ..common.errors import SpecError, UnreadableAnswerError
from ..common.sanitize import excerpt
from ..common.settings import load_settings
from ..common.threads import in_background
from ..common.validation import name_type
from ..conversation.conversation import Conversation
from ..conversation.conversation_options import AnySpeaker
from ..conversation.questions import MessageQuestion, is_exit
from ..conversation.sandbox import Sandbox
from ..conversation.usage import Price
from ..ends.end import End
from ..log.memory import memory
from ..log.messages import metadata, speeches
from ..log.metadata import is_by_person
from ..prompts import summaries as prompts
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
    """The options of `ask`: those of a run, and some fields of a conversation.

    None: as in a `Conversation` that does not set the field.
    """

    end_when: End | Sequence[End] | None
    """Another end, such as ``MaxCost(0.05)``, as ``end_chat.when`` has it. Budgets count
    everything that is asked in one session."""
    prices: Mapping[str, Price | Fields] | None
    """The prices of the models, by their names."""
    sandbox: Sandbox | str | Fields | None
    """The sandbox in which the agent's code runs."""
    seed: int | None
    """Asks a model that can for the same answers again."""
    max_tool_rounds: int | None
    """Maximum number of rounds of tool calls before the agent must answer."""


OnFailure = Literal["raise", "return"]
"""The behaviour of `ask` if the answer does not fit its schema."""

_OF_SPEC = AskOptions.__annotations__.keys() - StoreOptions.__annotations__.keys()


@list_options
async def aask(
    agent: AnySpeaker,
    text: str,
    *,
    session: str | Session | None = None,
    reset: bool = False,
    schema: type[BaseModel] | None = None,
    on_failure: OnFailure = "raise",
    user: str = "User",
    **options: Unpack[AskOptions],
) -> Result:
    """Ask one agent, which answers with its model, its tools and all else that a speaker has.

    This is a conversation of two, which ends with the answer: a session like any other.

    Args:
        agent: A `Speaker`, or its fields.
        text: The question or order.
        session: The session's id or handle, as in `converse`. In a known session the agent
            remembers the questions before. A question that was left unanswered by a kill, and is
            asked again, is not asked twice. None: a new id is made up.
        reset: Whether to delete the stored session first.
        schema: A pydantic model that the answer must fit. `Result.output` is a dict of its fields;
            ``Menu.model_validate(result.output)`` makes an instance of a model ``Menu`` from it.
        on_failure: ``raise`` raises `UnreadableAnswerError` if the answer does not fit the schema,
            even when asked again. ``return`` returns it, and `Result.output` is None.
        user: The name of the one who asks.
        **options: The options of the run. ``tools`` are tools that the agent may call beside its
            own. ``end_when``, ``prices``, ``sandbox``, ``seed`` and ``max_tool_rounds`` are
            settings of the conversation.

    Returns:
        The session: ``result.text`` is the answer, ``result.output`` the dict of its fields. If a
        person must approve a call first, ``result.pending`` contains the question; answer it with
        ``result.session.answer(…)``.

    Raises:
        SpecError: The agent, or an option, is not valid, or the text is empty or ``exit`` alone.
        SessionError: The session is run elsewhere, waits for another answer, or belongs to another
            agent; names the first field that differs.
        ModelError: The model can't be had or did not answer. The session can be resumed.
        UnreadableAnswerError: The answer does not fit the schema. It is stored in the session.
        StoreError: The store can't be opened or written.

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
    session, options = locate_session(session, options)
    check_options(options, AskOptions, "session", "reset", "schema", "on_failure", "user")
    _check_text(text)
    if on_failure not in get_args(OnFailure):
        raise SpecError(f"on_failure: must be 'raise' or 'return', not {on_failure!r}")
    given: dict[str, Any] = {**options}
    of_spec = {name: given.pop(name) for name in _OF_SPEC & given.keys()}
    of_spec = {name: value for name, value in of_spec.items() if value is not None}
    asked = _asked(_able(agent, given.get("tools"), schema), user, of_spec)
    waits = session is not None and not reset and await _waits(session, text, given.get("store"))
    message = None if waits else text
    queued = cast("Options", dict(**given, message=message))
    # It answers nothing that somebody was asked: beside another question it waits for its turn.
    result = result_of(*await run_to_end(asked, session, queued, reset=reset, queues=True))
    if schema is not None and on_failure == "raise":
        _check_answer(result, schema)
    return result


ask = in_background(aask)


def _check_text(text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise SpecError("text: must be text that is not empty")
    if is_exit(text):
        # As a person's answer it would leave the session, without a question.
        raise SpecError(f"text: {text.strip()!r} alone leaves a conversation: say it in a sentence")


def _check_answer(result: Result, schema: type[BaseModel]) -> None:
    """Refuse an answer that does not fit the schema. One that was never said is the outcome's."""
    said = speeches(result.messages)
    is_answered = bool(said) and not is_by_person(metadata(said[-1]))
    if result.outcome is None or not is_answered or result.output is not None:
        return
    raise UnreadableAnswerError(
        f"the answer does not fit {schema.__name__!r}; simplify the schema, say more about it, or "
        f"get the text by on_failure='return': {excerpt(result.text).strip() or 'it is blank'}",
        reply=result.text,
        session=result.session.id,
    )


def _able(agent: AnySpeaker, tools: Any, schema: type[BaseModel] | None) -> Speaker:  # noqa: ANN401
    """The agent with the tools and the form that this question needs."""
    speaker = _speaker(agent, "agent")
    changes: dict[str, Any] = {}
    more = [one for one in _tools(tools) if _name(one) not in speaker.tools]
    if more:
        changes["tools"] = (*speaker.tools, *more)
    if schema is not None:
        if not isinstance(schema, type):
            raise SpecError(f"schema: must be a pydantic model's class, not {name_type(schema)}")
        # A reply that is held to a schema calls no tools.
        form = "text" if more or speaker.tools else "structured"
        changes["format"] = SchemaFormat(schema, form=form)
    return speaker.replace(**changes)


def _speaker(given: object, field: str) -> Speaker:
    """Read a speaker, or its fields."""
    if isinstance(given, Speaker):
        return given
    if not isinstance(given, Mapping):
        hint = ": put it among the replies of one" if is_agent(given) else ""
        raise SpecError(
            f"{field}: must be a Speaker or a dict of its fields, not {name_type(given)}{hint}"
        )
    return Speaker(**given)


def _tools(given: object) -> list[BaseTool | Callable[..., Any]]:
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SpecError("tools: must be a list of tools")
    return [*given]


def _name(tool: object) -> object:
    return getattr(tool, "name", None) or getattr(tool, "__name__", None)


def _asked(agent: Speaker, user: str, of_spec: Mapping[str, Any]) -> Conversation:
    """The conversation of who asks and who answers."""
    when = {"when": of_spec["end_when"]} if "end_when" in of_spec else {}
    found = Conversation(
        title=f"Questions to {agent.name}",
        speakers=({"name": user, "replies": ("human",)}, agent),
        end_chat={"max_iterations": 1, **when},
        **{name: value for name, value in of_spec.items() if name != "end_when"},
    )
    # Nobody set it: it is not compared when more is asked, by another release perhaps.
    found.model_fields_set.discard("title")
    return found


async def _waits(session: str, text: str, target: str | Path | None) -> bool:
    """Whether a session stopped before it answered this very question."""
    check_session_id(session)
    target = target or (await asyncio.to_thread(load_settings)).store
    async with open_store(target) as store:
        row = await store.get(session)
        if row is None or row.status == "finished":
            return False
        graph = build_graph(checkpointer=store.checkpointer)
        found = await read_session(session, stored_conversation(row, store.url), graph)
    said = speeches(found.messages)
    is_asked = bool(said) and is_by_person(metadata(said[-1])) and said[-1].text == text
    return is_asked and not any(isinstance(one, MessageQuestion) for one in found.pending)


@list_options
async def aremember(
    speaker: AnySpeaker,
    *results: Result,
    name: str | None = None,
    words: int | None = None,
    **options: Unpack[AskOptions],
) -> Speaker:
    """Return a speaker that remembers earlier conversations, to begin the next one with.

    The memory is data in the speaker's field ``memory``, so that the new session does not need the
    old ones. The others of the new conversation do not see it. It replaces what the speaker
    remembered before: a result of its own contains the memory that it came with.

    Args:
        speaker: The `Speaker`, or its fields.
        *results: The conversations, oldest first, of any kind, finished or not.
        name: The speaker's name in them. None: its name now.
        words: The longest summary, in words: its model is asked for a summary, in a session of its
            own. None: it remembers every word.
        **options: For a summary, as `ask` takes them.

    Returns:
        The same speaker, which remembers.

    Raises:
        KeyError: Nobody has that name in one of them.
        SpecError: ``words`` is less than 1, or the speaker is not valid.
        TypeError: One of the results is none, or an option is unknown.
        DuologueError: For a summary, as in `ask`.

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
    if words is not None and (not isinstance(words, int) or words < 1):
        raise SpecError(f"words: must be 1 or more, not {words!r}")
    now = _speaker(speaker, "speaker")
    was = name or now.name
    for place, result in enumerate(results):
        if not isinstance(result, Result):
            raise TypeError(f"results.{place} must be a result, not {name_type(result)}")
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
