"""The readers, on tiny files in the formats of the sources."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from endings.dialogue import Call, Case, Dialogue, Label, Origin, Turn, Word
from endings.readers import autogen, casino, deal, intercode, own, sgd, star, tau2, woz
from endings.readers.loops import loop_label


def only(found: list[Dialogue]) -> Dialogue:
    assert len(found) == 1
    return found[0]


def placed(label: Label) -> tuple[Case, int, int, bool]:
    return label.case, label.first, label.end, label.signalled


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def agent(text: str | None, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls) or None}


def tool(text: str, call_id: str, key: str = "id") -> dict[str, Any]:
    return {"role": "tool", "content": text, key: call_id}


def tau2_runs(folder: Path, *runs: list[dict[str, Any]]) -> list[Dialogue]:
    simulations = [
        {"id": f"run-{place}", "termination_reason": "user_stop", "messages": messages}
        for place, messages in enumerate(runs)
    ]
    folder.joinpath("results.json").write_text(json.dumps({"simulations": simulations}))
    return list(tau2.read(folder))


SEARCH = {"id": "c1", "name": "search", "arguments": {"query": "flights"}}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("Hi"), agent("Done."), user("Thanks! ###STOP###")], (Case.WORD_SAID, 3, 3, True)),
        (
            [user("Hi"), agent("Please hold on."), user("###TRANSFER###")],
            (Case.HAND_OFF, 3, 3, True),
        ),
        ([user("Hi"), agent("###STOP###")], (Case.OTHER_SIDE, 2, 2, True)),
        ([user("Hi"), agent("Why?"), user("###OUT-OF-SCOPE###")], (Case.OTHER_SIDE, 3, 3, True)),
        ([user("Hi"), agent("What is your name?")], (Case.NO_END, 3, 3, False)),
        (
            [user("Cancel it."), agent("Shall I?"), user("Yes, please do. ###STOP###")],
            (Case.EARLY_WORD, 4, 4, False),
        ),
        (
            [user("Hi"), agent("Anything else?"), user("No, thank you. ###STOP###")],
            (Case.WORD_SAID, 3, 3, True),
        ),
    ],
)
def test_tau2_runs_have_their_recorded_end(
    tmp_path: Path, messages: list[dict[str, Any]], expected: tuple[Case, int, int, bool]
) -> None:
    assert placed(only(tau2_runs(tmp_path, messages)).label) == expected


def test_tau2_calls_have_their_results_and_errors(tmp_path: Path) -> None:
    failed = {**tool("no such city", "c1"), "error": True}
    messages = [user("Hi"), agent(None, SEARCH), failed, agent("Sorry.")]
    found = only(tau2_runs(tmp_path, messages))
    call = Call("search", {"query": "flights"}, "no such city", failed=True)
    assert found.turns == (Turn("User", "Hi"), Turn("Agent", "", (call,)), Turn("Agent", "Sorry."))
    assert found.id == "tau2/run-0"


def test_tau_runs_end_by_a_word_or_by_the_transfer(tmp_path: Path) -> None:
    transfer = {
        "id": "c1",
        "function": {"name": "transfer_to_human_agents", "arguments": '{"summary": "refund"}'},
    }
    trajectories = (
        [user("Hi"), agent(None, transfer), tool("Transfer successful", "c1", "tool_call_id")],
        [user("Hi"), agent("Bye."), user("###STOP###")],
    )
    runs = [
        {"task_id": place, "trial": 0, "reward": 1.0, "traj": messages}
        for place, messages in enumerate(trajectories)
    ]
    tmp_path.joinpath("model-airline.json").write_text(json.dumps(runs))
    first, second = tau2.read(tmp_path)
    assert placed(first.label) == (Case.HAND_OFF, 2, 2, True)
    assert first.turns[1].calls[0].arguments == {"summary": "refund"}
    assert placed(second.label) == (Case.WORD_SAID, 3, 3, True)
    assert [first.id, second.id] == ["tau/model-airline/0/0", "tau/model-airline/1/0"]


def test_files_that_are_no_runs_are_passed_over(tmp_path: Path) -> None:
    tmp_path.joinpath("tasks.json").write_text('[{"id": 1}]')
    tmp_path.joinpath("broken.json").write_text('{"simulations": [')
    assert list(tau2.read(tmp_path)) == []


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


def sgd_file(folder: Path, *turns: tuple[str, str, list[str]]) -> None:
    part = folder / "dev"
    part.mkdir()
    said = [
        {
            "speaker": speaker,
            "utterance": text,
            "frames": [{"actions": [{"act": act} for act in acts]}],
        }
        for speaker, text, acts in turns
    ]
    dialogues = [{"dialogue_id": "1_00000", "turns": said}]
    part.joinpath("dialogues_001.json").write_text(json.dumps(dialogues))


BEGIN = (("USER", "Find a café.", ["INFORM"]), ("SYSTEM", "Café Ada.", ["OFFER"]))
END = (("USER", "Thanks, bye.", ["GOODBYE", "THANK_YOU"]), ("SYSTEM", "Bye.", ["GOODBYE"]))
MORE = (("USER", "Thanks.", ["THANK_YOU"]), ("SYSTEM", "Anything else?", ["REQ_MORE"]))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((*BEGIN, *END), (Case.FAREWELL, 3, 4, False)),
        ((*BEGIN, *MORE, *END), (Case.CLOSING_QUESTION, 5, 6, False)),
        (BEGIN, (Case.NO_END, 3, 3, False)),
    ],
)
def test_sgd_dialogues_end_by_their_acts(
    tmp_path: Path,
    turns: tuple[tuple[str, str, list[str]], ...],
    expected: tuple[Case, int, int, bool],
) -> None:
    sgd_file(tmp_path, *turns)
    found = only(list(sgd.read(tmp_path)))
    assert placed(found.label) == expected
    assert found.id == "sgd/dev/1_00000"


def test_sgd_messages_are_closings_by_their_acts(tmp_path: Path) -> None:
    mixed = ("USER", "Good. Thanks.", ["SELECT", "GOODBYE"])
    no_more = ("USER", "No, thanks.", ["NEGATE", "THANK_YOU"])
    sgd_file(tmp_path, *BEGIN, *MORE, mixed, no_more)
    found = [one.is_closing for one in sgd.utterances_of(tmp_path)]
    assert found == [False, False, True, False, None, True]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("Accept-Deal", (Case.WORD_SAID, 2, 2, True)),
        ("Walk-Away", (Case.OTHER_SIDE, 2, 2, True)),
        ("Reject-Deal", (Case.NO_END, 3, 3, False)),
    ],
)
def test_casino_dialogues_end_by_their_last_message(
    tmp_path: Path, last: str, expected: tuple[Case, int, int, bool]
) -> None:
    deal = {"issue2youget": {"Water": "2", "Food": "1"}, "issue2theyget": {}}
    logs = [
        {"id": "mturk_agent_1", "text": "Submit-Deal", "task_data": deal},
        {"id": "mturk_agent_2", "text": last, "task_data": {}},
    ]
    found = [{"dialogue_id": 7, "chat_logs": logs}]
    for part in ("train", "test"):
        tmp_path.joinpath(f"casino_{part}.json").write_text(json.dumps(found))
    dialogue = only(list(casino.read(tmp_path)))
    assert placed(dialogue.label) == expected
    assert (dialogue.id, dialogue.names) == ("casino/7", ("mturk_agent_1", "mturk_agent_2"))
    assert dialogue.turns[0].text == "Submit-Deal: Food 1, Water 2"


RULE = "-" * 80


def printed(*messages: tuple[str, str]) -> str:
    other = {"user": "helper", "helper": "user"}
    return "".join(
        f"\x1b[33m{name}\x1b[0m (to {other[name]}):\n\n{text}\n\n{RULE}\n"
        for name, text in messages
    )


def notebook(folder: Path, output: str) -> list[Dialogue]:
    cells = [
        {"cell_type": "markdown", "source": "A chat"},
        {"cell_type": "code", "outputs": [{"name": "stdout", "text": [output]}]},
    ]
    folder.joinpath("chat.ipynb").write_text(json.dumps({"cells": cells}))
    return list(autogen.read(folder))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            printed(("user", "2 + 2?"), ("helper", "4.\n\nTERMINATE")),
            (Case.WORD_SAID, 2, 2, True),
        ),
        (
            printed(("user", "2 + 2?"), ("helper", "4. TERMINATE."), ("user", "")),
            (Case.WORD_SAID, 2, 2, True),
        ),
        (
            printed(("user", 'Reply "TERMINATE" when done. 2 + 2?'), ("helper", "TERMINATE")),
            (Case.WORD_MENTIONED, 2, 2, True),
        ),
        (
            printed(("user", "Or return 'TERMINATE'."), ("helper", "Here is more.")),
            (Case.WORD_MENTIONED, 2, 3, False),
        ),
        (printed(("user", "A joke?"), ("helper", "No.")), (Case.NO_END, 2, 3, False)),
        (
            printed(("user", "A joke?"), ("helper", "No."))
            + "Provide feedback to helper. Press enter to skip and use auto-reply, or type 'exit' "
            "to end the conversation: exit",
            (Case.OTHER_SIDE, 2, 2, False),
        ),
    ],
)
def test_autogen_chats_end_where_the_word_is_said(
    tmp_path: Path, output: str, expected: tuple[Case, int, int, bool]
) -> None:
    assert placed(only(notebook(tmp_path, output)).label) == expected


def test_autogen_calls_have_their_results(tmp_path: Path) -> None:
    stars = "*" * 40
    call = f'***** Suggested tool call (c1): add *****\nArguments: \n{{"a": 2, "b": 2}}\n{stars}'
    answer = f"user (to helper):\n\n***** Response from calling tool (c1) *****\n4\n{stars}"
    output = printed(("user", "2 + 2?"), ("helper", call), ("user", answer), ("helper", "4"))
    found = only(notebook(tmp_path, output))
    assert found.turns == (
        Turn("user", "2 + 2?"),
        Turn("helper", "", (Call("add", {"a": 2, "b": 2}, "4"),)),
        Turn("helper", "4"),
    )


def test_autogen_cells_may_hold_several_chats_and_nested_ones_are_left_out(tmp_path: Path) -> None:
    chat = printed(("user", "2 + 2?"), ("helper", "4. TERMINATE"))
    new = "*" * 80 + "\nStarting a new chat....\n\nStart a new chat with the following message: \n"
    nested = f"boss (to critic):\n\nCheck it.\n\n{RULE}\n"
    assert [one.id for one in notebook(tmp_path, chat + new + chat + chat)] == [
        "autogen/chat/1/0",
        "autogen/chat/1/1",
        "autogen/chat/1/2",
    ]
    assert notebook(tmp_path, printed(("user", "Hi"), ("helper", "Hm")) + nested) == []


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


def run_of(*steps: tuple[str, str, float, bool]) -> dict[str, Any]:
    """Return one of InterCode's runs: the actions, each with result, reward, and validity."""
    names = ("actions", "observations", "rewards", "valid_action")
    return {
        "query": "How many?",
        "turn_history": dict(zip(names, zip(*steps, strict=True), strict=True)),
    }


