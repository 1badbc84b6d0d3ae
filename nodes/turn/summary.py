"""The summary of a speaker's history that is too long for its prompts."""

from collections.abc import Sequence

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
from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import NOBODY, Summary
from ...graphs.log.transcript import format_call, format_line, quote_text
from ...graphs.log.viewpoint import SILENCE
from ...graphs.prompts import prompts
from ...graphs.rules.shortened_messages import shorten_messages
from ...graphs.speakers.call_settings import SUMMARY_TEMPERATURE, ModelSettings, RunningSummary
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.words import cut
from ..models.answers import thought_of
from .node_context import NodeContext, notify
from .prompt import limit_after, prompt_overhead, select_heard


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
    log = select_heard(context, speaker, context.log)
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
    prompt = _summary_prompt(context, speaker, policy, before, read)
    refused: int | None = None
    while read:
        try:
            answer = await model.answer(prompt, settings, purpose=Summary, speaker=speaker.name)
        except ContextTooLongError as error:
            limit = limit_after(error, model.adapter.longest_answer, refused)
            if len(read) == 1 and limit is not None:
                refused = error.estimate or 0
                longer = _summary_prompt(context, speaker, policy, before, read)
                shorter = shorten_messages(longer, limit, context.conversation.render_prompt)
                # The same prompt would be refused again.
                if shorter != prompt:
                    prompt = shorter
                    continue
            read = read[(len(read) + 1) // 2 :]
            part = "the older half of the messages" if read else "all messages"
            notify(f"{error}; the summary leaves out {part}")
            prompt = _summary_prompt(context, speaker, policy, before, read)
            continue
        usage, text = context.with_call(model, answer), cut(answer.text.strip(), policy.words)
        break
    about = Summary(speaker=speaker.name, audience=NOBODY, since=since, thought=thought_of(answer))
    return make_message(len(context.log), text or before, about, answer=answer), usage


def _summary_prompt(
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
