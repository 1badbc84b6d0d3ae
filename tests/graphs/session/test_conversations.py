"""Whole conversations: views of the speakers, calls of the judge, reasons of the end."""

from typing import Any

import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from duologue import Conversation, EndChatMode, Reason, Result, Speaker, converse, role_play
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.fork_help import NO, YES, with_verdicts
from support.log import fields_of, of_kind, place_of
from support.results import outcome_of
from support.shape_help import play, shown, texts
from support.tables import read_rows

MODES = list(EndChatMode)

JUDGE_OWN_TASK = """\
Pause the conversation to answer this question.
Which objectives of your task are not met yet? Is your task complete?
Agreeing to do something is not the same as doing it."""
LIST_OBJECTIVES = """\
Pause the conversation to answer this question.
Which objectives of your task are not met yet?
List each of them, or say that there are none.
Agreeing to do something is not the same as doing it."""
IS_COMPLETE = "Is your task complete? Answer with one word: yes or no."


def scripted(conversation: Conversation, script: list[Line]) -> Result:
    """Run a conversation on a script that must be used up."""
    return play(conversation, script)[0]


def served(conversation: Conversation, server: ScriptedServer) -> Result:
    """Run a conversation with the real client."""
    chat = ChatOpenAI(
        base_url=server.url, api_key=SecretStr("any"), model="scripted", max_retries=0
    )
    return converse(conversation, model=chat, store="memory:")


def seen(result: Result, name: str) -> list[str]:
    """Return a speaker's own history as roles and texts, without the system prompt."""
    return [one for one in shown(result.viewpoint(name)) if not one.startswith("s:")]


def verdicts(result: Result) -> list[tuple[str | None, bool, bool]]:
    """Return the speaker of each verdict, and whether it is complete and readable."""
    found = (fields_of(message).verdict for message in result.messages)
    return [(one.speaker, one.complete, one.readable) for one in found if one is not None]


def dual(count: int = 2, stoppers: str = "", keep: str = "", **fields: Any) -> Conversation:
    """Return a conversation of speakers A, B, …, with tasks P1, P2, …."""
    speakers = [
        {
            "name": name,
            "task": f"P{number}",
            "checks_completion": name in stoppers,
            "keep_self_reflection": name in keep,
        }
        for number, name in enumerate("ABCD"[:count], start=1)
    ]
    return Conversation.model_validate({"speakers": speakers, **fields})


def capped(cap: int, mode: EndChatMode = MODES[0]) -> dict[str, Any]:
    return {"mode": mode, "max_iterations": cap}


# Opening and rounds. The others' views contain the last message even if it has no answer.


def test_after_opening_answers_the_shift_begins_the_rounds() -> None:
    """Y3 to Y7: cap 1 allows two messages each, because opening answers do not count."""
    for row in read_rows(__file__, "shifts"):
        opening = {"answers": True, **row["opening"]}
        ran = scripted(dual(opening=opening, end_chat=capped(1)), row["script"])
        assert (seen(ran, "A"), seen(ran, "B")) == (row["seen_by_a"], row["seen_by_b"])
        outcome = outcome_of(ran)
        assert outcome.reasons == (Reason.MAX_ITERATIONS,)
        assert (outcome.rounds, outcome.messages) == (1, 4)


def test_opening_answers_are_given_blindly_and_alone() -> None:
    """Y4: B answers P2 without P1 and A1 in its prompt."""
    conversation = dual(opening={"answers": True}, end_chat=capped(1))
    _, model = play(conversation, ["A1", "B1", "B2", "A2"])
    assert [texts(call) for call in model.calls] == [
        ["u:P1"],
        ["u:P2"],
        ["u:P2", "a:B1", "u:A1"],
        ["u:P1", "a:A1", "u:B2"],
    ]


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_in_one_round_every_speaker_speaks_once(cap: int) -> None:
    """Y3, Y11, Y20: three speakers also take turns, and no judge is asked."""
    names = ["A", "B", "C"] * cap
    script: list[Line] = [f"{name} says {number}" for number, name in enumerate(names)]
    ran = scripted(dual(3, "ABC", task="P", end_chat=capped(cap)), script)
    assert ran.transcript == [*zip(names, script, strict=True)]
    outcome = outcome_of(ran)
    assert outcome.reasons == (Reason.MAX_ITERATIONS,)
    assert (outcome.rounds, outcome.by) == (cap, None)
    assert outcome.message == place_of(ran.messages[-1])
    assert verdicts(ran) == []


