"""The values of a batch: lists, files and tables, and an error message of one sentence for each."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import SpecError, load_conversation
from duologue.graphs.batch.cells import Cells
from duologue.graphs.batch.spec import load_batch

PLAY: dict[str, Any] = {
    "kind": "role_play",
    "task": "Plan a garden",
    "user_role": "Buyer",
    "assistant_role": "Seller",
}
TWO: dict[str, Any] = {"task": "Agree", "speakers": [{"name": "Ann"}, {"name": "Dr. Who"}]}


def varied(vary: object, folder: Path, **fields: Any) -> list[dict[str, Any]]:
    with chdir(folder):
        cells = Cells.of(load_batch({"conversation": PLAY, **fields, "vary": vary}), "grid")
    cells.grid.check()
    return [dict(cell.varied) for cell in cells]


@pytest.mark.parametrize(
    ("vary", "paths"),
    [
        ("end_chat.max_iterations = [3]", ["end_chat.max_iterations"]),
        ('"end_chat.max_iterations" = [3]', ["end_chat.max_iterations"]),
        ("[vary.end_chat]\nmax_iterations = [3]", ["end_chat.max_iterations"]),
        ('"end_chat.guards" = { echo = [0] }', ["end_chat.guards.echo"]),
        ('[vary.speakers.Seller]\ntask = ["a"]', ["speakers.Seller.task"]),
        (
            '[vary.speakers.Seller]\n"task, model_settings.temperature" = [["a", 1]]',
            ["speakers.Seller.task", "speakers.Seller.model_settings.temperature"],
        ),
        ('"user_role ,task"=[["a", "b"]]', ["user_role", "task"]),
        ("""'speakers."Seller".task' = ["a"]""", ["speakers.Seller.task"]),
        ("\"labels.'a, b.c'\" = [1]", ['labels."a, b.c"']),
    ],
)
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
    assert list(cells.paths) == paths


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
    # One value per line.
    ("task", "f.txt", "one\n\n  two \r\n# three\n", ["one", "two", "# three"]),
    ("task", "f.txt", "\ufeff42", ["42"]),
    ("word_limit", "f.txt", "9\n7", [9, 7]),
    ("labels.set", "f.txt", "9\n7", ["9", "7"]),
    # Tables.
    ("task", "f.csv", "task,word_limit\na,1\nb,2\n", ["a", "b"]),
    ("task", "f.csv", "task\na\n\nb\n", ["a", "b"]),
    ("task", "f.csv", '\ufefftask\r\n"a, ""b"""\r\n"two\r\nlines"\r\n', ['a, "b"', "two\nlines"]),
    ("task", "f.csv", "task\ntrue\n12\nnull\n", ["true", "12", "null"]),
    ("word_limit, task", "f.csv", "task, word_limit\na,1\nb,\n", [(1, "a"), (NONE, "b")]),
    ("specify_task", "f.csv", "specify_task\ntrue\nfalse\n", [True, False]),
    ("end_chat.min_iterations, end_chat.max_iterations, task", "f.csv",
     "task,end_chat.max_iterations,end_chat.min_iterations\n7,3,1\n8,4,\n",
     [(1, 3, "7"), (NONE, 4, "8")]),
    ("seed", "f.csv", "seed\n3\n-4\n", [3, -4]),
    ("temperature", "f.csv", "temperature\n0.5\n1\n", [0.5, 1]),
    ("end_chat.min_iterations", "f.csv", "end_chat.min_iterations\n0\n1\n", [0, 1]),
    ("specify_task, seed", "f.csv", "seed,specify_task\n3,TRUE\n4,False\n",
     [(True, 3), (False, 4)]),
    ("temperature", "f.csv", "temperature\nunset\n1\n", ["unset", 1]),
    ("speakers.Seller.model_settings.max_tokens", "f.txt", "9", [9]),
    ('prices."a.b".input, prices."a.b".output', "f.csv",
     '"prices.""a.b"".input","prices.""a.b"".output"\n2,0.5\n', [(2, 0.5)]),
    ("model", "f.csv", "model\n3\nnull\n", ["3", "null"]),
    ("labels.n, word_limit", "f.csv", "word_limit,labels.n\n1,10\n", [("10", 1)]),
    # Columns of JSON.
    ("judge.criteria", "f.csv", 'judge.criteria:json\n"[""Done.""]"\n', [["Done."]]),
    ("people, task", "f.csv", 'task, people:json\n"[1]","[""Buyer""]"\na,[]\nb,\n',
     [(["Buyer"], "[1]"), ([], "a"), (NONE, "b")]),
    ("speakers.Seller.tools", "f.csv", "speakers.Seller.tools:json\n[]\n", [[]]),
    ("labels.n", "f.csv", 'labels.n:json\n1\n"""1"""\nnull\n', [1, "1", None]),
    # A word can mean a table.
    ("end_chat", "f.csv", "end_chat\nmax_iterations_only\n", ["max_iterations_only"]),
    # Lines of JSON.
    ("task", "f.jsonl", '"a"\n\n{"task": "b", "more": 1}\n', ["a", "b"]),
    ("word_limit, task", "f.jsonl", '{"task": "a", "word_limit": 1}', [(1, "a")]),
    ("end_chat", "f.jsonl", '{"max_iterations": 3}\n"max_iterations_only"', [
        {"max_iterations": 3}, "max_iterations_only"]),
    ("labels.set", "f.jsonl", "1\nnull", [1, None]),
]  # fmt: skip


