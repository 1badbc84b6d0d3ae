"""Batches whose values are the results of an earlier batch."""

import logging
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from duologue.graphs import BatchError, BatchRun, Session, SpecError, arun_batch, run_batch
from duologue.graphs.batch.earlier_results import EarlierResult, read_rows
from duologue.graphs.batch.read_earlier import store_earlier_values
from duologue.graphs.batch.spec import load_batch
from duologue.graphs.store.open import open_store
from duologue.nodes.testing import Prompt, ScriptedChatModel

LISTS: dict[str, Any] = {
    "conversation": {
        "task": "List the tasks.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"when": {"kind": "max_messages", "limit": 1}},
    },
    "vary": {"title": ["garden", "party"]},
}
TALKS: dict[str, Any] = {
    "conversation": {
        "task": "Plan.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"when": {"kind": "max_messages", "limit": 1}},
    },
    "vary": {"title, task": "batch:lists"},
}
NUMBERS = count()
TWO_TASKS = "Here you are:\n1. Dig.\n2. Plant."


@pytest.fixture
def store() -> str:
    return f"memory:earlier-{next(NUMBERS)}"


def run_lists(store: str, *script: str, **fields: Any) -> None:
    model = ScriptedChatModel(script=[*script])
    # The script has the replies in the order of the cells.
    given = LISTS | fields
    run_batch(given, name="lists", model=model, store=store, concurrency=1, shuffle=False)


def run_talks(store: str, **fields: Any) -> list[tuple[Any, Any]]:
    model = ScriptedChatModel(lambda prompt: "Done.")
    run_batch(TALKS | fields, name="talks", model=model, store=store)
    return [(row["title"], row["task"]) for row in BatchRun("talks", store=store).rows()]


def test_each_item_of_a_list_is_a_value_beside_those_of_its_cell(store: str) -> None:
    run_lists(store, TWO_TASKS, "- Bake.\n- Bake.")
    assert run_talks(store) == [("garden", "Dig."), ("garden", "Plant."), ("party", "Bake.")]
    session = BatchRun("talks", store=store).rows()[1]["session"]
    conversation = Session(session, store=store).state().conversation
    assert (conversation.title, conversation.task) == ("garden", "Plant.")


def test_a_text_without_a_list_is_one_value(store: str) -> None:
    run_lists(store, " Dig.\nThen plant. ", "Bake.")
    assert run_talks(store) == [("garden", "Dig.\nThen plant."), ("party", "Bake.")]


class Plan(BaseModel):
    tasks: list[str]


def test_the_list_in_an_answer_with_a_schema_has_the_values(store: str) -> None:
    lists = LISTS["conversation"] | {
        "speakers": [{"name": "Ann", "format": {"name": "Plan", "form": "text"}}, {"name": "Bob"}]
    }
    model = ScriptedChatModel(script=['{"tasks": ["Dig.", "Plant."]}', "no JSON", "none again"])
    run_batch(
        LISTS | {"conversation": lists},
        name="lists", model=model, store=store, concurrency=1, schemas={"Plan": Plan},
        shuffle=False,
    )  # fmt: skip
    assert run_talks(store) == [("garden", "Dig."), ("garden", "Plant.")]


def test_the_values_stay_whatever_happens_to_the_earlier_batch(store: str) -> None:
    run_lists(store, TWO_TASKS, "Bake.")
    found = run_talks(store)
    lists = BatchRun("lists", store=store)
    run_lists(store, "1. Paint.", vary={"title": ["garden", "party", "house"]})
    assert run_talks(store) == found
    lists.delete()
    assert run_talks(store) == found
    BatchRun("talks", store=store).delete()
    with pytest.raises(SpecError, match="there is no batch 'lists'"):
        run_talks(store)


