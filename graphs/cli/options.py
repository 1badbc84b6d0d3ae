"""The help of `duologue`, shared options, exit codes, and one-line errors."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from ..common.errors import (
    AgentError,
    AnswerError,
    BatchError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
    StoreError,
    ToolServerError,
    hide_frames,
)
from .terminal.console import on_screen, one_line, stderr


class ExitCode(IntEnum):
    """The exit codes, each with its meaning."""

    DONE = 0, "the conversation ended under its rules, or the command succeeded"
    FAILED = 1, "an unexpected error, or a simulation failed"
    BAD_INPUT = 2, "bad input: an argument, a conversation, its file or a setting"
    MODEL = 3, "a model, an agent or an MCP server is not available"
    SESSION = 4, "a session or its store can't be used"
    WAITING = 5, "the session waits for a person's answer"
    UNFINISHED = 6, "sessions of a batch failed, wait for a person, or were paused"
    INCONCLUSIVE = 7, "no simulation failed, but at least one is inconclusive"
    INTERRUPTED = 130, "interrupted (Ctrl-C); the session can be resumed"
    CLOSED_PIPE = 141, "the reader of the output closed the pipe; the session can be resumed"
    TERMINATED = 143, "terminated (SIGTERM); the session can be resumed"

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> "ExitCode":
        """Return a member with its number and its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


EXIT_CODES = "\b\nExit codes:\n" + "".join(f"  {code:<4} {code.meaning}\n" for code in ExitCode)
"""The exit codes, as the help shows them."""


_CODES: dict[type[DuologueError], ExitCode] = {
    SpecError: ExitCode.BAD_INPUT,
    AnswerError: ExitCode.BAD_INPUT,
    ModelError: ExitCode.MODEL,
    AgentError: ExitCode.MODEL,
    ToolServerError: ExitCode.MODEL,
    BatchError: ExitCode.SESSION,
    SessionError: ExitCode.SESSION,
    StoreError: ExitCode.SESSION,
}


C = TypeVar("C", bound=Callable[..., None])

PANELS: Final = ("Start", "Read", "Continue", "Test", "Many", "Serve", "Maintain", "Commands")
"""The headings of commands in the help, in this order."""


def run_to_exit(command: Coroutine[None, None, ExitCode]) -> None:
    """Run a command in an event loop, and exit with its code unless it is done."""
    code = asyncio.run(command)
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


def handle_signals(handle: Callable[[int], None]) -> None:
    """Call a function of the running event loop with each signal that ends the command."""
    for number in SIGNALS:
        with suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(number, handle, number)


SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def explain(error: Exception) -> ExitCode:
    """Print an error on one line of stderr, and return its exit code."""
    if isinstance(error, BrokenPipeError):
        # Python flushes stdout again at exit, which must not fail.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return ExitCode.CLOSED_PIPE
    text = Text.assemble(("Error:", "bold red"), " ", one_line(str(error)))
    console = stderr()
    console.print(text, soft_wrap=not on_screen(console))
    codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(codes, ExitCode.FAILED)


HELP = """AI agents and people work on a task by talking; the conversation ends at the right time.

\b
  duologue run "Develop a trading bot for the stock market" \\
      --user-role "Stock Trader" --assistant-role "Python Programmer"

Without an API key, a tiny model on this machine speaks. For a better model, set OPENAI_API_KEY, or
set OPENAI_BASE_URL to any server with OpenAI's API. `duologue resume` continues an interrupted
conversation.
"""


BEGIN = """AI agents and people work on a task by talking.

Let two agents talk:
  duologue run "Plan a garden" --user-role Cook --assistant-role Gardener

Chat with an agent yourself:
  duologue chat

Write a conversation to a file, check it and run it:
  duologue init role_play garden.toml
  duologue check garden.toml
  duologue run garden.toml

List the sessions, read one, or see them in the browser:
  duologue sessions
  duologue show SESSION
  duologue view

`duologue models` lists the models, and `duologue --help` lists all commands.
"""
"""The first steps, shown if no command is given."""


