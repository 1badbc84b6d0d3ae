"""Group conversations: histories and prompts are exact for each two options.

The expected values come from `histories`, an independent implementation of the rules, and from
examples written by hand that check this implementation.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, get_args

import pytest
import tomli_w

from duologue.graphs import (
    Conversation,
    DoneToken,
    MaxMessages,
    Predicate,
    SpecError,
    converse,
    group_solve,
    load_conversation,
)
from duologue.nodes.testing import ScriptedChatModel
from support.group_play import Troupe, entries, spec_of
from support.histories import CASTS, Mode, Plan
from support.prompts import PROMPTS, fill
from support.tables import check_rows, read_rows

MODES: tuple[Mode, ...] = get_args(Mode)


def short(view: Sequence[tuple[str, str]]) -> list[str]:
    """Return a history in the notation of docs/behaviour.md."""
    return [f"{role[0]}:{text}" for role, text in view]


LEFT = PROMPTS["judge_own_task"]


async def test_histories_are_as_spelled_out_by_hand() -> None:
    for row, fields, views in read_rows(__file__, "group_histories"):
        fields["completes"] = {name: at or None for name, at in fields.get("completes", {}).items()}
        lists = {name: tuple(one) for name, one in fields.items() if isinstance(one, list)}
        result, expected = await Troupe().play(Plan(**fields | lists))
        for name, view in views.items():
            spelled = fill(view, **PROMPTS).replace("|", "\n\n")
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


# A sample in which each two options occur together.

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


def sample(seed: int) -> list[Plan]:
    """Draw plans until every two options of different kinds have occurred together."""
    rng = random.Random(seed)  # noqa: S311
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
@pytest.mark.parametrize("seed", range(4))
async def test_each_two_choices_meet_and_are_exact(seed: int) -> None:
    """Y4 to Y16, Y20: two to four speakers with secrets, which no other speaker hears."""
    troupe = Troupe()
    plans = sample(seed)
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


# Errors of a group conversation, when it is built and before any model is called.


TWO: list[dict[str, Any]] = [
    {"name": "Ann", "task": "Keep a number.", "checks_completion": True},
    {"name": "Bob", "task": "Guess it."},
]
NO_STOPPER = [{**speaker, "checks_completion": False} for speaker in TWO]
PRICE = {"input": 1, "output": 2}


WAYS = ("python", "dict", "toml", "json")


def build(way: str, fields: dict[str, Any]) -> Conversation:
    """Return a group conversation by the function, a dict or a file."""
    if way == "python":
        return group_solve(**fields)
    whole = {"kind": "group_solve", **fields}
    if way == "dict":
        return load_conversation(whole)
    path = Path(f"game.{way}")
    path.write_text(tomli_w.dumps(whole) if way == "toml" else json.dumps(whole))
    return load_conversation(path)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_with_the_field(way: str) -> None:
    def check(fields: dict[str, Any], sentence: str) -> None:
        with pytest.raises(SpecError) as caught:
            build(way, {"speakers": TWO, **fields})
        found = str(caught.value).removeprefix(f"game.{way}: ")
        assert found.startswith(sentence)
        assert "\n" not in found

    check_rows(read_rows(__file__, "group_solve_errors"), check)


def test_no_model_is_called_for_it() -> None:
    model = ScriptedChatModel(script=[])
    wrong = {"kind": "group_solve", "speakers": TWO, "shift_owner": "Cy"}
    Path("game.toml").write_text(tomli_w.dumps(wrong))
    for source in ("game.toml", wrong):
        with pytest.raises(SpecError, match="shift_owner: no speaker is called 'Cy'"):
            converse(source, model=model, store="memory:")
    assert model.calls == []


@pytest.mark.parametrize("way", ["python", "dict", "json"])
def test_a_cap_of_none_needs_a_person(way: str) -> None:
    """Y2: only a conversation with a person may have no cap; TOML has no null for it."""
    with pytest.raises(
        SpecError, match=r"^(game.json: )?end_chat\.max_iterations: can be null only"
    ):
        build(way, {"speakers": TWO, "end_chat": {"max_iterations": None}})


def test_a_price_table_without_the_default_model_is_refused_before_it_is_asked() -> None:
    """A price for the default model, known only at the run, is required before its first call."""
    model = ScriptedChatModel(script=[])
    conversation = group_solve(TWO, prices={"huge": PRICE})
    with pytest.raises(SpecError, match="prices: the model 'ScriptedChatModel' has no price"):
        converse(conversation, model=model, store="memory:")
    assert model.calls == []


# The same rules apply to a full conversation without the short form.


def test_a_whole_conversation_is_held_to_the_same() -> None:
    def check(fields: dict[str, Any], sentence: str) -> None:
        whole = {"speakers": TWO, **fields}
        Path("whole.toml").write_text(tomli_w.dumps(whole))
        with pytest.raises(SpecError) as made:
            Conversation(**whole)
        with pytest.raises(SpecError) as read:
            load_conversation(whole)
        with pytest.raises(SpecError) as in_file:
            load_conversation("whole.toml")
        assert str(made.value).startswith(sentence)
        assert str(read.value).startswith(sentence)
        assert str(in_file.value).startswith(f"whole.toml: {sentence}")

    check_rows(read_rows(__file__, "whole_group_errors"), check)


def test_the_objects_are_held_to_the_same() -> None:
    """Ends written with operators follow the same rules."""
    won = Predicate(name="won") & MaxMessages(limit=50)
    with pytest.raises(SpecError, match=r"end_chat\.when\.of\.1\.limit: can never be met"):
        group_solve(TWO, end_chat={"when": won})
    with pytest.raises(SpecError, match=r"end_chat\.when\.of\.1\.of\.2\.limit: can never be met"):
        group_solve(TWO, end_chat={"when": Predicate(name="lost") | DoneToken(token="OK") & won})  # noqa: S106
    assert group_solve(TWO, end_chat={"when": won | MaxMessages(limit=50), "max_iterations": 24})


def test_what_is_just_possible_is_taken() -> None:
    """Each rule accepts its limit value."""
    two_rounds = {"kind": "max_messages", "limit": 5}
    possible = {"kind": "all", "of": [{"kind": "predicate", "name": "won"}, two_rounds]}
    assert group_solve(TWO, end_chat={"max_iterations": 2, "when": possible})
    assert group_solve(NO_STOPPER, end_chat={"mode": "max_iterations_only"})
    assert group_solve(TWO, shift_owner="Bob").order == ("Bob", "Ann")
    assert group_solve(TWO, model="huge", prices={"huge": PRICE})
