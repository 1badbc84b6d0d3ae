"""A conversation by its published rules: an onlooker with an agenda of turns.

It follows the rules and not the engine, so that the two can be compared. The onlooker knows the
whole agenda from the start, removes finished turns, and rewrites it when a speaker's task is
complete. It knows neither texts nor the log; `reckoning` has the facts about messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from duologue.graphs import Conversation, DoneToken, HumanReply, SeparateJudge
from oracle.reckoning import (
    ALL,
    CAP,
    GUARD,
    HARD,
    SAID,
    VERDICT,
    Held,
    Tally,
    held_of,
    names_a_stop,
    rung_of,
)
from support.ends import End, leaves

Spent = tuple[tuple[str, float], ...]
"""Used amounts, by the reason for their limit."""


class Person(NamedTuple):
    """A person who speaks for a speaker."""

    mode: str
    most: int
    """Maximum number of automatic replies in a row."""
    predicate: str | None
    """Predicate that recognizes termination messages. The word does if None."""
    alone: bool
    """No other source replies in the person's place."""


@dataclass(frozen=True)
class Rules:
    """The parts of a conversation that the published rules mention."""

    mode: str
    cap: int
    least: int
    """R5: minimum number of rounds, except for budgets, errors, people and stops."""
    names: tuple[str, ...]
    stoppers: tuple[str, ...]
    first: str | None = None
    opening_answers: bool = False
    private: tuple[str, ...] = ()
    """Speakers with a private prompt."""
    separate: bool = False
    """A separate judge decides."""
    final: bool = False
    """R6: the judge is asked once more at a cap."""
    waits: bool = False
    """R19: a separate judge is asked only after two speakers have spoken."""
    chosen: bool = False
    """The next speaker is chosen."""
    answered: frozenset[tuple[str | None, str]] = frozenset()
    """R20: the done tokens that wait for an answer, with their speakers. Any speaker if None."""
    when: End | None = None
    guards: dict[str, int] = field(default_factory=dict)
    runners: tuple[str, ...] = ()
    """Speakers that run the code that they hear."""
    errors: tuple[int, int] = (5, 5)
    """Numbers of call errors and tool errors in a turn that end the conversation."""
    people: dict[str, Person] = field(default_factory=dict)
    """People, by their speaker."""
    beginners: tuple[str, ...] = ()
    """Speakers with a first message."""
    known: dict[tuple[Tally, bool, bool, tuple[str, ...]], tuple[Held, ...]] = field(
        default_factory=dict
    )
    """Cache of `held`."""

    @classmethod
    def of(cls, conversation: Conversation) -> "Rules":
        end_chat, speakers = conversation.end_chat, conversation.speakers
        names = tuple(speaker.name for speaker in speakers)
        marked = tuple(speaker.name for speaker in speakers if speaker.checks_completion)
        separate = isinstance(conversation.judge, SeparateJudge)
        # An agenda has an end.
        assert end_chat.max_iterations is not None
        return cls(
            mode=end_chat.mode.value,
            cap=end_chat.max_iterations,
            least=end_chat.min_iterations,
            names=names,
            # If no speaker checks completion, a separate judge is asked after every turn.
            stoppers=names if separate and not marked else marked,
            first=conversation.opening.first_speaker,
            opening_answers=conversation.opening.answers,
            private=tuple(
                speaker.name
                for speaker in speakers
                if speaker.private_opening is not None and speaker.private_opening.prompt
            ),
            separate=separate,
            final=isinstance(conversation.judge, SeparateJudge)
            and conversation.judge.final_verdict,
            waits=separate and not end_chat.allow_unanswered_end and end_chat.min_iterations == 0,
            chosen=conversation.turn_order.kind != "round_robin",
            answered=frozenset(
                (end.by, end.token)
                for _, end in leaves(end_chat.when)
                if isinstance(end, DoneToken) and end.answered
            ),
            when=end_chat.when,
            guards=end_chat.guards.model_dump(),
            runners=tuple(
                speaker.name
                for speaker in speakers
                if any(reply.kind == "code" for reply in speaker.replies)
            ),
            errors=(conversation.max_call_errors, conversation.max_tool_errors),
            people={
                speaker.name: Person(
                    reply.human_input_mode.value,
                    reply.max_consecutive_auto_reply,
                    reply.is_termination,
                    alone=speaker.replies[-1] is reply,
                )
                for speaker in speakers
                for reply in speaker.replies
                if isinstance(reply, HumanReply)
            },
            beginners=tuple(
                speaker.name for speaker in speakers if getattr(speaker.replies[0], "once", False)
            ),
        )

    @property
    def waits_for_tasks(self) -> bool:
        """R7: return whether an open task delays the farewells guard; a standstill ends it then."""
        return self.mode != "max_iterations_only" and bool(self.guards["standstill"])

    def around(self, first: str) -> tuple[str, ...]:
        """Return a whole round that begins with this speaker."""
        at = self.names.index(first)
        return tuple(self.names[(at + n) % len(self.names)] for n in range(len(self.names)))

    @property
    def order(self) -> tuple[str, ...]:
        """Y4, Y5: return the first round; by default, the shift's owner is B."""
        return self.around(self.first or self.names[1 if self.opening_answers else 0])

    def held(
        self, tally: Tally, completed: bool, at_the_cap: bool, people: tuple[str, ...] = ()
    ) -> tuple[Held, ...]:
        """Return all ends that are met, the strongest first."""
        key = (tally, completed, at_the_cap, people)
        if key not in self.known:
            held = [*self._noted(tally)]
            held += [Held(rung_of(reason), (reason,)) for reason in people]
            if completed:
                held.append(Held(VERDICT, ("completed",)))
            if at_the_cap:
                held.append(Held(CAP, ("max_iterations",)))
            held.sort(key=lambda one: (one.rung, [*map(ALL.index, one.reasons)]))
            self.known[key] = tuple(held)
        return self.known[key]

    def _noted(self, tally: Tally) -> Iterator[Held]:
        if tally.stop and not names_a_stop(self.when):
            yield Held(HARD, ("stop_requested",))
        yield from held_of(self.when, tally)
        # Y19: the two kinds are counted separately.
        if tally.call_errors >= self.errors[0]:
            yield Held(HARD, ("call_errors",))
        if tally.tool_errors >= self.errors[1]:
            yield Held(HARD, ("tool_errors",))
        counts = {
            "unreadable_verdicts": tally.unreadable,
            "role_flips": max((count for _, count in tally.flips), default=0),
            "blank_replies": tally.blanks,
            "same_replies": tally.same,
            "farewells": 0 if self.waits_for_tasks else tally.farewells,
            "standstill": tally.still,
            "echo": tally.echo,
            "same_tool_calls": tally.equal_calls,
        }
        for guard, count in counts.items():
            if self.guards[guard] and count >= self.guards[guard] and not tally.early:
                yield Held(GUARD, (guard,))


