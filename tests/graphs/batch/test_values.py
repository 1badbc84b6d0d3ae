"""The values of a batch: lists, files and tables, and an error message of one sentence for each."""

import tomllib
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from duologue.graphs import SpecError, load_conversation
from duologue.graphs.batch import grid
from duologue.graphs.batch.cells import Cells
from duologue.graphs.batch.spec import load_batch
from duologue.graphs.cli.descriptions import read_sample
from support.batches import PLAY, cells_of
from support.cases import drawn_cases
from support.graphs import forms_by_kind
from support.tables import each_row, read_rows

TWO: dict[str, Any] = {"task": "Agree", "speakers": [{"name": "Ann"}, {"name": "Dr. Who"}]}


def varied(vary: object, folder: Path, **fields: Any) -> list[dict[str, Any]]:
    with chdir(folder):
        cells = cells_of(vary, **fields)
    cells.grid.check()
    return [dict(cell.varied) for cell in cells]


@each_row("fields_are_named_in_all_the_ways_of_toml", "vary", "paths")
def test_fields_are_named_in_all_the_ways_of_toml(
    vary: str, paths: list[str], tmp_path: Path
) -> None:
    (tmp_path / "play.toml").write_text(
        'kind = "role_play"\ntask = "Plan"\nuser_role = "Buyer"\nassistant_role = "Seller"\n'
    )
    file = tmp_path / "grid.toml"
    file.write_text(f'conversation = "play.toml"\n[vary]\n{vary}\n')
    cells = Cells.of(load_batch(file), "grid")
    cells.grid.check()
    assert list(cells.grid.paths) == paths


def test_files_are_looked_for_where_the_batch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "grids"
    folder.mkdir()
    (folder / "play.json").write_text(
        '{"task": "Agree", "speakers": [{"name": "A"}, {"name": "B"}]}'
    )
    (folder / "tasks.txt").write_text("one\n")
    (folder / "grid.json").write_text(
        '{"conversation": "play.json", "vary": {"task": "tasks.txt"}}'
    )
    cell = Cells.of(load_batch(str(folder / "grid.json")), "grid").cell(1)
    assert cell.conversation().task == "one"
    given = {"conversation": Path("play.json"), "vary": {"task": Path("tasks.txt")}}
    monkeypatch.chdir(folder)
    assert Cells.of(load_batch(given), "grid").cell(1) == cell


NONE = "nothing"

READ: list[tuple[str, str, str, list[Any]]] = [
    *read_rows(__file__, "read"),
    ("labels.n", "f.csv", 'labels.n:json\n1\n"""1"""\nnull\n', [1, "1", None]),
    ("labels.set", "f.jsonl", "1\nnull", [1, None]),
]


@pytest.mark.parametrize(("key", "name", "text", "wanted"), READ)
def test_values_are_read_from_files(
    key: str, name: str, text: str, wanted: list[Any], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    paths = key.split(", ")
    rows = [row if len(paths) > 1 else (row,) for row in wanted]
    found = varied({key: name}, tmp_path)
    assert found == [
        {path: value for path, value in zip(paths, row, strict=True) if value != NONE}
        for row in rows
    ]
    kinds = [[*map(type, row.values())] for row in found]
    assert kinds == [[type(value) for value in row if value != NONE] for row in rows]


def test_rows_are_lists_or_tables(tmp_path: Path) -> None:
    rows = [["a", 1], ("b", 2), {"word_limit": 3, "task": "c"}]
    assert varied({"task, word_limit": rows}, tmp_path) == [
        {"task": task, "word_limit": limit} for task, limit in [("a", 1), ("b", 2), ("c", 3)]
    ]


WRONG: list[tuple[object, str]] = [
    *read_rows(__file__, "wrong"),
    ({3: [1]}, "vary: 3 is not a path; it must be text"),
    ({"task": ["a", {1}]}, "vary.task: row 2: is not a JSON value"),
]

FILES = dict(read_rows(__file__, "files"))


@pytest.mark.parametrize(("vary", "told"), WRONG)
def test_what_is_wrong_is_told_in_one_sentence(vary: object, told: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "utf-16.txt").write_text("a", encoding="utf-16")
    fields = {"seed": 3} if vary == {"seed": [1]} else {}
    with pytest.raises(SpecError) as caught:
        varied(vary, tmp_path, **fields)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@each_row("what_else_is_wrong_with_a_batch", "fields", "told")
def test_what_else_is_wrong_with_a_batch(fields: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        varied({}, tmp_path, **fields)
    assert told in str(caught.value)


@each_row("an_error_names_the_batchs_file", "name", "text", "told")
def test_an_error_names_the_batchs_file(name: str, text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError) as caught:
        load_batch(tmp_path / name)
    assert told in str(caught.value)


def test_a_batchs_file_is_no_conversations(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('trials = 2\n[conversation]\nkind = "role_play"\n')
    with pytest.raises(SpecError, match=r"b\.toml: is a batch; run it with `duologue batch run "):
        load_conversation(file)


def test_what_is_no_batch_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="this is a conversation; make a batch with"):
        load_batch(PLAY)
    for given in (load_conversation(PLAY), None, 3):
        with pytest.raises(TypeError, match="a batch must be a Batch, a dict or a file, not"):
            load_batch(given)  # type: ignore[arg-type]


def test_rows_are_named_beside_an_error_only_where_others_do_not_fail_alike(tmp_path: Path) -> None:
    wrong = {"conversation": {**PLAY, "user_rol": "x"}}
    for fields, vary, told in (
        (wrong, {"task": ["a", "b"]}, r"conversation: user_rol: .*\?$"),
        (
            {},
            {"user_role": ["Ann", "Bob"], "assistant_role": ["Ann"]},
            r"\(with row 1 of vary\.user",
        ),
    ):
        with pytest.raises(SpecError, match=told):
            varied(vary, tmp_path, **fields)


def test_a_whole_conversation_by_its_fields_stays_data(tmp_path: Path) -> None:
    batch = load_batch({"conversation": TWO})
    assert batch.conversation == TWO
    assert varied({'speakers."Dr. Who".task': ["a"]}, tmp_path, conversation=TWO) == [
        {'speakers."Dr. Who".task': "a"}
    ]


# The check of a batch's rows: it builds few conversations and finds the same errors.


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
    cells_of({path: ["Fits.", text]}, conversation).cell(2).conversation()


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
    cells = cells_of({"user_role, assistant_role, task": [fits, *rows]})
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
    cells = cells_of({"user_role, assistant_role, task": str(file)})
    built: list[object] = []
    build = grid.conversation_of

    def count(data: Mapping[str, Any], *, is_made: bool) -> object:
        built.append(data)
        return build(data, is_made=is_made)

    monkeypatch.setattr(grid, "conversation_of", count)
    cells.grid.check()
    assert len(cells) == 900
    assert len(built) == len(roles)


@each_row("an_error_far_down_a_file_names_its_line")
def test_an_error_far_down_a_file_names_its_line(
    line: str, told: str | None, tmp_path: Path
) -> None:
    lines = ["user_role,assistant_role,task", *(f"Ann,Bob,Task {n}" for n in range(2, 400)), line]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    cells = cells_of({"user_role, assistant_role, task": str(tmp_path / "rows.csv")})
    if told is None:
        # An empty cell leaves the conversation's task.
        return cells.grid.check()
    with pytest.raises(SpecError) as caught:
        cells.grid.check()
    assert told in str(caught.value)
