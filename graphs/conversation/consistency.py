"""Checks of fields that are valid alone but contradict each other.

Each check raises a ValueError that names the field; pydantic turns it into its own error.
"""

from ..common.validation import suggest_near_or_all
from ..ends.done_token import DoneToken
from ..ends.end import AllOf, AnyOf, BaseEnd, call_caps, check_name, leaves, message_caps
from ..ends.end_chat import EndChatMode
from ..prompts.prompts import PROMPTS
from .fields import ConversationFields
from .judges import HAND_OFF, Concurrent, Handoff
from .limits import check_limits, least_limit, most_calls, most_messages


def check(conversation: ConversationFields) -> None:
    """Raise an error if two fields of a conversation contradict each other."""
    _check_tasks(conversation)
    _check_prefixes(conversation)
    _check_hearers(conversation)
    _check_handoffs(conversation)
    _check_concurrent(conversation)
    _check_prompts(conversation)
    check_limits(conversation, lambda speaker: least_limit(conversation, speaker), "")
    opening, end_chat = conversation.opening, conversation.end_chat
    check_name(conversation, "opening.first_speaker", opening.first_speaker)
    if opening.reconcile and not opening.answers:
        raise ValueError("opening.reconcile: needs opening.answers = true; set that, too")
    if not (end_chat.is_capped or conversation.is_bounded_by_people):
        raise ValueError(
            "end_chat.max_iterations: can be null only if MaxMessages limits the conversation, or "
            "if every round needs a person; set a number of rounds"
        )
    _check_least(conversation)
    if end_chat.on_guard == "ask" and not conversation.is_with_a_person:
        raise ValueError(
            "end_chat.on_guard: 'ask' needs at least two speakers who take turns, one of whom is "
            "always a person; add such a speaker, or use 'end'"
        )
    needs_stopper = end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
    if needs_stopper and not conversation.stoppers:
        raise ValueError(
            f"end_chat.mode: {end_chat.mode.value} needs a speaker with checks_completion = true; "
            "set it for one"
        )
    for name in conversation.model_names if conversation.prices else ():
        if name is not None and name not in conversation.prices:
            raise ValueError(f"prices: the model {name!r} has no price; add one")
    for path, end in leaves(end_chat.when, "end_chat.when"):
        end.check(conversation, path)
    _check_possible(conversation, "end_chat.when", end_chat.when)


def _check_least(conversation: ConversationFields) -> None:
    """Check that the caps allow the minimum number of rounds."""
    end_chat = conversation.end_chat
    least, cap = end_chat.min_iterations, end_chat.max_iterations
    if cap is not None and least > cap:
        raise ValueError(
            f"end_chat.min_iterations: {least} is more than max_iterations ({cap}); lower it"
        )
    count, opening = len(conversation.speakers), conversation.opening.answers
    messages = len(conversation.secretive) + count * (least + opening)
    caps = message_caps(end_chat.when)
    if least and any(limit < messages for limit in caps):
        raise ValueError(
            f"end_chat.min_iterations: {least} rounds have {messages} messages, more than "
            f"max_messages ({min(caps)}); lower it"
        )


def _check_tasks(conversation: ConversationFields) -> None:
    # Instead of a task, a person or a first message may name the topic.
    is_told = any(speaker.human or speaker.first_message for speaker in conversation.speakers)
    for speaker in conversation.speakers:
        if speaker.task is None and conversation.task is None and not is_told:
            raise ValueError(f"task: is missing, and {speaker.name!r} has no task either; set one")
        if speaker.task is None and conversation.opening.answers:
            raise ValueError(
                f"opening.answers: {speaker.name!r} has no task to answer; set its task"
            )
    if conversation.task is None and conversation.task_specification is not None:
        raise ValueError("task_specification: there is no task to make more specific; set task")


def _check_prefixes(conversation: ConversationFields) -> None:
    for number, speaker in enumerate(conversation.speakers):
        for name in speaker.prefixes:
            check_name(conversation, f"speakers.{number}.prefixes", name)
            if name == speaker.name:
                raise ValueError(
                    f"speakers.{number}.prefixes: {name!r} does not hear its own messages; use "
                    "another name"
                )


