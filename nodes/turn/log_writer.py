"""The messages that a turn writes to the log: speeches, calls, results of tools and code.

In a round in which all speakers speak at once, the answers of models wait in the log for the turns
of their speakers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolMessage
from langchain_core.messages.tool import ToolCall
from pydantic import JsonValue

from ...graphs.common.content import files_of, make_content
from ...graphs.conversation.conversation import find_first_allowed, may_hand_off_privately
from ...graphs.conversation.judges import HAND_OFF
from ...graphs.log.memory import is_told, list_heard
from ...graphs.log.messages import (
    make_tool_message,
    metadata,
    newest_calls,
    parts_of_result,
    place_name,
    place_of,
    store_artifact,
)
from ...graphs.log.metadata import (
    NOBODY,
    CodeCalls,
    Failure,
    Flaw,
    PendingAnswer,
    Source,
    SpeakerReply,
    Stage,
    ToolCalls,
    ToolResult,
    UnheardReply,
    as_reply,
    content_of,
)
from ...graphs.log.parsing import code_blocks, languages_run, open_blocks, parse
from ...graphs.prompts.prompts import NO_OUTPUT, NOT_CLOSED, PRINTED_NOTHING
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import record_turn
from ...graphs.speakers.reply_parts import ALOUD, THOUGHT
from ...graphs.speakers.speaker import TO_USER, Speaker
from ..models.answers import get_thought
from ..models.listeners import texts_by_id
from ..models.stops import with_stop
from ..models.tool_binding import HandedOver
from .hooks import DraftReply, has_reply_hooks
from .node_context import NodeContext

CallsMade: TypeAlias = tuple[AIMessage, Sequence[ToolMessage]]
"""A message with tool calls, and the results of its calls."""


def audience_of(context: NodeContext, handed: HandedOver) -> tuple[str, ...] | None:
    """Return the speakers who hear the turn's message. None if all do."""
    conversation, turn = context.conversation, context.turn
    alone = turn.stage is Stage.PRIVATE or (
        turn.stage is Stage.OPENING and not conversation.opening.reconcile
    )
    if handed.private and may_hand_off_privately(conversation):
        # A private message to an unknown name stays private.
        return (find_first_allowed(conversation, turn.speaker, handed.to) or turn.speaker,)
    if alone:
        return (turn.speaker,)
    return context.speaker.speaks_to if turn.stage in ALOUD else None


def is_call(message: AIMessage) -> bool:
    """Return whether a message calls tools, or runs code."""
    return bool(message.tool_calls or message.invalid_tool_calls)


async def write_answer(
    context: NodeContext, message: AIMessage, about: SpeakerReply
) -> dict[str, Any]:
    """Write an accepted answer to the log: for everyone, or first only for the speaker's hooks."""
    if is_call(message):
        message, about = _renew_ids(message, about, context.log)
    sees = bool(message.text.strip()) or not is_call(message)
    if sees and context.hooks and has_reply_hooks(context.hooks):
        unheard = as_reply(UnheardReply, about, audience=NOBODY)
        context.add(message.content, unheard, message, with_calls=True)
        return await context.pause(Phase.ANSWERED)
    return await write_message(context, message, about)


def _renew_ids(
    given: AIMessage, about: SpeakerReply, log: Sequence[BaseMessage]
) -> tuple[AIMessage, SpeakerReply]:
    """Return a message whose calls have new ids if needed, and its metadata."""
    ids = fresh_ids([given], log)
    calls = [{**call, "id": next(ids)} for call in given.tool_calls]
    invalid = [{**call, "id": next(ids)} for call in given.invalid_tool_calls]
    message = given.model_copy(update={"tool_calls": calls, "invalid_tool_calls": invalid})
    if about.source is not Source.MODEL:
        return message, about
    about = about.model_copy(update={"to_user": texts_by_id(message, message.tool_calls)})
    if about.thought is not None:
        both = zip(_list_calls(given), _list_calls(message), strict=True)
        new = {str(old["id"] or ""): str(call["id"]) for old, call in both}
        about = about.model_copy(update={"thought": about.thought.rename_calls(new)})
    return message, about


