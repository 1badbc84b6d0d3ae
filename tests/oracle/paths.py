"""Every reachable path of the engine, compared with an onlooker that knows only the rules.

Each position is visited once. The engine and the onlooker depend only on positions, so if they
agree at every pair of positions, they agree on every path.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from operator import attrgetter
from typing import Any, NamedTuple

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChatMode,
    MaxMessages,
    Moderator,
    Predicate,
    Reason,
    RunningSummary,
    ToolCalled,
)
from duologue.graphs.conversation.limits import most_messages
from duologue.graphs.ends.end import Facts
from duologue.graphs.rules.position import (
    BETWEEN_TURNS,
    MOVES,
    Leaving,
    Phase,
    Position,
    max_steps,
)
from duologue.graphs.rules.transitions import (
    Decision,
    Node,
    decide,
    record_choice,
    record_leaving,
    record_pause,
    record_phase,
    record_turn,
    record_unread_verdict,
    record_verdict,
)
from duologue.graphs.rules.turns import Dialogue, meaning
from oracle.onlooker import ALL_WORKED, Came, Rules, Spent, Table, Turn
from oracle.reckoning import Budget, Tally, amount_of
from support.ends import AnyOf, End, leaves

_place = attrgetter(*(name for name in Position.model_fields if name != "facts"))


@dataclass(frozen=True)
class Choices:
    """Possible events in addition to those of the conversation's ends."""

    texts: tuple[str, ...] = ("plain",)
    """Possible messages, of `reckoning.TEXTS`."""
    drafts: bool = False
    """Replies may be rejected."""
    cuts: bool = False
    """Replies may be cut off and continued."""
    calls: tuple[str, ...] = ()
    """Tools that may be called: "equal" repeats its arguments, "other" does not."""
    fails: tuple[Came, ...] = ()
    """Possible results of a round of calls, in addition to full success."""
    direct: bool = False
    """Tool results may be the speaker's message."""
    code: bool = False
    """Messages may contain code; a speaker that runs code does so, or replies otherwise."""
    stop: bool = False
    """A stop may be requested."""
    unreadable: bool = False
    """Verdicts may be unreadable."""
    halves: bool = False
    """The judge may ask its two questions one after the other."""
    hooks: bool = False
    """Hooks may see answers and results before these count."""
    summaries: bool = False
    """A turn may begin with a summary of earlier messages."""
    word: bool = False
    """Messages may end with the word of termination messages."""


class Longest(NamedTuple):
    """The paths after a position: their number, and the longest of them."""

    paths: int
    messages: int
    steps: int


@cache
def facts_of(tally: Tally) -> Facts:
    """Return the facts of a tally as the engine's `Facts`."""
    spent = dict(tally.spent)
    return Facts(
        messages=tally.messages,
        calls=int(spent.get("max_calls", 0)),
        tokens=int(spent.get("max_tokens", 0)),
        cost=spent.get("max_cost", 0),
        calls_by={name: int(many) for name, many in _amounts_by(spent, "max_calls")},
        tokens_by={name: int(many) for name, many in _amounts_by(spent, "max_tokens")},
        cost_by=dict(_amounts_by(spent, "max_cost")),
        seconds=spent.get("max_seconds", 0),
        stop_requested=tally.stop,
        tokens_said=tuple((token, name) for name, token in sorted(tally.said)),
        tokens_unanswered=tuple((token, name) for name, token in sorted(tally.open)),
        alone=bool(tally.only),
        predicates=tuple(sorted(tally.true)),
        tools_called=tuple((tool, name) for name, tool in sorted(tally.called)),
        code_by=tally.code,
        no_code_by=tally.no_code,
        counts={
            Reason.CALL_ERRORS: tally.call_errors,
            Reason.TOOL_ERRORS: tally.tool_errors,
            Reason.BLANK_REPLIES: tally.blanks,
            Reason.SAME_REPLIES: tally.same,
            Reason.ECHO: tally.echo,
            Reason.FAREWELLS: tally.farewells,
            Reason.STANDSTILL: tally.still,
            Reason.ROLE_FLIPS: max(dict(tally.flips).values(), default=0),
            Reason.SAME_TOOL_CALLS: tally.equal_calls,
            Reason.UNREADABLE_VERDICTS: tally.unreadable,
        },
        said_by=tally.said_by,
        heard_from=tuple(sorted(tally.begun)),
        terminated=tally.told,
        auto_replies=dict(tally.automatic),
    )


