"""The causes of an end: the verdicts, counts, done tokens and tools that led to it.

Row U1; `test_cli.py` has the same for the command line.
"""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool

from duologue.graphs import Conversation, Result, Session, converse
from duologue.graphs.conversation.judges import Finding
from duologue.graphs.rules.outcome import OutcomeStep, OutcomeStepKind
from duologue.nodes.testing import (
    Line,
    Reply,
    ScriptedChatModel,
    ScriptedToolCall,
    ScriptExhaustedError,
)
from support.log import kind_of, place_of
from support.results import outcome_of

NO: dict[str, Any] = {"objectives_left": ["dig", "plant"], "complete": False}
YES: dict[str, Any] = {"objectives_left": [], "complete": True}
SAID_AGAIN = "rejected and asked again: You already sent this message. Say something new."
LONG = "The beans stand by the wall."
CUT = Reply(text="The beans st", finish_reason="length")
DEAL: dict[str, Any] = {"kind": "done_token", "token": "DEAL"}
CAP: dict[str, Any] = {"kind": "max_messages", "limit": 4}
FLIPPED = "rejected and asked again: You are {}, but your message speaks for {}."
FLIP_OF_ANN = ["Ben: I dig.", "Ben: I dig all the same."]
FLIP_OF_BEN = ["Ann: I plant.", "Ann: I plant all the same."]


@tool
def close(reason: str) -> str:
    """Close the talk."""
    return f"closed: {reason}"


@tool
def look(where: str) -> str:
    """Look."""
    return where


def talk(**fields: Any) -> Conversation:
    ann = {"name": "Ann", "tools": ["close", "look"], **fields.pop("ann", {})}
    ben = {"name": "Ben", **fields.pop("ben", {})}
    return Conversation.model_validate({"task": "Plan", "speakers": [ann, ben], **fields})


def run(conversation: Conversation, *script: Line, **options: Any) -> Result:
    options = {"store": "memory:", "tools": [close, look], **options}
    return converse(conversation, model=ScriptedChatModel(script=list(script)), **options)


def calls(name: str, **arguments: str) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=name, args=arguments, id=name)])


def told(result: Result) -> list[str]:
    return [str(cause) for cause in result.why()]


END: dict[str, Any] = {"mode": "end_chat_after_first_completion", "max_iterations": 2}
STOPS = {"checks_completion": True}

