"""Drawings of conversations as Mermaid, SVG and PNG, made without a network."""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..common.errors import SpecError, hide_frames, how_to_install, list_names
from ..common.files import write_file
from ..common.sanitize import clean
from ..conversation.conversation import Conversation, hand_off_targets
from ..conversation.judges import (
    Concurrent,
    RoundRobin,
    SeparateJudge,
    TurnFunction,
)
from ..ends.end import BaseEnd, alternatives, count_of, leaves, lone
from ..ends.end_chat import EndChatMode
from ..ends.limits import Budget
from ..kinds.load import load_conversation
from ..log.metadata import Stage
from ..rules.turns import is_never_asked, last_words, watcher
from ..speakers.reply_parts import ALOUD
from ..speakers.speaker import Speaker

MERMAID: Final = (".mmd", ".mermaid", ".md")
"""The endings of files that contain Mermaid. In Markdown, the drawing is inside a fence."""

_PICTURES: Final = (".svg", ".png")

_MOST = 5
"""Maximum number of tools that are named. For the others, only their number is shown."""

_LONGEST = 60


@hide_frames
def draw(
    conversation: Conversation | Mapping[str, Any] | str | Path, file: str | Path | None = None
) -> str:
    """Draw the order of a conversation's steps: its speakers, its judge and its end conditions.

    No model is called. A step is drawn if the fields of the conversation allow it. Earlier messages
    can exclude it later: a speaker whose task is complete is not judged again.

    Args:
        conversation: The conversation, or a dict or a file that contains one.
        file: The file to write. A ``.svg`` or ``.png`` file needs the extra ``pictures``; a
            ``.mmd`` file contains Mermaid. If None, no file is written.

    Returns:
        The drawing as Mermaid.

    Raises:
        SpecError: The conversation is invalid, the format is unknown, the extra is missing, or
            the file can't be written.

    Example:
        >>> from duologue import draw, role_play
        >>> print(draw(role_play("Plan a garden", "Owner", "Gardener")).splitlines()[0])
        flowchart TD
    """
    if not isinstance(conversation, Conversation):
        conversation = load_conversation(conversation)
    text = mermaid(conversation)
    if file is not None:
        _write(text, Path(file))
    return text


def _write(text: str, file: Path) -> None:
    form = file.suffix.lower()
    if form in MERMAID:
        write_file(file, f"```mermaid\n{text}```\n" if form == ".md" else text)
        return
    if form not in _PICTURES:
        raise SpecError(
            f"{file}: unknown format; end the name in {list_names([*_PICTURES, MERMAID[0]])}"
        )
    try:
        import mermaidx  # type: ignore[import-untyped]  # an extra, and it takes a while
    except ImportError as error:
        raise SpecError(
            f"{file}: {form} files need more packages; {how_to_install('pictures')}, or write a "
            ".mmd file"
        ) from error
    picture = mermaidx.render(text)
    write_file(file, picture.svg() if form == ".svg" else picture.png(scale=2.0))


class Kind(StrEnum):
    """The kind of a node."""

    START = "start"
    TASK = "task"  # the task is made more specific
    SPEAKER = "speaker"
    TOOLS = "tools"
    CODE = "code"
    JUDGE = "judge"
    CHOICE = "choice"  # of the next speaker
    END = "end"


class Place(NamedTuple):
    """A node of the drawing."""

    kind: Kind
    speaker: str | None = None  # the speaker of the turn, the tools or the task
    stage: Stage = Stage.ROUNDS  # the part of the conversation; for speakers


class Edge(NamedTuple):
    """An edge of the drawing."""

    start: Place
    to: Place
    when: str = ""  # the condition in a few words


_START, _TASK, _CHOICE, _END = map(Place, (Kind.START, Kind.TASK, Kind.CHOICE, Kind.END))


