"""The content of a session's page and its lines, built from the stored session by pure functions.

Each line has its role and its text for each speaker that receives it. The files of messages are a
part of the page, up to `MOST_ON_PAGE` bytes. A page loads nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from textwrap import indent
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from ..common.content import describe_file, files_of, name_of_file, size_of_file
from ..common.display import describe_message
from ..common.sanitize import dump_exact_json, escape_invisible
from ..conversation.conversation import Conversation
from ..conversation.questions import Question
from ..log.memory import memory
from ..log.messages import describe_artifact, metadata, place_of, read_inner_log, thought_text
from ..log.metadata import (
    CallOutcome,
    CodeCalls,
    InnerSession,
    MessageMetadata,
    Source,
    SpeakerReply,
    SpecifiedTask,
    Speech,
    Summary,
    UnheardReply,
    UnheardResult,
    content_of,
    is_by_person,
)
from ..log.transcript import format_transcript
from ..log.viewpoint import SILENCE, View, viewpoint
from ..rules.outcome import Outcome
from ..rules.position import Position
from ..rules.turns import Dialogue
from ..rules.why import describe_inner, describe_note, describe_result, list_remarks, name_author
from .ending import ending_of, reason_panel, spending_of
from .page_data import (
    Fold,
    Heard,
    Line,
    LineKind,
    Page,
    Player,
    Role,
    Sent,
    ShownFile,
    Spent,
    Tone,
)

MOST_ON_PAGE: Final = 20_000_000
"""Maximum size of all files on a page, in bytes. Later files are only described."""

_TYPES: Final = (
    *("image/png", "image/jpeg", "image/gif", "image/webp"),
    *("audio/wav", "audio/mp3", "application/pdf"),
)
"""The types of files that a page contains. No browser runs code in them."""

_LABEL = 200
"""Maximum length of a label in front of a message, in characters. A longer text is no label."""


def anchors(log: Sequence[BaseMessage]) -> dict[str, str]:
    """Return the HTML id of each line, by the message's place in the log, which may be any text."""
    places = [place_of(message) for message in log]
    return {
        place: place if place[:1] == "m" and place[1:].isdecimal() and place.isascii() else f"n{at}"
        for at, place in enumerate(places)
    }


def lines_of(
    conversation: Conversation, log: Sequence[BaseMessage], only: str | None = None
) -> Iterator[Line]:
    """Yield the lines of a log, oldest first.

    Args:
        conversation: The conversation.
        log: The log, or the memory of one speaker.
        only: The name of that speaker. None if `log` is the whole log.

    Yields:
        The lines. A speaker's memory has no line that the speaker did not receive.
    """
    names = conversation.names
    numbers = {name: number for number, name in enumerate(names)}
    viewers = [only] if only is not None else names
    seen = [_Seen(conversation, log, name, numbers[name]) for name in viewers]
    for message, line in read_lines(log, names, in_memory=only is not None):
        about = metadata(message)
        roles = {one.number: role for one in seen if (role := one.role(message, about))}
        if line.kind == "told" and not roles:
            continue
        by = [one for one in seen if one.number in roles]
        heard = tuple(_heard_texts(message, line.text if line.kind == "note" else None, by))
        yield line.model_copy(update={"roles": roles, "heard": heard})


def read_lines(
    log: Sequence[BaseMessage], names: Sequence[str], *, in_memory: bool
) -> Iterator[tuple[BaseMessage, Line]]:
    """Yield the messages of a log that people read, each with its line, oldest first.

    Args:
        log: The log, or a speaker's memory.
        names: The names of the speakers.
        in_memory: Whether it is a memory. A memory contains no thoughts.
    """
    numbers = {name: number for number, name in enumerate(names)}
    found, called = anchors(log), dict[str, str]()
    left = MOST_ON_PAGE
    for message in log:
        about, place = metadata(message), place_of(message)
        note = describe_note(about)
        kind = _kind_of(about) if note is None else "note"
        if kind is None:
            continue
        artifacts = () if in_memory else describe_artifact(message, about)
        files, left = _read_files(message, left)
        line = Line(
            anchor=found[place],
            place=place if place == found[place] else "",
            kind=kind,
            speaker=numbers.get(about.speaker or ""),
            name=name_author(about),
            text=_text(message) if note is None else note,
            remarks=(*list_remarks(about), *artifacts),
            is_person=is_by_person(about),
            folds=tuple(_folds(message, about, called, in_memory=in_memory)),
            files=files,
        )
        yield message, line


