"""Group conversations: histories and prompts are exact for all combinations of options.

The expected values come from `histories`, an independent implementation of the rules, and from
examples written by hand that check this implementation.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any, get_args

import pytest

from duologue.graphs.prompts import prompts
from support.group_play import QuickModel, Troupe, entries, spec_of
from support.histories import CASTS, Mode, Plan, played

MODES: tuple[Mode, ...] = get_args(Mode)
ROWS = dict(zip(MODES, ("Y11", "Y12", "Y13", "Y14", "Y15"), strict=True))


def short(view: Sequence[tuple[str, str]]) -> list[str]:
    """Return a history in the notation of docs/behaviour.md."""
    return [f"{role[0]}:{text}" for role, text in view]


# Examples by hand. The others' views contain the last message even if it has no answer.

LEFT = prompts.JUDGE_OWN_TASK
BY_HAND: list[Any] = [
    pytest.param(
        Plan(),
        {"A": "u:P1 a:A1 u:B2 a:A2", "B": "u:P2 a:B1 u:A1 a:B2 u:A2"},
        id="Y4-Y5-default-shift",
    ),
    pytest.param(
        Plan(cap=2),
        {
            "A": "u:P1 a:A1 u:B2 a:A2 u:B3 a:A3",
            "B": "u:P2 a:B1 u:A1 a:B2 u:A2 a:B3 u:A3",
        },
        id="Y3-Y5-two-rounds",
    ),
    pytest.param(
        Plan(owner="A"),
        {"A": "u:P1 a:A1 u:B1 a:A2 u:B2", "B": "u:P2 a:B1 u:A2 a:B2"},
        id="Y6-shift-owner-a",
    ),
    pytest.param(
        Plan(owner="B"),
        {"A": "u:P1 a:A1 u:B2 a:A2", "B": "u:P2 a:B1 u:A1 a:B2 u:A2"},
        id="Y6-shift-owner-b-is-the-default",
    ),
    pytest.param(
        Plan(content="go"),
        {"A": "u:P1 a:A1 u:B2 a:A2", "B": "u:P2 a:B1 u:go a:B2 u:A2"},
        id="Y7-shift-content",
    ),
    pytest.param(
        Plan(content="go", owner="A"),
        {"A": "u:P1 a:A1 u:go a:A2 u:B2", "B": "u:P2 a:B1 u:A2 a:B2"},
        id="Y7-shift-content-and-owner",
    ),
    pytest.param(
        Plan(reconcile=True),
        {
            "A": "u:P1 a:A1 u:To B: P2|B: B1|B: B2 a:A2",
            "B": f"u:To A: P1|A: A1|P2 a:B1 u:{prompts.CONTINUE_CONVERSATION} a:B2 u:A: A2",
        },
        id="Y8-reconcile-neutral-shift",
    ),
    pytest.param(
        Plan(reconcile=True, owner="A"),
        {
            "A": f"u:P1 a:A1 u:To B: P2|B: B1|{prompts.CONTINUE_CONVERSATION} a:A2 u:B: B2",
            "B": "u:To A: P1|A: A1|P2 a:B1 u:A: A2 a:B2",
        },
        id="Y8-reconcile-owner-a",
    ),
    pytest.param(
        Plan(reconcile=True, content="go"),
        {
            "A": "u:P1 a:A1 u:To B: P2|B: B1|B: B2 a:A2",
            "B": "u:To A: P1|A: A1|P2 a:B1 u:go a:B2 u:A: A2",
        },
        id="Y8-reconcile-shift-content",
    ),
    pytest.param(
        Plan(mode=MODES[1], completes={"A": None}, keeps=("A",)),
        {
            "A": f"u:P1 a:A1 u:B2 a:A2 u:{LEFT} a:Still to do: goal 1 of A.",
            "B": "u:P2 a:B1 u:A1 a:B2 u:A2",
        },
        id="Y9-Y10-kept-at-the-cap",
    ),
    pytest.param(
        Plan(mode=MODES[1], completes={"B": None}, keeps=("B",), two_questions=True),
        {
            "A": "u:P1 a:A1 u:B2 a:A2",
            "B": f"u:P2 a:B1 u:A1 a:B2 u:{prompts.LIST_OBJECTIVES_LEFT} a:goal 1 of B u:A2",
        },
        id="Y10-the-second-question-is-never-kept",
    ),
    pytest.param(
        Plan(mode=MODES[1], completes={"B": 1}, cap=2),
        {"A": "u:P1 a:A1 u:B2", "B": "u:P2 a:B1 u:A1 a:B2"},
        id="Y12-at-once",
    ),
    pytest.param(
        Plan(mode=MODES[2], completes={"B": 1}, cap=2),
        {"A": "u:P1 a:A1 u:B2 a:A2", "B": "u:P2 a:B1 u:A1 a:B2 u:A2"},
        id="Y13-one-more-by-the-next",
    ),
    pytest.param(
        Plan(mode=MODES[2], completes={"A": 1}),
        {"A": "u:P1 a:A1 u:B2 a:A2 u:B3", "B": "u:P2 a:B1 u:A1 a:B2 u:A2 a:B3"},
        id="Y13-one-more-past-the-cap",
    ),
    pytest.param(
        Plan(mode=MODES[3], completes={"B": 1, "A": 1}),
        {"A": "u:P1 a:A1 u:B2 a:A2 u:B3", "B": "u:P2 a:B1 u:A1 a:B2 u:A2 a:B3"},
        id="Y14-everyone-once-more-and-nobody-asked-again",
    ),
    pytest.param(
        Plan(mode=MODES[4], completes={"A": 1, "B": 3}, cap=3, keeps=("A",)),
        {
            "A": f"u:P1 a:A1 u:B2 a:A2 u:{LEFT} a:{prompts.NO_OBJECTIVES_LEFT} u:B3 a:A3 u:B4",
            "B": "u:P2 a:B1 u:A1 a:B2 u:A2 a:B3 u:A3 a:B4",
        },
        id="Y15-waits-for-all-and-asks-no-finished-one",
    ),
    pytest.param(
        Plan(names=CASTS[3]),
        {
            "A": "u:P1 a:A1 u:B: B2|C: C2|A, it is your turn. a:A2",
            "B": "u:P2 a:B1 u:A: A1 a:B2 u:C: C2|A: A2",
            "C": "u:P3 a:C1 u:B: B2|C, it is your turn. a:C2 u:A: A2",
        },
        id="Y20-three",
    ),
    pytest.param(
        Plan(names=CASTS[3], owner="A", reconcile=True),
        {
            "A": "u:P1 a:A1 u:To B: P2|B: B1|To C: P3|C: C1"
            f"|{prompts.CONTINUE_CONVERSATION} a:A2 u:B: B2|C: C2",
            "B": "u:To A: P1|A: A1|P2 a:B1 u:To C: P3|C: C1|A: A2|B, it is your turn. a:B2 u:C: C2",
            "C": "u:To A: P1|A: A1|To B: P2|B: B1|P3 a:C1 u:A: A2|B: B2|C, it is your turn. a:C2",
        },
        id="Y8-Y20-three-reconciled",
    ),
]


@pytest.mark.part(3)
@pytest.mark.parametrize(("plan", "views"), BY_HAND)
async def test_histories_are_as_spelled_out_by_hand(plan: Plan, views: Mapping[str, str]) -> None:
    result, expected = await Troupe().play(plan)
    for name, view in views.items():
        spelled = view.replace("|", "\n\n")
        assert " ".join(short(entries(result.viewpoint(name))[1:])) == spelled
        assert " ".join(short(expected.histories[name])) == spelled


async def test_each_is_asked_with_what_it_knows_and_nothing_else() -> None:
    """Y4, Y9, Y12: each prompt contains only the speaker's own knowledge."""
    troupe = Troupe()
    await troupe.play(Plan(mode=MODES[1], completes={"B": 1}, cap=3))
    assert [short(entries(call.messages)) for call in troupe.model.calls] == [
        ["s:You are A.", "u:P1"],
        ["s:You are B.", "u:P2"],
        ["s:You are B.", "u:P2", "a:B1", "u:A1"],
        ["s:You are B.", "u:P2", "a:B1", "u:A1", "a:B2", f"u:{LEFT}"],
    ]


