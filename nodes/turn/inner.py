"""Inner conversations: a conversation as the source of a speaker's replies, or as a tool.

An inner conversation runs as a subgraph of the session. Its steps are stored with the session's
steps, so after a kill only the call in flight is repeated, and its questions are questions of the
session. When it has ended, the session's log contains its whole log.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langgraph.errors import GraphBubbleUp
from pydantic_core import to_json

from ...graphs.common.content import describe_content
from ...graphs.common.errors import (
    AnswerError,
    DuologueError,
    ModelError,
    PausedError,
    StoreError,
)
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.served import first_argument
from ...graphs.conversation.usage import Usage, add_models, dump_usage, read_usage
from ...graphs.ends.all_ends import Reason
from ...graphs.ends.facts import Facts
from ...graphs.log.artifacts import count_spoken, dump_log
from ...graphs.log.memory import talk_of
from ...graphs.log.messages import make_message
from ...graphs.log.metadata import NOBODY, InnerSession
from ...graphs.log.state import State, log_of
from ...graphs.log.transcript import format_line
from ...graphs.rules.log_counter import with_usage
from ...graphs.rules.met_ends import is_out_of_budget, limit_inner
from ...graphs.rules.outcome import Outcome, find_output, output_text, output_value
from ...graphs.rules.position import max_steps
from ...graphs.speakers.speaker import Speaker
from ...tools.sandbox import sandbox
from .agents import for_loop
from .node_context import NodeContext
from .prompt import select_heard
from .running_sessions import RunningSessions, runs_in_threads


class InnerOutput(NamedTuple):
    """The output of an inner conversation."""

    text: str
    """The output as text."""
    value: Any
    """The output as plain values. None if it is only text."""


class InnerRun(NamedTuple):
    """An inner conversation that has ended or failed."""

    about: InnerSession
    """Its record for the outer log."""
    usage: dict[str, Usage]
    """Its usage, by model."""
    output: InnerOutput | None
    """Its output. None if it has none."""
    outcome: Outcome | None
    """Its outcome. None if it has failed."""
    error: Exception | None = None
    """The error by which it has failed. None if it has ended."""

    def line(self, number: int) -> AnyMessage:
        """Return the message of the outer log that contains the record."""
        return make_message(number, "", self.about)

    def added_to(self, usage: dict[str, Usage]) -> dict[str, Usage]:
        """Return the usage by model with the usage of the inner conversation added."""
        return add_models(usage, self.usage)


INNER_STATE: Final = (
    *("spec", "specified_task", "messages", "unspoken", "usage", "outcome", "interpreter"),
)
"""The channels of the inner graph's state that are read."""


async def run_inner(
    context: NodeContext,
    speaker: Speaker,
    inner: Conversation,
    text: str | None,
    call_id: str | None = None,
    seconds: float | None = None,
) -> InnerRun:
    """Run or resume an inner conversation.

    Args:
        context: The context of the outer node.
        speaker: The speaker that replies by the conversation, or has called it.
        inner: The conversation.
        text: Its task, or its person's first message. If None, it has its own task, and its person
            is asked for the first message.
        call_id: The id of the tool call that runs it. None if it replies for the speaker.
        seconds: The maximum running time in seconds. No limit if None.

    Raises:
        GraphBubbleUp: It waits for a person.
        AnswerError: The answer of a person does not fit, and the question stays open.
        PausedError: A batch is paused.
        StoreError: The store can't be read or written.
    """
    given = input_of_inner(inner, text)
    values: State = {}
    error: Exception | None = None
    try:
        async with (
            asyncio.timeout(seconds) as limit,
            aclosing(_stream(context, inner, given)) as states,
        ):
            async for found in states:
                values = found
    except TimeoutError:
        if not limit.expired():
            raise
        error = DuologueError(f"it took longer than {seconds:g} s and was stopped")
    except (GraphBubbleUp, AnswerError, PausedError, StoreError):
        raise
    except Exception as raised:
        # Objects that users pass, such as chat models, may raise any error.
        error = raised
    await close_inner(values)
    return _read_run(speaker, inner, values, call_id, error)


def input_of_inner(inner: Conversation, text: str | None) -> dict[str, Any]:
    """Return the input of the inner graph: the conversation, with a task or a first message."""
    if text is None:
        return {"conversation": inner.stored()}
    if first_argument(inner) == "message":
        return {"conversation": inner.stored(), "messages": [HumanMessage(text)]}
    return {"conversation": inner.model_copy(update={"task": text}).stored()}