CASES: dict[str, tuple[Conversation, list[Line], list[str]]] = {
    "nothing on the way": (
        talk(end_chat={"max_iterations": 1}),
        ["Dig.", "Dug."],
        ["the round cap was reached"],
    ),
    "verdicts": (
        talk(ann=STOPS, end_chat=END),
        ["Dig.", NO, "Dug.", "Then it is done.", YES],
        [
            "m0007 Ann on its task: complete",
            "Ann completed its task",
        ],
    ),
    "unreadable verdicts": (
        talk(ann=STOPS, end_chat=END | {"guards": {"unreadable_verdicts": 2}}),
        ["Dig.", "huh", "huh", "Dug.", "Plant.", "eh", "eh"],
        [
            "m0003 Ann: unreadable verdict, requested again: This is not a readable verdict.",
            "m0005 Ann on its task: unreadable verdict, which counts as not complete",
            "m0005 Ann: unreadable verdict (1 of 2)",
            "m0009 Ann: unreadable verdict, requested again: This is not a readable verdict.",
            "m0011 Ann on its task: unreadable verdict, which counts as not complete",
            "m0011 Ann: unreadable verdict (2 of 2)",
            "2 verdicts in a row could not be read",
        ],
    ),
    "two questions": (
        talk(ann=STOPS, end_chat=END | {"max_iterations": 1}, judge={"form": "two_questions"}),
        ["Dig.", "Planting is left.", "No.", "Dug."],
        ["the round cap was reached"],
    ),
    "a separate judge": (
        talk(
            end_chat=END | {"allow_unanswered_end": True},
            judge={"kind": "separate", "criteria": ["They dig", "They plant"]},
        ),
        [
            *("Dig.", {"criterion_1": "met", "criterion_2": "inconclusive"}),
            *("Dug.", "huh", "huh"),
            *("Planted.", {"criterion_1": "met", "criterion_2": "met"}),
        ],
        [
            "m0011 The judge, after Ann: They dig (met); They plant (met)",
            "the judge found all criteria met",
        ],
    ),
    "blank replies": (
        talk(),
        ["", "", " ", ""],
        [
            "m0001 Ann: rejected and asked again: Your message was empty.",
            "m0002 Ann: blank reply (1 of 2)",
            "m0003 Ben: rejected and asked again: Your message was empty.",
            "m0004 Ben: blank reply (2 of 2)",
            "2 replies in a row were blank",
        ],
    ),
    "a count begins anew": (
        talk(),
        ["", "", "Dug.", "", "", "", ""],
        [
            "m0004 Ann: rejected and asked again: Your message was empty.",
            "m0005 Ann: blank reply (1 of 2)",
            "m0006 Ben: rejected and asked again: Your message was empty.",
            "m0007 Ben: blank reply (2 of 2)",
            "2 replies in a row were blank",
        ],
    ),
    "the same reply": (
        talk(),
        [LONG, "Sure.", *[LONG + " ", LONG, "Sure."] * 3],
        [
            f"m0006 Ann: {SAID_AGAIN}",
            "m0007 Ann: the same reply (2 of 3)",
            f"m0009 Ann: {SAID_AGAIN}",
            "m0010 Ann: the same reply (3 of 3)",
            "Ann gave the same reply 3 times",
        ],
    ),
    "farewells": (
        talk(end_chat={"guards": {"farewells": 2}}),
        ["Thanks!", "Bye."],
        [
            "m0001 Ann: only thanks or farewells (1 of 2)",
            "m0002 Ben: only thanks or farewells (2 of 2)",
            "2 messages in a row contained only thanks or farewells",
        ],
    ),
    "role flips": (
        talk(end_chat={"guards": {"role_flips": 1}}),
        ["Ben: I dig.", "Ben: I dig all the same."],
        [
            "m0001 Ann: rejected and asked again: You are Ann, but your message speaks for Ben.",
            "m0002 Ann: another speaker's part (1 of 1)",
            "Ann kept writing another speaker's part",
        ],
    ),
    "same tool calls": (
        talk(end_chat={"guards": {"same_tool_calls": 2}}),
        [calls("look", where="here"), *[calls("look", where="there")] * 3],
        [
            "m0005 Ann: rejected and asked again: You called look again with the same or nearly "
            "the same arguments, and the results were the same.",
            "m0006 Ann: a repeated tool call (2 of 2)",
            "Ann made 2 tool calls that repeat each other",
        ],
    ),
    "done tokens joined by &": (
        talk(
            end_chat={
                "when": {
                    "kind": "all",
                    "of": [
                        {"kind": "done_token", "token": "OK", "by": "Ann"},
                        {"kind": "done_token", "token": "FINE", "by": "Ben"},
                    ],
                }
            }
        ),
        ["OK", "Dug.", "OK", "FINE"],
        ["m0001 Ann: said OK", "m0004 Ben: said FINE", "Ann and Ben said the done token"],
    ),
    "an ending tool": (
        talk(end_chat={"when": {"kind": "tool_called", "tool": "close"}}),
        [calls("look", where="here"), calls("close", reason="enough")],
        ["m0004 Ann: called close", "Ann called the tool 'close'"],
    ),
    "another's ending tool": (
        talk(
            ben={"tools": ["close"]},
            end_chat={
                "max_iterations": 1,
                "when": {"kind": "tool_called", "tool": "close", "by": "Ben"},
            },
        ),
        [calls("close", reason="enough"), "Closed?", "No."],
        ["the round cap was reached"],
    ),
    "choices that can't be read": (
        talk(
            speakers=[{"name": "Ann"}, {"name": "Ben"}, {"name": "Cy"}],
            turn_order={"kind": "moderator", "form": "word"},
            end_chat={"max_iterations": 1},
        ),
        ["Dig.", "Whoever", "Whoever", "Dug.", "Cy", "Planted."],
        [
            "m0003 The choice of the next speaker was unreadable: Ben is next",
            "the round cap was reached",
        ],
    ),
    "a rewritten task": (
        talk(task_specification={"word_limit": 1}, end_chat={"max_iterations": 1}),
        ["Sow beans.", "Sow.", "Dig.", "Dug."],
        ["the round cap was reached"],
    ),
    "a reply that was rejected before the cap": (
        talk(end_chat={"max_iterations": 1}),
        ["", "Dig.", "Dug."],
        ["the round cap was reached"],
    ),
    "a count that never reached its limit": (
        talk(end_chat={"max_iterations": 1}),
        ["", "", "Dug."],
        ["the round cap was reached"],
    ),
    "a thought and a cut-off message before the cap": (
        talk(end_chat={"max_iterations": 1}),
        ["<think>Hm.</think>Dig.", CUT],
        ["the round cap was reached"],
    ),
    "a cut-off message that ends it": (
        talk(end_chat={"when": DEAL}),
        ["Dig.", "Dug.", CUT, Reply(text="DEAL", finish_reason="length")],
        [
            "m0004 Ann: cut off at the token limit",
            "m0004 Ann: said DEAL",
            "Ann said the done token",
        ],
    ),
    "a thought before the done token": (
        talk(end_chat={"when": DEAL}),
        ["<think>Hm.</think>Dig.", "<think>Fair.</think>DEAL"],
        ["m0002 Ben thought: Fair.", "m0002 Ben: said DEAL", "Ben said the done token"],
    ),
    "a done token that was rejected first": (
        talk(end_chat={"when": DEAL}),
        ["DEAL", "DEAL"],
        ["m0002 Ann: said DEAL", "Ann said the done token"],
    ),
    "a done token of another end": (
        talk(
            end_chat={
                "max_iterations": None,
                "when": [{"kind": "all", "of": [DEAL, {**DEAL, "token": "FINE"}]}, CAP],
            }
        ),
        ["Dig.", "DEAL", "Good.", "Dug."],
        ["the message cap was reached"],
    ),
    "a done token and a cap at once": (
        talk(end_chat={"when": [{"kind": "all", "of": [DEAL, CAP]}]}),
        ["Dig.", "DEAL", "Good.", "Dug."],
        ["m0002 Ben: said DEAL", "Ben said the done token", "the message cap was reached"],
    ),
    "role flips of one of two": (
        talk(end_chat={"max_iterations": 9}),
        [*FLIP_OF_ANN, *FLIP_OF_BEN, *FLIP_OF_ANN],
        [
            f"m0001 Ann: {FLIPPED.format('Ann', 'Ben')}",
            "m0002 Ann: another speaker's part (1 of 2)",
            f"m0005 Ann: {FLIPPED.format('Ann', 'Ben')}",
            "m0006 Ann: another speaker's part (2 of 2)",
            "Ann kept writing another speaker's part",
        ],
    ),
    "unreadable verdicts before and after one that was read": (
        talk(ann=STOPS, end_chat=END | {"max_iterations": 9, "guards": {"unreadable_verdicts": 2}}),
        [
            *("Dig.", "huh", "huh", "Dug.", "Plant.", NO, "Planted."),
            *("Water.", "eh", "eh", "Watered.", "Mow.", "eh", "eh"),
        ],
        [
            "m0013 Ann: unreadable verdict, requested again: This is not a readable verdict.",
            "m0015 Ann on its task: unreadable verdict, which counts as not complete",
            "m0015 Ann: unreadable verdict (1 of 2)",
            "m0019 Ann: unreadable verdict, requested again: This is not a readable verdict.",
            "m0021 Ann on its task: unreadable verdict, which counts as not complete",
            "m0021 Ann: unreadable verdict (2 of 2)",
            "2 verdicts in a row could not be read",
        ],
    ),
    "completed tasks of both": (
        talk(
            ann=STOPS,
            ben=STOPS,
            end_chat={"mode": "all_task_must_complete", "max_iterations": 9},
        ),
        ["Dig.", YES, "Dug.", NO, "Plant.", "Planted.", YES],
        [
            "m0003 Ann on its task: complete",
            "m0010 Ben on its task: complete",
            "Ann and Ben completed their tasks",
        ],
    ),
    "wrong calls in one turn": (
        talk(max_call_errors=2),
        [calls("lok", where="here"), "Dig.", "Dug.", *[calls("lok", where="there")] * 2],
        [
            "m0006 Ann: a tool call that can't be run (1 of 2)",
            "m0008 Ann: a tool call that can't be run (2 of 2)",
            "tool calls by Ann could not be run, 2 times in one turn",
        ],
    ),
    "a termination message": (
        talk(
            ben={
                "replies": [
                    {"kind": "human", "human_input_mode": "NEVER"},
                    {"kind": "text", "text": "Go on."},
                ]
            }
        ),
        ["Dig.", "Then plant.", "All is planted. TERMINATE"],
        [
            "m0005 Ann: a termination message",
            "Ann ended it with a termination message",
        ],
    ),
    "a message without code": (
        talk(
            ben={"replies": ["code"]},
            end_chat={"when": {"kind": "no_code_block", "by": "Ann"}},
        ),
        ["I am done."],
        ["m0001 Ann: wrote no code", "Ann wrote no more code"],
    ),
    "several reasons": (
        talk(
            end_chat={
                "max_iterations": 1,
                "when": [
                    {"kind": "max_messages", "limit": 2},
                    {"kind": "done_token", "token": "OK"},
                ],
            }
        ),
        ["Dig.", "OK"],
        [
            "m0002 Ben: said OK",
            "Ben said the done token",
            "the message cap was reached",
            "the round cap was reached",
        ],
    ),
}


