"""The prompt of a speaker's model, and the summary of a history that is too long.

`graphs.rules.history` decides which older part of the history is left out or summarized. The log
itself is never shortened. Within a turn, a model receives its own reasoning again, because
providers require it. After the turn no reasoning is sent.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from ...graphs.common.content import describe_content, join_content, replace_text
from ...graphs.common.errors import ContextTooLongError
from ...graphs.conversation.judges import Concurrent
from ...graphs.conversation.usage import Usage
from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import NOBODY, Source, SpeakerReply, Stage, Summary, Thought, ToolCalls
from ...graphs.log.transcript import format_call, format_line, quote_text
from ...graphs.log.viewpoint import SILENCE
from ...graphs.prompts import speaking as prompts, summaries
from ...graphs.prompts.summaries import SHORTENED
from ...graphs.rules.concurrent_rounds import heard_log
from ...graphs.rules.history import PromptOverhead
from ...graphs.rules.met_ends import is_answer_due
from ...graphs.rules.position import Phase
from ...graphs.speakers.context import SUMMARY_TEMPERATURE, RunningSummary, TokenBudget
from ...graphs.speakers.model_settings import ModelSettings, SmallModelPrompt
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.words import cut, tokens_of, tokens_of_message
from ..models.answers import ran_out_of_room, thought_of
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
    return sum(tokens_of(thought.text) for _, thought in _of_turn(log, name))


def _of_turn(log: Sequence[BaseMessage], name: str) -> Iterator[tuple[str | None, Thought]]:
    for message in reversed(log):
        about = metadata(message)
        if about.ends_turn:
            return
        if isinstance(about, ToolCalls) and about.speaker == name and about.thought is not None:
            yield message.id, about.thought


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
    """Estimate the tokens of everything in a speaker's prompt that is not in the log."""
    # This builds the tools' schemas, which takes time.
    if not isinstance(speaker.context, TokenBudget | RunningSummary):
        return PromptOverhead(0)
    front = _shown_messages(context, speaker, [], short)
    tools = tokens_of_tools(context.conversation, context.resources.registry, speaker)
    thoughts = tokens_of_thoughts(context.log, speaker.name)
    reminded = short.reminder if short is not None else ""
    return PromptOverhead(
        sum(map(tokens_of_message, front)) + tools + thoughts,
        tokens_of(prompts.fill_template(reminded, task=_given_task(context, speaker))),
        sum(map(tokens_of_message, behind)),
    )


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
    """Return the speaker's view of the log that its model receives."""
    overhead = prompt_overhead(context, speaker, short, behind=behind)
    log = select_heard(context, speaker, log)
    kept = context.reader.history(speaker.name).shortened(log, overhead)
    return _shown_messages(context, speaker, kept.lines, short)


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
    return append_question(view, instructions.retry)


def _with_notice(view: Sequence[BaseMessage], notice: str) -> list[BaseMessage]:
    """Add text to the newest message heard, so that the turn's tool calls and results follow it."""
    places = (place for place, one in enumerate(view) if isinstance(one, HumanMessage))
    place = max(places, default=None)
    if place is None:
        return [*view, HumanMessage(notice)]
    heard = view[place]
    with_notice = HumanMessage(join_content(heard.content, notice), name=heard.name)
    return [*view[:place], with_notice, *view[place + 1 :]]


