"""Node and edge agree: through the compiled graph, on drawn conversations.

The model says what is drawn; the onlooker follows the same draws by the rules alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from duologue.graphs.build import build_graph, route
from duologue.graphs.end_chat import Node, decide, max_steps
from duologue.graphs.ends import (
    DoneToken,
    End,
    EndChatMode,
    MaxCalls,
    MaxMessages,
    Predicate,
    StopRequested,
)
from duologue.graphs.judging import Judge, Moderator, SeparateJudge
from duologue.graphs.log import Kind, line, speeches
from duologue.graphs.position import Position
from duologue.graphs.spec import Conversation
from duologue.graphs.state import Input, State
from duologue.graphs.viewpoint import SILENCE
from duologue.nodes import prompts
from duologue.nodes.scripted import Line, Prompt, ScriptedChatModel
from onlooker import Rules, Spent, Table, Turn

DONE = "DONE"
WON = "WON"
NAMES = ("Ann", "Bob", "Cid", "Dot")


def token(by: str | None = None) -> DoneToken:
    return DoneToken(token=DONE, by=by)


def ends(few: int, many: int) -> list[End | None]:
    """All ends that can be drawn, with a limit that is always reached and one that may be."""
    won = Predicate(name="won")
    return [
        None,
        token(),
        token() | won,
        token() & won,
        token("Ann") & token("Bob"),
        token() & MaxMessages(limit=few),
        won & MaxMessages(limit=few),
        token() | MaxMessages(limit=many),
        token() | MaxCalls(limit=many),
        token() & MaxCalls(limit=many),
        StopRequested() & MaxMessages(limit=few),
        (token() & MaxCalls(limit=few)) | (won & StopRequested()) | MaxCalls(limit=3 * many),
    ]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    names = NAMES[: draw(st.integers(2, 4))]
    mode = draw(st.sampled_from(EndChatMode))
    judge: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"form": "structured"},
                {"form": "two_questions"},
                {"kind": "separate", "criteria": ["They agree."], "form": "structured"},
                {"kind": "separate", "criteria": ["They agree."], "form": "lines"},
            ]
        )
    )
    needs_stopper = mode is not EndChatMode.MAX_ITERATIONS_ONLY and "kind" not in judge
    stoppers = draw(st.lists(st.sampled_from(names), min_size=int(needs_stopper), unique=True))
    secretive = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    answers = draw(st.booleans())
    limit = st.sampled_from((2, 3, 0))
    when = draw(st.sampled_from(ends(draw(st.integers(1, 2)), draw(st.integers(2, 9)))))
    return Conversation.model_validate(
        {
            "task": "Plan.",
            "speakers": [
                {
                    "name": name,
                    "task": f"{name}'s.",
                    "stops_chat": name in stoppers,
                    "keep_reflection": draw(st.booleans()),
                    "private_opening": {"prompt": f"Choose, {name}."}
                    if name in secretive
                    else None,
                }
                for name in names
            ],
            "turn_order": draw(
                st.sampled_from(
                    [
                        {"kind": "round_robin"},
                        {"kind": "round_robin"},
                        {"kind": "function", "name": "drawn"},
                        {"kind": "moderator"},
                        {"kind": "moderator", "form": "word"},
                    ]
                )
            ),
            "opening": {
                "answers": answers,
                "reconcile": answers and draw(st.booleans()),
                "first_speaker": draw(st.sampled_from((None, *names))),
            },
            "end_chat": {
                "mode": mode,
                "max_iterations": draw(st.sampled_from((3, 2, 1))),
                "when": when,
                "guards": {
                    guard: draw(limit)
                    for guard in (
                        "blank_replies",
                        "same_replies",
                        "farewells",
                        "role_flips",
                        "unreadable_verdicts",
                    )
                },
            },
            "judge": judge,
        }
    )


ALONE = ("plain", "draft", "flip", "done")
"""What may be said before the rounds."""
HEARD = (*("plain",) * 3, "draft", "flip", "done", "won", "stop")
"""What may be said in the rounds and as last words, beside what a conversation is full of."""
FULL_OF = ("blank", "same", "farewell")


@dataclass
class Cast:
    """Says what is drawn, and what by the rules should come of it."""

    conversation: Conversation
    data: st.DataObject
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    turns: dict[str, list[tuple[Prompt, str]]] = field(default_factory=dict)
    """For each speaker the prompts of its turns, and what it said."""
    pending: str | None = None
    """A reply that the speaker gives when it is asked once more."""
    turn: str = "plain"
    """What the turn is that is under way."""
    calls: int = 0
    stop: bool = False
    alone: int = 0
    """Choices that no model made."""

    def __post_init__(self) -> None:
        self.rules = Rules.of(self.conversation)
        self.table = Table.laid(self.rules)
        self.heard = (*HEARD, *(self.data.draw(st.sampled_from(FULL_OF), "full of"),) * 20)

    @property
    def spent(self) -> Spent:
        return (("max_calls", self.calls),)

    def answer(self, prompt: Prompt) -> Line:
        self.calls += 1
        assert not self.table.over
        if self.table.question == "choice":
            return self._moderates()
        return self._judges(prompt) if self.table.question else self._speaks(prompt)

    async def asked_to_stop(self, _session: str) -> bool:
        return self.stop

    def drawn(self, _said: Sequence[BaseMessage], names: Sequence[str]) -> str:
        """Choose who speaks next, as a registered function."""
        assert self.table.question == "choice"
        self.alone += 1
        name = self.data.draw(st.sampled_from(names), label="next")
        return self._gives_the_word(name) or ""

    def _moderates(self) -> Line:
        moderator = self.conversation.turn_order
        assert isinstance(moderator, Moderator)
        others = [name for name in self.rules.names if name != self.table.latest]
        name = self.data.draw(st.sampled_from((*others, None)), label="next")
        self._gives_the_word(name)
        if moderator.form == "word":
            return name or "Whoever likes."
        return {"next_speaker": name or "Nobody"}

    def _gives_the_word(self, name: str | None) -> str | None:
        self.table = self.table.after_choice(self.rules, name, stop=self.stop, spent=self.spent)
        self.chosen.append(self.table.speaking)
        return name

    def _between_turns(self) -> None:
        """Go on where no moderator need be asked: of two the other one speaks next."""
        moderated = isinstance(self.conversation.turn_order, Moderator)
        of_two = len(self.rules.names) == len(("one", "other"))
        if moderated and of_two and self.table.question == "choice" and not self.table.over:
            self.alone += 1
            self._gives_the_word(next(n for n in self.rules.names if n != self.table.latest))

    def _judges(self, prompt: Prompt) -> Line:
        if prompt[-1]["content"] == prompts.WHAT_IS_LEFT:
            self.table = self.table.between_questions(self.rules, self.spent)
            return "The price."
        asked = self.table.latest
        assert asked is not None
        self.asked.append(asked)
        read = self.data.draw(st.sampled_from([True, False, None]), label=f"{asked} complete")
        self.table = self.table.after_verdict(self.rules, read, stop=self.stop, spent=self.spent)
        self._between_turns()
        if read is None:
            return "I do not know"
        judge = self.conversation.judge
        if isinstance(judge, SeparateJudge):
            found = "met" if read else "not_met"
            return {"criterion_1": found} if judge.form == "structured" else f"1: {found}"
        assert isinstance(judge, Judge)
        if judge.form == "structured":
            return {"objectives_left": [], "complete": read}
        return "yes" if read else "no"

    def _speaks(self, prompt: Prompt) -> Line:
        name = self.table.speaking
        if self.pending is not None:
            reply, self.pending = self.pending, None
            return self._spoken(name, reply)
        self.turns.setdefault(name, []).append((prompt, ""))
        # What one says to oneself is nobody's part.
        alone = [turn for turn in ALONE if turn != "flip" or self.table.part != "private"]
        may_say = self.heard if self.table.part in ("rounds", "last_words") else alone
        self.turn = self.data.draw(st.sampled_from(may_say), label=f"{name}'s turn")
        other = next(person for person in self.rules.names if person != name)
        # Without numbers: the same answer to another number would be no repetition.
        word = "".join(chr(ord("a") + digit) for digit in divmod(len(self.said), 26))
        plain = f"Line {word} by {name}."
        reply = {
            "done": DONE,
            "won": f"{plain} {WON}",
            "blank": "",
            "same": f"I, {name}, have said so before and say it again.",
            "farewell": "Goodbye!",
            "flip": f"{other}: no {word}\n{name}: yes {word}",
        }.get(self.turn, plain)
        # A reply is asked for again when it is blank, another's part or the last one once more.
        again = reply == self.latest(name) and self.turn == "same"
        if self.turn in ("draft", "flip", "blank") or again:
            self.pending = reply
            self.table = self.table.after_draft(self.rules, self.spent)
            return "" if self.turn == "draft" else reply
        return self._spoken(name, reply)

    def latest(self, name: str) -> str | None:
        """What this speaker said in its latest turn."""
        found = [line for line in self.said if line.startswith(f"{name}: ")]
        return found[-1].removeprefix(f"{name}: ") if found else None

    def _spoken(self, name: str, reply: str) -> str:
        self.said.append(f"{name}: {reply}")
        self.turns[name][-1] = (self.turns[name][-1][0], reply)
        self.stop = self.stop or self.turn == "stop"
        turn = Turn(
            text=self.turn if self.turn in (*FULL_OF, "flip") else "plain",
            tokens=frozenset({DONE} if reply == DONE else ()),
            true=frozenset({"won"} if reply.endswith(WON) else ()),
            stop=self.stop,
        )
        self.table = self.table.after_turn(self.rules, turn, self.spent)
        self._between_turns()
        return reply


def has_won(said: Sequence[BaseMessage]) -> bool:
    return said[-1].text.endswith(WON)


async def run(cast: Cast, model: ScriptedChatModel) -> tuple[State, list[str]]:
    """Run it, and hold every state to the rules; give the last one and the nodes passed."""
    conversation = cast.conversation
    graph = build_graph(
        checkpointer=InMemorySaver(),
        model=model,
        predicates={"won": has_won},
        orders={"drawn": cast.drawn},
        stop_requested=cast.asked_to_stop,
    )
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
    """Y3, Y8, Y9, Y11-Y16, Y20, Z3, Z4, points 1 and 2: turns, questions, end and reasons."""
    cast = Cast(conversation, data)
    model = ScriptedChatModel(script=cast.answer)
    state, nodes = asyncio.run(run(cast, model))
    assert cast.table.over
    log = state["messages"]
    assert [f"{line(message).speaker}: {message.text}" for message in speeches(log)] == cast.said
    verdicts = [line(message).verdict for message in log]
    assert [verdict.speaker for verdict in verdicts if verdict is not None] == cast.asked
    choices = [line(message).to for message in log if line(message).kind is Kind.CHOICE]
    assert choices == cast.chosen
    outcome = state["outcome"]
    assert tuple(outcome["reasons"]) == cast.table.reasons(cast.rules)
    assert tuple(outcome["completed"]) == cast.table.complete
    assert outcome["messages"] == len(cast.said) <= conversation.most_messages
    assert outcome["message"] == (speeches(log)[-1].id if cast.said else None)
    for turns in cast.turns.values():
        for (prompt, reply), (following, _) in pairwise(turns):
            # What providers keep of a prompt, they can use again.
            assert following[: len(prompt)] == prompt
            replied = following[len(prompt)]
            assert (replied["role"], replied["content"]) == ("assistant", reply or SILENCE)
            assert len(following) > len(prompt) + 1
    # One model call a step at most: that is what makes each of them durable.
    checks = sum(line(message).counts for message in log) if conversation.predicates else 0
    assert len(model.calls) == len(nodes) - 1 - cast.alone - checks
    assert len(nodes) <= max_steps(conversation)
    assert len({message.id for message in log}) == len(log)


def test_until_the_task_stands_the_edge_goes_round_to_its_specification() -> None:
    """Z2: an overlong rewrite is asked for once more."""
    assert route({}) == Node.TASK_SPECIFICATION