async def write_message(
    context: NodeContext, message: AIMessage, about: SpeakerReply
) -> dict[str, Any]:
    """Write the speaker's message or calls to the log."""
    if is_call(message):
        kind = CodeCalls if about.source is Source.CODE else ToolCalls
        context.add(message.content, as_reply(kind, about), message, with_calls=True)
        return await context.pause(Phase.CALLED)
    about = read_by_format(context, context.speaker, message.text, about)
    waiting = None
    if about.source is Source.HUMAN:
        waiting = context.find_waiting_message(context.turn.speaker)
    if waiting is not None:
        about = about.model_copy(update={"from_client": True})
    context.add(message.content, about, message, id=None if waiting is None else waiting.id)
    return await context.step(record_turn(context, context.turn))


def read_by_format(
    context: NodeContext, speaker: Speaker, text: str, about: SpeakerReply
) -> SpeakerReply:
    """Return the metadata of a message, read by its speaker's output format."""
    if speaker.format is None or about.source is Source.CODE:
        # The results of code have a different format, and are parsed already.
        return about
    # A reply that stopped early did not end with a stop text.
    stop = speaker.model_settings.stop if about.stop is None else ()
    schema = context.resources.registry.schema_of(speaker)
    found = parse(speaker.format, text, stop=stop, schema=schema, name=speaker.name)
    read: dict[str, object] = {"parsed": found.value}
    if found.problem is not None and about.source not in (Source.MODEL, Source.HUMAN):
        # A model's message was checked already, and people may ignore the format.
        read |= {"flaw": Flaw.FORM, "problem": found.problem}
    return about.model_copy(update=read)


def add_agent_calls(context: NodeContext, calls: Sequence[CallsMade]) -> None:
    """Add the calls that a user's own agent made before its reply to the log.

    Only the speaker sees them.
    """
    ids = fresh_ids([message for message, _ in calls], context.log)
    name = context.turn.speaker
    about = ToolCalls(speaker=name, audience=(name,), stage=context.turn.stage, source=Source.AGENT)
    for message, results in calls:
        new = {call["id"]: next(ids) for call in message.tool_calls}
        made = [{**call, "id": new[call["id"]]} for call in message.tool_calls]
        answer = message.model_copy(update={"tool_calls": made, "invalid_tool_calls": []})
        context.add(answer.content, about, answer, with_calls=True)
        for found in results:
            artifact, problem = store_artifact(found.name or "a tool", found.artifact)
            text, files = parts_of_result(found)
            result = ToolResult(
                speaker=name,
                audience=(name,),
                failure=Failure.TOOL if found.status == "error" else None,
                artifact_problem=problem,
            )
            kept: Any = {"files": files, "artifact": artifact, "id": found.id}
            place, call_id = context.next_place(), new[found.tool_call_id]
            context.new.append(make_tool_message(place, text, result, call_id, **kept))


