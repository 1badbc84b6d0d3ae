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
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from ...graphs.common.content import Content, replace_text
from ...graphs.conversation.judges import Concurrent
from ...graphs.conversation.usage import add_models, dump_usage, read_usage
from ...graphs.log.memory import pending_answer, select_heard
from ...graphs.log.messages import (
    KEY,
    PLACE,
    make_message,
    metadata,
    storable,
    storable_content,
    stored_form,
)
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
from ...graphs.rules.transitions import (
    Node,
    forget_verdicts,
    position_after_removals,
    record_leaving,
    record_pause,
)
from ...graphs.rules.turns import Checked, Problem, Worth, better, worth_of
from ...graphs.speakers.replies import ModelReply, TextReply
from ...graphs.speakers.reply_parts import ALOUD
from ...graphs.speakers.speaker import Speaker
from ..models.answers import get_thought
from ..models.stops import stop_of, with_refusal
from ..models.tool_binding import HandedOver
from .checks import check_repeated_calls, check_reply
from .hooks import DraftReply, run_after_speaker, turn_of
from .interrupt import ask_for_message
from .log_writer import (
    audience_of,
    is_call,
    make_pending,
    read_by_format,
    write_answer,
    write_message,
)
from .long_histories import summarize_left_out
from .node_context import NodeContext, Resources
from .prompt import adapt_to_stage, calls_of_turn
from .reply import ask_for_reply, continuation_request, join_reply, reply_of
from .running_sessions import record_as_task


async def speak(state: State, resources: Resources) -> dict[str, Any]:
    """Run a step of the current speaker's turn: a message, tool calls, or the work before them."""
    context = await NodeContext.read(state, resources)
    if edited := context.session.find_edited():
        return await _reread_edited(context, edited)
    if (repaired := await context.repair_position()) is not None:
        return repaired
    position, turn = context.position, context.turn
    speaker = adapt_to_stage(turn.stage, context.conversation.speaker(turn.speaker))
    if position.phase is Phase.ANSWERED:
        return await _run_later_hooks(context, speaker)
    person: Content | None = None
    if position.phase in BETWEEN_TURNS:
        # The first effect of the node, which runs again when there is an answer.
        found = await ask_for_message(context)
        if isinstance(found, Leaving):
            return await context.step(record_leaving(position, turn, found), [])
        if found == "":
            return await context.step(record_pause(position, turn, Phase.PASSED), [])
        person = found
    if person is None and position.phase in (*BETWEEN_TURNS, Phase.PASSED):
        prepared = await _prepare(context, speaker)
        if prepared is not None:
            return prepared
    return await _reply(context, speaker, person)


async def _prepare(context: NodeContext, speaker: Speaker) -> dict[str, Any] | None:
    """Return the update of a step before the reply: a summary or the answers of all speakers.

    None if the turn needs no such step.
    """
    is_summarized = context.conversation.sums_up(speaker)
    if is_summarized and (left_out := await summarize_left_out(context, speaker)) is not None:
        summary, usage = left_out
        waiting = record_pause(context.position, context.turn, Phase.SUMMARISED)
        return await context.step(waiting, [summary], usage)
    if isinstance(context.conversation.turn_order, Concurrent):
        return await ask_all(context)
    return None


