"""Every reachable path of the engine, side by side with an onlooker who knows only the rules.

Positions are walked once each: the engine and the onlooker depend on nothing else, so agreeing at
every pair of positions is agreeing on every path.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import pytest

from duologue.graphs.end_chat import (
    Event,
    Node,
    Position,
    Reason,
    asked,
    decide,
    judged,
    max_steps,
    paused,
    spoke,
)
from duologue.graphs.spec import Conversation, EndChat, EndChatMode, Opening, Speaker
from onlooker import Rules, Table

MODES = list(EndChatMode)
NAMES = ("Ann", "Bob", "Cid", "Dot")
CAPS = (1, 2, 3, 4)


def spec(
    mode: EndChatMode,
    cap: int,
    count: int,
    stoppers: tuple[str, ...],
    *,
    answers: bool = False,
    first: str | None = None,
    max_role_flips: int = 2,
) -> Conversation:
    return Conversation(
        task="Plan.",
        speakers=tuple(
            Speaker(name=name, task=f"{name}'s own.", stops_chat=name in stoppers)
            for name in NAMES[:count]
        ),
        opening=Opening(answers=answers, first_speaker=first),
        end_chat=EndChat(mode=mode, max_iterations=cap, max_role_flips=max_role_flips),
    )


def stopping(mode: EndChatMode, count: int) -> Iterator[tuple[str, ...]]:
    """Every valid set of stoppers."""
    least = 0 if mode is EndChatMode.MAX_ITERATIONS_ONLY else 1
    for size in range(least, count + 1):
        yield from combinations(NAMES[:count], size)


@dataclass
class Walk:
    """Compares the engine with the onlooker at every position that can be reached."""

    conversation: Conversation
    flips: bool = False
    """Whether speakers may also speak another's part."""
    seen: dict[tuple[str, Table], tuple[int, int]] = field(default_factory=dict)
    """For each pair of positions how many paths lead on from it, and the longest, in steps."""
    ends: set[tuple[Reason, ...]] = field(default_factory=set)
    """The reasons of all ends."""

    def __post_init__(self) -> None:
        self.rules = Rules.of(self.conversation)

    def paths(self) -> int:
        """Walk all; give the number of paths."""
        paths, steps = self._from(Position(), Table.laid(self.rules))
        # The task specification takes up to two steps of its own.
        assert steps + 2 <= max_steps(self.conversation)
        return paths

    def _from(self, position: Position, table: Table) -> tuple[int, int]:
        key = (position.model_dump_json(), table)
        if key not in self.seen:
            # A path that came back to a position would go on for ever, and the recursion with it.
            self.seen[key] = self._compared(position, table)
        return self.seen[key]

    def _compared(self, position: Position, table: Table) -> tuple[int, int]:
        decision = decide(self.conversation, position)
        if table.over:
            assert decision.node is Node.END
            assert decision.reasons == table.reasons(self.rules)
            assert decision.reasons
            assert decision.speaker == position.speaker
            self.ends.add(decision.reasons)
            return 1, 0
        assert decision.reasons == ()
        if table.question is not None:
            assert (decision.node, decision.speaker) == (Node.COMPLETION_JUDGE, table.question)
            return self._judged(position, table)
        stage, name = table.agenda[0]
        agent = Node.USER_AGENT if name == NAMES[0] else Node.ASSISTANT_AGENT
        assert (decision.node, decision.speaker, decision.stage) == (agent, name, stage)
        return self._spoken(position, table)

    def _judged(self, position: Position, table: Table) -> tuple[int, int]:
        between = asked(position)
        # Between the judge's two questions the same speaker is asked on.
        assert decide(self.conversation, between) == decide(self.conversation, position)
        found = []
        for complete in (False, True):
            after = judged(self.conversation, position, complete=complete)
            assert after == judged(self.conversation, between, complete=complete)
            found.append(self._from(after, table.after_verdict(self.rules, complete=complete)))
        return sum(paths for paths, _ in found), 2 + max(steps for _, steps in found)

    def _spoken(self, position: Position, table: Table) -> tuple[int, int]:
        choices = [(False, False), (True, False)]
        if self.flips:
            choices.append((False, True))
        found = []
        for done, flip in choices:
            after = spoke(self.conversation, position, said_done=done, flipped_role=flip)
            found.append(self._from(after, table.after_turn(self.rules, done=done, flip=flip)))
        # At worst every round of tools is used, and one reply of the turn is rejected.
        worst = 2 * self.conversation.max_tool_rounds + 2
        return sum(paths for paths, _ in found), worst + max(steps for _, steps in found)


@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "Y4-Y9-opening"])
@pytest.mark.parametrize("count", [2, 3, 4], ids=lambda count: f"{count}-speakers")
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(MODES[0], id="Y11-max-iterations-only"),
        pytest.param(MODES[1], id="Y12-first-completion"),
        pytest.param(MODES[2], id="Y13-one-last-chat"),
        pytest.param(MODES[3], id="Y14-one-last-group-chat"),
        pytest.param(MODES[4], id="Y15-all-must-complete"),
    ],
)
def test_every_path_goes_and_ends_as_the_rules_say(
    mode: EndChatMode, count: int, answers: bool
) -> None:
    """Y3, Y4, Y6, Y9, Y11, Y12, Y13, Y14, Y15, Z4: same turns, questions, end and reasons."""
    for cap in CAPS:
        for stoppers in stopping(mode, count):
            for first in (None, *NAMES[:count]):
                walk = Walk(spec(mode, cap, count, stoppers, answers=answers, first=first))
                assert walk.paths() > cap * count
                reasons = {reasons[0] for reasons in walk.ends}
                may_complete = mode is not EndChatMode.MAX_ITERATIONS_ONLY
                assert (Reason.COMPLETED in reasons) is may_complete
                assert Reason.DONE_TOKEN in reasons
                assert Reason.MAX_ITERATIONS in reasons


