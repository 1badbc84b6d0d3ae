"""The commands that run, test or judge many sessions: `batch …`, `simulate`, `compare`, `judge`.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .options import Concurrency, Json, ModelOption, StoreOption, example_of


def simulate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .toml or .json file with scenarios.")
    ],
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            metavar="MODULE:NAME|URL",
            help="The agent under test: a Runnable, such as a compiled graph, or a function of the "
            "messages, in a Python module; or the URL of an OpenAI-compatible server, or a2a: and "
            "the address of an A2A endpoint.",
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of simulations of each scenario with each persona. [default: as in FILE, "
            "or 1]",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The name of the run; a run that exists is resumed. [default: made from FILE]",
        ),
    ] = None,
    agent_version: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The version of the agent. A run that was begun with another version is not "
            "resumed.",
        ),
    ] = None,
    judge_model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The model that judges the criteria. Twice for two judges, whose agreement is "
            "reported. [default: as --model]",
        ),
    ] = None,
    agent_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Seconds after which a reply is an error. [default: 300]"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The report to write. [default: NAME.html]"),
    ] = None,
    concurrency: Concurrency = 20,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="Run the simulations that failed with an error again."),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT", help="Run the simulations with Ray, as `duologue batch run`."
        ),
    ] = None,
    store: StoreOption = None,
    model: ModelOption = None,
    as_json: Json = False,
) -> None:
    """Test an agent by simulated users, and write a report.

    Each scenario of the file runs with each persona, several times. The same command again resumes
    the run. The exit code is 0 only if all simulations passed.
    """
    from ..batch.driver import BatchSettings
    from ..scenarios.simulate import SimulateOptions
    from .run_batch import simulate_here

    settings = BatchSettings(name, concurrency, retry_failed, ray)
    options = SimulateOptions(
        store=store,
        model=model,
        judge_model=judge_model or None,
        agent_timeout=agent_timeout,
        agent_version=agent_version,
    )
    simulate_here(
        file,
        agent,
        settings,
        options,
        trials=trials,
        output=output,
        as_json=as_json,
    )


_Run = "The name of a run of `duologue simulate`"


def compare(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help=f"{_Run}, with the earlier agent.")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=f"{_Run}, with the changed agent.")],
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Compare two runs of `duologue simulate`, scenario by scenario. New failures come first.

    The exit code is 1 if the agent became significantly worse.
    """
    from .run_batch import compare_here

    compare_here(before, after, store, as_json=as_json)


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


app = typer.Typer(
    help="Run many sessions of one conversation, and see their status.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The batch's name, as listed by `duologue batch list`."),
]


@app.command(epilog=example_of("batch run"))
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .toml or .json file with a batch.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The batch's name; a batch that exists is resumed. [default: made from FILE]",
        ),
    ] = None,
    concurrency: Concurrency = 20,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run the cells (sessions) that failed again.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Run only the first N cells. Run again with a larger N for more cells. [default: "
            "all]",
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Make the batch a random sample of N cells. [default: all cells, or the stored "
            "sample]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="The seed of the shuffled order and of the sample. [default: 0, or the stored "
            "seed]",
        ),
    ] = None,
    no_shuffle: Annotated[
        bool,
        typer.Option("--no-shuffle", help="Run the cells in the order of their numbers."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Run nothing. Show the number of sessions and of model calls, and two sample "
            "sessions.",
        ),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="Run the batch with Ray: on all cores of this machine (auto), or on the "
            "cluster at this address.",
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Maximum number of seconds that calls wait for a server that is down. [default: "
            "3600]",
            show_default=False,
        ),
    ] = 3600,
    store: StoreOption = None,
    model: ModelOption = None,
    as_json: Json = False,
) -> None:
    """Run a batch, or resume it. Finished sessions do not run again.

    Ctrl-C pauses the batch as soon as the current model calls are answered. Run the same command
    again to resume it.
    """
    from ..batch.driver import BatchSettings

    settings = BatchSettings(
        name,
        concurrency,
        retry_failed,
        ray,
        patience,
        limit=limit,
        sample=sample,
        seed=seed,
        shuffle=False if no_shuffle else None,
    )
    if dry_run:
        from .sessions import show_plan

        show_plan(file, settings, as_json=as_json)
        return
    from .run_batch import run_here

    run_here(file, settings, {"store": store, "model": model}, as_json=as_json)


@app.command(epilog=example_of("batch status"))
def status(
    name: _Name,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Keep updating the status until the batch stops running."),
    ] = False,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Show the status of a batch, even if another process runs it."""
    from .sessions import show_status

    show_status(name, store, watch=watch, as_json=as_json)


@app.command(epilog=example_of("batch report"))
def report(
    name: _Name,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The file to write. [default: NAME.html]"),
    ] = None,
    transcripts: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Maximum number of transcripts written to files next to the page. [default: 1000]",
            show_default=False,
        ),
    ] = 1000,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="SCORE",
            help="List the cells with the lowest score first, or with -SCORE those with the "
            "highest. [default: the order of the run]",
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write the results of a batch as an HTML page.

    The sessions' transcripts are written next to the page.
    """
    from ..batch.run import BatchRun
    from .terminal.console import stdout

    stdout().print(BatchRun(name, store=store).report(output, transcripts=transcripts, sort=sort))


@app.command("list", epilog=example_of("batch list"))
def list_(store: StoreOption = None, as_json: Json = False) -> None:
    """List the batches, newest first."""
    from .sessions import show_batches

    show_batches(store, as_json=as_json)


@app.command(epilog=example_of("batch delete"))
def delete(name: _Name, store: StoreOption = None) -> None:
    """Delete a batch with all its sessions."""
    from ..batch.run import BatchRun
    from .terminal.console import plain, stdout

    BatchRun(name, store=store).delete()
    plain(stdout(), f"Deleted {name}.")
