"""The prompt of a speaker's model, and the call that shortens a prompt that is too long.

`graphs.rules.history` decides which older part of the history is left out or summarized. The log
itself is never shortened. Within a turn, a model receives its own reasoning again, because
providers require it. After the turn no reasoning is sent.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Generic, NamedTuple, TypeVar

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)

from ...graphs.common.content import join_content, replace_text
from ...graphs.common.errors import ContextTooLongError
from ...graphs.conversation.judges import Concurrent
from ...graphs.conversation.usage import Usage
from ...graphs.log.memory import heard_log
from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import (
    NOBODY,
    Source,
    SpeakerReply,
    Stage,
    Summary,
    ToolCalls,
)
from ...graphs.log.viewpoint import order_messages
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import SHORTENED, SHORTENED_MESSAGES
from ...graphs.rules.history import PromptOverhead
from ...graphs.rules.met_ends import is_answer_due
from ...graphs.rules.position import Phase
from ...graphs.rules.shortened_messages import shorten_messages
from ...graphs.speakers.call_settings import RunningSummary, SmallModelPrompt, TokenBudget
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.words import tokens_of, tokens_of_message
from ..models.answers import ran_out_of_room
from ..models.model import Model
from ..models.tool_binding import tokens_of_tools
from .checks import rewrite_request
from .node_context import NodeContext, notify


def leaves_unopened(log: Sequence[BaseMessage], name: str) -> bool:
    """Return whether a speaker's model omitted the newest thought's opening tag."""
    lines = map(metadata, reversed(log))
    by_model = (
        one for one in lines if isinstance(one, SpeakerReply) and one.source is Source.MODEL
    )
    last = next((one for one in by_model if one.speaker == name), None)
    return last is not None and last.thought is not None and last.thought.is_unopened


def tokens_of_thoughts(log: Sequence[BaseMessage], name: str) -> int:
    """Estimate the tokens of the thoughts that go back to the model in this turn."""
    thoughts = (one.thought for one in calls_of_turn(log, name))
    return sum(tokens_of(thought.text) for thought in thoughts if thought is not None)


def calls_of_turn(log: Sequence[BaseMessage], name: str | None) -> list[ToolCalls]:
    """Return the metadata of a speaker's messages with calls in this turn, the newest first."""
    turn = takewhile(lambda about: not about.ends_turn, map(metadata, reversed(log)))
    return [one for one in turn if isinstance(one, ToolCalls) and one.speaker == name]


T = TypeVar("T")


def system_of(context: NodeContext, speaker: Speaker) -> str:
    """Return a speaker's system prompt."""
    schema = context.resources.registry.schema_of(speaker)
    return context.conversation.system_prompt(speaker, context.task, schema)


def prompt_overhead(
    context: NodeContext,
    speaker: Speaker,
    short: SmallModelPrompt | None = None,
    *,
    behind: Sequence[BaseMessage] = (),
) -> PromptOverhead:
    """Estimate the tokens of everything in a speaker's prompt that is not in the log.

    This builds the tools' schemas, which takes time.
    """
    front = _shown_messages(context, speaker, [], short)
    tools = tokens_of_tools(context.conversation, context.resources.registry, speaker)
    thoughts = tokens_of_thoughts(context.log, speaker.name)
    reminded = short.reminder if short is not None else ""
    return PromptOverhead(
        sum(map(tokens_of_message, front)) + tools + thoughts,
        tokens_of(prompts.fill_template(reminded, task=_given_task(context, speaker))),
        sum(map(tokens_of_message, behind)),
        tools + thoughts,
    )


def prompt_limit(speaker: Speaker, log: Sequence[BaseMessage]) -> int | None:
    """Return the maximum number of tokens of a speaker's prompts, or None."""
    set_by = speaker.context
    limit = set_by.limit if isinstance(set_by, TokenBudget | RunningSummary) else None
    for message in reversed(log):
        about = metadata(message)
        if isinstance(about, Summary) and about.speaker == speaker.name and about.limit is not None:
            return about.limit if limit is None else min(limit, about.limit)
        if about.ends_turn:
            break
    return limit


def _given_task(context: NodeContext, speaker: Speaker) -> str:
    return context.conversation.task or speaker.task or ""


def _shown_messages(
    context: NodeContext,
    speaker: Speaker,
    lines: Sequence[BaseMessage],
    short: SmallModelPrompt | None,
) -> list[BaseMessage]:
    """Return a speaker's view of these messages, as a short prompt if its model needs one."""
    system = system_of(context, speaker)
    view = context.reader.view(lines, speaker.name, system, in_prompt=short is None)
    if short is None:
        return view
    given = _given_task(context, speaker)
    return _build_small_model_prompt(view, short, context.task or given, given)