def _amounts_by(spent: Mapping[str, float], kind: str) -> Iterator[tuple[str, float]]:
    """Yield the speakers whose own amounts are limited, each with its amount."""
    for name, amount in spent.items():
        of, _, owner = name.partition(" of ")
        if of == kind and owner:
            yield owner, amount


def _subsets(of: list[str]) -> list[frozenset[str]]:
    found = list(dict.fromkeys(of))
    return [frozenset(some) for size in range(len(found) + 1) for some in combinations(found, size)]


@dataclass
class Walk:
    """A comparison of the engine with the onlooker at every reachable position."""

    conversation: Conversation
    choices: Choices = Choices()
    seen: dict[Any, Longest] = field(default_factory=dict)
    ends: set[tuple[Reason, ...]] = field(default_factory=set)
    """Reasons of all ends."""
    moves: set[tuple[Phase, Phase]] = field(default_factory=set)
    """Pairs of consecutive events."""
    _now: list[Phase] = field(default_factory=list)
    """Events on the way to the current position."""
    longest: Longest = field(init=False)
    most_messages: int = field(init=False)
    """The bound of the spec on messages."""
    most_steps: int = field(init=False)
    """The bound of the spec on steps."""

    def __post_init__(self) -> None:
        self.rules = Rules.of(self.conversation)
        self.most_messages = most_messages(self.conversation)
        self.most_steps = max_steps(self.conversation)
        ends = [end for _, end in leaves(self.conversation.end_chat.when)]
        # Limits of used amounts. At first, one more use reaches the limit.
        limits: dict[str, float] = {
            amount_of(end): end.limit for end in ends if isinstance(end, Budget)
        }
        little: dict[str, float] = {"max_calls": 1, "max_tokens": 1}
        self.limits = limits
        self.unspent = {
            name: limit - little.get(name.partition(" of ")[0], limit / 9)
            for name, limit in limits.items()
        }
        self.tools = [end.tool for end in ends if isinstance(end, ToolCalled)]
        tokens = _subsets([end.token for end in ends if isinstance(end, DoneToken)])
        asked = [one.predicate for one in self.rules.people.values() if one.predicate]
        true = _subsets([*(end.name for end in ends if isinstance(end, Predicate)), *asked])
        self.stops = (False, True) if self.choices.stop else (False,)
        code = (False, True) if self.choices.code else (False,)
        word = (False, True) if self.choices.word else (False,)
        may = product(self.choices.texts, tokens, true, code, self.stops, word)
        self.turns = [Turn(*one) for one in may]
        self.walk()

    def walk(self) -> None:
        """Walk all paths, and compare the longest with the bounds of the spec."""
        found = []
        for spent in self._spendings(tuple(sorted(self.unspent.items()))):
            found.append(self._from(Position(), Table.laid(self.rules, spent)))
        self.longest = _behind(found)
        assert self.longest.messages <= self.most_messages
        # The task specification takes up to two steps, and LangGraph, whose limit this is, one more
        # to detect the end.
        assert self.longest.steps + 2 + 1 <= self.most_steps

    @property
    def reasons(self) -> set[Reason]:
        """Return all reasons that are the first one of some end."""
        return {reasons[0] for reasons in self.ends}

    def _spendings(self, spent: Spent) -> Iterator[Spent]:
        """Yield the amounts unchanged, and with one more limit reached."""
        yield spent
        for name, amount in spent:
            if amount < self.limits[name]:
                yield tuple(sorted((dict(spent) | {name: self.limits[name]}).items()))

    def _from(self, position: Position, table: Table) -> Longest:
        if position.phase is Phase.CHECKED:
            # The walk asks predicates together with the turn.
            self._follow(Phase.SPOKEN)
            self._now.append(Phase.SPOKEN)
        if self._now:
            self._follow(position.phase)
        key = (_place(position), table)
        if key not in self.seen:
            # Replace the engine's facts by the onlooker's.
            position = position.model_copy(update={"facts": facts_of(table.tally)})
            # A cycle of positions would make the path, and this recursion, infinite.
            self._now.append(position.phase)
            self.seen[key] = self._compared(position, table)
            self._now.pop()
        if position.phase is Phase.CHECKED:
            self._now.pop()
        return self.seen[key]

    def _turn(self, position: Position) -> Decision:
        return decide(self._dialogue(position))

    def _dialogue(self, position: Position) -> Dialogue:
        return Dialogue(self.conversation, position)

    def _follow(self, event: Phase) -> None:
        """Record that an event follows the current one, and check it against the table of moves."""
        assert event in MOVES[self._now[-1]].then
        self.moves.add((self._now[-1], event))

    def _compared(self, position: Position, table: Table) -> Longest:
        decision = self._turn(position)
        assert position.completed == table.complete
        assert (position.tool_rounds, position.asked_again) == (table.tool_rounds, table.drafted)
        assert position.cut_off == table.cut
        if table.over:
            assert decision.node is Node.END, table
            assert decision.reasons == table.reasons(self.rules), table
            assert decision.reasons
            assert decision.speaker == (table.latest or self.rules.order[0])
            self.ends.add(decision.reasons)
            return Longest(1, 0, 0)
        assert decision.reasons == (), table
        if table.question is not None:
            assert (decision.node, decision.speaker, decision.stage) == (
                Node.COMPLETION_JUDGE,
                table.latest,
                # R20: the speaker who answers last words is chosen, too.
                position.stage if table.question == "choice" else "rounds",
            ), table
            judge = self._chosen if table.question == "choice" else self._judged
            return judge(position, table)
        agent = Node.USER_AGENT if table.speaking == self.rules.names[0] else Node.ASSISTANT_AGENT
        with_tools = table.within in ("call", "ran", "code", "code_ran")
        node = Node.TOOL_EXECUTOR if with_tools else agent
        assert (decision.node, decision.speaker, decision.stage) == (
            node,
            table.speaking,
            table.part,
        ), table
        if with_tools:
            return self._called(position, table)
        found = None
        if table.within is None:
            found = self._dialogue(position).find_question(decision.speaker, decision.stage)
            expected = table.asked(self.rules)
            assert (found and (found.because, found.empty)) == expected, table
        return self._spoken(position, table) if found is None else self._asked(position, table)

    def _asked(self, position: Position, table: Table) -> Longest:
        """Return the paths after a question to a person: a text, no answer, or an exit."""
        stage = self._turn(position).stage
        question = self._dialogue(position).find_question(table.speaking, stage)
        assert question is not None
        assert meaning(question, "Text.") == "Text."
        spendings = list(self._spendings(table.tally.spent))
        after, checks = self._after_turn(position, table)
        turns = [
            self._from(after, table.after_turn(self.rules, one, spent, by_person=True))
            for spent in spendings
            for one in self.turns
            # Guards never count a person's messages.
            if one.text == "plain"
        ]
        found = [_behind(turns, steps=1 + checks + self._unwalked(), messages=1)]
        ways = {" Exit": "quit"}
        if question.empty == "stop":
            ways[""] = question.because.value
        for answer, reason in ways.items():
            leaving = meaning(question, answer)
            assert leaving == Leaving.model_validate({"by": table.speaking, "reason": reason})
            gone = record_leaving(position, self._turn(position), leaving)
            found.append(_behind([self._from(gone, table.after_leaving(reason))], steps=1))
        if question.empty == "auto_reply":
            assert meaning(question, " \n") is None
            passed = record_pause(position, self._turn(position), Phase.PASSED)
            leaves_it = [
                self._from(passed, table.after_passing(self.rules, spent)) for spent in spendings
            ]
            found.append(_behind(leaves_it, steps=1))
        return _behind(found)

    def _judged(self, position: Position, table: Table) -> Longest:
        again = table.within == "unread"
        answers = (False, True, None) if again else (False, True)
        after = {
            read: record_verdict(
                self._dialogue(position), complete=read is True and table.question == "verdict"
            )
            for read in answers
        }
        halves = self.choices.halves and not self.rules.separate and table.within is None
        tried = self.choices.unreadable and not again
        # If not walked separately, the first of two questions, and a first request, are steps, too.
        first = 0 if again or self.choices.halves else 1
        found = []
        for spent in self._spendings(table.tally.spent):
            if halves:
                between = table.between_questions(self.rules, spent)
                found.append(
                    _behind([self._from(record_phase(position, Phase.ASKED), between)], steps=1)
                )
            if tried:
                once_more = table.between_tries(self.rules, spent)
                untold = record_unread_verdict(self._dialogue(position))
                found.append(_behind([self._from(untold, once_more)], steps=1 + first))
            for read, stop in product(answers, self.stops):
                verdict = table.after_verdict(self.rules, read, stop=stop, spent=spent)
                steps = 1 + first + (not self.choices.unreadable)
                found.append(_behind([self._from(after[read], verdict)], steps=steps))
        return _behind(found)

    def _chosen(self, position: Position, table: Table) -> Longest:
        found = []
        again = table.within == "unchosen"
        is_tried = isinstance(self.conversation.turn_order, Moderator) and not again
        # If not walked separately, a first request is a step, too.
        first = is_tried and not self.choices.unreadable
        for name in (*self.rules.names, None):
            after = record_choice(self._dialogue(position), name)
            for spent, stop in product(self._spendings(table.tally.spent), self.stops):
                choice = table.after_choice(self.rules, name, stop=stop, spent=spent)
                found.append(self._from(after, choice))
        if is_tried and not first:
            unread = record_phase(position, Phase.UNCHOSEN)
            for spent in self._spendings(table.tally.spent):
                once_more = table.between_choices(self.rules, spent)
                found.append(self._from(unread, once_more))
        return _behind(found, steps=1 + first)

    def _called(self, position: Position, table: Table) -> Longest:
        spendings = list(self._spendings(table.tally.spent))
        is_code = table.within in ("code", "code_ran")
        answered = self._code_run if is_code else self._results
        step = self._code_step if is_code else 1
        steps = step + (not is_code and not self.choices.hooks)
        found = [_behind(answered(position, table, spendings), steps=steps)]
        if self.choices.hooks and table.within in ("call", "code"):
            after = record_pause(position, self._turn(position), Phase.RAN)
            ran = [self._from(after, table.after_run(spent)) for spent in spendings]
            found.append(_behind(ran, steps=step))
        return _behind(found)

    def _code_run(self, position: Position, table: Table, spendings: list[Spent]) -> list[Longest]:
        after = record_pause(position, self._turn(position), Phase.GIVEN)
        return [self._from(after, table.after_code_run(spent)) for spent in spendings]

    def _results(self, position: Position, table: Table, spendings: list[Spent]) -> list[Longest]:
        """Return the paths after the results of tools."""
        ended = frozenset(tool for tool in self.tools if tool == table.tally.call)
        found = []
        for came in (ALL_WORKED, *self.choices.fails):
            after = record_pause(
                position, self._turn(position), Phase.RETURNED, succeeded=came.worked
            )
            tools = ended if came.worked else frozenset()
            found += [
                self._from(after, table.after_results(self.rules, tools, spent, came))
                for spent in spendings
            ]
        if self.choices.direct:
            after = record_pause(position, self._turn(position), Phase.GIVEN, succeeded=True)
            found += [self._from(after, table.after_output(ended, spent)) for spent in spendings]
        return found

    def _after_turn(self, position: Position, table: Table) -> tuple[Position, int]:
        """Return the position after a turn, and the number of steps for its predicates."""
        after = record_turn(self._dialogue(position), self._turn(position))
        if not self.conversation.predicates or table.part in ("private", "opening"):
            return after, 0
        # They are asked whatever ends are met, so that the outcome contains all reasons.
        stopped = after.facts.model_copy(update={"stop_requested": True})
        for facts in (after.facts, stopped):
            found = self._turn(after.model_copy(update={"facts": facts}))
            assert (found.node, found.speaker) == (Node.COMPLETION_JUDGE, table.speaking)
        return record_phase(after, Phase.CHECKED), 1

    def _spoken(self, position: Position, table: Table) -> Longest:
        spendings = list(self._spendings(table.tally.spent))
        after, checks = self._after_turn(position, table)
        turns = [
            self._from(after, table.after_turn(self.rules, turn, spent))
            for spent in spendings
            for turn in self.turns
        ]
        found = [_behind(turns, steps=1 + checks + self._unwalked(), messages=1)]
        has_answered = table.within in ("answer", "given")
        if self.choices.summaries and table.within in (None, "passed"):
            after = record_pause(position, self._turn(position), Phase.SUMMARISED)
            summaries = [
                self._from(after, table.after_summary(self.rules, spent)) for spent in spendings
            ]
            found.append(_behind(summaries, steps=1))
        if self.choices.hooks and table.within != "answer":
            after = record_pause(position, self._turn(position), Phase.ANSWERED)
            answers = [self._from(after, table.after_answer(spent)) for spent in spendings]
            found.append(_behind(answers, steps=1))
        # An answer that hooks see is accepted already.
        if self.choices.drafts and not table.drafted and not has_answered:
            after = record_pause(position, self._turn(position), Phase.REJECTED)
            drafts = [
                self._from(after, table.after_draft(self.rules, spent)) for spent in spendings
            ]
            found.append(_behind(drafts, steps=1))
        if self.choices.cuts and not table.cut and not has_answered:
            after = record_pause(position, self._turn(position), Phase.CUT_OFF)
            cuts = [self._from(after, table.after_cut(self.rules, spent)) for spent in spendings]
            found.append(_behind(cuts, steps=1))
        if self._may_run_code(table):
            after = record_pause(position, self._turn(position), Phase.CALLED)
            runs = [self._from(after, table.after_code(self.rules, spent)) for spent in spendings]
            found.append(_behind(runs, steps=self._code_step))
        may_call = table.tool_rounds < self.conversation.max_tool_rounds and table.within != "given"
        if self.choices.calls and may_call:
            after = record_pause(position, self._turn(position), Phase.CALLED)
            called = [
                self._from(after, table.after_call(self.rules, call, spent))
                for spent in spendings
                for call in self.choices.calls
            ]
            found.append(_behind(called, steps=1 + (not self.choices.hooks)))
        return _behind(found)

    def _may_run_code(self, table: Table) -> bool:
        """Return whether a turn that has just begun may run code."""
        heard = table.tally.code not in (None, table.speaking) and table.part != "private"
        begins = table.within in (None, "passed", "summary")
        return heard and begins and table.speaking in self.rules.runners

    @property
    def _code_step(self) -> int:
        """Return the step of running code, or 0 if it is among the steps for rounds of tools."""
        return 1 if self.choices.calls else 0

    def _unwalked(self) -> int:
        """Return the maximum number of steps of a turn that are not walked."""
        speakers = self.conversation.speakers
        sums_up = any(isinstance(speaker.context, RunningSummary) for speaker in speakers)
        # A call, its hooks, the run, and the hooks after it. A round without a successful call has
        # an error, and the last error of its kind ends the conversation.
        rounds = 4 * self.conversation.max_tool_rounds
        failing = 4 * sum(most - 1 for most in self.rules.errors)
        return (
            (sums_up and not self.choices.summaries)
            + (not self.choices.drafts)
            + (self.conversation.asks_for_more and not self.choices.cuts)
            + (not self.choices.hooks)
            + (0 if self.choices.calls else rounds)
            + (0 if self.choices.fails else failing)
        )


