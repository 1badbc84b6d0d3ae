"""Messages removed from a session are neither heard nor counted, and the session continues."""

import asyncio
import json
import re
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from langchain_core.messages import AnyMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from drawn.player import Player
from drawn.talks import talks
from duologue.graphs import Conversation, Reason, Session, build_graph, converse, load_session
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.cases import drawn_cases
from support.log import check_facts, kind_of, log_of, place_of
from support.prompts import PROMPTS
from support.results import make_session, outcome_of
from support.stores import open_store

WORD = re.compile(r"\b[a-p]{8}\b")
"""Unique words that the player generates."""


def standing(log: list[AnyMessage]) -> list[AnyMessage]:
    return [message for message in log if kind_of(message) != "removed"]


def words(log: list[AnyMessage]) -> set[str]:
    return {word for message in log for word in WORD.findall(message.model_dump_json())}


def check_prompt(prompt: Prompt) -> None:
    """Check the requirements of providers on a prompt."""
    roles = [message["role"] for message in prompt]
    assert "system" not in roles[1:]
    assert roles[-1] in ("user", "tool")
    assert not any(one == other != "tool" for one, other in pairwise(roles)), roles
    for one, other in pairwise(prompt):
        if other["role"] == "tool":
            assert one["role"] == "tool" or one["tool_calls"]


