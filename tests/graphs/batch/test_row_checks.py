"""The check of a batch's rows: it builds few conversations and finds the same errors."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from duologue.graphs import SpecError
from duologue.graphs.batch import grid
from duologue.graphs.batch.cells import Cells
from duologue.graphs.batch.spec import load_batch
from duologue.graphs.cli.descriptions import read_sample
from support.cases import drawn_cases
from support.graphs import forms_by_kind

PLAY: dict[str, Any] = {
    "kind": "role_play",
    "task": "Plan a garden",
    "user_role": "Buyer",
    "assistant_role": "Seller",
}
TALK: dict[str, Any] = {"task": "Agree", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}
GROUP: dict[str, Any] = {
    "kind": "group_solve",
    "speakers": [{"name": "Ann", "task": "Ask."}, {"name": "Bob", "task": "Answer."}],
}
PLAIN: list[tuple[dict[str, Any], str]] = [
    *((TALK, path) for path in ("task", "title", "opening.first_line")),
    *((TALK, f"speakers.1.{field}") for field in ("task", "system_prompt")),
    *((PLAY, f"speakers.1.{field}") for field in ("task", "system_prompt")),
    (GROUP, "speakers.Ann.task"),
    *(
        (tomllib.loads(read_sample(kind)) if kind != "group_solve" else GROUP, path)
        for kind, form in forms_by_kind().items()
        for path in [*sorted(grid.PLAIN_TEXTS & form.model_fields.keys()), "title"]
        + [f"{role}.{field}" for role in form.roles for field in ("task", "system_prompt")]
    ),
]
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=6
).filter(lambda text: any(map(str.isprintable, text.strip())))
WORDS = st.sampled_from(
    ["{task} {no}", "<CAMEL_TASK_DONE>", "null", "3", '"a"', "Buyer", "x" * 999]
)


def cells_of(conversation: dict[str, Any], vary: dict[str, Any]) -> Cells:
    return Cells.of(load_batch({"conversation": conversation, "vary": vary}), "grid")


def first_error_row_by_row(cells: Cells) -> str | None:
    """Return the error of the first row whose conversation cannot be built."""
    for row in range(len(cells)):
        try:
            cells.grid.conversation([row])
        except SpecError as error:
            return f"row {row + 1}: {error}"
    return None


@drawn_cases(20, 600, field=st.sampled_from(PLAIN), text=TEXTS | WORDS)
def test_each_text_fits_if_one_text_fits_a_plain_field(
    field: tuple[dict[str, Any], str], text: str
) -> None:
    conversation, path = field
    cells_of(conversation, {path: ["Fits.", text]}).cell(2).conversation()


ROLES = st.sampled_from(["Ann", "Bob", "ann", " ", "Cook"])
ROWS = st.lists(
    st.tuples(ROLES, ROLES, st.sampled_from(["a", "b", "c", " ", "", 3, None])),
    min_size=2,
    max_size=6,
    unique=True,
)


@drawn_cases(20, 600, rows=ROWS)
def test_the_first_row_that_does_not_fit_is_named(rows: list[tuple[str, str, Any]]) -> None:
    fits = ("Cook", "Teacher", "Plan")
    cells = cells_of(PLAY, {"user_role, assistant_role, task": [fits, *rows]})
    wanted = first_error_row_by_row(cells)
    if wanted is None:
        cells.grid.check()
        return
    place, _, text = wanted.partition(": ")
    with pytest.raises(SpecError) as caught:
        cells.grid.check()
    assert str(caught.value).startswith(f"vary.user_role, assistant_role, task: {place}: ")
    assert str(caught.value).endswith(text.partition(": ")[2])


def test_rows_that_differ_in_a_plain_text_build_one_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = [f"{user},{helper}" for user in "abc" for helper in "xyz"]
    lines = [f"{pair},Task {number}" for pair in roles for number in range(100)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["user_role,assistant_role,task", *lines]))
    cells = cells_of(PLAY, {"user_role, assistant_role, task": str(file)})
    built: list[object] = []
    build = grid.conversation_of

    def count(data: Mapping[str, Any], *, is_made: bool) -> object:
        built.append(data)
        return build(data, is_made=is_made)

    monkeypatch.setattr(grid, "conversation_of", count)
    cells.grid.check()
    assert len(cells) == 900
    assert len(built) == len(roles)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Ann,Cook, ", "line 400: must not be empty"),
        ("Ann,Ann,Task", "line 400: speakers: two speakers are called 'Ann'"),
        ("Ann,Cook,", None),
    ],
)
def test_an_error_far_down_a_file_names_its_line(
    line: str, told: str | None, tmp_path: Path
) -> None:
    lines = ["user_role,assistant_role,task", *(f"Ann,Bob,Task {n}" for n in range(2, 400)), line]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    cells = cells_of(PLAY, {"user_role, assistant_role, task": str(tmp_path / "rows.csv")})
    if told is None:
        # An empty cell leaves the conversation's task.
        return cells.grid.check()
    with pytest.raises(SpecError) as caught:
        cells.grid.check()
    assert told in str(caught.value)