class Came(NamedTuple):
    """The result of a round of calls."""

    call_errors: int = 0
    tool_errors: int = 0
    worked: bool = True
    """At least one call succeeded."""


ALL_WORKED = Came()


def _failed(row: int, errors: int, came: Came) -> int:
    """Y19: return the errors of a kind after a round: in a row, since no two of them are equal."""
    return min(errors, 1) if came.worked else row + min(errors, 1)


@dataclass(frozen=True)
class Turn:
    """A message and its effects."""

    text: str = "plain"
    """One of `reckoning.TEXTS`."""
    tokens: frozenset[str] = frozenset()
    """Done tokens in the message."""
    true: frozenset[str] = frozenset()
    """Predicates that are met after the message."""
    code: bool = False
    """The message contains code."""
    stop: bool = False
    """A stop was requested during the turn."""
    word: bool = False
    """The message ends with the word of termination messages."""


class Table(NamedTuple):
    """The onlooker's knowledge at one moment."""

    agenda: tuple[tuple[str, str | None], ...]
    """The remaining turns: part of the conversation, and speaker if known. If `within` is set, the
    first one has already begun.
    """
    question: str | None = None
    """The open question: a "verdict", a "final" verdict, or a "choice" of the next speaker."""
    latest: str | None = None
    """The speaker of the current or the last turn."""
    within: str | None = None
    """The last event within a turn, or between the judge's two questions."""
    tool_rounds: int = 0
    drafted: bool = False
    cut: bool = False
    complete: tuple[str, ...] = ()
    in_rounds: int = 0
    over: bool = False
    capped: bool = False
    """The last requested verdict is a final one."""
    tally: Tally = Tally()
    left: str | None = None
    """The way in which a person has ended it."""

    @classmethod
    def laid(cls, rules: Rules, spent: Spent = ()) -> "Table":
        """Return the table at the start, when the task is final."""
        # Y16, Y4: private prompts first, then each speaker answers alone, in order.
        private = tuple(("private", name) for name in rules.private)
        alone = tuple(("opening", name) for name in rules.names if rules.opening_answers)
        # Y3: in a round everyone speaks once, and opening answers are not counted.
        rounds: tuple[tuple[str, str | None], ...]
        rounds = tuple(("rounds", name) for name in rules.order) * rules.cap
        if rules.chosen:
            # Y20: each turn except the first is chosen.
            rounds = (rounds[0], *(("rounds", None) for _ in rounds[1:]))
        return cls((*private, *alone, *rounds), tally=Tally(spent=spent))._at_once(rules)

    @property
    def speaking(self) -> str:
        """Return the speaker of the current or the next turn."""
        name = self.agenda[0][1]
        assert name is not None
        return name

    @property
    def part(self) -> str:
        """Return the part of the conversation that the turn belongs to."""
        return self.agenda[0][0]

    @property
    def last_words(self) -> bool:
        """Return whether promised last words remain."""
        return any(part == "last_words" for part, _ in self.agenda)

    def after_summary(self, rules: Rules, spent: Spent = ()) -> "Table":
        """Return the table after a summary, with which a turn may begin."""
        assert self.within in (None, "passed")
        assert self.question is None
        return self._within("summary", spent)._at_once(rules)

    def after_answer(self, spent: Spent = ()) -> "Table":
        """Return the table after an answer that hooks must see; nothing ends here."""
        assert self.within not in ("answer", "call", "ran", "code", "code_ran")
        return self._within("answer", spent)

    def after_draft(self, rules: Rules, spent: Spent = ()) -> "Table":
        """Return the table after a rejected reply, which no speaker hears."""
        table = self._within("draft", spent)._replace(drafted=True)
        return table._at_once(rules)

    def after_cut(self, rules: Rules, spent: Spent = ()) -> "Table":
        """R3: return the table after a reply that was cut off, whose rest is requested."""
        table = self._within("cut", spent)._replace(cut=True)
        return table._at_once(rules)

    def after_call(self, rules: Rules, call: str, spent: Spent = ()) -> "Table":
        """Return the table after a tool call, before the tools run."""
        table = self._within("call", spent)
        table = table._replace(tally=table.tally.calling(call))._at_once(rules)
        loops = any("same_tool_calls" in held.reasons for held in table.held(rules))
        # The call is not run once more, but promised last words are still spoken.
        promised = table.last_words or table._is_answer_due(rules)
        return table._replace(over=table.over or (loops and not promised))

    def after_run(self, spent: Spent = ()) -> "Table":
        """Return the table after a run of tools whose results hooks must see; nothing ends here."""
        assert self.within in ("call", "code")
        return self._within("ran" if self.within == "call" else "code_ran", spent)

    def after_results(
        self,
        rules: Rules,
        tools: frozenset[str] = frozenset(),
        spent: Spent = (),
        came: Came = ALL_WORKED,
    ) -> "Table":
        """Return the table after results; `tools` are the tools that succeeded."""
        return self._answered("results", tools, spent, came)._if_said(rules)

    def after_output(self, tools: frozenset[str] = frozenset(), spent: Spent = ()) -> "Table":
        """Return the table after results that are the message, which comes before any end."""
        return self._answered("given", tools, spent, ALL_WORKED)

    def after_code(self, rules: Rules, spent: Spent = ()) -> "Table":
        """Return the table before the speaker runs code."""
        assert self.within in (None, "passed", "summary")
        return self._within("code", spent)._at_once(rules)

    def after_code_run(self, spent: Spent = ()) -> "Table":
        """Return the table after a run of code: its output is the message, and no tool result."""
        assert self.within in ("code", "code_ran")
        return self._within("given", spent)

    def _answered(self, what: str, tools: frozenset[str], spent: Spent, came: Came) -> "Table":
        table = self._within(what, spent)
        tally = table.tally
        tally = tally._replace(
            called=tally.called | {(table.speaking, tool) for tool in tools},
            call_errors=_failed(tally.call_errors, came.call_errors, came),
            tool_errors=_failed(tally.tool_errors, came.tool_errors, came),
        )
        # Z7: only a round with a successful call counts.
        return table._replace(tally=tally, tool_rounds=self.tool_rounds + came.worked)

    def asked(self, rules: Rules) -> tuple[str, str | None] | None:
        """Return the reason to ask a person and the meaning of no answer, or None."""
        name, aloud = self.speaking, self.part in ("rounds", "last_words")
        person = rules.people.get(name)
        if person is None or person.mode == "NEVER" or (aloud and self._begins(rules, name)):
            return None
        if aloud and self._is_told(rules, name):
            return "termination", "stop"
        if person.mode == "ALWAYS":
            # A4: the cap is ignored.
            return "turn", None if person.alone else "auto_reply"
        if aloud and self._is_used_up(rules, name):
            # A5: if no reply may be automatic, the person's silence ends it.
            return "max_consecutive_auto_reply", "auto_reply" if person.most else "stop"
        return None

    def after_passing(self, rules: Rules, spent: Spent = ()) -> "Table":
        """Return the table after a person left the reply to another source."""
        assert self.within is None
        return self._within("passed", spent)._at_once(rules)

    def after_leaving(self, how: str) -> "Table":
        """Return the table after a person has ended the conversation."""
        assert self.within is None
        return self._within("left", ())._replace(left=how, over=True)

    def after_turn(
        self, rules: Rules, turn: Turn, spent: Spent = (), *, by_person: bool = False
    ) -> "Table":
        """Return the table after a message."""
        (part, _), *rest = self.agenda
        name = self.speaking
        tally = self.tally
        # Before the rounds no other speaker hears the message, so it ends nothing and is not judged
        # (Y9).
        if part in ("rounds", "last_words"):
            new = frozenset((name, token) for token in turn.tokens) - tally.said
            waits = {one for one in new if rules.answered & {(name, one[1]), (None, one[1])}}
            still = {one for one in tally.open if one[0] == name}
            tally = tally.heard(name, turn.text)._replace(
                said=tally.said | new, open=frozenset(still | waits), true=turn.true
            )
            if rules.runners:
                code = (name, None) if turn.code else (None, name)
                tally = tally._replace(code=code[0], no_code=code[1])
            if rules.people:
                # The first message does not count.
                if name in rules.people and not self._begins(rules, name):
                    tally = tally.replied(name, by_person=by_person)
                told = (other for other in rules.people if turn.word and other != name)
                begun = tally.begun | ({name} & {*rules.beginners})
                tally = tally._replace(said_by=name, begun=begun, told=tuple(told))
        tally = tally._replace(
            messages=tally.messages + 1,
            equal_calls=0,
            call=None,
            call_errors=0,
            tool_errors=0,
            stop=tally.stop or turn.stop,
        )
        if rules.separate and part != "private":
            tally = tally._replace(only=name if tally.only in ("", name) else None)
        asks = (
            part == "rounds"
            and not (rules.waits and tally.only)  # R19
            and rules.mode != "max_iterations_only"  # Y11
            and name in rules.stoppers
            and name not in self.complete  # Y15
        )
        table = self._replace(
            agenda=tuple(rest),
            question="verdict" if asks else None,
            latest=name,
            within=None,
            tool_rounds=0,
            drafted=False,
            cut=False,
            in_rounds=self.in_rounds + (part == "rounds"),
            tally=_spending(tally, spent),
        )
        if self.complete and self._is_early(rules) and not table._is_early(rules):
            # R5: a speaker that was done earlier now lets the others speak their last words.
            table = table._promised(rules, name)
        # Z4: a message that ends the conversation is neither answered nor judged.
        table = table._if_said(rules)
        # A verdict may change the reason and add last words, so guards and caps wait for it.
        return table if asks else table._if_anything(rules)._if_unjudged(rules)

    def between_questions(self, rules: Rules, spent: Spent = ()) -> "Table":
        """Return the table between the judge's two questions."""
        table = self._replace(within="halfway", tally=_spending(self.tally, spent))
        return table._at_once(rules)

    def between_tries(self, rules: Rules, spent: Spent = ()) -> "Table":
        """R17: return the table after an unreadable verdict, before the second request."""
        table = self._replace(
            within="unread",
            capped=self.question == "final",
            tally=_spending(self.tally, spent),
        )
        return table._at_once(rules)

    def after_verdict(
        self, rules: Rules, complete: bool | None, *, stop: bool = False, spent: Spent = ()
    ) -> "Table":
        """Return the table after a verdict; None is twice unreadable, which means not complete."""
        name = self.latest
        assert name is not None
        unreadable = self.tally.unreadable + 1 if complete is None else 0
        if self.question == "final":
            # R6: it only affects the outcome.
            complete, unreadable = False, self.tally.unreadable
        tally = self.tally._replace(unreadable=unreadable, stop=self.tally.stop or stop)
        table = self._replace(
            question=None,
            within=None,
            capped=self.question == "final",
            tally=_spending(tally, spent),
        )
        if complete:
            # A separate judge judges all tasks at once.
            who = rules.stoppers if rules.separate else (*self.complete, name)
            table = table._replace(complete=who)
            if not self._is_early(rules):
                table = table._promised(rules, name)
        return table._if_said(rules)._if_anything(rules)

    def _promised(self, rules: Rules, name: str) -> "Table":
        """Return the table with the last words that follow a completed task."""
        nexts = (*rules.around(name)[1:], name)
        if rules.mode == "one_last_chat_after_first_completion":  # Y13
            return self._replace(agenda=(("last_words", nexts[0]),))
        if rules.mode == "one_last_group_chat_after_first_completion":  # Y14
            return self._replace(agenda=tuple(("last_words", other) for other in nexts))
        return self

    def between_choices(self, rules: Rules, spent: Spent = ()) -> "Table":
        """R30: return the table after an unreadable choice, before the second request."""
        table = self._replace(within="unchosen", tally=_spending(self.tally, spent))
        return table._at_once(rules)

    def after_choice(
        self, rules: Rules, name: str | None, *, stop: bool = False, spent: Spent = ()
    ) -> "Table":
        """Return the table after a choice of the next speaker; if None, the order decides."""
        assert self.latest is not None
        chosen = name or rules.around(self.latest)[1]
        if self.tally.open and chosen == self.latest:
            # R20: another speaker must answer.
            chosen = rules.around(self.latest)[1]
        tally = self.tally._replace(stop=self.tally.stop or stop)
        table = self._replace(
            agenda=(("rounds", chosen), *self.agenda[1:]),
            question=None,
            within=None,
            tally=_spending(tally, spent),
        )
        return table._if_said(rules)._if_anything(rules)

    def held(self, rules: Rules) -> tuple[Held, ...]:
        """Return all ends that are met, the strongest first."""
        if rules.mode == "all_task_must_complete":
            completed = set(rules.stoppers) <= set(self.complete)
        else:
            completed = bool(self.complete)
        at_the_cap = self.in_rounds >= rules.cap * len(rules.names)
        people = (self.left,) if self.left else tuple(self._never_asked(rules))
        tally = self.tally._replace(early=self._is_early(rules))
        return rules.held(tally, completed and not tally.early, at_the_cap, people)

    def _is_early(self, rules: Rules) -> bool:
        """R5: return whether fewer rounds than the minimum are complete."""
        return self.in_rounds < rules.least * len(rules.names)

    def reasons(self, rules: Rules) -> tuple[str, ...]:
        """Return all reasons, the strongest first; after a final verdict, the caps come first."""
        held = self.held(rules)
        if self.capped:
            held = (
                *(one for one in held if one.rung == CAP),
                *(one for one in held if one.rung != CAP),
            )
        return tuple(dict.fromkeys(reason for one in held for reason in one.reasons))

    def _never_asked(self, rules: Rules) -> Iterator[str]:
        """A3: yield the reasons to end it at the turn of a person who is never asked."""
        if not rules.people or self.within is not None or self.latest is None:
            return
        if self.agenda:
            part, name = self.agenda[0]
        else:
            # Without the caps, the next speaker in order would follow, unless speakers are chosen.
            part, name = "rounds", None if rules.chosen else rules.around(self.latest)[1]
        if name not in rules.people or part not in ("rounds", "last_words"):
            return
        assert name is not None
        if rules.people[name].mode != "NEVER" or self._begins(rules, name):
            return
        if self._is_told(rules, name) and not self._is_early(rules):
            yield "termination"
        if self._is_used_up(rules, name):
            yield "max_consecutive_auto_reply"

    def _begins(self, rules: Rules, name: str) -> bool:
        return name in rules.beginners and name not in self.tally.begun

    def _is_told(self, rules: Rules, name: str) -> bool:
        """A6, A7: return whether another's message terminates it; code next to it must have run."""
        tally = self.tally
        if tally.said_by in (None, name) or (tally.code is not None and name in rules.runners):
            return False
        predicate = rules.people[name].predicate
        return name in tally.told if predicate is None else predicate in tally.true

    def _is_used_up(self, rules: Rules, name: str) -> bool:
        given = dict(self.tally.automatic).get(name, 0)
        # A speaker that has replied may be chosen again although no other has spoken since.
        answers = self.tally.said_by not in (None, name) or given > 0
        return answers and given >= rules.people[name].most

    def _within(self, what: str, spent: Spent) -> "Table":
        return self._replace(within=what, latest=self.speaking, tally=_spending(self.tally, spent))

    def _at_once(self, rules: Rules) -> "Table":
        """End it if a hard stop is met, also in the middle of a turn."""
        return self._over_by(rules, HARD)

    def _if_said(self, rules: Rules) -> "Table":
        return self._over_by(rules, SAID)

    def _if_anything(self, rules: Rules) -> "Table":
        """End it if any end is met, but let promised last words be spoken first."""
        promised = self.last_words or self._is_answer_due(rules)
        table = self if promised else self._over_by(rules, CAP)
        if promised and not table.agenda:
            assert self.latest is not None
            following = None if rules.chosen else rules.around(self.latest)[1]
            table = table._replace(agenda=(("rounds", following),))
        unknown = bool(table.agenda) and table.agenda[0][1] is None
        return table._replace(question="choice" if unknown and not table.over else None)

    def _is_answer_due(self, rules: Rules) -> bool:
        """R20: return whether an answer to a done token would end it."""
        if self._is_early(rules):
            return False
        answered = self.tally._replace(open=frozenset())
        return {*held_of(rules.when, answered)} > {*held_of(rules.when, self.tally)}

    def _if_unjudged(self, rules: Rules) -> "Table":
        """R6: at a cap, ask a separate judge about the messages since its last verdict."""
        capped = {"max_messages", "max_iterations"} & {*self.reasons(rules)}
        if not (self.over and rules.final and capped and self.held(rules)[0].rung == CAP):
            return self
        return self._replace(over=False, question="final")

    def _over_by(self, rules: Rules, weakest: int) -> "Table":
        # A7: a message with code does not count until the code has run; all other ends do.
        void = SAID if self._code_waits(rules) else None
        ends = any(one.rung <= weakest and one.rung != void for one in self.held(rules))
        return self._replace(over=True) if ends else self

    def _code_waits(self, rules: Rules) -> bool:
        """Return whether the next turn would run this turn's code if there were no caps."""
        if self.within is not None or self.tally.code is None or self.tally.code != self.latest:
            return False
        known = self.agenda[0][1] if self.agenda else None
        # Until the next speaker is chosen, assume the next one in order.
        following = known or rules.around(self.latest)[1]
        # A first message comes before any code.
        begins = self._begins(rules, following)
        return following != self.latest and following in rules.runners and not begins


def _spending(tally: Tally, spent: Spent) -> Tally:
    return tally._replace(spent=spent) if spent else tally