COUNT, SHOW = ("SELECT count(*)", "[(3,)]", 0.0, True), ("SHOW TABLES", "[]", 0.0, True)
WRONG = ("SELECT age", "Error: no column", 0.0, False)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([SHOW, (*COUNT[:2], 1.0, True)], (Case.TASK_DONE, 3, 3, False)),
        ([SHOW, (*COUNT[:2], 1.0, True), SHOW], (Case.TASK_DONE, 3, 4, False)),
        ([SHOW, COUNT], (Case.NO_END, 1, 4, False)),
        ([SHOW, (*COUNT[:2], 0.4, True), SHOW], (Case.NO_END, 3, 5, False)),
        ([SHOW, COUNT] * 3, (Case.RUNAWAY, 1, 7, True)),
        ([WRONG] * 6, (Case.RUNAWAY, 1, 7, True)),
        ([SHOW, *[(f"SELECT {n}", "", 0.0, True) for n in "abcdef"]], (Case.RUNAWAY, 1, 8, True)),
        ([SHOW, *[(f"SELECT {n}", n, 0.0, True) for n in "abcdef"]], (Case.NO_END, 1, 9, False)),
    ],
)
def test_runs_of_intercode_go_on_until_their_reward_or_are_stuck(
    tmp_path: Path, steps: list[Any], expected: tuple[Case, int, int, bool]
) -> None:
    tmp_path.joinpath("runs.json").write_text(json.dumps({"7": run_of(*steps)}))
    dialogue = only(list(intercode.read(tmp_path)))
    assert placed(dialogue.label) == expected
    assert (dialogue.id, dialogue.names) == ("intercode/runs/7", ("User", "Agent"))
    assert [call.failed for turn in dialogue.turns for call in turn.calls] == [
        not is_valid for *_, is_valid in steps
    ]


