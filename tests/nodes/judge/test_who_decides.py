"""A judge and a moderator that take no part, and functions that say who speaks next."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    EndChatMode,
    ModelError,
    Result,
    Session,
    SpecError,
    converse,
    load_conversation,
    stream,
)
from duologue.graphs.events import SpeakerChosen, VerdictGiven
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import fields_of, of_kind
from support.prompts import PROMPTS, fill
from support.results import outcome_of, reason_of
from support.shape_help import play as play_script
from support.tables import each_row

FIRST = EndChatMode.END_CHAT_AFTER_FIRST_COMPLETION
GROUP = EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION
ALL = EndChatMode.ALL_TASK_MUST_COMPLETE
CRITERIA = ("They agree on a plant.", "A price is named.")


def found(one: str, other: str) -> dict[str, str]:
    return {"criterion_1": one, "criterion_2": other}


def talk(*names: str, **fields: Any) -> Conversation:
    names = names or ("Ann", "Bob")
    speakers = [{"name": name} | fields.pop(name, {}) for name in names]
    end_chat = {"max_iterations": 3, "allow_unanswered_end": True} | fields.pop("end_chat", {})
    return load_conversation({"task": "Plan.", "speakers": speakers, "end_chat": end_chat} | fields)


def judged(**fields: Any) -> Conversation:
    """Return a conversation of Ann and Bob with a separate judge, asked only after Ann's turns."""
    judge = {"kind": "separate", "criteria": CRITERIA, "model": "judge", "final_verdict": False}
    judge |= fields.pop("judge", {})
    fields = {"Ann": {"checks_completion": True}, "end_chat": {"mode": FIRST}} | fields
    return talk(judge=judge, **fields)