async def _reply(context: NodeContext, speaker: Speaker, person: Content | None) -> dict[str, Any]:
    """Obtain the reply and write it to the log as a message, as calls, or as a draft."""
    conversation, position, turn = context.conversation, context.position, context.turn
    given = await reply_of(context, speaker, person)
    if position.phase is Phase.CUT_OFF:
        given = given._replace(message=join_reply(speaker, context.log[-1], given.message))
    stop = stop_of(given.message) if given.source is Source.MODEL else None
    whole = speaker
    if stop is not None:
        given = given._replace(message=with_refusal(given.message))
        speaker = _remove_stops(whole)
    calls = is_call(given.message)
    about = Speech(
        speaker=speaker.name,
        audience=audience_of(conversation, turn, speaker, given.handed),
        stage=turn.stage,
        source=given.source,
        parsed=given.parsed,
        thought=get_thought(given.message, goes_back=calls or bool(given.handed.to)),
        stop=stop,
        handed_to=given.handed.to,
        private=given.handed.private,
    )
    if given.source is Source.CODE and calls:
        about = about.model_copy(update={"audience": NOBODY})
        return await write_answer(context, speaker, given, about)
    if calls and position.tool_rounds < conversation.max_tool_rounds:
        return await _write_calls(context, speaker, given, about)

    answer = given.message
    text, about = _take_sent_text(context.log, about, str(answer.text))
    if given.source is Source.MODEL:
        is_short = about.stop is not None and about.stop.is_of_length
        more = continuation_request(speaker, position, text) if is_short else None
        if more is not None:
            about = about.model_copy(update={"problem": conversation.render_prompt(more)})
            return await _write_draft(context, given, about, Phase.CUT_OFF)
        found = _check(context, speaker, text, context.log, about)
        # Another request would not change why the reply is blank.
        is_lasting = stop is not None and stop.is_lasting and not found.text.strip()
        if found.problem is not None and not position.asked_again and not is_lasting:
            about = about.model_copy(update=_note_problem(found.problem))
            return await _write_draft(context, given, about, Phase.REJECTED)
        if position.asked_again and worth_of(found) is not Worth.GOOD:
            second = _check_again(context, speaker, found, context.log, about)
            draft = _find_draft(context)
            first = None if draft is None else _check_first_draft(context, whole, draft)
            found = second if first is None else better(first, second)
            if draft is not None and found is first:
                unheard = as_reply(
                    UnheardReply, about, audience=NOBODY, **_note_problem(second.problem)
                )
                number = len(context.log) + len(given.new)
                kept = make_message(number, text, unheard, answer=answer)
                given = given._replace(new=[*given.new, kept])
                then = _read_reply_metadata(context.log[draft])
                handed = HandedOver(then.handed_to, then.private)
                kept_of_it = {"thought", "stop", "handed_to", "private"}
                update = {name: getattr(then, name) for name in kept_of_it}
                update["audience"] = audience_of(conversation, turn, speaker, handed)
                about = about.model_copy(update=update)
                speaker = _remove_stops(whole) if then.stop else whole
                answer = AIMessage("")
        text = found.text
        about = about.model_copy(update=_note_problem(found.problem))
    return await write_answer(
        context, speaker, given._replace(message=_with_text(answer, text)), about
    )


def _with_text(answer: AIMessage, text: str) -> AIMessage:
    """Return an answer with another text and without calls."""
    is_text = isinstance(answer.content, str)
    content = storable(text) if is_text else storable_content(replace_text(answer.content, text))
    if content == answer.content and not is_call(answer):
        return answer
    no_calls: dict[str, list[Any]] = {"tool_calls": [], "invalid_tool_calls": []}
    return answer.model_copy(update={"content": content, **no_calls})


def _take_sent_text(log: Sequence[BaseMessage], reply: Speech, text: str) -> tuple[str, Speech]:
    """Return a model's reply. If it is blank, it is the text that calls of this turn have sent."""
    if reply.source is not Source.MODEL or text.strip() or reply.cut_off or reply.handed_to:
        return text, reply
    sent: dict[str, str] = {}
    for about in calls_of_turn(log, reply.speaker):
        sent = {**about.to_user, **sent}
    return "\n\n".join(sent.values()) or text, reply.model_copy(update={"to_user": sent})