def mermaid(conversation: Conversation) -> str:
    """Return the drawing of a conversation as Mermaid."""
    edges = _join_edges(conversation)
    places = dict.fromkeys(place for start, to in edges for place in (start, to))
    ids = {place: f"n{number}" for number, place in enumerate(places)}
    lines, looks = ["flowchart TD"], set()
    for place, name in ids.items():
        before, behind, look = _SHAPES[place.kind]
        if place.kind is Kind.SPEAKER and _is_person(conversation, place.speaker or ""):
            look = "person"
        looks.add(look)
        label = "<br/>".join(map(_escape_label, _label(conversation, place)))
        lines.append(f'    {name}{before}"{label}"{behind}:::{look}')
    for (start, to), when in edges.items():
        label = f'|"{_escape_label(when)}"|' if when else ""
        lines.append(f"    {ids[start]} -->{label} {ids[to]}")
    lines += [f"    classDef {name} {style}" for name, style in _LOOKS.items() if name in looks]
    return "\n".join(lines) + "\n"


_SHAPES: Final[Mapping[Kind, tuple[str, str, str]]] = {
    Kind.START: ("([", "])", "edge"),
    Kind.TASK: ("[", "]", "helper"),
    Kind.SPEAKER: ("(", ")", "speaker"),
    Kind.TOOLS: ("[[", "]]", "helper"),
    Kind.CODE: ("[[", "]]", "helper"),
    Kind.JUDGE: ("{{", "}}", "judge"),
    Kind.CHOICE: ("{{", "}}", "judge"),
    Kind.END: ("(", ")", "edge"),
}
"""For each kind of place the brackets around its label, and its style."""

_LOOKS: Final = {
    "edge": "fill:#f3f4f6,stroke:#6b7280,color:#111827",
    "speaker": "fill:#e0ecff,stroke:#3b6fd4,color:#111827",
    "person": "fill:#fdeccf,stroke:#c98a1b,color:#111827",
    "helper": "fill:#ffffff,stroke:#9ca3af,color:#111827",
    "judge": "fill:#e9f7ec,stroke:#3c9a55,color:#111827",
}


def _join_edges(conversation: Conversation) -> dict[tuple[Place, Place], str]:
    """Return the condition of each edge. All edges can be reached from the start."""
    edges, conditions = _Edges(conversation), dict[tuple[Place, Place], dict[str, None]]()
    places = [_START]
    for place in places:  # grows
        for start, to, when in edges.from_place(place):
            conditions.setdefault((start, to), {})[when] = None
            if to not in places:
                places.append(to)
    return {pair: "" if "" in when else " or ".join(when) for pair, when in conditions.items()}


