"""Messages that a person edits in a state, as in Studio, and all consequences of the new text."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from drawn.player import Player
from drawn.talks import talks
from duologue.graphs import Conversation, build_graph, load_conversation
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.graphs import Graph
from support.log import Flaw, check_facts, fields_of, kind_of, log_of, place_of

# Any edits

TOKENS = ("###OVER###", "<CAMEL_TASK_DONE>", "Solution: done.")


def channel_of(state: dict[str, Any], message: BaseMessage) -> str:
    """Return the channel of a state that contains a message."""
    is_spoken = message.id in {one.id for one in state["messages"]}
    return "messages" if is_spoken else "unspoken"


async def run(player: Player, data: st.DataObject) -> dict[str, Any]:
    """Run a conversation step by step with edits in between; return the last state."""
    conversation = player.conversation
    model = ScriptedChatModel(script=player.answer)
    graph = build_graph(checkpointer=InMemorySaver(), model=model, **player.registered)
    config = RunnableConfig(configurable={"thread_id": "t"})
    given: Any = {"conversation": conversation.stored()}
    edits = 0
    while True:
        await graph.ainvoke(given, config, interrupt_after="*", durability="sync")
        found: Any = await graph.aget_state(config)
        log, given = log_of(found.values), None
        places = [at for at, one in enumerate(log) if kind_of(one) == "speech"]
        if edits < 4 and places and data.draw(st.sampled_from((True, False)), "edit"):
            edits += 1
            place = data.draw(st.sampled_from(places[-3:]), "place")
            text = data.draw(st.sampled_from(["", "Anything.", *TOKENS, log[place].text]), "text")
            new = log[place].model_copy(update={"content": text})
            channel = channel_of(found.values, new)
            await graph.aupdate_state(config, {channel: [new]})
        elif found.values.get("outcome") and not found.next:
            last: dict[str, Any] = found.values
            return last


@pytest.mark.exhaustive
@settings(max_examples=60, deadline=None)
@given(conversation=talks(shaped=True, most=3), seed=st.integers(0, 999), data=st.data())
def test_whatever_is_edited_whenever_it_counts_as_it_stands_and_goes_on_to_its_end(
    conversation: Conversation, seed: int, data: st.DataObject
) -> None:
    state = asyncio.run(run(Player(conversation, seed, unlike=True), data))
    log = log_of(state)
    assert [place_of(message) for message in log] == [f"m{place:04d}" for place in range(len(log))]
    assert not any(fields_of(message).edited for message in log)
    check_facts(conversation, state)


# Single edits

CONFIG: RunnableConfig = {"configurable": {"thread_id": "one"}}


class Bed(BaseModel):
    """The fields of a speaker's JSON."""

    plant: str


class Session:
    """A session of a graph with edits between its runs."""

    def __init__(self, spec: dict[str, Any], script: Any, **more: Any) -> None:  # noqa: ANN401
        self.model = ScriptedChatModel(script=script)
        self.graph: Graph = build_graph(
            model=self.model, checkpointer=InMemorySaver(), schemas={"Bed": Bed}, **more
        )
        self.spec = load_conversation(spec).stored()

    def begin(self, **how: Any) -> None:
        self.graph.invoke({"conversation": self.spec}, CONFIG, **how)

    def go_on(self, given: Any = None, at: RunnableConfig = CONFIG, **how: Any) -> None:  # noqa: ANN401
        self.graph.invoke(given, at, **how)

    def edit(self, place: int, text: str, at: RunnableConfig = CONFIG, **more: Any) -> Any:  # noqa: ANN401
        state = self.graph.get_state(at).values
        message = log_of(state)[place]
        channel = channel_of(state, message)
        # User interfaces send only the fields that they know.
        new = {"type": message.type, "id": message.id, "content": text, **more}
        return self.graph.update_state(at, {channel: [new]})

    def at(self, messages: int) -> RunnableConfig:
        """Return the first checkpoint with so many messages."""
        *_, first = (
            one
            for one in self.graph.get_state_history(CONFIG)
            if len(one.values.get("messages", ())) == messages
        )
        return first.config

    @property
    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = self.graph.get_state(CONFIG).values
        return found

    @property
    def log(self) -> list[AnyMessage]:
        return log_of(self.values)

    @property
    def said(self) -> list[str]:
        return [one.text for one in self.log if kind_of(one) == "speech"]

    @property
    def reasons(self) -> list[str] | None:
        return (self.values.get("outcome") or {}).get("reasons")


