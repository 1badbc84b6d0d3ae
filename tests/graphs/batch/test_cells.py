"""Cells of a batch: their number, order, ids and values."""

import json
import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_core.tools import tool

from duologue.graphs import Batch, Conversation, SpecError, load_conversation, role_play
from duologue.graphs.batch.cells import Cells
from duologue.graphs.batch.values import canonical_json
from duologue.graphs.common.data import NamedObject
from duologue.graphs.conversation.fields import SPEC_VERSION
from duologue.graphs.store.rows import check_session_id
from support.batches import PLAY, cells_of
from support.cases import drawn_cases
from support.tables import read_rows

TALK: dict[str, Any] = {
    "task": "Agree",
    "speakers": [{"name": "Ann"}, {"name": "Dr. Who", "replies": ["human", "model"]}],
    "end_chat": {"when": [{"kind": "max_messages", "limit": 9}, "stop_requested"]},
    "model": "gpt-4.1",
    "prices": {"gpt-4.1": {"input": 1, "output": 2}},
}


STORABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | STORABLE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(STORABLE, inner),
    max_leaves=4,
)
TEXTS = st.text("abc é'\"{}", min_size=1, max_size=6).filter(str.strip)


def columns(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=3, unique_by=canonical_json)


GRIDS = st.fixed_dictionaries(
    {},
    optional={
        "task": columns(TEXTS),
        "end_chat.max_iterations": columns(st.integers(1, 99)),
        "labels.set": columns(JSON),
        "title, labels.with": columns(st.tuples(TEXTS, JSON)),
    },
).flatmap(lambda given: st.permutations(list(given.items())).map(dict))


def _pairs(key: str, row: Any) -> dict[str, Any]:  # noqa: ANN401
    return dict(zip(key.split(", "), row if "," in key else [row], strict=True))


@drawn_cases(10, 100, vary=GRIDS, trials=st.integers(1, 3))
def test_there_is_one_cell_for_each_combination_and_trial_the_first_field_slowest(
    vary: dict[str, Any], trials: int
) -> None:
    cells = cells_of(vary, trials=trials)
    axes = [[_pairs(key, row) for row in rows] for key, rows in vary.items()]
    wanted = [
        ({path: value for part in parts for path, value in part.items()}, trial)
        for parts in product(*axes)
        for trial in range(1, trials + 1)
    ]
    found = [*cells]
    assert len(cells) == len(found) == len(wanted)
    assert [(dict(cell.varied), cell.trial) for cell in found] == wanted
    assert [cell.number for cell in found] == [*range(1, len(found) + 1)]
    assert [cells.cell(number) for number in range(1, len(found) + 1)] == found
    assert len({cell.session for cell in found}) == len(found)
    assert cells.grid.paths == tuple(path for key in vary for path in key.split(", "))
    for cell in found:
        assert check_session_id(cell.session).startswith("grid-")
        made = cell.conversation()
        assert made.task == cell.varied.get("task", PLAY["task"])
        assert made.title == cell.varied.get("title")
        assert made.end_chat.max_iterations == cell.varied.get("end_chat.max_iterations", 5)


@drawn_cases(10, 100, vary=GRIDS, data=st.data())
def test_a_batch_that_grows_keeps_its_cells(vary: dict[str, Any], data: st.DataObject) -> None:
    less = {key: data.draw(st.lists(st.sampled_from(rows), min_size=1, unique_by=canonical_json))
            for key, rows in vary.items()}  # fmt: skip
    trials = data.draw(st.integers(1, 3))
    before, after = cells_of(less, trials=trials), cells_of(vary, trials=3)
    assert before.spec == after.spec
    grown = {cell.session: cell for cell in after}
    for cell in before:
        again = grown[cell.session]
        assert (again.varied, again.trial) == (cell.varied, cell.trial)
        assert again.conversation() == cell.conversation()


def test_a_million_cells_are_made_as_they_are_asked_for() -> None:
    cells = cells_of(
        {
            "user_role": [f"User {number}" for number in range(100)],
            "assistant_role": [f"Helper {number}" for number in range(100)],
            "task": [f"Task {number}" for number in range(100)],
        }
    )
    assert len(cells) == 1_000_000
    last = cells.cell(1_000_000)
    assert last.conversation().names == ("User 99", "Helper 99")
    # The count uses the rows, not the combinations.
    cells.grid.check()
    with pytest.raises(IndexError, match="1000001"):
        cells.cell(1_000_001)
    with pytest.raises(SpecError, match=r"8,000,000,000 sessions, more than 1,000,000,000; vary"):
        cells_of({f"labels.{name}": [*range(2000)] for name in "abc"})


