"""The kinds of lines in the log, a row for each: all that goes by a line's kind alone.

A new kind is a new row here. One that has an event of its own is also told in
`graphs.run.log_events`, one that holds a model's answer is given again in
`graphs.sessions.replays.recording`.
"""

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Literal, Self


@dataclass(frozen=True)
class KindRow:
    """What goes by the kind of a line."""

    name: str
    """What it is called where it is stored."""
    _: KW_ONLY
    is_spoken: bool = False
    """Whether it is part of what is said: a message, a call of tools or its result."""
    own: Literal["always", "heard", "never"] = "heard"
    """Whether its speaker sees it: always, where it hears the line, or never. Others see a line
    where they hear it."""
    is_talk: bool = False
    """Whether it is a message in the history of who sees it, which context policies count."""
    is_reply: bool = False
    """Whether it is what a speaker's turn gives: a message, calls, a draft."""
    is_cue: bool = False
    """Whether it tells a speaker to speak."""
    ends_turn: bool = False
    """Whether a turn of a speaker's own may end with it, as the speaker sees it."""
    has_calls: bool = False
    """Whether it calls tools or runs code."""
    is_result: bool = False
    """Whether it came of the reply, the calls or the question before it."""
    is_memory: bool = False
    """Whether it says what a speaker remembers, which a reset of its memory undoes."""
    on_page: bool = False
    """Whether a Markdown page of a whole session shows it."""
    run: str = "{speaker} speaks"
    """What the call of a model that gives it is called in traces."""


class Kind(StrEnum):
    """What kind of line a message is."""

    row: KindRow

    def __new__(cls, row: KindRow) -> Self:
        """Make a kind of its row."""
        kind = str.__new__(cls, row.name)
        kind._value_ = row.name
        kind.row = row
        return kind

    SPECIFIED_TASK = KindRow("specified_task", run="Task specification")
    """The task as rewritten by the task specification."""
    INSTRUCTION = KindRow("instruction", is_cue=True)
    """What a speaker is told by the conversation itself: its own task, or to begin."""
    SPEECH = KindRow(
        "speech",
        is_spoken=True,
        own="always",
        is_talk=True,
        is_reply=True,
        ends_turn=True,
        on_page=True,
    )
    """What a speaker said."""
    SHIFT = KindRow("shift", own="never", is_talk=True, is_cue=True)
    """An opening answer handed to the one who speaks first in the rounds."""
    DRAFT = KindRow("draft", is_reply=True, on_page=True)
    """A reply that broke a rule and was asked for again."""
    TOOL_CALLS = KindRow(
        "tool_calls",
        is_spoken=True,
        own="always",
        is_talk=True,
        is_reply=True,
        has_calls=True,
        on_page=True,
    )
    """A speaker's call of tools, with what it said beside it."""
    TOOL_RESULT = KindRow("tool_result", is_spoken=True, own="always", is_result=True, on_page=True)
    """What a tool answered."""
    QUESTION = KindRow("question")
    """The judge's question."""
    REFLECTION = KindRow(
        "reflection", is_result=True, ends_turn=True, on_page=True, run="{speaker} judges"
    )
    """A speaker's answer to the judge, or a separate judge's."""
    CHOICE = KindRow("choice", on_page=True, run="Moderator chooses")
    """Who was chosen to speak next."""
    ANSWER = KindRow("answer", is_reply=True, is_result=True)
    """What was answered for a speaker, or by a tool, before hooks have seen it; or a second try in
    whose place the first is said."""
    HEARD = KindRow("heard", is_talk=True)
    """What a hook made of what a speaker has just heard; it stands in its place from then on."""
    CODE = KindRow("code", is_reply=True, has_calls=True)
    """The fenced code that a speaker runs, a call for each block. What it says of that follows."""
    SUMMARY = KindRow("summary", is_memory=True, run="{speaker} sums up")
    """What stands for the older part of a speaker's history in its prompts. It may be empty."""
    FORGOTTEN = KindRow("forgotten", is_memory=True, on_page=True)
    """A speaker's memory was reset: what was said before is not in its view any more."""
    REMEMBERED = KindRow("remembered", is_talk=True, ends_turn=True, is_memory=True)
    """A line of a memory that was loaded: only its owner hears it, and nothing counts it."""
    REMOVED = KindRow("removed", on_page=True)
    """A message that was removed: it stays for the record, nobody hears it, nothing counts it."""
    GIVEN = KindRow("given")
    """A message that a run was started with. It stays in `messages` for who follows, and is no line
    of the log: what a person says with it takes its place."""
    ENDED = KindRow("ended", own="never", on_page=True)
    """The conversation ended here, and went on: what ends it is counted anew from here."""
