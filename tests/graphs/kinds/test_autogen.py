"""AutoGen's examples (rows A1 to A10) with scripted models: an assistant and its user proxy."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    MessageQuestion,
    Question,
    Result,
    converse,
    load_conversation,
    user_proxy,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Turn
from support.log import Source, fields_of, of_kind
from support.people_help import Played, call, calls, play as play_with_people
from support.tables import check_rows, read_rows

MONTY = {"level": "monty"}
AUTO = "Please go on."


def code(text: str, before: str = "") -> str:
    return f"{before}\n```python\n{text}\n```".strip()


def ran(output: str, code: int = 0) -> str:
    return f"Exit code: {code} ({'it failed' if code else 'it succeeded'})\nOutput:\n{output}"


def play(
    conversation: Conversation,
    script: Sequence[Line],
    *answers: str,
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    """Run a conversation on a script and answers that must be used up."""
    model = ScriptedChatModel(script=list(script))
    found = play_with_people(conversation, model, answers, **options)
    assert (len(model.calls), len(found.asked)) == (len(script), len(answers))
    return found.result, model


def end(result: Result) -> tuple[str, str | None]:
    assert result.outcome is not None
    return result.outcome.reason.value, result.outcome.by


def by_user(result: Result) -> list[str]:
    return [text for name, text in result.transcript if name == "User"]


def sources(result: Result) -> list[Source]:
    """Return the sources of the user's messages."""
    found = [fields_of(message) for message in of_kind(result.messages, "speech")]
    return [about.source for about in found if about.speaker == "User"]


# The basic example

STOCKS = (
    "What date is today? Which big tech stock has the largest year-to-date gain this year? How "
    "much is the gain?"
)


def test_the_basic_example_solves_a_task_with_code() -> None:
    """A1, A2, A3, A7: the proxy runs the code, the assistant corrects it, no person is asked."""
    broken = code("gains = {'AA': 0.5, 'BB': 1.25}\nprint(best)", "Let me compute it.")
    mended = code("print(max(gains.values()))")
    answer = "BB has gained most: 125 %. TERMINATE"
    talk = user_proxy(STOCKS, human_input_mode="NEVER", sandbox=MONTY)
    result, model = play(talk, [broken, mended, answer])
    task, first, second = by_user(result)
    assert task == STOCKS
    assert first.startswith("Exit code: 1 (it failed)\nOutput:\n")
    assert "NameError" in first
    assert second == ran("1.25")
    assert sources(result) == [Source.TEXT, Source.CODE, Source.CODE]
    assert end(result) == ("termination", "Assistant")
    # The assistant receives the task first, and then the output of its code.
    assert model.calls[0].prompt[-1]["content"] == STOCKS
    assert model.calls[2].prompt[-1]["content"] == ran("1.25")


# Human input modes


def test_never_asks_nobody_and_stops_at_the_cap() -> None:
    """A3: as in AutoGen's documentation, runs of code count as automatic replies."""
    talk = user_proxy(
        "Count.", human_input_mode="NEVER", max_consecutive_auto_reply=2, sandbox=MONTY
    )
    result, _ = play(talk, [code("print(1)"), "And more.", code("print(3)")])
    assert len(by_user(result)) == 1 + 2
    assert sources(result)[1:] == [Source.CODE, Source.TEXT]
    assert end(result) == ("max_consecutive_auto_reply", None)


def test_always_asks_at_each_message_until_exit() -> None:
    """A4: an empty answer lets the code run, and a text replaces its output."""
    talk = user_proxy("Count.", sandbox=MONTY, default_auto_reply=AUTO)
    script = [code("print(1)"), code("print(2)"), "What else?", "Well?"]
    result, _ = play(talk, script, "", "Do not run that.", "", "exit")
    assert by_user(result) == ["Count.", ran("1"), "Do not run that.", AUTO]
    assert sources(result)[1:] == [Source.CODE, Source.HUMAN, Source.TEXT]
    assert end(result) == ("quit", "User")