def prompted(session: Session, call: int) -> str:
    return str(session.model.calls[call].prompt)


TALK: dict[str, Any] = {
    "task": "Plan a garden",
    "speakers": [{"name": "Ann"}, {"name": "Ben"}],
    "end_chat": {"max_iterations": 2, "when": {"kind": "done_token", "token": "###OVER###"}},
}
SAID: list[Line] = ["Roses?", "Tulips.", "Then beans.", "And peas."]


def test_who_speaks_next_hears_the_words_as_they_stand_now() -> None:
    session = Session(TALK, SAID)
    session.begin(interrupt_after=["user_agent"])
    session.edit(1, "Lilies?")
    session.go_on()
    assert "Lilies?" in prompted(session, 1)
    assert "Roses?" not in prompted(session, 1)
    assert session.said == ["Lilies?", *SAID[1:]]
    assert [one.name for one in session.values["messages"]] == ["Ann", "Ben"] * 2
    assert [one.additional_kwargs["duologue_place"] for one in session.log] == [*range(5)]


def test_a_done_token_that_is_written_into_the_newest_message_ends_it_without_a_call() -> None:
    session = Session(TALK, SAID)
    session.begin(interrupt_after=["user_agent"])
    session.edit(1, "That is all. ###OVER###")
    session.go_on()
    assert session.reasons == ["done_token"]
    assert len(session.model.calls) == 1


def test_an_ended_conversation_goes_on_where_the_word_that_ended_it_is_taken_away() -> None:
    session = Session(TALK, ["Roses?", "###OVER###", *SAID[2:]])
    session.begin()
    assert session.reasons == ["done_token"]
    session.edit(2, "Tulips.")
    session.go_on(interrupt_after=["user_agent"])
    assert session.reasons is None
    session.go_on()
    assert session.said == SAID
    assert session.reasons == ["max_iterations"]


def test_a_fork_at_an_earlier_checkpoint_goes_on_from_the_edited_message() -> None:
    session = Session(TALK, [*SAID, "Then leeks.", "And corn."])
    session.begin()
    fork = session.edit(2, "No tulips.", at=session.at(2))
    session.go_on(at=fork)
    assert session.said == ["Roses?", "No tulips.", "Then leeks.", "And corn."]
    assert "No tulips." in prompted(session, 4)


async def test_it_is_read_again_where_the_graph_runs_in_a_loop_too() -> None:
    session = Session(TALK, SAID)
    await session.graph.ainvoke({"conversation": session.spec}, CONFIG, interrupt_after="*")
    await session.graph.ainvoke(None, CONFIG, interrupt_after=["user_agent"])
    (newest,) = session.values["messages"]
    new = newest.model_copy(update={"content": "###OVER###"})
    await session.graph.aupdate_state(CONFIG, {"messages": [new]})
    await session.graph.ainvoke(None, CONFIG)
    assert session.reasons == ["done_token"]


SHAPED: dict[str, Any] = TALK | {
    "speakers": [{"name": "Ann", "format": {"kind": "schema", "name": "Bed"}}, {"name": "Ben"}]
}