def _check_hearers(conversation: ConversationFields) -> None:
    for number, speaker in enumerate(conversation.speakers):
        at = f"speakers.{number}.speaks_to"
        others = [name for name in speaker.speaks_to or () if name != speaker.name]
        for name in others:
            check_name(conversation, at, name)
        if speaker.speaks_to is not None and not others:
            raise ValueError(
                f"{at}: no other speaker would hear {speaker.name!r}; add another speaker"
            )


def _check_handoffs(conversation: ConversationFields) -> None:
    order = conversation.turn_order
    if not isinstance(order, Handoff):
        return
    for name, others in order.to.items():
        check_name(conversation, "turn_order.to", name)
        for other in others:
            check_name(conversation, f"turn_order.to.{name}", other)
    for number, speaker in enumerate(conversation.speakers):
        if HAND_OFF in speaker.tools:
            raise ValueError(
                f"speakers.{number}.tools: {HAND_OFF!r} is the tool that names the next speaker; "
                "rename yours"
            )


def _check_concurrent(conversation: ConversationFields) -> None:
    if not isinstance(conversation.turn_order, Concurrent):
        return
    for number, speaker in enumerate(conversation.speakers):
        if speaker.checks_completion:
            raise ValueError(
                f"speakers.{number}.checks_completion: only a separate judge judges speakers that "
                "speak at once; leave it out, and set judge.criteria"
            )
        if speaker.runs_code:
            raise ValueError(
                f"speakers.{number}.replies: {speaker.name!r} does not hear the code of speakers "
                'that speak at once; leave out "code", or use another turn_order'
            )
    for path, end in leaves(conversation.end_chat.when, "end_chat.when"):
        if isinstance(end, DoneToken) and end.answered:
            raise ValueError(
                f"{path}.answered: no speaker answers a token if all speak at once; leave it out, "
                "or use another turn_order"
            )


def _check_prompts(conversation: ConversationFields) -> None:
    for name, own in conversation.prompts.items():
        if name not in PROMPTS:
            known = suggest_near_or_all(name, list(PROMPTS))
            raise ValueError(f"prompts.{name}: there is no such prompt{known}")
        if own.text is None and own.name is None:
            raise ValueError(
                f"prompts.{name}: is empty; set a text, or the name of a registered text"
            )
        unfit = None if own.text is None else PROMPTS[name].find_placeholder_error(own.text)
        if unfit is not None:
            raise ValueError(f"prompts.{name}: {unfit}")


def _check_possible(conversation: ConversationFields, path: str, end: BaseEnd | None) -> None:
    """Check that all parts of an `AllOf` can be met before the conversation reaches its caps."""
    for place, part in enumerate(end.of if isinstance(end, AnyOf | AllOf) else ()):
        at = f"{path}.of.{place}"
        _check_possible(conversation, at, part)
        if isinstance(end, AllOf) and not _is_possible(conversation, part):
            messages, calls = _most(conversation)
            field = f"{at}.limit" if part.most_messages or part.most_calls else at
            raise ValueError(
                f"{field}: can never be met, as this conversation has at most {messages} messages "
                f"and {calls} model calls; use a lower limit"
            )


def _is_possible(conversation: ConversationFields, end: BaseEnd) -> bool:
    if isinstance(end, AnyOf):
        return any(_is_possible(conversation, part) for part in end.of)
    if isinstance(end, AllOf):
        return all(_is_possible(conversation, part) for part in end.of)
    messages, calls = _most(conversation)
    return (end.most_messages or 0) <= messages and (end.most_calls or 0) <= calls


def _most(conversation: ConversationFields) -> tuple[int, int]:
    """Return the largest number of messages and of calls; each message needs at least one call."""
    calls = min([most_calls(conversation), *call_caps(conversation.end_chat.when)])
    return min(most_messages(conversation), calls), calls