def test_a_done_token_in_an_opening_answer_ends_nothing() -> None:
    """Z4, Y9: no speaker hears opening answers."""
    conversation = dual(
        opening={"answers": True},
        end_chat={"max_iterations": 1, "when": {"kind": "done_token", "token": "DONE"}},
    )
    ran = scripted(conversation, ["DONE", "B1", "B2", "A2"])
    assert outcome_of(ran).reasons == (Reason.MAX_ITERATIONS,)


# Ends by completed tasks.


def test_completed_tasks_end_it_as_the_mode_says() -> None:
    """Y12 to Y15: the stoppers are asked after their turns."""
    for row in read_rows(__file__, "completions"):
        count, said = row["count"], [one for one in row["script"] if one not in ("YES", "NO")]
        end_chat = capped(row["cap"], EndChatMode(row["mode"]))
        talk = dual(count, row["stoppers"], task="P", end_chat=end_chat)
        ran = scripted(talk, with_verdicts(row["script"]))
        speeches = of_kind(ran.messages, "speech")
        assert [message.text for message in speeches] == said, row
        assert [fields_of(one).speaker for one in speeches] == [one[0].upper() for one in said]
        outcome = outcome_of(ran)
        assert outcome.reasons == tuple(map(Reason, row["reasons"])), row
        # R11: last words belong to a round.
        assert (outcome.messages, outcome.rounds) == (len(said), len(said) // count)
        assert outcome.message == place_of(speeches[-1])
        completed = [speaker for speaker, is_complete, _ in verdicts(ran) if is_complete]
        assert list(outcome.completed) == completed
        is_completed = row["reasons"][0] == "completed"
        assert outcome.by == (completed[-1] if is_completed else None), row


@pytest.mark.parametrize(
    ("count", "stoppers", "mode", "script"),
    [
        (3, "A", MODES[3], ["a1", YES, "b1", "c1", "a2"]),
        (2, "B", MODES[2], ["A1", "B1", "b2", YES, "a2"]),
    ],
)
def test_r11_last_words_belong_to_a_round(
    count: int, stoppers: str, mode: EndChatMode, script: list[Line]
) -> None:
    opening = {"answers": count == 2}
    talk = dual(count, stoppers, task="P", opening=opening, end_chat=capped(3, mode))
    outcome = outcome_of(scripted(talk, script))
    assert outcome.reasons == (Reason.COMPLETED,)
    assert str(outcome).startswith("Ended after 1 round and 4 messages: ")


def test_a_stopper_is_not_asked_after_its_opening_answer() -> None:
    """Y9: a stopper is asked only after its turns in the rounds."""
    conversation = dual(2, "AB", opening={"answers": True}, end_chat=capped(1, MODES[1]))
    ran = scripted(conversation, ["A1", "B1", "B2", NO, "A2", NO])
    assert [one[0] for one in verdicts(ran)] == ["B", "A"]


# The judge's questions.


def judged(**fields: Any) -> Conversation:
    """Return a conversation of one round, in which B is asked about its task."""
    return dual(2, "B", task="P", end_chat=capped(1, MODES[1]), **fields)


TWO_QUESTIONS = {"form": "two_questions"}


def test_a_structured_verdict_takes_one_call_at_its_own_temperature() -> None:
    """Y9, Z1: speakers use 0.2, the verdict 0.3."""
    with ScriptedServer(["a1", "b1", YES]) as server:
        ran = served(judged(), server)
    assert [call.body["temperature"] for call in server.calls] == [0.2, 0.2, 0.3]
    assert [("response_format" in call.body) for call in server.calls] == [False, False, True]
    asked = [(m["role"], m["content"]) for m in server.calls[2].prompt[1:]]
    assert asked == [("user", "a1"), ("assistant", "b1"), ("user", JUDGE_OWN_TASK)]
    assert verdicts(ran) == [("B", True, True)]
    assert outcome_of(ran).total.calls == 3


def test_the_two_questions_take_two_calls_at_two_temperatures() -> None:
    """Y9: the list of open objectives uses the speaker's temperature, the yes or no 0.3."""
    with ScriptedServer(["a1", "b1", "The price.", "No."]) as server:
        ran = served(judged(judge=TWO_QUESTIONS), server)
    assert [call.body["temperature"] for call in server.calls] == [0.2, 0.2, 0.2, 0.3]
    assert not any("response_format" in call.body for call in server.calls)
    assert [(m["role"], m["content"]) for m in server.calls[3].prompt[1:]] == [
        *(("user", "a1"), ("assistant", "b1"), ("user", LIST_OBJECTIVES)),
        *(("assistant", "The price."), ("user", IS_COMPLETE)),
    ]
    assert verdicts(ran) == [("B", False, True)]
    assert outcome_of(ran).verdicts[0].objectives_left == ("The price.",)
    assert outcome_of(ran).reasons == (Reason.MAX_ITERATIONS,)


def test_a_word_that_is_neither_yes_nor_no_is_not_complete_and_unreadable() -> None:
    """Y9: the judge is asked once more, and its answer is in the log."""
    for answer in read_rows(__file__, "judges")["neither_yes_nor_no"]:
        script = ["a1", "b1", "The price.", answer, answer]
        ran = scripted(judged(judge=TWO_QUESTIONS), script)
        assert verdicts(ran) == [("B", False, False)], answer
        assert outcome_of(ran).reasons == (Reason.MAX_ITERATIONS,)
        assert ran.messages[-1].text == answer


def run_either_way(conversation: Conversation, script: list[Line], *, http: bool) -> Result:
    """Run a conversation with a scripted model, or with the real client of a scripted server."""
    if not http:
        return scripted(conversation, script)
    with ScriptedServer(script) as server:
        return served(conversation, server)


@pytest.mark.parametrize("http", [False, True], ids=["model", "http"])
def test_an_answer_that_does_not_fit_the_schema_is_not_complete_and_recorded(
    http: bool,
) -> None:
    """Y9, R4: an answer that lacks a field, contradicts itself or is cut off is unreadable."""
    conversation = judged(keep="B")
    for answer in read_rows(__file__, "judges")["unreadable"]:
        ran = run_either_way(conversation, ["a1", "b1", answer, answer], http=http)
        assert verdicts(ran) == [("B", False, False)], answer
        assert outcome_of(ran).reasons == (Reason.MAX_ITERATIONS,)
        assert of_kind(ran.messages, "reflection")[0].text == answer
        assert seen(ran, "B") == ["u:a1", "a:b1"]


@pytest.mark.parametrize("http", [False, True], ids=["model", "http"])
def test_r4_a_verdict_is_read_as_models_write_it(http: bool) -> None:
    for answer in read_rows(__file__, "judges")["complete"]:
        ran = run_either_way(judged(), ["a1", "b1", answer], http=http)
        assert verdicts(ran) == [("B", True, True)], answer
        assert outcome_of(ran).reasons[0] is Reason.COMPLETED


NONE_LEFT: Line = {"objectives_left": [], "complete": False}
SOME_LEFT: Line = {"objectives_left": ["price", "place"], "complete": False}
QUESTION = f"u:{JUDGE_OWN_TASK}"
REFLECTIONS: dict[str, tuple[str, list[Line], list[str]]] = {
    "some-left": ("structured", [SOME_LEFT], [QUESTION, "a:Still to do: price; place."]),
    "none-left": ("structured", [NONE_LEFT], [QUESTION, "a:The task is not complete yet."]),
    "two-questions": (
        "two_questions",
        ["The price.", "no"],
        [f"u:{LIST_OBJECTIVES}", "a:The price."],
    ),
}
"""Y10: the judge's form, its answers, and the reflection that is kept."""


@pytest.mark.parametrize(("form", "answers", "kept"), REFLECTIONS.values(), ids=REFLECTIONS)
def test_a_reflection_is_kept_in_its_speakers_view_or_vanishes(
    form: str, answers: list[Line], kept: list[str]
) -> None:
    for keep, mine in (("", []), ("A", kept)):
        end_chat = capped(2, MODES[1])
        talk = dual(2, "A", keep, task="P", end_chat=end_chat, judge={"form": form})
        ran = scripted(talk, ["a1", *answers, "b1", "a2", *answers, "b2"])
        # The next heard message follows a kept answer as usual.
        view = ["u:Please begin.", "a:a1", *mine, "u:b1", "a:a2", *mine, "u:b2"]
        assert seen(ran, "A") == view
        assert seen(ran, "B") == ["u:a1", "a:b1", "u:a2", "a:b2"]


# Role-play.

USER, HELPER = "Trader", "Coder"
DONE = "<CAMEL_TASK_DONE>"
AT_ONCE = {"allow_unanswered_end": True}


def step(number: object) -> str:
    return f"Instruction: do {number}\nInput: None"


def did(number: object) -> str:
    return f"Solution: did {number}.\nNext request."


def bot(**options: Any) -> Conversation:
    return role_play("Build a bot", USER, HELPER, **{"specify_task": False, **options})


def test_a_role_play_goes_to_the_done_token_and_the_assistant_never_answers_it() -> None:
    """Z3, Z4, Z5: a role-play runs to the done token, which the assistant never answers."""
    script: list[Line] = [step(1), did(1), step(2), did(2), DONE]
    ran = scripted(bot(), script)
    assert [message.text for message in ran.messages[1:]] == script
    outcome = outcome_of(ran)
    assert outcome.reasons == (Reason.DONE_TOKEN,)
    assert (outcome.by, outcome.rounds, outcome.messages) == (USER, 2, 5)
    assert outcome.message == place_of(ran.messages[-1])
    begin, first = seen(ran, USER)[:2]
    assert begin == "u:Give the first instruction."
    assert first == f"a:{step(1)}"
    assert seen(ran, HELPER)[0] == f"u:{step(1)}"


def test_the_done_token_counts_alone_on_a_line_of_a_longer_message() -> None:
    """Z4: a mere mention of the token does not count."""
    mention = f"Instruction: do 2, or I say {DONE}\nInput: None"
    ran = scripted(bot(), [step(1), did(1), mention, did(2), f"Thank you.\n{DONE}"])
    assert outcome_of(ran).reasons == (Reason.DONE_TOKEN,)
    assert of_kind(ran.messages, "draft") == []


def test_a_done_token_on_the_first_turn_is_said_twice_or_not_at_all() -> None:
    """Z4, R19: after a done token in the first turn, the assistant is never called."""
    ran = scripted(bot(), [DONE, DONE])
    assert ran.transcript == [(USER, DONE)]
    assert outcome_of(ran).reasons == (Reason.DONE_TOKEN,)
    ran = scripted(bot(max_iterations=1), [DONE, step(1), did(1)])
    assert ran.transcript == [(USER, step(1)), (HELPER, did(1))]


@pytest.mark.parametrize(
    ("options", "sent"),
    [({}, [1.0, 0.2, 0.2]), ({"task_temperature": 0.7, "temperature": 0.0}, [0.7, 0.0, 0.0])],
)
def test_the_two_temperatures_are_sent(options: dict[str, Any], sent: list[float]) -> None:
    """Z1: the temperature is 1.0 for the task and 0.2 for both agents; both can be set."""
    with ScriptedServer(["A tea bot", step(1), did(1)]) as server:
        served(bot(specify_task=True, max_iterations=1, **options), server)
    assert [call.body["temperature"] for call in server.calls] == sent


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        pytest.param("Let us do 1.", "must begin with 'Instruction:'", id="Z3-no-marks"),
        pytest.param("Instruction: a\nInstruction: b", "only once", id="R8-two-instructions"),
        pytest.param(
            did(1), f"You are {USER}, but your message speaks for {HELPER}.", id="Z3-flip"
        ),
        pytest.param(" \n", "Your message was empty.", id="Z3-blank"),
    ],
)
def test_a_broken_reply_is_asked_for_once_more_with_the_reason(broken: str, reason: str) -> None:
    ran, model = play(bot(max_iterations=1), [broken, step(1), did(1)])
    assert ran.transcript == [(USER, step(1)), (HELPER, did(1))]
    first, again, then = (call.prompt for call in model.calls)
    assert reason in again[-1]["content"]
    assert again[-1]["role"] == "user"
    if broken.strip():
        assert again[: len(first)] == first
        assert (again[-2]["role"], again[-2]["content"]) == ("assistant", broken)
    else:
        assert [one["role"] for one in again] == ["system", "user"]
        assert first[-1]["content"] in again[-1]["content"]
    # No speaker hears the draft or the reason, neither the other nor its author later.
    assert [m["content"] for m in then[1:]] == [step(1)]
    (draft,) = of_kind(ran.messages, "draft")
    assert draft.text == broken
    assert reason in fields_of(draft).problem
    assert reason not in str(seen(ran, USER))
    assert outcome_of(ran).total.calls == 3