def append_question(
    view: Sequence[BaseMessage], behind: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Append a question to a speaker's view.

    Two user messages in a row are joined, because providers refuse them.
    """
    both = [*view[-1:], *behind[:1]]
    if len(both) > 1 and all(isinstance(one, HumanMessage) for one in both):
        joined = HumanMessage(join_content(view[-1].content, behind[0].content))
        return [*view[:-1], joined, *behind[1:]]
    return [*view, *behind]


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
    """Ask a speaker's model. If its history is too long for the model, shorten it and ask again.

    Each time, the older half of the history is left out for good, and a log message records that.
    The same happens if an answer was cut off because the context was full. If the limit on answers
    is unknown, the context is only the likely cause; then the history is not shortened if a further
    answer continues the reply (`goes_on`).
    """
    lines: list[AnyMessage] = [*context.log, *new]
    usage, has_room = context.usage, False
    overhead = prompt_overhead(context, speaker, short, behind=behind)
    while True:
        cut: AnyMessage | None
        try:
            answer, found = await ask([*lines])
        except ContextTooLongError:
            cut = _cut(context, speaker, lines, overhead)
            if cut is None:
                raise
        else:
            usage = context.with_call(model, answer, usage)
            limit = most if isinstance(most, int) else model.adapter.longest_answer
            # Only once: a second cut-off answer was cut off by the model's own limit.
            is_guessed = goes_on and limit is None
            has_room = has_room or is_guessed or not ran_out_of_room(answer, limit)
            cut = None if has_room else _cut(context, speaker, lines, overhead)
            if cut is None:
                return ModelAnswer(answer, found, lines[len(context.log) :], usage)
            has_room = True
        lines.append(cut)
        about = metadata(cut)
        notify((about.problem if isinstance(about, Summary) else None) or "")


def _cut(
    context: NodeContext, speaker: Speaker, lines: Sequence[BaseMessage], overhead: PromptOverhead
) -> AnyMessage | None:
    """Return a log message that leaves out the older half, or None if nothing can be left out."""
    history = context.reader.history(speaker.name)
    since = history.halved(select_heard(context, speaker, lines), overhead)
    if since is None:
        return None
    # The earlier summary remains known.
    before = history.last_summary(lines)
    about = Summary(
        speaker=speaker.name,
        audience=NOBODY,
        since=since,
        problem=prompts.fill_template(SHORTENED, name=speaker.name),
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


async def summarize_left_out(
    context: NodeContext, speaker: Speaker
) -> tuple[AnyMessage, dict[str, Usage]] | None:
    """Summarize the messages that no longer fit into a speaker's prompts.

    None if the speaker's context policy requires no summary now.
    """
    if not context.conversation.sums_up(speaker):
        return None
    short = None
    if speaker.small_model_prompt is not None and speaker.has_model:
        # A short prompt needs less space.
        model = await context.model(speaker.model)
        short = model.adapter.prompting.small_model_prompt(speaker)
    overhead = prompt_overhead(context, speaker, short)
    log = select_heard(context, speaker, context.log)
    left_out = context.reader.history(speaker.name).to_summarise(log, overhead)
    return None if left_out is None else await summarize(context, speaker, *left_out)


async def summarize(
    context: NodeContext, speaker: Speaker, lines: Sequence[BaseMessage], since: str
) -> tuple[AnyMessage, dict[str, Usage]]:
    """Ask a model to summarize the messages that are left out of a speaker's prompts from now on.

    If a model refuses the request as too long, only the newer half is sent. If the answer is blank,
    or a single message is too long, the earlier summary stays.
    """
    policy = speaker.context
    assert isinstance(policy, RunningSummary)  # noqa: S101  # only this policy has a summary
    model = await context.model(policy.model or speaker.model)
    old = context.reader.history(speaker.name).last_summary(context.log)
    before = old.text.strip() if old is not None else ""
    usage, text, answered = context.usage, "", AIMessage("")
    read = list(lines)
    while read:
        try:
            answer = await model.answer(
                _summary_prompt(context, speaker, policy, before, read),
                context.settings(
                    context.path_of(speaker, "context"),
                    ModelSettings(temperature=policy.temperature),
                    SUMMARY_TEMPERATURE,
                ),
                purpose=Summary,
                speaker=speaker.name,
            )
        except ContextTooLongError as error:
            read = read[(len(read) + 1) // 2 :]
            part = "the older half of the messages" if read else "all messages"
            notify(f"{error}; the summary leaves out {part}")
            continue
        usage, text = context.with_call(model, answer), cut(answer.text.strip(), policy.words)
        answered = answer
        break
    about = Summary(
        speaker=speaker.name,
        audience=NOBODY,
        since=since,
        thought=thought_of(answered),
    )
    return make_message(len(context.log), text or before, about, answer=answered), usage


def _summary_prompt(
    context: NodeContext,
    speaker: Speaker,
    policy: RunningSummary,
    before: str,
    lines: Sequence[BaseMessage],
) -> list[BaseMessage]:
    render_prompt = context.conversation.render_prompt
    request = render_prompt(
        summaries.SUMMARY_REQUEST,
        me=speaker.name,
        before=before or render_prompt(summaries.NO_EARLIER_SUMMARY),
        transcript=transcript(lines, speaker.name),
        words=policy.words,
    )
    return [
        SystemMessage(render_prompt(summaries.SUMMARY_ROLE, me=speaker.name)),
        HumanMessage(request),
    ]


def transcript(lines: Sequence[BaseMessage], name: str) -> str:
    """Return the messages that a speaker sent and heard as text, with its calls and results."""
    return "\n\n".join(part for message in lines for part in _paragraphs(message, name))


def _paragraphs(message: BaseMessage, name: str) -> list[str]:
    about = metadata(message)
    text = describe_content(message.content).strip()
    if isinstance(message, ToolMessage):
        return [quote_text(f"(tool result) {text or SILENCE}")]
    if about.speaker is None:
        return [quote_text(f"(to {name}) {text or SILENCE}")]
    # Others hear the text of a calling message, but not the calls.
    is_caller = about.speaker == name
    calls = message.tool_calls if is_caller and isinstance(message, AIMessage) else []
    called = [format_call(name, call["name"], call["args"]) for call in calls]
    return [format_line(about.speaker, text), *called] if text or not called else called
