"""Model calls and prompt tokens of a group conversation, per mode, compared with Yacana's.

Calls are the cost. Yacana asks two questions after each turn of a stopper; its figures are one call
for each message and two for each check.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from duologue.graphs import aconverse, group_solve
from duologue.graphs.prompts import prompts
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.cases import thorough

ROUNDS = 5
SPOKEN = 12
"""Two opening answers, and five rounds of two."""

WORDS = 40
"""Length of a message in words."""

MODES = (
    "max_iterations_only",
    "end_chat_after_first_completion",
    "one_last_chat_after_first_completion",
    "one_last_group_chat_after_first_completion",
    "all_task_must_complete",
)


class Cost(NamedTuple):
    """The cost of a conversation."""

    calls: int
    tokens: int
    """Number of words in all prompts, in place of tokens."""
    characters: int
    """Number of characters in all prompts."""


async def cost(mode: str, form: str, completes: Mapping[str, int | None]) -> Cost:
    """Run five rounds and return their cost.

    Args:
        mode: The end-chat mode.
        form: The judge's form.
        completes: The check at which each stopper's task is complete. Never if None.
    """
    checks: dict[str, int] = {}

    def speak(prompt: Prompt) -> Line:
        speaker = "A" if "You are A," in prompt[0]["content"] else "B"
        asked = prompt[-1]["content"]
        if asked in (prompts.JUDGE_OWN_TASK, prompts.LIST_OBJECTIVES_LEFT):
            checks[speaker] = checks.get(speaker, 0) + 1
        done = checks.get(speaker) == completes.get(speaker)
        if asked == prompts.JUDGE_OWN_TASK:
            return {"objectives_left": [] if done else ["the price", "the place"], "complete": done}
        if asked == prompts.LIST_OBJECTIVES_LEFT:
            return "None is left." if done else "The price and the place are left."
        if asked == prompts.IS_TASK_COMPLETE:
            return "yes" if done else "no"
        return f"{speaker} after {len(prompt)} lines: " + "word " * WORDS

    speakers: list[dict[str, Any]] = [
        {
            "name": name,
            "task": f"You are to agree on {what}.",
            "checks_completion": name in completes,
        }
        for name, what in (("A", "a price"), ("B", "a place"))
    ]
    conversation = group_solve(
        speakers, end_chat={"mode": mode, "max_iterations": ROUNDS}, judge={"form": form}
    )
    model = ScriptedChatModel(script=speak)
    result = await aconverse(conversation, model=model, store="memory:")
    assert result.outcome is not None
    used = result.outcome.total
    assert used.calls == len(model.calls)
    written = (message["content"] for call in model.calls for message in call.prompt)
    return Cost(used.calls, used.input_tokens, sum(map(len, written)))


NEVER: Mapping[str, Mapping[str, int | None]] = {
    "nobody": {},
    "B": {"B": None},
    "A and B": {"A": None, "B": None},
}
MOST_CHECKS = {"nobody": 0, "B": ROUNDS, "A and B": 2 * ROUNDS}


@thorough
async def test_five_rounds_take_as_many_calls_as_promised(
    thorough: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Y9, Y11: 12 calls; with one stopper 5 more at most, with two 10 (Yacana: 10 and 20 more)."""
    rows = []
    for mode in MODES if thorough else MODES[:2]:
        for stoppers, completes in NEVER.items():
            # The other modes need a stopper, but this mode asks none.
            if (mode == MODES[0]) is not (stoppers == "nobody"):
                continue
            ours = await cost(mode, "structured", completes)
            theirs = await cost(mode, "two_questions", completes)
            assert ours.calls == SPOKEN + MOST_CHECKS[stoppers]
            assert theirs.calls == SPOKEN + 2 * MOST_CHECKS[stoppers]
            assert (ours.tokens < theirs.tokens) is (stoppers != "nobody")
            assert (ours.characters < theirs.characters) is (stoppers != "nobody")
            rows.append((mode, stoppers, ours, theirs))
    assert {(row[1], row[2].calls, row[3].calls) for row in rows} == {
        ("nobody", 12, 12),
        ("B", 17, 22),
        ("A and B", 22, 32),
    }
    with capsys.disabled():
        show(f"{ROUNDS} rounds, nobody completes", rows)


# A completes at its third check, B at its fourth. B speaks first in each round, so that A's third
# check is at the sixth turn, when B has been asked three times, and B's fourth at the seventh.
EARLY: Mapping[str, tuple[int, int]] = {
    "end_chat_after_first_completion": (2 + 6, 6),
    "one_last_chat_after_first_completion": (2 + 6 + 1, 6),
    "one_last_group_chat_after_first_completion": (2 + 6 + 2, 6),
    "all_task_must_complete": (2 + 7, 7),
}


@pytest.mark.exhaustive
async def test_completed_tasks_save_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    """Y12 to Y15: the calls equal the messages and checks counted by hand."""
    rows = []
    for mode, (messages, checks) in EARLY.items():
        ours = await cost(mode, "structured", {"A": 3, "B": 4})
        theirs = await cost(mode, "two_questions", {"A": 3, "B": 4})
        assert ours.calls == messages + checks
        assert theirs.calls == messages + 2 * checks
        assert ours.tokens < theirs.tokens
        rows.append((mode, "A and B", ours, theirs))
    with capsys.disabled():
        show("A completes at its third check, B at its fourth", rows)


def show(title: str, rows: list[tuple[str, str, Cost, Cost]]) -> None:
    """Print duologue's costs with one call per check, and those with Yacana's two questions."""
    lines = [
        "",
        f"{title}: ours / with two questions a check, as Yacana's",
        f"{'mode':44}{'stoppers':10}{'calls':>10}{'prompt tokens':>18}{'characters':>18}",
    ]
    lines += [
        f"{mode:44}{stoppers:10}"
        f"{f'{ours.calls} / {theirs.calls}':>10}"
        f"{f'{ours.tokens} / {theirs.tokens}':>18}"
        f"{f'{ours.characters} / {theirs.characters}':>18}"
        for mode, stoppers, ours, theirs in rows
    ]
    print("\n".join(lines))  # noqa: T201