def _list_calls(message: AIMessage) -> list[ToolCall | InvalidToolCall]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def fresh_ids(answers: Sequence[AIMessage], log: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield an id for each call of some answers. No other call in the log has the same id.

    Some servers send no ids, or restart them each turn, but results refer to calls by these ids.
    """
    seen = {
        call["id"]
        for message in log
        if isinstance(message, AIMessage)
        for call in _list_calls(message)
    }
    calls = (call for one in answers for call in _list_calls(one))
    for place, call in enumerate(calls):
        given = call["id"]
        call_id = given if given and given not in seen else f"{place_name(len(log))}-{place}"
        seen.add(call_id)
        yield call_id


def code_calls(context: NodeContext) -> AIMessage | None:
    """Return the code blocks of the newest message that the speaker hears, as calls to run."""
    log = context.lines()
    places = {*list_heard(log, context.turn.speaker)}
    heard = [message for message in log if place_of(message) in places]
    # The conversation's own instructions, such as a speaker's cue, do not count.
    said = [message for message in heard if not is_told(metadata(message))]
    # The output of code and tools is data: code in it is never run.
    newest = metadata(said[-1]) if said else None
    is_data = isinstance(newest, SpeakerReply) and newest.source in (Source.CODE, Source.TOOL)
    text = said[-1].text if said and not is_data else ""
    languages = languages_run(context.conversation, context.speaker)
    whole, parts = code_blocks(text, languages), open_blocks(text, languages)
    if not whole and not parts:
        return None
    return AIMessage(
        "",
        tool_calls=[ToolCall(name=one.language, args={"code": one.code}, id=None) for one in whole],
        invalid_tool_calls=[
            InvalidToolCall(
                type="invalid_tool_call",
                name=one.language,
                args=one.code,
                id=None,
                error=NOT_CLOSED,
            )
            for one in parts
        ],
    )


def returns_directly(context: NodeContext, names: Iterable[str]) -> bool:
    """Return whether the results of these tools are the speaker's message."""
    tools = (context.resources.registry.tool(name) for name in names)
    are_direct = all(tool is not None and tool.return_direct for tool in tools)
    return context.speaker.return_direct or are_direct


def join_outputs(log: Sequence[BaseMessage]) -> DraftReply:
    """Return the results of the newest calls, as the speaker's message."""
    message = newest_calls(log)
    # If hooks have changed a result, the changed result is the newer message.
    newest = {one.tool_call_id: one for one in log if isinstance(one, ToolMessage)}
    asked = [
        newest.get(str(call["id"])) for call in _list_calls(message) if call["name"] != HAND_OFF
    ]
    results = [one for one in asked if one is not None]
    if not isinstance(metadata(message), CodeCalls):
        text = "\n\n".join(one.text for one in results if one.text.strip())
        files = [block for one in results for block in files_of(one.content)]
        return DraftReply(AIMessage(make_content(text, files)), Source.TOOL)
    codes = [
        exit_code_of(content_of(metadata(one)), failed=one.status == "error")
        for one in reversed(results)
    ]
    exit_code = next(filter(None, codes), 0)
    outputs = [one.text for one in results]
    how, nothing = ("it failed", NO_OUTPUT) if exit_code else ("it succeeded", PRINTED_NOTHING)
    shown = "\n".join(text.strip("\n") for text in outputs if text.strip()) or nothing
    report = f"Exit code: {exit_code} ({how})\nOutput:\n{shown}"
    if left := len(asked) - len(results):
        blocks = "block was" if left == 1 else "blocks were"
        report += f"\n{left} more {blocks} not run because of this failure."
    parsed: JsonValue = {"exit_code": exit_code, "outputs": [*outputs]}
    return DraftReply(AIMessage(report), Source.CODE, parsed)


def exit_code_of(parsed: JsonValue, *, failed: bool) -> int:
    """Return the exit code of a code block.

    If a hook's result contains no exit code, it is 1 for a failure and 0 otherwise.
    """
    code = parsed.get("exit_code") if isinstance(parsed, dict) else None
    return code if isinstance(code, int) else int(failed)


def add_pending(context: NodeContext, answer: AIMessage) -> None:
    """Add an answer to the log, which stores it until its speaker's turn comes."""
    about = PendingAnswer(
        speaker=context.turn.speaker,
        audience=NOBODY,
        source=Source.MODEL,
        # Whole, because the model may receive it again while its calls run.
        thought=get_thought(answer, goes_back=True),
        to_user=texts_by_id(answer, answer.tool_calls),
    )
    context.add(answer.text, about, answer, with_calls=True)


def read_pending(message: AIMessage) -> AIMessage:
    """Return the answer that a log message stores, as the model returned it."""
    about = metadata(message)
    assert isinstance(about, PendingAnswer)  # noqa: S101  # the caller has found it by its kind
    extra: dict[str, Any] = {} if about.thought is None else {THOUGHT: about.thought}
    if about.to_user:
        extra[TO_USER] = [about.to_user.get(str(call["id"])) for call in message.tool_calls]
    answer = AIMessage(
        message.text,
        additional_kwargs=extra,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
    )
    return with_stop(answer, about.stop)