async def _write_calls(
    context: NodeContext, speaker: Speaker, given: DraftReply, about: SpeakerReply
) -> dict[str, Any]:
    """Write tool calls to the log, as calls or as a draft."""
    is_asked = given.source is Source.MODEL and not context.position.asked_again
    calls = given.message
    problem = None
    if is_asked:
        tallies = context.reader.tallies(context.log)
        problem = check_repeated_calls(context.conversation, calls, tallies)
    if problem is None:
        return await write_answer(context, speaker, given, about)
    about = about.model_copy(update=_note_problem(problem))
    return await _write_draft(context, given, about, Phase.REJECTED)


async def _write_draft(
    context: NodeContext, given: DraftReply, about: SpeakerReply, phase: Phase
) -> dict[str, Any]:
    """Write a rejected or incomplete reply to the log. The model is asked once more."""
    about = as_reply(Draft, about, audience=NOBODY)
    number = len(context.log) + len(given.new)
    # A rejected call is recorded, but never sent to a model, because it has no result.
    draft = make_message(
        number,
        given.message.text,
        about,
        answer=given.message,
        tool_calls=given.message.tool_calls,
        invalid_tool_calls=given.message.invalid_tool_calls,
    )
    after = record_pause(context.position, context.turn, phase)
    return await context.step(after, [*given.new, draft], given.usage)


def _remove_stops(speaker: Speaker) -> Speaker:
    """Return a speaker without stop texts, because its reply did not end with one."""
    model_settings = speaker.model_settings.model_copy(update={"stop": ()})
    return speaker.model_copy(update={"model_settings": model_settings})


def _check(
    context: NodeContext,
    speaker: Speaker,
    text: str,
    log: Sequence[BaseMessage],
    about: SpeakerReply,
) -> Checked:
    """Check a reply of the speaker's model, or the text that a hook has made of it."""
    schema = context.resources.registry.schema_of(speaker)
    log = select_heard(context.conversation, log, speaker.name)
    found = check_reply(
        context.conversation,
        speaker,
        text,
        log,
        schema,
        stop=about.stop,
        handed_to=about.handed_to,
        aloud=about.stage in ALOUD,
    )
    is_private = about.stage is Stage.PRIVATE
    # Only its speaker hears a private answer, so it may contain another's part.
    flips = found.problem is not None and found.problem.flaw is Flaw.ROLE_FLIP
    return Checked(found.text, None) if is_private and flips else found


def _find_draft(context: NodeContext) -> int | None:
    """Return the log index of the rejected first draft, or None. A cut-off part may follow it."""
    for place in reversed(range(len(context.log))):
        about = metadata(context.log[place])
        if not isinstance(about, Draft):
            return None
        if about.flaw is not None:
            return None if about.flaw is Flaw.SAME_CALLS else place
    return None


def _read_reply_metadata(message: BaseMessage) -> SpeakerReply:
    about = metadata(message)
    assert isinstance(about, SpeakerReply)  # noqa: S101  # the phase guarantees it
    return about


def _check_first_draft(context: NodeContext, speaker: Speaker, place: int) -> Checked:
    """Return the rejected first draft, checked as if it were the turn's message."""
    before, draft = context.log[:place], context.log[place]
    about = _read_reply_metadata(draft)
    found = _check(context, speaker, draft.text, before, about)
    return _check_again(context, speaker, found, before, about)


def _check_again(
    context: NodeContext,
    speaker: Speaker,
    found: Checked,
    log: Sequence[BaseMessage],
    about: SpeakerReply,
) -> Checked:
    """Check a reply with a broken format again, now with its first mark added."""
    is_formless = found.problem is not None and found.problem.flaw is Flaw.FORM
    return _check(context, speaker, found.text, log, about) if is_formless else found


def _note_problem(problem: Problem | None) -> dict[str, object]:
    if problem is None:
        return {"flaw": None, "problem": None}
    return {"flaw": problem.flaw, "problem": problem.text}


