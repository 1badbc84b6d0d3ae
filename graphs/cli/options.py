"""What the commands share: their help and their options."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

HELP = """AI agents, and people too, work on a task by talking, and stop at the right moment.

\b
  duologue run "Develop a trading bot for the stock market" \\
      --user-role "Stock Trader" --assistant-role "Python Programmer"

Without a key a tiny model on this machine speaks. For a better one set OPENAI_API_KEY, or
OPENAI_BASE_URL to any server that speaks OpenAI's API. A conversation that was interrupted goes on
with `duologue resume`.
"""


BEGIN = """AI agents, and people too, work on a task by talking, and stop at the right
moment.

Let two agents talk:
  duologue run "Plan a garden" --user-role Cook --assistant-role Gardener

Talk with an agent yourself:
  duologue chat

Write a conversation to a file, see what it is, and run it:
  duologue init role_play garden.toml
  duologue check garden.toml
  duologue run garden.toml

See what there is, and read it again:
  duologue sessions
  duologue show SESSION
  duologue view

`duologue models` says which model speaks, `duologue --help` lists all commands.
"""
"""What to do first, where no command is given."""


class Commands(TyperGroup):
    """The group of all commands; reports an error on one line."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # typer does not export its context's class
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from ..common.errors import DuologueError

            if ctx.params["traceback"] or not isinstance(error, DuologueError | OSError):
                raise
            from .exit import explain

            raise typer.Exit(explain(error)) from None


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where sessions are kept: a path, sqlite:///…, postgresql://… or memory:. "
        "[default: DUOLOGUE_STORE, else one file in your data folder]",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="What speaks where the conversation names no model: a name, embedded, or the path "
        "of a .gguf file. [default: DUOLOGUE_MODEL]",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Ask models that can for the same output again."),
]
Reset = Annotated[
    bool, typer.Option("--reset", help="Delete what is stored of that session first.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
SpeakerOption = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="SPEAKER", help="This speaker's memory only. [default: the whole session]"
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="The file to write. [default: stdout]"),
]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


def cap_option(default: str) -> Any:  # noqa: ANN401  # as typer's own
    """Declare the option for the cap."""
    return typer.Option(
        "--max-iterations", metavar="N", help=f"The cap, in rounds. [default: {default}]"
    )


def mode_option(default: str) -> Any:  # noqa: ANN401  # as typer's own
    """Declare the option for how completed tasks end a conversation."""
    return typer.Option(
        "--mode",
        metavar="MODE",
        help="How completed tasks end it: max_iterations_only, "
        "end_chat_after_first_completion, one_last_chat_after_first_completion, "
        "one_last_group_chat_after_first_completion or all_task_must_complete. "
        f"[default: {default}]",
    )