@pytest.mark.parametrize(("key", "name", "text", "wanted"), READ)
def test_values_are_read_from_files(
    key: str, name: str, text: str, wanted: list[Any], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    paths = key.split(", ")
    rows = [row if len(paths) > 1 else (row,) for row in wanted]
    found = varied({key: name}, tmp_path)
    assert found == [
        {path: value for path, value in zip(paths, row, strict=True) if value is not NONE}
        for row in rows
    ]
    kinds = [[*map(type, row.values())] for row in found]
    assert kinds == [[type(value) for value in row if value is not NONE] for row in rows]


def test_rows_are_lists_or_tables(tmp_path: Path) -> None:
    rows = [["a", 1], ("b", 2), {"word_limit": 3, "task": "c"}]
    assert varied({"task, word_limit": rows}, tmp_path) == [
        {"task": task, "word_limit": limit} for task, limit in [("a", 1), ("b", 2), ("c", 3)]
    ]


WRONG: list[tuple[object, str]] = [
    # Fields.
    ({"user_rol": ["x"]}, "vary.user_rol: row 1: there is no such field; did you mean 'user_role'"),
    ({"title.x": ["x"]}, "vary.title.x: row 1: title: input should be a valid string, not dict"),
    ({"a..b": [1]}, "vary: 'a..b' is not a path; join names with dots"),
    ({"a b.'c": [1]}, "vary: \"a b.'c\" is not a path"),
    ({"": [1]}, "vary: '' is not a path"),
    ({3: [1]}, "vary: 3 is not a path; it must be text"),
    (["task"], "vary: must be a table of fields with their values, not ['task']"),
    ({"labels": [1]}, "vary.labels: labels is not a label's path; write labels.NAME"),
    ({"labels": {"a": {"b": [1]}}}, "vary.labels.a.b: labels.a.b is not a label"),
    ({"speakers.Bob.task": ["x"]}, "vary.speakers.Bob.task: speakers: no speaker is called 'Bob'"),
    ({"speakers.2.task": ["x"]}, "speakers: there is no item 2; the list has 2 items"),
    ({"user_role, task": {"x": [1]}}, "vary.user_role, task: several fields can't share one table"),
    # Fields twice.
    ({"task": ["a"], "word_limit, task": [[1, "b"]]}, "vary.task: varies twice"),
    ({"task, task": [["a", "b"]]}, "vary.task: varies twice"),
    ({"end_chat": {"mode": ["x"]}, "end_chat.mode": ["y"]}, "vary.end_chat.mode: occurs twice"),
    ({"user": [{}], "user.task": ["a"]}, "vary.user.task: is a part of user, which varies as well"),
    ({"user.task": ["a"], "speakers.0.task": ["b"]},
     "vary.user.task: varies twice, also as speakers.0.task"),
    ({"max_iterations": [1], "end_chat.max_iterations": [2]},
     "max_iterations and end_chat.max_iterations set the same"),
    ({"seed": [1]}, "vary.seed: the batch's seed is set as well; set only one of them"),
    # Values.
    ({"task": 3}, "vary.task: must be a list of values or a file's name, not 3"),
    ({"task": []}, "vary.task: has no values"),
    ({"task": ["a", {1}]}, "vary.task: row 2: is not a JSON value"),
    ({"task": ["a", float("nan")]}, "vary.task: row 2: contains a number that JSON can't express"),
    ({"labels.n": [1, True, 1.0, "1", 1]}, "vary.labels.n: row 5: has the same values as row 1"),
    ({"task": ["a", "b", " "]}, "vary.task: row 3: must not be empty"),
    ({"end_chat.mode": ["all_task_must_complete", "al_task"]},
     "vary.end_chat.mode: row 2: input should be"),
    ({"assistant_role": ["A", "B", "Buyer"]},
     "vary.assistant_role: row 3: speakers: two speakers are called 'Buyer'"),
    ({"assistant_role": ["A", "B"], "user_role": ["C", "B", "A"]},
     "vary.user_role: row 3: speakers: two speakers are called 'A'"),
    ({"end_chat.max_iterations": [3, 5], "end_chat.min_iterations": [1, 4]},
     "vary.end_chat.min_iterations: row 2: 4 is more than max_iterations"),
    # Rows.
    ({"task, word_limit": [["a", 1], ["b"]]},
     "vary.task, word_limit: row 2: has 1 value for 2 fields"),
    ({"task, word_limit": ["ab"]},
     "row 1: must be a list of 2 values or a table of the fields, not str"),
    ({"task, word_limit": [{"task": "a"}]}, "row 1: word_limit: is missing"),
    ({"task, word_limit": [{"task": "a", "word_limt": 3}]},
     "row 1: 'word_limt' is not one of its fields; did you mean 'word_limit'?"),
    # Files.
    ({"task": "none.csv"}, "none.csv: can't be read: No such file"),
    ({"task": "a task"}, "vary.task: 'a task' is not a .txt, .csv or .jsonl file; name such"),
    ({"task": "utf-16.txt"}, "utf-16.txt: is not UTF-8 text"),
    ({"task": "empty.txt"}, "vary.task: empty.txt has no values; add at least one"),
    ({"task": "empty.csv"}, "vary.task: empty.csv: has no column 'task'; it has no columns"),
    # Otherwise the first task would silently be taken for a column name.
    ({"task": "bare.csv"}, "vary.task: bare.csv: has no column 'task'; it has 'Plan a garden'"),
    ({"task": "head.csv"}, "vary.task: head.csv has no values; add at least one"),
    ({"task": "again.csv"}, "vary.task: again.csv: has two columns called 'task'"),
    ({"tasks": "rows.csv"},
     "vary.tasks: rows.csv: has no column 'tasks'; it has 'task', 'word_limit'; did you mean"),
    ({"task, word_limit": "rows.csv"},
     "vary.task, word_limit: rows.csv, line 5: has 1 value for 2 columns"),
    ({"task": "quotes.csv"}, "vary.task: quotes.csv, line 2: is not valid CSV:"),
    ({"task": "open.csv"}, "vary.task: open.csv, line 3: is not valid CSV: unexpected end of data"),
    ({"word_limit": "wrong.csv"}, "vary.word_limit: wrong.csv, line 4: input should be"),
    ({"seed": "true.csv"}, "true.csv, line 2: input should be a valid integer, not 'true'"),
    ({"people": "lists.csv"},
     "lists.csv, line 2: a list or a table must be JSON; use a .csv column named 'people:json'"),
    ({"end_chat": "lists.csv"}, "line 2: a list or a table must be JSON; use a .csv column named"),
    ({"speakers.Seller.tools": "rows.txt"},
     "rows.txt, line 1: a list or a table must be JSON; use a .csv column named 'speakers.Seller"),
    ({"judge.criteria": "lists.csv"}, "line 2: judge.criteria: is not valid JSON: Expecting"),
    ({"task": "twice.csv"}, "vary.task: twice.csv: has two columns called 'task'; rename one"),
    ({"task": "same.csv"}, "vary.task: same.csv, line 4: has the same values as same.csv, line 2"),
    ({"task": "bad.jsonl"}, "vary.task: bad.jsonl, line 3: is not valid JSON: Expecting"),
    ({"task": "nan.jsonl"}, "nan.jsonl, line 1: is not valid JSON: NaN is not a JSON number"),
    ({"task, word_limit": "bad.jsonl"},
     "line 1: must be an object with 'task', 'word_limit'"),
    ({"task, word_limit": "rows.jsonl"}, "rows.jsonl, line 2: word_limit: is missing; did you"),
    ({"task, word_limit": "empty.txt"}, "empty.txt: has one value in each line; use a .csv"),
]  # fmt: skip

FILES = {
    "bare.csv": "Plan a garden\nPlan a party\n",
    "empty.txt": "\n \n",
    "empty.csv": "",
    "head.csv": "task\n",
    "again.csv": "task,a,task\n1,2,3\n",
    "rows.csv": 'task,word_limit\n"a\nb",3\n\nc\n',
    "quotes.csv": 'task\n"a"b\n',
    "open.csv": 'task\na\n"b\nc\n',
    "wrong.csv": "word_limit\n3\n\nmany\n",
    "true.csv": "seed\ntrue\n",
    "lists.csv": 'people,end_chat,judge.criteria:json\nBuyer,"{""mode"": 1}",[\n',
    "rows.txt": "calculator\n",
    "twice.csv": "task,task:json\na,1\n",
    "same.csv": "task\na\nb\na\n",
    "bad.jsonl": '"a"\n\n{a\n',
    "nan.jsonl": "NaN",
    "rows.jsonl": '{"task": "a", "word_limit": 3}\n{"task": "a", "word_limt": 3}\n',
}


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


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"conversation": {**PLAY, "user_rol": "x"}}, "conversation: user_rol: there is no such"),
        ({"conversation": {**PLAY, "kind": "play"}}, "conversation: kind: 'play' is unknown"),
        ({"conversation": "none.toml"}, "none.toml: can't be read"),
        ({"conversation": "/none.toml"}, "conversation: /none.toml: can't be read"),
        ({"conversation": "play.yaml"}, "must be a .toml or .json file with a conversation"),
        ({"trial": 3}, "trial: there is no such field; did you mean 'trials'?"),
        ({"limits": {"max_costs": 3}}, "limits.max_costs: there is no such field; did you mean"),
        ({"trials": 0}, "trials: input should be greater than 0, not 0"),
    ],
)
def test_what_else_is_wrong_with_a_batch(fields: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        varied({}, tmp_path, **fields)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("b.toml", "[vary]\ntask = []", "b.toml: vary.task: has no values"),
        ("b.toml", 'conversation = "x.toml"\ntrails = 3', "b.toml: trails: there is no such field"),
        ("b.toml", "", "b.toml: conversation: is missing"),
        ("b.toml", "=", "b.toml: is not valid TOML"),
        ("b.json", "[]", "b.json: must contain one object with the batch's fields"),
        ("b.yaml", "", "b.yaml: must be a .toml or .json file with a batch"),
        ("b.toml", 'kind = "role_play"\ntask = "Plan"', "b.toml: is a conversation; run it with"),
    ],
)
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
