"""Removed messages disappear from `messages`, by any kind of removal; the log keeps their place."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, StateUpdate

from duologue.graphs import build_graph
from duologue.nodes.testing import ScriptedChatModel
from support.graphs import ChatForm, Form, Graph, forms_by_kind
from support.log import kind_of, log_of, place_of

CONFIG = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=100)


class Thread:
    """A thread of a compiled graph."""

    def __init__(self, form: type[Form], script: list[Any], **more: Any) -> None:
        self.model = ScriptedChatModel(script=script)
        self.graph: Graph = build_graph(
            form=form, model=self.model, checkpointer=InMemorySaver(), **more
        )

    def give(self, *messages: Any, **fields: Any) -> list[str]:
        given: Any = {"messages": [*messages], **fields}
        self.graph.invoke(given, CONFIG)
        return self.texts

    @property
    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = self.graph.get_state(CONFIG).values
        return found

    @property
    def messages(self) -> list[AnyMessage]:
        found: list[AnyMessage] = self.values["messages"]
        return found

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.messages]

    @property
    def log(self) -> list[AnyMessage]:
        return log_of(self.values)

    @property
    def removed(self) -> list[str]:
        """Return the log's texts that are marked as removed."""
        return [one.text for one in self.log if kind_of(one) == "removed"]

    def check_places(self) -> None:
        places = [place_of(message) for message in self.log]
        assert places == [f"m{place:04d}" for place in range(len(places))]


def remove(graph: Graph, *ids: str, **how: Any) -> None:
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id=one) for one in ids]}, **how)


def remove_as_a_client(graph: Graph, *ids: str) -> None:
    gone = [{"type": "remove", "content": "", "id": one} for one in ids]
    graph.update_state(CONFIG, {"messages": gone})


def remove_by_a_command(graph: Graph, *ids: str) -> None:
    gone = {"messages": [RemoveMessage(id=one) for one in ids]}
    graph.update_state(CONFIG, Command(update=gone))


def remove_one_by_one(graph: Graph, *ids: str) -> None:
    steps = [[StateUpdate({"messages": RemoveMessage(id=one)}, "user_agent")] for one in ids]
    graph.bulk_update_state(CONFIG, steps)


def remove_by_an_input(graph: Graph, *ids: str) -> None:
    given: Any = {"messages": [RemoveMessage(id=one) for one in ids]}
    graph.invoke(given, CONFIG)


WAYS: list[Callable[..., None]] = [
    remove,
    remove_as_a_client,
    remove_by_a_command,
    remove_one_by_one,
    remove_by_an_input,
]


def chat() -> Thread:
    on = Thread(ChatForm, ["One.", "Two.", "Three."])
    on.give(HumanMessage("First", id="a"))
    on.give(HumanMessage("Second", id="b"))
    return on


@pytest.mark.part(3)
@pytest.mark.parametrize("way", WAYS)
def test_a_removed_line_is_in_the_log_alone_and_nobody_hears_it(way: Callable[..., None]) -> None:
    on = chat()
    way(on.graph, "a", str(on.messages[3].id))
    assert on.texts == ["One.", "Second"]
    assert on.removed == ["First", "Two."]
    on.check_places()
    assert on.give(HumanMessage("Third", id="c")) == ["One.", "Second", "Third", "Three."]
    heard = [one.text for one in on.model.calls[-1].messages]
    assert not {"First", "Two."} & {*heard}
    on.check_places()


@pytest.mark.parametrize("way", WAYS)
def test_all_can_be_removed(way: Callable[..., None]) -> None:
    on = chat()
    way(on.graph, REMOVE_ALL_MESSAGES)
    assert on.texts == []
    assert on.removed == ["First", "One.", "Second", "Two."]
    assert on.give(HumanMessage("Third", id="c")) == ["Third", "Three."]
    assert [one.text for one in on.model.calls[-1].messages[1:]] == ["Third"]
    on.check_places()


async def test_in_a_loop_it_is_the_same() -> None:
    on = chat()
    await on.graph.aupdate_state(CONFIG, {"messages": [RemoveMessage(id="a")]})
    given: Any = {"messages": [RemoveMessage(id="b")]}
    found: Any = await on.graph.ainvoke(given, CONFIG)
    assert [one.text for one in found["messages"]] == ["One.", "Two."]
    resumed: Any = Command(resume="Third", update={"messages": [RemoveMessage(id="x")]})
    found = await on.graph.ainvoke(resumed, CONFIG)
    assert [one.text for one in found["messages"]] == ["One.", "Two.", "Third", "Three."]


@pytest.mark.parametrize("gone", ["a", REMOVE_ALL_MESSAGES])
def test_one_run_may_remove_and_say(gone: str) -> None:
    on = chat()
    texts = on.give(RemoveMessage(id=gone), HumanMessage("Third", id="c"))
    assert texts[-2:] == ["Third", "Three."]
    assert "First" not in texts
    assert ("Second" in texts) == (gone == "a")


