"""The guessing game on the embedded model: checks of its structure, not of its quality."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from duologue.graphs import Reason, Result, aconverse, group_solve
from support.log import Stage, fields_of, kind_of
from support.results import outcome_of
from support.tables import read_rows

pytestmark = pytest.mark.live

MASTER, PLAYER = "Game master", "Player"
CAP = 2

SECRETS: list[Any] = [
    pytest.param(
        {"lines": ["The secret number is 2."]}, id="Y16-told", marks=pytest.mark.exhaustive
    ),
    pytest.param({"prompt": "Choose a secret number from 1 to 3."}, id="Y16-made-up"),
]


def of_kind(result: Result, kind: str, stage: Stage | None = None) -> list[BaseMessage]:
    return [
        message
        for message in result.messages
        if kind_of(message) == kind and stage in (None, fields_of(message).stage)
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("secret", SECRETS)
async def test_the_game_has_its_structure_whatever_is_said(secret: Mapping[str, Any]) -> None:
    """Y2, Y3, Y9, Y13, Y16: the order of turns, the messages that each hears, and the end."""
    # Answers are short and, without a seed, not cached: their content does not matter here.
    # Without a limit, a list of remaining objectives could become endless.
    fields = deepcopy(read_rows(__file__, "game"))
    fields["speakers"][0]["private_opening"] = secret
    game = group_solve(**fields)
    result = await aconverse(game, store="memory:")

    made_up = "prompt" in secret
    private = of_kind(result, "speech", Stage.PRIVATE)
    assert [fields_of(message).speaker for message in private] == [MASTER] * made_up
    told = of_kind(result, "instruction" if made_up else "remembered")[0]
    assert told.text == (secret["prompt"] if made_up else secret["lines"][0])
    for message in (told, *private):
        assert fields_of(message).audience == (MASTER,)

    opening = [fields_of(message).speaker for message in of_kind(result, "speech", Stage.OPENING)]
    assert opening == [MASTER, PLAYER]
    said = of_kind(result, "speech", Stage.ROUNDS)
    last = of_kind(result, "speech", Stage.LAST_WORDS)
    speakers = [fields_of(message).speaker for message in (*said, *last)]
    assert speakers == [(PLAYER, MASTER)[number % 2] for number in range(len(speakers))]
    assert 1 <= len(said) <= 2 * CAP

    # The player sees only its task, the shift, and the messages of the rounds.
    heard = [message for message in result.messages if fields_of(message).is_heard_by(PLAYER)]
    own = [message for message in result.messages if fields_of(message).speaker == PLAYER]
    assert not {told.id, *(message.id for message in private)} & {
        message.id for message in (*heard, *own)
    }
    kinds = {kind_of(message) for message in heard}
    assert kinds <= {"instruction", "opening_answer", "speech"}
    seen = result.viewpoint(PLAYER)
    assert sum(message.type == "ai" for message in seen) == 1 + speakers.count(PLAYER)

    judged = [verdict for message in result.messages if (verdict := fields_of(message).verdict)]
    assert judged
    assert {verdict.speaker for verdict in judged} == {MASTER}
    assert set(outcome_of(result).reasons) & {Reason.COMPLETED, Reason.MAX_ITERATIONS, *GUARDS}
    if Reason.COMPLETED in outcome_of(result).reasons:
        assert outcome_of(result).completed == (MASTER,)
        assert [fields_of(message).speaker for message in last] == [PLAYER]
    else:
        assert last == []
    assert outcome_of(result).messages == len(private) + len(opening) + len(speakers)
    assert outcome_of(result).rounds == len(said) // 2
    assert str(result.outcome).startswith("Ended after ")


# Guards that a weak model may trigger as well.
GUARDS = (
    Reason.BLANK_REPLIES,
    Reason.SAME_REPLIES,
    Reason.FAREWELLS,
    Reason.STANDSTILL,
    Reason.ROLE_FLIPS,
)
