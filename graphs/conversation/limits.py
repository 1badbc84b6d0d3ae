"""Limits derived from a spec, such as its most messages, and checks of fields against each other.

A check raises a ValueError that names the field; pydantic turns it into its own error.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from pydantic import BaseModel

from ..common.data import MOST
from ..common.errors import SpecError, suggest_near_or_all
from ..ends.end import AllOf, AnyOf, BaseEnd, call_caps, check_name, leaves, message_caps
from ..ends.end_chat import EndChatMode
from ..ends.events import DoneToken
from ..prompts.prompts import PROMPTS, SUMMARY_HEADING
from ..speakers.call_settings import RunningSummary, TokenBudget
from ..speakers.speaker import Speaker
from ..text.words import tokens_of_texts
from .fields import ConversationFields
from .judges import HAND_OFF, Concurrent, Handoff, Judge, Moderator, SeparateJudge


def most_messages(conversation: ConversationFields) -> int:
    """Return the maximum number of messages of a conversation."""
    count = len(conversation.speakers)
    opening = count if conversation.opening.answers else 0
    most = len(conversation.secretive) + opening + count * conversation.end_chat.most_rounds
    if any(speaker.human and speaker.human.sees_calls for speaker in conversation.speakers):
        # A person may write a message at each round of calls.
        most *= 1 + most_tool_rounds(conversation)
    caps = message_caps(conversation.end_chat.when)
    last_words = {
        EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION: 1,
        EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION: count,
    }
    answers = (end.most_answers(count) for _, end in leaves(conversation.end_chat.when))
    promised = last_words.get(conversation.end_chat.mode, 0) + sum(answers)
    if isinstance(conversation.turn_order, Concurrent):
        # The messages of a whole round are said before a cap ends the conversation.
        caps = [-(-cap // count) * count + opening for cap in caps]
    return min([most, *caps]) + promised


def most_calls(conversation: ConversationFields) -> int:
    """Return the maximum number of model calls of a conversation.

    One turn may need: the summary of the history, one call for each round of tools, the reply, one
    more if it is rejected and one if it is cut off, the judge's two questions, one of them repeated
    if its answer can't be read, and the choice of the next speaker. The calls of a user's own
    agents and of inner conversations are not known, so a conversation with one of them has no
    maximum.
    """
    if conversation.agents or conversation.has_inner:
        return MOST
    sums_up = any(map(conversation.sums_up, conversation.speakers))
    per_turn = sums_up + conversation.asks_for_more + most_tool_rounds(conversation) + 2 + 3 + 1
    return 2 + most_messages(conversation) * per_turn


UNKNOWN_CALLS: Final = (
    "not known, because there is no cap, or because agents or inner conversations make calls of "
    "their own"
)
"""The reason why a conversation has no normal number of model calls."""


def plain_calls(conversation: ConversationFields) -> int | None:
    """Return the number of model calls of an ordinary conversation that reaches its cap.

    In an ordinary conversation no tool is called, nothing is summarized, and no call is repeated.
    If a model or a function chooses the next speaker, the speakers are assumed to speak in order.
    None if the number is not known; see `UNKNOWN_CALLS`.
    """
    order, judge, end_chat = conversation.order, conversation.judge, conversation.end_chat
    if conversation.agents or conversation.has_inner or not end_chat.is_capped:
        return min(call_caps(end_chat.when), default=None)
    caps = message_caps(end_chat.when)
    answering = conversation.names if conversation.opening.answers else ()
    before = (*conversation.secretive, *answering)[: min(caps, default=MOST)]
    in_rounds = [
        len(order) * end_chat.most_rounds,
        *(cap - len(before) for cap in caps),
    ]
    if isinstance(conversation.turn_order, Concurrent):
        in_rounds = [-(-messages // len(order)) * len(order) for messages in in_rounds]
    rounds, more = divmod(min(in_rounds), len(order))
    turns = {name: rounds + (place < more) for place, name in enumerate(order)}
    spoken = Counter(before) + Counter(turns)
    calls = sum(spoken[one.name] for one in conversation.speakers if one.has_model)
    judged = end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
    if judged:
        questions = 2 if isinstance(judge, Judge) and judge.form == "two_questions" else 1
        calls += questions * sum(turns[name] for name in conversation.stoppers)
    # A separate judge is not asked about a first message that no other speaker has heard yet.
    begins_alone = not answering and end_chat.waits_for_another
    unasked = judged and begins_alone and isinstance(judge, SeparateJudge)
    unasked = unasked and turns[order[0]] > 0 and order[0] in conversation.stoppers
    calls -= unasked
    if isinstance(judge, SeparateJudge) and judge.final_verdict:
        is_judged = judged and order[more - 1] in conversation.stoppers
        calls += not is_judged or (unasked and min(in_rounds) == 1)
    if isinstance(conversation.turn_order, Moderator):
        calls += max(0, min(in_rounds) - 1)
    calls += conversation.task_specification is not None
    return min([calls, *call_caps(end_chat.when)])


def most_tool_rounds(conversation: ConversationFields) -> int:
    """Return the maximum number of rounds of tool calls in one turn, including failed rounds.

    Before each round that succeeds, rounds of either kind of error may fail, one fewer than the
    number that ends the conversation.
    """
    errors = (conversation.max_call_errors - 1) + (conversation.max_tool_errors - 1)
    return conversation.max_tool_rounds * (1 + errors)


ROOM = 64
"""The minimum number of tokens that a prompt must leave for messages, in addition to its fixed
parts."""

_TOKENS_PER_WORD = 2


def tokens_of_summary(words: int) -> int:
    """Estimate the tokens of the message that contains a summary of this many words."""
    return tokens_of_texts([SUMMARY_HEADING]) + words * _TOKENS_PER_WORD


def fixed_tokens(
    conversation: ConversationFields,
    speaker: Speaker,
    task: str | None,
    schema: type[BaseModel] | None = None,
) -> int:
    """Estimate the tokens of the fixed beginning of each prompt of a speaker."""
    system = conversation.system_prompt(speaker, task, schema)
    examples = [str(example.text) for example in speaker.examples]
    return tokens_of_texts([system, *examples])


def has_limits(conversation: ConversationFields) -> bool:
    """Return whether any speaker's prompts are limited to a number of tokens."""
    return any(
        isinstance(one.context, TokenBudget | RunningSummary) for one in conversation.speakers
    )