def test_terminate_asks_at_a_termination_message_or_the_cap() -> None:
    """A5: the person wants more, is asked at the cap, and then accepts the result."""
    talk = user_proxy(
        "Count.",
        human_input_mode="TERMINATE",
        max_consecutive_auto_reply=1,
        sandbox=MONTY,
        default_auto_reply=AUTO,
    )
    script = [code("print(1)"), "1. TERMINATE", "So?", "Hm.", "2. TERMINATE"]
    result, _ = play(talk, script, "And 2?", "Say 2.", "")
    assert by_user(result) == ["Count.", ran("1"), "And 2?", AUTO, "Say 2."]
    assert end(result) == ("termination", "Assistant")


# A6: termination messages


def test_the_word_ends_the_message() -> None:
    """A6: AutoGen's own test recognizes only the first of them."""

    def check(text: str, ends: bool) -> None:
        talk = user_proxy("Go.", human_input_mode="NEVER", max_consecutive_auto_reply=0, code=False)
        result, _ = play(talk, [text])
        assert end(result)[0] == ("termination" if ends else "max_consecutive_auto_reply")

    check_rows(read_rows(__file__, "termination_messages"), check)


def test_a_predicate_is_asked_instead_of_the_word() -> None:
    """A6: the predicate gets all heard messages, the received message last."""
    seen: list[list[str]] = []

    def over(said: Sequence[BaseMessage]) -> bool:
        seen.append([message.text for message in said])
        return "42" in said[-1].text and said[-1].name == "Assistant"

    talk = user_proxy(
        "Is it 42?",
        human_input_mode="NEVER",
        is_termination="over",
        code=False,
        default_auto_reply=AUTO,
    )
    result, _ = play(talk, ["Wait. TERMINATE", "It is 42."], predicates={"over": over})
    assert end(result) == ("termination", "Assistant")
    received = [said for said in seen if len(said) % 2 == 0]
    assert received == [
        ["Is it 42?", "Wait. TERMINATE"],
        ["Is it 42?", "Wait. TERMINATE", AUTO, "It is 42."],
    ]


def test_another_word_may_end_it() -> None:
    talk = user_proxy("Go.", human_input_mode="NEVER", termination="Over.", code=False)
    result, _ = play(talk, ["TERMINATE", "Over and out", "Over."])
    assert end(result) == ("termination", "Assistant")


# A7: the word next to code

BESIDE = f"{code('print(6 * 7)')}\nTERMINATE"


def test_code_beside_the_word_runs_first() -> None:
    """A7: the word counts only in a message without code."""
    for mode in ("NEVER", "TERMINATE"):
        talk = user_proxy("6 * 7?", human_input_mode=mode, sandbox=MONTY)
        answers = ("",) if mode == "TERMINATE" else ()
        result, _ = play(talk, [BESIDE, "42. TERMINATE"], *answers)
        assert by_user(result) == ["6 * 7?", ran("42")]
        assert end(result) == ("termination", "Assistant")


def test_who_is_always_asked_leaves_code_beside_the_word_to_be_run_or_talks_instead() -> None:
    """A4, A7: a person's text prevents the run of the code."""
    talk = user_proxy("6 * 7?", sandbox=MONTY)
    result, _ = play(talk, [BESIDE, "42. TERMINATE"], "", "")
    assert by_user(result) == ["6 * 7?", ran("42")]
    assert end(result) == ("termination", "Assistant")
    result, _ = play(talk, [BESIDE, "Fine. TERMINATE"], "Do not run it.", "")
    assert by_user(result) == ["6 * 7?", "Do not run it."]
    assert end(result) == ("termination", "Assistant")


def test_where_no_code_is_run_the_word_ends_it_at_once() -> None:
    """A7: if code is switched off, the word ends the conversation at once."""
    talk = user_proxy("6 * 7?", human_input_mode="NEVER", code=False)
    result, _ = play(talk, [BESIDE])
    assert end(result) == ("termination", "Assistant")


# A2, A10: replies after the person's


