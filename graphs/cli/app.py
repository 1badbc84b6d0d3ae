"""The commands of `duologue` that run, show and stop a session, and those for conversation files.

The commands in which a person takes part are in `graphs.cli.people`; those that list, delete, fork
or export sessions are in `graphs.cli.manage`, and those that dump or copy them in
`graphs.cli.session_data`; those that run or judge many sessions are in `graphs.cli.batch`; servers
are in `graphs.cli.servers`. Each command imports its modules inside its function, so that help and
a mistyped option load nothing that runs a conversation.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from ..common.errors import SpecError
from .batch import app as batch, compare, judge, simulate
from .follow_up import FollowUp
from .manage import delete, export, fork, sessions
from .options import (
    BEGIN,
    EXIT_CODES,
    HELP,
    Commands,
    Group,
    add_commands,
    in_panel,
    select_set,
)
from .people import answer, chat, say
from .servers import mcp, serve, view
from .session_data import app as session_data

_SUFFIX = ".toml"


def init(
    kind: str | None = None,
    file: Path | None = None,
) -> None:
    """Write a sample conversation to a TOML file, with comments.

    An existing file is not overwritten.

    Options:
        kind (KIND): The kind of sample: blogger, chat, coder, group_solve, role_play, simulation,
            user_proxy; conversation, which lists every field; or batch, for `duologue batch run`.
            [default: role_play]
        file (FILE): The file to write. [default: KIND.toml]

    Examples:
        duologue init role_play garden.toml
    """
    if kind is not None and file is None and kind.endswith(_SUFFIX):
        file, kind = Path(kind), None
    from .descriptions import read_sample
    from .terminal.console import plain, stderr, stdout

    kind = kind or "role_play"
    text = read_sample(kind)
    file = file or Path(f"{kind}{_SUFFIX}")
    if file.suffix.lower() != _SUFFIX:
        raise SpecError(f"{file}: the name must end in {_SUFFIX}")
    try:
        with file.open("xb") as new:
            new.write(text.encode())
    except FileExistsError:
        raise SpecError(f"{file}: already exists; name another file") from None
    except OSError as error:
        raise SpecError(f"{file}: can't be written: {error.strerror or error}") from error
    plain(stdout(), str(file))
    run = "batch run" if kind == "batch" else "run"
    plain(stderr(), f"Edit it, then run it with: {FollowUp().command(run, str(file))}")


def check(file: Path, tools: list[str] | None = None) -> None:
    """Check a conversation file and describe it. No model is called.

    Examples:
        duologue check garden.toml
    """
    from .descriptions import describe

    describe(file, tools or ())


def graph(file: Path, output: Path | None = None) -> None:
    """Draw the possible turns and ends of a conversation.

    The drawing is printed as Mermaid. With --output it is written as .svg, .png or .mmd, by the
    ending of the file's name.

    Examples:
        duologue graph garden.toml --output garden.svg
    """
    from ..show.draw import draw

    text = draw(file, output)
    if output is None:
        typer.echo(text.encode(), nl=False)


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
            "--traceback",
            envvar="DUOLOGUE_TRACEBACK",
            help="Show the Python traceback of an error.",
        ),
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Declare the options that all commands share; `Commands` reads them."""
    if context.invoked_subcommand is None:
        typer.echo(BEGIN, nl=False)


@in_panel(
    "Options of a role-play",
    *("user_role", "assistant_role", "max_iterations", "mode", "word_limit", "specify_task"),
    *("seed", "temperature", "person"),
)
def run(
    task: str,
    user_role: str | None = None,
    assistant_role: str | None = None,
    session: str | None = None,
    store: str | None = None,
    model: str | None = None,
    max_iterations: int | None = None,
    mode: str | None = None,
    word_limit: int | None = None,
    specify_task: bool | None = None,
    seed: int | None = None,
    temperature: float | None = None,
    person: list[str] | None = None,
    tools: list[str] | None = None,
    reset: bool = False,
    as_json: bool = False,
) -> None:
    """Run a conversation until it ends.

    Name a task and two roles for a role-play, or a file for any other conversation.

    Options:
        task (TASK|FILE): The task of the two roles, or a .toml or .json file with a conversation.
            A file contains the options of a role-play; do not pass them with it.
        user_role (--user-role NAME): The role that instructs, such as 'Stock Trader'.
        assistant_role (--assistant-role NAME): The role that solves, such as 'Python Programmer'.
        session (--session ID): The session's id; a session that exists is resumed. [default: made
            from the task]
        max_iterations (--max-iterations N): [default: 5]
        mode (--mode MODE): [default: max_iterations_only]
        word_limit (--word-limit N): Maximum words of the rewritten task. [default: 50]
        specify_task (--specify-task/--no-specify-task): Whether a model first makes the task more
            specific. [default: yes, except with the embedded model]
        person (--person NAME): A role that you play yourself. Repeatable.
        tools (--tools MODULE): A Python module with tools that the file may name, or that the
            assistant role may call; or one tool as MODULE:NAME. Repeatable.

    Examples:
        duologue run "Plan a garden" --user-role Cook --assistant-role Gardener
        duologue run garden.toml --session garden
    """
    options = select_set(
        user_role=user_role,
        assistant_role=assistant_role,
        max_iterations=max_iterations,
        mode=mode,
        word_limit=word_limit,
        specify_task=specify_task,
        seed=seed,
        temperature=temperature,
        people=person,
    )
    # With roles, a text such as "Fix main.toml" is a task unless such a file exists.
    has_roles = user_role is not None and assistant_role is not None
    named = task.lower().endswith((".toml", ".json"))
    is_file = named and (not has_roles or Path(task).is_file())
    _check_options(task, options, is_file=is_file)

    from ..kinds.role_play import role_play
    from .run import follow

    follow_up = FollowUp(store, model, tools or ())
    if not is_file and tools:
        from ...tools.registry.functions import import_tools

        options["assistant"] = {"tools": [tool.name for tool in import_tools(tools, "--tools")]}
    source = task if is_file else role_play(task, **options)
    follow(source, session, follow_up, reset=reset, as_json=as_json)