def check_limits(
    conversation: ConversationFields, least: Callable[[Speaker], int], more: str
) -> None:
    """Check that the limits on speakers' prompts leave room for a message.

    Raises:
        SpecError: A limit is too small; the message contains the smallest possible limit.
    """
    for number, speaker in enumerate(conversation.speakers):
        if not isinstance(speaker.context, TokenBudget | RunningSummary):
            continue
        needed, limit = least(speaker), speaker.context.limit
        if limit < needed:
            raise SpecError(
                f"speakers.{number}.context.limit: {limit} tokens are too few for the fixed parts "
                f"of {speaker.name!r}'s prompt{more} and a message; set {needed} or more"
            )


def least_limit(
    conversation: ConversationFields, speaker: Speaker, schema: type[BaseModel] | None = None
) -> int:
    """Return the smallest number of tokens that a speaker's context can be limited to."""
    opening = speaker.private_opening
    told = [] if opening is None else [*opening.lines, opening.prompt or ""]
    if conversation.opening.answers:
        who = conversation.speakers if conversation.opening.reconcile else (speaker,)
        told += [one.task or "" for one in who]
    context = speaker.context
    summary = tokens_of_summary(context.words) if isinstance(context, RunningSummary) else 0
    standing = fixed_tokens(conversation, speaker, conversation.task, schema) + summary
    return standing + tokens_of_texts(text for text in told if text) + ROOM


def check(conversation: ConversationFields) -> None:
    """Raise an error if two fields of a conversation contradict each other."""
    _check_tasks(conversation)
    _check_speakers(conversation)
    _check_order(conversation)
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


def _check_speakers(conversation: ConversationFields) -> None:
    order = conversation.turn_order
    for number, speaker in enumerate(conversation.speakers):
        at = f"speakers.{number}"
        for name in speaker.prefixes:
            check_name(conversation, f"{at}.prefixes", name)
            if name == speaker.name:
                raise ValueError(
                    f"{at}.prefixes: {name!r} does not hear its own messages; use another name"
                )
        others = [name for name in speaker.speaks_to or () if name != speaker.name]
        for name in others:
            check_name(conversation, f"{at}.speaks_to", name)
        if speaker.speaks_to is not None and not others:
            raise ValueError(
                f"{at}.speaks_to: no other speaker would hear {speaker.name!r}; add another speaker"
            )
        if isinstance(order, Handoff) and HAND_OFF in speaker.tools:
            raise ValueError(
                f"{at}.tools: {HAND_OFF!r} is the tool that names the next speaker; rename yours"
            )
        if isinstance(order, Concurrent):
            _check_at_once(speaker, at)


def _check_at_once(speaker: Speaker, at: str) -> None:
    """Check a speaker that speaks at the same time as the others."""
    if speaker.checks_completion:
        raise ValueError(
            f"{at}.checks_completion: only a separate judge judges speakers that speak at once; "
            "leave it out, and set judge.criteria"
        )
    if speaker.runs_code:
        raise ValueError(
            f"{at}.replies: {speaker.name!r} does not hear the code of speakers that speak at "
            'once; leave out "code", or use another turn_order'
        )


def _check_order(conversation: ConversationFields) -> None:
    order = conversation.turn_order
    for name, others in order.to.items() if isinstance(order, Handoff) else ():
        check_name(conversation, "turn_order.to", name)
        for other in others:
            check_name(conversation, f"turn_order.to.{name}", other)
    ends = leaves(conversation.end_chat.when, "end_chat.when")
    for path, end in ends if isinstance(order, Concurrent) else ():
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
            messages, calls = _count_most(conversation)
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
    messages, calls = _count_most(conversation)
    return (end.most_messages or 0) <= messages and (end.most_calls or 0) <= calls


def _count_most(conversation: ConversationFields) -> tuple[int, int]:
    """Return the largest number of messages and of calls; each message needs at least one call."""
    calls = min([most_calls(conversation), *call_caps(conversation.end_chat.when)])
    return min(most_messages(conversation), calls), calls
