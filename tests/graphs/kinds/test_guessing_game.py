"""The guessing game of the Yacana documentation, with players that read only their prompts.

The game can be won only if the secret is in the right prompts and every answer reaches the other
player.
"""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from duologue.graphs import Conversation, Outcome, Result, aconverse, group_solve
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.prompts import PROMPTS
from support.tables import read_rows

SECRET = "The secret number is 2."  # noqa: S105
CHOOSE = "Choose a number between 1 and 3, the secret number. Output it once, now."
KEEP = "You will receive guesses. If the guess is the secret number say 'You won'."
GUESS = "You must find a secret number from 1 to 3. Propose one number."

READY = "I have a number in mind."
THANKS = "That was fun."


def master(seen: list[str]) -> str:
    """Compare the last guess with the secret, if the prompt contains both."""
    if seen[-1] == CHOOSE:
        return SECRET
    if seen[-1].endswith(KEEP):
        return READY
    secret = re.search(r"secret number is (\d)", " ".join(seen))
    guess = re.search(r"guess is (\d)", seen[-1])
    if guess is None:
        return "Well played."
    assert secret is not None, "the master does not know its secret"
    difference = int(secret[1]) - int(guess[1])
    return "You won." if difference == 0 else "Higher." if difference > 0 else "Lower."


def player(seen: list[str], last: int) -> str:
    """Increase the guess as the answers require."""
    if seen[-1] == GUESS:
        return "I shall guess."
    if "won" in " ".join(seen):
        return THANKS
    assert "secret number is" not in " ".join(seen), "the secret was heard"
    guesses = sum("My guess is" in text for text in seen)
    return f"My guess is {min(guesses + 1, last)}."


def players(*, last: int = 3) -> ScriptedChatModel:
    """Return a model for both players and for their judgements, which reads only their prompts.

    Args:
        last: The highest number that the player guesses.
    """

    def answer(prompt: Prompt) -> Line:
        system, *seen = (message["content"] for message in prompt)
        if seen[-1] == PROMPTS["judge_own_task"]:
            won = any("You won" in text.replace("say 'You won'", "") for text in seen)
            return {"objectives_left": [] if won else ["the right guess"], "complete": won}
        return master(seen) if system.startswith("You are Game master") else player(seen, last)

    return ScriptedChatModel(script=answer)


def game(
    secret: Mapping[str, Any],
    mode: str,
    cap: int = 5,
    stops: str = "master",
    **options: Any,
) -> Conversation:
    return group_solve(
        [
            {
                "name": "Game master",
                "task": KEEP,
                "private_opening": secret,
                "checks_completion": stops in ("master", "both"),
            },
            {"name": "Player", "task": GUESS, "checks_completion": stops in ("player", "both")},
        ],
        end_chat={"mode": mode, "max_iterations": cap},
        **options,
    )


TOLD: Mapping[str, Any] = {"lines": [SECRET]}
MADE_UP: Mapping[str, Any] = {"prompt": CHOOSE}
SECRETS = [pytest.param(TOLD, id="Y16-told"), pytest.param(MADE_UP, id="Y16-made-up")]


def view(result: Result, name: str) -> list[str]:
    roles = {"human": "u", "ai": "a"}
    return [f"{roles[message.type]}:{message.text}" for message in result.viewpoint(name)[1:]]


def ended(result: Result) -> Outcome:
    assert result.outcome is not None
    return result.outcome


# The messages from the shift on, as the player's view contains them.
WON = [
    f"u:{READY}",
    "a:My guess is 1.",
    "u:Higher.",
    "a:My guess is 2.",
    "u:You won.",
]
OTHER = {"u": "a", "a": "u"}


def check_transcript(result: Result, rounds: list[str], secret: Mapping[str, Any]) -> None:
    """Check that both views are exact."""
    assert view(result, "Player") == [f"u:{GUESS}", "a:I shall guess.", *rounds]
    known = (
        [f"u:{CHOOSE}", f"a:{SECRET}", f"u:{KEEP}"]
        if secret is MADE_UP
        else [f"u:{SECRET}\n\n{KEEP}"]
    )
    # The shift is the player's own opening answer.
    turned = [f"{OTHER[said[0]]}{said[1:]}" for said in rounds[1:]]
    assert view(result, "Game master") == [*known, f"a:{READY}", *turned]


@pytest.mark.part(1)
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("row", read_rows(__file__, "guessing_games"), ids=lambda row: row["row"])
async def test_it_ends_as_it_should(row: dict[str, Any], secret: Mapping[str, Any]) -> None:
    model = players(last=row.get("last", 3))
    spec = game(secret, row["mode"], cap=row.get("cap", 5), stops=row.get("stops", "master"))
    result = await aconverse(spec, model=model, store="memory:")
    lost = [f"u:{READY}", *["a:My guess is 1.", "u:Higher."] * 2]
    check_transcript(result, [*(WON if row.get("won", True) else lost), *row["after"]], secret)
    assert ended(result).reasons == tuple(row["reasons"])
    assert ended(result).completed == tuple(row["completed"])
    # R11: if both have last words, these are a round.
    assert str(ended(result)).startswith(f"Ended after {row['rounds']} rounds and ")
    if row["mode"] == "max_iterations_only":
        assert not any(call.response_format for call in model.calls)


async def test_a_shift_that_would_give_the_secret_away_can_be_replaced() -> None:
    """Y7: a shift that would reveal the secret, as in the documentation, can be replaced."""
    careless = [SECRET, f"{SECRET} Guess!", "I shall guess.", "My guess is 1.", "Higher."]
    for shift, begun in ((None, f"u:{SECRET} Guess!"), ("Begin.", "u:Begin.")):
        conversation = game(MADE_UP, "max_iterations_only", cap=1, shift_content=shift)
        model = ScriptedChatModel(script=careless)
        result = await aconverse(conversation, model=model, store="memory:")
        assert view(result, "Player")[2] == begun
        assert (SECRET in str(view(result, "Player"))) is (shift is None)
