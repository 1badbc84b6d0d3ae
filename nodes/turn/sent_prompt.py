"""The prompt that was sent to a speaker's model, rebuilt from the stored steps."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from langchain_core.messages import AnyMessage, BaseMessage

from ...graphs.conversation.conversation import restore_conversation
from ...graphs.conversation.usage import read_usage
from ...graphs.log.memory import pending_answers
from ...graphs.log.messages import metadata
from ...graphs.log.metadata import Source, SpeakerReply
from ...graphs.log.state import State, log_of
from ...graphs.log.viewpoint import without_thoughts
from ...graphs.rules.position import BETWEEN_TURNS, Phase, Position
from ...graphs.speakers.formats import SchemaFormat
from ...graphs.speakers.speaker import Speaker
from ..models.adapters.base import Prompting
from ..models.adapters.families import prompting_of
from ..models.tool_binding import ToolOffer, offers_of
from .node_context import NodeContext, Resources
from .prompt import build_prompt, prompt_limit, turn_instructions
from .reply import callable_tools
from .running_sessions import RunningSession
from .speak import as_in


async def last_prompt(
    states: Sequence[State], resources: Resources, name: str
) -> list[BaseMessage] | None:
    """Return the newest prompt that was sent to a speaker's model, or None if there is none.

    Args:
        states: The state after each step, oldest first.
        resources: The resources of the graph.
        name: The speaker's name.
    """
    for before, after in reversed([*pairwise(states)]):
        log = _asked_with(before, after, name)
        if log is not None:
            return await _prompt(before, after, log, resources, name)
    return None


def _asked_with(before: State, after: State, name: str) -> list[AnyMessage] | None:
    """Return the log before the answer of a speaker's model in a step, or None if there is none."""
    phase = Position.model_validate(before.get("position") or {}).phase
    if phase is Phase.ANSWERED or _uses_pending(before, phase, name):
        # This step used an answer from an earlier step.
        return None
    known, log = {message.id for message in log_of(before)}, log_of(after)
    for place, message in enumerate(log):
        about = metadata(message)
        by_model = isinstance(about, SpeakerReply) and about.source is Source.MODEL
        if message.id not in known and by_model and about.speaker == name:
            return log[:place]
    return None


def _uses_pending(before: State, phase: Phase, name: str) -> bool:
    """Return whether a step begins a turn whose answer was requested together with others."""
    if phase not in (*BETWEEN_TURNS, Phase.REQUESTED) or "spec" not in before:
        return False
    conversation = restore_conversation(before["spec"])
    waiting = pending_answers(conversation, log_of(before))
    return any(metadata(answer).speaker == name for answer in waiting)


async def _prompt(
    before: State, after: State, log: list[AnyMessage], resources: Resources, name: str
) -> list[BaseMessage]:
    session = RunningSession(restore_conversation(before.get("spec") or after["spec"]))
    context = NodeContext(
        resources,
        session,
        session.position(before),
        log_of(before),
        read_usage(before),
        before.get("specified_task") or None,
    )
    prompting = _prompting(context, before, after, name)
    speaker = as_in(context.turn.stage, context.conversation.speaker(name))
    offers = offers_of(prompting, speaker.tool_calling)
    if _needs_registered(speaker, offers, is_limited=prompt_limit(speaker, log) is not None):
        await resources.find(context.conversation)
    short = prompting.small_model_prompt(speaker)
    prompt = without_thoughts(
        build_prompt(context, speaker, log, turn_instructions(context), short)
    )
    return offers.written_prompt(
        prompt, partial(callable_tools, context, speaker, offers), prompting
    )


def _prompting(context: NodeContext, before: State, after: State, name: str) -> Prompting:
    """Return the prompting rules of the model that answered: the one whose usage has grown."""
    used, now = read_usage(before), read_usage(after)
    label = next((label for label in now if now[label] != used.get(label)), None)
    called = context.conversation.speaker(name).model or context.conversation.model
    return prompting_of(called, label)


def _needs_registered(speaker: Speaker, offers: type[ToolOffer], *, is_limited: bool) -> bool:
    """Return whether a registered schema or tool is needed to build or measure the prompt."""
    tools = speaker.tools if is_limited else offers.described(speaker.tools)
    return isinstance(speaker.format, SchemaFormat) or bool(tools)
