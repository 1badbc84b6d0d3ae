"""The command `duologue show`."""

import json
from collections.abc import Sequence

from langchain_core.messages import BaseMessage, convert_to_openai_messages
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..common.display import describe_message
from ..events import ConversationEnded, QuestionAsked
from ..rules.outcome import OutcomeStep, OutcomeStepKind
from ..session.events import events_of, events_of_session
from ..session.session import Session
from ..session.session_row import check_speaker, title_of
from ..session.stored_session import StoredSession, describe_later
from ..store.rows import SessionRow
from .follow_up import FollowUp
from .questions import print_question, ways_on
from .terminal.console import (
    cell,
    json_line,
    on_screen,
    one_line,
    pad,
    plain,
    prose,
    stderr,
    stdout,
)
from .terminal.events import Transcript


def show_session(
    row: SessionRow,
    session: str,
    follow_up: FollowUp,
    *,
    speaker: str | None,
    why: bool,
    thoughts: bool,
    as_json: bool,
) -> None:
    """Print a session: its messages or the steps to its end, and its state."""
    result = Session(session, store=follow_up.store).state()
    if speaker is not None:
        check_speaker(session, result.conversation, speaker)
    if as_json:
        _show_json(result, speaker, why=why)
        return
    out = stdout()
    transcript = Transcript(follow_up, out, stderr(), ids=True, thoughts=thoughts)
    if speaker is None:
        title = title_of(result.conversation)
        plain(out, one_line(title, out.width if on_screen(out) else None), "bold")
    if why:
        causes = [cause for cause in result.why() if cause.message is not None]
        _print_causes(out, causes, has_ended=result.outcome is not None)
    elif speaker is None:
        for event in events_of(result.conversation, result.messages):
            transcript.show(event)
    else:
        _print_messages(transcript, result.viewpoint(speaker))
    _print_end(out, result, transcript, follow_up.for_session(row), is_told=why)
    if speaker is None:
        for line in describe_later(result.messages, result.later_verdicts):
            prose(out, line)


def show_prompt(session: str, follow_up: FollowUp, speaker: str, *, as_json: bool) -> None:
    """Print the prompt of a speaker's latest turn."""
    prompt = Session(session, store=follow_up.store).prompt(speaker)
    if as_json:
        _show_messages(prompt)
        return
    _print_messages(Transcript(follow_up, stdout(), stderr(), ids=True), prompt)


def _print_messages(transcript: Transcript, messages: Sequence[BaseMessage]) -> None:
    for message in messages:
        role, text = describe_message(message)
        transcript.head(f"{role} ({message.name})" if message.name else role)
        transcript.body(text)


def _print_end(
    out: Console,
    result: StoredSession,
    transcript: Transcript,
    follow_up: FollowUp,
    *,
    is_told: bool,
) -> None:
    """Print how a session ended, or the commands that continue it."""
    if result.outcome is not None:
        ended = ConversationEnded.of(result.session_id, result.outcome)
        # With --why the steps are already printed above.
        transcript.end(ended, tuple if is_told else result.why)
        return
    transcript.rule()
    if not result.pending:
        plain(out, "Not finished.", "bold")
        plain(out, follow_up.hint(result.session_id))
        return
    for question in result.pending:
        print_question(out, question, of="Waits", style="bold")
    for way in ways_on(result.session_id, result.pending, follow_up):
        plain(out, way)


def _print_causes(out: Console, causes: list[OutcomeStep], *, has_ended: bool) -> None:
    out.print()
    if not causes:
        so_far = "caused the end" if has_ended else "counts towards an end so far"
        plain(out, f"No single message {so_far}.", "dim")
        return
    places = [cell(cause.message or "") for cause in causes]
    width_of_places = max(map(cell_len, places))
    for cause, place in zip(causes, places, strict=True):
        row = Text(pad(place, width_of_places) + "  ", "dim")
        text = Text(one_line(cause.text), _STYLES.get(cause.kind, ""))
        # On a screen further lines are indented to where the text begins.
        width = max(1, out.width - row.cell_len)
        lines = text.wrap(out, width) if on_screen(out) else [text]
        for number, part in enumerate(lines):
            part.rstrip()
            out.print(row if number == 0 else " " * row.cell_len, part, sep="", soft_wrap=True)


_STYLES = {
    OutcomeStepKind.REJECTED: "dim",
    OutcomeStepKind.THOUGHT: "dim",
    OutcomeStepKind.COUNTED: "yellow",
}


def _show_json(result: StoredSession, speaker: str | None, *, why: bool) -> None:
    if why:
        for cause in result.why():
            json_line(cause.model_dump_json())
        return
    if speaker is None:
        asked = (QuestionAsked(question=question) for question in result.pending)
        for event in (*events_of_session(result), *asked):
            json_line(event.model_dump_json())
        return
    _show_messages(result.viewpoint(speaker))


def _show_messages(messages: Sequence[BaseMessage]) -> None:
    for message in convert_to_openai_messages(list(messages)):
        json_line(json.dumps(message))