async def _stream(
    context: NodeContext, inner: Conversation, given: dict[str, Any]
) -> AsyncGenerator[State, None]:
    """Yield the state of the inner graph after each step."""
    compile_inner = context.resources.compile_inner
    assert compile_inner is not None  # noqa: S101  # `graphs.build` sets it
    facts = facts_now(context, context.usage)
    speaker = context.turn.speaker
    limit = partial(limit_inner, outer=context.conversation, facts=facts, speaker=speaker)
    graph = compile_inner(
        replace(
            context.resources,
            form=None,
            progress=None,
            tokens=False,
            running=RunningSessions(limit=limit),
            is_inner=True,
        )
    )
    config = merge_configs(ensure_config(), RunnableConfig(recursion_limit=max_steps(inner)))
    config = for_loop(config) if runs_in_threads() else config
    stream = graph.astream(given, config, stream_mode="values", output_keys=[*INNER_STATE])
    async with aclosing(cast("AsyncGenerator[State, None]", stream)) as states:
        async for found in states:
            yield found


async def close_inner(values: State) -> None:
    """Close the interpreter of an inner conversation that has ended, and delete its files."""
    kept = values.get("interpreter")
    if kept:
        await sandbox.close(kept["key"])


def facts_now(context: NodeContext, usage: dict[str, Usage]) -> Facts:
    """Return the counts of a session, with its usage and the seconds up to now."""
    before, speaker = context.position.facts, context.turn.speaker
    facts = with_usage(before, usage.values(), before, speaker)
    seconds = facts.seconds + time.monotonic() - context.began
    return facts.model_copy(update={"seconds": seconds})


def _read_run(
    speaker: Speaker,
    inner: Conversation,
    values: State,
    call_id: str | None,
    error: Exception | None,
) -> InnerRun:
    log, usage = log_of(values), read_usage(values)
    ended = values.get("outcome")
    outcome = Outcome.model_validate(ended) if ended else None
    output = read_output(inner, log) if error is None else None
    end = str(outcome) if error is None else f"it failed: {describe_error(error)}"
    count = count_spoken(log)
    of = f"{count} {'message' if count == 1 else 'messages'}"
    about = InnerSession(
        speaker=speaker.name,
        audience=NOBODY,
        summary=f"{of}: {end}",
        conversation=values.get("spec") or inner.stored(),
        specified_task=values.get("specified_task") or None,
        log=dump_log(log),
        outcome=ended or None,
        usage=dump_usage(usage),
        call_id=call_id,
    )
    return InnerRun(about, usage, output, outcome, error)


def read_output(inner: Conversation, log: Sequence[AnyMessage]) -> InnerOutput | None:
    """Return the output of an inner conversation, or None if it has none."""
    message = find_output(inner, log)
    if message is None:
        return None
    value, text = output_value(inner, message), output_text(inner, message)
    if value is None or isinstance(value, str):
        return InnerOutput(text, None)
    return InnerOutput(text if text.strip() else to_json(value).decode(), value)


def describe_error(error: Exception) -> str:
    """Return the text of an error. If the error is not duologue's, its type comes first."""
    is_ours = isinstance(error, DuologueError)
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def task_of_inner(
    context: NodeContext, speaker: Speaker, new: Sequence[BaseMessage], inner: Conversation
) -> str | None:
    """Return the text with which the inner conversation of a speaker's reply begins.

    It is everything that the speaker has heard and said, with a description of each file. None if
    that is nothing, and the inner conversation has its own task.
    """
    heard = select_heard(context, speaker, [*context.log, *new])
    said = talk_of(heard, speaker.name)
    if not said:
        return None if inner.task else speaker.task or context.task
    if len(said) == 1:
        return describe_content(said[0].content)
    return "\n\n".join(format_line(one.name, describe_content(one.content)) for one in said)


def check_output(context: NodeContext, name: str, run: InnerRun) -> None:
    """Raise an error if an inner conversation has no output, and the outer one goes on.

    Raises:
        ModelError: It has ended without an output.
        Exception: It has failed.
    """
    if run.error is not None:
        raise run.error
    if run.output is not None or has_outer_end(context, run):
        return
    raise ModelError(
        f"the inner conversation of {name!r} has ended without an output: {run.outcome}"
    )


def has_outer_end(context: NodeContext, run: InnerRun) -> bool:
    """Return whether the outer conversation ends now, so that it needs no output."""
    is_stopped = run.outcome is not None and run.outcome.reason is Reason.STOP_REQUESTED
    facts = facts_now(context, run.added_to(context.usage))
    return is_stopped or is_out_of_budget(context.conversation, facts)
