"""Node and edge agree: through the compiled graph, on drawn conversations.

The model says what is drawn; the onlooker follows the same draws by the rules alone.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from duologue.graphs.build import build_graph, route
from duologue.graphs.end_chat import Node, Position, decide, max_steps
from duologue.graphs.log import line, speeches
from duologue.graphs.spec import Conversation, EndChatMode
from duologue.graphs.state import Input, State
from duologue.nodes import prompts
from duologue.nodes.scripted import Line, Prompt, ScriptedChatModel
from onlooker import Rules, Table

DONE = "DONE"
NAMES = ("Ann", "Bob", "Cid", "Dot")


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    names = NAMES[: draw(st.integers(2, 4))]
    mode = draw(st.sampled_from(EndChatMode))
    least = 0 if mode is EndChatMode.MAX_ITERATIONS_ONLY else 1
    stoppers = draw(st.lists(st.sampled_from(names), min_size=least, unique=True))
    return Conversation.model_validate(
        {
            "task": "Plan.",
            "speakers": [
                {
                    "name": name,
                    "task": f"{name}'s.",
                    "stops_chat": name in stoppers,
                    "keep_reflection": draw(st.booleans()),
                }
                for name in names
            ],
            "opening": {
                "answers": draw(st.booleans()),
                "first_speaker": draw(st.sampled_from((None, *names))),
            },
            "end_chat": {
                "mode": mode,
                "max_iterations": draw(st.integers(1, 3)),
                "done_token": {"token": DONE},
                "max_role_flips": draw(st.integers(1, 2)),
            },
            "judge": {"form": draw(st.sampled_from(("structured", "two_questions")))},
        }
    )


TURNS = st.sampled_from(["plain", "plain", "plain", "plain", "draft", "flip", "done"])


@dataclass
class Cast:
    """Says what is drawn, and what by the rules should come of it."""

    conversation: Conversation
    data: st.DataObject
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    turns: dict[str, list[tuple[Prompt, str]]] = field(default_factory=dict)
    """For each speaker the prompts of its turns, and what it said."""
    pending: str | None = None
    """A reply that the speaker gives when it is asked once more."""

    def __post_init__(self) -> None:
        self.rules = Rules.of(self.conversation)
        self.table = Table.laid(self.rules)

    def answer(self, prompt: Prompt) -> Line:
        question = prompt[-1]["content"]
        if question == prompts.WHAT_IS_LEFT:
            return "The price."
        if question in (prompts.JUDGE_YOURSELF, prompts.IS_COMPLETE):
            return self._verdict(structured=question == prompts.JUDGE_YOURSELF)
        return self._reply(prompt)

    def _verdict(self, *, structured: bool) -> Line:
        asked = self.table.question
        assert asked is not None
        self.asked.append(asked)
        read = self.data.draw(st.sampled_from([True, False, None]), label=f"{asked} complete")
        self.table = self.table.after_verdict(self.rules, complete=read is True)
        if read is None:
            return "I do not know"
        if structured:
            return {"objectives_left": [], "complete": read}
        return "yes" if read else "no"

    def _reply(self, prompt: Prompt) -> Line:
        (_, name), *_rest = self.table.agenda
        if self.pending is None:
            self.turns.setdefault(name, []).append((prompt, ""))
        other = next(person for person in self.rules.names if person != name)
        if self.pending is not None:
            reply, flip, done = self.pending, self.pending.startswith(other), False
            self.pending = None
        else:
            turn = self.data.draw(TURNS, label=f"{name}'s turn")
            reply = {"done": DONE}.get(turn, f"Line {len(self.said)} by {name}.")
            flip, done = False, turn == "done"
            if turn in ("draft", "flip"):
                # A draft is mended when it is asked for again, a flip is not.
                self.pending = reply if turn == "draft" else f"{other}: no {len(self.said)}"
                return f"{other}: draft"
        self.said.append(f"{name}: {reply}")
        self.turns[name][-1] = (self.turns[name][-1][0], reply)
        self.table = self.table.after_turn(self.rules, done=done, flip=flip)
        return reply


async def run(conversation: Conversation, model: ScriptedChatModel) -> tuple[State, list[str]]:
    """Run it, and hold every state to the rules; give the last one and the nodes passed."""
    graph = build_graph(checkpointer=InMemorySaver(), model=model)
    config = RunnableConfig(
        configurable={"thread_id": "t"}, recursion_limit=max_steps(conversation)
    )
    given = Input(conversation=conversation.model_dump(mode="json"))
    await graph.ainvoke(given, config, durability="sync")
    nodes: list[str] = []
    moments = [moment async for moment in graph.aget_state_history(config)]
    for moment in reversed(moments):
        nodes.extend(moment.next)
        state: Any = moment.values
        if "position" not in state:
            assert "outcome" not in state
            continue
        decision = decide(conversation, Position.model_validate(state["position"]))
        assert route(state) == decision.node
        # The edge goes where the rules say, and an outcome is set exactly where they say the end.
        over = decision.node is Node.END
        assert moment.next == (() if over else (decision.node,))
        assert ("outcome" in state) is over
        if over:
            assert state["outcome"]["reasons"] == list(decision.reasons)
            assert moment == moments[0]
    final: Any = moments[0].values
    assert "outcome" in final
    return final, [node for node in nodes if node != START]


@settings(max_examples=120, deadline=None)
@given(conversation=conversations(), data=st.data())
def test_what_the_graph_does_is_what_the_rules_say(
    conversation: Conversation, data: st.DataObject
) -> None:
    """Y3, Y9, Y11, Y12, Y13, Y14, Y15, Z3, Z4: turns, questions, end and reasons."""
    cast = Cast(conversation, data)
    model = ScriptedChatModel(script=cast.answer)
    state, nodes = asyncio.run(run(conversation, model))
    assert cast.table.over
    log = state["messages"]
    assert [f"{line(message).speaker}: {message.text}" for message in speeches(log)] == cast.said
    verdicts = [line(message).verdict for message in log]
    assert [verdict.speaker for verdict in verdicts if verdict is not None] == cast.asked
    outcome = state["outcome"]
    assert tuple(outcome["reasons"]) == cast.table.reasons(cast.rules)
    assert tuple(outcome["completed"]) == cast.table.complete
    assert outcome["messages"] == len(cast.said)
    assert outcome["message"] == speeches(log)[-1].id
    for turns in cast.turns.values():
        for (prompt, reply), (following, _) in pairwise(turns):
            # What providers keep of a prompt, they can use again.
            assert following[: len(prompt)] == prompt
            replied = following[len(prompt)]
            assert (replied["role"], replied["content"]) == ("assistant", reply)
            assert len(following) > len(prompt) + 1
    # One model call a step: that is what makes each of them durable.
    assert len(model.calls) == len(nodes) - 1
    assert len(nodes) <= max_steps(conversation)
    assert len({message.id for message in log}) == len(log)


def test_until_the_task_stands_the_edge_goes_round_to_its_specification() -> None:
    """Z2: an overlong rewrite is asked for once more."""
    assert route({}) == Node.TASK_SPECIFICATION