def _kind_of(about: MessageMetadata) -> LineKind | None:
    """Return the kind of a message that is not a note, or None if it has no line."""
    # The specified task is shown above the conversation, and the first two as the message that
    # followed from them.
    if isinstance(about, UnheardReply | UnheardResult | Summary | SpecifiedTask):
        return None
    if isinstance(about, CallOutcome):
        return "result"
    if isinstance(about, CodeCalls):
        return "code"
    if about.has_calls:
        return "calls"
    if isinstance(about, Speech):
        return "said"
    return "draft" if about.on_page else "told"


def _text(message: BaseMessage) -> str:
    return "" if isinstance(message, ToolMessage) else message.text.strip()


def _read_files(message: BaseMessage, left: int) -> tuple[tuple[ShownFile, ...], int]:
    """Return the files of a message, and the bytes that are left on the page after them.

    Files that exceed the page's limit are only described.
    """
    found: list[ShownFile] = []
    for block in files_of(message.content):
        size = size_of_file(block)
        is_shown = block["mime_type"] in _TYPES and size <= left
        left -= size if is_shown else 0
        found.append(
            ShownFile(
                kind=block["type"],
                description=describe_file(block),
                name=name_of_file(block) or "",
                address=f"data:{block['mime_type']};base64,{block['base64']}" if is_shown else None,
            )
        )
    return tuple(found), left


class _Seen:
    """The messages as one speaker sees them."""

    def __init__(
        self, conversation: Conversation, log: Sequence[BaseMessage], name: str, number: int
    ) -> None:
        self.name = name
        self._view = View(conversation, name)
        self._known = {id(message) for message in memory(log, name)}
        self.number = number

    def role(self, message: BaseMessage, about: MessageMetadata) -> Role | None:
        """Return the role of a message for the speaker, or None if it does not see the message."""
        if id(message) not in self._known:
            return None
        if isinstance(message, ToolMessage):
            return "tool"
        return "assistant" if about.speaker == self.name else "user"

    def text(self, message: BaseMessage) -> str:
        """Return the text of another speaker's message as this speaker receives it."""
        shown = self._view.show([message])
        return shown[-1].text if shown else message.text


def _heard_texts(message: BaseMessage, note: str | None, seen: Sequence[_Seen]) -> Iterator[Heard]:
    """Yield the texts that speakers receive instead of the one that the page shows."""
    by_words = defaultdict[tuple[str, str | None], list[int]](list)
    said = _text(message) if note is None else ""
    for one in seen:
        if note is None and metadata(message).speaker == one.name:
            continue
        text = one.text(message)
        before, found, rest = text.rpartition(said) if said else (text, "", "")
        if note is None and text == (said or SILENCE):
            continue
        is_label = bool(found) and not rest and len(before) <= _LABEL
        by_words[(before.strip(), None) if is_label else ("", text)].append(one.number)
    for (front, instead), numbers in by_words.items():
        yield Heard(by=tuple(numbers), before=front, instead=instead)


def _folds(
    message: BaseMessage, about: MessageMetadata, called: dict[str, str], *, in_memory: bool
) -> Iterator[Fold]:
    if (thought := thought_text(about)) and not in_memory:
        yield Fold(kind="thought", title="Thought, not sent to other speakers", text=thought)
    # The report of code contains all values.
    is_code = isinstance(about, SpeakerReply) and about.source is Source.CODE
    if (value := content_of(about)) is not None and not is_code:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        yield Fold(kind="parsed", title="Parsed value", text=text, is_json=True)
    if isinstance(about, InnerSession):
        yield Fold(kind="inner", title="Inner messages", text=inner_transcript(about))
    elif isinstance(message, AIMessage):
        yield from _calls(message, called, "Runs" if isinstance(about, CodeCalls) else "Calls")
    elif isinstance(message, ToolMessage) and isinstance(about, CallOutcome):
        failed = message.status == "error"
        name = called.get(message.tool_call_id, "The tool")
        title = describe_result(name, about, failed=failed)
        yield Fold(kind="result", title=title, text=message.text)


def inner_transcript(about: InnerSession) -> str:
    """Return the transcript of an inner session, and those of the sessions within it, as text."""
    _, log = read_inner_log(about)
    parts = []
    for message in log:
        within = metadata(message)
        if isinstance(within, InnerSession):
            parts.append(f"{describe_inner(within)}\n{indent(inner_transcript(within), '    ')}")
        elif said := format_transcript([message], private=True):
            parts.append(said)
    return "\n\n".join(parts)


