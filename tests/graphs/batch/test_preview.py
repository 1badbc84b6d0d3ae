"""Dry runs of a batch: its sessions, the normal number of their calls, and two cells."""

from typing import Any

import pytest
from hypothesis import strategies as st

from duologue.graphs import Batch, SpecError, converse, load_conversation
from duologue.graphs.batch.cells import Cells
from duologue.graphs.batch.driver import BatchSettings, select_cells
from duologue.graphs.batch.preview import Preview, preview_batch
from duologue.graphs.batch.spec import load_batch
from duologue.graphs.conversation.limits import plain_calls
from duologue.nodes.testing import ScriptedChatModel
from support.batches import PLAY, cells_of
from support.cases import drawn_cases
from support.tables import read_rows

TALK: dict[str, Any] = {
    "task": "Agree",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}, {"name": "Cid", "checks_completion": True}],
}
ALL: dict[str, Any] = {"mode": "all_task_must_complete", "max_iterations": 2}


NO_LIMITS = Batch(conversation=PLAY)


def seen(conversation: object = PLAY, **fields: Any) -> Preview:
    batch = load_batch({"conversation": conversation, **fields})
    return preview_batch(select_cells(Cells.of(batch, "grid"), BatchSettings()), batch)


def test_a_dry_run_tells_sessions_calls_limits_and_two_filled_cells() -> None:
    found = seen(
        vary={"user_role": ["Ann", "Bob"], "task, labels.set": [["Sow", 1], ["Reap\nit all", 2]]},
        trials=3,
        limits={"max_cost": 2.5, "rates": {"*": {"requests_per_minute": 1500}}},
    )
    first, *_, last = found.text().partition("Session 12")
    assert first.startswith(
        "12 sessions, normally up to 132 model calls in all, plus tool calls and retries.\n"
        "Limits: max_cost 2.5; * 1,500 requests_per_minute.\n"
    )
    assert "Session 1, grid-" in first
    for line in ("  user_role = Ann\n", "  task = Sow\n", "  labels.set = 1\n"):
        assert line in first
    for line in ("  user_role = Bob\n", "  task = Reap it all\n", "  seed = 2\n"):
        assert line in last
    assert "  Bob starts with: You are Bob. You lead Seller" in last
    assert Preview.model_validate_json(found.model_dump_json()) == found
    assert seen().text().startswith("1 session, ")
    assert [cell.number for cell in seen().cells] == [1]
    assert "Limits: none." in seen().text()


VARY: dict[str, Any] = {
    "task": ["a", "b", "c"],
    "max_iterations": [1, 3, 1000],
    "mode": ["max_iterations_only", "all_task_must_complete"],
    "specify_task, labels.set": [[True, 1], [False, 2], [True, 3]],
    "judge.form": ["structured", "two_questions"],
    "end_chat.when": [{"kind": "max_calls", "limit": 10}, "stop_requested"],
    "word_limit, user_prompt": [[3, "Ask."], [4, "Ask!"]],
}


@drawn_cases(
    4,
    30,
    keys=st.sets(st.sampled_from([*VARY]), max_size=3),
    most=st.none() | st.integers(1, 20),
    shuffle=st.booleans(),
)
def test_the_calls_of_a_run_are_those_of_its_cells(
    keys: set[str], most: int | None, shuffle: bool
) -> None:
    cells = cells_of({key: VARY[key] for key in keys}, trials=2)
    run = select_cells(cells, BatchSettings(limit=most, shuffle=shuffle))
    found = preview_batch(run, NO_LIMITS)
    assert found.plain_calls == sum(plain_calls(cell.conversation()) or 0 for cell in run)
    assert found.sessions == len(run)


