"""How a conversation goes, by its published rules: an onlooker with an agenda of turns.

Written from the rules and not from the engine, so that the two can be compared. The onlooker
knows the whole agenda beforehand, crosses turns off, and rewrites it when somebody is done. What
a message says and what is in the log is not here.
"""

from dataclasses import dataclass, replace

from duologue.graphs.spec import Conversation

ORDER = ("done_token", "completed", "role_flips", "max_iterations")
"""The reasons, the strongest first."""


@dataclass(frozen=True)
class Rules:
    """What the published rules speak of, and nothing else of a conversation."""

    mode: str
    cap: int
    names: tuple[str, ...]
    stoppers: frozenset[str]
    first: str | None = None
    opening_answers: bool = False
    allowed_flips: int = 2

    @classmethod
    def of(cls, conversation: Conversation) -> "Rules":
        return cls(
            mode=conversation.end_chat.mode.value,
            cap=conversation.end_chat.max_iterations,
            names=tuple(speaker.name for speaker in conversation.speakers),
            stoppers=frozenset(
                speaker.name for speaker in conversation.speakers if speaker.stops_chat
            ),
            first=conversation.opening.first_speaker,
            opening_answers=conversation.opening.answers,
            allowed_flips=conversation.end_chat.max_role_flips,
        )

    def around(self, first: str) -> tuple[str, ...]:
        """One whole table turn that begins with this speaker."""
        at = self.names.index(first)
        return tuple(self.names[(at + n) % len(self.names)] for n in range(len(self.names)))


@dataclass(frozen=True)
class Table:
    """What an onlooker knows at one moment."""

    agenda: tuple[tuple[str, str], ...]
    """The turns still to come: the part of the conversation, and who speaks."""
    question: str | None = None
    """Who is being asked whether its task is complete."""
    done: bool = False
    complete: tuple[str, ...] = ()
    flips: tuple[tuple[str, int], ...] = ()
    in_rounds: int = 0

    @classmethod
    def laid(cls, rules: Rules) -> "Table":
        # Y4, Y5: each answers alone, in order; then the shift's owner, B unless told otherwise.
        alone = tuple(("opening", name) for name in rules.names if rules.opening_answers)
        first = rules.first or rules.names[1 if rules.opening_answers else 0]
        # Y3: in a round everyone speaks once, and opening answers are not counted.
        rounds = tuple(("rounds", name) for name in rules.around(first)) * rules.cap
        return cls(agenda=alone + rounds)

    def after_turn(self, rules: Rules, *, done: bool = False, flip: bool = False) -> "Table":
        """What follows a message."""
        (part, name), *rest = self.agenda
        if part == "opening":
            # Nobody hears it, so nothing in it ends anything; and nobody is asked (Y9).
            return replace(self, agenda=tuple(rest))
        flips = dict(self.flips)
        if flip:
            flips[name] = flips.get(name, 0) + 1
        after = replace(
            self,
            agenda=tuple(rest),
            done=done,
            flips=tuple(sorted(flips.items())),
            in_rounds=self.in_rounds + (part == "rounds"),
        )
        if done:
            return replace(after, agenda=())  # Z4: it is never answered
        asks = (
            part == "rounds"
            and rules.mode != "max_iterations_only"  # Y11
            and name in rules.stoppers
            and name not in self.complete  # Y15
        )
        if asks:
            return replace(after, question=name)
        return after.guarded(rules)

    def after_verdict(self, rules: Rules, *, complete: bool) -> "Table":
        """What follows a verdict."""
        name = self.question
        assert name is not None
        table = replace(self, question=None)
        if complete:
            table = replace(table, complete=(*self.complete, name))
            nexts = (*rules.around(name)[1:], name)
            if rules.mode == "end_chat_after_first_completion":  # Y12
                table = replace(table, agenda=())
            elif rules.mode == "one_last_chat_after_first_completion":  # Y13
                table = replace(table, agenda=(("last_words", nexts[0]),))
            elif rules.mode == "one_last_group_chat_after_first_completion":  # Y14
                table = replace(table, agenda=tuple(("last_words", other) for other in nexts))
            elif rules.stoppers <= set(table.complete):  # Y15
                table = replace(table, agenda=())
        return table.guarded(rules)

    def guarded(self, rules: Rules) -> "Table":
        """Flipped roles cancel what is to come, save last words that were promised."""
        last_words = any(part == "last_words" for part, _ in self.agenda)
        if self.too_flipped(rules) and not last_words:
            return replace(self, agenda=())
        return self

    def too_flipped(self, rules: Rules) -> bool:
        return any(count >= rules.allowed_flips for _, count in self.flips)

    @property
    def over(self) -> bool:
        return not self.agenda and self.question is None

    def reasons(self, rules: Rules) -> tuple[str, ...]:
        """Every reason that holds, the strongest first."""
        if rules.mode == "all_task_must_complete":
            completed = rules.stoppers <= set(self.complete)
        else:
            completed = bool(self.complete)
        holds = (
            self.done,
            completed,
            self.too_flipped(rules),
            self.in_rounds >= rules.cap * len(rules.names),
        )
        return tuple(reason for reason, held in zip(ORDER, holds, strict=True) if held)
