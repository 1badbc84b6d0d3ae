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
from support.tables import read_rows

MODES: tuple[Mode, ...] = get_args(Mode)
ROWS = dict(zip(MODES, ("Y11", "Y12", "Y13", "Y14", "Y15"), strict=True))


def short(view: Sequence[tuple[str, str]]) -> list[str]:
    """Return a history in the notation of docs/behaviour.md."""
    return [f"{role[0]}:{text}" for role, text in view]


LEFT = prompts.JUDGE_OWN_TASK


async def test_histories_are_as_spelled_out_by_hand() -> None:
    for row, fields, views in read_rows(__file__, "group_histories"):
        fields["completes"] = {name: at or None for name, at in fields.get("completes", {}).items()}
        lists = {name: tuple(one) for name, one in fields.items() if isinstance(one, list)}
        result, expected = await Troupe().play(Plan(**fields | lists))
        for name, view in views.items():
            spelled = prompts.fill_template(view, **prompts.PROMPTS).replace("|", "\n\n")
            assert " ".join(short(entries(result.viewpoint(name))[1:])) == spelled, row
            assert " ".join(short(expected.histories[name])) == spelled, row


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
