"""The command of the benchmark.

`run` measures, `agree` compares with the graph, and `table` writes stored results into the pages.
`judge` asks a model about prefixes and stores its verdicts, and `verdicts` scores a stored file.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from duologue.graphs import DuologueError
from endings import closings, judges, report, verdict_table
from endings.adapter import Rules
from endings.comparison import PAGE, Comparison, SystemResult, fill_page, show
from endings.dialogue import Case, Dialogue, half_of
from endings.scoring import Scored, feed, score
from endings.sources import SOURCES, dialogues
from endings.stored_verdicts import Head, VerdictFile, read_verdicts
from endings.systems import UnavailableError, open_system

HALVES = ("tune", "report")
ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
"""The stored results, which the tables of the documentation come from."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the sources, feed each dialogue to the rules, and print the tables."""
    given = _parser().parse_args(arguments)
    folders = {name: getattr(given, name) for name in SOURCES if getattr(given, name)}
    for paths in folders.values():
        for path in paths:
            if not path.is_dir():
                raise SystemExit(f"{path}: there is no such folder; give a copy of the source")
    halves = HALVES if given.half == "both" else (given.half,)
    try:
        if given.command == "verdicts":
            _print(*verdict_table.tables(*read_verdicts(given.runs)))
            return
        if given.command == "table":
            stored = (RESULTS if given.json is None else given.json).read_text(encoding="utf-8")
            found, page = Comparison.model_validate_json(stored), ROOT / PAGE
            text = page.read_text(encoding="utf-8")
            page.write_text(fill_page(found, text), encoding="utf-8")
            return
        compares = given.command == "run" and given.system
        runs = {"run": _compare if compares else _run, "agree": _agree, "judge": _judge}
        runs[given.command](given, folders, halves)
    except (ValueError, DuologueError) as error:
        raise SystemExit(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/endings", description=__doc__)
    parser.add_argument("command", choices=("run", "agree", "table", "judge", "verdicts"))
    for name, source in SOURCES.items():
        parser.add_argument(
            f"--{name}",
            type=Path,
            action="append",
            default=[],
            help=f"a copy of it ({source.licence}); may be given more than once",
        )
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--limit", type=int, help="the most dialogues of each source")
    parser.add_argument(
        "--answered",
        action="store_true",
        help="let done tokens count only once they are answered (DoneToken's field of this name), "
        "and read only the dialogues with an early stop word",
    )
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        help="a system to measure: duologue, a name in systems.toml, or module:name of your "
        "function stops(messages) or class; may be given more than once",
    )
    parser.add_argument(
        "--json",
        type=Path,
        help="the file of the results of --system (endings.json in build), or the file to read "
        "for `table` (tests/endings/results.json)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "duologue-endings",
        help="the folder for environments of other libraries, outside the repository",
    )
    parser.add_argument("--errors", type=Path, help="a file to write each wrong ending to")
    parser.add_argument(
        "--model", help="the model that `judge` asks, as `duologue models` lists it"
    )
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        choices=judges.JUDGES,
        help="a judge to ask; may be given more than once (all of them)",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("build/verdicts.jsonl"),
        help="the file of verdicts that `judge` writes or continues, and `verdicts` reads "
        "(verdicts.jsonl in build)",
    )
    parser.add_argument(
        "--sample",
        type=_positive,
        help="the number of prefixes that `judge` draws from all sources, half of them after the "
        "labelled end (all prefixes)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the sample (0)")
    return parser


def _positive(given: str) -> int:
    number = int(given)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _judge(
    given: argparse.Namespace, folders: dict[str, list[Path]], halves: Sequence[str]
) -> None:
    """Ask the judges about each prefix that no stored verdict answers, and print the tables."""
    if given.model is None:
        raise ValueError("--model: judge needs the name of a model, such as `--model embedded`")
    found = (part for one in _wanted(given, folders, halves) for part in judges.prefixes_of(one))
    prefixes = judges.draw_sample(found, given.sample, given.seed)
    head = Head(
        model=given.model,
        half=given.half,
        sample=given.sample,
        seed=given.seed,
        prefixes=len(prefixes),
    )
    with VerdictFile(given.runs, head) as file:
        judges.ask_all(prefixes, given.judge or judges.JUDGES, given.model, file)
    _print(*verdict_table.tables(*read_verdicts(given.runs)))


