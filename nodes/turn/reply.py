"""The sources of a speaker's reply: its hooks, then its `replies`, tried in order.

A model's reply is text, tool calls or JSON. A reply that was cut off is continued.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.config import get_stream_writer
from pydantic import BaseModel

from ...graphs.common.content import Content, describe_content, files_of, make_content, text_of
from ...graphs.common.errors import ModelError, SpecError
from ...graphs.conversation.conversation import inner_conversation, may_hand_off_privately
from ...graphs.conversation.judges import HAND_OFF, Concurrent, Handoff
from ...graphs.ends.end_chat import Reason
from ...graphs.log.heard_text import HeardText, join_texts, may_say_token
from ...graphs.log.marks import begins, length_of
from ...graphs.log.memory import list_heard, pending_answer, select_heard, talk_of
from ...graphs.log.messages import metadata, newest_calls, place_of, storable, storable_content
from ...graphs.log.metadata import Draft, HookVersion, ModelOutput, Source, Speech, UnheardReply
from ...graphs.log.transcript import format_line
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import Prompt
from ...graphs.rules.met_ends import is_out_of_budget
from ...graphs.rules.position import Phase
from ...graphs.speakers.formats import SchemaFormat
from ...graphs.speakers.replies import (
    AgentReply,
    AnyReply,
    CodeReply,
    ConversationReply,
    FunctionReply,
    ModelReply,
    TextReply,
)
from ...graphs.speakers.reply_parts import ALOUD
from ...graphs.speakers.speaker import SPEAKER_TEMPERATURE, Speaker
from ...graphs.text.words import join_parts
from ...tools.registry.functions import call
from ..models.listeners import Listener, Speaking, Tokens, take_out_to_user
from ..models.model import Model
from ..models.settings import CallSettings
from ..models.stops import with_stop
from ..models.tool_binding import (
    HandedOver,
    choose_offer,
    read_hand_over,
    read_hand_over_calls,
    read_transfers,
)
from .agents import InnerOutput, InnerRun, ask_agent, count_facts_now, run_inner
from .checks import ReplyCheck
from .hooks import DraftReply, copy_turn_view, has_reply_hooks, run_before_speaker, turn_of
from .log_writer import (
    audience_of,
    code_calls,
    is_call,
    join_outputs,
    read_pending,
    returns_directly,
)
from .long_histories import ask_speaker
from .node_context import NodeContext
from .prompt import build_prompt, callable_tools, is_thought_unopened, turn_additions


async def ask_for_reply(context: NodeContext) -> DraftReply:
    """Ask the speaker's model."""
    speaker = context.speaker
    model = await context.model(speaker.model)
    settings = context.session.call_settings.get(speaker.name)
    if settings is None:
        where = context.path_of("model_settings")
        settings = context.settings(where, speaker.model_settings, SPEAKER_TEMPERATURE)
        context.session.call_settings[speaker.name] = settings
    additions = turn_additions(context, model.adapter.prompting.small_model_prompt(speaker))
    form = speaker.format
    is_structured = isinstance(form, SchemaFormat) and form.form == "structured"
    schema = context.resources.registry.schema_of(speaker) if is_structured else None

    def ask() -> Awaitable[tuple[AIMessage, HandedOver]]:
        prompt = build_prompt(context, additions)
        if schema is not None:
            return _ask_for_structure(context, model, schema, prompt, settings)
        return _ask_for_text(context, model, prompt, settings)

    answer, handed = await ask_speaker(
        context,
        model,
        ask,
        additions,
        most=settings.values.get("max_tokens"),
        goes_on=speaker.on_length != "accept" and not context.position.cut_off,
    )
    return DraftReply(answer, Source.MODEL, handed=handed)