@pytest.mark.parametrize("marked", [True, False], ids=["as read", "ids and texts"])
@pytest.mark.parametrize("by_hand", [True, False], ids=["state", "input"])
def test_all_can_be_removed_but_for_what_is_written_again(marked: bool, by_hand: bool) -> None:
    """An input can remove all messages except those that it contains, as graphs that trim do."""
    on = chat()
    kept = on.messages[1:3]
    written = [
        one if marked else one.model_copy(update={"additional_kwargs": {}, "name": None})
        for one in kept
    ]
    given: Any = {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *written]}
    if by_hand:
        on.graph.update_state(CONFIG, given)
    else:
        on.graph.invoke(given, CONFIG)
    assert on.messages == kept
    assert on.removed == ["First", "Two."]
    on.check_places()
    on.give(HumanMessage("Third", id="c"))
    heard = [one.text for one in on.model.calls[-1].messages[1:]]
    assert heard == ["(empty message)", "One.", "Second\n\nThird"]


def test_a_message_that_is_removed_and_written_again_is_edited() -> None:
    on = chat()
    on.graph.update_state(
        CONFIG, {"messages": [RemoveMessage(id="a"), HumanMessage("1st", id="a")]}
    )
    assert on.texts == ["1st", "One.", "Second", "Two."]
    assert on.removed == []
    on.check_places()


def test_a_command_that_answers_may_remove() -> None:
    on = Thread(ChatForm, ["One.", "Two."])
    on.graph.invoke({}, CONFIG)
    on.graph.invoke(Command(resume="First"), CONFIG)
    gone = {"messages": [RemoveMessage(id=str(on.messages[0].id))]}
    on.graph.invoke(Command(resume="Second", update=gone), CONFIG)
    assert on.texts == ["One.", "Second", "Two."]
    assert on.removed == ["First"]
    on.check_places()


def test_whoever_sends_a_removed_message_again_says_nothing_with_it() -> None:
    """A removed message that a client sends again has no effect, with or without our marks."""
    on = chat()
    known = on.messages
    remove(on.graph, "a", "b")
    assert on.give(*known, HumanMessage("Third", id="c"))[-2:] == ["Third", "Three."]
    assert not {"First", "Second"} & {*on.texts}
    on.graph.update_state(CONFIG, {"messages": [HumanMessage("First", id="a"), known[2]]})
    assert not {"First", "Second"} & {*on.texts}
    on.check_places()


@pytest.mark.part(3)
@pytest.mark.parametrize("way", WAYS)
def test_what_was_only_kept_leaves_nothing(way: Callable[..., None]) -> None:
    """Removed messages that were not in the log, such as the task, leave no trace in it."""
    on = Thread(forms_by_kind()["coder"], ["It is 4.", "It is 9."])
    on.give(AIMessage("Yes?", id="y"), HumanMessage("2 + 2", id="a"))
    log = on.log
    way(on.graph, "a", "y")
    assert on.texts == ["It is 4."]
    assert on.log == log
    assert on.give(HumanMessage("3 * 3")) == ["It is 4.", "3 * 3", "It is 9."]


@pytest.mark.parametrize("way", [remove, remove_by_an_input])
def test_what_is_still_to_be_said_is_not_said(way: Callable[..., None]) -> None:
    """A removed message that was still to be said is not said, and the person is asked."""
    on = Thread(ChatForm, ["One."])
    given: Any = {"messages": [HumanMessage("First", id="a")]}
    on.graph.invoke(given, CONFIG, interrupt_before=["user_agent"])
    way(on.graph, "a")
    on.graph.invoke(None, CONFIG)
    assert on.graph.get_state(CONFIG).interrupts
    assert on.texts == []
    on.graph.invoke(Command(resume="Second"), CONFIG)
    assert on.texts == ["Second", "One."]


def test_a_message_that_was_written_by_hand_keeps_the_places_of_others() -> None:
    on = chat()
    written = [HumanMessage("By hand", id="h"), HumanMessage("By hand, too", id="i")]
    on.graph.update_state(CONFIG, {"messages": written})
    count = len(on.log)
    remove(on.graph, "h")
    assert (len(on.log), on.texts[-1], on.removed) == (count, "By hand, too", ["By hand"])
    remove(on.graph, "i")
    assert (len(on.log), on.removed) == (count, ["By hand", "By hand, too"])
    on.check_places()
    assert on.give(HumanMessage("Third", id="c"))[-2:] == ["Third", "Three."]
    on.check_places()


def test_a_removal_as_the_node_of_an_input_is_hidden_by_the_run_that_follows() -> None:
    on = chat()
    remove(on.graph, "a", as_node="__start__")
    on.graph.invoke(None, CONFIG)
    assert on.texts == ["One.", "Second", "Two."]
    on.check_places()


def test_whoever_gives_an_input_takes_no_line_out_of_the_log() -> None:
    """An input can't remove messages from the log, even with the mark of our own writes."""
    on = chat()
    on.give(RemoveMessage(id="a", additional_kwargs={"duologue_taken_back": True}))
    assert on.removed == ["First"]
    on.check_places()
