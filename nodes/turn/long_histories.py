"""Histories that are too long for a model: calls that shorten them, and running summaries.

The log itself is never shortened.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from ...graphs.common.content import describe_content
from ...graphs.common.errors import ContextTooLongError
from ...graphs.log.messages import metadata
from ...graphs.log.metadata import NOBODY, Summary
from ...graphs.log.transcript import format_call, format_line, quote_text
from ...graphs.log.viewpoint import SILENCE
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import SHORTENED, SHORTENED_MESSAGES
from ...graphs.rules.history import PromptOverhead, shorten_messages
from ...graphs.speakers.call_settings import SUMMARY_TEMPERATURE, ModelSettings, RunningSummary
from ...graphs.text.words import cut
from ..models.answers import get_thought, ran_out_of_room
from ..models.model import Model
from .node_context import NodeContext, notify
from .prompt import PromptAdditions, prompt_overhead, view_of

T = TypeVar("T")

Ask: TypeAlias = Callable[[], Awaitable[tuple[AIMessage, T]]]
"""Calls a model. Returns its answer, and the value read from the answer."""


class Shortened(NamedTuple):
    """A prompt that was shortened."""

    notice: str = ""
    """A note for people about the messages that are left out. Empty if there are none."""
    is_limited: bool = False
    """Whether the messages that are left were shortened to a limit."""


async def ask_within_room(
    context: NodeContext,
    model: Model,
    ask: Ask[T],
    shorten: Callable[[int | None], Shortened | None],
    *,
    most: object = None,
    goes_on: bool = False,
) -> tuple[AIMessage, T]:
    """Ask a model. If the prompt is too long for it, shorten the prompt and ask again.

    The same happens if an answer was cut off because the context was full. If the limit on answers
    is unknown, the context is only the likely cause; then the prompt is not shortened if a further
    answer continues the reply (`goes_on`).

    Args:
        context: The context of the node.
        model: The model.
        ask: Calls the model.
        shorten: Shortens the prompt, if possible to this number of tokens. Returns None if that
            is not possible.
        most: Maximum number of tokens of the answer. The model's own limit if None.
        goes_on: Whether a further answer continues one that was cut off.
    """
    limit = most if isinstance(most, int) else model.adapter.longest_answer
    # If the limit on answers is unknown, a full context is only the likely cause.
    has_room = goes_on and limit is None
    refused: int | None = None
    while True:
        try:
            answer, found = await ask()
        except ContextTooLongError as error:
            shortened = shorten(limit_after(error, limit, refused))
            if shortened is None:
                raise
            if shortened.is_limited:
                refused = error.estimate or 0
        else:
            context.count_call(model, answer)
            # Only once: a second cut-off answer was cut off by the model's own limit.
            has_room = has_room or not ran_out_of_room(answer, limit)
            shortened = None if has_room else shorten(None)
            if shortened is None:
                return answer, found
            has_room = True
        if shortened.notice:
            notify(shortened.notice)


def ask_speaker(
    context: NodeContext,
    model: Model,
    ask: Ask[T],
    additions: PromptAdditions,
    *,
    most: object = None,
    goes_on: bool = False,
) -> Awaitable[tuple[AIMessage, T]]:
    """Ask the speaker's model. See `ask_within_room`.

    If a prompt is too long, the older half of the history is left out for good, and a log message
    records that. If the newest turn alone is too long, its messages are shortened in prompts until
    it ends.
    """

    def shorten(limit: int | None) -> Shortened | None:
        before = view_of(context, additions)
        cut = _cut_history(context, prompt_overhead(context, additions), limit)
        if cut is None:
            return None
        if before == view_of(context, additions):
            # The same prompt would have the same answer.
            context.new.pop()
            return None
        return Shortened(cut.problem or "", is_limited=cut.limit is not None)

    return ask_within_room(context, model, ask, shorten, most=most, goes_on=goes_on)


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
    context: NodeContext, overhead: PromptOverhead, limit: int | None
) -> Summary | None:
    """Add a log message that leaves out the older half. Return None if nothing can be left out.

    If that is not enough, the message limits the tokens of the prompts until the turn ends. No
    limit if None.
    """
    name = context.turn.speaker
    history, heard = context.session.reader.history(name), context.heard_lines()
    since = None if limit is None else history.cut_to_newest(heard, overhead, limit)
    if since is None and (halved := history.halve(heard, overhead)) is not None:
        since, limit = halved, None
    if since is None and limit is not None:
        since = history.find_first_kept(heard, overhead)
    if since is None:
        return None
    # The earlier summary remains known.
    before = history.last_summary(context.lines())
    problem = prompts.fill_template(SHORTENED if limit is None else SHORTENED_MESSAGES, name=name)
    about = Summary(speaker=name, audience=NOBODY, since=since, limit=limit, problem=problem)
    context.add(before.text if before is not None else "", about)
    return about


async def summarize_left_out(context: NodeContext) -> bool:
    """Summarize the messages that no longer fit into the speaker's prompts.

    The speaker's context policy is a running summary. Return whether there were such messages.
    """
    speaker, short = context.speaker, None
    if speaker.small_model_prompt is not None and speaker.has_model:
        # A short prompt needs less space.
        model = await context.model(speaker.model)
        short = model.adapter.prompting.small_model_prompt(speaker)
    overhead = prompt_overhead(context, PromptAdditions(short))
    left_out = context.session.reader.history(speaker.name).to_summarise(
        context.heard_lines(), overhead
    )
    if left_out is not None:
        await summarize(context, *left_out)
    return left_out is not None


async def summarize(context: NodeContext, lines: Sequence[BaseMessage], since: str) -> None:
    """Ask a model to summarize the messages that are left out of the speaker's prompts from now on.

    If a model refuses the request as too long, only the newer half is sent. If the answer is blank,
    the earlier summary stays. A single message that is too long is shortened.
    """
    speaker = context.speaker
    policy = speaker.context
    assert isinstance(policy, RunningSummary)  # noqa: S101  # only this policy has a summary
    model = await context.model(policy.model or speaker.model)
    settings = context.settings(
        context.path_of("context"),
        ModelSettings(temperature=policy.temperature),
        SUMMARY_TEMPERATURE,
    )
    old = context.session.reader.history(speaker.name).last_summary(context.log)
    before = old.text.strip() if old is not None else ""
    text, answer, read = "", AIMessage(""), [*lines]
    render_prompt = context.conversation.render_prompt

    def build_prompt() -> list[BaseMessage]:
        # The speaker has read large messages shortened, too.
        shown = shorten_messages(read, policy.limit, render_prompt)
        request = render_prompt(
            prompts.SUMMARY_REQUEST,
            me=speaker.name,
            before=before or render_prompt(prompts.NO_EARLIER_SUMMARY),
            transcript=transcript(shown, speaker.name),
            words=policy.words,
        )
        role = render_prompt(prompts.SUMMARY_ROLE, me=speaker.name)
        return [SystemMessage(role), HumanMessage(request)]

    prompt = build_prompt()
    refused: int | None = None
    while read:
        try:
            answer = await model.answer(prompt, settings, purpose=Summary, speaker=speaker.name)
        except ContextTooLongError as error:
            limit = limit_after(error, model.adapter.longest_answer, refused)
            if len(read) == 1 and limit is not None:
                refused = error.estimate or 0
                shorter = shorten_messages(build_prompt(), limit, render_prompt)
                # The same prompt would be refused again.
                if shorter != prompt:
                    prompt = shorter
                    continue
            read = read[(len(read) + 1) // 2 :]
            part = "the older half of the messages" if read else "all messages"
            notify(f"{error}; the summary leaves out {part}")
            prompt = build_prompt()
            continue
        context.count_call(model, answer)
        text = cut(answer.text.strip(), policy.words)
        break
    about = Summary(speaker=speaker.name, audience=NOBODY, since=since, thought=get_thought(answer))
    context.add(text or before, about, answer)


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
