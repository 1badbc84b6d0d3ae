"""The command of the benchmark."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from endings import closings, report
from endings.adapter import Rules
from endings.dialogue import Case, Dialogue, half_of
from endings.scoring import Scored, score
from endings.sources import SOURCES, dialogues

HALVES = ("tune", "report")


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
        run = {"run": _run, "agree": _agree}[given.command]
        run(given, folders, halves)
    except ValueError as error:
        raise SystemExit(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/endings", description=__doc__)
    parser.add_argument("command", choices=("run", "agree"))
    for name, source in SOURCES.items():
        parser.add_argument(
            source.option,
            dest=name,
            type=Path,
            action="append",
            default=[],
            help=f"a copy of it ({source.licence}); may be given more than once",
        )
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--limit", type=int, help="the most dialogues of each source")
    parser.add_argument(
        "--wide", action="store_true", help="print all metrics by kind of case, too"
    )
    parser.add_argument(
        "--answered",
        action="store_true",
        help="let done tokens count only once they are answered (DoneToken's field of this name), "
        "and read only the dialogues with an early stop word",
    )
    parser.add_argument("--errors", type=Path, help="a file to write each wrong ending to")
    return parser


def _run(given: argparse.Namespace, folders: dict[str, list[Path]], halves: Sequence[str]) -> None:
    begin = partial(Rules, answered=given.answered)
    scored = [score(one, begin) for one in _wanted(given, folders, halves)]
    parts = {half: [one for one in scored if one.dialogue.half == half] for half in halves}
    for half, part in parts.items():
        _print(f"### Half: {half}", report.by_source(part), report.cost_line(part))
        if given.wide:
            _print(report.by_case(part))
    _print("### By kind of case", report.halves_by_case(parts))
    read = closings.lines(folders.get("sgd", ()))
    agreed = closings.agreements(one for one in read if half_of(one.dialogue) in halves)
    _print("### Farewells", report.closing_table(agreed))
    if given.errors is not None:
        given.errors.write_text("\n".join(report.error_lines(scored)) + "\n", encoding="utf-8")
    _print("Read: " + _counted(scored))


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


def _counted(scored: Sequence[Scored]) -> str:
    read, turns = Counter[str](), Counter[str]()
    for one in scored:
        read[one.dialogue.source] += 1
        turns[one.dialogue.source] += len(one.dialogue.turns)
    found = (f"{name} {count:,} dialogues, {turns[name]:,} turns" for name, count in read.items())
    return "; ".join(found)


def _print(*parts: str) -> None:
    sys.stdout.write("".join(f"{part}\n\n" for part in parts))