def _behind(found: list[Longest], *, steps: int = 0, messages: int = 0) -> Longest:
    return Longest(
        sum(one.paths for one in found),
        messages + max(one.messages for one in found),
        steps + max(one.steps for one in found),
    )


def _lone(end: End | None) -> Iterator[End]:
    """Yield the ends that are not joined to others by ``&``."""
    if isinstance(end, AnyOf):
        for part in end.of:
            yield from _lone(part)
    elif end is not None:
        yield end


def reachable_messages(conversation: Conversation) -> tuple[int, bool]:
    """Return the possible number of messages, and whether last words can follow them all.

    Only for conversations in which no ``&`` contains a cap on messages. A path of plain turns then
    reaches the cap, and continues with last words if a stopper's task is completed at the latest
    moment.
    """
    rules = Rules.of(conversation)
    caps = [end.limit for end in _lone(conversation.end_chat.when) if isinstance(end, MaxMessages)]
    before = len(rules.private) + (len(rules.names) if rules.opening_answers else 0)
    most = min([before + len(rules.names) * rules.cap, *caps])
    extra = {
        EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION.value: 1,
        EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION.value: len(rules.names),
    }.get(rules.mode, 0)
    stoppers_turns = [
        said
        for turn, said in enumerate(range(before + 1, most + 1))
        if not (rules.waits and turn == 0 and not rules.opening_answers)
        and ((rules.chosen and turn) or rules.order[turn % len(rules.names)] in rules.stoppers)
    ]
    least = before + len(rules.names) * rules.least
    if any(said < least for said in stoppers_turns):
        # R5: a speaker that was done earlier waits until then with the others' last words.
        stoppers_turns = [*(said for said in stoppers_turns if said > least), least]
    at_the_cap = not extra or most in stoppers_turns
    return max([most, *(said + extra for said in stoppers_turns)]), at_the_cap


_STAGES = {"private": " in private", "opening": " opening", "last_words": " last words"}


@dataclass
class TurnWalk(Walk):
    """A walk that notes which turn follows which."""

    pairs: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of turns, by the speaker and the stage, such as "Ann opening"; also "Start" and "The
    end"."""

    def _turn(self, position: Position) -> Decision:
        decision = super()._turn(position)
        if position.phase in BETWEEN_TURNS and decision.node is not Node.COMPLETION_JUDGE:
            start, to = "Start", decision.speaker + _STAGES.get(decision.stage, "")
            if position.speaker is not None:
                start = position.speaker + _STAGES.get(position.stage, "")
            self.pairs.add((start, "The end" if decision.node is Node.END else to))
        return decision