@pytest.mark.part(4)
@pytest.mark.parametrize(("conversation", "script", "causes"), CASES.values(), ids=list(CASES))
def test_each_step_to_the_end_is_told(
    conversation: Conversation, script: list[Line], causes: list[str]
) -> None:
    assert told(run(conversation, *script)) == causes


@pytest.mark.exhaustive
def test_every_cause_is_about_a_message_of_the_log_in_its_order() -> None:
    for conversation, script, _ in CASES.values():
        result = run(conversation, *script)
        ids = [place_of(message) for message in result.messages]
        causes = result.why()
        places = [ids.index(cause.message) for cause in causes if cause.message is not None]
        assert places == sorted(places)
        at_the_end = [cause for cause in causes if cause.kind is OutcomeStepKind.REASON]
        assert [cause.reason for cause in at_the_end] == list(outcome_of(result).reasons)
        assert at_the_end == causes[len(places) :]
        by, *others = [cause.speaker for cause in at_the_end]
        assert by == outcome_of(result).by
        assert not any(others)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("guard", "limit", "script"),
    [
        ("blank_replies", 2, ["", "", "", "", "", "", "", ""]),
        ("same_replies", 2, [LONG, "Sure.", *[LONG, LONG, "Sure."] * 3]),
        ("echo", 1, [LONG, LONG, LONG, "Dug.", "Dug."]),
        ("farewells", 2, ["Bye.", "Bye.", "Thanks!", "Thanks!"]),
        ("role_flips", 1, ["Ben: hi", "Ben: hi", "Dug.", "Ben: hi", "Ben: hi", "No."]),
        ("same_tool_calls", 2, [*[calls("look", where="a")] * 3, *("Abcd" * 4)]),
        (
            "unreadable_verdicts",
            2,
            ["Dig.", "huh", "huh", "Dug.", "Plant.", "huh", "huh", "Yes."],
        ),
    ],
)
def test_a_guard_is_a_cause_only_if_it_is_on(guard: str, limit: int, script: list[Line]) -> None:
    for on in (False, True):
        end_chat = {
            "max_iterations": 3 if guard == "same_replies" else 2,
            "mode": "all_task_must_complete" if "verdicts" in guard else "max_iterations_only",
            "guards": {guard: limit if on else 0},
        }
        result = run(talk(ann=STOPS, end_chat=end_chat), *script)
        causes = [cause for cause in result.why() if cause.message is not None]
        counted = [cause for cause in causes if cause.kind is OutcomeStepKind.COUNTED]
        assert result.stop_reason == (guard if on else "max_iterations")
        assert bool(causes) is bool(counted) is on
        for cause in counted:
            assert (cause.reason, cause.limit) == (guard, limit)
            assert cause.text.endswith(f"({cause.count} of {limit})")
        if on:
            assert counted[-1].count == limit