@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "opening"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("allowed", [1, 2])
def test_flipped_roles_end_every_path_after_verdicts_and_before_the_cap(
    mode: EndChatMode, allowed: int, answers: bool
) -> None:
    """Z3: roles never flip; the guard yields to a done token and to promised last words."""
    for count, cap in ((2, 1), (2, 2), (2, 3), (3, 2)):
        for stoppers in stopping(mode, count):
            conversation = spec(mode, cap, count, stoppers, answers=answers, max_role_flips=allowed)
            walk = Walk(conversation, flips=True)
            walk.paths()
            # A speaker may speak once more than the cap, in last words.
            turns = cap + (mode in MODES[2:4])
            ends = any(Reason.ROLE_FLIPS in reasons for reasons in walk.ends)
            assert ends or allowed > cap
            assert not ends or allowed <= turns


@pytest.mark.parametrize("event", [Event.REJECTED, Event.CALLED, Event.RETURNED])
@pytest.mark.parametrize("mode", MODES)
def test_what_happens_within_a_turn_leaves_it_that_speakers_turn(
    mode: EndChatMode, event: Event
) -> None:
    """Y18, Z3: a rejected draft and a call of tools change neither the turn nor what follows."""
    conversation = spec(mode, 2, 3, ("Ann", "Cid"), answers=True)
    rules = Rules.of(conversation)
    position, table = Position(), Table.laid(rules)
    turns = 0
    while not table.over:
        if table.question is not None:
            complete = turns > 5
            position = judged(conversation, position, complete=complete)
            table = table.after_verdict(rules, complete=complete)
            continue
        turns += 1
        stage, name = table.agenda[0]
        within = paused(conversation, position, event)
        decision = decide(conversation, within)
        assert (decision.speaker, decision.stage) == (name, stage)
        assert (decision.node is Node.TOOL_EXECUTOR) is (event is Event.CALLED)
        if event is not Event.CALLED:
            assert decision.node is decide(conversation, position).node
        assert within.tool_rounds == (event is Event.RETURNED)
        after = spoke(conversation, within)
        assert after == spoke(conversation, position)
        position, table = after, table.after_turn(rules)
    assert decide(conversation, position).reasons == table.reasons(rules)
    assert turns >= 6


@pytest.mark.parametrize(
    ("mode", "last"),
    [
        pytest.param(MODES[2], ["Ann"], id="Y13-the-next-speaker"),
        pytest.param(MODES[3], ["Ann", "Bob", "Cid"], id="Y14-the-whole-table"),
    ],
)
def test_last_words_are_spoken_past_the_cap_and_nobody_is_asked_about_them(
    mode: EndChatMode, last: list[str]
) -> None:
    conversation = spec(mode, 1, 3, ("Cid", "Ann"))
    position = Position()
    for _ in range(3):
        position = spoke(conversation, position)
        if decide(conversation, position).node is Node.COMPLETION_JUDGE:
            complete = position.speaker == "Cid"
            position = judged(conversation, position, complete=complete)
    spoken = []
    while (decision := decide(conversation, position)).node is not Node.END:
        assert decision.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
        spoken.append(decision.speaker)
        position = spoke(conversation, position)
    assert spoken == last
    assert decision.reasons == (Reason.COMPLETED, Reason.MAX_ITERATIONS)


def test_a_done_token_in_last_words_cancels_the_rest_of_them() -> None:
    """Z4: a done token is never answered, not even by last words that were promised (Y14)."""
    conversation = spec(MODES[3], 2, 3, ("Ann",))
    position = judged(conversation, spoke(conversation, Position()), complete=True)
    position = spoke(conversation, position, said_done=True)
    decision = decide(conversation, position)
    assert (decision.node, decision.speaker) == (Node.END, "Bob")
    assert decision.reasons == (Reason.DONE_TOKEN, Reason.COMPLETED)


def test_all_reasons_that_hold_are_given_the_strongest_first() -> None:
    """Done token, then verdict, then guard, then round cap."""
    conversation = spec(MODES[3], 1, 2, ("Bob",), max_role_flips=1)
    position = spoke(conversation, Position())
    position = spoke(conversation, position, flipped_role=True)
    position = judged(conversation, position, complete=True)
    position = spoke(conversation, position, said_done=True)
    assert decide(conversation, position).reasons == tuple(Reason)


@pytest.mark.parametrize("complete", [True, False])
def test_a_stopper_is_asked_on_the_caps_own_turn(complete: bool) -> None:
    """Y9, Y12: the answer changes the reason."""
    conversation = spec(MODES[1], 1, 2, ("Bob",))
    position = spoke(conversation, spoke(conversation, Position()))
    assert decide(conversation, position).node is Node.COMPLETION_JUDGE
    position = judged(conversation, position, complete=complete)
    first = [Reason.COMPLETED] if complete else []
    assert decide(conversation, position).reasons == (*first, Reason.MAX_ITERATIONS)
