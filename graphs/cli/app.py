"""The command line: its commands and their arguments.

The commands in which a person takes part are in `graphs.cli.people`, those that fork sessions,
dump, load, reset, copy or export them in `graphs.cli.transfer`, those about a conversation in a
file in `graphs.cli.file`. What a command needs is imported
inside it: help and a mistyped option need nothing of what runs a conversation.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from .batch import app as batch
from .exit import EXIT_CODES
from .file import check, graph, init
from .options import (
    BEGIN,
    HELP,
    Commands,
    Json,
    ModelOption,
    Reset,
    Seed,
    Session,
    StoreOption,
    cap_option,
    mode_option,
)
from .people import answer, chat, say
from .transfer import copy, dump, export, fork, load, reset
from .view import view

app = typer.Typer(
    cls=Commands,
    help=HELP,
    epilog=EXIT_CODES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:  # typer calls it so
    if wanted:
        typer.echo(f"duologue {version('duologue')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", envvar="DUOLOGUE_TRACEBACK", help="Show where an error comes from."
        ),
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Declare the options that all commands share; `Commands` reads them."""
    if context.invoked_subcommand is None:
        typer.echo(BEGIN, nl=False)


@app.command()
def run(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK|FILE",
            help="What the two work on; or a .toml or .json file with a conversation, which takes "
            "only --session, --store, --model, --reset and --json.",
        ),
    ],
    user_role: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who instructs, such as 'Stock Trader'.")
    ] = None,
    assistant_role: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who solves, such as 'Python Programmer'.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The session's id; a known session "
            "goes on where it was. [default: made from the task]",
        ),
    ] = None,
    store: StoreOption = None,
    model: ModelOption = None,
    max_iterations: Annotated[int | None, cap_option("5")] = None,
    mode: Annotated[str | None, mode_option("max_iterations_only")] = None,
    word_limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="The longest rewritten task, in words. [default: 50]"),
    ] = None,
    specify_task: Annotated[
        bool | None,
        typer.Option(
            help="Whether a model first makes the task more specific. "
            "[default: unless it is the embedded model]",
            show_default=False,
        ),
    ] = None,
    seed: Seed = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="The temperature, 0 to 2. [default: 0.2]")
    ] = None,
    person: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A role that you play yourself; repeatable."),
    ] = None,
    reset: Reset = False,
    as_json: Json = False,
) -> None:
    """Run a conversation to its outcome.

    A role-play of two takes the task and two roles; any conversation is run from a file.
    """
    given = {
        "user_role": user_role,
        "assistant_role": assistant_role,
        "max_iterations": max_iterations,
        "mode": mode,
        "word_limit": word_limit,
        "specify_task": specify_task,
        "seed": seed,
        "temperature": temperature,
        "people": person,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    # With roles it is a task, even one that ends in a file's name, unless there is such a file.
    has_roles = user_role is not None and assistant_role is not None
    named = task.lower().endswith((".toml", ".json"))
    is_file = named and (not has_roles or Path(task).is_file())
    _check_options(options, is_file=is_file)

    from ..kinds.role_play import role_play
    from .run import follow
    from .terminal.follow_up import FollowUp

    source = task if is_file else role_play(task, **options)
    follow(source, session, FollowUp(store, model), reset=reset, as_json=as_json)


def _check_options(options: dict[str, Any], *, is_file: bool) -> None:
    """Refuse options that contradict each other, before anything else is imported."""
    from ..common.errors import SpecError

    if is_file:
        for name, value in options.items():
            option = "--no-specify-task" if value is False else _OPTIONS.get(name, _option(name))
            raise SpecError(f"leave out {option}: the file says that itself")
        return
    for name, who in (("user_role", "who instructs"), ("assistant_role", "who solves")):
        if name not in options:
            raise SpecError(f"a task needs two roles: {_option(name)} is missing ({who})")


_OPTIONS = {"people": "--person"}
"""The options that are not called like their fields."""


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


@app.command()
def resume(
    session: Session, store: StoreOption = None, model: ModelOption = None, as_json: Json = False
) -> None:
    """Go on with a session where it stopped. No finished model call is made again."""
    from .run import follow
    from .terminal.follow_up import FollowUp

    follow(None, session, FollowUp(store, model), reset=False, as_json=as_json)


app.command()(chat)
app.command()(answer)
app.command()(init)
app.command()(check)
app.command()(graph)
app.add_typer(batch, name="batch")


@app.command()
def sessions(store: StoreOption = None, as_json: Json = False) -> None:
    """List the sessions, the newest first."""
    from .sessions import show_sessions

    show_sessions(store, as_json=as_json)


@app.command()
def show(
    session: Session,
    speaker: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="SPEAKER",
            help="Show what this speaker sees, in the roles it sees: its own lines are the "
            "assistant's, the others' the user's.",
        ),
    ] = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Show the messages that caused its end, or count towards one so far: verdicts, "
            "done tokens, tool calls, and the messages that a guard counted.",
        ),
    ] = False,
    thoughts: Annotated[
        bool, typer.Option("--thoughts", help="Show what models thought, too.")
    ] = False,
    prompt: Annotated[
        bool,
        typer.Option(
            "--prompt",
            help="Show what that speaker's model was sent at its newest turn, word for word.",
        ),
    ] = False,
    html: Annotated[
        bool,
        typer.Option(
            "--html",
            help="Show it in the browser: the page that `duologue export --format html` writes. "
            "In a pipe, the page itself is written.",
        ),
    ] = False,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Show what was said in a session, and how it ended.

    Beside each message stands its place, for `duologue fork --at`.
    """
    from ..common.errors import SpecError

    if speaker is not None and why:
        raise SpecError("--why is the same for all speakers: leave out --as")
    if speaker is not None and thoughts:
        raise SpecError("--thoughts: no speaker sees them: leave out --as")
    if prompt and speaker is None:
        raise SpecError("--prompt shows what one speaker was sent: say which by --as")
    if html:
        others = {"--why": why, "--thoughts": thoughts, "--prompt": prompt, "--json": as_json}
        for option, given in others.items():
            if given:
                raise SpecError(f"--html shows everything: leave out {option}")
        from .transfer import show_page

        show_page(session, speaker, store)
        return
    from .show import show_prompt, show_session
    from .terminal.follow_up import FollowUp

    follow_up = FollowUp(store)
    if prompt and speaker is not None:
        show_prompt(session, follow_up, speaker, as_json=as_json)
        return
    show_session(session, follow_up, speaker=speaker, why=why, thoughts=thoughts, as_json=as_json)


for command in (view, say, fork, dump, load, reset, copy, export):
    app.command()(command)


@app.command()
def stop(session: Session, store: StoreOption = None) -> None:
    """Stop a session that runs, after its turn, or one that waits."""
    from .sessions import stop_stored
    from .terminal.console import plain, stdout

    if stop_stored(session, store):
        plain(stdout(), f"Stopped {session}.")
    else:
        plain(stdout(), f"Asked {session} to stop after its current turn.")


@app.command()
def delete(session: Session, store: StoreOption = None) -> None:
    """Delete a session and everything it holds."""
    from .sessions import delete_stored
    from .terminal.console import plain, stdout

    delete_stored(session, store)
    plain(stdout(), f"Deleted {session}.")


@app.command()
def models() -> None:
    """List the available models, and say which one is the default."""
    from .models import show_models

    show_models()


def main() -> None:
    """Run the command `duologue`."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # What a terminal's encoding lacks must not end a conversation.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="duologue")
    except KeyboardInterrupt:
        # While the libraries are still being loaded there is nothing to put in order.
        sys.exit(130)
