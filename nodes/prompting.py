"""What a speaker's model is sent, and how it is asked when that turns out to be too long.

The older part of a history is left out by the speaker's context policy
(`duologue.graphs.shortening`); the log itself is never cut.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from duologue.graphs.errors import ContextTooLongError
from duologue.graphs.log import NOBODY, Kind, Line, line, said
from duologue.graphs.position import Event
from duologue.graphs.shortening import halved, last_summary, shortened
from duologue.graphs.speaker import Speaker
from duologue.graphs.tokens import fixed_tokens, tokens_of
from duologue.graphs.usage import Usage
from duologue.graphs.viewpoint import viewpoint
from duologue.nodes import prompts
from duologue.nodes.model import Model
from duologue.nodes.resources import Moment, notify
from duologue.nodes.to_user import with_to_user
from duologue.nodes.too_long import ran_out_of_room

T = TypeVar("T")


def system_of(moment: Moment, speaker: Speaker) -> str:
    """Give the system prompt of a speaker."""
    schema = moment.resources.registry.schema_of(speaker)
    return prompts.system_prompt(moment.conversation, speaker, moment.task, schema)


def offered(moment: Moment, speaker: Speaker) -> list[BaseTool]:
    """Give the tools that a speaker may call, as its model is told of them."""
    tools = moment.resources.registry.tools_of(speaker)
    return [with_to_user(tool) for tool in tools] if speaker.to_user else tools


def tokens_in_front(moment: Moment, speaker: Speaker) -> int:
    """Estimate the tokens of what stands in front of each prompt of a speaker."""
    schema = moment.resources.registry.schema_of(speaker)
    tools = (json.dumps(convert_to_openai_tool(tool)) for tool in offered(moment, speaker))
    fixed = fixed_tokens(moment.conversation, speaker, moment.task, schema)
    return fixed + sum(map(tokens_of, tools))


def view_of(
    moment: Moment, speaker: Speaker, log: Sequence[BaseMessage], *, small: bool = False
) -> list[BaseMessage]:
    """Give what a speaker sees when its model is asked.

    Args:
        moment: The session's state.
        speaker: Who is asked.
        log: Everything ever said, lines of this step included.
        small: Whether a very small model speaks.

    Returns:
        The speaker's viewpoint of what its context policy keeps.
    """
    conversation = moment.conversation
    kept = shortened(conversation, log, speaker.name, fixed=tokens_in_front(moment, speaker))
    view = viewpoint(conversation, kept.lines, speaker.name, system=system_of(moment, speaker))
    if small and speaker.brief is not None:
        task = conversation.task or speaker.task or ""
        view = prompts.briefly(view, speaker.brief, moment.task or task, task)
    return view


def prompt_of(
    moment: Moment, speaker: Speaker, log: Sequence[BaseMessage], *, small: bool
) -> list[BaseMessage]:
    """Give what is sent to the model for a speaker's turn.

    Args:
        moment: The session's state.
        speaker: Whose turn it is.
        log: Everything ever said, lines of this step included.
        small: Whether a very small model speaks.

    Returns:
        What the speaker sees; behind it the rejected draft and what was wrong with it, where the
        speaker is asked once more.
    """
    view = view_of(moment, speaker, log, small=small)
    if moment.position.event is not Event.REJECTED:
        return view
    draft = moment.log[-1]
    request = prompts.filled(prompts.MEND, problem=line(draft).problem)
    # A blank draft can't be sent, and says nothing that the request does not.
    if draft.text.strip():
        return [*view, AIMessage(draft.text), HumanMessage(request)]
    # Two turns in one role are refused, but a tool's answer must stay behind its call.
    if isinstance(view[-1], HumanMessage):
        return [*view[:-1], HumanMessage(f"{view[-1].text}\n\n{request}")]
    return [*view, HumanMessage(request)]


class Asked(NamedTuple, Generic[T]):
    """An answer, and what it took to get it."""

    answer: AIMessage
    """The answer."""
    found: T
    """What was read from it."""
    new: list[AnyMessage]
    """New lines of the log: those that stood there before it was asked, and the cuts."""
    usage: dict[str, Usage]
    """What was used so far."""


async def asked_of(
    moment: Moment,
    speaker: Speaker,
    model: Model,
    ask: Callable[[list[BaseMessage]], Awaitable[tuple[AIMessage, T]]],
    *,
    new: Sequence[AnyMessage] = (),
    most: object = None,
) -> Asked[T]:
    """Ask a speaker's model, with a shorter history where the whole one is too long for it.

    Each time the older half is left out, and stays so: the cut stands in the log.

    Args:
        moment: The session's state.
        speaker: Who is asked.
        model: The model.
        ask: Takes the log, makes a prompt of it, and asks.
        new: Lines of the log that this step adds.
        most: The longest answer, in tokens, where the call names it.

    Returns:
        The answer.

    Raises:
        ModelError: There was none; a `ContextTooLongError` where nothing more can be left out.
    """
    lines: list[AnyMessage] = [*moment.log, *new]
    usage, has_room = moment.usage, False
    while True:
        cut: AnyMessage | None
        try:
            answer, found = await ask([*lines])
        except ContextTooLongError:
            cut = _cut(moment, speaker, lines)
            if cut is None:
                raise
        else:
            usage = moment.with_call(usage, model, answer)
            limit = most if isinstance(most, int) else model.max_tokens
            # Once: an answer that is cut off again is cut off by a limit of the model's own.
            has_room = has_room or not ran_out_of_room(answer, limit)
            cut = None if has_room else _cut(moment, speaker, lines)
            if cut is None:
                return Asked(answer, found, lines[len(moment.log) :], usage)
            has_room = True
        lines.append(cut)
        notify(line(cut).problem or "")


def _cut(moment: Moment, speaker: Speaker, lines: Sequence[BaseMessage]) -> AnyMessage | None:
    """A line of the log that leaves the older half out. None: there is nothing to leave out."""
    fixed = tokens_in_front(moment, speaker)
    since = halved(moment.conversation, lines, speaker.name, fixed=fixed)
    if since is None:
        return None
    # What was summarised before stays known.
    before = last_summary(lines, speaker.name)
    about = Line(
        kind=Kind.SUMMARY,
        speaker=speaker.name,
        audience=NOBODY,
        since=since,
        problem=prompts.filled(prompts.SHORTENED, name=speaker.name),
    )
    return said(len(lines), before.text if before is not None else "", about)
