"""Comparison of two runs of a suite, before and after a change of the agent.

Each scenario is compared by Fisher's exact test on its trials, with Holm's correction for the
number of scenarios. All scenarios together are compared by the exact test of their strata: the
number of trials that passed before, given the totals of each scenario. Both tests are exact for few
trials, and for scenarios that all change alike.
"""

from collections.abc import Iterator, Sequence
from math import comb
from statistics import fmean
from typing import Final, TypeAlias

from pydantic import NonNegativeFloat, NonNegativeInt

from ..common.data import Data
from ..common.display import Panel, Shown
from ..common.errors import name_type
from .suite_report import ScenarioRow, SuiteReport, group_simulations, join_names

_LEVEL: Final = 0.05
"""The level of significance."""

_SHOWN: Final = 3
"""Number of failed simulations that are named for a scenario."""


_Counts: TypeAlias = tuple[int, int]
"""Number of trials that passed, and that passed or failed."""


class ScenarioChange(Data):
    """The change of one scenario with one persona between two runs."""

    scenario: str
    """The name of the scenario."""
    persona: str | None
    """The name of the persona. None if the suite has no personas."""
    before: tuple[NonNegativeInt, NonNegativeInt]
    """Number of trials that passed, and that passed or failed, in the first run."""
    after: tuple[NonNegativeInt, NonNegativeInt]
    """The same numbers of the second run."""
    p: NonNegativeFloat
    """The p-value of Fisher's exact test, two-sided, without correction."""
    is_significant: bool
    """Whether the change is significant at 5 %, corrected for the number of scenarios (Holm)."""
    is_redefined: bool
    """Whether the scenario itself differs between the runs, so that they are hardly comparable."""
    failed: tuple[str, ...] = ()
    """The sessions of the second run that failed."""

    @property
    def difference(self) -> float:
        """Return the change of the share of trials that passed."""
        return _share(self.after) - _share(self.before)

    @property
    def is_new_failure(self) -> bool:
        """Return whether all trials passed before, and one failed after."""
        return self.before[0] == self.before[1] and self.after[0] < self.after[1]

    def __str__(self) -> str:
        name = join_names(self.scenario, self.persona)
        counts = " → ".join(f"{one} of {all_}" for one, all_ in (self.before, self.after))
        sure = "significant" if self.is_significant else "may be chance"
        sign = f" (p = {self.p:.2g}, {sure})" if self.difference else ""
        redefined = "; the scenario itself has changed" if self.is_redefined else ""
        return f"{name}: {counts} passed{sign}{redefined}"


class SuiteComparison(Shown, Data):
    """The differences between two runs of a suite. `print` and a notebook show a summary."""

    before: str
    """The batch of the first run."""
    after: str
    """The batch of the second run."""
    difference: float | None
    """The mean change of the share of passed trials over the scenarios. None if no scenario has
    trials that passed or failed in both runs."""
    p: NonNegativeFloat
    """The two-sided p-value of the change over all scenarios."""
    changes: tuple[ScenarioChange, ...]
    """The scenarios of both runs: new failures first, then from the worst change to the best."""
    removed: tuple[str, ...]
    """The scenarios that only the first run has, or that it alone has decided."""
    added: tuple[str, ...]
    """The scenarios that only the second run has, or that it alone has decided."""

    @property
    def is_worse(self) -> bool:
        """Return whether a scenario became significantly worse, or all of them together."""
        overall = self.p <= _LEVEL and (self.difference or 0) < 0
        return overall or any(one.is_significant and one.difference < 0 for one in self.changes)

    def __str__(self) -> str:
        groups = {
            "New failures": [one for one in self.changes if one.is_new_failure],
            "Worse": [one for one in self.changes if one.difference < 0 and not one.is_new_failure],
            "Better": [one for one in reversed(self.changes) if one.difference > 0],
        }
        lines = [self._title()]
        for title, changes in groups.items():
            lines += [f"{title}:", *(f"  {one}" for one in changes)] if changes else []
        same = sum(not one.difference for one in self.changes)
        lines += [f"Unchanged: {same:,}"] if same else []
        return "\n".join([*lines, *self._list_others()])

    def _list_others(self) -> Iterator[str]:
        for name, others in (("before", self.removed), ("after", self.added)):
            if others:
                yield f"Only {name}: {', '.join(others)}"

    def _title(self) -> str:
        title = f"{self.before} → {self.after}"
        if self.difference is None:
            return f"{title}: no scenario can be compared"
        sure = "significant" if self.p <= _LEVEL else "may be chance"
        change = f"the share of passed trials changes by {self.difference:+.2f}"
        return f"{title}: {change} (p = {self.p:.2g}, {sure})"

    def _panel(self) -> Panel:
        rows = tuple(
            (
                one.scenario,
                one.persona or "",
                " of ".join(map(str, one.before)),
                " of ".join(map(str, one.after)),
                f"{one.p:.2g}{', significant' if one.is_significant else ''}",
                ", ".join(one.failed[:_SHOWN]),
            )
            for one in self.changes
        )
        head = ("Scenario", "Persona", "Passed before", "Passed after", "p", "Failed after")
        notes = tuple(self._list_others())
        return Panel(title=self._title(), notes=notes, head=head, rows=rows)


