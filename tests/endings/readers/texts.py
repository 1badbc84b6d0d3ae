"""Our own texts, in ``tests/corpus``: every row is a dialogue with its label.

Labels are fields: the table that a row is in, the guard of an endless talk, and the fields of
``endings.toml``, which has talks of the kinds that no public source has.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from corpus.reading import Transcript, rows, table, talks
from endings.dialogue import Call, Case, Dialogue, EndTool, Label, Origin, Turn, Word

STOP = "###STOP###"

WORDS = (
    ("done_tokens", "ends", STOP, True),
    ("done_tokens", "goes_on", STOP, False),
    ("done_tokens", "deals", "DEAL", True),
    ("done_tokens", "no_deals", "DEAL", False),
    ("thoughts", "says_stop", STOP, True),
    ("thoughts", "goes_on", STOP, False),
    ("cut_off", "goes_on", STOP, False),
)
"""Tables of last messages: a file, its rows, the word, and whether it is said."""


def read() -> Iterator[Dialogue]:
    """Read all our own texts."""
    for file, what, word, is_said in WORDS:
        for row in rows(file, what):
            text = row if isinstance(row, str) else row[0]
            yield _of_word(f"corpus/{file}/{what}/{_name(text)}", text, word, is_said=is_said)
    for talk in talks("ordinary"):
        label = Label(Case.NO_END, len(talk.said) + 1, Origin.FIELD)
        yield _of_talk(f"corpus/ordinary/{talk.name}", talk.said, label)
    for talk in talks("endless"):
        case = Case.ENDLESS_THANKS if talk.guard == "farewells" else Case.RUNAWAY
        label = Label(case, len(talk.said), Origin.FIELD, signalled=True)
        name = f"corpus/endless/{talk.guard}/{talk.name}"
        yield _of_talk(name, talk.said, label)
    for row in table("endings")["talks"]:
        yield dialogue_of(row, f"corpus/endings/{row['name']}", "corpus")
    for _, dialogue in of_calls():
        yield dialogue


def of_calls() -> Iterator[tuple[str | None, Dialogue]]:
    """Read the rows of calls: the guard that ends the calls, or None, and the dialogue."""
    for row in rows("tool_calls", "rows"):
        numbered = (
            _called(calls, number)
            for number in range(1, row["times"] + 1)
            for calls in row["calls"]
        )
        asked = Turn("User", "Please find out, and tell me.")
        turns = (asked, *(_called(calls, 0) for calls in row.get("before", [])), *numbered)
        end = len(turns)
        label = Label(Case.RUNAWAY, end, Origin.FIELD, earliest=5, signalled=True)
        if "reason" not in row:
            turns += (Turn("Agent", "That is all that I found."),)
            label = Label(Case.RETRY, end + 2, Origin.FIELD)
        name = f"corpus/tool_calls/{row['name']}"
        yield row.get("reason"), Dialogue(name, "corpus", turns, label)


def closing_lines() -> Iterator[tuple[str, str, bool]]:
    """Return the rows that are farewells or only seem so: an id, the text, and which it is."""
    for what, is_one in (("farewells", True), ("others", False)):
        for row in rows("farewells", what):
            text = row if isinstance(row, str) else row[0]
            yield f"corpus/farewells/{what}/{_name(text)}", text, is_one


def _name(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _of_word(dialogue_id: str, text: str, word: str, *, is_said: bool) -> Dialogue:
    turns = (Turn("Agent", "Here is the list of all your flights."), Turn("User", text))
    label = (
        Label(Case.WORD_SAID, 2, Origin.FIELD, signalled=True)
        if is_said
        else Label(Case.WORD_MENTIONED, 3, Origin.FIELD)
    )
    return Dialogue(dialogue_id, "corpus", turns, label, (Word(word, "User"),))


def _of_talk(dialogue_id: str, said: Transcript, label: Label) -> Dialogue:
    turns = tuple(Turn(speaker, text) for speaker, text in said)
    firsts = {turn.speaker: turn.text for turn in reversed(turns)}
    forms = {"Instruction:": "instruction", "Solution:": "solution"}
    found = {
        speaker: form
        for speaker, text in firsts.items()
        for mark, form in forms.items()
        if text.startswith(mark)
    }
    return Dialogue(dialogue_id, "corpus", turns, label, forms=found)


def dialogue_of(row: dict[str, Any], dialogue_id: str, source: str) -> Dialogue:
    """Return the dialogue of a row in the format of `endings.toml`."""
    turns = tuple(
        _turn(said, number)
        for number in range(1, row.get("rounds", 1) + 1)
        for said in (row["said"] if number > 1 else [*row.get("before", []), *row["said"]])
    ) + tuple(_turn(said, 0) for said in row.get("after", []))
    end = row.get("end", len(turns))
    label = Label(
        Case(row["case"]),
        len(turns) + 1 if end == "none" else end,
        Origin.FIELD,
        row.get("earliest", 0),
        row.get("signalled", True) and end != "none",
    )
    words = tuple(Word(*word) for word in row.get("words", []))
    words += tuple(Word(word, terminates=True) for word in row.get("terminations", []))
    tools = tuple(EndTool(*tool) for tool in row.get("tools", []))
    return Dialogue(dialogue_id, source, turns, label, words, tools)


def _called(calls: str | Sequence[str], number: int) -> Turn:
    """Read a message with calls, as `tool_calls.toml` describes it."""
    each = [calls] if isinstance(calls, str) else calls
    return Turn("Agent", "", tuple(_call(one.replace("{n}", str(number))) for one in each))


def _call(text: str) -> Call:
    made, sign, result = text.partition(" -> ")
    if not sign:
        made, _, result = text.partition(" !> ")
    name, arguments = made.split(maxsplit=1)
    return Call(name, json.loads(arguments), result, failed=not sign)


def _turn(said: list[Any], number: int) -> Turn:
    """Read a turn: its speaker, its text, and maybe calls as lists of tool, arguments, result.

    A fourth item says that the call failed.
    """
    speaker, text, *calls = said
    made = (Call(one[0], one[1], one[2], len(one) > 3) for one in (calls[0] if calls else ()))
    return Turn(speaker, text.replace("{n}", str(number)), tuple(made))
