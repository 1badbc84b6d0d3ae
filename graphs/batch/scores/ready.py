"""Scores that come along, as entry points of the group ``duologue.scores``."""

from ...api.session import Result
from ...ends.end_chat import EndChatMode
from ...spec.conversation import Conversation
from ...spec.judges import Finding, SeparateJudge


def complete(result: Result) -> bool:
    """Whether the task was judged complete; what ended before it was judged is not.

    Raises:
        ValueError: Nobody judges this conversation.
    """
    judged = None if result.outcome is None else result.outcome.complete
    if judged is None and not _is_judged(result.conversation):
        raise ValueError("nobody judges this conversation: give it an end_chat.mode or a judge")
    return bool(judged)


def criteria(result: Result) -> float:
    """Give the share of the separate judge's criteria that its last verdict found met.

    Raises:
        ValueError: The conversation has no separate judge.
    """
    found = findings(result)
    return sum(found.values()) / len(found)


def findings(result: Result) -> dict[str, bool]:
    """Say of each of the separate judge's criteria whether its last verdict found it met.

    Raises:
        ValueError: The conversation has no separate judge.
    """
    judge = result.conversation.judge
    if not isinstance(judge, SeparateJudge):
        raise ValueError('the conversation has no separate judge: set judge.kind = "separate"')
    verdicts = () if result.outcome is None else result.outcome.verdicts
    # What could not be read, or was never judged, was not found met.
    last = verdicts[-1].findings if verdicts else {}
    return {text: last.get(text) is Finding.MET for text in judge.criteria}


def _is_judged(conversation: Conversation) -> bool:
    only_rounds = conversation.end_chat.mode is EndChatMode.MAX_ITERATIONS_ONLY
    return isinstance(conversation.judge, SeparateJudge) or not only_rounds