def compare_suites(before: SuiteReport, after: SuiteReport) -> SuiteComparison:
    """Compare two runs of a suite.

    Inconclusive simulations, errors and unfinished simulations are left out.

    Args:
        before: The report of the first run.
        after: The report of the second run, for example with a changed agent.

    Returns:
        The comparison, with new failures first.

    Raises:
        TypeError: An argument is no report.
    """
    for name, report in {"before": before, "after": after}.items():
        if not isinstance(report, SuiteReport):
            raise TypeError(
                f"{name}: must be a SuiteReport, not {name_type(report)}; pass the result of "
                "run_suite, or call `duologue compare` with the names of the runs"
            )
    first, second = _list_decided(before), _list_decided(after)
    both = [key for key in second if key in first]
    tests = [_exact_test([(first[key][1], second[key][1])]) for key in both]
    failures = {
        key: tuple(row.session for row in rows if row.outcome == "failed")
        for key, rows in group_simulations(after.simulations).items()
    }
    changes = [
        ScenarioChange(
            scenario=key[0],
            persona=key[1],
            before=first[key][1],
            after=second[key][1],
            p=p,
            is_significant=is_significant,
            is_redefined=first[key][0].digest != second[key][0].digest,
            failed=failures.get(key, ()),
        )
        for key, p, is_significant in zip(both, tests, _holm(tests), strict=True)
    ]
    changes.sort(key=lambda one: (not one.is_new_failure, one.difference, one.p))
    differences = [one.difference for one in changes]
    return SuiteComparison(
        before=before.batch,
        after=after.batch,
        difference=fmean(differences) if differences else None,
        p=_exact_test([(first[key][1], second[key][1]) for key in both]),
        changes=tuple(changes),
        removed=tuple(join_names(*key) for key in first if key not in second),
        added=tuple(join_names(*key) for key in second if key not in first),
    )


def _list_decided(
    report: SuiteReport,
) -> dict[tuple[str, str | None], tuple[ScenarioRow, _Counts]]:
    """Return the scenarios with trials that passed or failed."""
    found: dict[tuple[str, str | None], tuple[ScenarioRow, _Counts]] = {}
    for one in report.scenarios:
        passed, failed = one.outcomes.get("passed", 0), one.outcomes.get("failed", 0)
        if passed or failed:
            found[one.scenario, one.persona] = one, (passed, passed + failed)
    return found


def _share(counts: _Counts) -> float:
    passed, scored = counts
    return passed / scored


def _exact_test(strata: Sequence[tuple[_Counts, _Counts]]) -> float:
    """Return the two-sided p-value of an exact test: of the outcomes that are at most as likely.

    With one stratum, it is Fisher's exact test.
    """
    # Whole numbers, so that equally likely outcomes are equal.
    weights, observed = [1], 0
    for (passed, first), (also, second) in strata:
        total = passed + also
        least, most = max(0, total - second), min(total, first)
        own = [comb(first, one) * comb(second, total - one) for one in range(least, most + 1)]
        joined = [0] * (len(weights) + len(own) - 1)
        for place, weight in enumerate(weights):
            for further, other in enumerate(own):
                joined[place + further] += weight * other
        weights, observed = joined, observed + passed - least
    return sum(one for one in weights if one <= weights[observed]) / sum(weights)


def _holm(tests: Sequence[float]) -> list[bool]:
    """Return which p-values are significant after Holm's correction."""
    significant = [False] * len(tests)
    for step, place in enumerate(sorted(range(len(tests)), key=tests.__getitem__)):
        if tests[place] > _LEVEL / (len(tests) - step):
            break
        significant[place] = True
    return significant