def test_cells_without_a_result_are_left_out_and_named(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(prompt: Prompt) -> str:
        if "Fail" in str(prompt):
            raise ValueError("no")
        return "1. Dig."

    rows = [[f"{place}", task] for place, task in enumerate(["List.", "Fail.", "List."])]
    model = ScriptedChatModel(reply)
    lists = LISTS | {"vary": {"title, task": rows}}
    run_batch(lists, name="lists", model=model, store=store, concurrency=1)
    third = BatchRun("lists", store=store).rows()[2]["session"]
    Session(third, store=store).delete()
    with caplog.at_level(logging.WARNING, "duologue"):
        talks = {"title, speakers.0.task": "batch:lists"}
        run_batch(TALKS | {"vary": talks}, name="talks", model=model, store=store)
    assert caplog.messages == [
        "Batch lists: cells without a result are left out: 1 failed, 1 deleted."
    ]
    rows_of_talks = BatchRun("talks", store=store).rows()
    assert [row["speakers.0.task"] for row in rows_of_talks] == ["Dig."]


def test_an_earlier_batch_must_exist_have_ended_and_have_results(store: str) -> None:
    def error() -> str:
        with pytest.raises(SpecError) as caught:
            run_talks(store)
        return str(caught.value)

    wanted = "vary.title, task: there is no batch 'lists' in "
    assert error() == f"{wanted}{store}; run it first, in this store"
    with pytest.raises(SpecError, match=r"vary\.task: names this batch itself; name an earlier"):
        run_talks(store, vary={"task": "batch:talks"})
    # The first call uses up the budget.
    run_lists(store, TWO_TASKS, limits={"max_tokens": 1})
    wanted = "vary.title, task: 1 of 2 cells of batch 'lists' have not ended; run it to its end"
    assert error().startswith(wanted)
    run_lists(store, "Bake.")
    for row in BatchRun("lists", store=store).rows():
        Session(row["session"], store=store).delete()
    assert error() == (
        "vary.title, task: no cell of batch 'lists' has a result (2 deleted); run it again"
    )


async def test_a_batch_that_runs_is_no_earlier_batch_yet(store: str) -> None:
    model = ScriptedChatModel(lambda prompt: TWO_TASKS)
    await arun_batch(LISTS, name="lists", model=model, store=store)
    async with open_store(store) as opened, opened.lock_batch("lists"):
        with pytest.raises(SpecError, match="batch 'lists' is running; wait until it has ended"):
            await arun_batch(TALKS, name="talks", model=model, store=store)


async def test_a_batch_does_not_begin_with_values_that_another_process_did_not_store(
    store: str,
) -> None:
    async with open_store(store) as opened, opened.lock_batch("talks") as lease:
        await store_earlier_values(opened, lease, {"lists": "[1]"})
        await store_earlier_values(opened, lease, {"lists": "[1]", "more": "[]"})
        with pytest.raises(BatchError, match="was begun by another process just now"):
            await store_earlier_values(opened, lease, {"lists": "[2]"})
        assert await opened.batches.values("talks") == {"lists": "[1]", "more": "[]"}


def test_a_value_that_does_not_fit_is_named_by_its_session(store: str) -> None:
    run_lists(store, TWO_TASKS, "1. Dig.\n2. x")
    first, second = (row["session"] for row in BatchRun("lists", store=store).rows())
    with pytest.raises(SpecError) as caught:
        run_talks(store, vary={"title, end_chat.max_iterations": "batch:lists"})
    assert str(caught.value).startswith(
        f"vary.title, end_chat.max_iterations: batch:lists, session {first}: input should be"
    )
    with pytest.raises(SpecError, match=f"batch:lists, session {first}: the earlier batch"):
        run_talks(store, vary={"title": "batch:lists"})
    Session(first, store=store).delete()
    with pytest.raises(
        SpecError, match=f"session {second}: the output is a single value, but must"
    ):
        run_talks(store, vary={"title, task, seed": "batch:lists"})


def test_the_files_of_a_folder_and_earlier_batches_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "talks.toml"
    file.write_text(
        '[conversation]\nkind = "role_play"\n[vary]\ntask = "batch:a.csv"\ntitle = "a.csv"'
    )
    assert load_batch(file).vary == {"task": "batch:a.csv", "title": f"{tmp_path / 'a.csv'}"}
    with pytest.raises(SpecError) as caught:
        load_batch(TALKS | {"vary": {"task": "batch:a/b"}})
    assert str(caught.value).startswith("vary.task: 'a/b' is not a valid name of a batch; use 1 to")


CELL: dict[str, JsonValue] = {"title": "garden", "labels.n": 3}


@pytest.mark.parametrize(
    ("output", "paths", "rows"),
    [
        ("Dig.", ["task"], [("Dig.",)]),
        (["Dig.", "Plant."], ["title", "task"], [("garden", "Dig."), ("garden", "Plant.")]),
        (["Dig.", "Plant."], ["task", "labels.n"], [("Dig.", 3), ("Plant.", 3)]),
        ({"why": "So.", "tasks": ["Dig.", 4]}, ["task"], [("Dig.",), (4,)]),
        ({"task": "Dig.", "list": [1, 2]}, ["task"], [("Dig.",)]),
        ({"task": ["Dig."]}, ["task"], [(["Dig."],)]),
        ({"rows": [{"task": "Dig.", "title": "A"}]}, ["title", "task"], [("A", "Dig.")]),
        ([{"task": "Dig.", "seed": 5}], ["title", "seed", "task"], [("garden", 5, "Dig.")]),
        ({"title": "A"}, ["title"], [("A",)]),
        ([], ["task"], []),
    ],
)
def test_rows_come_from_the_output_and_the_values_of_its_cell(
    output: Any,  # noqa: ANN401
    paths: list[str],
    rows: list[Any],
) -> None:
    assert [*read_rows(EarlierResult(session="s", varied=CELL, output=output), paths)] == rows


@pytest.mark.parametrize(
    ("output", "paths", "told"),
    [
        ("Dig.", ["title"], "so none is left for its output"),
        (
            "Dig.",
            ["task", "seed"],
            "the output is a single value, but must fill the fields 'task', 'seed'; use a",
        ),
        (
            {"tasc": "Dig."},
            ["task"],
            "the output has 'tasc', but none of the fields 'task'; use a schema with them",
        ),
        ({"a": [1], "b": [2]}, ["task"], "the output has 'a', 'b', but none of the fields 'task'"),
        ([{"task": "Dig."}], ["task", "seed"], "seed: is missing in the output"),
        ({"task": "Dig.", "seeds": 1}, ["task", "seed"], "did you mean 'seeds'?"),
    ],
)
def test_an_output_without_a_value_for_each_field_is_an_error(
    output: Any,  # noqa: ANN401
    paths: list[str],
    told: str,
) -> None:
    with pytest.raises(SpecError) as caught:
        [*read_rows(EarlierResult(session="s", varied=CELL, output=output), paths)]
    assert told in str(caught.value)
