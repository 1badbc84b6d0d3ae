"""A person and an agent with tools, for many rounds: rows G1 to G6, after Agere's example."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, tool
from langgraph.types import interrupt
from pydantic import SecretStr

from duologue.graphs import (
    ApprovalQuestion,
    Result,
    Session,
    chat,
    converse,
    list_sessions,
    stream,
)
from duologue.graphs.events import MessageSaid, MessageToken, QuestionAsked, ToolCallRequested
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.models import ChatModel
from support.people_help import call, calls, play
from support.tables import check_rows, read_rows

WEATHER = {"Beijing": "10 degrees", "Shanghai": "15 degrees"}


@tool
def get_current_weather(location: str, unit: str = "celsius") -> str:
    """Get the current weather in a city."""
    return f"{WEATHER[location]} {unit}"


TALK: list[Line] = [
    "Hello! Ask me about the weather.",
    calls(
        call(
            "get_current_weather", 1, location="Beijing", to_user='I look up "Beijing"…\nOne moment'
        ),
        call("get_current_weather", 2, location="Shanghai"),
    ),
    "Beijing has 10 degrees, Shanghai 15.",
    calls(call("get_current_weather", 3, unit="kelvin", location="Beijing", to_user="Again.")),
    "Still 10 degrees.",
    "You are welcome!",
]
SAID_BY_USER = ["Hi", "Is it warmer in Beijing or Shanghai?", "And now in Beijing?", "Thanks!"]

SPOKEN = [
    ("User", "Hi"),
    ("Assistant", "Hello! Ask me about the weather."),
    ("User", "Is it warmer in Beijing or Shanghai?"),
    ("Assistant", 'I look up "Beijing"…\nOne moment'),
    ("Assistant", "Beijing has 10 degrees, Shanghai 15."),
    ("User", "And now in Beijing?"),
    ("Assistant", "Again."),
    ("Assistant", "Still 10 degrees."),
    ("User", "Thanks!"),
    ("Assistant", "You are welcome!"),
]


@pytest.fixture(params=["scripted", "http"])
def model(request: pytest.FixtureRequest) -> Iterator[BaseChatModel]:
    """Yield a model that plays Agere's example, in process and over HTTP."""
    if request.param == "scripted":
        yield ScriptedChatModel(script=TALK)
        return
    with ScriptedServer(TALK) as server:
        key = SecretStr("any")
        yield ChatModel(base_url=server.url, api_key=key, model="scripted", stream_usage=True)


@pytest.mark.part(1)
def test_g1_g5_g6_ageres_example(model: BaseChatModel) -> None:
    """The example has many rounds, a tool, text next to a call, and a person who leaves."""
    spec = chat(tools=["get_current_weather"])
    found = play(spec, model, [*SAID_BY_USER, "exit"], tools=[get_current_weather])
    assert found.transcript == SPOKEN
    assert (found.reason, found.outcome.by, found.outcome.rounds) == ("quit", "User", 4)
    # There is one question per round, at its end.
    assert found.heard == [
        "",
        "Hello! Ask me about the weather.",
        'I look up "Beijing"…\nOne moment\n\nBeijing has 10 degrees, Shanghai 15.',
        "Again.\n\nStill 10 degrees.",
        "You are welcome!",
    ]
    results = [message.text for message in found.result.messages if message.type == "tool"]
    assert results == ["10 degrees celsius", "15 degrees celsius", "10 degrees kelvin"]


@pytest.mark.part(1)
def test_g2_g3_ageres_example_as_it_is_followed(model: BaseChatModel) -> None:
    spec = chat(tools=["get_current_weather"])
    given = iter([*SAID_BY_USER, "exit"])
    events = list(
        stream(
            spec,
            model=model,
            store=f"memory:{uuid4().hex}",
            tools=[get_current_weather],
            answer=lambda question: next(given),
        )
    )
    kinds = [event.event for event in events]
    once = ["question", "message", "message_start", "message"]
    beside = [
        "question",
        "message",
        "message_start",
        "message",
        *["tool_call"] * 2,
        *["tool_result"] * 2,
    ]
    again = ["question", "message", "message_start", "message", "tool_call", "tool_result"]
    after = ["message_start", "message"]
    assert [kind for kind in kinds if kind != "token"] == [
        *("session", *once, *beside, *after, *again, *after, *once, "question", "outcome")
    ]
    # The joined tokens of each message are its text.
    told, heard = "", []
    for event in events:
        if isinstance(event, MessageToken):
            told += event.text
        elif isinstance(event, MessageSaid) and event.source != "human":
            heard.append(told)
            told = ""
    assert heard == [text for name, text in SPOKEN if name == "Assistant"]
    assert all(
        "to_user" not in event.arguments for event in events if isinstance(event, ToolCallRequested)
    )


# Leaving


