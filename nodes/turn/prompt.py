"""The prompt of a speaker's model: for its turn, and rebuilt from the stored steps.

`graphs.rules.history` decides which older part of the history is left out or summarized. Within a
turn, a model receives its own reasoning again, because providers require it. After the turn no
reasoning is sent.
"""

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool

from ...graphs.common.content import join_content, replace_text
from ...graphs.conversation.conversation import has_hand_off_tool, restore_conversation
from ...graphs.conversation.usage import read_usage
from ...graphs.ends.call_guards import TURN_ERRORS
from ...graphs.log.memory import pending_answers
from ...graphs.log.messages import metadata
from ...graphs.log.metadata import Source, SpeakerReply, Stage, Summary, ToolCalls
from ...graphs.log.state import State, log_of
from ...graphs.log.viewpoint import drop_thoughts, order_messages
from ...graphs.prompts import prompts
from ...graphs.rules.history import PromptOverhead, shorten_messages
from ...graphs.rules.met_ends import is_answer_due
from ...graphs.rules.position import BETWEEN_TURNS, Phase, Position
from ...graphs.speakers.call_settings import RunningSummary, SmallModelPrompt, TokenBudget
from ...graphs.speakers.formats import SchemaFormat
from ...graphs.text.words import tokens_of, tokens_of_message
from ..models.adapters.families import find_prompting
from ..models.tool_binding import (
    ToolOffer,
    choose_offer,
    make_hand_off_tool,
    offered_tools,
    tokens_of_tools,
)
from .checks import rewrite_request
from .node_context import NodeContext, Resources
from .running_sessions import RunningSession


def is_thought_unopened(log: Sequence[BaseMessage], name: str) -> bool:
    """Return whether a speaker's model omitted the newest thought's opening tag."""
    lines = map(metadata, reversed(log))
    by_model = (
        one for one in lines if isinstance(one, SpeakerReply) and one.source is Source.MODEL
    )
    last = next((one for one in by_model if one.speaker == name), None)
    return last is not None and last.thought is not None and last.thought.is_unopened


def calls_of_turn(log: Sequence[BaseMessage], name: str | None) -> list[ToolCalls]:
    """Return the metadata of a speaker's messages with calls in this turn, the newest first."""
    turn = takewhile(lambda about: not about.ends_turn, map(metadata, reversed(log)))
    return [one for one in turn if isinstance(one, ToolCalls) and one.speaker == name]


class PromptAdditions(NamedTuple):
    """The parts of a turn's prompts that the log does not contain. They are never stored."""

    short: SmallModelPrompt | None = None
    """The short prompt that a small model receives. None if the model receives the usual one."""
    notice: str = ""
    """The notice that the end is near. It follows the newest message heard. Empty if there is none.
    """
    last: Sequence[BaseMessage] = ()
    """The last messages: a question, or the draft, if there is one, and the request for another
    reply."""


NO_ADDITIONS: Final = PromptAdditions()
"""The additions of a prompt that contains only the speaker's view."""


def prompt_overhead(context: NodeContext, additions: PromptAdditions) -> PromptOverhead:
    """Estimate the tokens of everything in a speaker's prompt that is not in the log.

    This builds the tools' schemas, which takes time.
    """
    speaker, short = context.speaker, additions.short
    front = _shown_messages(context, [], short)
    tools = tokens_of_tools(context.conversation, context.resources.registry, speaker)
    # The thoughts of this turn go back to the model.
    thoughts = sum(
        tokens_of(one.thought.text)
        for one in calls_of_turn(context.log, speaker.name)
        if one.thought is not None
    )
    reminded = short.reminder if short is not None else ""
    behind = [*([HumanMessage(additions.notice)] if additions.notice else []), *additions.last]
    return PromptOverhead(
        sum(map(tokens_of_message, front)) + tools + thoughts,
        tokens_of(prompts.fill_template(reminded, task=_given_task(context))),
        sum(map(tokens_of_message, behind)),
        tools + thoughts,
    )


def _prompt_limit(context: NodeContext) -> int | None:
    """Return the maximum number of tokens of the speaker's prompts, or None."""
    speaker = context.speaker
    set_by = speaker.context
    limit = set_by.limit if isinstance(set_by, TokenBudget | RunningSummary) else None
    for message in reversed(context.lines()):
        about = metadata(message)
        if isinstance(about, Summary) and about.speaker == speaker.name and about.limit is not None:
            return about.limit if limit is None else min(limit, about.limit)
        if about.ends_turn:
            break
    return limit


