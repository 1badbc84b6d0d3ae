"""The command that tests an agent by simulated users.

The command imports its modules inside its function, as in `graphs.cli.app`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .options import Concurrency, Json, ModelOption, StoreOption


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
    from .run_suite import simulate_here

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