def test_functions_are_tried_in_order_behind_the_person_and_before_code() -> None:
    """A10: each function may leave the reply to the next one."""
    heard: list[str] = []

    def first(turn: Turn) -> str | None:
        heard.append(turn.heard)
        return "Check it." if turn.heard == "It is 42." else None

    async def second(turn: Turn) -> str | None:
        return "Is that all?" if "more" in turn.heard else None

    talk = user_proxy(
        "6 * 7?", functions=["first", "second"], sandbox=MONTY, default_auto_reply=AUTO
    )
    script = ["It is 42.", "There is more.", code("print(1)"), "Hm.", "Yes?"]
    functions = {"first": first, "second": second}
    result, _ = play(talk, script, "", "", "", "Go on, you.", "exit", functions=functions)
    assert by_user(result) == ["6 * 7?", "Check it.", "Is that all?", ran("1"), "Go on, you."]
    assert sources(result)[1:] == [Source.FUNCTION, Source.FUNCTION, Source.CODE, Source.HUMAN]
    # The functions are not called if the person has replied.
    assert heard == script[:3]


def test_a_model_may_reply_for_the_user_in_the_place_of_the_default() -> None:
    """A2: the user gets a model, whose replies count as automatic."""
    talk = user_proxy(
        "6 * 7?",
        human_input_mode="NEVER",
        max_consecutive_auto_reply=2,
        user_prompt="You are {user}, and in doubt. Never say {termination}.",
        code=False,
    )
    script = ["Around 40.", "More exactly?", "42.", "Are you sure?", "I am."]
    result, model = play(talk, script)
    assert by_user(result) == ["6 * 7?", "More exactly?", "Are you sure?"]
    assert sources(result)[1:] == [Source.MODEL, Source.MODEL]
    system = model.calls[1].prompt[0]["content"]
    assert system.startswith("You are User, and in doubt. Never say TERMINATE.")
    assert end(result) == ("max_consecutive_auto_reply", None)


def test_the_assistant_never_asks_and_runs_nothing() -> None:
    """A1: code in the user's own messages is not run."""
    talk = user_proxy(code("print(1)", "Run this:"), sandbox=MONTY)
    result, _ = play(talk, ["You run it. TERMINATE"], "")
    assert len(result.transcript) == 2


@pytest.mark.parametrize("mode", ["ALWAYS", "TERMINATE", "NEVER"])
def test_an_empty_default_is_a_blank_as_autogens_own(mode: str) -> None:
    """A2: an empty default reply counts as blank; a guard or a cap on iterations ends it."""
    talk = user_proxy("Go.", human_input_mode=mode, default_auto_reply="", max_iterations=2)
    answers = ("",) if mode == "ALWAYS" else ()
    result, _ = play(talk, ["One.", "Two."], *answers)
    assert by_user(result) == ["Go.", ""]


# Function calling


def test_the_function_calling_example_draws_two_agents() -> None:
    """A8: the assistant calls ``python`` and ``sh``, and receives failures as text."""
    ran_cells: list[str] = []

    @tool
    def python(cell: str) -> str:
        """Run a cell and return the execution result."""
        ran_cells.append(cell)
        if "draw" not in cell:
            raise ValueError("nothing is drawn")
        return "A: Hello! B: Hi!"

    @tool
    def sh(script: str) -> str:
        """Run a shell script and return the execution result."""
        ran_cells.append(script)
        return "done"

    task = "Draw two agents chatting with each other with an example dialog."
    talk = user_proxy(task, human_input_mode="NEVER", tools=["python", "sh"], code=False)
    script: list[Line] = [
        calls(call("python", 1, cell="paint()")),
        calls(call("python", 2, cell="draw()")),
        calls(call("sh", 3, script="ls")),
        "They talk. TERMINATE",
    ]
    result, model = play(talk, script, tools=[python, sh])
    assert ran_cells == ["paint()", "draw()", "ls"]
    assert result.transcript == [("User", task), ("Assistant", "They talk. TERMINATE")]
    assert end(result) == ("termination", "Assistant")
    assert [one["function"]["name"] for one in model.calls[0].tools] == ["python", "sh"]
    assert "nothing is drawn" in str(model.calls[1].prompt[-1]["content"])
    assert model.calls[2].prompt[-1]["content"] == "A: Hello! B: Hi!"


# Free texts of people


def test_no_guard_ends_what_a_person_goes_on_with() -> None:
    """A4: guards count only automatic messages; a person may repeat itself."""

    def check(*said: str) -> None:
        script = [f"My advice number {number} is of no use." for number in range(len(said) + 1)]
        result, _ = play(user_proxy("Plan a garden.", code=False), script, *said, "exit")
        assert by_user(result)[1:] == [*said]
        assert end(result) == ("quit", "User")

    check_rows(read_rows(__file__, "free_texts"), check)


