"""The command that has stored sessions judged.

The command imports its modules inside its function, as in `graphs.cli.app`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .options import Concurrency, Json, StoreOption


def judge(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="SESSION", help="The ids of the sessions.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Judge all sessions of this batch that have ended."),
    ] = None,
    criteria: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .txt file with one criterion per line, or a .toml or .json file with the "
            "fields of a separate judge. [default: the conversation's separate judge]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model to judge with. [default: the model set in the separate judge]",
        ),
    ] = None,
    concurrency: Concurrency = 20,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Ask a judge about stored sessions, without running them again.

    The verdicts are stored next to the sessions. The same command resumes after an interruption:
    the same judge is not asked again about the same messages.
    """
    from ..common.errors import SpecError

    if bool(sessions) is (batch is not None):
        raise SpecError("judge: name either sessions or, with --batch, a batch")
    from .judge_sessions import judge_here

    judge_here(sessions or batch or "", criteria, model, store, concurrency, as_json=as_json)