def test_a_reply_that_is_still_broken_is_taken_as_it_is_and_marked() -> None:
    """Z3: a second broken reply is kept and marked."""
    twice = "Instruction: {0}\nInstruction: {0}\nInput: None"
    script = [twice.format("one"), twice.format("two"), did(1)]
    ran = scripted(bot(max_iterations=1), [*script])
    assert ran.transcript[0] == (USER, twice.format("two"))
    assert "'Instruction:'" in fields_of(of_kind(ran.messages, "speech")[0]).problem
    assert outcome_of(ran).reasons == (Reason.MAX_ITERATIONS,)


def test_r15_a_reply_whose_first_mark_is_still_missing_is_given_it() -> None:
    ran = scripted(bot(max_iterations=1), ["one", "two", did(1)])
    assert ran.transcript[0] == (USER, "Instruction: two\nInput: None")
    assert fields_of(of_kind(ran.messages, "speech")[0]).problem is None


def test_roles_that_stay_flipped_end_it_and_say_who_flipped() -> None:
    """Z3: the first role flip is tolerated, the second ends the conversation."""
    ran = scripted(bot(), [step(1), step(7), step(8), step(2), step(7), step(8)])
    outcome = outcome_of(ran)
    assert (outcome.reasons, outcome.by, outcome.rounds) == ((Reason.ROLE_FLIPS,), HELPER, 2)
    assert ran.transcript[-1] == (HELPER, step(8))


