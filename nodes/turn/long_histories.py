"""Histories that are too long for a model: calls that shorten them, and running summaries.

The log itself is never shortened.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from ...graphs.common.content import describe_content
from ...graphs.common.errors import ContextTooLongError
from ...graphs.conversation.usage import Usage
from ...graphs.log.memory import select_heard
from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import NOBODY, Summary
from ...graphs.log.transcript import format_call, format_line, quote_text
from ...graphs.log.viewpoint import SILENCE
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import SHORTENED, SHORTENED_MESSAGES
from ...graphs.rules.history import PromptOverhead, shorten_messages
from ...graphs.speakers.call_settings import (
    SUMMARY_TEMPERATURE,
    ModelSettings,
    RunningSummary,
    SmallModelPrompt,
)
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.words import cut
from ..models.answers import get_thought, ran_out_of_room
from ..models.model import Model
from .node_context import NodeContext, notify
from .prompt import prompt_overhead, view_of

T = TypeVar("T")


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
        return _cut_history(context, speaker, lines, overhead, prompt_limit)

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
            usage = context.add_call_usage(model, answer, usage)
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


def _cut_history(
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
    heard = select_heard(context.conversation, lines, speaker.name)
    since = None if limit is None else history.cut_to_newest(heard, overhead, limit)
    if since is None and (halved := history.halve(heard, overhead)) is not None:
        since, limit = halved, None
    if since is None and limit is not None:
        since = history.find_first_kept(heard, overhead)
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


async def summarize_left_out(
    context: NodeContext, speaker: Speaker
) -> tuple[AnyMessage, dict[str, Usage]] | None:
    """Summarize the messages that no longer fit into a speaker's prompts. None if all of them fit.

    The speaker's context policy is a running summary.
    """
    short = None
    if speaker.small_model_prompt is not None and speaker.has_model:
        # A short prompt needs less space.
        model = await context.model(speaker.model)
        short = model.adapter.prompting.small_model_prompt(speaker)
    overhead = prompt_overhead(context, speaker, short)
    log = select_heard(context.conversation, context.log, speaker.name)
    left_out = context.reader.history(speaker.name).to_summarise(log, overhead)
    return None if left_out is None else await summarize(context, speaker, *left_out)


async def summarize(
    context: NodeContext, speaker: Speaker, lines: Sequence[BaseMessage], since: str
) -> tuple[AnyMessage, dict[str, Usage]]:
    """Ask a model to summarize the messages that are left out of a speaker's prompts from now on.

    If a model refuses the request as too long, only the newer half is sent. If the answer is blank,
    the earlier summary stays. A single message that is too long is shortened.
    """
    policy = speaker.context
    assert isinstance(policy, RunningSummary)  # noqa: S101  # only this policy has a summary
    model = await context.model(policy.model or speaker.model)
    settings = context.settings(
        context.path_of(speaker, "context"),
        ModelSettings(temperature=policy.temperature),
        SUMMARY_TEMPERATURE,
    )
    old = context.reader.history(speaker.name).last_summary(context.log)
    before = old.text.strip() if old is not None else ""
    usage, text, answer = context.usage, "", AIMessage("")
    read: list[BaseMessage] = [*lines]
    prompt = _build_summary_prompt(context, speaker, policy, before, read)
    refused: int | None = None
    while read:
        try:
            answer = await model.answer(prompt, settings, purpose=Summary, speaker=speaker.name)
        except ContextTooLongError as error:
            limit = limit_after(error, model.adapter.longest_answer, refused)
            if len(read) == 1 and limit is not None:
                refused = error.estimate or 0
                longer = _build_summary_prompt(context, speaker, policy, before, read)
                shorter = shorten_messages(longer, limit, context.conversation.render_prompt)
                # The same prompt would be refused again.
                if shorter != prompt:
                    prompt = shorter
                    continue
            read = read[(len(read) + 1) // 2 :]
            part = "the older half of the messages" if read else "all messages"
            notify(f"{error}; the summary leaves out {part}")
            prompt = _build_summary_prompt(context, speaker, policy, before, read)
            continue
        usage, text = context.add_call_usage(model, answer), cut(answer.text.strip(), policy.words)
        break
    about = Summary(speaker=speaker.name, audience=NOBODY, since=since, thought=get_thought(answer))
    return make_message(len(context.log), text or before, about, answer=answer), usage


def _build_summary_prompt(
    context: NodeContext,
    speaker: Speaker,
    policy: RunningSummary,
    before: str,
    lines: Sequence[BaseMessage],
) -> list[BaseMessage]:
    render_prompt = context.conversation.render_prompt
    request = render_prompt(
        prompts.SUMMARY_REQUEST,
        me=speaker.name,
        before=before or render_prompt(prompts.NO_EARLIER_SUMMARY),
        # The speaker has read large messages shortened, too.
        transcript=transcript(shorten_messages(lines, policy.limit, render_prompt), speaker.name),
        words=policy.words,
    )
    return [
        SystemMessage(render_prompt(prompts.SUMMARY_ROLE, me=speaker.name)),
        HumanMessage(request),
    ]


def transcript(lines: Sequence[BaseMessage], name: str) -> str:
    """Return the messages that a speaker sent and heard as text, with its calls and results."""
    return "\n\n".join(part for message in lines for part in _format_message(message, name))


def _format_message(message: BaseMessage, name: str) -> list[str]:
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
