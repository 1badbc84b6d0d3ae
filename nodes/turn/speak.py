"""One speaker's turn, and the answers of all speakers of a round who speak at once.

A turn runs in this order: hooks, the speaker's view of the log, model, check of the reply, hooks,
log. Each model call is a separate step of the graph, and so are the hooks after it. Therefore a
recorded answer is never requested again after a kill or a hook's failure. The answers of a round of
speakers at once are recorded as tasks of one node. They wait in the log until the turns of their
speakers, which check them and add them to the conversation in order.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from ...graphs.common.content import Content, replace_text
from ...graphs.conversation.judges import Concurrent
from ...graphs.conversation.usage import dump_usage, read_usage
from ...graphs.log.memory import pending_answer, select_heard
from ...graphs.log.messages import KEY, PLACE, metadata, stored_form
from ...graphs.log.metadata import (
    NOBODY,
    Draft,
    Flaw,
    OpeningAnswer,
    Source,
    SpeakerReply,
    Speech,
    Stage,
    UnheardReply,
    as_reply,
)
from ...graphs.log.state import State, take_back, update_of
from ...graphs.rules.log_counter import with_usage
from ...graphs.rules.position import BETWEEN_TURNS, Leaving, Phase
from ...graphs.rules.transitions import Node, forget_verdicts, position_after_removals, record_pause
from ...graphs.rules.turns import Checked, Problem, Worth, better, worth_of
from ...graphs.speakers.replies import ModelReply, TextReply
from ...graphs.speakers.reply_parts import ALOUD
from ...graphs.speakers.speaker import Speaker
from ..models.answers import get_thought
from ..models.stops import stop_of, with_refusal
from ..models.tool_binding import HandedOver
from .checks import ReplyCheck, check_repeated_calls
from .hooks import DraftReply, run_after_speaker, turn_of
from .interrupt import ask_for_message
from .log_writer import (
    add_pending,
    audience_of,
    is_call,
    read_by_format,
    write_answer,
    write_message,
)
from .long_histories import summarize_left_out
from .node_context import NodeContext, Resources, adapt_to_stage
from .prompt import calls_of_turn
from .reply import ask_for_reply, continuation_request, join_reply, reply_of
from .running_sessions import record_as_task

Reply = TypeVar("Reply", bound=SpeakerReply)


async def speak(state: State, resources: Resources) -> dict[str, Any]:
    """Run a step of the current speaker's turn: a message, tool calls, or the work before them."""
    context = await NodeContext.read(state, resources)
    if edited := context.session.find_edited():
        return await _reread_edited(context, edited)
    if (repaired := await context.repair_position()) is not None:
        return repaired
    phase = context.position.phase
    if phase is Phase.ANSWERED:
        return await _run_later_hooks(context)
    person: Content | None = None
    if phase in BETWEEN_TURNS:
        # The first effect of the node, which runs again when there is an answer.
        found = await ask_for_message(context)
        if isinstance(found, Leaving):
            return await context.leave(found)
        if found == "":
            return await context.pause(Phase.PASSED)
        person = found
    if person is None and phase in (*BETWEEN_TURNS, Phase.PASSED):
        if context.conversation.sums_up(context.speaker) and await summarize_left_out(context):
            return await context.pause(Phase.SUMMARISED)
        if names := _list_concurrent(context):
            return await _ask_all(context, names)
    return await _reply(context, await reply_of(context, person))


async def _reply(context: NodeContext, given: DraftReply) -> dict[str, Any]:
    """Write a reply to the log as a message, as calls, or as a draft."""
    position, turn, message = context.position, context.turn, given.message
    if position.phase is Phase.CUT_OFF:
        message = join_reply(context, message)
    stop = stop_of(message) if given.source is Source.MODEL else None
    if stop is not None:
        message = with_refusal(message)
    calls = is_call(message)
    about = Speech(
        speaker=turn.speaker,
        audience=audience_of(context, given.handed),
        stage=turn.stage,
        source=given.source,
        parsed=given.parsed,
        thought=get_thought(message, goes_back=calls or bool(given.handed.to)),
        stop=stop,
        handed_to=given.handed.to,
        private=given.handed.private,
    )
    if given.source is Source.CODE and calls:
        about = about.model_copy(update={"audience": NOBODY})
        return await write_answer(context, message, about)
    if calls and position.tool_rounds < context.conversation.max_tool_rounds:
        problem = None
        if given.source is Source.MODEL and not position.asked_again:
            tallies = context.session.reader.tallies(context.log)
            problem = check_repeated_calls(context.conversation, message, tallies)
        if problem is None:
            return await write_answer(context, message, about)
        return await _write_draft(context, message, _with_problem(about, problem), Phase.REJECTED)
    if given.source is Source.MODEL:
        return await _check_and_write(context, message, about)
    return await write_answer(context, _with_text(message, str(message.text)), about)