@pytest.mark.parametrize(
    ("word", "rounds"), [("exit", 0), (" Exit\n", 0), ("EXIT", 1), ("\teXiT ", 2), ("exit\r\n", 3)]
)
def test_g6_exit_leaves_at_any_question(word: str, rounds: int) -> None:
    said = [f"Question {number}" for number in range(rounds)]
    found = play(chat(), [f"Answer {number}" for number in range(rounds)], [*said, word])
    assert (found.reason, found.outcome.by) == ("quit", "User")
    assert len(found.transcript) == 2 * rounds
    assert not found.result.pending


@pytest.mark.parametrize("text", ["exit now", "'exit'", "exit.", "quit"])
def test_g6_only_the_word_alone_leaves(text: str) -> None:
    found = play(chat(), ["As you like."], [text, "exit"])
    assert found.transcript == [("User", text), ("Assistant", "As you like.")]


def test_g6_exit_leaves_where_a_decision_is_asked_for() -> None:
    spec = chat("Add.", tools=["calculator"], interrupt_on={"calculator": True})
    script: list[Line] = [calls(call("calculator", expression="1 + 1"))]
    found = play(spec, script, [" EXIT "])
    assert [one.kind for one in found.asked] == ["approval"]
    assert found.reason == "quit"


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_g5_a_blank_answer_is_asked_for_again(blank: str) -> None:
    found = play(chat(), ["Hello."], [blank, blank, "Hi", "exit"])
    assert [one.problem is None for one in found.asked] == [True, False, False, True]
    assert "must not be empty" in str(found.asked[1].problem)
    assert len({one.id for one in found.asked}) == 2
    assert found.transcript == [("User", "Hi"), ("Assistant", "Hello.")]


# Rounds of tools


@tool
def fragile(weight: int) -> str:
    """Put an object on the shelf."""
    raise OSError("the shelf broke")


def test_g4_it_calls_until_it_calls_no_more_and_faults_are_text() -> None:
    script: list[Line] = [
        calls(call("get_current_weather", 1, location="Beijing")),
        calls(call("fragile", 2, weight=3), call("shelve", 3)),
        calls(call("get_current_weather", 4, location="Atlantis")),
        "Enough.",
    ]
    tools = [get_current_weather, fragile]
    spec = chat("Go.", tools=["get_current_weather", "fragile"])
    found = play(spec, script, ["exit"], tools=tools)
    results = [message.text for message in found.result.messages if message.type == "tool"]
    assert results == [
        "10 degrees celsius",
        "fragile failed: OSError: the shelf broke",
        "There is no tool 'shelve'. Your tools: get_current_weather, fragile.",
        "get_current_weather failed: KeyError: 'Atlantis'",
    ]
    assert found.transcript == [("User", "Go."), ("Assistant", "Enough.")]
    assert len(found.asked) == 1


# The question waits and blocks nothing


def test_g5_the_session_waits_and_goes_on_with_each_answer() -> None:
    """Without an `answer` function, the run ends at once."""
    store, script = f"memory:{uuid4().hex}", ["One.", "Two."]
    given: dict[str, Any] = {"model": ScriptedChatModel(script=script)}
    results = [converse(chat(), session="s", store=store, **given)]
    for text in ("a", "b", "exit"):
        (question,) = results[-1].pending
        assert (question.kind, results[-1].outcome) == ("message", None)
        assert [row.status for row in list_sessions(store=store)] == ["waiting"]
        assert Session("s", store=store).state().pending == results[-1].pending
        results.append(Session("s", store=store).answer(text, **given))
    assert len({question.id for result in results[:-1] for question in result.pending}) == 3
    assert results[-1].outcome is not None
    assert results[-1].outcome.reason.value == "quit"
    assert not results[-1].pending


def test_g5_the_last_event_of_a_session_that_waits_is_its_question() -> None:
    *_, last = stream(chat(), model=ScriptedChatModel(script=[]), store=f"memory:{uuid4().hex}")
    assert isinstance(last, QuestionAsked)


# Ends, and the messages that do not end it


def said_by(found: Result, name: str) -> list[str]:
    return [text for speaker, text in found.transcript if speaker == name]


AGAIN = "The capital of France is Paris, on the river Seine."


def test_no_guard_ends_it_by_what_a_person_says() -> None:
    def check(text: str, reply: str) -> None:
        found = play(chat(), [reply] * 8, [text] * 8 + ["exit"])
        assert said_by(found.result, "User") == [text] * 8
        # The agent is not asked for another reply, because the same question gets the same answer.
        assert said_by(found.result, "Assistant") == [reply] * 8
        assert found.reason == "quit"

    check_rows(read_rows(__file__, "repeated_texts"), check)


def test_of_an_agent_that_speaks_for_the_person_the_person_is_told() -> None:
    """R18: the person is informed if the agent keeps writing the person's part."""
    said = ["Where is Rome?", "And who lives there?", "exit"]
    found = play(chat(), ["User: I wonder where Rome is."] * 9, said)
    assert (found.reason, found.outcome.by) == ("quit", "User")
    assert "Assistant kept writing another speaker's part" in found.asked[-1].summary()