def test_the_task_is_rewritten_before_anyone_speaks() -> None:
    """Z2: both speakers get the new task; it is in the log, but no speaker hears the request."""
    task = "Build a bot that trades tea."
    ran, model = play(bot(specify_task=True, end_chat=AT_ONCE), [f'"{task}"', DONE])
    assert ran.specified_task == task
    assert task in model.calls[1].prompt[0]["content"]
    (request,) = model.calls[0].prompt
    assert request["role"] == "user"
    assert "Build a bot" in request["content"]
    assert "50 words" in request["content"]
    (rewrite,) = of_kind(ran.messages, "specified_task")
    assert fields_of(rewrite).audience == ()
    # R1: other speakers hear a message without its done token.
    assert seen(ran, HELPER) == ["u:(empty message)"]


def test_a_rewrite_over_the_limit_is_asked_for_once_more() -> None:
    """Z2: an overlong rewrite is requested once more, with its number of words."""
    spec = bot(specify_task=True, word_limit=3, end_chat=AT_ONCE)
    ran, model = play(spec, ["one two three four", "five six", DONE])
    assert ran.specified_task == "five six"
    _, draft, again = shown(model.calls[1].messages)
    assert draft == "a:one two three four"
    assert again.startswith("u:Your answer has 4 words. Shorten it to at most 3 words.")
    assert len({message.id for message in ran.messages}) == len(ran.messages)