async def _check_and_write(
    context: NodeContext, answer: AIMessage, about: Speech
) -> dict[str, Any]:
    """Write a text of the speaker's model to the log, or the better one of two drafts."""
    position, stop, text = context.position, about.stop, str(answer.text)
    if not (text.strip() or about.cut_off or about.handed_to):
        text, about = _take_sent_text(context.log, about, text)
    more = continuation_request(context, text) if stop and stop.is_of_length else None
    if more is not None:
        about = about.model_copy(update={"problem": context.conversation.render_prompt(more)})
        return await _write_draft(context, answer, about, Phase.CUT_OFF)
    found = _check(context, text, context.log, about)
    # Another request would not change why the reply is blank.
    is_lasting = stop is not None and stop.is_lasting and not found.text.strip()
    if found.problem is not None and not position.asked_again and not is_lasting:
        about = _with_problem(about, found.problem)
        return await _write_draft(context, answer, about, Phase.REJECTED)
    if position.asked_again and worth_of(found) is not Worth.GOOD:
        found = second = _check_with_mark(context, text, context.log, about)
        if (place := _find_draft(context.log)) is not None:
            # The draft is checked as if it were the turn's message.
            draft, before = context.log[place], context.log[:place]
            then = _read_reply_metadata(draft)
            found = better(_check_with_mark(context, draft.text, before, then), second)
        if found is not second:
            rejected = _with_problem(about, second.problem)
            context.add(text, as_reply(UnheardReply, rejected, audience=NOBODY), answer)
            audience = audience_of(context, HandedOver(then.handed_to, then.private))
            kept = {name: getattr(then, name) for name in _OF_DRAFT}
            about = about.model_copy(update={**kept, "audience": audience})
            answer = AIMessage("")
    if found.problem is not None:
        about = _with_problem(about, found.problem)
    return await write_answer(context, _with_text(answer, found.text), about)


_OF_DRAFT: Final = ("thought", "stop", "handed_to", "private")
"""The metadata that a message keeps if it is the turn's rejected first draft."""


def _with_text(answer: AIMessage, text: str) -> AIMessage:
    """Return an answer with another text and without calls."""
    is_text = isinstance(answer.content, str)
    content = text if is_text else replace_text(answer.content, text)
    if content == answer.content and not is_call(answer):
        return answer
    no_calls: dict[str, list[Any]] = {"tool_calls": [], "invalid_tool_calls": []}
    return answer.model_copy(update={"content": content, **no_calls})


def _take_sent_text(log: Sequence[BaseMessage], reply: Speech, text: str) -> tuple[str, Speech]:
    """Return the text that calls of this turn have sent, in place of a blank reply."""
    sent: dict[str, str] = {}
    for about in calls_of_turn(log, reply.speaker):
        sent = {**about.to_user, **sent}
    return "\n\n".join(sent.values()) or text, reply.model_copy(update={"to_user": sent})


async def _write_draft(
    context: NodeContext, message: AIMessage, about: SpeakerReply, phase: Phase
) -> dict[str, Any]:
    """Write a rejected or incomplete reply to the log. The model is asked once more."""
    # A rejected call is recorded, but never sent to a model, because it has no result.
    context.add(message.text, as_reply(Draft, about, audience=NOBODY), message, with_calls=True)
    return await context.pause(phase)


def _check(
    context: NodeContext,
    text: str,
    log: Sequence[BaseMessage],
    about: SpeakerReply,
    speaker: Speaker | None = None,
) -> Checked:
    """Check a reply of the model of a speaker, by default of the one whose turn it is.

    The text may be the one that a hook has made of the reply.
    """
    speaker = speaker or context.speaker
    found = ReplyCheck(
        context.conversation,
        speaker,
        select_heard(context.conversation, log, speaker.name),
        context.resources.registry.schema_of(speaker),
        about.stop,
        about.handed_to,
        about.stage in ALOUD,
    ).check(text)
    is_private = about.stage is Stage.PRIVATE
    # Only its speaker hears a private answer, so it may contain another's part.
    flips = found.problem is not None and found.problem.flaw is Flaw.ROLE_FLIP
    return Checked(found.text, None) if is_private and flips else found


