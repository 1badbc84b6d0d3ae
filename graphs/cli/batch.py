"""The commands that run, test or judge many sessions: `batch …`, `simulate`, `compare`, `judge`.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .follow_up import FollowUp
from .options import Concurrency, add_commands


def simulate(
    file: Path | None = None,
    agent: str | None = None,
    make_agent: str | None = None,
    trials: Annotated[int | None, typer.Option(min=1)] = None,
    name: str | None = None,
    agent_version: str | None = None,
    judge_model: list[str] | None = None,
    agent_model: str | None = None,
    agent_key_env: str | None = None,
    agent_timeout: float | None = None,
    output: Path | None = None,
    junit: Path | None = None,
    markdown: Path | None = None,
    compare_to: str | None = None,
    generate: Annotated[int | None, typer.Option(min=1)] = None,
    policy: Path | None = None,
    concurrency: Concurrency = 20,
    retry_failed: bool = False,
    ray: str | None = None,
    store: str | None = None,
    model: str | None = None,
    as_json: bool = False,
    tau2: Path | None = None,
    domain: str | None = None,
) -> None:
    """Test an agent by simulated users, and write a report.

    Each scenario of the file runs with each persona, several times. The same command again resumes
    the run. The exit code is 0 only if all simulations passed.

    Options:
        file (FILE): A .toml or .json file with scenarios.
        agent (--agent MODULE:NAME|URL): The agent under test: a Runnable, such as a compiled graph,
            or a function of the messages, in a Python module; or the URL of an OpenAI-compatible
            server, or a2a: and the address of an A2A endpoint.
        make_agent (--make-agent MODULE:NAME): In place of --agent, a function that returns a new
            agent for each simulation. If it has a parameter, it receives the scenario's world.
        trials (--trials N): Number of simulations of each scenario with each persona. [default: as
            in FILE, or 1]
        name (--name NAME): The name of the run; a run that exists is resumed. [default: made from
            FILE]
        agent_version (--agent-version TEXT): The version of the agent. A run that was begun with
            another version is not resumed.
        judge_model (--judge-model NAME): The model that judges the criteria. Use it twice for two
            judges, whose agreement is reported. [default: as --model]
        agent_model (--agent-model NAME): The model's name at an agent that is a URL. [default:
            agent]
        agent_key_env (--agent-key-env NAME): The environment variable with the key for an agent
            that is a URL. [default: no key]
        agent_timeout (--agent-timeout SECONDS): Seconds after which a reply is an error. [default:
            300]
        output (--output FILE): The report to write. [default: NAME.html]
        junit (--junit FILE): Also write the results as JUnit's XML, which CI servers read.
        markdown (--markdown FILE): Also write a comment for a pull request: the counts, the
            failures with their reasons, and the comparison of --compare-to.
        compare_to (--compare-to NAME): An earlier run to compare this one with, as `duologue
            compare` does.
        generate (--generate N): In place of a run, print N scenarios that the model writes from the
            tools of --agent and from --policy. At least a third want something forbidden.
        policy (--policy FILE): With --generate: a text file with the agent's policy.
        retry_failed (--retry-failed): Run the simulations again that ended with an error.
        ray (--ray auto|HOST:PORT): Run the simulations with Ray, as `duologue batch run --ray`
            does.
        tau2 (--tau2 FOLDER): In place of FILE, a checkout of tau2-bench. --agent is then a function
            that returns a new agent. Its parameter has the tools and the policy.
        domain (--domain NAME): The domain of tau2-bench, such as retail.

    Examples:
        duologue simulate scenarios.toml --agent shop:agent --trials 5
        duologue simulate shop.toml --agent shop:agent --junit shop.xml
        duologue simulate --generate 10 --agent shop:agent --policy policy.md
        duologue simulate --tau2 tau2-bench --domain retail --agent shop:make_agent
    """
    from ..batch.driver import BatchSettings
    from ..common.errors import SpecError
    from ..scenarios.simulate import SimulateOptions
    from ..scenarios.suite import Suite
    from .run_batch import SuiteFiles, generate_here, simulate_here

    if generate is not None:
        if agent is None or policy is None or file is not None:
            raise SpecError(
                "--generate: needs --agent and --policy, and no FILE, because it prints the file"
            )
        generate_here(agent, policy, generate, model)
        return

    if tau2 is not None and agent is not None:
        agent, make_agent = make_agent, agent
    source: Path | Suite
    if file is not None and tau2 is None and domain is None:
        source = file
    elif file is None and tau2 is not None and domain is not None:
        from ..scenarios.tau2 import load_tau2

        source = load_tau2(tau2, domain)
    else:
        raise SpecError("simulate: name either a file with scenarios, or --tau2 and --domain")
    if (agent is None) is (make_agent is None):
        raise SpecError("simulate: name the agent by --agent, or by --make-agent")
    reference, where = (make_agent, "make_agent") if agent is None else (agent, "agent")
    if ":" not in (reference or ""):
        raise SpecError(f"{where}: {reference!r} names no object; write it as module:name")
    settings = BatchSettings(name or (domain and f"tau2-{domain}"), concurrency, retry_failed, ray)
    options = SimulateOptions(
        store=store,
        model=model,
        judge_model=judge_model or None,
        agent_model=agent_model,
        agent_key_env=agent_key_env,
        agent_timeout=agent_timeout,
        agent_version=agent_version,
        make_agent=make_agent,
    )
    simulate_here(
        source,
        agent,
        settings,
        options,
        trials=trials,
        files=SuiteFiles(output, junit, markdown, compare_to),
        as_json=as_json,
    )


def compare(before: str, after: str, store: str | None = None, as_json: bool = False) -> None:
    """Compare two runs of `duologue simulate`, scenario by scenario. New failures come first.

    The exit code is 1 if the agent became significantly worse.

    Options:
        before (BEFORE): The name of a run of `duologue simulate`, with the earlier agent.
        after (AFTER): The name of a run of `duologue simulate`, with the changed agent.

    Examples:
        duologue compare shop-1 shop-2
    """
    from .run_batch import compare_here

    compare_here(before, after, store, as_json=as_json)


def judge(
    sessions: list[str] | None = None,
    batch: str | None = None,
    criteria: Path | None = None,
    model: str | None = None,
    concurrency: Concurrency = 20,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Ask a judge about stored sessions, without running them again.

    The verdicts are stored next to the sessions. The same command resumes after an interruption:
    the same judge is not asked again about the same messages.

    Options:
        sessions (SESSION): The ids of the sessions.
        batch (--batch NAME): Judge all sessions of this batch that have ended.
        criteria (--criteria FILE): A .txt file with one criterion per line, or a .toml or .json
            file with the fields of a separate judge. [default: the conversation's separate judge]
        model (--model NAME): The model to judge with. [default: the model set in the separate
            judge]

    Examples:
        duologue judge garden --criteria criteria.txt
        duologue judge --batch roles --criteria criteria.txt --model gpt-4.1
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


def run(
    file: Path,
    name: str | None = None,
    concurrency: Concurrency = 20,
    retry_failed: bool = False,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    sample: Annotated[int | None, typer.Option(min=1)] = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    no_shuffle: bool = False,
    dry_run: bool = False,
    ray: str | None = None,
    patience: Annotated[float, typer.Option(min=0)] = 3600,
    store: str | None = None,
    model: str | None = None,
    tools: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Run a batch, or resume it. Finished sessions do not run again.

    Ctrl-C pauses the batch as soon as the current model calls are answered. Run the same command
    again to resume it.

    Options:
        file (FILE): A .toml or .json file with a batch.
        name (--name NAME): The batch's name; a batch that exists is resumed. [default: made from
            FILE]
        retry_failed (--retry-failed): Run the failed sessions again.
        limit (--limit N): Run only the first N sessions. Run again with a larger N for
            more.
            [default: all]
        sample (--sample N): Make the batch a random sample of N sessions. [default: all, or the
            stored sample]
        seed (--seed N): The seed of the shuffled order and of the sample. [default: 0, or the
            stored seed]
        no_shuffle (--no-shuffle): Run the sessions in numerical order.
        dry_run (--dry-run): Run nothing. Check the batch, its scores, its tools and its models, and
            show the number of sessions and of model calls, and two sample sessions.
        ray (--ray auto|HOST:PORT): Run the batch with Ray: on all cores of this machine (auto), or
            on the cluster at this address.
        patience (--patience SECONDS): Maximum number of seconds that calls wait for a server that
            is down. [default: 3600]

    Examples:
        duologue batch run roles.toml --concurrency 5
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
    from .run_batch import run_here, show_plan

    options = FollowUp(store, model, tools or ()).run_options()
    run = show_plan if dry_run else run_here
    run(file, settings, options, as_json=as_json)


def status(
    name: str,
    watch: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show the status of a batch, even if another process runs it.

    Options:
        watch (--watch): Keep updating the status until the batch stops running.

    Examples:
        duologue batch status roles --watch
    """
    from .sessions import show_status

    show_status(name, store, watch=watch, as_json=as_json)