def test_a_rewrite_that_stays_too_long_is_cut_at_a_sentence() -> None:
    """Z2: without a sentence that fits, it is cut between words; a blank one is not used."""
    long = "far too many words for any such limit"
    spec = bot(specify_task=True, word_limit=5, end_chat=AT_ONCE)
    for rewrite, cut in read_rows(__file__, "rewrites").items():
        assert scripted(spec, [long, rewrite, DONE]).specified_task == cut
    assert scripted(spec, [" ", DONE]).specified_task == "Build a bot"


# Tools within a turn.


@tool
def price(item: str) -> str:
    """Return a price."""
    return f"{item}: 4"


def calling(key: str, args: dict[str, Any] | str) -> Reply:
    return Reply(tool_calls=(ScriptedToolCall(name="price", args=args, id=key),))


def buy(*script: Line) -> tuple[Result, ScriptedChatModel]:
    """Run a conversation of a round, in which A has a tool."""
    speakers = [Speaker("A", tools=["price"]), Speaker("B")]
    conversation = Conversation("Buy tea.", speakers, end_chat={"max_iterations": 1})
    return play(conversation, script, tools=[price])


def test_a_blank_reply_behind_a_tools_answer_leaves_the_answer_in_its_place() -> None:
    """Z3, Y18: no call reaches a provider without its result."""
    ran, model = buy(calling("c1", {"item": "tea"}), "", "Four.", "Fine.")
    *before, last = texts(model.calls[2])
    assert before == ["u:Please begin.", "a:", "t:tea: 4", "a:(empty message)"]
    assert last.startswith("u:Your message was empty.")
    assert ran.transcript == [("A", "Four."), ("B", "Fine.")]


def test_arguments_that_are_no_json_come_back_to_be_mended() -> None:
    """Y19: the model receives an error for arguments that are no JSON."""
    ran, model = buy(calling("c1", "{item"), calling("c2", {"item": "tea"}), "Four.", "Fine.")
    called, result = model.calls[1].prompt[-2:]
    assert [call["id"] for call in called["tool_calls"]] == ["c1"]
    assert (result["tool_call_id"], result["role"]) == ("c1", "tool")
    assert "not valid JSON" in result["content"]
    assert texts(model.calls[2])[-1] == "t:tea: 4"
    assert seen(ran, "B") == ["u:Four.", "a:Fine."]


def test_a_reply_is_asked_for_again_once_even_with_a_call_of_tools_between() -> None:
    """Z3: there is one correction request per turn, even with tool calls in between."""
    ran, _ = buy("", calling("c1", {"item": "tea"}), "", "Fine.")
    assert ran.transcript[1:] == [("B", "Fine.")]