def _find_draft(log: Sequence[BaseMessage]) -> int | None:
    """Return the log index of the rejected first draft, or None. A cut-off part may follow it."""
    for place in reversed(range(len(log))):
        about = metadata(log[place])
        if not isinstance(about, Draft):
            return None
        if about.flaw is not None:
            return None if about.flaw is Flaw.SAME_CALLS else place
    return None


def _read_reply_metadata(message: BaseMessage) -> SpeakerReply:
    about = metadata(message)
    assert isinstance(about, SpeakerReply)  # noqa: S101  # the phase guarantees it
    return about


def _check_with_mark(
    context: NodeContext, text: str, log: Sequence[BaseMessage], about: SpeakerReply
) -> Checked:
    """Check a reply, and again with its first mark added if its format is broken."""
    found = _check(context, text, log, about)
    is_formless = found.problem is not None and found.problem.flaw is Flaw.FORM
    return _check(context, found.text, log, about) if is_formless else found


def _with_problem(about: Reply, problem: Problem | None) -> Reply:
    """Return the metadata of a reply with its problem, or with none."""
    flaw, text = (None, None) if problem is None else (problem.flaw, problem.text)
    return about.model_copy(update={"flaw": flaw, "problem": text})


async def _run_later_hooks(context: NodeContext) -> dict[str, Any]:
    """Run the hooks after the newest answer in the log, and write the changed answer."""
    waiting = context.log[-1]
    # Hooks see a person's answer as the speaker's message, too.
    answer = waiting
    if not isinstance(answer, AIMessage):
        answer = AIMessage(waiting.content, id=waiting.id)
    about = _read_reply_metadata(waiting)
    heard_by = audience_of(context, HandedOver(about.handed_to, about.private))
    about = as_reply(Speech, about, audience=heard_by)
    reply = AIMessage(answer.text, tool_calls=answer.tool_calls, name=about.speaker)
    text = await run_after_speaker(context.hooks, turn_of(context), reply)
    message = answer.model_copy(update={"content": replace_text(answer.content, text)})
    if about.source is Source.MODEL and text != answer.text and not is_call(answer):
        # The check applies to the text that others hear.
        about = _with_problem(about, _check(context, text, context.log, about).problem)
    if text != answer.text:
        # `to_user` texts belong to the speaker's own text, not to a hook's.
        about = about.model_copy(update={"to_user": {}})
    return await write_message(context, message, about)


async def _reread_edited(context: NodeContext, edited: Sequence[int]) -> dict[str, Any]:
    """Read edited messages again. If the newest speech was edited, it is judged again."""
    log = [*context.log]
    for place in edited:
        log[place] = _reread_message(context, log, place)
    written = [log[place] for place in edited]
    for place, content in _pass_on_edits(log, edited).items():
        log[place] = log[place].model_copy(update={"content": content})
        written.append(log[place])
    position = position_after_removals(context.position, log)
    newest = next(
        (at for at in reversed(range(len(log))) if isinstance(metadata(log[at]), Speech)), None
    )
    judged_anew = newest in edited and position.phase in _PAST_JUDGES
    if newest is not None and judged_anew:
        behind = log[newest + 1 :]
        position = forget_verdicts(replace(context, position=position), behind)
        written += [take_back(str(message.id)) for message in behind]
        del log[newest + 1 :]
    before: dict[str, Any] = dict(update_of(written, context.log))
    # A message that followed the output of an ended conversation returns to the others.
    stored = {message.id for message in context.messages}
    shown = [one for one in before.get("messages", ()) if one.id not in stored]
    if shown:
        hidden = [take_back(str(one.id)) for one in shown]
        before["unspoken"] = [*hidden, *before.get("unspoken", ())]
    reread = replace(context, log=log, messages=[*context.messages, *shown])
    update = await reread.step(position, tells=judged_anew)
    for channel, messages in before.items():
        update[channel] = [*messages, *update.get(channel, ())]
    goes_on = context.turn.node is Node.END and "outcome" not in update
    return update | ({"outcome": {}} if goes_on else {})