async def _run_later_hooks(context: NodeContext, speaker: Speaker) -> dict[str, Any]:
    """Run the hooks after the newest answer in the log, and write the changed answer."""
    waiting = context.log[-1]
    # Hooks see a person's answer as the speaker's message, too.
    answer = waiting
    if not isinstance(answer, AIMessage):
        answer = AIMessage(waiting.content, id=waiting.id)
    about = _read_reply_metadata(waiting)
    handed = HandedOver(about.handed_to, about.private)
    heard_by = audience_of(context.conversation, context.turn, speaker, handed)
    about = as_reply(Speech, about, audience=heard_by)
    if about.stop is not None:
        speaker = _remove_stops(speaker)
    hooks = context.resources.registry.hooks_of(speaker)
    turn = turn_of(context, speaker, context.log)
    reply = AIMessage(answer.text, tool_calls=answer.tool_calls, name=speaker.name)
    text = await run_after_speaker(hooks, turn, reply)
    message = answer.model_copy(update={"content": replace_text(answer.content, text)})
    if about.source is Source.MODEL and text != answer.text and not is_call(answer):
        # The check applies to the text that others hear.
        problem = _check(context, speaker, text, context.log, about).problem
        about = about.model_copy(update=_note_problem(problem))
    if text != answer.text:
        # `to_user` texts belong to the speaker's own text, not to a hook's.
        about = about.model_copy(update={"to_user": {}})
    return await write_message(
        context, speaker, DraftReply(message, about.source, [], context.usage), about
    )


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
    update = await reread.step(position, [], tells=judged_anew)
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
        schema = context.resources.registry.schema_of(speaker)
        problem = None
        if about.source is Source.MODEL:
            problem = _check(context, speaker, message.text, log[:place], about).problem
        about = about.model_copy(update=_note_problem(problem))
        update = read_by_format(speaker, message.text, about, schema)
        about = about.model_copy(update=update)
    extra = message.additional_kwargs | {KEY: stored_form(about)}
    return message.model_copy(update={"additional_kwargs": extra})


_record: Final = record_as_task("speaker_answer")


async def ask_all(context: NodeContext) -> dict[str, Any] | None:
    """Call the models of the current speaker and of the next ones in its round at the same time.

    Returns:
        The update with the answers, or None if no call can be made together with the current
        speaker's.
    """
    if context.turn.stage is not Stage.ROUNDS:
        return None
    order = context.conversation.order
    rest = order[order.index(context.turn.speaker) :]
    # Other speakers, such as those with hooks, answer in their turns.
    names = [name for name in rest if _calls_model_first(context, name)]
    if len(names) == 1 or context.turn.speaker not in names:
        return None
    progress = context.resources.progress
    if progress is not None:
        progress.note_asking()
    begun = [_record(partial(_ask, context.begin_at_once(name), name)) for name in names]
    # All calls end before an error is raised, so that their answers are recorded.
    found: list[dict[str, Any]] = []
    for one in await asyncio.gather(*begun, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    if progress is not None:
        progress.note_answer()
    usage, facts = context.usage, context.position.facts
    for name, answered in zip(names, found, strict=True):
        usage = add_models(usage, read_usage(answered))
        facts = with_usage(facts, usage.values(), facts, name)
    # The newest messages are the answers, which the next node reads.
    lines = [
        *(line for answered in found for line in answered["lines"][:-1]),
        *(answered["lines"][-1] for answered in found),
    ]
    position = context.position.model_copy(update={"facts": facts})
    after = record_pause(position, context.turn, Phase.REQUESTED)
    known = len(context.log)
    placed = [
        line.model_copy(update={"additional_kwargs": line.additional_kwargs | {PLACE: place}})
        for place, line in enumerate(lines, start=known)
    ]
    return await replace(context, position=position).step(after, placed, usage)


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


async def _ask(context: NodeContext, name: str) -> dict[str, Any]:
    """Ask a speaker's model. The result is recorded, so it contains only values of the log."""
    given = await ask_for_reply(context, context.conversation.speaker(name), [])
    answer = make_pending(len(context.log), name, given.message)
    return {"lines": [*given.new, answer], "usage": dump_usage(given.usage)}