def add_commands(app: typer.Typer, panel: str, *commands: Callable[..., None]) -> None:
    """Add commands to an application or to a group of it, with their help and their examples.

    Args:
        app: The application or the group.
        panel: The heading of the commands in its help, or an empty text.
        *commands: The functions of the commands.
    """
    for command in commands:
        text, _, examples = (command.__doc__ or "").partition("\n    Examples:\n")
        text, _, options = text.partition("\n    Options:\n")
        _describe_options(command, options)
        lines = [f"  {line.strip()}" for line in examples.strip().splitlines()]
        # \b keeps click from joining the lines.
        epilog = "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *lines])
        name, heading = command.__name__.rstrip("_"), panel or None
        app.command(name, cls=Command, help=text, epilog=epilog, rich_help_panel=heading)(command)


def in_panel(heading: str, *names: str) -> Callable[[C], C]:
    """Return a decorator that shows some options of a command below a heading in the help."""

    def set_heading(command: C) -> C:
        for name in names:
            kind = command.__annotations__[name]
            (declared,) = getattr(kind, "__metadata__", (typer.Option(),))
            info = copy(declared)
            info.rich_help_panel = heading
            command.__annotations__[name] = Annotated[getattr(kind, "__origin__", kind), info]
        return command

    return set_heading


def _describe_options(command: Callable[..., None], section: str) -> None:
    """Add the descriptions of a command's options to its signature.

    The docstring describes an option below ``Options`` as ``parameter (--option METAVAR): help``,
    and an argument without the name of an option.
    """
    entries = re.findall(r"^ {8}(\w+) \((.*?)\): (.*(?:\n {9,}.*)*)", section, re.MULTILINE)
    for parameter, form, described in entries:
        names = [word for word in form.split() if word.startswith("--")]
        kind = command.__annotations__[parameter]
        # The annotation may declare more, such as the smallest number.
        (declared,) = getattr(
            kind, "__metadata__", (typer.Option() if names else typer.Argument(),)
        )
        info = copy(declared)
        info.help, info.show_default = " ".join(described.split()), False
        info.metavar = next((word for word in form.split() if word not in names), None)
        if names:
            # The first name of a declared option is its default until typer reads it.
            info.default, info.param_decls = ..., names
        command.__annotations__[parameter] = Annotated[getattr(kind, "__origin__", kind), info]


@contextmanager
def _escape_arguments() -> Iterator[None]:
    """Escape the arguments that an error about them quotes, and print the error on one line."""
    try:
        yield
    except Exception as error:
        # Errors about arguments have a message, but typer does not export their class.
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        if hasattr(error, "message") and hasattr(error, "exit_code") and not is_help:
            error.message = one_line(error.message)
        raise


def _write_panels(formatter: Any, rows: Iterable[tuple[str, Any]]) -> None:  # noqa: ANN401
    """Write the rows of a help text below their headings, which typer leaves out without markup."""
    panels: dict[str, list[Any]] = {}
    for heading, row in rows:
        if row is not None:
            panels.setdefault(heading, []).append(row)
    for heading, own in panels.items():
        with formatter.section(heading):
            formatter.write_dl(own)


class Command(TyperCommand):
    """A command whose help shows its options below their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # typer's own
        """Write the arguments, then the options of each panel."""
        parameters: list[Any] = self.get_params(ctx)
        arguments = [one for one in parameters if one.param_type_name == "argument"]
        options = [one for one in parameters if one.param_type_name == "option"]
        options.sort(key=lambda one: bool(one.rich_help_panel))
        _write_panels(formatter, [("Arguments", one.get_help_record(ctx)) for one in arguments])
        named = [(one.rich_help_panel or "Options", one.get_help_record(ctx)) for one in options]
        _write_panels(formatter, named)


class Group(TyperGroup):
    """A group whose help shows its commands below their headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # typer's own
        """Write the commands of each panel."""
        width = formatter.width - 6 - max(map(len, self.commands))
        commands: dict[str, Any] = {**self.commands}
        rows = [
            (one.rich_help_panel or "Commands", (name, one.get_short_help_str(width)))
            for name, one in commands.items()
        ]
        _write_panels(formatter, sorted(rows, key=lambda row: PANELS.index(row[0])))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  # typer's own
        """Find a command. If it is in another group, an error names that group."""
        name = args[0]
        if name not in self.commands:
            root = ctx.find_root()
            groups = {"": root.command, **root.command.commands}
            places = [
                f"`{' '.join(filter(None, (root.info_name, group, name)))}`"
                for group, one in groups.items()
                if name in getattr(one, "commands", {})
            ]
            if name in _OTHER_NAMES:
                places = [f"`{_OTHER_NAMES[name]}`"]
            elif name.endswith((".toml", ".json")) and "run" in self.commands:
                places = [f"`{ctx.command_path} run {name}`"]
            if places:
                ctx.fail(f"No such command {name!r}; did you mean {' or '.join(places)}?")
        return super().resolve_command(ctx, args)


