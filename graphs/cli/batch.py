"""The commands `duologue batch …` and their arguments.

Each command imports what it needs, as in `graphs.cli.app`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, ModelOption, StoreOption

app = typer.Typer(
    help="Run many sessions of one conversation, and see how they stand.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The batch's name.")]


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .toml or .json file with a batch.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The batch's name; a known batch goes on where it was. [default: made from FILE]",
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="How many sessions run at once. [default: 20]",
            show_default=False,
        ),
    ] = 20,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run cells that have failed again.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only say how many sessions and calls it would take, and show two of them.",
        ),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="Run it by Ray: on all cores of this machine, or on a cluster.",
        ),
    ] = None,
    store: StoreOption = None,
    model: ModelOption = None,
    as_json: Json = False,
) -> None:
    """Run a batch to its end, or go on with it. What has ended is not run again.

    Ctrl-C pauses it: model calls under way are finished, and the same command goes on.
    """
    if dry_run:
        from .show_batch import show_plan

        show_plan(file, name, as_json=as_json)
        return
    from ..batch.driver import BatchSettings
    from .run_batch import run_here

    settings = BatchSettings(name, concurrency, retry_failed, ray)
    run_here(file, settings, {"store": store, "model": model}, as_json=as_json)


@app.command()
def status(
    name: _Name,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow it until nobody runs it any more.")
    ] = False,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Show how a batch stands, whoever runs it."""
    from .show_batch import show_status

    show_status(name, store, watch=watch, as_json=as_json)


@app.command()
def report(
    name: _Name,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The page's file. [default: NAME.html]"),
    ] = None,
    transcripts: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Of how many cells transcripts are written beside it, at most. [default: 1000]",
            show_default=False,
        ),
    ] = 1000,
    store: StoreOption = None,
) -> None:
    """Write what a batch has come to as one HTML page, with transcripts beside it."""
    from ..batch.handle import BatchRun
    from .terminal.console import stdout

    stdout().print(BatchRun(name, store=store).report(output, transcripts=transcripts))


@app.command("list")
def list_(store: StoreOption = None, as_json: Json = False) -> None:
    """List the batches, the newest first."""
    from .show_batch import show_batches

    show_batches(store, as_json=as_json)


@app.command()
def delete(name: _Name, store: StoreOption = None) -> None:
    """Delete a batch with all its sessions."""
    from ..batch.handle import BatchRun
    from .terminal.console import plain, stdout

    BatchRun(name, store=store).delete()
    plain(stdout(), f"Deleted {name}.")
