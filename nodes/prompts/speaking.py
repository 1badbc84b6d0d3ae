"""The prompts of a speaker: its system prompt, its cues, and requests to rewrite a reply."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from ...graphs.speakers.parts import SmallModelPrompt
from ...graphs.speakers.speaker import Speaker
from .formats import describe_format, is_format_described
from .template import RenderPrompt, fill_template as fill_template
from .texts import PROMPTS

CONVERSATION_TASK = PROMPTS["conversation_task"]
SPEAKER_TASK = PROMPTS["speaker_task"]
PARTICIPANT = PROMPTS["participant"]

SPEAKER_LABELS = PROMPTS["speaker_labels"]

MODERATOR_LABEL = PROMPTS["moderator_label"]
"""The mark of the conversation's own lines, if the other speaker's lines have no name."""

BEGIN = PROMPTS["begin"]
CONTINUE_CONVERSATION = PROMPTS["continue_conversation"]
YOUR_TURN = PROMPTS["your_turn"]

NEW_TASK = PROMPTS["new_task"]
RESTATE_TASK = PROMPTS["restate_task"]
"""The task of a speaker after its memory was reset."""

REWRITE_REPLY = PROMPTS["rewrite_reply"]
"""The request to rewrite a reply; the problem comes first."""

STOP_REPEATED_CALLS = PROMPTS["stop_repeated_calls"]
"""The request to a speaker that repeats a call; its problem is REPEATED_CALLS."""

EMPTY_REPLY = PROMPTS["empty_reply"]
WRONG_SPEAKER = PROMPTS["wrong_speaker"]
NO_CONTENT = PROMPTS["no_content"]
REPEATED_REPLY = PROMPTS["repeated_reply"]
ECHOED_REPLY = PROMPTS["echoed_reply"]
PREMATURE_END = PROMPTS["premature_end"]
REPEATED_CALLS = PROMPTS["repeated_calls"]

CONTINUE_REPLY = PROMPTS["continue_reply"]
SHORTEN_REPLY = PROMPTS["shorten_reply"]

LAST_MESSAGE = PROMPTS["last_message"]
ROUNDS_LEFT = PROMPTS["rounds_left"]


def build_system_prompt(
    speaker: Speaker,
    others: Sequence[str],
    task: str | None,
    schema: type[BaseModel] | None = None,
    *,
    render_prompt: RenderPrompt,
    is_labelled: bool,
    tells_own_task: bool,
) -> str:
    """Return the system prompt of one speaker."""
    if speaker.system_prompt is None:
        together = " and ".join(part for part in (", ".join(others[:-1]), others[-1]) if part)
        prompt = render_prompt(PARTICIPANT, me=speaker.name, others=together)
        if is_labelled:
            prompt = f"{prompt} {render_prompt(SPEAKER_LABELS)}"
    else:
        prompt = speaker.system_prompt
    parts = [prompt]
    if task is not None:
        if "{task}" in prompt:
            parts = [fill_template(prompt, task=task)]
        else:
            parts.append(render_prompt(CONVERSATION_TASK, task=task))
    if speaker.task is not None and tells_own_task:
        parts.append(render_prompt(SPEAKER_TASK, task=speaker.task))
    if speaker.format is not None and not is_format_described(speaker.format, prompt):
        parts.append(describe_format(speaker.format, schema))
    return "\n\n".join(parts)


def build_small_model_prompt(
    view: Sequence[BaseMessage], prompt: SmallModelPrompt, task: str, given: str
) -> list[BaseMessage]:
    """Return a speaker's view in the few words that a very small model can follow."""
    reminder = fill_template(prompt.reminder, task=given.rstrip(" .?!"))
    return [
        SystemMessage(fill_template(prompt.system_prompt, task=task)),
        *(
            HumanMessage(f"{message.text}\n\n{reminder}", name=message.name)
            if isinstance(message, HumanMessage)
            else message
            for message in view[1:]
        ),
    ]