@pytest.mark.parametrize(
    ("text", "parsed", "flaw"),
    [('{"plant": "lily"}', {"plant": "lily"}, None), ("Lilies!", None, Flaw.FORM)],
)
def test_what_a_message_says_by_its_form_and_its_flaw_are_read_again(
    text: str,
    parsed: Any,  # noqa: ANN401
    flaw: Flaw | None,
) -> None:
    session = Session(SHAPED, ['{"plant": "rose"}', *SAID[1:3], "And peas."])
    session.begin(interrupt_after=["user_agent"])
    assert fields_of(session.log[-1]).parsed == {"plant": "rose"}
    session.edit(1, text)
    session.go_on(interrupt_after=["user_agent"])
    about = fields_of(session.log[1])
    assert (about.parsed, about.flaw, about.edited) == (parsed, flaw, False)


JUDGED: dict[str, Any] = TALK | {
    "speakers": [{"name": "Ann", "checks_completion": True}, {"name": "Ben"}],
    "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 2},
}


def judged(prompt: Prompt) -> Line:
    """Speak, or judge by the last messages."""
    if "objective" in prompt[-1]["content"]:
        return {"objectives_left": [], "complete": "planted" in str(prompt)}
    return f"Word {len(prompt)} of many."


@pytest.mark.parametrize("found", [True, False])
def test_a_judged_message_is_judged_by_its_new_words(found: bool) -> None:
    first, then = ("All planted.", "Not yet.") if found else ("Not yet.", "All planted.")
    answers: Iterator[Line] = iter([first, {"objectives_left": [], "complete": found}])

    def answer(prompt: Prompt) -> Line:
        given: Line = next(answers, "")
        return given or judged(prompt)

    session = Session(JUDGED, answer)
    session.begin(interrupt_after=["completion_judge"])
    assert bool(session.reasons) is found
    session.edit(1, then)
    session.go_on(interrupt_after=["completion_judge"])
    assert bool(session.reasons) is not found
    kinds = [kind_of(one) for one in session.log[1:4]]
    assert kinds == ["speech", "judge_question", "reflection"]


def test_an_opening_answer_is_handed_on_as_it_stands_now() -> None:
    spec = TALK | {
        "task": None,
        "speakers": [{"name": "Ann", "task": "Ask."}, {"name": "Ben", "task": "Answer."}],
        "opening": {"answers": True},
    }
    session = Session(spec, ["Mine.", "Yours.", *SAID])
    session.begin(interrupt_after=["assistant_agent"])
    place = next(at for at, one in enumerate(session.log) if one.text == "Mine.")
    session.edit(place, "Ours.")
    session.go_on()
    assert [one.text for one in session.log if kind_of(one) == "opening_answer"] == ["Ours."]
    assert "Mine." not in str([call.prompt for call in session.model.calls[2:]])
    assert "Ours." in prompted(session, 2)


def test_a_question_that_waits_is_asked_again_about_the_new_words() -> None:
    spec = TALK | {"speakers": [{"name": "Ann"}, {"name": "Ben", "replies": ["human"]}]}
    session = Session(spec, SAID)
    session.begin()
    session.edit(1, "Lilies?")
    session.go_on()
    (asked,) = session.graph.get_state(CONFIG).interrupts
    assert asked.value["heard"] == "Lilies?"
    session.go_on(Command(resume="Why not."))
    assert session.said[:2] == ["Lilies?", "Why not."]


def test_the_same_words_once_more_change_nothing() -> None:
    session = Session(TALK, SAID)
    session.begin(interrupt_after=["user_agent"])
    before = session.log
    session.edit(1, "Roses?")
    assert session.log == before
    assert session.graph.get_state(CONFIG).next == ("assistant_agent",)


def test_a_message_of_the_same_id_in_a_run_is_an_edit_too() -> None:
    session = Session(TALK, SAID)
    session.begin(interrupt_after=["user_agent"])
    newest = AIMessage("Lilies?", id=session.log[1].id)
    session.go_on(Command(update={"messages": [newest]}))
    assert session.said == ["Lilies?", *SAID[1:]]