def test_a_dry_run_says_which_part_runs_and_in_which_order() -> None:
    cells = cells_of({"user_role": ["Ann", "Bob", "Cid", "Dan"]})

    def told(**options: Any) -> str:
        return preview_batch(select_cells(cells, BatchSettings(**options)), NO_LIMITS).text()

    assert told().startswith("4 sessions, normally ")
    assert told(limit=2).startswith("The first 2 of 4 sessions, normally ")
    assert told(sample=3).startswith("A random sample of 3 of 4 sessions, normally ")
    assert told(sample=3, limit=1).startswith(
        "The first 1 of a random sample of 3 of 4 sessions, normally "
    )
    assert "\nOrder: shuffled, seed 0.\n" in told()
    assert "\nOrder: shuffled, seed 7.\n" in told(seed=7)
    assert "\nOrder: the sessions' numbers.\n" in told(shuffle=False)
    first, *_, last = select_cells(cells, BatchSettings(sample=3))
    shown = [line for line in told(sample=3).splitlines() if line.startswith("Session ")]
    assert [line.partition(",")[0] for line in shown] == [
        f"Session {first.number}",
        f"Session {last.number}",
    ]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "conversation",
    read_rows(__file__, "plain_calls_are_what_a_conversation_takes_to_its_cap"),
)  # fmt: skip
def test_plain_calls_are_what_a_conversation_takes_to_its_cap(conversation: dict[str, Any]) -> None:
    spec = load_conversation(conversation)

    asked = 0

    def script(prompt: list[dict[str, Any]]) -> str | dict[str, Any]:
        nonlocal asked
        asked += 1
        told, text = str(prompt), f"Word{asked} is not the same as line{asked * 7}."
        if "yes or no" in str(prompt[-1]):
            return "No"
        if "Is your task complete?" in str(prompt[-1]):
            return {"complete": False, "objectives_left": ["All."]}
        if "You moderate" in told:
            said = str(prompt[-1]["content"])
            return min(spec.names, key=lambda name: said.rfind(f"{name}:"))
        if "Done." in told:
            return "1. not met"
        if 'Begin each message with "Solution:"' in told:
            return f"Solution: {text}\nNext request."
        return f"Instruction: {text}\nInput: None" if "one instruction for" in told else text

    model = ScriptedChatModel(script=script)
    converse(spec, model=model, store="memory:plain", reset=True, session="plain")
    assert asked == plain_calls(spec)


@pytest.mark.parametrize(("final", "plain"), [(True, 5), (False, 5)])
def test_a_judge_at_the_end_adds_its_calls(final: bool, plain: int) -> None:
    conversation = {
        "task": "Sell.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "judge": {"criteria": ["A price is named."], "final_verdict": final},
        "end_chat": {"max_iterations": 2},
    }
    batch = load_batch(
        {"conversation": conversation, "trials": 3, "score": "criteria", "judge_at_end": True}
    )
    cells = Cells.of(batch, "grid")
    found = preview_batch(select_cells(cells, BatchSettings()), batch)
    # Four messages and one verdict, at the cap or after it.
    assert found.plain_calls == 3 * plain


CHAT: dict[str, Any] = {"kind": "chat"}
AGENT: dict[str, Any] = {
    "task": "x",
    "speakers": [{"name": "A"}, {"name": "B", "replies": [{"kind": "agent", "name": "mine"}]}],
}
FIVE_CALLS = {"when": {"kind": "max_calls", "limit": 5}}


@pytest.mark.parametrize("conversation", [CHAT, AGENT])
def test_without_a_cap_and_with_agents_only_a_limit_on_calls_is_known(
    conversation: dict[str, Any],
) -> None:
    found = seen(conversation)
    assert found.plain_calls is None
    assert "1 session. The number of model calls is not known, because " in found.text()
    assert seen(conversation | {"end_chat": FIVE_CALLS}).plain_calls == 5


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_calls_of_many_cells_are_estimated(shuffle: bool) -> None:
    vary = {"task": [f"Task {number}" for number in range(1_000)], "max_iterations": [1, 2, 3, 10]}
    run = select_cells(cells_of(vary), BatchSettings(shuffle=shuffle))
    found = preview_batch(run, NO_LIMITS)
    # Each session has the call for the task and two calls in each round.
    assert found.plain_calls == pytest.approx(4_000 * (1 + 2 * 4), rel=0.15)
    number = f"{found.plain_calls:,}"
    assert f"4,000 sessions, normally about {number} model calls in all, plus " in found.text()


def test_a_cell_whose_values_do_not_fit_is_shown_with_why() -> None:
    vary = {"user_role": ["Ann", "Bob"], "assistant_role": ["Cid", "Bob"]}
    found = seen(vary=vary)
    assert "It will fail: speakers: two speakers are called 'Bob'" in found.text()
    assert found.plain_calls == 3 * 11
    with pytest.raises(SpecError):
        load_conversation(PLAY | {"user_role": "Seller"})