def zipped(folder: Path, source: str, dialogues: dict[str, Any]) -> None:
    path = folder / "data" / source / "test.json.zip"
    path.parent.mkdir(parents=True)
    with ZipFile(path, "w") as archive:
        archive.writestr("test.json", json.dumps(dialogues))


def test_talks_about_tasks_end_with_the_farewells_of_their_acts(tmp_path: Path) -> None:
    said = (
        ("I need a train .", "Train-Inform"),
        ("Where to ?", "Train-Request"),
        ("That 's all , thanks .", "general-thank"),
        ("You 're welcome .", "general-welcome"),
    )
    log = [{"text": text, "dialog_act": {act: []}} for text, act in said]
    zipped(tmp_path, "multiwoz", {"A.json": {"log": log}, "B.json": {"log": log[:2]}})
    ended, open_ended = woz.read(tmp_path)
    assert placed(ended.label) == (Case.FAREWELL, 3, 4, False)
    assert placed(open_ended.label) == (Case.NO_END, 3, 3, False)
    assert (ended.id, ended.names) == ("multiwoz/A.json", ("User", "System"))


def test_closings_of_crosswoz_are_those_of_its_acts(tmp_path: Path) -> None:
    said = [
        ("谢谢你", [["General", "thank", "none"]]),
        ("好的。", []),
        ("几点?", [["General", "bye"]]),
    ]
    turns = [{"content": text, "dialog_act": acts} for text, acts in said]
    zipped(tmp_path, "crosswoz", {"1": {"messages": turns}})
    found = [(group, one.is_closing) for group, one in woz.messages_of(tmp_path)]
    assert found == [("CrossWOZ", True), ("CrossWOZ", None), ("CrossWOZ", None)]