def _run(given: argparse.Namespace, folders: dict[str, list[Path]], halves: Sequence[str]) -> None:
    begin = partial(Rules, answered=given.answered)
    scored = [score(one, begin) for one in _wanted(given, folders, halves)]
    _print("### By source", report.by_source(scored), report.cost_line(scored))
    _print("### By kind of case", report.by_case(scored))
    read = closings.lines(folders.get("sgd", ()), folders.get("convlab", ()))
    agreed = closings.agreements(one for one in read if half_of(one.dialogue) in halves)
    _print("### Farewells", report.closing_table(agreed))
    if given.errors is not None:
        given.errors.write_text("\n".join(report.error_lines(scored)) + "\n", encoding="utf-8")


def _compare(
    given: argparse.Namespace, folders: dict[str, list[Path]], halves: Sequence[str]
) -> None:
    """Feed the same dialogues to each system, print one table, and write the results as JSON."""
    wanted = list(_wanted(given, folders, halves))
    measured, skipped, errors = list[SystemResult](), dict[str, str](), list[str]()
    for name in given.system:
        try:
            with open_system(name, given.cache.expanduser(), answered=given.answered) as system:
                scored, left_out = list[Scored](), Counter[str]()
                for one in wanted:
                    adapter = system.begin(one)
                    if adapter is None:
                        left_out[one.source] += 1
                    else:
                        scored.append(feed(one, adapter))
        except UnavailableError as error:
            skipped[name] = str(error)
            _print(f"{name} is skipped, because it can't be installed or started here: {error}")
            continue
        measured.append(SystemResult.of(system, scored, dict(left_out)))
        errors += (f"{name}\t{line}" for line in report.error_lines(scored))
    found = Comparison.today(given.half, measured, skipped)
    path = given.json or Path("build/endings.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    if given.errors is not None:
        given.errors.write_text("".join(f"{line}\n" for line in errors), encoding="utf-8")
    _print("### All dialogues: premature, % / missed, %", show(found))
    _print("### Dialogues in which a word decides", show(found, "words"), f"Written: {path}")


def _agree(
    given: argparse.Namespace, folders: dict[str, list[Path]], halves: Sequence[str]
) -> None:
    """Compare the rules, fed directly, with conversations that the graph has."""
    from endings.whole import stop_of, tellable

    compared, differ = Counter[str](), list[str]()
    begin = partial(Rules, answered=given.answered)
    for one in _wanted(given, folders, halves, tellable):
        fed, whole = score(one, begin), stop_of(one, answered=given.answered)
        compared[one.source] += 1
        if (fed.stop, fed.reason) != whole:
            differ.append(f"{one.id}: {fed.stop} {fed.reason}, by the graph {whole}")
    _print("Compared: " + ", ".join(f"{name} {count:,}" for name, count in compared.items()))
    _print(*differ or ["Both agree on all of them."])


def _wanted(
    given: argparse.Namespace,
    folders: dict[str, list[Path]],
    halves: Sequence[str],
    wanted: Callable[[Dialogue], bool] = lambda _: True,
) -> Iterator[Dialogue]:
    """Yield the wanted dialogues, at most as many of each source as the limit says."""
    read = Counter[str]()
    for one in dialogues(folders):
        if one.half not in halves or (given.answered and one.label.case is not Case.EARLY_WORD):
            continue
        if (given.limit is None or read[one.source] < given.limit) and wanted(one):
            read[one.source] += 1
            yield one


def _print(*parts: str) -> None:
    sys.stdout.write("".join(f"{part}\n\n" for part in parts))