def play(
    conversation: Conversation,
    said: Sequence[Line],
    decided: Sequence[Line] = (),
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    """Run the conversation and use up the script; return the result and the deciding model."""
    decides = ScriptedChatModel(script=list(decided))
    models = {"judge": decides, "moderator": decides}
    result, _ = play_script(conversation, said, models=models, **options)
    assert len(decides.calls) == len(decided)
    return result, decides


def verdicts(result: Result) -> list[dict[str, Any]]:
    found = (fields_of(message).verdict for message in result.messages)
    return [verdict.model_dump() for verdict in found if verdict is not None]


# A separate judge


def test_the_chat_completes_when_all_criteria_are_met() -> None:
    result, _ = play(
        judged(),
        ["Beans?", "Agreed, beans.", "For three coins."],
        [found("inconclusive", "not_met"), found("met", "met")],
    )
    assert str(result.outcome) == (
        "Ended after 1 round and 3 messages: the judge found all criteria met."
    )
    assert outcome_of(result).by is None
    assert [verdict["objectives_left"] for verdict in verdicts(result)] == [CRITERIA, ()]
    findings = dict(zip(CRITERIA, ("inconclusive", "not_met"), strict=True))
    assert verdicts(result)[0]["findings"] == findings


@pytest.mark.parametrize("finding", ["not_met", "inconclusive"])
def test_one_criterion_that_is_not_met_is_enough_to_go_on(finding: str) -> None:
    script = [found("met", finding)] * 3
    result, _ = play(judged(), [f"Line number {n} of all." for n in range(6)], script)
    assert reason_of(result) == "max_iterations"


def test_the_judge_sees_everything_said_and_asks_in_one_call() -> None:
    """The judge has its own prompt and model, and also sees private openings and tasks."""
    ann = {"name": "Ann", "task": "Keep it.", "private_opening": {"prompt": "Choose a number."}}
    bob = {"name": "Bob", "task": "Guess it.", "private_opening": {"lines": ["It is odd."]}}
    judge_with = {"kind": "separate", "criteria": ["Bob guessed it."], "prompt": "Be strict."}
    spec = load_conversation(
        {
            "speakers": [ann, bob | {"checks_completion": True}],
            "opening": {"answers": True},
            "end_chat": {"mode": FIRST},
            "judge": judge_with | {"model": "judge", "temperature": 0.7},
        }
    )
    result, judge = play(
        spec, ["Seven.", "Ready.", "Hm, me too.", "Is it seven?"], [{"criterion_1": "met"}]
    )
    (call,) = judge.calls
    system, question = (message.text for message in call.messages)
    assert system == (
        "Be strict.\n\nThe task of Ann: Keep it.\n\nInformation that only Ann has: Choose a number."
        "\n\nThe task of Bob: Guess it.\n\n"
        "Information that only Bob has: It is odd.\n\nThe criteria:\n1. Bob guessed it."
    )
    alone = "(private)"
    lines = (f"Ann {alone}: Seven.", f"Ann {alone}: Ready.", f"Bob {alone}: Hm, me too.")
    said = "\n\n".join((*lines, "Bob: Is it seven?"))
    assert said in question
    assert question.endswith(PROMPTS["judge_criteria"])
    assert reason_of(result) == "completed"


def test_the_transcript_comes_before_the_question_so_that_it_can_be_cached() -> None:
    said = [f"This is line {n} of them all." for n in range(6)]
    _, judge = play(judged(), said, [found("met", "not_met")] * 3)
    for before, after in pairwise(judge.calls):
        assert before.messages[0].text == after.messages[0].text
        start = before.messages[1].text.removesuffix(PROMPTS["judge_criteria"]).rstrip()
        assert after.messages[1].text.startswith(start)


@pytest.mark.parametrize("keep", [False, True])
def test_a_verdict_is_heard_by_nobody_unless_it_is_kept(keep: bool) -> None:
    spec = judged(Ann={"checks_completion": True, "keep_self_reflection": keep})
    result, _ = play(
        spec, ["Beans?", "Agreed.", "So."], [found("met", "not_met"), found("met", "met")]
    )
    seen = {name: [message.text for message in result.viewpoint(name)] for name in ("Ann", "Bob")}
    heard = "decided: They agree on a plant. (met); A price is named. (not met)"
    assert any(heard in text for text in seen["Ann"]) is keep
    assert not any("judge" in text for text in seen["Bob"])


def test_verdicts_are_in_the_stream() -> None:
    models = {"judge": ScriptedChatModel(script=[found("met", "met")])}
    events = list(
        stream(
            judged(), model=ScriptedChatModel(script=["Beans."]), models=models, store="memory:str"
        )
    )
    (given_verdict,) = [event for event in events if isinstance(event, VerdictGiven)]
    assert given_verdict.verdict.complete
    assert set(given_verdict.verdict.findings.values()) == {"met"}


def test_without_stoppers_the_judge_is_asked_after_every_turn() -> None:
    spec = judged(Ann={}, end_chat={"mode": ALL, "max_iterations": 1})
    result, _ = play(spec, ["Beans?", "Beans."], [found("met", "not_met")] * 2)
    assert [verdict["speaker"] for verdict in verdicts(result)] == ["Ann", "Bob"]


def test_all_criteria_met_complete_every_stoppers_task() -> None:
    spec = judged(Bob={"checks_completion": True}, end_chat={"mode": ALL})
    result, _ = play(spec, ["Beans?"], [found("met", "met")])
    assert outcome_of(result).completed == ("Ann", "Bob")


def test_last_words_follow_a_separate_judges_verdict() -> None:
    spec = judged(end_chat={"mode": GROUP})
    result, _ = play(spec, ["Beans?", "So long.", "Farewell to beans."], [found("met", "met")])
    assert [name for name, _ in result.transcript] == ["Ann", "Bob", "Ann"]


@each_row("what_cannot_be_read_counts_as_not_complete_and_is_recorded")
def test_what_cannot_be_read_counts_as_not_complete_and_is_recorded(answer: Line) -> None:
    spec = judged(end_chat={"mode": FIRST, "max_iterations": 1})
    result, _ = play(spec, ["Beans?", "Beans."], [answer, answer])
    (verdict,) = verdicts(result)
    assert not verdict["readable"]
    assert not verdict["complete"]
    assert reason_of(result) == "max_iterations"


@each_row("r4_a_verdict_is_read_as_models_write_it")
def test_r4_a_verdict_is_read_as_models_write_it(answer: Line) -> None:
    result, _ = play(judged(), ["Beans?"], [answer])
    assert reason_of(result) == "completed"


def test_three_unreadable_verdicts_in_a_row_end_it() -> None:
    said = [f"This is line {n} of them all." for n in range(5)]
    result, _ = play(judged(), said, ["Hm."] * 6)
    assert reason_of(result) == "unreadable_verdicts"


def test_a_judge_without_structured_output_answers_in_lines() -> None:
    spec = judged(judge={"form": "lines"})
    result, judge = play(
        spec, ["Beans?", "Beans.", "Three."], ["1: met\n2: not met", "1. MET\n\n2. **met**"]
    )
    assert (
        judge.calls[0]
        .messages[-1]
        .text.endswith(PROMPTS["judge_in_lines"].removeprefix("{question}"))
    )
    assert reason_of(result) == "completed"


def test_a_judge_that_cannot_be_held_to_a_schema_is_one_clear_error() -> None:
    fake = FakeListChatModel(responses=["yes"])
    with pytest.raises(ModelError, match=r'judge\.form = "lines"'):
        converse(
            judged(),
            model=ScriptedChatModel(script=["Beans?"]),
            models={"judge": fake},
            store="memory:fake-judge",
        )


# Who speaks next

THREE = ("Ann", "Bob", "Cid")


def moderated(**fields: Any) -> Conversation:
    order = {"kind": "moderator", "model": "moderator"} | fields.pop("turn_order", {})
    return talk(*THREE, turn_order=order, **{"end_chat": {"max_iterations": 2}} | fields)


def next_is(name: str) -> dict[str, str]:
    return {"next_speaker": name}


def test_a_moderator_model_chooses_who_speaks_next() -> None:
    """Y20: the moderator's reply names the next speaker; a round has as many turns as speakers."""
    chosen = ["Cid", "Ann", "Cid", "Bob", "Ann"]
    said = [f"This is line {n} of them all." for n in range(6)]
    result, moderator = play(moderated(), said, [next_is(name) for name in chosen])
    assert [name for name, _ in result.transcript] == ["Ann", *chosen]
    system, question = (message.text for message in moderator.calls[1].messages)
    assert system.endswith(
        f"{fill(PROMPTS['speaker_names'], names='Ann, Bob, Cid')}\n\nThe task: Plan."
    )
    assert "Ann: This is line 0 of them all.\n\nCid: This is line 1" in question
    assert question.endswith("Who speaks next: Ann, Bob?")
    told = [message.text for message in result.viewpoint("Cid")]
    assert told[1].endswith("Cid, it is your turn.")


def test_a_moderator_gives_the_word_to_somebody_else() -> None:
    result, _ = play(
        moderated(end_chat={"max_iterations": 1}),
        ["Line one here.", "Line two here.", "Line three here."],
        [next_is("Ann"), next_is("Ann"), next_is("Cid")],
    )
    # Ann, who has just spoken, can't be chosen: the next in order speaks.
    assert [name for name, _ in result.transcript] == ["Ann", "Bob", "Cid"]
    problems = [
        fields_of(message).problem for message in result.messages if fields_of(message).problem
    ]
    assert problems == ["This is not the name of a speaker who can be next."] * 2


def test_between_two_no_moderator_needs_to_be_asked() -> None:
    spec = talk(turn_order={"kind": "moderator", "model": "moderator"})
    result, _ = play(spec, [f"This is line {n} of them all." for n in range(6)], [])
    assert [name for name, _ in result.transcript] == ["Ann", "Bob"] * 3


@pytest.mark.parametrize("form", ["word", "structured"])
@pytest.mark.parametrize("answer", ["Dot", "Not Bob", "", "Ann, Bob", '{"next": null}'])
def test_a_choice_that_stays_unreadable_falls_back_on_the_order_with_a_warning(
    answer: str, form: str
) -> None:
    """R30: the moderator is asked once more. Then the order decides, which is never silent."""
    spec = moderated(turn_order={"form": form}, end_chat={"max_iterations": 1})
    said: list[Line] = ["Line one.", "Line two.", "Line three."]
    result, moderator = play(spec, said, [answer, answer, "Ann"])
    assert [name for name, _ in result.transcript] == ["Ann", "Bob", "Ann"]
    again = "Name only the next speaker, one of: Bob, Cid."
    assert [again in str(call.prompt) for call in moderator.calls] == [False, True, False]
    (warning,) = outcome_of(result).warnings
    assert warning.startswith("1 of the moderator's choices could not be read")
    (step,) = [one for one in result.why() if one.kind == "choice"]
    assert (step.speaker, step.message) == ("Bob", "m0003")


@each_row("r4_a_choice_is_read_as_models_write_it")
@pytest.mark.parametrize("form", ["word", "structured"])
def test_r4_a_choice_is_read_as_models_write_it(answer: str, form: str) -> None:
    """A choice may have another form than requested."""
    spec = moderated(turn_order={"form": form}, end_chat={"max_iterations": 1})
    said: list[Line] = ["Line one.", "Line two.", "Line three."]
    result, _ = play(spec, said, [answer, "Ann"])
    assert [name for name, _ in result.transcript] == ["Ann", "Cid", "Ann"]
    assert outcome_of(result).warnings == ()
    assert not [one for one in result.why() if one.kind == "choice"]


def test_a_second_request_for_a_choice_is_a_step_of_its_own() -> None:
    """A failure between the two requests does not repeat the first."""
    store = f"memory:{uuid4().hex}"
    spec = moderated(turn_order={"form": "word"}, end_chat={"max_iterations": 1})
    said = ScriptedChatModel(script=["Line one.", "Line two.", "Line three."])
    fails = ScriptedChatModel(script=["Bob or Cid", RuntimeError("gone")])
    models: dict[str, Any] = {"moderator": fails}
    with pytest.raises(RuntimeError):
        converse(spec, session="s", model=said, models=models, store=store)
    goes_on = ScriptedChatModel(script=["Cid", "Ann"])
    session = Session("s", store=store)
    result = session.resume(model=said, models={"moderator": goes_on})
    assert [name for name, _ in result.transcript] == ["Ann", "Cid", "Ann"]
    assert "Name only the next speaker" in str(goes_on.calls[0].prompt)


def test_a_number_of_the_users_own_list_is_read() -> None:
    prompt = "Choose by number:\n1. Ann\n2. Bob\n3. Cid"
    spec = moderated(turn_order={"prompt": prompt}, end_chat={"max_iterations": 1})
    result, _ = play(spec, ["Line one.", "Line two.", "Line three."], ["3", "1."])
    assert [name for name, _ in result.transcript] == ["Ann", "Cid", "Ann"]


def test_the_choice_is_in_the_stream() -> None:
    models = {"moderator": ScriptedChatModel(script=[next_is("Cid"), next_is("Ann")])}
    said = ScriptedChatModel(script=["Line one.", "Line two.", "Line three."])
    spec = moderated(end_chat={"max_iterations": 1})
    events = list(stream(spec, model=said, models=models, store="memory:choices"))
    chosen = [event.speaker for event in events if isinstance(event, SpeakerChosen)]
    assert chosen == ["Cid", "Ann"]


def whoever_was_named(said: Sequence[BaseMessage], names: Sequence[str]) -> str:
    return next(name for name in names if name in said[-1].text)


async def slowly(said: Sequence[BaseMessage], names: Sequence[str]) -> str:
    return whoever_was_named(said, names)


@pytest.mark.parametrize("function", [whoever_was_named, slowly])
def test_a_registered_function_says_who_speaks_next(
    function: Callable[[Sequence[BaseMessage], Sequence[str]], str],
) -> None:
    spec = talk(
        *THREE, turn_order={"kind": "function", "name": "named"}, end_chat={"max_iterations": 1}
    )
    result, _ = play(
        spec,
        ["Cid, what do you say?", "I am Cid, and say more.", "That is all."],
        orders={"named": function},
    )
    # A function may choose the same speaker twice in a row; the line that hands over the turn keeps
    # the roles apart.
    assert [name for name, _ in result.transcript] == ["Ann", "Cid", "Cid"]
    roles = [message.type for message in result.viewpoint("Cid")]
    assert roles == ["system", "human", "ai", "human", "ai"]


def test_last_words_keep_their_order_whoever_chooses() -> None:
    spec = moderated(
        Ann={"checks_completion": True}, Cid={"checks_completion": True}, end_chat={"mode": GROUP}
    )
    yes = {"objectives_left": [], "complete": True}
    no = {"objectives_left": ["more"], "complete": False}
    result, _ = play(
        spec,
        ["Line one.", no, "Line two.", yes, "Last of Ann.", "Last of Bob.", "Last of Cid."],
        [next_is("Cid")],
    )
    assert [name for name, _ in result.transcript] == ["Ann", "Cid", "Ann", "Bob", "Cid"]


def test_a_function_that_names_nobody_is_one_clear_error_and_loses_nothing() -> None:
    spec = talk(
        *THREE, turn_order={"kind": "function", "name": "f"}, end_chat={"max_iterations": 1}
    )
    model = ScriptedChatModel(script=["Line one.", "Line two.", "Line three."])
    options: dict[str, Any] = {"session": "f", "model": model, "store": "memory:nobody"}
    with pytest.raises(
        SpecError,
        match="the order 'f' chose 'Dot', who is not a speaker; return one of 'Ann', 'Bob'",
    ):
        converse(spec, orders={"f": lambda said, names: "Dot"}, **options)
    with pytest.raises(SpecError, match="the order 'f' failed: IndexError"):
        converse(spec, orders={"f": lambda said, names: names[3]}, **options)
    result = converse(spec, orders={"f": lambda said, names: names[2]}, **options)
    assert [name for name, _ in result.transcript] == ["Ann", "Cid", "Cid"]
    assert len(model.calls) == 3


def test_choices_and_their_questions_are_kept_for_the_record_only() -> None:
    spec = moderated(end_chat={"max_iterations": 1})
    result, _ = play(spec, ["One.", "Two.", "Three."], [next_is("Bob"), next_is("Cid")])
    choices = of_kind(result.messages, "speaker_choice")
    assert [fields_of(message).to for message in choices] == ["Bob", "Cid"]
    for name in THREE:
        assert not any("next_speaker" in message.text for message in result.viewpoint(name))


def test_among_many_speakers_are_told_of_the_labels_and_none_is_written_twice() -> None:
    """Y20: every speaker hears all others, and each message starts with its speaker's name."""
    spec = talk("Ann", "Bob", "Cid", "Dot", end_chat={"max_iterations": 1})
    result, _ = play(spec, ["Line one here.", "Bob: Line two here.", "Line three.", "Line four."])
    system, heard, *_ = (message.text for message in result.viewpoint("Cid"))
    assert system.startswith("You are Cid, in a conversation with Ann, Bob and Dot.")
    assert PROMPTS["speaker_labels"] in system
    expected = "Ann: Line one here.\n\nBob: Line two here.\n\nCid, it is your turn."
    assert heard == expected
    assert PROMPTS["speaker_labels"] not in result.viewpoint("Cid")[1].text
    two, _ = play(talk(end_chat={"max_iterations": 1}), ["Line one here.", "Line two here."])
    assert PROMPTS["speaker_labels"] not in two.viewpoint("Ann")[0].text


def test_criteria_that_stand_there_twice_are_refused() -> None:
    with pytest.raises(SpecError, match=r"judge\.criteria: 'Met\.' occurs twice"):
        judged(judge={"criteria": ["Met.", "Met."]})


AT_CAPS = {"criteria": ["Met."]}
NEVER = AT_CAPS | {"final_verdict": False}
CAP_ONLY = {"mode": "max_iterations_only"}


@pytest.mark.parametrize(
    ("judge", "mode", "begins"),
    [
        (AT_CAPS, {}, "The judge is asked only at a cap and can't end the conversation"),
        (AT_CAPS, CAP_ONLY, None),
        (AT_CAPS, {"mode": FIRST}, None),
        (NEVER, {}, "The judge will not be asked"),
        (NEVER, CAP_ONLY, None),
        ({"kind": "speaker"}, {}, "The judge will not be asked"),
        (None, {}, None),
    ],
)
def test_a_judge_that_cannot_end_the_conversation_is_worth_one_warning_before_any_call(
    judge: dict[str, Any] | None,
    mode: dict[str, Any],
    begins: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = talk(end_chat=mode, **({} if judge is None else {"judge": judge}))
    options: dict[str, Any] = {"session": f"judge-{uuid4().hex}", "store": "memory:judges"}
    for _ in range(2):
        # The stored spec does not contain a mode that is the default, so the second run is silent.
        with pytest.raises(OSError, match="gone"):
            converse(spec, model=ScriptedChatModel([OSError("gone")]), **options)
    found = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert len(found) == (begins is not None)
    assert all(one.startswith(str(begins)) for one in found)


@tool
def look(what: str) -> str:
    """Look."""
    return what


def test_judge_moderator_and_functions_hear_what_is_said_beside_a_call_of_tools() -> None:
    said: list[list[str]] = []

    def note(messages: Sequence[BaseMessage], names: Sequence[str]) -> str:
        said.append([message.text for message in messages])
        return "Bob"

    call = ScriptedToolCall(name="look", args={"what": "it"}, id="c1")
    spec = judged(
        Ann={"tools": ["look"], "checks_completion": True},
        turn_order={"kind": "function", "name": "note"},
        end_chat={"mode": FIRST, "max_iterations": 1},
    )
    script: list[Line] = [Reply(text="The price is 40.", tool_calls=(call,)), "So it is.", "Fine."]
    _, judge = play(spec, script, [found("met", "not_met")], orders={"note": note}, tools=[look])
    assert "Ann: The price is 40.\n\nAnn: So it is." in judge.calls[0].messages[1].text
    assert said == [["The price is 40.", "So it is."]]
