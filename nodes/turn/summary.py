"""Summing up, by a model, what is left out of a speaker's prompts.

What is to be summed up, and where the summary then stands, is said by
`graphs.rules.context.shortening`.
"""

from collections.abc import Sequence

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from ...graphs.common.errors import ContextTooLongError
from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import NOBODY, Summary
from ...graphs.log.viewpoint import SILENCE
from ...graphs.speakers.context import SUMMARY_TEMPERATURE, RunningSummary
from ...graphs.speakers.parts import ModelSettings
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.usage import Usage
from ...graphs.text.words import cut
from ..models.answers import thought_of
from ..prompts import summaries as prompts
from ..step.resources import Moment, notify
from .prompt import around


async def summed_up(moment: Moment, speaker: Speaker) -> tuple[AnyMessage, dict[str, Usage]] | None:
    """Sum up what does not fit into a speaker's prompts any more, by its context policy."""
    if not moment.conversation.sums_up(speaker):
        return None
    short = None
    if speaker.small_model_prompt is not None and speaker.has_model:
        # A short prompt takes other room.
        model = await moment.model(speaker.model)
        short = model.adapter.prompting.small_model_prompt(speaker)
    beside = around(moment, speaker, short)
    left_out = moment.reader.history(speaker.name).to_summarise(moment.log, beside)
    return None if left_out is None else await summarise(moment, speaker, *left_out)


async def summarise(
    moment: Moment, speaker: Speaker, lines: Sequence[BaseMessage], since: str
) -> tuple[AnyMessage, dict[str, Usage]]:
    """Have a model sum up what is left out of a speaker's prompts from now on.

    A model that refuses that as too long is given the newer half of it. A blank answer, and a
    single line that is too long, leave the summary as it was.
    """
    context = speaker.context
    assert isinstance(context, RunningSummary)  # noqa: S101  # no other policy has a summary
    model = await moment.model(context.model or speaker.model)
    old = moment.reader.history(speaker.name).last_summary(moment.log)
    before = old.text.strip() if old is not None else ""
    usage, text, answered = moment.usage, "", AIMessage("")
    read = list(lines)
    while read:
        try:
            answer = await model.answer(
                _prompt(moment, speaker, context, before, read),
                moment.settings(
                    moment.path_of(speaker, "context"),
                    ModelSettings(temperature=context.temperature),
                    SUMMARY_TEMPERATURE,
                ),
                purpose=Summary,
                speaker=speaker.name,
            )
        except ContextTooLongError as error:
            read = read[(len(read) + 1) // 2 :]
            left = "the older half of what was to be summed up is" if read else "all of it is"
            notify(f"{error}; {left} left out of the summary")
            continue
        usage, text = moment.with_call(model, answer), cut(answer.text.strip(), context.words)
        answered = answer
        break
    about = Summary(
        speaker=speaker.name,
        audience=NOBODY,
        since=since,
        thought=thought_of(answered),
    )
    return make_message(len(moment.log), text or before, about, answer=answered), usage


def _prompt(
    moment: Moment,
    speaker: Speaker,
    context: RunningSummary,
    before: str,
    lines: Sequence[BaseMessage],
) -> list[BaseMessage]:
    render_prompt = moment.conversation.render_prompt
    request = render_prompt(
        prompts.SUMMARY_REQUEST,
        me=speaker.name,
        before=before or render_prompt(prompts.NO_EARLIER_SUMMARY),
        transcript=transcript(lines, speaker.name),
        words=context.words,
    )
    return [
        SystemMessage(render_prompt(prompts.SUMMARY_ROLE, me=speaker.name)),
        HumanMessage(request),
    ]


def transcript(lines: Sequence[BaseMessage], name: str) -> str:
    """Write down what one speaker said and heard, its calls of tools and their results too."""
    return "\n\n".join(part for message in lines for part in _paragraphs(message, name))


def _paragraphs(message: BaseMessage, name: str) -> list[str]:
    about = metadata(message)
    text = message.text.strip()
    if isinstance(message, ToolMessage):
        return [f"(tool result) {text or SILENCE}"]
    if about.speaker is None:
        return [f"(to {name}) {text or SILENCE}"]
    # Others hear only the text beside a call.
    is_caller = about.speaker == name
    calls = message.tool_calls if is_caller and isinstance(message, AIMessage) else []
    called = [f"{name} called {call['name']}: {call['args']}" for call in calls]
    return [f"{about.speaker}: {text or SILENCE}", *called] if text or not called else called
