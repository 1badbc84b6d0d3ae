"""Limits derived from a spec: messages, model calls, tool rounds and tokens of a context."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from pydantic import BaseModel

from ..common.data import MOST
from ..common.errors import SpecError
from ..ends.end import call_caps, leaves, message_caps
from ..ends.end_chat import EndChatMode
from ..prompts.prompts import SUMMARY_HEADING
from ..speakers.model_settings import RunningSummary, TokenBudget
from ..speakers.speaker import Speaker
from ..text.words import tokens_of_texts
from .fields import ConversationFields
from .judges import Concurrent, Judge, Moderator, SeparateJudge


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

    A failed round has at least one error, and the last allowed error of either kind ends the
    conversation.
    """
    errors = (conversation.max_call_errors - 1) + (conversation.max_tool_errors - 1)
    return conversation.max_tool_rounds + errors


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
