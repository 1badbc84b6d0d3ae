"""What stands on a page, as data. The templates draw it; nothing in it is HTML."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from ..common.data import Data

Tone = Literal["good", "plain", "warn", "bad", "open"]
"""How an end, or a step towards it, is coloured."""

Role = Literal["assistant", "user", "tool"]
"""The role that a line has for who sees it."""

LineKind = Literal["said", "draft", "calls", "code", "result", "note", "told"]
"""The kind of a line. ``told`` is shown only as those see it who hear it; ``code`` runs code that
an earlier line contains."""


class Fold(Data):
    """Something beside a message, which is folded until it is asked for."""

    kind: Literal["thought", "call", "result", "parsed"]
    """What it is."""
    title: str
    """What it is called while it is folded."""
    text: str
    """What it holds, to the letter."""
    is_json: bool = False
    """Whether that is JSON."""


class Heard(Data):
    """How some speakers hear a line otherwise than it was said."""

    by: tuple[NonNegativeInt, ...]
    """The speakers' numbers."""
    before: str = ""
    """What stands in front of it for them, such as a label."""
    instead: str | None = None
    """What they hear instead. None: what was said."""


class Line(Data):
    """A line of the talk."""

    anchor: str
    """Its id on the page."""
    place: str
    """Its place in the log; empty where it has none."""
    kind: LineKind
    """What it is."""
    speaker: NonNegativeInt | None = None
    """The number of who said it. None: the conversation itself."""
    name: str
    """Who said it, in words."""
    text: str = ""
    """What was said, as Markdown; of a note its words."""
    remarks: tuple[str, ...] = ()
    """What is to be known about it."""
    is_person: bool = False
    """Whether a person said it."""
    folds: tuple[Fold, ...] = ()
    """What is folded beside it."""
    roles: dict[NonNegativeInt, Role] = Field(default_factory=dict)
    """The role that it has for each speaker that sees it, by their numbers."""
    heard: tuple[Heard, ...] = ()
    """How it is heard otherwise."""


class Sent(Data):
    """A part of a prompt."""

    role: str
    """Whose message it is, or what it is the same as."""
    text: str | None = None
    """The message. None: what stands elsewhere on the page just so."""
    first: str = ""
    """Where that begins: the anchor of a line."""
    last: str = ""
    """Where it ends."""


class Player(Data):
    """Somebody who takes part."""

    name: str
    """Its name."""
    system: str = ""
    """Its system prompt."""
    sent: tuple[Sent, ...] = ()
    """What its model was sent at its newest turn, where that is known."""


class Step(Data):
    """A step towards the end."""

    anchor: str | None
    """The line that it is about."""
    place: str
    """That line's place in the log."""
    kind: str
    """What kind of step it is."""
    tone: Tone
    """Its colour."""
    text: str
    """What it is, in words."""


class Meter(Data):
    """How much of a limit is used up."""

    name: str
    """What is counted."""
    count: NonNegativeFloat
    """How much there is of it."""
    limit: NonNegativeFloat
    """At how much the conversation ends."""

    @property
    def share(self) -> float:
        """How much of the limit that is, from 0 to 1."""
        return min(self.count / self.limit, 1.0) if self.limit else 0.0


class Mark(Data):
    """A mark on the line of time."""

    x: float
    """Where it stands."""
    step: Step
    """What it marks."""


class Timeline(Data):
    """All that was said, from left to right, with what led to the end."""

    width: int
    """Its width."""
    ticks: dict[str, str]
    """The SVG path of each speaker's messages, by the class of its colour."""
    marks: tuple[Mark, ...]
    """What was judged, rejected or counted."""


class Ending(Data):
    """Why a conversation ended, or where it stands."""

    tone: Tone
    """How it ended."""
    title: str
    """The reason in words."""
    reason: str = ""
    """Its name."""
    sentence: str
    """When it was, or what comes next."""
    also: tuple[str, ...] = ()
    """What else held."""
    anchor: str | None = None
    """The line that it ended with."""
    questions: tuple[str, ...] = ()
    """What people are asked, where it waits."""
    owed: tuple[str, ...] = ()
    """What was still to be done or said."""
    numbers: tuple[tuple[str, str], ...] = ()
    """What it used, each with its name."""
    warnings: tuple[str, ...] = ()
    """What to know about how it ran."""
    steps: tuple[Step, ...] = ()
    """What led to it, the newest last."""
    earlier_steps: NonNegativeInt = 0
    """How many steps before those are left out."""
    meters: tuple[Meter, ...] = ()
    """What its caps and guards have counted."""
    timeline: Timeline | None = None
    """All that on a line."""


class Spent(Data):
    """What a step of a session used."""

    who: str
    """For whom, or for what beside the speakers."""
    is_new_turn: bool = False
    """Whether a turn begins with it."""
    calls: NonNegativeInt = 0
    """Model calls."""
    input_tokens: NonNegativeInt = 0
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt = 0
    """Tokens of the answers."""
    seconds: NonNegativeFloat = 0
    """Seconds."""
    cost: NonNegativeFloat = 0
    """What it cost, by the price table."""


class Share(Spent):
    """What somebody used in all."""

    colour: str
    """The class of its colour."""
    turns: NonNegativeInt
    """In how many turns."""


class Chart(Data):
    """Bars, one for each turn or for some of them."""

    title: str
    """What is shown."""
    most: str
    """The highest bar, in words."""
    width: int
    """Its width."""
    height: int
    """Its height."""
    bars: dict[str, str]
    """The SVG path of everyone's bars, by the class of its colour."""


class Spending(Data):
    """What was used by whom and when."""

    shares: tuple[Share, ...]
    """For each who used something, how much."""
    charts: tuple[Chart, ...]
    """When it was."""
    turns_a_bar: NonNegativeInt = 1
    """How many turns one bar stands for."""
    has_cost: bool = False
    """Whether there are prices."""


class Page(Data):
    """A session on a page."""

    session: str
    """Its id."""
    title: str
    """Its title."""
    task: str = ""
    """What it is about."""
    players: tuple[Player, ...]
    """Who takes part."""
    lines: tuple[Line, ...]
    """The talk."""
    ending: Ending
    """How it ended."""
    spending: Spending | None = None
    """What it used, where that is known."""
    only: NonNegativeInt | None = None
    """The number of the speaker whose memory alone this is."""
