"""The files of a suite for continuous integration: JUnit's XML, and a comment in Markdown."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

from ..common.sanitize import clean, escape_markdown, excerpt
from .compare import SuiteComparison
from .result import describe_outcome
from .suite_report import SimulationRow, SuiteReport, TrialOutcome, describe_passes, join_names

_ELEMENTS: Final[dict[TrialOutcome, str]] = {
    "failed": "failure",
    "error": "error",
    "unfinished": "error",
    # It has neither passed nor failed, and JUnit has no other word.
    "inconclusive": "skipped",
}
"""The elements of simulations that have not passed."""


def describe_junit(report: SuiteReport) -> str:
    """Return a report of a suite as JUnit's XML.

    Each simulation is a test case of the scenario's class. An inconclusive one is skipped.
    """
    rows = report.simulations
    found = [_ELEMENTS.get(one.outcome) for one in rows]
    counts = {
        "tests": str(len(rows)),
        "failures": str(found.count("failure")),
        "errors": str(found.count("error")),
    }
    # By the schema of Jenkins, junit-10.xsd, only a testsuite has the attribute skipped.
    whole = ET.Element("testsuites", {"name": "duologue simulate", **counts})
    counts |= {"name": _clean(report.batch), "skipped": str(found.count("skipped"))}
    suite = ET.SubElement(whole, "testsuite", counts)
    # Readers of continuous integration show the cases in this order.
    for row in sorted(rows, key=lambda one: (one.scenario, one.persona or "", one.trial)):
        _add_case(suite, report.batch, row)
    ET.indent(whole)
    # ElementTree would declare the encoding of the locale, but the file is UTF-8.
    declaration = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{declaration}\n{ET.tostring(whole, encoding='unicode')}\n"


def _clean(text: str) -> str:
    # XML has no form for these two characters, and `clean` keeps them.
    return clean(text).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})


def _add_case(suite: ET.Element, batch: str, row: SimulationRow) -> None:
    name = f"{row.name}, trial {row.trial}"
    place = {"classname": _clean(f"{batch}.{row.scenario}"), "name": _clean(name)}
    case = ET.SubElement(suite, "testcase", place)
    if (element := _ELEMENTS.get(row.outcome)) is not None:
        message = describe_outcome(row.outcome, row.reasons)
        fields = {"message": _clean(message), "type": row.outcome}
        ET.SubElement(case, element, fields).text = _clean("\n".join(row.reasons))
    lines = (f"Session: {row.session}", *row.list_details(), *row.lines)
    ET.SubElement(case, "system-out").text = _clean("\n".join(lines))


_LISTED: Final = 30
"""Maximum number of failures, of scenarios and of changes that a comment lists."""

_OPEN: Final[dict[TrialOutcome, str]] = {"passed": "✅", "inconclusive": "⚠️"}


def describe_markdown(report: SuiteReport, comparison: SuiteComparison | None = None) -> str:
    """Return a report of a suite as a comment for a pull request.

    Args:
        report: The report.
        comparison: The comparison with an earlier run. None if there is none.
    """
    mark = _OPEN.get(report.verdict, "❌")
    left = f", {report.left:,} not begun" if report.left else ""
    parts = [f"### {mark} {_plain(report.batch)}: {report.counts}{left}"]
    version = f", version {_plain(report.agent_version)}" if report.agent_version else ""
    rate = describe_passes(report.passes)
    parts.append(f"Agent {_plain(report.agent)}{version}{_plain(rate)}.")
    parts += ["\n".join(_list_failures(report)), "\n".join(_tabulate(report))]
    parts += [f"{_plain(note)}." for note in report.notes]
    if comparison is not None:
        title, *lines = str(comparison).splitlines()
        parts.append(f"**Compared with an earlier run:** {_plain(title)}.")
        changes: list[str] = []
        for line in lines[:_LISTED]:
            # An indented line belongs to the line above.
            indent = "  " if line.startswith(" ") else ""
            changes.append(f"{indent}- {_plain(line.strip())}")
        if more := len(lines[_LISTED:]):
            changes.append(f"- and {more:,} more lines; `duologue compare` prints them")
        parts.append("\n".join(changes))
    return "\n\n".join(filter(None, parts)) + "\n"


def _list_failures(report: SuiteReport) -> Iterator[str]:
    failures = report.failures
    for group in failures[:_LISTED]:
        times = f" ({len(group)} times)" if len(group) > 1 else ""
        yield f"- {_plain(excerpt(f'{group[0]}{times}', 600))}"
    if more := sum(map(len, failures[_LISTED:])):
        yield f"- and {more:,} more that have not passed"


def _tabulate(report: SuiteReport) -> Iterator[str]:
    yield "| Scenario | Passed | Failed | Inconclusive | Error or unfinished |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for one in report.scenarios[:_LISTED]:
        name = join_names(one.scenario, one.persona)
        counts = [one.outcomes.get(kind, 0) for kind in ("passed", "failed", "inconclusive")]
        counts.append(one.outcomes.get("error", 0) + one.outcomes.get("unfinished", 0))
        yield f"| {_plain(name)} | {' | '.join(map(str, counts))} |"
    if more := len(report.scenarios[_LISTED:]):
        yield f"| and {more:,} more | | | | |"


def _plain(text: str) -> str:
    # On GitHub, "@name" would notify a person, and "#1" would link to an issue.
    shown = escape_markdown(clean(text))
    return shown.replace("@", "@<!-- -->")
