"""Which ways a conversation can take, found by walking through the rules that decide of it.

Where it turns on what is said, each possibility is walked. What any conversation may do at any
time, such as asking again or ending by a guard, is no way of its own.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from ..common.validation import list_names
from ..conversation.conversation import Conversation
from ..conversation.handoffs import hand_off_targets
from ..conversation.judges import Handoff, RoundRobin, SeparateJudge, TurnFunction
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
    """What a place is."""

    START = "start"
    TASK = "task"  # it is made more specific
    SPEAKER = "speaker"
    TOOLS = "tools"
    CODE = "code"
    JUDGE = "judge"
    CHOICE = "choice"  # of who speaks next
    END = "end"


class Place(NamedTuple):
    """Where a conversation may be."""

    kind: Kind
    speaker: str | None = None  # whose turn, tools or task it is
    stage: Stage = Stage.ROUNDS  # the part of the conversation, of a speaker


class Way(NamedTuple):
    """What may follow what."""

    start: Place
    to: Place
    when: str = ""  # on what condition, in a few words


def ways(conversation: Conversation) -> list[Way]:
    """Find the ways that a conversation can take, each once, in the order it comes to them."""
    return _Walk(_shortened(conversation), conversation).ways()


_ROUNDS = 3
"""So many rounds show all that can follow one another, and where the caps end it."""


def _shortened(conversation: Conversation) -> Conversation:
    """Take whole rounds off its caps: one round is like the other."""
    end_chat, count = conversation.end_chat, len(conversation.speakers)
    when = end_chat.when
    caps = [cap // count for cap in message_caps(when)]
    rounds = min(
        caps if end_chat.max_iterations is None else [*caps, end_chat.max_iterations],
        default=_ROUNDS,
    )
    least = min(1, end_chat.min_iterations)
    is_chosen = not isinstance(conversation.turn_order, RoundRobin)
    # In a round of many who are chosen each may follow each.
    off = max(0, rounds - least - (1 if is_chosen and count > _MANY else _ROUNDS))
    if is_chosen:
        # A few may take turns among themselves, and whose turn the last one is then depends on it.
        off -= off % (2 if count > _MANY else _CYCLES)
    update = {
        "min_iterations": least,
        "max_iterations": end_chat.max_iterations and end_chat.max_iterations - off,
        "when": None if when is None else _with_fewer(when, off * count),
    }
    return conversation.model_copy(update={"end_chat": end_chat.model_copy(update=update)})


_MANY = 4
"""Among more speakers there are too many ways to walk more of them."""

_CYCLES = 12
"""A multiple of 2, 3 and 4: so many turns may a cycle have among a few."""


def _with_fewer(end: BaseEnd, messages: int) -> BaseEnd:
    if isinstance(end, AnyOf):
        return end.model_copy(update={"of": tuple(_with_fewer(one, messages) for one in end.of)})
    if end.most_messages is not None:
        return end.model_copy(update={"limit": max(1, end.most_messages - messages)})
    return end


class _Walk:
    def __init__(self, conversation: Conversation, whole: Conversation) -> None:
        self._conversation = conversation
        self._whole = whole  # with its own caps, for words
        self._found: dict[Way, None] = {}
        self._known: set[object] = set()
        self._open: list[tuple[Place, Position, str]] = []

    def ways(self) -> list[Way]:
        """Walk."""
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
        """Walk on from here, unless that was done."""
        has_cap = self._conversation.end_chat.max_iterations is not None
        if not has_cap and position.rounds(self._conversation) > _ROUNDS + 1:
            return
        done, stoppers = {*position.completed}, {*self._conversation.stoppers}
        if 1 < len(done) < len(stoppers) - 1:
            # More of them change nothing here, until only one has not completed its task.
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
        """Whether one of these was not come to yet."""
        known = self._known.issuperset(keys)
        self._known.update(keys)
        return not known

    def _on(self, place: Place, position: Position, when: str) -> None:
        """Go on between turns."""
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
        """Go on with each who may be chosen."""
        # Whoever spoke before, a turn that begins at the same time goes on alike.
        time = position.turns, position.completed
        for name in names:
            if self._is_new((place, when, name), (*time, name)):
                self._later(place, after_choice(self._conversation, position, name), when)

    def _next(self, speaker: str) -> list[str]:
        """Who may be chosen to speak next."""
        if isinstance(self._conversation.turn_order, TurnFunction):
            return list(self._conversation.names)
        return [name for name in self._conversation.names if name != speaker]

    def _turn(self, place: Place, position: Position, turn: Decision) -> None:
        """Take a turn, with all that may happen in it."""
        conversation = self._conversation
        speaker = conversation.speaker(turn.speaker)
        if speaker.tools and speaker.has_model and turn.stage in ALOUD:
            self._tools(place, position, turn, speaker)
        if speaker.runs_code and turn.stage in ALOUD and position.speaker is not None:
            code = self._go(place, Place(Kind.CODE, speaker.name), "there is code")
            self._go(code, place, "what came of it")
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
        when = f"a person approves of {list_names(asked)}" if asked else "calls"
        tools = self._go(place, Place(Kind.TOOLS, speaker.name), f"{who} lets it" if who else when)
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
        """What may be known once a speaker has spoken, and may end it, in words and as facts."""
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
        """Say what ended it where nothing was said to that end."""
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
    """Return the facts with which an end is met by a speaker's turn; None if it has no part."""
    facts, has_part = Facts(), False
    for _, one in leaves(end):
        facts, is_part = one.foresee(speaker, facts)
        has_part = has_part or is_part
    return facts if has_part else None