def _given_task(context: NodeContext) -> str:
    return context.conversation.task or context.speaker.task or ""


def _shown_messages(
    context: NodeContext, lines: Sequence[BaseMessage], short: SmallModelPrompt | None
) -> list[BaseMessage]:
    """Return the speaker's view of these messages, as a short prompt if its model needs one."""
    speaker = context.speaker
    schema = context.resources.registry.schema_of(speaker)
    system = context.conversation.system_prompt(speaker, context.task, schema)
    view = context.session.reader.view(lines, speaker.name, system, in_prompt=short is None)
    if short is None:
        return view
    given = _given_task(context)
    return _build_small_model_prompt(view, short, context.task or given, given)


def view_of(context: NodeContext, additions: PromptAdditions = NO_ADDITIONS) -> list[BaseMessage]:
    """Return the speaker's view of the log that its model receives.

    Its messages are shortened if a single turn is larger than the limit of the prompt.
    """
    limit = _prompt_limit(context)
    overhead = PromptOverhead(0) if limit is None else prompt_overhead(context, additions)
    kept = context.session.reader.history(context.turn.speaker).shorten(
        context.heard_lines(), overhead
    )
    view = order_messages(_shown_messages(context, kept.lines, additions.short))
    if limit is None:
        return view
    left = limit - overhead.outside - overhead.behind
    return shorten_messages(view, left, context.conversation.render_prompt)


def turn_additions(context: NodeContext, short: SmallModelPrompt | None) -> PromptAdditions:
    """Return the notice and the request that this turn's prompts contain."""
    retry: list[BaseMessage] = []
    if context.position.phase in (Phase.REJECTED, Phase.CUT_OFF):
        draft = context.log[-1]
        # A blank draft cannot be sent, and adds nothing to the request.
        retry = [AIMessage(draft.text)] if draft.text.strip() else []
        retry.append(HumanMessage(rewrite_request(context.conversation, metadata(draft))))
    elif context.position.phase is Phase.RETURNED:
        conversation, facts = context.conversation, context.position.facts
        counts = ((facts.count(one.reason), one.limit(conversation)) for one in TURN_ERRORS)
        # The next failure would end the conversation.
        count = max((count for count, limit in counts if count == limit - 1), default=0)
        if count > 0:
            request = conversation.render_prompt(prompts.FAILED_CALLS, count=count)
            retry.append(HumanMessage(request))
    return PromptAdditions(short, _make_end_notice(context), retry)


def _make_end_notice(context: NodeContext) -> str:
    conversation, position = context.conversation, context.position
    end_chat = conversation.end_chat
    if position.owed or is_answer_due(context):
        if not end_chat.announce_last_words:
            return ""
        notice = conversation.render_prompt(prompts.LAST_MESSAGE)
    else:
        if not end_chat.tell_rounds_left or context.turn.stage is not Stage.ROUNDS:
            return ""
        left = end_chat.rounds_left(context.rounds + 1)
        if left is None:
            return ""
        notice = conversation.render_prompt(prompts.ROUNDS_LEFT, count=left)
    return conversation.mark_instruction(context.speaker, notice)


def build_prompt(context: NodeContext, additions: PromptAdditions) -> list[BaseMessage]:
    """Return the prompt for the speaker's turn."""
    view = view_of(context, additions)
    if not view or isinstance(view[-1], SystemMessage | AIMessage):
        # The message to answer was removed. Many models refuse a prompt without a user message at
        # its end.
        has_spoken = bool(view) and isinstance(view[-1], AIMessage)
        cue = prompts.CONTINUE_CONVERSATION if has_spoken else prompts.BEGIN
        view = [*view, HumanMessage(context.conversation.render_prompt(cue))]
    if additions.notice:
        view = _add_notice(view, additions.notice)
    return order_messages([*view, *additions.last]) if additions.last else view