def test_r7_an_agent_may_say_the_same_to_a_person_who_always_says_something_new() -> None:
    said = ["Where is Rome?", "And who lives there?", "Why do you not answer?", "exit"]
    found = play(chat(), [Reply(text=AGAIN)] * 9, said)
    assert "the same reply" not in found.asked[-1].summary()


def test_it_ends_at_a_cap_that_is_given() -> None:
    found = play(chat(max_iterations=2), ["One.", "Two."], ["a", "b", "c"])
    assert (found.reason, len(found.asked)) == ("max_iterations", 2)


@pytest.mark.exhaustive
def test_it_goes_on_for_sixty_rounds() -> None:
    """No cap is reached, in particular not LangGraph's limit on steps."""

    def say(prompt: list[dict[str, Any]]) -> Line:
        last = prompt[-1]
        number = int(last["content"].split()[-1].rstrip("."))
        if last["role"] == "tool" or number % 6:
            return f"It is {last['content']}."
        return calls(call("high_low", number, secret_number=number, guessed_number=0))

    asks = [f"Compare {number}" for number in range(1, 61)]
    found = play(chat(tools=["high_low"]), ScriptedChatModel(script=say), [*asks, "exit"])
    assert (found.reason, found.outcome.rounds, len(found.asked)) == ("quit", 60, 61)
    assert len(found.transcript) == 120
    assert sum(message.type == "tool" for message in found.result.messages) == 10


# Decisions and messages of a person while an agent's tools wait: rows G4 and G5.


@pytest.fixture
def ran() -> list[str]:
    """Return a list for the completed calls, in order."""
    return []


@pytest.fixture
def tools(ran: list[str]) -> list[BaseTool]:
    """Return a tool that needs approval, one that does not, and one that asks a person."""

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(f"mail {to}")
        return f"Sent to {to}."

    @tool
    def look(at: str) -> str:
        """Look at something."""
        ran.append(f"look {at}")
        return f"Seen {at}."

    @tool
    def size(of: str) -> str:
        """Ask a person for a size."""
        ran.append(f"size {of}")
        return f"{of}: {interrupt({'size of': of})}"

    return [mail, look, size]


MAIL: dict[str, Any] = {"interrupt_on": {"mail": True}, "tools": ["mail", "look", "size"]}
BOTH = calls(call("mail", 1, to="Bob", to_user="I write to Bob."), call("look", 2, at="a.txt"))


def results(found: Result) -> list[str]:
    return [message.text for message in found.messages if message.type == "tool"]


# Decisions

EDITED = {"type": "edit", "edited_action": {"name": "mail", "args": {"to": "Eve"}}}


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("decision", "runs", "told"),
    [
        pytest.param({"type": "approve"}, ["mail Bob"], "Sent to Bob.", id="approve"),
        pytest.param(EDITED, ["mail Eve"], 'to mail with {"to": "Eve"}', id="edit"),
        pytest.param({"type": "reject", "message": "Not him."}, [], "Reason: Not him.", id="no"),
        pytest.param({"type": "respond", "message": "Away."}, [], "Away.", id="respond"),
    ],
)
def test_each_decision_of_a_person_in_the_chat(
    decision: dict[str, Any], runs: list[str], told: str, ran: list[str], tools: list[BaseTool]
) -> None:
    decisions = {"decisions": [decision]}
    found = play(chat("Write.", **MAIL), [BOTH, "Done."], [decisions, "exit"], tools=tools)
    question = found.asked[0]
    assert isinstance(question, ApprovalQuestion)
    (request,), (review,) = question.action_requests, question.review_configs
    # The text next to the call is no argument that a person must keep.
    assert (request["name"], request["args"]) == ("mail", {"to": "Bob"})
    assert review["allowed_decisions"] == ["approve", "edit", "reject", "respond"]
    assert sorted(ran) == sorted([*runs, "look a.txt"])
    mailed, looked = [line["content"] for line in found.prompts[1] if line["role"] == "tool"]
    assert told in mailed
    assert looked == "Seen a.txt."
    assert found.transcript[1:] == [("Assistant", "I write to Bob."), ("Assistant", "Done.")]
    assert [one.kind for one in found.asked] == ["approval", "message"]


# Tools that ask


def test_a_call_is_approved_of_before_its_tool_asks(ran: list[str], tools: list[BaseTool]) -> None:
    spec = chat("Go.", tools=["size", "look"], interrupt_on={"size": True})
    yes = {"decisions": [{"type": "approve"}]}
    script: list[Line] = [calls(call("size", of="coat"), call("look", 2, at="x")), "Noted."]
    found = play(spec, script, [yes, "L", "exit"], tools=tools)
    assert [one.kind for one in found.asked] == ["approval", "tool", "message"]
    assert results(found.result) == ["coat: L", "Seen x."]
    assert ran.count("look x") == 1
