"""The content of a page as data, which the templates draw. It contains no HTML."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from ..common.data import Data, WithTokens
from ..conversation.questions import Question

Tone = Literal["good", "plain", "warn", "bad", "open"]
"""The colour of an end, or of a step towards it."""

Role = Literal["assistant", "user", "tool"]
"""The role that a line has in the view of a speaker that receives it."""

LineKind = Literal["said", "draft", "calls", "code", "result", "note", "told"]
"""The kind of a line. ``told`` is an instruction, which only the views of its recipients show;
``code`` runs the code of an earlier line.
"""


class Fold(Data):
    """A folded detail of a message."""

    kind: Literal["thought", "call", "result", "parsed", "inner"]
    """The kind of the detail."""
    title: str
    """The title, which is shown while the detail is folded."""
    text: str
    """The exact text."""
    is_json: bool = False
    """Whether the text is JSON."""


class ShownFile(Data):
    """A file of a message."""

    kind: Literal["image", "audio", "file"]
    """The kind of the file."""
    description: str
    """The kind, name and size of the file, such as ``image plan.png, 120 KB``."""
    name: str = ""
    """The name under which the file is saved."""
    address: str | None = None
    """The file as a ``data:`` address. None if it is too large for the page, or of a type that no
    page shows."""


class Heard(Data):
    """The text of a line for speakers that receive a different one."""

    by: tuple[NonNegativeInt, ...]
    """The speakers' numbers."""
    before: str = ""
    """Text in front of the message, such as the speaker's label."""
    instead: str | None = None
    """The text that replaces the message. If None, the message is not replaced."""


class Line(Data):
    """A line of the conversation."""

    anchor: str
    """The line's id on the page."""
    place: str
    """The message's place in the log. Empty if the place can't be shown."""
    kind: LineKind
    """The kind of the line."""
    speaker: NonNegativeInt | None = None
    """The number of the speaker. None if the line is by the conversation itself."""
    name: str
    """The name of the speaker. If no speaker wrote the line, a name for the conversation itself."""
    text: str = ""
    """The text of the message as Markdown, or of a note."""
    remarks: tuple[str, ...] = ()
    """Remarks on the message, such as its audience."""
    is_person: bool = False
    """Whether a person wrote the message."""
    folds: tuple[Fold, ...] = ()
    """The folded details."""
    files: tuple[ShownFile, ...] = ()
    """The images and other files of the message."""
    roles: dict[NonNegativeInt, Role] = Field(default_factory=dict)
    """The role of the line for each speaker that receives it, by the speakers' numbers."""
    heard: tuple[Heard, ...] = ()
    """The texts of the line for speakers that receive another text than the page shows."""


class Sent(Data):
    """A part of a prompt."""

    role: str
    """The role of the message, or a name for the text if the page shows it elsewhere."""
    text: str | None = None
    """The text of the message. None if the page shows the text elsewhere."""
    first: str = ""
    """The anchor of the first line elsewhere that shows the text. Empty if there is no such line.
    """
    last: str = ""
    """The anchor of the last line elsewhere that shows the text. Empty if there is no such line."""


class Player(Data):
    """A speaker."""

    name: str
    """The speaker's name."""
    system: str = ""
    """The system prompt."""
    sent: tuple[Sent, ...] = ()
    """The parts of the prompt in the speaker's latest turn. Empty if the prompt is unknown."""


class Step(Data):
    """A step that led to the end."""

    anchor: str | None
    """The anchor of the line that the step refers to. None if it refers to no line."""
    place: str
    """The place in the log of the message that the step refers to. Empty if there is none."""
    kind: str
    """The kind of the step."""
    tone: Tone
    """The colour of the step."""
    text: str
    """The description of the step."""


class Meter(Data):
    """The count of a cap or a guard."""

    name: str
    """The name of the cap or guard, such as rounds."""
    count: NonNegativeFloat
    """The current count."""
    limit: NonNegativeFloat
    """The count at which the conversation ends."""

    @property
    def share(self) -> float:
        """The used part of the limit, from 0 to 1."""
        return min(self.count / self.limit, 1.0) if self.limit else 0.0


