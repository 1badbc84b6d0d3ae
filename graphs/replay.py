"""Replaying a recorded session: the same conversation once more, with the recorded answers.

No model is asked. Whatever else takes part, tools, functions, hooks, runs again: where it behaves
as it did, the same is said.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs.background import run
from duologue.graphs.build import compiled
from duologue.graphs.end_chat import max_steps
from duologue.graphs.errors import SessionError
from duologue.graphs.history import config_of
from duologue.graphs.judging import Moderator, SeparateJudge, Verdict
from duologue.graphs.log import Kind, Line, Source, line
from duologue.graphs.result import Result
from duologue.graphs.sessions import aget_session, read_session
from duologue.graphs.spec import Conversation
from duologue.nodes.models import Models
from duologue.nodes.resources import Resources
from duologue.nodes.script import Reply, ScriptedToolCall, ScriptExhaustedError
from duologue.nodes.scripted import ScriptedChatModel
from duologue.tools.registry import Registered, Registry, check_options


def replay(
    session: str, *, store: str | Path | None = None, **registered: Unpack[Registered]
) -> Result:
    """Run a recorded session once more without a model, as far as it went.

    Every answer of a model is taken from the record; tools, functions and hooks run again. The
    session itself is only read, and nothing is stored.

    Args:
        session: The session's id. One that was forked by other rules, loaded in part, or whose
            memory was reset, holds what its spec alone does not give, and differs.
        store: Where sessions are kept. None: the setting, else the user's data folder.
        **registered: What the conversation names: tools, functions, hooks and so on.

    Returns:
        What was said this time, the same as in the session. What models used and how long they
        took is not recorded call by call: where that ended it, or somebody's stop, the outcome is
        None.

    Raises:
        SessionError: There is no such session, or something else was said; names the first message
            that differs.
        SpecError: Something that the conversation names is not registered, or failed.
        StoreError: The store can't be opened or read.

    Example:
        >>> from duologue.graphs import converse, replay, role_play
        >>> from duologue.nodes.scripted import ScriptedChatModel
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> model = ScriptedChatModel(script=["<CAMEL_TASK_DONE>"])
        >>> first = converse(garden, session="one", model=model, store="memory:replay-docs")
        >>> replay("one", store="memory:replay-docs").speeches == first.speeches
        True
    """
    return run(areplay(session, store=store, **registered))


async def areplay(
    session: str, *, store: str | Path | None = None, **registered: Unpack[Registered]
) -> Result:
    """Run a recorded session once more without a model; `replay` says how."""
    check_options(registered, Registered)
    recorded = await aget_session(session, store=store)
    conversation = recorded.conversation
    script = list(answers(conversation, recorded.messages))
    # Where models have prices, the one that stands for all must have one.
    model = _Recorded(script=script, model_name=next(iter(conversation.prices), "recorded"))
    named = {name: model for name in conversation.model_names if name is not None}
    resources = Resources(Models(model, named), Registry(registered))
    graph = compiled(resources, InMemorySaver())
    config = config_of(session) | {"recursion_limit": max_steps(conversation)}
    # It was recorded no further, or goes another way now, which shows in what was said.
    with suppress(ScriptExhaustedError):
        await graph.ainvoke({"conversation": conversation.stored()}, config)
    again = await read_session(session, conversation, graph)
    _compare(recorded, again)
    return again


class _Recorded(ScriptedChatModel):
    """Says what models have said, by a name of its own."""

    model_name: str


def _compare(recorded: Result, again: Result) -> None:
    for before, now in zip(recorded.messages, again.messages, strict=False):
        one, other = _plain(before), _plain(now)
        different = next((field for field in one if one[field] != other[field]), None)
        if different is not None:
            raise SessionError(
                f"session {recorded.session!r} goes another way now, from message {before.id} on: "
                f"its {different} is {other[different]!r} instead of {one[different]!r}"
            )
    if len(again.messages) < len(recorded.messages):
        raise SessionError(
            f"session {recorded.session!r} ends earlier now: message "
            f"{recorded.messages[len(again.messages)].id} is not said"
        )


def _plain(message: BaseMessage) -> dict[str, Any]:
    return {"id": message.id, "text": message.text, **line(message).model_dump(mode="json")}


def answers(conversation: Conversation, log: Sequence[AnyMessage]) -> Iterator[Reply]:
    """Give the answers of models that a log records, as a script.

    Args:
        conversation: The spec the log belongs to.
        log: Messages of the log, oldest first.

    Yields:
        One reply for each call of a model; an error where a model refused a prompt as too long.
    """
    waiting = False
    for message in log:
        about = line(message)
        if about.kind in (Kind.SPEECH, Kind.TOOL_CALLS) and waiting:
            # What hooks made of the answer before.
            waiting = False
            continue
        if isinstance(message, AIMessage):
            waiting = about.kind is Kind.ANSWER
        reply = _answer(conversation, message, about)
        if reply is not None:
            yield reply


def _answer(conversation: Conversation, message: AnyMessage, about: Line) -> Reply | None:
    match about.kind:
        case Kind.SPECIFIED_TASK:
            # A blank rewrite leaves the task as it was given.
            return Reply(text="" if message.text == conversation.task else message.text)
        case Kind.DRAFT | Kind.SPEECH | Kind.TOOL_CALLS | Kind.ANSWER:
            if not isinstance(message, AIMessage):
                # A draft of the task is nobody's.
                return Reply(text=message.text) if about.kind is Kind.DRAFT else None
            return _spoken(message) if about.source is Source.MODEL else None
        case Kind.REFLECTION:
            return Reply(text=_judged(conversation, message.text, about.verdict))
        case Kind.CHOICE if _is_asked(conversation):
            return Reply(text=message.text)
        case Kind.SUMMARY if about.problem is not None:
            return Reply(error=400, code="context_length_exceeded", message=about.problem)
        case Kind.SUMMARY:
            return Reply(text=message.text)
        case _:
            return None


def _spoken(message: AIMessage) -> Reply:
    calls = [
        ScriptedToolCall(name=call["name"], args=call["args"], id=str(call["id"]))
        for call in message.tool_calls
    ]
    broken = [
        ScriptedToolCall(name=str(call["name"]), args=str(call["args"]), id=str(call["id"]))
        for call in message.invalid_tool_calls
    ]
    return Reply(text=message.text, tool_calls=(*calls, *broken))


def _judged(conversation: Conversation, text: str, verdict: Verdict | None) -> str:
    """What the judge answered, in the form it was asked for."""
    judge = conversation.judge
    if verdict is None or not verdict.readable:
        return text
    if not isinstance(judge, SeparateJudge):
        left = list(verdict.objectives_left)
        answer: dict[str, object] = {"objectives_left": left, "complete": verdict.complete}
        return json.dumps(answer) if judge.form == "structured" else text
    found = [verdict.findings[criterion] for criterion in judge.criteria]
    numbered = list(enumerate(found, start=1))
    if judge.form == "lines":
        return "\n".join(f"{number}: {finding.in_words}" for number, finding in numbered)
    return json.dumps({f"criterion_{number}": finding.value for number, finding in numbered})


def _is_asked(conversation: Conversation) -> bool:
    """Whether a model is asked who speaks next; of two it is always the other."""
    return isinstance(conversation.turn_order, Moderator) and not conversation.is_pair