def _calls(message: AIMessage, called: dict[str, str], does: str) -> Iterator[Fold]:
    for call in message.tool_calls:
        name = called[str(call["id"])] = escape_invisible(call["name"])
        args, code = call["args"], call["args"].get("code")
        # The only argument is shown as it is if it is code that is completely visible.
        is_code = len(args) == 1 and code == escape_invisible(str(code), keep="\n\t")
        text = str(code) if is_code else dump_exact_json(args, indent=2)
        yield Fold(kind="call", title=f"{does} {name}", text=text, is_json=not is_code)
    for broken in message.invalid_tool_calls:
        name = called[str(broken["id"])] = escape_invisible(broken["name"] or "a tool")
        title = f"Calls {name} with invalid JSON"
        text = escape_invisible(broken["args"] or "", keep="\n")
        yield Fold(kind="call", title=title, text=text)


class PageVerdict(NamedTuple):
    """The outcome of a simulation, which its page shows first."""

    tone: Tone
    """The colour of the outcome."""
    text: str
    """The outcome and its decisive reason."""


@dataclass(frozen=True)
class PageSession:
    """The data of a stored session that its page shows."""

    id: str
    """The session's id."""
    title: str
    """The session's title."""
    conversation: Conversation
    """The spec of the session's conversation."""
    log: Sequence[AnyMessage]
    """The whole log, with the messages that are only kept for the record."""
    task: str | None = None
    """The task of the speakers. None if there is none."""
    outcome: Outcome | None = None
    """The outcome. None until the conversation ends."""
    pending: Sequence[Question] = ()
    """The questions to people that have not been answered."""
    position: Position = field(default_factory=Position)
    """The current position, which counts the turns and facts so far."""
    steps: Sequence[Spent] = ()
    """The usage of each step."""
    later: Sequence[str] = ()
    """A line for each verdict of a judge who was asked without running the session."""
    verdict: PageVerdict | None = None
    """The outcome of the simulation, if the session is one of a suite."""
    prompts: Mapping[str, Sequence[BaseMessage]] = field(default_factory=dict)
    """The last prompt to each speaker's model, by the speaker's name. Unknown prompts are missing.
    """


def page_of(session: PageSession) -> Page:
    """Build the page of a whole session."""
    conversation, log, found = session.conversation, session.log, anchors(session.log)
    ids = {str(one.id): found[place_of(one)] for one in log}
    players: list[Player] = []
    for name in conversation.names:
        system = conversation.system_prompt(conversation.speaker(name), session.task)
        view = viewpoint(conversation, log, name)
        sent = tuple(_list_sent(session.prompts.get(name, ()), system, view, ids))
        players.append(Player(name=name, system=system, sent=sent))
    added: dict[str, object] = {"later": tuple(session.later)}
    if session.verdict is not None:
        added |= {"tone": session.verdict.tone, "verdict": session.verdict.text}
    return Page(
        session=session.id,
        title=_title(session.title),
        task=session.task or "",
        players=tuple(players),
        lines=tuple(lines_of(conversation, log)),
        ending=ending_of(
            Dialogue(conversation, session.position, log=log),
            session.outcome,
            session.pending,
            found,
        ).model_copy(update=added),
        spending=spending_of(conversation, session.steps),
    )


def memory_page_of(session: PageSession, name: str) -> Page:
    """Build the page of one speaker's memory, with nothing that the speaker does not know."""
    known = memory(session.log, name)
    return Page(
        session=session.id,
        title=_title(session.title),
        task=session.task or "",
        players=tuple(Player(name=one) for one in session.conversation.names),
        lines=tuple(lines_of(session.conversation, known, only=name)),
        ending=reason_panel(session.outcome, session.pending, anchors(known)),
        only=session.conversation.names.index(name),
    )


def _title(text: str) -> str:
    """Return a title on one line, cut if it is a long task, which the page also shows in full."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2].rstrip()} …"


_LONGEST: Final = 100


def _list_sent(
    prompt: Sequence[BaseMessage],
    system: str,
    view: Sequence[BaseMessage],
    anchors: Mapping[str, str],
) -> Iterator[Sent]:
    """Yield the parts of a prompt, with a reference to each part that the speaker's view shows."""
    known = {describe_message(one): str(one.id) for one in view if str(one.id) in anchors}
    for is_shown, part in groupby(prompt, lambda message: describe_message(message) in known):
        described = [*map(describe_message, part)]
        if is_shown:
            same = [anchors[known[one]] for one in described]
            role = f"{len(same)} {'message' if len(same) == 1 else 'messages'} below:"
            yield Sent(role=role, first=same[0], last=same[-1])
            continue
        for role, text in described:
            is_system = role == "system" and text == system
            yield Sent(role="the system prompt above") if is_system else Sent(role=role, text=text)