class _Edges:
    """The edges of a conversation's drawing."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._is_chosen = not isinstance(conversation.turn_order, RoundRobin | Concurrent)
        self._is_concurrent = isinstance(conversation.turn_order, Concurrent)
        opened = conversation.names if conversation.opening.answers else ()
        private = [_place(name, Stage.PRIVATE) for name in conversation.secretive]
        self._round = [_place(name) for name in conversation.order]
        self._turns = [*private, *(_place(name, Stage.OPENING) for name in opened), *self._round]
        """The turns up to the end of the first round."""
        end_chat = conversation.end_chat
        # If all speak at once, the round is completed.
        step = len(self._round) if self._is_concurrent else 1
        caps: list[tuple[float, str]] = [
            (end.most_messages + (len(opened) - end.most_messages) % step, end.describe())
            for end in lone(end_chat.when)
            if end.most_messages is not None
        ]
        if (rounds := end_chat.max_iterations) is not None:
            caps.append((len(opened) + rounds * len(self._round), count_of(rounds, "round")))
        messages, self._cap_words = min(caps, key=itemgetter(0), default=(math.inf, ""))
        self._last_turn = len(private) + messages - 1
        """The index of the turn at which a cap ends the conversation."""

    def from_place(self, place: Place) -> Iterator[Edge]:
        """Yield the edges from a place, and those of a speaker's tools, code and judge."""
        first = self._turns[0]
        match place.kind:
            case Kind.START:
                has_task = self._conversation.task_specification is not None
                yield Edge(place, _TASK if has_task else first)
            case Kind.TASK:
                yield Edge(place, first)
            case Kind.CHOICE:
                yield from (Edge(place, _place(name)) for name in self._conversation.names)
            case Kind.SPEAKER:
                yield from self._from_speaker(place)

    def _from_speaker(self, turn: Place) -> Iterator[Edge]:
        speaker = self._conversation.speaker(turn.speaker or "")
        if turn.stage in ALOUD:
            yield from self._to_tools(turn, speaker)
        if _is_person(self._conversation, speaker.name):
            yield Edge(turn, _END, "the person leaves")
        if turn.stage in ALOUD and self._may_end_after(turn):
            yield from (Edge(turn, _END, when) for when in self._ends_after(turn, speaker))
        if turn.stage is not Stage.LAST_WORDS:
            yield from self._to_next(turn)

    def _may_end_after(self, turn: Place) -> bool:
        """Return whether ends and judges are checked: if all speak at once, after the round."""
        return not self._is_concurrent or turn not in self._round[:-1]

    def _to_tools(self, turn: Place, speaker: Speaker) -> Iterator[Edge]:
        if speaker.tools and speaker.has_model:
            tools = Place(Kind.TOOLS, speaker.name)
            asked = [name for name, rule in speaker.interrupt_on.items() if rule]
            when = f"a person approves {list_names(asked)}" if asked else "calls"
            who = watcher(self._conversation, speaker.name)
            yield Edge(turn, tools, f"{who} lets the calls run" if who else when)
            yield Edge(tools, turn, "results")
            for end in () if self._is_concurrent else self._alternatives():
                called = [one for _, one in leaves(end) if one.comes_of_tools]
                if any(one.comes_of(speaker) for one in called):
                    yield Edge(tools, _END, end.describe())
        if speaker.runs_code:
            code = Place(Kind.CODE, speaker.name)
            yield Edge(turn, code, "the message contains code")
            yield Edge(code, turn, "the output")

    def _alternatives(self) -> Sequence[BaseEnd]:
        return alternatives(self._conversation.end_chat.when)

    def _ends_after(self, turn: Place, speaker: Speaker) -> Iterator[str]:
        """Yield the ends that a message may meet, in words."""
        conversation = self._conversation
        at_once = self._is_concurrent and turn in self._round
        for end in self._alternatives():
            parts = [one for _, one in leaves(end) if at_once or not one.comes_of_tools]
            speakers = conversation.speakers if at_once else (speaker,)
            # An end by a tool alone is drawn from the tools.
            if parts and any(one.comes_of(by) for _, one in leaves(end) for by in speakers):
                yield end.describe()
        following = self._next_places(turn)
        for other in conversation.speakers:
            human, is_asked = other.human, not is_never_asked(conversation, other.name)
            follows = _CHOICE in following or _place(other.name) in following
            if human is None or is_asked or not follows or other is speaker:
                continue
            if human.is_termination is None:
                yield f"says {human.termination}"
            most = human.max_consecutive_auto_reply
            yield count_of(most, "automatic reply", "automatic replies")

    def _next_places(self, turn: Place) -> Sequence[Place]:
        """Return the places that may follow a turn if no end is met and no task is complete."""
        if turn not in self._turns:
            return ()
        if turn in self._round and self._is_chosen:
            targets = hand_off_targets(self._conversation, turn.speaker or "")
            return [*map(_place, targets)] or (_CHOICE,)
        turns = (*self._turns, self._round[0])
        return (turns[turns.index(turn) + 1],)

    def _exits(self, turn: Place) -> Iterator[tuple[Place, str]]:
        """Yield the next places of a turn, and the end at a cap, each with its condition."""
        first, period = self._turns.index(turn), len(self._round)
        if turn in self._round and self._is_chosen:
            # Any speaker may have any turn.
            first, period = self._turns.index(self._round[0]), 1
        # Without a cap, `left` is infinite, and its remainder is NaN, which is true.
        left = self._last_turn - first
        if left:
            yield from ((to, "") for to in self._next_places(turn))
        if not left or (turn in self._round and not left % period):
            yield _END, self._cap_words

    def _to_next(self, turn: Place) -> Iterator[Edge]:
        """Yield the edges to the judge, and from it or from the turn to the next places."""
        conversation, exits = self._conversation, [*self._exits(turn)]
        end_chat, judge = conversation.end_chat, conversation.judge
        place = Place(Kind.JUDGE, None if conversation.has_separate_judge else turn.speaker)
        is_judged = (
            turn in self._round
            and end_chat.waits_for_tasks
            and turn.speaker in conversation.stoppers
            and self._may_end_after(turn)
        )
        at_cap = isinstance(judge, SeparateJudge) and judge.final_verdict
        after_judge = [one for one in exits if is_judged or (at_cap and one[0] is _END)]
        if after_judge:
            yield Edge(turn, place, "" if is_judged else self._cap_words)
            if end_chat.waits_for_tasks:
                words = last_words(conversation, turn.speaker or "")
                path = [place, *(_place(name, Stage.LAST_WORDS) for name in words), _END]
                for start, to in pairwise(path):
                    yield Edge(start, to, "yes" if start is place else "")
        # If other tasks must be complete too, the conversation goes on after both answers, and
        # after turns without a question to the judge.
        is_one_of_many = (
            end_chat.mode is EndChatMode.ALL_TASK_MUST_COMPLETE
            and not conversation.has_separate_judge
            and len(conversation.stoppers) > 1
        )
        for to, when in after_judge:
            yield Edge(place, to, when or ("" if is_one_of_many else "no"))
        for to, when in exits:
            if is_one_of_many or (to, when) not in after_judge:
                yield Edge(turn, to, when)