_PAST_JUDGES: Final = (Phase.CHECKED, Phase.JUDGED, Phase.CHOSEN)


def _pass_on_edits(log: Sequence[AnyMessage], edited: Sequence[int]) -> dict[int, Content]:
    """Return the indexes of messages that pass on edited opening answers, with the new contents."""
    answers = {
        about.speaker: log[at].content
        for at in edited
        if isinstance(about := metadata(log[at]), Speech) and about.stage is Stage.OPENING
    }
    lines = enumerate(map(metadata, log)) if answers else ()
    return {
        place: answers[about.speaker]
        for place, about in lines
        if isinstance(about, OpeningAnswer) and about.speaker in answers
    }


def _reread_message(context: NodeContext, log: Sequence[AnyMessage], place: int) -> AnyMessage:
    """Return a message with its metadata read again from its text."""
    message = log[place]
    # The speech is checked and parsed again. Its `to_user` texts are dropped, because the new text
    # is no argument of a call.
    about = _read_reply_metadata(message)
    about = about.model_copy(update={"edited": False, "stop": None, "to_user": {}})
    if isinstance(about, Speech) and about.speaker in context.conversation.names:
        speaker = adapt_to_stage(about.stage, context.conversation.speaker(about.speaker))
        problem = None
        if about.source is Source.MODEL:
            problem = _check(context, message.text, log[:place], about, speaker).problem
        about = read_by_format(context, speaker, message.text, _with_problem(about, problem))
    extra = message.additional_kwargs | {KEY: stored_form(about)}
    return message.model_copy(update={"additional_kwargs": extra})


_record: Final = record_as_task("speaker_answer")


def _list_concurrent(context: NodeContext) -> list[str]:
    """Return the current speaker and the next ones in its round whose models are called at once.

    It is empty if no call can be made together with the current speaker's.
    """
    is_concurrent = isinstance(context.conversation.turn_order, Concurrent)
    if not is_concurrent or context.turn.stage is not Stage.ROUNDS:
        return []
    order = context.conversation.order
    rest = order[order.index(context.turn.speaker) :]
    # Other speakers, such as those with hooks, answer in their turns.
    names = [name for name in rest if _calls_model_first(context, name)]
    return names if len(names) > 1 and context.turn.speaker in names else []


async def _ask_all(context: NodeContext, names: Sequence[str]) -> dict[str, Any]:
    """Call the models of these speakers at the same time, and write their answers to the log."""
    progress = context.resources.progress
    if progress is not None:
        progress.note_asking()
    begun = [_record(partial(_ask, context.begin_at_once(name))) for name in names]
    # All calls end before an error is raised, so that their answers are recorded.
    found: list[dict[str, Any]] = []
    for one in await asyncio.gather(*begun, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    if progress is not None:
        progress.note_answer()
    facts = context.position.facts
    for name, answered in zip(names, found, strict=True):
        context.add_usage(read_usage(answered))
        facts = with_usage(facts, context.usage.values(), facts, name)
    # The newest messages are the answers, which the next node reads.
    lines = [
        *(line for answered in found for line in answered["lines"][:-1]),
        *(answered["lines"][-1] for answered in found),
    ]
    for place, line in enumerate(lines, start=len(context.log)):
        extra = line.additional_kwargs | {PLACE: place}
        context.new.append(line.model_copy(update={"additional_kwargs": extra}))
    position = context.position.model_copy(update={"facts": facts})
    after = record_pause(position, context.turn, Phase.REQUESTED)
    return await replace(context, position=position).step(after)


def _calls_model_first(context: NodeContext, name: str) -> bool:
    conversation = context.conversation
    speaker = conversation.speaker(name)
    if speaker.human is not None or conversation.sums_up(speaker):
        return False
    if context.resources.registry.hooks_of(speaker):
        return False
    has_said = not context.is_first_message_due(name)
    replies = (
        reply
        for reply in speaker.replies
        if not (isinstance(reply, TextReply) and reply.once and has_said)
    )
    begins = isinstance(next(replies, None), ModelReply)
    return begins and pending_answer(conversation, context.log, name) is None


async def _ask(context: NodeContext) -> dict[str, Any]:
    """Ask the speaker's model. The result is recorded, so it contains only values of the log."""
    given = await ask_for_reply(context)
    add_pending(context, given.message)
    return {"lines": context.new, "usage": dump_usage(context.usage)}