def select_heard(
    context: NodeContext, speaker: Speaker, log: Sequence[BaseMessage]
) -> Sequence[BaseMessage]:
    """Return the part of the log that a speaker hears in this turn: all of it, if in turn."""
    if isinstance(context.conversation.turn_order, Concurrent):
        return heard_log(context.conversation, log, speaker.name)
    return log


def view_of(
    context: NodeContext,
    speaker: Speaker,
    log: Sequence[BaseMessage],
    short: SmallModelPrompt | None = None,
    *,
    behind: Sequence[BaseMessage] = (),
) -> list[BaseMessage]:
    """Return the speaker's view of the log that its model receives.

    Its messages are shortened if a single turn is larger than the limit of the prompt.
    """
    limit = prompt_limit(speaker, log)
    overhead = PromptOverhead(0)
    if limit is not None:
        overhead = prompt_overhead(context, speaker, short, behind=behind)
    log = select_heard(context, speaker, log)
    kept = context.reader.history(speaker.name).shortened(log, overhead)
    view = order_messages(_shown_messages(context, speaker, kept.lines, short))
    if limit is None:
        return view
    left = limit - overhead.outside - overhead.behind
    return shorten_messages(view, left, context.conversation.render_prompt)


class TurnInstructions(NamedTuple):
    """The instructions added to this turn's prompts. They are never stored."""

    notice: str
    """The notice that the end is near. It follows the newest message heard. Empty if there is none.
    """
    retry: list[BaseMessage]
    """The last messages if the model is asked once more: the draft and the request to rewrite it.
    """

    @property
    def messages(self) -> list[BaseMessage]:
        """All instructions, to estimate their length."""
        return [*([HumanMessage(self.notice)] if self.notice else []), *self.retry]


def turn_instructions(context: NodeContext) -> TurnInstructions:
    """Return the instructions added to this turn's prompts. They are never stored."""
    return TurnInstructions(_end_notice(context), _retry_messages(context))


def _retry_messages(context: NodeContext) -> list[BaseMessage]:
    """Return the draft and the request to rewrite it, if the model is asked once more."""
    if context.position.phase not in (Phase.REJECTED, Phase.CUT_OFF):
        return []
    draft = context.log[-1]
    request = HumanMessage(rewrite_request(context.conversation, metadata(draft)))
    # A blank draft cannot be sent, and adds nothing to the request.
    return [AIMessage(draft.text), request] if draft.text.strip() else [request]


def _end_notice(context: NodeContext) -> str:
    conversation, position = context.conversation, context.position
    end_chat = conversation.end_chat
    if position.owed or is_answer_due(conversation, position):
        if not end_chat.announce_last_words:
            return ""
        notice = conversation.render_prompt(prompts.LAST_MESSAGE)
    else:
        left = end_chat.rounds_left(position.rounds(conversation) + 1)
        if not end_chat.tell_rounds_left or left is None or context.turn.stage is not Stage.ROUNDS:
            return ""
        notice = conversation.render_prompt(prompts.ROUNDS_LEFT, count=left)
    return conversation.mark_instruction(conversation.speaker(context.turn.speaker), notice)


def build_prompt(
    context: NodeContext,
    speaker: Speaker,
    log: Sequence[BaseMessage],
    instructions: TurnInstructions,
    short: SmallModelPrompt | None,
) -> list[BaseMessage]:
    """Return the prompt for a speaker's turn."""
    view = view_of(context, speaker, log, short, behind=instructions.messages)
    if not view or isinstance(view[-1], SystemMessage | AIMessage):
        # The message to answer was removed. Many models refuse a prompt without a user message at
        # its end.
        has_spoken = bool(view) and isinstance(view[-1], AIMessage)
        cue = prompts.CONTINUE_CONVERSATION if has_spoken else prompts.BEGIN
        view = [*view, HumanMessage(context.conversation.render_prompt(cue))]
    if instructions.notice:
        view = _with_notice(view, instructions.notice)
    return order_messages([*view, *instructions.retry]) if instructions.retry else view


def _with_notice(view: Sequence[BaseMessage], notice: str) -> list[BaseMessage]:
    """Add text to the newest message heard, so that the turn's tool calls and results follow it."""
    places = (place for place, one in enumerate(view) if isinstance(one, HumanMessage))
    place = max(places, default=None)
    if place is None:
        return [*view, HumanMessage(notice)]
    heard = view[place]
    with_notice = HumanMessage(join_content(heard.content, notice), name=heard.name)
    return [*view[:place], with_notice, *view[place + 1 :]]


