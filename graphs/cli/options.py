"""The help of `duologue`, shared options, exit codes, and one-line errors."""

import asyncio
import atexit
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from enum import IntEnum
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
    if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        # Everything is printed and stored. A repeated signal keeps the code, and ends a process
        # that waits for a thread of an agent or a tool.
        for number in SIGNALS:
            signal.signal(number, lambda *_: os._exit(code))
            # After the threads, Python drops its handlers, and a signal would kill the process.
            atexit.register(signal.signal, number, signal.SIG_IGN)
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


Concurrency = Annotated[int, typer.Option(min=1)]
Port = Annotated[int, typer.Option(min=0, max=65535)]


class SharedOptions:
    """The descriptions of options and arguments that several commands have, by parameter.

    Options:
        file (FILE): A .toml or .json file with a conversation.
        files (FILE...): The .toml or .json files of the conversations.
        session (SESSION): The session's id, as listed by `duologue sessions`.
        name (NAME): The batch's name, as listed by `duologue batch list`.
        store (--store URL): The store of the sessions: a file, sqlite:///…, postgresql://… or
            memory:. [default: DUOLOGUE_STORE, or a file in your data folder]
        model (--model NAME): The model for speakers that do not name one: a model's name,
            'embedded', or the path of a .gguf file. [default: DUOLOGUE_MODEL; see `duologue
            models`]
        tools (--tools MODULE): A Python module whose tools the session may name, or one tool as
            MODULE:NAME. Repeatable.
        seed (--seed N): A random seed. Some models repeat their output with it.
        temperature (--temperature T): The model's temperature, 0 to 2. [default: 0.2]
        reset (--reset): First delete the stored session with this id, then start again.
        concurrency (--concurrency N): Maximum number of sessions that are handled at the same time.
            [default: 20]
        as_json (--json): Print one JSON object per line, for programs.
        attach (--attach FILE): An image, a PDF or an audio file for your message: a path or an
            address (https://…). Repeatable.
        port (--port N): The port on 127.0.0.1. [default: any free port]
        speaker (--as SPEAKER): Only the memory of this speaker. [default: the whole session]
        output (--output FILE): The file to write. [default: standard output]
        into (--into ID): The id of the new session or, with --as, of the session whose speaker gets
            the memory.
        status (--status STATUS): Only sessions with this status: running, waiting, unfinished or
            finished.
        batch (--batch NAME): Only the sessions of this batch.
        max_iterations (--max-iterations N): Maximum number of rounds; each speaker speaks once in a
            round.
        mode (--mode MODE): When completed tasks end the conversation: max_iterations_only (never,
            and no judge can end it), end_chat_after_first_completion (at once),
            one_last_chat_after_first_completion (after one more message),
            one_last_group_chat_after_first_completion (after one more message of every speaker) or
            all_task_must_complete (once every task is complete).
    """


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
            kind, info = _read_annotation(command.__annotations__[name], typer.Option())
            info.rich_help_panel = heading
            command.__annotations__[name] = Annotated[kind, info]
        return command

    return set_heading


def _describe_options(command: Callable[..., None], section: str) -> None:
    """Add the descriptions of a command's options to its signature.

    The docstring describes an option below ``Options`` as ``parameter (--option METAVAR): help``,
    and an argument without the name of an option. `SharedOptions` describes the others. A
    description that is only a default completes the shared one.
    """
    entries = _read_options(SharedOptions.__doc__ or "")
    for parameter, (form, help_text) in _read_options(section).items():
        if help_text.startswith("[default"):
            help_text = f"{entries[parameter][1]} {help_text}"
        entries[parameter] = form, help_text
    for parameter in entries.keys() & command.__annotations__.keys():
        form, help_text = entries[parameter]
        names = [word for word in form.split() if word.startswith("--")]
        # The annotation may declare more, such as the smallest number.
        plain = typer.Option() if names else typer.Argument()
        kind, info = _read_annotation(command.__annotations__[parameter], plain)
        info.help, info.show_default = help_text, False
        info.metavar = next((word for word in form.split() if word not in names), None)
        if names:
            # The first name of a declared option is its default until typer reads it.
            info.default, info.param_decls = ..., names
        command.__annotations__[parameter] = Annotated[kind, info]


def _read_annotation(annotation: Any, plain: Any) -> tuple[Any, Any]:  # noqa: ANN401  # typer's own
    """Return the type of a parameter and the declaration of its option, by default a plain one."""
    if not hasattr(annotation, "__metadata__"):
        return annotation, plain
    return annotation.__origin__, copy(annotation.__metadata__[0])


def _read_options(section: str) -> dict[str, tuple[str, str]]:
    """Return the form and the help of each option that a docstring describes, by parameter."""
    entries = re.findall(r"^ {8}(\w+) \((.*?)\): (.*(?:\n {9,}.*)*)", section, re.MULTILINE)
    return {name: (form, " ".join(text.split())) for name, form, text in entries}


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


def select_set(**options: Any) -> dict[str, Any]:
    """Return the options that the command line sets."""
    return {name: value for name, value in options.items() if value is not None}