def test_no_guard_ends_what_several_people_say_one_after_the_other() -> None:
    """A4: several people may repeat each other without an agent's message in between."""
    names = ("Ann", "Ben", "Cid", "Dot", "Eve")
    people = [{"name": one, "replies": ["human"]} for one in names]
    talk = load_conversation(
        {"speakers": [{"name": "Bot"}, *people], "end_chat": {"max_iterations": None}}
    )

    def check(*said: str) -> None:
        every = [text for text in said[:2] for _ in names]
        script = [f"My advice number {number} is of no use." for number in range(3)]
        result, _ = play(talk, script, *every, "exit")
        assert [text for name, text in result.transcript if name != "Bot"] == every
        assert end(result) == ("quit", "Ann")

    check_rows(read_rows(__file__, "free_texts"), check)


def test_the_default_reply_is_no_repetition_either() -> None:
    """A2: the default reply does not count, but the assistant that repeats itself is stopped."""
    talk = user_proxy("Go.", human_input_mode="NEVER", default_auto_reply=AUTO, code=False)
    same = "I keep on thinking about the best way to do it for you."
    result, _ = play(talk, ["One thought.", "Two thoughts.", same, f"{same}", "Z.", "TERMINATE"])
    assert end(result) == ("termination", "Assistant")


# Rows A2 to A6: transcripts and questions for each mode, termination, cap and list of answers.


TASK = "What is 6 times 7?"


def lines_of(turn: int | None) -> list[str]:
    """Return the assistant's messages."""
    words = ("first", "second", "third", "fourth")
    return [
        f"The {word} part of it is done. TERMINATE" if number == turn else f"I try a {word} way."
        for number, word in enumerate(words, start=1)
    ]


def check_course(course: dict[str, Any]) -> None:
    """Check the transcript, the number of questions, the end and its speaker."""
    answers, asked = iter(course["answers"]), 0

    def answer(question: Question) -> str | None:
        nonlocal asked
        asked += 1
        assert isinstance(question, MessageQuestion)
        assert (question.speaker, question.problem) == ("User", None)
        return next(answers, None)

    lines = lines_of(course.get("turn"))
    talk = user_proxy(
        TASK,
        human_input_mode=course["mode"],
        max_consecutive_auto_reply=course.get("cap", 100),
        default_auto_reply="Please go on.",
        max_iterations=len(lines),
        code=False,
    )
    model = ScriptedChatModel(script=lines)
    result = converse(talk, model=model, store="memory:", answer=answer)
    said = (TASK, *course["said"])
    names = ("User", "Assistant")
    assert result.transcript == [(names[place % 2], text) for place, text in enumerate(said)]
    assert asked == course["questions"]
    end = result.outcome and [result.outcome.reason.value, result.outcome.by]
    assert (end and [one for one in end if one]) == course.get("end")
    assert len(result.pending) == (end is None)


def test_conversations_go_as_they_are_written() -> None:
    """A2 to A6. The round cap is reached before a fifth message of the assistant."""
    check_rows([(course,) for course in read_rows(__file__, "user_proxy_courses")], check_course)


# Tool calls pass through the user proxy (rows A5 and A8; AutoGen's function calling).


def adds(*lefts: int, text: str = "") -> Reply:
    """Return a message that calls the tool once for each number."""
    return calls(*(call("add", left, left=left, right=1) for left in lefts), text=text)


def add_up(
    mode: str, script: list[Line], answers: list[str], cap: int = 100
) -> tuple[Played, list[MessageQuestion], list[int]]:
    """Run a user proxy with a tool. Return the result, the questions, and the calls that ran."""
    ran: list[int] = []

    @tool
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        ran.append(left)
        return left + right

    options: dict[str, Any] = {"code": False, "default_auto_reply": "Go on.", "tools": ["add"]}
    spec = user_proxy("Add up.", human_input_mode=mode, max_consecutive_auto_reply=cap, **options)
    found = play_with_people(spec, script, answers, tools=[add])
    return found, [one for one in found.asked if isinstance(one, MessageQuestion)], ran