class ModelAnswer(NamedTuple, Generic[T]):
    """A model's answer, with the log messages and the usage that it caused."""

    answer: AIMessage
    """The answer."""
    found: T
    """The value read from the answer."""
    new: list[AnyMessage]
    """The new messages of the log, including notes about shortened histories."""
    usage: dict[str, Usage]
    """The usage so far."""


async def ask_model(
    context: NodeContext,
    speaker: Speaker,
    model: Model,
    ask: Callable[[list[BaseMessage]], Awaitable[tuple[AIMessage, T]]],
    *,
    new: Sequence[AnyMessage] = (),
    most: object = None,
    short: SmallModelPrompt | None = None,
    behind: Sequence[BaseMessage] = (),
    goes_on: bool = False,
) -> ModelAnswer[T]:
    """Ask a speaker's model. If its prompt is too long for the model, shorten it and ask again.

    Each time, the older half of the history is left out for good, and a log message records that.
    The same happens if an answer was cut off because the context was full. If the limit on answers
    is unknown, the context is only the likely cause; then the history is not shortened if a further
    answer continues the reply (`goes_on`).

    If the newest turn alone is too long, its messages are shortened in prompts until it ends.
    """
    lines: list[AnyMessage] = [*context.log, *new]
    usage, has_room = context.usage, False
    refused: int | None = None
    limit = most if isinstance(most, int) else model.adapter.longest_answer

    def leave_out(prompt_limit: int | None) -> AnyMessage | None:
        overhead = prompt_overhead(context, speaker, short, behind=behind)
        return _cut(context, speaker, lines, overhead, prompt_limit)

    def show(log: Sequence[BaseMessage]) -> list[BaseMessage]:
        return view_of(context, speaker, log, short, behind=behind)

    while True:
        cut: AnyMessage | None
        try:
            answer, found = await ask([*lines])
        except ContextTooLongError as error:
            cut = leave_out(limit_after(error, limit, refused))
            # The same prompt would be refused again.
            if cut is None or show(lines) == show([*lines, cut]):
                raise
            about = metadata(cut)
            if isinstance(about, Summary) and about.limit is not None:
                refused = error.estimate or 0
        else:
            usage = context.with_call(model, answer, usage)
            # Only once: a second cut-off answer was cut off by the model's own limit.
            is_guessed = goes_on and limit is None
            has_room = has_room or is_guessed or not ran_out_of_room(answer, limit)
            cut = None if has_room else leave_out(None)
            if cut is None:
                return ModelAnswer(answer, found, lines[len(context.log) :], usage)
            has_room = True
        lines.append(cut)
        about = metadata(cut)
        notify((about.problem if isinstance(about, Summary) else None) or "")


def limit_after(
    error: ContextTooLongError, longest_answer: int | None, refused: int | None
) -> int | None:
    """Return the estimated tokens of a prompt that a model accepts after it refused a longer one.

    Half of the refused prompt if the model named no limit. None if that is not known, either, or if
    the prompt was shortened and is not shorter than the one refused before.

    Args:
        error: The refusal.
        longest_answer: Maximum number of tokens of the answer. None if unknown.
        refused: Estimated tokens of the prompt that was refused before it was shortened. None if
            it was not shortened yet.
    """
    if refused is not None and (error.estimate or 0) >= refused:
        return None
    if error.limit is None or error.estimate is None:
        return error.limit if error.estimate is None else error.estimate // 2
    answer = min(longest_answer or error.limit // 8, error.limit // 2)
    # The model may count more or fewer tokens than the estimate.
    ratio = error.estimate / error.prompt_tokens if error.prompt_tokens else 1
    return min(int((error.limit - answer) * ratio), error.estimate * 3 // 4)


def _cut(
    context: NodeContext,
    speaker: Speaker,
    lines: Sequence[BaseMessage],
    overhead: PromptOverhead,
    limit: int | None,
) -> AnyMessage | None:
    """Return a log message that leaves out the older half, or None if nothing can be left out.

    If that is not enough, the message limits the tokens of the prompts until the turn ends. No
    limit if None.
    """
    history = context.reader.history(speaker.name)
    heard = select_heard(context, speaker, lines)
    since = None if limit is None else history.without_older(heard, overhead, limit)
    if since is None and (halved := history.halved(heard, overhead)) is not None:
        since, limit = halved, None
    if since is None and limit is not None:
        since = history.first_kept(heard, overhead)
    if since is None:
        return None
    # The earlier summary remains known.
    before = history.last_summary(lines)
    text = SHORTENED if limit is None else SHORTENED_MESSAGES
    about = Summary(
        speaker=speaker.name,
        audience=NOBODY,
        since=since,
        limit=limit,
        problem=prompts.fill_template(text, name=speaker.name),
    )
    return make_message(len(lines), before.text if before is not None else "", about)


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
