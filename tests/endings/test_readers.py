"""The readers, on tiny files in the formats of the sources, and the rule about loops."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest

from endings.dialogue import Call, Case, Dialogue, Label, Origin, Turn, Word
from endings.readers import autogen, casino, deal, intercode, own, sgd, star, tau2, woz
from endings.readers.loops import loop_label
from support.tables import each_row

READERS: dict[str, ModuleType] = {
    one.__name__.rpartition(".")[2]: one
    for one in (autogen, casino, deal, intercode, sgd, star, tau2, woz)
}


def placed(label: Label) -> tuple[Case, int, int, bool]:
    return label.case, label.first, label.end, label.signalled


def write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".zip":
        path.write_text(text)
        return
    with ZipFile(path, "w") as archive:
        archive.writestr(path.stem, text)


def said(turn: Turn) -> list[Any]:
    calls = ([call.name, dict(call.arguments), call.result, call.failed] for call in turn.calls)
    return [turn.speaker, turn.text, *calls]


@each_row("rows")
def test_a_reader_returns_the_labelled_dialogues_of_its_source(
    tmp_path: Path,
    name: str,
    reader: str,
    files: dict[str, str],
    labels: list[list[Any]],
    turns: dict[str, list[Any]] | None,
) -> None:
    folder = tmp_path / name
    for file, text in files.items():
        write_file(folder / file, text)
    found: dict[str, Dialogue] = {one.id: one for one in READERS[reader].read(folder)}
    assert [[one.id, *placed(one.label)] for one in found.values()] == labels
    for talk, lines in (turns or {}).items():
        assert [said(turn) for turn in found[talk].turns] == lines


@pytest.mark.parametrize(
    ("searches", "after", "expected"),
    [
        (2, True, (Case.WORD_SAID, 4, 4, True)),
        (3, True, (Case.RETRY, 5, 5, True)),
        (9, True, (Case.RETRY, 11, 11, True)),
        # The fifth call is turn 6, the third turn 4.
        (10, True, (Case.RUNAWAY, 4, 6, True)),
        (5, False, (Case.RUNAWAY, 4, 6, True)),
        (4, False, (Case.RETRY, 5, 5, True)),
    ],
)
def test_rows_of_equal_calls_are_retries_or_runaway_loops(
    searches: int, after: bool, expected: tuple[Case, int, int, bool]
) -> None:
    call = Call("search", {"query": "boats"})
    turns = [Turn("User", "Find one."), *[Turn("Agent", "", (call,))] * searches]
    turns += [Turn("User", "Thanks! ###STOP###")] if after else []
    given = Label(Case.WORD_SAID, len(turns), Origin.FIELD, signalled=True)
    assert placed(loop_label(turns, given)) == expected


def test_other_arguments_and_speeches_break_a_row() -> None:
    first, second = (Turn("A", "", (Call("search", {"page": page}),)) for page in (1, 2))
    given = Label(Case.NO_END, 7, Origin.FIELD)
    assert loop_label([first, second] * 3, given) == given
    assert loop_label([first, first, Turn("A", "Wait."), first, first], given) == given


def test_messages_are_closings_by_their_acts(tmp_path: Path) -> None:
    said = (
        ("Find a café.", ["INFORM"]),
        ("Thanks.", ["THANK_YOU"]),
        ("Good. Thanks.", ["SELECT", "GOODBYE"]),
        ("No, thanks.", ["NEGATE", "THANK_YOU"]),
    )
    turns = [
        {
            "speaker": "USER",
            "utterance": text,
            "frames": [{"actions": [{"act": one} for one in acts]}],
        }
        for text, acts in said
    ]
    dialogues = [{"dialogue_id": "1", "turns": turns}]
    write_file(tmp_path / "dev/dialogues_001.json", json.dumps(dialogues))
    found = [one.is_closing for one in sgd.utterances_of(tmp_path)]
    assert found == [False, True, None, True]


def test_closings_of_crosswoz_are_those_of_its_acts(tmp_path: Path) -> None:
    said = [
        ("谢谢你", [["General", "thank", "none"]]),
        ("好的。", []),
        ("几点?", [["General", "bye"]]),
    ]
    turns = [{"content": text, "dialog_act": acts} for text, acts in said]
    talks = {"1": {"messages": turns}}
    write_file(tmp_path / "data/crosswoz/test.json.zip", json.dumps(talks))
    found = [(group, one.is_closing) for group, one in woz.messages_of(tmp_path)]
    assert found == [("CrossWOZ", True), ("CrossWOZ", None), ("CrossWOZ", None)]


OWN = """
[[talks]]
name = "a table"
case = "word said"
words = [["BOOKED", "Guest"]]
end = 3
said = [
  ["Guest", "A table for two?"],
  ["Host", "At eight.", [["book", {hour = 8}, "ok"]]],
  ["Guest", "BOOKED"],
  ["Host", "See you."],
]
"""


def test_labelled_dialogues_of_a_user_are_read(tmp_path: Path) -> None:
    tmp_path.joinpath("tables.toml").write_text(OWN)
    (found,) = own.read(tmp_path)
    assert (found.id, found.source, len(found.turns)) == ("own/tables/a table", "own", 4)
    assert (found.label.end, found.label.signalled) == (3, True)
    assert found.words == (Word("BOOKED", "Guest"),)
    assert found.turns[1].calls[0].name == "book"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (OWN.replace("word said", "well said"), r"tables.toml: talks.0.case: Input should be"),
        (OWN.replace("end =", "ends ="), r"tables.toml: talks.0.ends: Extra inputs"),
        ("[[talks]", r"tables.toml: this is no TOML: .*; correct the file"),
    ],
)
def test_a_wrong_file_of_labels_is_refused(tmp_path: Path, wrong: str, problem: str) -> None:
    tmp_path.joinpath("tables.toml").write_text(wrong)
    with pytest.raises(ValueError, match=problem):
        next(own.read(tmp_path))
