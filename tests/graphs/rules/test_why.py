"""The causes of an end: each verdict, draft, count, done token, tool and choice that led to it.

Row U1; `test_cli.py` has the same for the command line.
"""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool

from duologue.graphs import Conversation, Result, Session, converse
from duologue.graphs.conversation.judges import Finding
from duologue.graphs.log.messages import metadata, place_of
from duologue.graphs.log.metadata import Draft, Instruction, Speech
from duologue.graphs.prompts.tasks import SHORTEN_TASK, fill_template
from duologue.graphs.rules.outcome import OutcomeStep, OutcomeStepKind
from duologue.nodes.testing import (
    Line,
    Reply,
    ScriptedChatModel,
    ScriptedToolCall,
    ScriptExhaustedError,
)

NO: dict[str, Any] = {"objectives_left": ["dig", "plant"], "complete": False}
YES: dict[str, Any] = {"objectives_left": [], "complete": True}
SAID_AGAIN = "rejected and asked again: You already sent this message. Say something new."
LONG = "The beans stand by the wall."


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
            "m0003 Ann on its task: not complete: dig; plant",
            "m0007 Ann on its task: complete",
            "Ann completed its task",
        ],
    ),
    "unreadable verdicts": (
        talk(ann=STOPS, end_chat=END | {"guards": {"unreadable_verdicts": 2}}),
        ["Dig.", "huh", "huh", "Dug.", "Plant.", "eh", "eh"],
        [
            "m0003 Ann: unreadable and asked again: This is not a readable verdict.",
            "m0005 Ann on its task: unreadable, which counts as not complete",
            "m0005 Ann: unreadable verdict (1 of 2)",
            "m0009 Ann: unreadable and asked again: This is not a readable verdict.",
            "m0011 Ann on its task: unreadable, which counts as not complete",
            "m0011 Ann: unreadable verdict (2 of 2)",
            "2 verdicts in a row could not be read",
        ],
    ),
    "two questions": (
        talk(ann=STOPS, end_chat=END | {"max_iterations": 1}, judge={"form": "two_questions"}),
        ["Dig.", "Planting is left.", "No.", "Dug."],
        [
            "m0005 Ann on its task: not complete: Planting is left.",
            "the round cap was reached",
        ],
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
            "m0003 The judge, after Ann: They dig (met); They plant (inconclusive)",
            "m0006 The judge: unreadable and asked again: This is not a readable verdict.",
            "m0008 The judge, after Ben: unreadable, which counts as not complete",
            "m0008 Ben: unreadable verdict (1 of 3)",
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
        talk(end_chat={"max_iterations": 2, "guards": {"blank_replies": 3}}),
        ["", "", "Dug.", "", "", "Bye."],
        [
            "m0001 Ann: rejected and asked again: Your message was empty.",
            "m0002 Ann: blank reply (1 of 3)",
            "m0004 Ann: rejected and asked again: Your message was empty.",
            "m0005 Ann: blank reply (1 of 3)",
            "m0006 Ben: only thanks or farewells (1 of 4)",
            "the round cap was reached",
        ],
    ),
    "the same reply": (
        talk(),
        [LONG, "Sure.", *[LONG + " ", LONG, "Sure."] * 3],
        [
            f"m0003 Ann: {SAID_AGAIN}",
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
            "m0005 Ann: rejected and asked again: You called look again with the same arguments, "
            "and the result was the same.",
            "m0006 Ann: the same tool call (2 of 2)",
            "Ann made the same tool call 2 times",
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
        ["Dig.", "Whoever", "Dug.", "Cy", "Planted."],
        [
            "m0002 Who speaks next: unreadable, so it is Ben, the next in order",
            "the round cap was reached",
        ],
    ),
    "a rewritten task": (
        talk(task_specification={"word_limit": 1}, end_chat={"max_iterations": 1}),
        ["Sow beans.", "Sow.", "Dig.", "Dug."],
        [
            "m0000 The task: rejected and asked again: "
            + fill_template(SHORTEN_TASK, count=2, limit=1),
            "the round cap was reached",
        ],
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


@pytest.mark.part(8)
@pytest.mark.parametrize(("conversation", "script", "causes"), CASES.values(), ids=list(CASES))
def test_each_step_to_the_end_is_told(
    conversation: Conversation, script: list[Line], causes: list[str]
) -> None:
    assert told(run(conversation, *script)) == causes


def test_every_cause_is_about_a_message_of_the_log_in_its_order() -> None:
    for conversation, script, _ in CASES.values():
        result = run(conversation, *script)
        ids = [place_of(message) for message in result.messages]
        causes = result.why()
        places = [ids.index(cause.message) for cause in causes if cause.message is not None]
        assert places == sorted(places)
        assert result.outcome is not None
        at_the_end = [cause for cause in causes if cause.kind is OutcomeStepKind.REASON]
        assert [cause.reason for cause in at_the_end] == list(result.outcome.reasons)
        assert at_the_end == causes[len(places) :]
        by, *others = [cause.speaker for cause in at_the_end]
        assert by == result.outcome.by
        assert not any(others)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("guard", "script"),
    [
        ("blank_replies", ["", "", "", "", "", "", "", ""]),
        ("same_replies", [LONG, "Sure.", *[LONG, LONG, "Sure."] * 3]),
        ("echo", [LONG, LONG, LONG, "Dug.", "Dug."]),
        ("farewells", ["Bye.", "Bye.", "Thanks!", "Thanks!"]),
        ("role_flips", ["Ben: hi", "Ben: hi", "Dug.", "Ben: hi", "Ben: hi", "No."]),
        ("same_tool_calls", [calls("look", where="a"), calls("look", where="a"), *("Abcd" * 4)]),
        ("unreadable_verdicts", ["Dig.", "huh", "huh", "Dug.", "Plant.", "huh", "huh", "Yes."]),
    ],
)
def test_a_guard_that_is_off_counts_nothing(guard: str, script: list[Line]) -> None:
    for limit in (0, 99):
        end_chat = {
            "max_iterations": 3 if guard == "same_replies" else 2,
            "mode": "all_task_must_complete" if "verdicts" in guard else "max_iterations_only",
            "guards": {guard: limit},
        }
        result = run(talk(ann=STOPS, end_chat=end_chat), *script)
        counted = [cause for cause in result.why() if cause.reason == guard]
        assert bool(counted) is bool(limit)
        for cause in counted:
            assert cause.kind is OutcomeStepKind.COUNTED
            assert cause.limit == limit
            assert cause.text.endswith(f"({cause.count} of {limit})")


def test_a_verdict_and_its_findings_are_data() -> None:
    conversation, script, _ = CASES["a separate judge"]
    first, *_ = run(conversation, *script).why()
    assert first.verdict is not None
    assert first.verdict.findings == {
        "They dig": Finding.MET,
        "They plant": Finding.INCONCLUSIVE,
    }
    assert (first.speaker, first.reason, first.count) == ("Ann", None, None)
    assert OutcomeStep.model_validate_json(first.model_dump_json()) == first


def test_an_unfinished_session_tells_what_counted_so_far(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    with pytest.raises(ScriptExhaustedError):
        run(talk(), "", "", "Dug.", session="s", store=store)
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


def test_nothing_of_it_is_stored() -> None:
    conversation, script, _ = CASES["blank replies"]
    result = run(conversation, *script)
    kinds = {type(metadata(message)) for message in result.messages}
    assert kinds == {Instruction, Draft, Speech}
    assert result.why() == result.why()