_OTHER_NAMES: Final = {
    **dict.fromkeys(("history", "list", "ls"), "duologue sessions"),
    **dict.fromkeys(("new", "create"), "duologue init"),
    **dict.fromkeys(("dev", "studio"), "langgraph dev"),
    "continue": "duologue resume",
    "help": "duologue --help",
    "test": "duologue simulate",
    "version": "duologue --version",
}
"""Likely guesses for a command, with the command that they mean."""


class Commands(Group):
    """The group of all commands; reports an error on one line."""

    def make_context(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401  # typer's own
        """Read the arguments before the command's name."""
        with _escape_arguments():
            return super().make_context(*given, **named)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # typer does not export its context's class
        """Run a command."""
        hide_frames.is_on = not ctx.params["traceback"]
        try:
            with _escape_arguments():
                return super().invoke(ctx)
        except Exception as error:
            if ctx.params["traceback"] or not isinstance(error, DuologueError | OSError):
                raise
            raise typer.Exit(explain(error)) from None
        finally:
            hide_frames.is_on = True


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store of the sessions: a file, sqlite:///…, postgresql://… or memory:. "
        "[default: DUOLOGUE_STORE, or a file in your data folder]",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model for speakers that do not name one: a model's name, 'embedded', or the path "
        "of a .gguf file. [default: DUOLOGUE_MODEL; see `duologue models`]",
    ),
]
ToolsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="MODULE",
        help="A Python module whose tools the session may name, or one tool as MODULE:NAME. "
        "Repeatable.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", help="A random seed. Some models repeat their output with it."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature", metavar="T", help="The model's temperature, 0 to 2. [default: 0.2]"
    ),
]
Reset = Annotated[
    bool,
    typer.Option("--reset", help="First delete the stored session with this id, then start again."),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="Maximum number of sessions that are handled at the same time. [default: 20]",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")]
Attach = Annotated[
    list[str] | None,
    typer.Option(
        "--attach",
        metavar="FILE",
        help="An image, a PDF or an audio file for your message: a path or an address "
        "(https://…). Repeatable.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="N",
        min=0,
        max=65535,
        help="The port on 127.0.0.1. [default: any free port]",
        show_default=False,
    ),
]
SpeakerOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="SPEAKER",
        help="Only the memory of this speaker. [default: the whole session]",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="The file to write. [default: standard output]"),
]
Session = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="The session's id, as listed by `duologue sessions`."),
]


def select_set(**options: Any) -> dict[str, Any]:
    """Return the options that the command line sets."""
    return {name: value for name, value in options.items() if value is not None}


def cap_option(default: str) -> Any:  # noqa: ANN401  # as typer's own
    """Return the option for the round cap, with its default for the help."""
    return typer.Option(
        "--max-iterations",
        metavar="N",
        help=f"Maximum number of rounds; each speaker speaks once in a round. [default: {default}]",
    )


def mode_option(default: str) -> Any:  # noqa: ANN401  # as typer's own
    """Return the option for the end-chat mode, with its default for the help."""
    return typer.Option(
        "--mode",
        metavar="MODE",
        help="When completed tasks end the conversation: max_iterations_only (never, "
        "and no judge can end it), end_chat_after_first_completion (at once), "
        "one_last_chat_after_first_completion (after one more message), "
        "one_last_group_chat_after_first_completion (after one more message of every speaker) "
        "or all_task_must_complete (once every task is complete). "
        f"[default: {default}]",
    )
