"""Conversations that may not end before so many rounds are complete (R5)."""

from itertools import product

import pytest

from duologue.graphs import EndChatMode, MaxMessages, Reason
from support.cases import thorough

from ..rules.test_end_chat_walk import (
    CALLS,
    DONE as SAID,
    NO_GUARDS,
    WON,
    each_mode,
    spec,
    stopping,
    walked,
)

# Every path


@pytest.mark.part(1)
@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "opening"])
@each_mode
@thorough
def test_r5_no_path_ends_before_the_least_number_of_rounds(
    thorough: bool, mode: EndChatMode, answers: bool
) -> None:
    """R5: an end before the minimum number of rounds takes effect then, with last words."""
    guards = NO_GUARDS.model_copy(update={"blank_replies": 1})
    for least, stoppers in product((1, 2), [*stopping(mode, 2)][0 if thorough else -1 :]):
        conversation = spec(
            mode, 2, 2, stoppers, answers=answers, guards=guards, when=SAID | WON, least=least
        )
        walk = walked(conversation, texts=("plain", "blank"))
        assert walk.reasons >= {Reason.DONE_TOKEN, Reason.PREDICATE, Reason.BLANK_REPLIES}
        joined = spec(mode, 2, 2, stoppers, when=(SAID & MaxMessages(limit=1)) | CALLS, least=least)
        walked(joined)


@pytest.mark.part(1)
@each_mode
def test_r5_of_three_no_path_ends_before_the_least_number_of_rounds(mode: EndChatMode) -> None:
    for stoppers in stopping(mode, 3):
        walk = walked(spec(mode, 2, 3, stoppers, when=SAID, least=2))
        assert walk.reasons >= {Reason.DONE_TOKEN, Reason.MAX_ITERATIONS}