# All combinations for two speakers.


def endings(mode: Mode, cap: int) -> Iterator[dict[str, Any]]:
    """Yield the stoppers, the speakers that keep reflections, and the completing checks."""
    if mode == MODES[0]:
        yield {"completes": {}}
        yield {"completes": {"A": 1, "B": 1}, "keeps": ("A", "B")}
        return
    for stoppers in (("A",), ("B",), ("A", "B")):
        checks = (None, *range(1, cap + 1))
        for at in product(checks, repeat=len(stoppers)):
            for size in range(len(stoppers) + 1):
                for keeps in combinations(stoppers, size):
                    yield {"completes": dict(zip(stoppers, at, strict=True)), "keeps": keeps}


def all_of_two(mode: Mode, cap: int, *, two_questions: bool, reconcile: bool) -> list[Plan]:
    """Return every combination that differs in the conversation or in the replies."""
    plans: dict[str, Plan] = {}
    for ending, owner, content in product(endings(mode, cap), (None, "A"), (None, "go")):
        plan = Plan(
            mode=mode,
            cap=cap,
            owner=owner,
            content=content,
            reconcile=reconcile,
            two_questions=two_questions,
            **ending,
        )
        # After another speaker has ended it, a speaker's own later completion makes no difference.
        replies = [call.reply for call in played(plan).calls]
        plans.setdefault(f"{replace(plan, completes={})}{[*plan.completes]}{replies}", plan)
    return list(plans.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("reconcile", [False, True], ids=["", "Y8-reconciled"])
@pytest.mark.parametrize(
    ("cap", "two_questions", "each"),
    [
        pytest.param(1, False, 3, id="cap-1-structured"),
        pytest.param(1, True, 5, id="cap-1-two-questions"),
        pytest.param(2, False, 11, id="cap-2-structured"),
        pytest.param(2, True, 41, id="cap-2-two-questions"),
    ],
)
@pytest.mark.parametrize("mode", [pytest.param(mode, id=f"{ROWS[mode]}-{mode}") for mode in MODES])
async def test_for_two_combinations_are_exact(
    mode: Mode, cap: int, two_questions: bool, each: int, reconcile: bool
) -> None:
    """Y4 to Y15: each mode with every shift, completion and kept reflection.

    Each `each`-th plan is played. Options come in pairs, so an odd step omits no option.
    """
    troupe = Troupe(QuickModel)
    plans = all_of_two(mode, cap, two_questions=two_questions, reconcile=reconcile)
    for plan in plans[::each]:
        await troupe.play(plan)


# For more speakers: a sample in which each two options occur together.

CHOICES: Mapping[str, Sequence[Any]] = {
    "names": tuple(CASTS.values()),
    "mode": MODES,
    "cap": (1, 2, 3),
    "owner": (None, 0, 1, -1),
    "content": (None, "go"),
    "opening": ("answers", "reconciled", "none"),
    "two_questions": (False, True),
    "stoppers": ("one", "all", "some"),
    "done": ("never", "first", "last", "any"),
    "keeps": ("none", "all", "some"),
    "secrets": ("none", "told", "made up", "of two"),
}


def some(rng: random.Random, names: Sequence[str], how: str) -> tuple[str, ...]:
    """Choose names."""
    sizes = {"none": 0, "one": 1, "all": len(names), "some": rng.randint(1, len(names))}
    return tuple(sorted(rng.sample(names, sizes[how])))


def plan_of(chosen: Mapping[str, Any], rng: random.Random) -> Plan:
    """Return a plan with one option of each kind; the rest is drawn."""
    names, cap = chosen["names"], chosen["cap"]
    checks = {"never": (None,), "first": (1,), "last": (cap,), "any": (None, *range(1, cap + 1))}
    stoppers = some(rng, names, chosen["stoppers"])
    told, made_up = "", ""
    if chosen["secrets"] == "of two":
        told, made_up = rng.sample(names, 2)
    elif chosen["secrets"] == "told":
        told = rng.choice(names)
    elif chosen["secrets"] == "made up":
        made_up = rng.choice(names)
    return Plan(
        names=names,
        mode=chosen["mode"],
        cap=cap,
        completes={name: rng.choice(checks[chosen["done"]]) for name in stoppers},
        keeps=some(rng, names, chosen["keeps"]),
        owner=None if chosen["owner"] is None else names[chosen["owner"]],
        content=chosen["content"],
        reconcile=chosen["opening"] == "reconciled",
        answers=chosen["opening"] != "none",
        two_questions=chosen["two_questions"],
        told={told: (f"secret-of-{told}", f"{told}'s other secret")} if told else {},
        made_up=(made_up,) if made_up else (),
    )


def pairs(chosen: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    return set(combinations(chosen.items(), 2))


def sample() -> list[Plan]:
    """Draw plans until every two options of different kinds have occurred together."""
    rng = random.Random(20)  # noqa: S311
    kinds = combinations(CHOICES.items(), 2)
    unmet = {
        ((one, left), (other, right))
        for (one, lefts), (other, rights) in kinds
        for left, right in product(lefts, rights)
    }
    plans: list[Plan] = []
    while unmet:
        drawn = [{kind: rng.choice(of) for kind, of in CHOICES.items()} for _ in range(20)]
        best = max(drawn, key=lambda chosen: len(pairs(chosen) & unmet))
        unmet -= pairs(best)
        plans.append(plan_of(best, rng))
        # By chance, each option also occurs with more than one other.
        plans.append(plan_of(rng.choice(drawn), rng))
    return plans


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(4))
async def test_for_more_each_two_choices_meet_and_are_exact(part: int) -> None:
    """Y4 to Y16, Y20: two to four speakers with secrets, which no other speaker hears."""
    troupe = Troupe()
    plans = sample()[part::4]
    assert len({plan.names for plan in plans}) == len(CASTS)
    for plan in plans:
        await troupe.play(plan)
        for name in (*plan.told, *plan.made_up):
            for call in troupe.model.calls:
                system, *heard = entries(call.messages)
                if system[1].startswith(f"You are {name}."):
                    continue
                assert not any(f"secret-of-{name}" in text for _, text in heard), (plan, name)


async def test_the_owner_that_is_not_named_is_the_second() -> None:
    """Y5: the default owner of the shift is the second speaker."""
    for names in CASTS.values():
        plan = Plan(names=names)
        assert spec_of(plan).order == spec_of(replace(plan, owner="B")).order