async def _ask_for_text(
    context: NodeContext, model: Model, prompt: list[BaseMessage], settings: CallSettings
) -> tuple[AIMessage, HandedOver]:
    """Ask for a message: text, tool calls, or a hand-over."""
    speaker = context.speaker
    offers = choose_offer(model.adapter.prompting, speaker.tool_calling)
    tools, choice = callable_tools(context, offers)
    continues = context.position.phase is Phase.CUT_OFF and speaker.on_length == "continue"
    purpose = _choose_purpose(context)

    def read(answer: AIMessage) -> AIMessage:
        if choice == "none":
            return answer
        heard = select_heard(context.conversation, context.log, speaker.name)
        return ReplyCheck(context.conversation, speaker, heard).take_written_calls(tools, answer)

    # JSON in the speaker's format is no call, so it is shown while it arrives.
    may_write = bool(tools) and not isinstance(speaker.format, SchemaFormat)
    listeners = _make_listeners(context, purpose, read if may_write else None)
    speaking = None
    if speaker.speaks_with_tool_calls and purpose is Speech:
        write = get_stream_writer()
        speaking = Speaking(lambda text: write({"speech": {"speaker": speaker.name, "text": text}}))
        listeners.append(speaking)
    answer = await model.answer(
        prompt,
        settings,
        purpose=purpose,
        speaker=speaker.name,
        # The rest of a message begins without a mark.
        marks=None if continues else speaker.marks,
        tools=tools,
        tool_choice=choice,
        tool_calling=speaker.tool_calling,
        listeners=listeners,
        private=_is_private(context),
    )
    if tools:
        answer = read(answer)
    if speaker.speaks_with_tool_calls:
        answer = take_out_to_user(answer, speaking)
    if not isinstance(context.conversation.turn_order, Handoff):
        return answer, HandedOver()
    return read_hand_over(read_transfers(context.conversation, speaker, answer))


def _make_listeners(
    context: NodeContext,
    purpose: type[ModelOutput],
    read: Callable[[AIMessage], AIMessage] | None = None,
) -> list[Listener]:
    """Return the listeners to an answer. They show a speech while it arrives, and nothing else.

    `read` takes calls out of the text of an answer. None if there are none.
    """
    if not context.resources.tokens:
        return []
    if purpose is not Speech:
        # The answer is streamed, too: a slow server that sends pieces does not time out as a silent
        # one does.
        return [Listener()]
    write, name = get_stream_writer(), context.turn.speaker

    def show(kind: str, text: str, answer: str) -> None:
        write({kind: {"speaker": name, "text": text, "answer": answer}})

    counts = context.turn.stage in ALOUD
    heard = partial(HeardText, context.conversation if counts else None, name)
    is_unopened = is_thought_unopened(context.log, name)
    has_calls = None if read is None else lambda text: is_call(read(AIMessage(text)))
    return [Tokens(show, heard, is_unopened=is_unopened, is_call=has_calls)]


def _is_private(context: NodeContext) -> bool:
    """Return whether streams of chat messages leave out the message while its model writes it.

    This applies if some speakers may not hear it, as far as is known in advance, or if clients
    would see a done token in it.
    """
    conversation, name = context.conversation, context.turn.speaker
    shows_token = context.resources.serves_clients and may_say_token(conversation, name)
    is_heard_by_some = audience_of(context, HandedOver()) is not None
    return is_heard_by_some or may_hand_off_privately(conversation) or shows_token


def _choose_purpose(context: NodeContext) -> type[ModelOutput]:
    """Return the kind of an answer: a speech, shown while it arrives, or an unheard reply."""
    if context.position.phase in (Phase.REJECTED, Phase.CUT_OFF, Phase.REQUESTED):
        # A second answer may repeat the request, be only a part, or be dropped for the first draft.
        # An answer in a round in which all speak at once waits for its speaker's turn.
        return UnheardReply
    speaker, conversation = context.speaker, context.conversation
    is_private = (
        context.turn.stage not in ALOUD
        or speaker.speaks_to is not None
        or may_hand_off_privately(conversation)
    )
    # A person who follows the stream must not see another speaker's private text.
    hides = is_private and any(
        one.human for one in conversation.speakers if one.name != speaker.name
    )
    return UnheardReply if hides or (context.hooks and has_reply_hooks(context.hooks)) else Speech


