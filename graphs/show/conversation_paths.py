"""The paths that a conversation can take, found by a walk through its rules.

If the next step depends on a message, every possibility is walked. Steps that any conversation may
take at any time, such as a retry or an end by a guard, are left out.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from ..common.validation import list_names
from ..conversation.conversation import Conversation
from ..conversation.handoffs import hand_off_targets
from ..conversation.judges import Concurrent, Handoff, RoundRobin, SeparateJudge, TurnFunction
from ..ends.all_ends import Reason
from ..ends.end import (
    AnyOf,
    BaseEnd,
    Strength,
    alternatives,
    count_of,
    leaves,
    lone,
    message_caps,
)
from ..ends.facts import Facts
from ..log.metadata import ALOUD, Stage
from ..rules.position import Leaving, Phase, Position
from ..rules.transitions import (
    Decision,
    Node,
    after_check,
    after_choice,
    after_leaving,
    after_pause,
    after_reply,
    after_verdict,
    decide,
)
from ..rules.turns import never_asked, watcher
from ..speakers.speaker import Speaker


class Kind(StrEnum):
    """The kind of a `Place`."""

    START = "start"
    TASK = "task"  # the task is made more specific
    SPEAKER = "speaker"
    TOOLS = "tools"
    CODE = "code"
    JUDGE = "judge"
    CHOICE = "choice"  # of the next speaker
    END = "end"


class Place(NamedTuple):
    """A point that a conversation can reach."""

    kind: Kind
    speaker: str | None = None  # the speaker of the turn, the tools or the task
    stage: Stage = Stage.ROUNDS  # the part of the conversation; for speakers


class Way(NamedTuple):
    """A step from one place to the next."""

    start: Place
    to: Place
    when: str = ""  # the condition in a few words


def ways(conversation: Conversation) -> list[Way]:
    """Return the steps that a conversation can take, each once, in the order of the walk."""
    return _Walk(_shortened(conversation), conversation).ways()


_ROUNDS = 3
"""Number of rounds that shows every possible sequence of steps and every end by a cap."""


def _shortened(conversation: Conversation) -> Conversation:
    """Return the conversation with lower caps. Whole rounds are removed, as all are alike."""
    end_chat, count = conversation.end_chat, len(conversation.speakers)
    when = end_chat.when
    caps = [cap // count for cap in message_caps(when)]
    rounds = min(
        caps if end_chat.max_iterations is None else [*caps, end_chat.max_iterations],
        default=_ROUNDS,
    )
    least = min(1, end_chat.min_iterations)
    is_chosen = not isinstance(conversation.turn_order, RoundRobin | Concurrent)
    # If the next speaker is chosen from many, any speaker may follow any other within one round.
    off = max(0, rounds - least - (1 if is_chosen and count > _MANY else _ROUNDS))
    if is_chosen:
        # A few speakers may alternate, so the parity of the rounds decides who speaks last.
        off -= off % (2 if count > _MANY else _CYCLES)
    update = {
        "min_iterations": least,
        "max_iterations": end_chat.max_iterations and end_chat.max_iterations - off,
        "when": None if when is None else _with_fewer(when, off * count),
    }
    return conversation.model_copy(update={"end_chat": end_chat.model_copy(update=update)})


_MANY = 4
"""With more speakers there are too many paths to walk more rounds."""

_CYCLES = 12
"""A multiple of 2, 3 and 4, the possible lengths of a cycle of turns among a few speakers."""


def _with_fewer(end: BaseEnd, messages: int) -> BaseEnd:
    if isinstance(end, AnyOf):
        return end.model_copy(update={"of": tuple(_with_fewer(one, messages) for one in end.of)})
    if end.most_messages is not None:
        return end.model_copy(update={"limit": max(1, end.most_messages - messages)})
    return end


class _Walk:
    def __init__(self, conversation: Conversation, whole: Conversation) -> None:
        self._conversation = conversation
        self._whole = whole  # with its own caps, for the descriptions
        self._found: dict[Way, None] = {}
        self._known: set[object] = set()
        self._open: list[tuple[Place, Position, str]] = []

    def ways(self) -> list[Way]:
        """Walk through the rules, and return the steps."""
        place = Place(Kind.START)
        if self._conversation.task_specification is not None:
            place = self._go(place, Place(Kind.TASK))
        self._later(place, Position())
        while self._open:
            self._on(*self._open.pop(0))
        return list(self._found)

    def _go(self, start: Place, to: Place, when: str = "") -> Place:
        self._found[Way(start, to, when)] = None
        return to

    def _later(self, place: Place, position: Position, when: str = "") -> None:
        """Add a position from which the walk continues, unless the walk has already been there."""
        has_cap = self._conversation.end_chat.max_iterations is not None
        if not has_cap and position.rounds(self._conversation) > _ROUNDS + 1:
            return
        done, stoppers = {*position.completed}, {*self._conversation.stoppers}
        if 1 < len(done) < len(stoppers) - 1:
            # More completed tasks change nothing until only one task is left.
            some = position.model_copy(update={"completed": ()})
            if not self._is_new(f"{place}{when}{some.model_dump_json()}, some completed"):
                return
            spoken = {*self._conversation.order[: position.turns]}
            for last in sorted(stoppers):
                if stoppers - {last} <= spoken:
                    most = {"completed": tuple(stoppers - {last})}
                    self._later(place, position.model_copy(update=most), when)
            return
        position = position.model_copy(update={"completed": tuple(sorted(done))})
        if self._is_new(f"{place}{when}{position.model_dump_json()}"):
            self._open.append((place, position, when))

    def _is_new(self, *keys: object) -> bool:
        """Return whether one of the keys is new."""
        known = self._known.issuperset(keys)
        self._known.update(keys)
        return not known

    def _on(self, place: Place, position: Position, when: str) -> None:
        """Continue the walk from a position between two turns."""
        conversation = self._conversation
        turn = decide(conversation, position)
        if turn.node is Node.END:
            self._go(place, Place(Kind.END), self._caps(turn.reasons[0]) or when)
        elif turn.node is not Node.COMPLETION_JUDGE:
            to = Place(Kind.SPEAKER, turn.speaker, turn.stage)
            self._turn(self._go(place, to, when), position, turn)
        elif turn.due is Phase.CHECKED:
            self._later(place, after_check(position), when)
        elif turn.due is Phase.JUDGED:
            separate = isinstance(conversation.judge, SeparateJudge)
            judge = self._go(place, Place(Kind.JUDGE, None if separate else turn.speaker), when)
            for complete, said in ((True, "yes"), (False, "no")):
                self._later(judge, after_verdict(conversation, position, complete=complete), said)
        elif isinstance(conversation.turn_order, Handoff):
            self._choose(place, position, hand_off_targets(conversation, turn.speaker), when)
        else:
            choice = self._go(place, Place(Kind.CHOICE), when)
            self._choose(choice, position, self._next(turn.speaker))

    def _choose(
        self, place: Place, position: Position, names: Sequence[str], when: str = ""
    ) -> None:
        """Continue the walk with each speaker that may be chosen."""
        # Turns with the same number and the same completed tasks continue alike, whoever spoke
        # before.
        time = position.turns, position.completed
        for name in names:
            if self._is_new((place, when, name), (*time, name)):
                self._later(place, after_choice(self._conversation, position, name), when)

    def _next(self, speaker: str) -> list[str]:
        """Return the speakers that may be chosen next."""
        if isinstance(self._conversation.turn_order, TurnFunction):
            return list(self._conversation.names)
        return [name for name in self._conversation.names if name != speaker]

    def _turn(self, place: Place, position: Position, turn: Decision) -> None:
        """Walk a turn, with everything that may happen in it."""
        conversation = self._conversation
        speaker = conversation.speaker(turn.speaker)
        if speaker.tools and speaker.has_model and turn.stage in ALOUD:
            self._tools(place, position, turn, speaker)
        if speaker.runs_code and turn.stage in ALOUD and position.speaker is not None:
            code = self._go(place, Place(Kind.CODE, speaker.name), "the message contains code")
            self._go(code, place, "the output")
        if speaker.human is not None and not never_asked(conversation, speaker.name):
            leaving = Leaving(by=speaker.name, reason="quit")
            if decide(conversation, after_leaving(position, turn, leaving)).node is Node.END:
                self._go(place, Place(Kind.END), "the person leaves")
        messages = position.facts.messages + (turn.stage is not Stage.PRIVATE)
        alone = messages == 1 and isinstance(conversation.judge, SeparateJudge)
        said = Facts(messages=messages, alone=alone)
        after = after_reply(conversation, position, turn).model_copy(update={"facts": said})
        self._later(place, after)
        for when, facts in self._ending(speaker) if turn.stage in ALOUD else ():
            ended = decide(conversation, after_check(after.model_copy(update={"facts": facts})))
            if ended.reasons and not self._caps(ended.reasons[0]):
                self._go(place, Place(Kind.END), when)

    def _tools(self, place: Place, position: Position, turn: Decision, speaker: Speaker) -> None:
        asked = [name for name, rule in speaker.interrupt_on.items() if rule]
        who = watcher(self._conversation, speaker.name)
        when = f"a person approves {list_names(asked)}" if asked else "calls"
        tools = self._go(
            place, Place(Kind.TOOLS, speaker.name), f"{who} lets the calls run" if who else when
        )
        self._go(tools, place, "results")
        for end in alternatives(self._conversation.end_chat.when):
            called = [one for _, one in leaves(end) if one.comes_of_tools]
            facts = _foreseen(end, speaker)
            if facts is None or not any(one.foresee(speaker, Facts())[1] for one in called):
                continue
            returned = after_pause(position, turn, Phase.RETURNED)
            if decide(self._conversation, returned.model_copy(update={"facts": facts})).node is (
                Node.END
            ):
                self._go(tools, Place(Kind.END), end.describe())

    def _ending(self, speaker: Speaker) -> Iterator[tuple[str, Facts]]:
        """Yield the possible ends by a speaker's message, each in words and as facts."""
        for end in alternatives(self._whole.end_chat.when):
            facts = _foreseen(end, speaker)
            if facts is not None and not all(one.comes_of_tools for _, one in leaves(end)):
                yield end.describe(), facts
        for other in self._conversation.speakers:
            human = other.human
            known = {"said_by": speaker.name, "heard_from": self._conversation.names}
            if human is None or other.name == speaker.name:
                continue
            if human.is_termination is None:
                said = f"says {human.termination}"
                yield said, Facts.model_validate({**known, "terminated": (other.name,)})
            most = human.max_consecutive_auto_reply
            used_up = count_of(most, "automatic reply", "automatic replies")
            yield used_up, Facts.model_validate({**known, "auto_replies": {other.name: most}})

    def _caps(self, reason: Reason) -> str:
        """Return the description of a cap, or an empty text if the reason is no cap."""
        end_chat = self._whole.end_chat
        if reason is Reason.MAX_ITERATIONS:
            return count_of(end_chat.max_iterations or 0, "round")
        caps = [
            end
            for end in lone(end_chat.when)
            if end.reason == reason and end.strength is Strength.CAP
        ]
        return min(caps, key=lambda end: end.most_messages or 0).describe() if caps else ""


def _foreseen(end: BaseEnd, speaker: Speaker) -> Facts | None:
    """Return the facts with which a speaker's turn meets an end condition, or None if it can't."""
    facts, has_part = Facts(), False
    for _, one in leaves(end):
        facts, is_part = one.foresee(speaker, facts)
        has_part = has_part or is_part
    return facts if has_part else None