def test_star_ends_with_the_goodbye_that_was_picked(tmp_path: Path) -> None:
    events = [
        {"Agent": "UserGuide", "Action": "instruct", "Text": "Ask for a ride."},
        {"Agent": "User", "Action": "utter", "Text": "A ride, please."},
        {"Agent": "Wizard", "Action": "query", "Text": ""},
        {"Agent": "Wizard", "Action": "pick_suggestion", "ActionLabel": "ride_bye", "Text": "Bye!"},
    ]
    folder = tmp_path / "dialogues"
    folder.mkdir()
    folder.joinpath("7.json").write_text(json.dumps({"Events": events}))
    asked = [events[1], events[3] | {"ActionLabel": "ask_name"}]
    folder.joinpath("8.json").write_text(json.dumps({"Events": asked}))
    folder.joinpath("9.json").write_text(json.dumps({"Events": events[:3]}))
    ended, open_ended = star.read(tmp_path)
    assert [turn.text for turn in ended.turns] == ["A ride, please.", "Bye!"]
    assert placed(ended.label) == (Case.FAREWELL, 1, 2, False)
    assert placed(open_ended.label) == (Case.NO_END, 3, 3, False)


def test_a_deal_is_read_once_and_ends_with_its_selection(tmp_path: Path) -> None:
    talk = "1 0 4 2 1 2 {}: i take the hats . <eos> {}: deal <eos> {}: <selection> item0=0"
    lines = [talk.format("YOU", "THEM", "YOU"), talk.format("THEM", "YOU", "THEM")]
    tmp_path.joinpath("data.txt").write_text("\n".join(lines))
    dialogue = only(list(deal.read(tmp_path)))
    assert [turn.text for turn in dialogue.turns] == ["i take the hats .", "deal", "<selection>"]
    assert placed(dialogue.label) == (Case.WORD_SAID, 3, 3, True)