async def _ask_for_structure(
    context: NodeContext,
    model: Model,
    schema: type[BaseModel],
    prompt: list[BaseMessage],
    settings: CallSettings,
) -> tuple[AIMessage, HandedOver]:
    purpose = _choose_purpose(context)
    answer, _ = await model.answer_by_schema(
        prompt,
        schema,
        settings,
        purpose=purpose,
        instead=f'{context.path_of("format.form")} = "text"',
        speaker=context.turn.speaker,
        tool_calling=context.speaker.tool_calling,
        listeners=_make_listeners(context, purpose),
        private=_is_private(context),
    )
    return answer, HandedOver()


_REQUESTS = {"continue": prompts.CONTINUE_REPLY, "retry": prompts.SHORTEN_REPLY}


def continuation_request(context: NodeContext, text: str) -> Prompt | None:
    """Return the request for the rest of a cut-off reply, or for a shorter reply.

    None if the cut-off reply is accepted. There is only one such request in a turn.
    """
    if context.position.cut_off or not text.strip():
        return None
    return _REQUESTS.get(context.speaker.on_length)


def join_reply(context: NodeContext, answer: AIMessage) -> AIMessage:
    """Return the whole reply, joined from the cut-off one in the log and its continuation."""
    speaker, before = context.speaker, context.log[-1]
    if not answer.text.strip() and not is_call(answer):
        # There is no continuation, so the first part stays unchanged.
        about = metadata(before)
        stop = about.stop if isinstance(about, Draft) else None
        return with_stop(answer.model_copy(update={"content": before.text}), stop)
    if speaker.on_length == "continue":
        rest = _remove_repeated_mark(speaker, before.text, answer.text)
        whole = join_parts(before.text, rest, begins_word=rest != answer.text)
        return answer.model_copy(update={"content": whole})
    return answer


def _remove_repeated_mark(speaker: Speaker, first: str, rest: str) -> str:
    """Return the rest of a message without a mark that its first part already contains."""
    line = rest.lstrip().partition("\n")[0]
    if speaker.marks is None or rest.startswith(first):
        return rest
    for mark in speaker.marks.lines:
        if begins(line, mark) and any(begins(one, mark) for one in first.splitlines()):
            return rest.lstrip()[length_of(mark, line)[0] :].lstrip()
    return rest


async def reply_of(context: NodeContext, said_by_person: Content | None) -> DraftReply:
    """Return the reply of the speaker whose turn it is.

    In the middle of a turn it comes from the turn's calls or from the model. A turn's first reply
    is a person's, a hook's, or one from the speaker's sources.
    """
    match context.position.phase:
        case Phase.GIVEN:
            return _reply_by_calls(context)
        case Phase.REJECTED | Phase.CUT_OFF | Phase.RETURNED:
            return await ask_for_reply(context)
    text: str | None = None
    if context.hooks:
        turn = turn_of(context)
        changed, text = await run_before_speaker(context.hooks, turn)
        if changed.heard != turn.heard:
            log, name = context.heard_lines(), context.turn.speaker
            places = tuple(list_heard(log, name))
            heard = (message for message in log if place_of(message) in places)
            files = [block for message in heard for block in files_of(message.content)]
            version = HookVersion(audience=(name,), instead_of=places)
            context.add(make_content(changed.heard, files), version)
    if said_by_person is not None:
        return DraftReply(AIMessage(storable_content(said_by_person)), Source.HUMAN)
    if text is not None:
        return DraftReply(AIMessage(text), Source.HOOK)
    for reply in context.speaker.replies:
        # People were asked before.
        source = _SOURCES.get(type(reply))
        found = None if source is None else await source(context, reply)
        if found is not None:
            return found
    return DraftReply(AIMessage(""), Source.FUNCTION)


