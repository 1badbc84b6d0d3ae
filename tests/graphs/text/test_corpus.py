"""The result of each reply in the corpus, with counts of false and missed ends.

A false end loses a conversation's result, and a missed one costs calls. Both counts are zero.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from langchain_core.messages import AnyMessage

from corpus.reading import Talk, rows, talks
from duologue.graphs import Conversation, LabelledFormat, TaskSpecification, load_conversation
from duologue.graphs.ends.end_chat import GUARDS
from duologue.graphs.kinds.role_play import INSTRUCTION, SOLUTION
from duologue.graphs.log.parsing import parse
from duologue.graphs.prompts import prompts
from duologue.graphs.rules.log_counter import facts_of
from duologue.graphs.text.done_words import says
from duologue.graphs.text.sentences import is_farewell
from duologue.graphs.text.similarity import (
    all_repeat,
    is_acknowledgement,
    is_placeholder,
    is_rewritten,
    only_announces,
)
from duologue.nodes.judge.verdicts_in_words import yes_or_no
from support.log import make_line

ASKED_AGAIN = prompts.fill_template(prompts.REWRITE_REPLY, problem=prompts.NO_CONTENT)
REMARKS = ("placeholders", "acknowledgements", "announcements", "requests")

ENDS: dict[str, Callable[[str], bool]] = {
    "done_tokens": lambda text: says("###STOP###", text, "last", "User"),
    "deals": lambda text: says("DEAL", text, "alone", "User"),
    "words": lambda text: says("TERMINATE", text, "last", "User"),
    "farewells": lambda text: is_farewell(text, ("Bob",), (*INSTRUCTION.texts, *SOLUTION.texts)),
    "verdicts": lambda text: yes_or_no(text) is True,
    "instructions": lambda text: parse(INSTRUCTION, text).problem is None,
    "solutions": lambda text: parse(SOLUTION, text).problem is None,
    "placeholders": lambda text: is_placeholder(text, marks=SOLUTION.lines),
    "acknowledgements": is_acknowledgement,
    "announcements": only_announces,
    "requests": lambda text: all_repeat(text, ASKED_AGAIN),
}
"""Properties of a reply by name: an end, the requested format, or that it is no reply."""

TABLES = (
    ("done_tokens", "ends", "done_tokens", True),
    ("done_tokens", "goes_on", "done_tokens", False),
    ("done_tokens", "deals", "deals", True),
    ("done_tokens", "no_deals", "deals", False),
    ("done_tokens", "terminates", "words", True),
    ("done_tokens", "no_terminates", "words", False),
    ("thoughts", "says_stop", "done_tokens", True),
    ("thoughts", "goes_on", "done_tokens", False),
    ("thoughts", "says_terminate", "words", True),
    ("thoughts", "goes_on_without_terminate", "words", False),
    ("cut_off", "goes_on", "done_tokens", False),
    ("cut_off", "unreadable", "verdicts", False),
    ("cut_off", "no_farewells", "farewells", False),
    ("cut_off", "instructions", "instructions", False),
    ("verdicts", "complete", "verdicts", True),
    ("verdicts", "not_complete", "verdicts", False),
    ("verdicts", "unreadable", "verdicts", False),
    ("farewells", "farewells", "farewells", True),
    ("farewells", "others", "farewells", False),
    ("forms", "instructions", "instructions", True),
    ("forms", "no_instructions", "instructions", False),
    ("forms", "solutions", "solutions", True),
    ("forms", "no_solutions", "solutions", False),
    *(("remarks", name, name, True) for name in REMARKS),
    *(("remarks", f"no_{name}", name, False) for name in REMARKS),
)
"""Tables of the corpus: a file, its rows, the property, and whether the rows have it."""


class Counted(NamedTuple):
    """The result for rows of one kind."""

    rows: int
    false: list[str]
    """Rows that wrongly seem to have the property."""
    missed: list[str]
    """Rows whose property was missed."""


def of_replies(file: str, what: str, looked_for: str, there: bool) -> Counted:
    texts = [row if isinstance(row, str) else row[0] for row in rows(file, what)]
    wrong = [text for text in texts if ENDS[looked_for](text) is not there]
    return Counted(len(texts), [] if there else wrong, wrong if there else [])


def ended(talk: Talk) -> tuple[int, list[str]] | None:
    """Return the number of messages until guards end a conversation, and the guards."""
    names = tuple(dict.fromkeys(name for name, _ in talk.said))
    forms = {"Instruction:": INSTRUCTION, "Solution:": SOLUTION}
    speakers = [{"name": name, "format": _form(name, talk, forms)} for name in names]
    conversation = Conversation.model_validate({"task": "Talk.", "speakers": speakers})
    log: list[AnyMessage] = []
    for number, (name, text) in enumerate(talk.said):
        log.append(make_line(number, text, speaker=name))
        facts = facts_of(conversation, log)
        held = [one.reason for one in GUARDS if one.is_met_unnamed(conversation, facts)]
        if held:
            return number + 1, held
    return None


def _form(name: str, talk: Talk, forms: dict[str, LabelledFormat]) -> LabelledFormat | None:
    first = next(text for speaker, text in talk.said if speaker == name)
    return next((form for mark, form in forms.items() if first.startswith(mark)), None)


def of_talks(file: str) -> Counted:
    found = [(talk, ended(talk)) for talk in talks(file)]
    false = [
        talk.name
        for talk, end in found
        if end is not None and (end[0] < len(talk.said) or end[1] != [talk.guard])
    ]
    missed = [talk.name for talk, end in found if end is None and talk.guard is not None]
    return Counted(len(found), false, missed)


def counted() -> Iterator[tuple[str, Counted]]:
    for table in TABLES:
        yield f"{table[0]}: {table[1]}", of_replies(*table)
    for file in ("ordinary", "endless"):
        yield f"{file} conversations", of_talks(file)


def test_r1_to_r8_nothing_of_the_corpus_ends_falsely_or_is_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = dict(counted())
    with capsys.disabled():
        print()  # noqa: T201
        for name, (count, false, missed) in found.items():
            print(f"{count:4} {name}: {len(false)} false, {len(missed)} missed")  # noqa: T201
    assert sum(one.rows for one in found.values()) >= 300
    wrong = {name: (one.false, one.missed) for name, one in found.items()}
    assert wrong == dict.fromkeys(found, ([], []))


@pytest.mark.parametrize(
    ("marks", "row"),
    [
        *((INSTRUCTION, row) for row in rows("forms", "instructions")),
        *((SOLUTION, row) for row in rows("forms", "solutions")),
    ],
)
def test_r8_a_form_gives_what_it_says(marks: LabelledFormat, row: list[str]) -> None:
    text, *values = row
    assert parse(marks, text).value == dict(zip(marks.lines, values, strict=True))


@pytest.mark.parametrize("looked_for", ENDS)
def test_each_kind_has_rows_that_are_and_rows_that_are_not(looked_for: str) -> None:
    """Each property has positive and negative rows, so that no constant rule passes."""
    given = Counter[bool]()
    for file, what, kind, there in TABLES:
        given[there] += len(rows(file, what)) if kind == looked_for else 0
    assert min(given.values()) >= 3


def test_r15_solutions_that_were_cut_off_lack_what_is_added_to_whole_ones() -> None:
    texts = [str(row) for row in rows("cut_off", "solutions")]
    assert texts
    assert all(parse(SOLUTION, text).text is not None for text in texts)


@pytest.mark.parametrize(
    ("task", "text", "adds"),
    [
        *((*row, True) for row in rows("remarks", "rewritten")),
        *((*row, False) for row in rows("remarks", "not_rewritten")),
    ],
)
def test_z2_a_rewritten_task_adds_something_and_repeats_no_request(
    task: str, text: str, adds: bool
) -> None:
    render_prompt = load_conversation(
        {"task": "Talk.", "speakers": [{"name": "A"}, {"name": "B"}]}
    ).render_prompt
    request = prompts.join_task_requests(TaskSpecification().word_limit, render_prompt)
    assert is_rewritten(task, text, request) is adds