@pytest.mark.parametrize(
    ("seed", "own", "wanted"),
    [
        (None, None, [None, 1, 2]),
        (None, 7, [7, 8, 9]),
        (3, None, [3, 4, 5]),
        (0, 7, [0, 1, 2]),
    ],
)
def test_each_trial_has_a_seed_of_its_own(
    seed: int | None, own: int | None, wanted: list[int | None]
) -> None:
    base = PLAY if own is None else {**PLAY, "seed": own}
    for conversation in (base, load_conversation(base)):
        cells = cells_of({}, conversation, seed=seed, trials=3)
        assert [cell.conversation().seed for cell in cells] == wanted
    assert [cell.conversation().seed for cell in cells_of({"seed": [5, 9]}, trials=2)] == [
        *(5, 6, 9, 10)
    ]


PATHS: list[tuple[dict[str, Any], str, Any, str]] = read_rows(__file__, "paths")


def at(conversation: Conversation, path: str) -> object:
    found: Any = conversation
    for name in path.split("."):
        name = name.replace("%", ".")
        if isinstance(found, tuple):
            found = found[int(name)]
        else:
            found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


@pytest.mark.parametrize(("base", "path", "value", "place"), PATHS)
def test_paths_reach_any_field(base: dict[str, Any], path: str, value: object, place: str) -> None:
    cells = cells_of({path: [value]}, base)
    cells.grid.check()
    found = at(cells.cell(1).conversation(), place)
    assert ([*found] if isinstance(found, tuple) else found) == value
    json.loads(cells.spec)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [(path, value, place) for base, path, value, place in PATHS if base == TALK]
    + [("end_chat.when.of.0.limit", 7, "end_chat.when.of.0.limit")],
)
def test_paths_reach_any_field_of_a_conversation_made_in_python(
    path: str, value: object, place: str
) -> None:
    base = load_conversation(TALK)
    path = path.replace("when.0", "when.of.0")
    cell = cells_of({path: [value]}, base).cell(1)
    assert at(cell.conversation(), place) == value
    if not path.startswith("end_chat"):
        assert cell.conversation().end_chat == base.end_chat


def test_a_conversation_made_in_python_keeps_its_objects_and_what_nobody_set() -> None:
    @tool
    def price() -> str:
        """Return the price."""
        return "3"

    base = role_play("Plan", "Buyer", "Seller", assistant={"tools": [price]})
    cell = cells_of({"speakers.Seller.task": ["Sell"]}, base).cell(1)
    made, wanted = cell.conversation(), base.replace(speakers={"Seller": {"task": "Sell"}})
    assert made == wanted
    assert [one.model_fields_set for one in made.speakers] == [
        one.model_fields_set for one in wanted.speakers
    ]
    (name,) = made.speakers[1].tools
    assert isinstance(name, NamedObject)
    assert name.brought is price
    # The other process gets only data.
    assert pickle.loads(pickle.dumps(cell)).conversation() == made  # noqa: S301


def test_another_system_prompt_takes_the_short_one_of_tiny_models_with_it() -> None:
    for base in (role_play("Plan", "Buyer", "Seller"), PLAY):
        made = cells_of({"speakers.Buyer.system_prompt": ["Haggle."]}, base).cell(1).conversation()
        assert made.speakers[0].system_prompt == "Haggle."
        assert made.speakers[0].small_model_prompt is None
    small_model_prompt = {"system_prompt": "Haggle.", "reminder": "Now."}
    both = {
        "speakers.0.small_model_prompt, speakers.0.system_prompt": [
            [small_model_prompt, "Haggle well."]
        ]
    }
    for base in (role_play("Plan", "Buyer", "Seller"), PLAY):
        speaker = cells_of(both, base).cell(1).conversation().speakers[0]
        assert speaker.small_model_prompt is not None
        assert (speaker.system_prompt, speaker.small_model_prompt.reminder) == (
            "Haggle well.",
            "Now.",
        )


def test_what_makes_a_batch_leaves_its_values_out() -> None:
    one = cells_of({"task": ["a"], "labels.set": [1]})
    assert json.loads(one.spec) == {
        "conversation": PLAY,
        "seed": None,
        "vary": ["labels.set", "task"],
        "version": SPEC_VERSION,
    }
    assert one.spec == cells_of({"labels.set": [2, 1], "task": ["b"]}, trials=4).spec
    assert one.spec != cells_of({"task": ["a"]}).spec
    assert one.spec != cells_of({"task": ["a"], "labels.set": [1]}, {**PLAY, "word_limit": 9}).spec
    assert one.spec != cells_of({"task": ["a"], "labels.set": [1]}, seed=0).spec


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 101, "a\n"])
def test_a_batch_must_have_a_name_that_ids_can_begin_with(name: str) -> None:
    with pytest.raises(SpecError, match=r"is not a valid name of a batch; use 1 to 100 of"):
        Cells.of(Batch(conversation=PLAY), name)
    Cells.of(Batch(conversation=PLAY), "Trials_1.2-b" + "x" * 88)