def test_a_verdict_and_its_findings_are_data() -> None:
    conversation, script, _ = CASES["a separate judge"]
    first, *_ = run(conversation, *script).why()
    assert first.verdict is not None
    assert first.verdict.findings == {"They dig": Finding.MET, "They plant": Finding.MET}
    assert (first.speaker, first.reason, first.count) == ("Ann", None, None)
    assert OutcomeStep.model_validate_json(first.model_dump_json()) == first


def test_an_unfinished_session_tells_what_counted_so_far(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    with pytest.raises(ScriptExhaustedError):
        run(talk(), "", "", session="s", store=store)
    result = Session("s", store=store).state()
    assert result.outcome is None
    assert told(result) == [
        "m0001 Ann: rejected and asked again: Your message was empty.",
        "m0002 Ann: blank reply (1 of 2)",
    ]


def test_a_fork_is_counted_by_its_own_rules(tmp_path: Path) -> None:
    conversation, script, _ = CASES["blank replies"]
    store = tmp_path / "sessions.db"
    whole = run(conversation, *script, session="one", store=store)
    Session("one", store=store).fork(into="two", end_chat={"guards": {"blank_replies": 5}})
    forked = Session("two", store=store).state()
    counted = [cause for cause in forked.why() if cause.kind is OutcomeStepKind.COUNTED]
    assert [(cause.count, cause.limit) for cause in counted] == [(1, 5), (2, 5)]
    assert forked.outcome is None
    assert whole.why()[-1].text == "2 replies in a row were blank"


def test_a_predicate_is_the_reason_that_it_held() -> None:
    def enough(said: list[BaseMessage]) -> bool:
        return len(said) == 2

    conversation = talk(end_chat={"when": {"kind": "predicate", "name": "enough"}})
    result = run(conversation, "Dig.", "Dug.", predicates={"enough": enough})
    assert told(result) == ["the predicate 'enough' returned true"]


@pytest.mark.part(8)
def test_the_page_lists_causes_alone_and_marks_all_steps_on_its_line_of_time() -> None:
    conversation, script, _ = CASES["a rewritten task"]
    result = run(conversation, *script)
    page = result.session.export(format="html")
    assert "What led to it" not in page
    assert page.count("The task: rejected and asked again") == 1
    conversation, script, _ = CASES["blank replies"]
    page = run(conversation, *script).session.export(format="html")
    assert "What led to it" in page


def test_nothing_of_it_is_stored() -> None:
    conversation, script, _ = CASES["blank replies"]
    result = run(conversation, *script)
    kinds = {kind_of(message) for message in result.messages}
    assert kinds == {"instruction", "draft", "speech"}
    assert result.why() == result.why()