def _reply_by_calls(context: NodeContext) -> DraftReply:
    """Return the results of the newest calls, or their handoff, as the speaker's message."""
    output, calls = join_outputs(context.log), newest_calls(context.log)
    # The text beside the calls was heard with them.
    handed = read_hand_over_calls(calls.model_copy(update={"content": ""}))
    if not handed.to:
        return output
    tools = [call["name"] for call in calls.tool_calls if call["name"] != HAND_OFF]
    before = output.message.content if returns_directly(context, tools) else ""
    content = make_content(join_texts(text_of(before), [handed.text]), files_of(before))
    return DraftReply(AIMessage(content), Source.HANDOFF, handed=handed)


async def _reply_by_pending_answer(context: NodeContext) -> DraftReply:
    pending = pending_answer(context.conversation, context.log, context.turn.speaker)
    if pending is not None:
        return DraftReply(read_pending(pending), Source.MODEL)
    return await ask_for_reply(context)


def _reply_by_model(context: NodeContext, _: ModelReply) -> Awaitable[DraftReply]:
    if isinstance(context.conversation.turn_order, Concurrent):
        return _reply_by_pending_answer(context)
    return ask_for_reply(context)


async def _reply_by_code(context: NodeContext, _: CodeReply) -> DraftReply | None:
    message = code_calls(context)
    return None if message is None else DraftReply(message, Source.CODE)


def _reply_by_agent(context: NodeContext, reply: AgentReply) -> Awaitable[DraftReply]:
    view = copy_turn_view(context)
    if not reply.with_system_prompt:
        view = [one for one in view if one.type != "system"]
    return ask_agent(context, reply.name, view)


async def _reply_by_text(context: NodeContext, reply: TextReply) -> DraftReply | None:
    is_first = context.turn.stage in ALOUD and context.is_first_message_due(context.turn.speaker)
    if reply.once and not is_first:
        return None
    return DraftReply(AIMessage(reply.text), Source.TEXT)


async def _reply_by_function(context: NodeContext, reply: FunctionReply) -> DraftReply | None:
    function = context.resources.registry.function(reply.name)
    text = await call("function", reply.name, function, turn_of(context))
    if text is None:
        return None
    if not isinstance(text, str):
        kind = type(text).__name__
        raise SpecError(
            f"the function {reply.name!r} failed: it must return text or None, not {kind}"
        )
    return DraftReply(AIMessage(storable(text)), Source.FUNCTION)


async def _reply_by_conversation(context: NodeContext, reply: ConversationReply) -> DraftReply:
    inner = inner_conversation(reply)
    # The inner conversation begins with everything that the speaker has heard and said.
    said = talk_of(context.heard_lines(), context.turn.speaker)
    text: str | None
    if not said:
        text = None if inner.task else context.speaker.task or context.task
    elif len(said) == 1:
        text = describe_content(said[0].content)
    else:
        text = "\n\n".join(format_line(one.name, describe_content(one.content)) for one in said)
    found = await run_inner(context, inner, text)
    context.add_usage(found.usage)
    _check_output(context, found)
    context.add("", found.about)
    output = found.output or InnerOutput("", None)
    return DraftReply(AIMessage(storable(output.text)), Source.CONVERSATION, output.value)


_SOURCES: Final[Mapping[type[AnyReply], Callable[..., Awaitable[DraftReply | None]]]] = {
    TextReply: _reply_by_text,
    FunctionReply: _reply_by_function,
    AgentReply: _reply_by_agent,
    ConversationReply: _reply_by_conversation,
    CodeReply: _reply_by_code,
    ModelReply: _reply_by_model,
}
"""The function for each kind of reply but a person's. If it returns None, the next is tried."""


def _check_output(context: NodeContext, run: InnerRun) -> None:
    """Raise an error if an inner conversation has no output, and the outer one goes on.

    Raises:
        ModelError: It has ended without an output.
        Exception: It has failed.
    """
    if run.error is not None:
        raise run.error
    is_stopped = run.outcome is not None and run.outcome.reason is Reason.STOP_REQUESTED
    if run.output is not None or is_stopped:
        return
    if not is_out_of_budget(context.conversation, count_facts_now(context)):
        raise ModelError(
            f"the inner conversation of {context.turn.speaker!r} has ended without an output: "
            f"{run.outcome}"
        )