def tools_said(found: Played) -> list[str]:
    """Return the tool results in the newest prompt."""
    return [line["content"] for line in found.prompts[-1] if line["role"] == "tool"]


NOT_RUN = "Not run: User sent a message instead."


def test_a8_text_while_calls_wait_interrupts_each_of_them() -> None:
    found, asked, ran = add_up("ALWAYS", [adds(1, 2), "As you wish."], ["Leave it.", "exit"])
    assert not ran
    assert asked[0].because == "calls"
    assert [(call.name, call.args["left"]) for call in asked[0].calls] == [("add", 1), ("add", 2)]
    assert tools_said(found) == [NOT_RUN] * 2
    assert found.prompts[-1][-1]["content"] == "Leave it."
    assert found.transcript == [
        ("User", "Add up."),
        ("User", "Leave it."),
        ("Assistant", "As you wish."),
    ]
    # The assistant's turn continues, so the round is not over before it has spoken.
    assert found.outcome.rounds == 1


def test_a8_calls_that_cannot_be_read_are_interrupted_too() -> None:
    broken = calls(ScriptedToolCall(name="add", args="{", id="c"))
    found, _, ran = add_up("ALWAYS", [broken, "Well."], ["Leave it.", "exit"])
    assert (tools_said(found), ran) == ([NOT_RUN], [])


def test_a4_nothing_lets_the_calls_run_and_exit_leaves_without() -> None:
    found, asked, ran = add_up("ALWAYS", [adds(1), "It is 2."], ["", "exit"])
    assert ran == [1]
    assert [question.because for question in asked] == ["calls", "turn"]
    assert [question.empty for question in asked] == ["run", "auto_reply"]
    assert tools_said(found) == ["2"]
    found, asked, ran = add_up("ALWAYS", [adds(5)], [" EXIT "])
    assert (ran, len(asked)) == ([], 1)
    assert (found.reason, found.outcome.by) == ("quit", "User")


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_a3_each_run_is_an_automatic_reply(cap: int) -> None:
    found, asked, ran = add_up("NEVER", [adds(number) for number in range(4)], [], cap)
    assert (len(ran), asked) == (cap, [])
    assert found.reason == "max_consecutive_auto_reply"


def test_a3_replies_and_runs_are_counted_together() -> None:
    found, _, ran = add_up("NEVER", [adds(1), "It is 2.", adds(2), "It is 3."], [], cap=2)
    assert ran == [1]
    assert found.transcript[-2:] == [("Assistant", "It is 2."), ("User", "Go on.")]


def test_a5_at_the_cap_the_person_is_asked_before_each_run() -> None:
    script: list[Line] = [adds(1), adds(2), adds(3), adds(4), "Well."]
    found, asked, ran = add_up("TERMINATE", script, ["", "Not that.", "exit"], cap=1)
    # One call is automatic, one is approved, and one is interrupted by a text that resets the
    # count.
    assert ran == [1, 2, 4]
    assert [question.because for question in asked] == ["max_consecutive_auto_reply"] * 3
    assert ("User", "Not that.") in found.transcript


def test_a5_without_any_automatic_reply_nothing_ends_it_before_the_calls() -> None:
    found, asked, ran = add_up("TERMINATE", [adds(1)], [""], cap=0)
    assert (ran, asked[0].empty) == ([], "stop")
    assert found.reason == "max_consecutive_auto_reply"


def test_a7_a_termination_word_beside_calls_waits_until_they_have_run() -> None:
    found, asked, ran = add_up("NEVER", [adds(1, text="TERMINATE"), "It is 2. TERMINATE"], [])
    assert (ran, asked, found.reason) == ([1], [], "termination")


def test_interrupted_calls_end_in_the_turns_last_word() -> None:
    """A person may interrupt each round; the turn's rounds still count."""
    script: list[Line] = [adds(number) for number in range(5)]
    answers = [f"No, not {number}." for number in range(5)]
    found, asked, ran = add_up("ALWAYS", [*script, "Then not."], [*answers, "exit"])
    assert (ran, len(asked)) == ([], 6)
    assert found.transcript[-1] == ("Assistant", "Then not.")