def _place(name: str, stage: Stage = Stage.ROUNDS) -> Place:
    return Place(Kind.SPEAKER, name, stage)


def _label(conversation: Conversation, place: Place) -> list[str]:
    """Return the lines of a place's label."""
    match place.kind:
        case Kind.START:
            return ["Start"]
        case Kind.TASK:
            return ["The task is made more specific"]
        case Kind.TOOLS:
            tools = conversation.speaker(place.speaker or "").tools
            more = len(tools) - _MOST
            return ["Tools", *tools[:_MOST], *([f"and {more} more"] if more > 0 else [])]
        case Kind.CODE:
            return ["Sandbox", " and ".join(conversation.sandbox.languages)]
        case Kind.JUDGE:
            judge = conversation.judge
            if isinstance(judge, SeparateJudge):
                many = len(judge.criteria)
                return ["The judge", f"are all {many} criteria met?" if many > 1 else "is it met?"]
            return [f"Is the task of {place.speaker} complete?"]
        case Kind.CHOICE:
            order = conversation.turn_order
            who = f"{order.name}()" if isinstance(order, TurnFunction) else order.kind.capitalize()
            return [who, "who speaks next?"]
        case Kind.END:
            return ["The end", *_list_other_ends(conversation)]
        case Kind.SPEAKER:
            name = place.speaker or ""
            by = _STAGES.get(place.stage) or replies(conversation, conversation.speaker(name))
            return [name, by]


_STAGES: Final = {
    Stage.PRIVATE: "in private",
    Stage.OPENING: "opening, on its own task",
    Stage.LAST_WORDS: "last words",
}


def _is_person(conversation: Conversation, name: str) -> bool:
    return conversation.speaker(name).human is not None and not is_never_asked(conversation, name)


def replies(conversation: Conversation, speaker: Speaker) -> str:
    """Describe in a few words the sources of a speaker's replies, without its first message."""
    said = {
        "human": "a person" if _is_person(conversation, speaker.name) else "",
        "function": "a function",
        "agent": "an agent",
        "conversation": "an inner conversation",
        "code": "code that it runs",
        "model": speaker.model or conversation.model or "a model",
        "text": "a text",
    }
    given = [said[reply.kind] for reply in speaker.replies[speaker.first_message is not None :]]
    return " or ".join(filter(None, dict.fromkeys(given)))


def _list_other_ends(conversation: Conversation) -> list[str]:
    """Return the end conditions that may be met at any time, one per line."""
    budgets = [
        end.describe() for end in lone(conversation.end_chat.when) if isinstance(end, Budget)
    ]
    end_chat = conversation.end_chat
    has_guards = end_chat.on_guard == "end" and any(end_chat.guards.model_dump().values())
    others = [*budgets, *(["a guard"] if has_guards else []), "a request to stop"]
    least = end_chat.min_iterations
    first = [f"after {count_of(least, 'round')} or more"] if least else []
    return [*first, "or at any time:", *others]


def _escape_label(text: str) -> str:
    """Escape a text so that Mermaid reads no syntax in it."""
    line = " ".join(clean(text).split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return "".join(
        sign if sign.isalnum() or sign in _HARMLESS else f"#{ord(sign)};" for sign in line
    )


_HARMLESS: Final = " ,.:!?'()/+-_…"