def _check_options(task: str, options: dict[str, Any], *, is_file: bool) -> None:
    """Check that the options fit together, before anything that runs a conversation is imported."""
    if is_file:
        for name, value in options.items():
            option = "--no-specify-task" if value is False else _name_option(name)
            raise SpecError(
                f"{option}: can't be used with a file; set the field in the file instead"
            )
        return
    for name, who in (("user_role", "instructs"), ("assistant_role", "solves the task")):
        if name not in options:
            near = [f"{task}{one}" for one in (".toml", ".json") if Path(f"{task}{one}").is_file()]
            file = f", or did you mean the file {near[0]!r}?" if near else ""
            raise SpecError(f"{_name_option(name)} is missing; name the role that {who}{file}")


def _name_option(field: str) -> str:
    """Return the option that sets a field."""
    return "--person" if field == "people" else "--" + field.replace("_", "-")


def resume(
    session: str,
    store: str | None = None,
    model: str | None = None,
    tools: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Continue a session where it stopped. No finished model call is repeated.

    Examples:
        duologue resume garden
    """
    from .sessions import require_session

    require_session(session, store)

    from .run import follow

    follow(None, session, FollowUp(store, model, tools or ()), as_json=as_json)


def show(
    session: str,
    speaker: str | None = None,
    why: bool = False,
    thoughts: bool = False,
    prompt: bool = False,
    html: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show the messages of a session and how it ended.

    Each message is shown with its place, such as m0004, which `duologue fork --at` accepts.

    Options:
        speaker (--as SPEAKER): Show the messages as this speaker's model receives them: its own as
            assistant messages, the others' as user messages.
        why (--why): Show the messages that caused the end or, in a session that has not ended, that
            count towards one: verdicts, done tokens, tool calls, and the messages that a guard
            counted.
        thoughts (--thoughts): Show the models' thoughts as well.
        prompt (--prompt): With --as: show the exact prompt of that speaker's latest turn.
        html (--html): Open the session in the browser, as the page that `duologue export --format
            html` writes. In a pipe, print the page.

    Examples:
        duologue show garden --why
    """
    if speaker is not None and why:
        raise SpecError("--why is the same for all speakers; leave out --as")
    if speaker is not None and thoughts:
        raise SpecError("--thoughts: no speaker sees thoughts; leave out --as")
    if prompt and speaker is None:
        raise SpecError("--prompt shows the prompt of one speaker; name the speaker with --as")
    if html:
        others = {"--why": why, "--thoughts": thoughts, "--prompt": prompt, "--json": as_json}
        for option, given in others.items():
            if given:
                raise SpecError(f"--html shows everything; leave out {option}")
    from .sessions import require_session

    row = require_session(session, store)
    if html:
        from .manage import show_page

        show_page(session, speaker, store)
        return
    from .show import show_prompt, show_session

    follow_up = FollowUp(store)
    if prompt and speaker is not None:
        show_prompt(session, follow_up, speaker, as_json=as_json)
        return
    show_session(
        row, session, follow_up, speaker=speaker, why=why, thoughts=thoughts, as_json=as_json
    )


def stop(session: str, store: str | None = None) -> None:
    """Stop a session after its turn, or at once if it waits.

    Examples:
        duologue stop garden
    """
    from .sessions import stop_stored
    from .terminal.console import plain, stdout

    if stop_stored(session, store):
        plain(stdout(), f"Stopped {session}.")
    else:
        plain(stdout(), f"Asked {session} to stop after its current turn.")


def models() -> None:
    """List the available models and the default one.

    Examples:
        duologue models
    """
    from .descriptions import show_models

    show_models()


add_commands(app, "Start", run, chat, init, check, graph, models)
add_commands(app, "Read", sessions, show, view, export)
add_commands(app, "Continue", resume, answer, say, fork, stop)
add_commands(app, "Test", simulate, compare, judge)
app.add_typer(batch, cls=Group, name="batch", rich_help_panel="Many")
add_commands(app, "Serve", mcp, serve)
app.add_typer(session_data, cls=Group, name="session", rich_help_panel="Maintain")
add_commands(app, "Maintain", delete)


def main() -> None:
    """Run the command `duologue`."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not end a conversation.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="duologue")
    except KeyboardInterrupt:
        # Ctrl-C while libraries are still being loaded: nothing needs to be cleaned up.
        sys.exit(130)