def _add_notice(view: Sequence[BaseMessage], notice: str) -> list[BaseMessage]:
    """Add text to the newest message heard, so that the turn's tool calls and results follow it."""
    places = (place for place, one in enumerate(view) if isinstance(one, HumanMessage))
    place = max(places, default=None)
    if place is None:
        return [*view, HumanMessage(notice)]
    heard = view[place]
    with_notice = HumanMessage(join_content(heard.content, notice), name=heard.name)
    return [*view[:place], with_notice, *view[place + 1 :]]


def _build_small_model_prompt(
    view: Sequence[BaseMessage], prompt: SmallModelPrompt, task: str, given: str
) -> list[BaseMessage]:
    """Return a speaker's view as a short prompt that a very small model can follow."""
    reminder = prompts.fill_template(prompt.reminder, task=given.rstrip(" .?!"))
    return [
        SystemMessage(prompts.fill_template(prompt.system_prompt, task=task)),
        *(
            HumanMessage(
                replace_text(message.content, f"{message.text}\n\n{reminder}"), name=message.name
            )
            if isinstance(message, HumanMessage)
            else message
            for message in view[1:]
        ),
    ]


def callable_tools(context: NodeContext, offers: type[ToolOffer]) -> tuple[list[BaseTool], str]:
    """Return the tools described to the speaker, and its tool choice."""
    speaker = context.speaker
    may_call = context.position.tool_rounds < context.conversation.max_tool_rounds
    are_described = bool(speaker.tools) and (may_call or offers.is_in_prompt)
    tools = offered_tools(context.resources.registry, speaker) if are_described else []
    choice = speaker.tool_choice if may_call else "none"
    if choice != "none" and context.position.tool_rounds > 0:
        # After a successful call, the model may answer with text, too.
        choice = "auto"
    conversation = context.conversation
    if not has_hand_off_tool(conversation, speaker) or context.turn.stage is not Stage.ROUNDS:
        return tools, choice
    hand_off = make_hand_off_tool(conversation, speaker)
    # A call that names the next speaker does not count as a tool round.
    return ([hand_off], "auto") if choice == "none" else ([*tools, hand_off], choice)


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
        log = _find_log_before_answer(before, after, name)
        if log is not None:
            return await _rebuild_prompt(before, after, log, resources, name)
    return None


def _find_log_before_answer(before: State, after: State, name: str) -> list[AnyMessage] | None:
    """Return the log before the answer of a speaker's model in a step, or None if there is none."""
    phase = Position.model_validate(before.get("position") or {}).phase
    if phase is Phase.ANSWERED:
        # This step used an answer from an earlier step.
        return None
    if phase in (*BETWEEN_TURNS, Phase.REQUESTED) and "spec" in before:
        waiting = pending_answers(restore_conversation(before["spec"]), log_of(before))
        if any(metadata(answer).speaker == name for answer in waiting):
            # The answer was requested together with those of other speakers.
            return None
    known, log = {message.id for message in log_of(before)}, log_of(after)
    for place, message in enumerate(log):
        about = metadata(message)
        by_model = isinstance(about, SpeakerReply) and about.source is Source.MODEL
        if message.id not in known and by_model and about.speaker == name:
            return log[:place]
    return None


async def _rebuild_prompt(
    before: State, after: State, log: list[AnyMessage], resources: Resources, name: str
) -> list[BaseMessage]:
    session = RunningSession(restore_conversation(before.get("spec") or after["spec"]))
    context = NodeContext.make(session, before, resources)
    if context.turn.speaker != name:
        # The answer was requested together with that of the speaker whose turn it was.
        context = context.begin_at_once(name)
    context.new.extend(log[len(context.log) :])
    # The model that answered is the one whose usage has grown.
    used, now = read_usage(before), read_usage(after)
    label = next((label for label in now if now[label] != used.get(label)), None)
    speaker = context.speaker
    prompting = find_prompting(speaker.model or context.conversation.model, label)
    offers = choose_offer(prompting, speaker.tool_calling)
    # A prompt with a limit is measured, with the schemas of its tools.
    needs_tools = offers.is_in_prompt or _prompt_limit(context) is not None
    if isinstance(speaker.format, SchemaFormat) or (speaker.tools and needs_tools):
        await resources.find(context.conversation)
    additions = turn_additions(context, prompting.small_model_prompt(speaker))
    prompt = drop_thoughts(build_prompt(context, additions))
    if not offers.is_in_prompt:
        return prompt
    return offers(*callable_tools(context, offers)).prompt(prompt, prompting)
