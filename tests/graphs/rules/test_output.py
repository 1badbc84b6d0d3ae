"""The output of a conversation: in Python, and as the last message that clients receive."""

import json
from typing import Any, Literal

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from duologue import (
    Conversation,
    DoneToken,
    MaxMessages,
    SchemaFormat,
    SeparateJudge,
    Session,
    Speaker,
    blogger,
    build_graph,
    chat,
    coder,
    converse,
    group_solve,
    role_play,
    stream,
    user_proxy,
)
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import ScriptedChatModel

DONE = "<CAMEL_TASK_DONE>"
ORDER, SOLUTION = "Instruction: Dig.\nInput: None", "Solution: Dug.\nNext request."
GARDEN = role_play("A garden", "Cook", "Gardener", specify_task=False)
PAIR = Conversation("Talk.", [Speaker("Ann"), Speaker("Ben")], end_chat=DoneToken("DEAL"))
CODE = "```python\nprint(6 * 7)\n```"


class Plan(BaseModel):
    """A plan of a garden."""

    beds: int


TALKS: dict[str, tuple[Conversation, list[str], str]] = {
    "a role-play: the solution": (GARDEN, [ORDER, SOLUTION, DONE], SOLUTION),
    "a role-play: not the user's thanks": (GARDEN, [ORDER, SOLUTION, f"Thanks! {DONE}"], SOLUTION),
    "a blogger: the draft": (blogger("Bees"), ["They fly.", "Why?", "B.", "SATISFIED"], "B."),
    "a blogger: not the critic's praise": (blogger("Bees"), ["A.", "Great!\nSATISFIED"], "A."),
    "a coder: not the run of its code": (
        coder("6 * 7", sandbox="monty", end_chat=MaxMessages(2)),
        [CODE],
        CODE,
    ),
    "a user proxy: the answer": (
        user_proxy("2 + 2?", human_input_mode="NEVER"),
        ["It is 4.", "TERMINATE"],
        "It is 4.",
    ),
    "a user proxy: without its word": (
        user_proxy("2 + 2?", human_input_mode="NEVER"),
        ["It is 4. TERMINATE"],
        "It is 4.",
    ),
    "any speaker: not a token": (PAIR, ["Ten?", "Nine.", "DEAL"], "Nine."),
    "any speaker: without its token": (PAIR, ["Ten?", "Nine.\nDEAL"], "Nine."),
    "a chosen speaker": (
        PAIR.replace(speakers={"Ann": {"writes_output": True}}),
        ["Ten?", "Nine.", "Eight?", "DEAL"],
        "Eight?",
    ),
    "a group": (
        group_solve(
            [Speaker("Ann", task="Sing."), Speaker("Ben", task="Hum.")], end_chat=DoneToken("DEAL")
        ),
        ["La.", "Hm.", "Hm hm.", "La la.", "DEAL"],
        "La la.",
    ),
}


@pytest.mark.part(4)
@pytest.mark.parametrize("name", TALKS)
def test_the_output_is_the_last_message_that_says_something(name: str) -> None:
    conversation, script, output = TALKS[name]
    result = converse(conversation, model=ScriptedChatModel(script), store="memory:")
    assert result.outcome is not None
    assert (result.output, result.text) == (output, output)


@pytest.mark.part(4)
@pytest.mark.parametrize("name", [name for name in TALKS if "without" not in name])
def test_clients_find_the_output_in_the_last_message(name: str) -> None:
    conversation, script, output = TALKS[name]
    graph = build_graph(model=ScriptedChatModel(script))
    state = graph.invoke({"conversation": conversation})
    assert state["messages"][-1].text == output
    assert state["outcome"]


def test_a_message_that_follows_the_output_stays_in_the_log_and_is_not_sent_twice() -> None:
    model = ScriptedChatModel([ORDER, SOLUTION, DONE])
    graph = build_graph(model=model, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "garden"}}
    graph.invoke({"conversation": GARDEN}, thread)
    state = graph.get_state(thread).values
    token = next(one for one in state["unspoken"] if one.text == DONE)
    again = {"messages": [*state["messages"], {"type": "ai", "content": DONE, "id": token.id}]}
    graph.invoke({"conversation": GARDEN, **again}, thread)
    after = graph.get_state(thread).values
    assert [one.text for one in after["messages"]] == [ORDER, SOLUTION]
    assert [one.id for one in after["unspoken"]].count(token.id) == 1


def test_a_message_after_the_output_is_streamed_once() -> None:
    """The judge ends the session a step after Bob's message, which then leaves `messages`."""
    spec = Conversation(
        "A garden.",
        [Speaker("Ann", writes_output=True), Speaker("Bob")],
        judge=SeparateJudge(["They name a plant."]),
        end_chat="end_chat_after_first_completion",
    )
    model = ScriptedChatModel(["Beans.", "Good.", {"criterion_1": "met"}])
    store = "memory:after-output"
    events = [*stream(spec, model=model, session="one", store=store)]
    assert [one.text for one in events if isinstance(one, MessageSaid)] == ["Beans.", "Good."]
    assert Session("one", store=store).state().output == "Beans."


PLANS: dict[str, Literal["structured", "text"]] = {
    '{"beds": 3}': "structured",
    ' {"beds": 3}\n': "text",
    'Here it is:\n```json\n{"beds": 3}\n```\nHave fun!': "text",
}


def planning(form: Literal["structured", "text"]) -> Conversation:
    ben = Speaker("Ben", format=SchemaFormat(Plan, form=form), writes_output=True)
    return Conversation("A garden.", [Speaker("Ann"), ben], end_chat=DoneToken("DEAL", by="Ann"))


@pytest.mark.parametrize("text", PLANS)
def test_with_a_schema_the_output_is_the_object_and_clients_receive_json(text: str) -> None:
    script = ["Plan it.", text, "DEAL"]
    talk = planning(PLANS[text])
    result = converse(talk, model=ScriptedChatModel(script), store="memory:")
    assert result.output == json.loads(result.text) == {"beds": 3}
    state = build_graph(model=ScriptedChatModel(script)).invoke({"conversation": talk})
    assert json.loads(state["messages"][-1].text) == {"beds": 3}


def test_a_text_that_does_not_fit_the_schema_is_no_output() -> None:
    model = ScriptedChatModel(["Plan it.", "Why?", "No idea.", "DEAL"])
    result = converse(planning("text"), model=model, store="memory:")
    assert (result.output, result.text) == (None, "No idea.")


def test_there_is_no_output_until_an_agent_has_answered() -> None:
    model = ScriptedChatModel(["42."])
    result = converse(chat(), session="talk", model=model, store="memory:output")
    assert (result.output, result.text) == (None, "")
    session = Session("talk", store="memory:output")
    result = session.answer("6 * 7?", model=ScriptedChatModel(["42."]))
    assert result.output == "42."
    assert session.answer("exit").output == "42."


def test_a_person_can_write_the_output() -> None:
    people = GARDEN.replace(speakers={"Gardener": {"replies": ["human"]}})
    result = converse(
        people,
        model=ScriptedChatModel([ORDER, DONE]),
        store="memory:",
        answer=lambda _: SOLUTION,
    )
    assert result.output == SOLUTION