class Mark(Data):
    """A mark on the timeline."""

    x: float
    """The position from the left, in SVG units."""
    step: Step
    """The step that the mark stands for."""


class Timeline(Data):
    """All messages from left to right, with the steps that led to the end."""

    width: int
    """Width in SVG units."""
    ticks: dict[str, str]
    """The SVG path of each speaker's messages, by the CSS class of the speaker's colour."""
    marks: tuple[Mark, ...]
    """The steps that led to the end."""


class Ending(Data):
    """The reason for the end, or the status of a session that has not ended."""

    tone: Tone
    """The colour of the end."""
    title: str
    """The reason in words."""
    reason: str = ""
    """The name of the reason. Empty if the session has not ended."""
    sentence: str
    """The text that states when the session ended, or how it continues."""
    verdict: str = ""
    """The outcome of the simulation and its decisive reason. Empty if it is no simulation."""
    also: tuple[str, ...] = ()
    """Further reasons that were met."""
    later: tuple[str, ...] = ()
    """The verdicts of judges who were asked without running the session."""
    anchor: str | None = None
    """The anchor of the line that caused the end. None if there is no such line."""
    questions: tuple[Question, ...] = ()
    """The open questions to people."""
    owed: tuple[str, ...] = ()
    """Tasks, criteria and last words that are still open."""
    numbers: tuple[tuple[str, str], ...] = ()
    """Figures with their names, such as rounds and tokens."""
    warnings: tuple[str, ...] = ()
    """Warnings about the run."""
    steps: tuple[Step, ...] = ()
    """The steps that led to the end, newest last."""
    earlier_steps: NonNegativeInt = 0
    """Number of earlier steps that are not shown."""
    meters: tuple[Meter, ...] = ()
    """The counts of caps and guards."""
    timeline: Timeline | None = None
    """The messages and steps on a timeline. None if there are no messages."""


class Spent(WithTokens, Data):
    """The usage of a step."""

    who: str
    """The speaker, or the part of the conversation that caused the usage, such as the judge."""
    is_new_turn: bool = False
    """Whether a turn begins with this step."""
    calls: NonNegativeInt = 0
    """Number of model calls."""
    input_tokens: NonNegativeInt = 0
    """Number of tokens in the prompts."""
    output_tokens: NonNegativeInt = 0
    """Number of tokens in the answers."""
    seconds: NonNegativeFloat = 0
    """Duration in seconds."""
    cost: NonNegativeFloat | None = None
    """Cost, in the currency of the price table. None if no price is known."""


class Share(Spent):
    """The total usage of a speaker or a part of the conversation."""

    colour: str
    """The CSS class of the colour in the charts."""
    turns: NonNegativeInt
    """Number of turns with usage."""


class Chart(Data):
    """A bar chart with one bar for each turn, or for several turns."""

    title: str
    """The measure that is shown."""
    most: str
    """The highest value, formatted."""
    width: int
    """Width in SVG units."""
    height: int
    """Height in SVG units."""
    bars: dict[str, str]
    """The SVG path of each speaker's bars, by the CSS class of the speaker's colour."""


class Spending(Data):
    """Usage by speaker and by turn."""

    shares: tuple[Share, ...]
    """The total usage of each speaker, and of each other part of the conversation."""
    charts: tuple[Chart, ...]
    """The charts by turn."""
    turns_a_bar: NonNegativeInt = 1
    """Number of turns in one bar."""
    has_cost: bool = False
    """Whether any prices are known."""


class Page(Data):
    """The page of a session."""

    session: str
    """The session's id."""
    title: str
    """The session's title."""
    task: str = ""
    """The task."""
    players: tuple[Player, ...]
    """The speakers."""
    lines: tuple[Line, ...]
    """The lines of the conversation."""
    ending: Ending
    """The reason for the end, or the status."""
    spending: Spending | None = None
    """The usage by speaker and by turn. None if there is no usage to show."""
    only: NonNegativeInt | None = None
    """The number of the speaker if the page shows one speaker's memory, else None."""