def report(
    name: str,
    output: Path | None = None,
    transcripts: Annotated[int, typer.Option(min=0)] = 1000,
    sort: str | None = None,
    store: str | None = None,
) -> None:
    """Write the results of a batch as an HTML page.

    The sessions' transcripts are written next to the page.

    Options:
        output (--output FILE): The file to write. [default: NAME.html]
        transcripts (--transcripts N): Maximum number of transcripts written to files next to the
            page. [default: 1000]
        sort (--sort SCORE): List the sessions with the lowest score first, or with -SCORE those
            with the highest. [default: the order of the run]

    Examples:
        duologue batch report roles --output roles.html
    """
    from ..batch.run import BatchRun
    from .terminal.console import stdout

    stdout().print(BatchRun(name, store=store).report(output, transcripts=transcripts, sort=sort))


def list_(store: str | None = None, as_json: bool = False) -> None:
    """List the batches, newest first.

    Examples:
        duologue batch list
    """
    from .sessions import show_batches

    show_batches(store, as_json=as_json)


def delete(name: str, store: str | None = None) -> None:
    """Delete a batch with all its sessions.

    Examples:
        duologue batch delete roles
    """
    from ..batch.run import BatchRun
    from .terminal.console import plain, stdout

    BatchRun(name, store=store).delete()
    plain(stdout(), f"Deleted {name}.")


add_commands(app, "", run, status, report, list_, delete)
