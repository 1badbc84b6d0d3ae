"""Nodes and edges of the compiled graph agree, on drawn conversations.

The walks compare the rules with the onlooker; these tests compare the graph with the rules.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START

from drawn.player import Broken, Player
from drawn.talks import talks
from duologue.graphs import Conversation, EndChatMode, Predicate, SpecError, build_graph
from duologue.graphs.build import route
from duologue.graphs.conversation.limits import most_messages
from duologue.graphs.log.state import Input, State
from duologue.graphs.rules.position import Position, max_steps
from duologue.graphs.rules.transitions import Node, decide
from duologue.graphs.rules.turns import Dialogue
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.turn.running_sessions import RunningSessions
from duologue.tools import Hook
from support.log import check_facts, log_of, of_kind, place_of, without_ids
from support.prompts import PROMPTS, fill

pytestmark = pytest.mark.exhaustive


async def run(player: Player) -> list[State]:
    """Run a conversation, compare the edge after every state with the rules, return the states."""
    conversation = player.conversation

    async def asked_to_stop(_session: str) -> bool:
        return len(player.answered) > 10 + player.seed % 50

    graph = build_graph(
        checkpointer=InMemorySaver(),
        model=ScriptedChatModel(script=player.answer),
        stop_requested=asked_to_stop,
        **player.registered,
    )
    config = RunnableConfig(
        configurable={"thread_id": "t"}, recursion_limit=max_steps(conversation)
    )
    given = Input(conversation=conversation.model_dump(mode="json"))
    await graph.ainvoke(given, config, durability="sync")
    newest_first = [moment async for moment in graph.aget_state_history(config)]
    states = []
    for moment in reversed(newest_first):
        state: Any = moment.values
        if "position" not in state:
            assert "outcome" not in state
            continue
        states.append(state)
        decision = decide(Dialogue(conversation, Position.model_validate(state["position"])))
        assert route(state, RunningSessions()) == decision.node
        # The edge leads to the node of the rules, and the outcome is set exactly at their end.
        over = decision.node is Node.END
        assert moment.next == (() if over else (decision.node,))
        assert ("outcome" in state) is over
        if over:
            assert state["outcome"]["reasons"] == list(decision.reasons)
            assert moment == newest_first[0]
    assert "outcome" in states[-1]
    return states


@pytest.mark.parametrize("shaped", [False, True], ids=["plain", "A10-L7-shaped"])
@settings(max_examples=30, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999))
def test_what_the_graph_does_is_what_the_rules_say(
    *, shaped: bool, data: st.DataObject, seed: int
) -> None:
    """Edges, end, reasons and facts agree; the walks check the rules themselves.

    Speakers with more options add rows A10, L7 and U5 (summaries).
    """
    conversation = data.draw(talks(shaped=shaped))
    player = Player(conversation, seed)
    states = asyncio.run(run(player))
    log, outcome = log_of(states[-1]), states[-1]["outcome"]
    check_facts(conversation, states[-1])
    assert outcome["messages"] == len(of_kind(log, "speech")) <= most_messages(conversation)
    assert outcome["message"] == (
        place_of(of_kind(log, "speech")[-1]) if of_kind(log, "speech") else None
    )
    # At most one model call per step makes each call durable.
    assert len(player.answered) <= len(states) < max_steps(conversation)
    assert len({message.id for message in log}) == len(log)


async def played(player: Player) -> tuple[State, int]:
    """Run a conversation, resume it after each failure, and return the number of failures."""
    conversation = player.conversation
    model = ScriptedChatModel(script=player.answer)
    graph = build_graph(checkpointer=InMemorySaver(), model=model, **player.registered)
    config = RunnableConfig(
        configurable={"thread_id": "t"}, recursion_limit=max_steps(conversation)
    )
    given: Input | None = Input(conversation=conversation.model_dump(mode="json"))
    broken = 0
    while True:
        try:
            await graph.ainvoke(given, config, durability="sync")
        except (Broken, SpecError):
            # The first step stores the input.
            given, broken = None, broken + 1
            continue
        state: Any = (await graph.aget_state(config)).values
        return state, broken


def _timeless(state: State) -> dict[str, Any]:
    """Return a state without the values that differ from run to run."""
    position = {**state["position"]}
    facts = {**position["facts"], "seconds": 0}
    log = without_ids(log_of(state))
    still = {"position": position | {"facts": facts}, "outcome": _still(state), "messages": log}
    return {**state, **still, "unspoken": []}


def _still(state: State) -> dict[str, Any]:
    return {**state["outcome"], "seconds": 0}


@settings(max_examples=30, deadline=None)
@given(
    conversation=talks(shaped=True, most=3),
    seed=st.integers(0, 999),
    fails=st.sampled_from((1, 1, 3)),
)
def test_whatever_fails_on_the_way_resuming_gives_the_same_and_asks_no_model_twice(
    conversation: Conversation, seed: int, fails: int
) -> None:
    """L7: after any failure, a resumed run has the same result and repeats no model call."""
    smooth = Player(conversation, seed)
    state, broken = asyncio.run(played(smooth))
    assert broken == 0
    rough = Player(conversation, seed, fails)
    again, broken = asyncio.run(played(rough))
    assert broken == len(rough.failed)
    assert fails > 1 or broken >= len(smooth.answered)
    assert rough.answered == smooth.answered
    assert _timeless(again) == _timeless(state)


class Busy:
    """A model for a conversation in which every turn takes as long as it can."""

    def __init__(self, conversation: Conversation) -> None:
        # Z7, Y19: the allowed rounds that succeed, each after the most errors of each kind.
        self._calls = [
            *["none"] * (conversation.max_call_errors - 1),
            *["book"] * (conversation.max_tool_errors - 1),
            "bell",
        ] * conversation.max_tool_rounds
        self._summarisers = [fill(PROMPTS["summary_role"], me=name) for name in conversation.names]
        self._called = 0
        self._drafted = False
        self._words = 0

    def answer(self, prompt: Prompt) -> Line:
        self._words += 1
        word = "".join(chr(ord("a") + int(digit)) for digit in f"{self._words:04d}")
        last = str(prompt[-1]["content"])
        if "Rewrite this task" in last:
            return "Too long. " * 60
        if "shorter version" in last:
            return "Plan a garden."
        if last == PROMPTS["is_task_complete"]:
            return "Hard to say."
        if last == fill(PROMPTS["retry_format"], question=PROMPTS["is_task_complete"]):
            return "no"
        if last == PROMPTS["list_objectives_left"] or prompt[0]["content"] in self._summarisers:
            return f"Much is left: {word}."
        if self._called < len(self._calls):
            name = self._calls[self._called]
            self._called += 1
            call = ScriptedToolCall(name=name, args={"word": word}, id=word)
            return Reply(text="Let me see.", tool_calls=(call,))
        if not self._drafted:
            self._drafted = True
            return ""
        self._called, self._drafted = 0, False
        return f"I say {word}. " + "And so on and on, as before. " * 60


def busy(rounds: int, cap: int, errors: tuple[int, int]) -> Conversation:
    """Return a conversation whose turns contain every possible step."""
    speaker = {
        "tools": ["bell", "book"],
        "hooks": ["around"],
        "checks_completion": True,
        "context": {"kind": "summary", "limit": 500, "words": 5},
    }
    return Conversation.model_validate(
        {
            "task": "Plan.",
            "speakers": [{"name": name, **speaker} for name in ("Ann", "Bob")],
            "task_specification": {},
            "turn_order": {"kind": "function", "name": "other"},
            "judge": {"form": "two_questions"},
            "end_chat": {
                "mode": EndChatMode.ALL_TASK_MUST_COMPLETE,
                "max_iterations": cap,
                "when": Predicate(name="never"),
            },
            "max_tool_rounds": rounds,
            "max_call_errors": errors[0],
            "max_tool_errors": errors[1],
        }
    )


@pytest.mark.parametrize(
    ("rounds", "cap", "errors"), [(1, 3, (1, 1)), (5, 2, (1, 1)), (2, 2, (3, 2))], ids=str
)
async def test_a_conversation_with_hooks_on_everything_runs_to_its_end_within_its_bound(
    rounds: int, cap: int, errors: tuple[int, int]
) -> None:
    """Z7, Y19: tools and errors up to the caps, drafts, summaries and questions fit the bound.

    Predicates and choices of the next speaker are included.
    """
    conversation = busy(rounds, cap, errors)

    @tool
    def bell(word: str) -> str:
        """Ring the bell."""
        return f"Rung: {word}."

    @tool
    def book(word: str) -> str:
        """Look into the book."""
        raise ToolException(f"{word} is not in it")

    around = Hook(
        before_speaker=lambda _: None,
        after_speaker=lambda _, reply: AIMessage(f"{reply.text} Indeed."),
        before_tool=lambda _, call: None,
        after_tool=lambda _, call, found: None,
    )

    async def steps(limit: int) -> tuple[State, int]:
        graph = build_graph(
            checkpointer=InMemorySaver(),
            model=ScriptedChatModel(script=Busy(conversation).answer),
            tools=[bell, book],
            hooks={"around": around},
            predicates={"never": lambda _: False},
            orders={"other": lambda said, names: next(n for n in names if n != said[-1].name)},
        )
        config = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=limit)
        given = Input(conversation=conversation.model_dump(mode="json"))
        await graph.ainvoke(given, config, durability="sync")
        moments = [moment async for moment in graph.aget_state_history(config)]
        state: Any = moments[0].values
        return state, sum(node != START for moment in moments for node in moment.next)

    most = max_steps(conversation)
    state, taken = await steps(most)
    assert state["outcome"]["reasons"] == ["max_iterations"]
    assert state["outcome"]["messages"] == most_messages(conversation) == 2 * cap
    # Neither speaker's first turn has a past to summarize, and no choice follows the last turn.
    assert taken == most - 2 - 1
    # LangGraph needs one more step to detect the end; the limit has no other slack.
    assert (await steps(taken + 1))[1] == taken
    with pytest.raises(GraphRecursionError):
        await steps(taken)


def test_until_the_task_stands_the_edge_goes_round_to_its_specification() -> None:
    """Z2: an overlong rewrite is requested once more."""
    assert route({}, RunningSessions()) == Node.TASK_SPECIFICATION