async def run(player: Player, data: st.DataObject) -> dict[str, Any]:
    """Run a conversation step by step with removals in between; return the last state."""
    conversation = player.conversation
    graph = build_graph(
        checkpointer=InMemorySaver(),
        model=ScriptedChatModel(script=player.answer),
        **player.registered,
    )
    config = RunnableConfig(configurable={"thread_id": "t"})
    given: Any = {"conversation": conversation.stored()}
    gone: set[str] = set()
    removals = 0
    while True:
        asked = len(player.answered)
        await graph.ainvoke(given, config, interrupt_after="*", durability="sync")
        for prompt in player.answered[asked:]:
            check_prompt(prompt)
            assert gone.isdisjoint(WORD.findall(json.dumps(prompt)))
        state: Any = (await graph.aget_state(config)).values
        if state.get("outcome"):
            last: dict[str, Any] = state
            return last
        given, log = None, log_of(state)
        if removals < 5 and log and data.draw(st.sampled_from((True, False, False)), "remove"):
            removals += 1
            # These are often the newest messages, on which the next step may depend.
            place = data.draw(st.integers(0, min(len(log), 30) - 1), "places from the end")
            removed = RemoveMessage(id=str(log[-1 - place // 3].id))
            # In a channel without the id, nothing changes.
            await graph.aupdate_state(config, {"messages": [removed], "unspoken": [removed]})
            found = await graph.aget_state(config)
            log = log_of(found.values)
            assert found.next
            # The log keeps the place of the message; other programs no longer see it.
            assert removed.id in {one.id for one in log}
            assert removed.id not in {one.id for one in found.values["messages"]}
            gone |= words(log) - words(standing(log))


@drawn_cases(
    2, 40, conversation=talks(shaped=True, most=3), seed=st.integers(0, 999), data=st.data()
)
def test_whatever_is_removed_whenever_nobody_hears_it_and_it_goes_on_to_its_end(
    conversation: Conversation, seed: int, data: st.DataObject
) -> None:
    state = asyncio.run(run(Player(conversation, seed, unlike=True), data))
    log = log_of(state)
    assert [place_of(message) for message in log] == [f"m{place:04d}" for place in range(len(log))]
    left = {**state, "messages": standing(log), "unspoken": []}
    for one in (state, left):
        check_facts(conversation, one)
    whole, rest = (make_session("s", conversation, one) for one in (state, left))
    assert (str(whole), whole.transcript) == (str(rest), rest.transcript)
    for name in conversation.names:
        assert whole.viewpoint(name) == rest.viewpoint(name)
        assert whole.memory(name) == rest.memory(name)


SPEC = {
    "task": "Plan a garden",
    "speakers": [{"name": "Ann", "tools": ["dig"]}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 2, "when": {"kind": "done_token", "token": "OVER"}},
}
CALL = Reply(text="I dig.", tool_calls=[ScriptedToolCall(name="dig", args={}, id="c")])
SAID: list[Line] = [CALL, "I have dug.", "Well done.", "Roses.", "Tulips."]


@tool
def dig() -> str:
    """Dig a bed."""
    return "Dug."


def halted(store: str, after: int) -> None:
    """Run session "one" up to so many model calls; the next one fails."""
    model = ScriptedChatModel(script=[*SAID[:after], RuntimeError("the line is dead")])
    with pytest.raises(RuntimeError, match="the line is dead"):
        converse(SPEC, session="one", model=model, store=store, tools=[dig])


def remove(store: str, *wanted: str) -> None:
    """Remove the messages with these ids, or all."""
    ids = {place_of(one): str(one.id) for one in Session("one", store=store).state().messages}

    async def removing() -> None:
        async with open_store(store) as opened, opened.lock("one") as held:
            gone = [RemoveMessage(id=ids.get(one, one)) for one in wanted]
            config = RunnableConfig(configurable={"thread_id": "one"})
            # In a channel without the id, nothing changes.
            written = {"messages": gone, "unspoken": gone}
            await build_graph(checkpointer=held.checkpointer).aupdate_state(config, written)

    asyncio.run(removing())


def told(prompt: Prompt) -> list[tuple[str, Any]]:
    return [(one["role"], one["content"]) for one in prompt[1:]]


@pytest.fixture
def store() -> str:
    return f"memory:{uuid4()}"


def test_a_removed_message_is_in_no_prompt_and_leaves_no_ghost(store: str) -> None:
    halted(store, 3)
    remove(store, "m0004")
    model = ScriptedChatModel(script=SAID[3:])
    ended = Session("one", store=store).resume(model=model, tools=[dig])
    assert [text for _, text in ended.transcript] == ["I dig.", "I have dug.", "Roses.", "Tulips."]
    # Ann has heard nothing since her last message.
    assert told(model.calls[0].prompt)[-2:] == [
        ("assistant", "I have dug."),
        ("user", PROMPTS["continue_conversation"]),
    ]
    assert told(model.calls[1].prompt) == [("user", "I dig.\n\nI have dug.\n\nRoses.")]
    assert outcome_of(ended).messages == 3
    assert outcome_of(ended).reasons == (Reason.MAX_ITERATIONS,)


def test_what_is_removed_in_the_middle_of_a_turn_is_not_gone_on_with(store: str) -> None:
    """A turn does not continue after its tool call was removed."""
    halted(store, 1)
    remove(store, "m0001")
    model = ScriptedChatModel(script=["Nothing to dig.", *SAID[2:]])
    ended = Session("one", store=store).resume(model=model, tools=[dig])
    assert told(model.calls[0].prompt) == [("user", PROMPTS["begin"])]
    assert ended.transcript[0] == ("Ann", "Nothing to dig.")


def test_a_removed_message_is_marked_and_in_no_event_no_page_and_no_memory(store: str) -> None:
    halted(store, 3)
    remove(store, "m0001")
    found = Session("one", store=store).state()
    assert [one.text for one in found.messages if kind_of(one) == "removed"] == [
        "I dig.",
        "Dug.",
    ]
    session = Session("one", store=store)
    page = session.export("markdown")
    assert "A message of Ann was removed" in page
    assert "Dug." not in page
    lines = [json.loads(one) for one in session.export("jsonl").splitlines()]
    assert [one["kind"] for one in lines] == [*["instruction"], *["removed"] * 2, *["speech"] * 2]
    assert lines[1]["was"]["kind"] == "tool_calls"
    assert [one.text for one in found.memory("Ann")] == [
        "Please begin.",
        "I have dug.",
        "Well done.",
    ]
    session.resume(model=ScriptedChatModel(script=SAID[3:]), tools=[dig])
    events = [event.model_dump_json() for event in session.stream()]
    assert len(events) == 6
    assert not any("dig." in event or "Dug." in event for event in events)


@pytest.mark.parametrize("at", [None, "m0003"], ids=["newest", "older"])
def test_a_fork_and_a_dump_keep_it_removed(at: str | None, store: str) -> None:
    halted(store, 3)
    remove(store, "m0001", "m0004")
    found = Session("one", store=store).state()
    other = f"memory:{uuid4()}"
    load_session(Session("one", store=store).dump(), store=other)
    assert Session("one", store=other).state().messages == found.messages
    for place in (store, other):
        new = Session(Session("one", store=place).fork(at=at).id, store=place).state()
        assert new.messages == found.messages[: len(new.messages)]
        model = ScriptedChatModel(script=["Tulips.", "OVER"])
        ended = new.session.resume(model=model, tools=[dig])
        assert ended.outcome is not None
        for call in model.calls:
            assert "dig." not in str(call.prompt)
            assert "Well done." not in str(call.prompt)


def test_all_can_be_removed_and_said_anew(store: str) -> None:
    halted(store, 3)
    remove(store, REMOVE_ALL_MESSAGES)
    assert Session("one", store=store).state().transcript == []
    Session("one", store=store).add_message("Bob", "Let us begin anew.")
    model = ScriptedChatModel(script=["OVER"])
    ended = Session("one", store=store).resume(model=model, tools=[dig])
    assert told(model.calls[0].prompt) == [("user", "Let us begin anew.")]
    assert ended.transcript == [("Bob", "Let us begin anew."), ("Ann", "OVER")]
