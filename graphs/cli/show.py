"""The commands that only read: sessions, show and models."""

import asyncio
import json

from langchain_core.messages import BaseMessage, convert_to_openai_messages
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ...nodes.models.client.failures import address_of
from ...nodes.models.embedded import child as embedded
from ...nodes.models.resolve import EMBEDDED, OPENAI_MODEL, no_model
from ..common.settings import Settings, load_settings
from ..rules.ends.cause import Cause, CauseKind
from ..run.events import Ended, QuestionAsked, events_of, replayed
from ..sessions.listing import check_speaker, get_session, known_store, title_of
from ..sessions.result import Result
from ..store.rows import SessionRow
from .terminal.events import (
    JsonLines,
    Transcript,
    json_line,
    on_screen,
    plain,
    prose,
    stderr,
    stdout,
)
from .terminal.follow_up import FollowUp
from .terminal.progress import Progress
from .terminal.text import one_line
from .waiting import told, ways_on

_TITLE = 30  # columns of a title beside the rest; below that it has a line of its own


def show_sessions(store: str | None, *, as_json: bool) -> None:
    """List the sessions of a store, the newest first."""
    rows = asyncio.run(_rows(store))
    out = stdout()
    if as_json:
        for row, status in rows:
            found = row.model_dump(mode="json", exclude={"spec", "digest", "stop_requested"})
            json_line(json.dumps(found | {"status": status.partition(":")[0]}))
        return
    if not rows:
        plain(stderr(), "There are no sessions yet: `duologue run` begins one.", "dim")
        return
    _print_table(out, rows)


async def _rows(store: str | None) -> list[tuple[SessionRow, str]]:
    async with known_store(store) as opened:
        rows = await opened.list()
        return [(row, _status(row, locked=await opened.is_locked(row.session))) for row in rows]


def _status(row: SessionRow, *, locked: bool) -> str:
    if locked:
        return "running"
    return f"finished: {row.reason}" if row.status == "finished" else row.status


def _print_table(out: Console, rows: list[tuple[SessionRow, str]]) -> None:
    ids = max(len(row.session) for row, _ in rows)
    states = max(cell_len(status) for _, status in rows)
    narrow = on_screen(out) and out.width < ids + states + 20 + _TITLE
    for row, status in rows:
        when = f"{row.created_at.astimezone():%Y-%m-%d %H:%M}"
        style = {"running": "green", "unfinished": "yellow", "waiting": "cyan"}.get(status, "")
        line = Text.assemble(
            (row.session.ljust(ids), "bold"), "  ", (status.ljust(states), style), "  ", when
        )
        room = out.width - (2 if narrow else line.cell_len + 2) if on_screen(out) else None
        line.append("\n  " if narrow else "  ")
        line.append(one_line(row.title, room), "dim")
        out.print(line, soft_wrap=True)


def show_session(
    session: str, follow_up: FollowUp, *, speaker: str | None, why: bool, as_json: bool
) -> None:
    """Show what a session holds."""
    result = get_session(session, store=follow_up.store)
    if speaker is not None:
        check_speaker(session, result.conversation, speaker)
    if as_json:
        _show_json(result, speaker, why=why)
        return
    out = stdout()
    transcript = Transcript(follow_up, out, stderr(), ids=True)
    if speaker is None:
        title = title_of(result.conversation)
        plain(out, one_line(title, out.width if on_screen(out) else None), "bold")
    if why:
        _print_causes(out, [cause for cause in result.why() if cause.message is not None])
    elif speaker is None:
        for event in (event for message in result.messages for event in events_of(message)):
            transcript.show(event)
    else:
        for message in result.viewpoint(speaker):
            transcript.head(_role(message))
            transcript.body(_text(message))
    _print_end(out, result, transcript, follow_up)


def _print_end(out: Console, result: Result, transcript: Transcript, follow_up: FollowUp) -> None:
    """Say how a session has ended, or what it waits for and how it goes on."""
    if result.outcome is not None:
        transcript.show(Ended.of(result.session, result.outcome))
        return
    transcript.rule()
    if not result.pending:
        plain(out, "Not finished. It goes on with:", "bold")
        plain(out, follow_up.command("resume", result.session))
        return
    for question in result.pending:
        prose(out, f"Waits for an answer. {told(question)}", "bold")
    for way in ways_on(result.session, result.pending, follow_up):
        plain(out, way)


def _print_causes(out: Console, causes: list[Cause]) -> None:
    out.print()
    if not causes:
        plain(out, "Nothing was judged, rejected or counted on the way.", "dim")
        return
    ids = max(len(cause.message or "") for cause in causes)
    for cause in causes:
        row = Text((cause.message or "").ljust(ids) + "  ", "dim")
        text = Text(one_line(cause.text), _STYLES.get(cause.kind, ""))
        # On a screen further lines are indented to where the text begins.
        width = max(1, out.width - row.cell_len)
        lines = text.wrap(out, width) if on_screen(out) else [text]
        for place, part in enumerate(lines):
            part.rstrip()
            out.print(row if place == 0 else " " * row.cell_len, part, sep="", soft_wrap=True)


_STYLES = {CauseKind.REJECTED: "dim", CauseKind.COUNTED: "yellow"}


def _show_json(result: Result, speaker: str | None, *, why: bool) -> None:
    if why:
        for cause in result.why():
            json_line(cause.model_dump_json())
        return
    if speaker is None:
        for event in replayed(result):
            JsonLines().show(event)
        for question in result.pending:
            JsonLines().show(QuestionAsked(question=question))
        return
    for message in convert_to_openai_messages(result.viewpoint(speaker)):
        json_line(json.dumps(message))


_ROLES = {"ai": "assistant", "human": "user"}


def _role(message: BaseMessage) -> str:
    role = _ROLES.get(message.type, message.type)
    return f"{role} ({message.name})" if message.name else role


def _text(message: BaseMessage) -> str:
    calls = getattr(message, "tool_calls", ())
    lines = [f"calls {call['name']}({json.dumps(call['args'])})" for call in calls]
    return "\n".join([*([message.text] if message.text else []), *lines])


def show_models() -> None:
    """Tell which models there are and which one is the default."""
    settings = load_settings()
    out = stdout()
    weights = embedded.weights() if embedded.is_available() else None
    plain(out, "On this machine:", "bold")
    if weights is None:
        plain(out, f"  none installed; to have one: {embedded.how_to_install()}")
    else:
        plain(out, f"  {EMBEDDED}  ({weights.stem}, tiny: it shows how things work)")
    names: list[str] = []
    if _has_server(settings):
        plain(out, f"At {one_line(address_of(settings))}:", "bold")
        names = asyncio.run(_listed(settings))
        for name in names:
            plain(out, f"  {one_line(name)}")
    plain(out, "Speaks where none is named:", "bold")
    plain(out, f"  {one_line(_default(settings, names, is_local=weights is not None))}")


async def _listed(settings: Settings) -> list[str]:
    from ...nodes.models.client.clients import listed  # loads the client of OpenAI

    err = stderr()
    with Progress(err, "Waiting for the list of models") as progress:

        def notify(text: str) -> None:
            with progress.aside():
                prose(err, text, "dim")

        return await listed(settings, notify)


def _has_server(settings: Settings) -> bool:
    return settings.api_key is not None or settings.base_url is not None


def _default(settings: Settings, names: list[str], *, is_local: bool) -> str:
    """The default model, as `nodes.models.resolve` chooses it."""
    if settings.model is not None:
        return settings.model
    if _has_server(settings):
        return next(iter(names), "none") if settings.base_url is not None else OPENAI_MODEL
    return EMBEDDED if is_local else no_model()
