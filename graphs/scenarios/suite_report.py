"""The report of a suite: its simulations, worst first, and the figures of each scenario."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from langchain_core.utils.iter import batch_iterate
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from ..batch.batch_row import read_facts
from ..batch.report.page import explain_interval, format_estimate
from ..batch.report.report import PageVariant, write_report
from ..batch.report.rows import Estimate, Trials, mean_of, pass_hat
from ..batch.status import known_batch
from ..batch.values import canonical_json
from ..common.data import Data, sum_known
from ..common.display import Panel, Shown
from ..common.errors import BatchError, DuologueError
from ..common.sanitize import excerpt
from ..conversation.judges import Finding
from ..session.session import result_of
from ..session.session_row import read_stored_session
from ..show.page import PageVerdict
from ..show.page_data import Tone
from ..store.batches import CellRow, CellsWanted
from ..store.open import Store
from ..store.rows import reading_store
from .judging import read_simulation
from .result import (
    Agreement,
    Fault,
    SimulationResult,
    describe_outcome,
    measure_agreement,
)
from .scenario import Scenario, ScenarioVerdict
from .suite import PERSONA, SCENARIO

TrialOutcome: TypeAlias = Literal["failed", "error", "inconclusive", "unfinished", "passed"]
"""The outcome of a simulation, worst first. With ``error``, it could not be run to its end."""

_ORDER: Final[tuple[TrialOutcome, ...]] = get_args(TrialOutcome)

_SHOWN_ORDER: Final[tuple[TrialOutcome, ...]] = (
    *("passed", "failed", "inconclusive"),
    *("error", "unfinished"),
)

_TONES: Final[Mapping[TrialOutcome, Tone]] = {
    "failed": "bad",
    "error": "bad",
    "inconclusive": "warn",
    "unfinished": "plain",
    "passed": "good",
}
"""The colours of the outcomes on the page."""

_AT_ONCE: Final = 50
"""Number of sessions that are read at a time."""


class SimulationRow(Data):
    """One simulation of a suite."""

    session: str
    """The id of the session."""
    scenario: str
    """The name of the scenario."""
    persona: str | None
    """The name of the persona. None if the suite has no personas."""
    trial: PositiveInt
    """The number of the trial."""
    outcome: TrialOutcome
    """The outcome."""
    reasons: tuple[str, ...] = ()
    """The reasons why it has not passed, the decisive one first. Empty if it passed."""
    ended: str
    """How the simulation ended. Empty if it has not ended."""
    verdicts: tuple[str, ...] = ()
    """The verdicts with their reasons; those that are met come last."""
    lines: tuple[str, ...] = ()
    """The decisive part of the transcript, one line for each message."""
    at_fault: Fault | None = None
    """The side that made the simulation fail or made it inconclusive, as in
    `SimulationResult.at_fault`. ``run`` if it could not be run to its end. None if it passed."""
    user_errors: tuple[str, ...] = ()
    """The errors of the simulated user."""
    error: str | None = None
    """The error with which the simulation failed, or the reason why it is inconclusive, or None."""
    messages: NonNegativeInt = 0
    """Number of messages."""
    cost: NonNegativeFloat | None = None
    """Cost of the calls whose prices are known. None if no price is known."""
    faults: NonNegativeFloat = 0
    """The share of the verdicts that are not met."""

    @property
    def name(self) -> str:
        """Return the names of the scenario and of the persona."""
        return join_names(self.scenario, self.persona)

    def __str__(self) -> str:
        head = f"{self.outcome}: {self.name}"
        return describe_outcome(head, self.reasons, " - ")

    def list_details(self) -> Iterator[str]:
        """Yield the lines below the first one: the other reasons and verdicts, and the end."""
        yield from self.reasons[1:]
        yield from (one for one in self.verdicts if one not in self.reasons)
        if self.ended and not any(self.ended in one for one in self.reasons):
            yield f"Ended: {self.ended}"


_Simulation: TypeAlias = tuple[SimulationRow, Sequence[ScenarioVerdict]]
"""A simulation that was read, with its verdicts."""


class ScenarioRow(Data):
    """The simulations of one scenario with one persona."""

    scenario: str
    """The name of the scenario."""
    persona: str | None
    """The name of the persona. None if the suite has no personas."""
    digest: str
    """A hash of the scenario and the persona. If it differs, two runs are hardly comparable."""
    outcomes: dict[TrialOutcome, PositiveInt]
    """Number of simulations with each outcome that occurs."""
    passes: tuple[Estimate, ...]
    """pass^1, pass^2, … with their intervals. Inconclusive trials are left out, so it is empty if
    no trial has passed or failed."""
    ends: dict[str, PositiveInt]
    """Number of simulations with each end."""
    user_errors: Estimate | None = None
    """The share of simulations in which the simulated user made an error. None if no simulation
    has ended."""
    cost: NonNegativeFloat | None
    """Cost of the calls whose prices are known. None if no price is known."""


class SuiteReport(Shown, Data):
    """The results of a suite. `print` and a notebook show a summary."""

    batch: str
    """The name of the batch that ran the suite."""
    agent: str
    """The agent under test."""
    agent_version: str | None
    """The version of the agent, as it was passed to the run. None if none was passed."""
    left: NonNegativeInt
    """Number of simulations that have not begun."""
    passes: tuple[Estimate, ...]
    """pass^1, pass^2, … over all scenarios and personas. Empty if no trial passed or failed."""
    scenarios: tuple[ScenarioRow, ...]
    """The scenarios with their personas, in the order of the suite."""
    simulations: tuple[SimulationRow, ...]
    """All simulations that have begun, the worst first."""
    user_errors: dict[str, Estimate] = Field(default_factory=dict)
    """The share of simulations in which the simulated user made an error, by the user's model."""
    agreement: Agreement | None = None
    """The agreement of two judges on all criteria. None if there is only one judge."""

    def count(self, outcome: TrialOutcome) -> int:
        """Return the number of simulations with an outcome."""
        return sum(one.outcome == outcome for one in self.simulations)

    @property
    def counts(self) -> str:
        """Return the number of simulations with each outcome that occurs, as text."""
        return count_outcomes(self.simulations)

    @property
    def failures(self) -> tuple[tuple[SimulationRow, ...], ...]:
        """Return the simulations that have not passed, the worst first.

        Trials of one scenario with the same decisive reason form a group.
        """
        groups = defaultdict[str, list[SimulationRow]](list)
        for one in self.simulations:
            if one.outcome != "passed":
                groups[str(one)].append(one)
        return tuple(map(tuple, groups.values()))

    @property
    def passed(self) -> int:
        """Return the number of simulations that passed."""
        return self.count("passed")

    @property
    def failed(self) -> int:
        """Return the number of simulations that failed."""
        return self.count("failed")

    @property
    def inconclusive(self) -> int:
        """Return the number of simulations that neither passed nor failed."""
        return self.count("inconclusive")

    @property
    def verdict(self) -> TrialOutcome:
        """Return the outcome of the suite: ``passed`` only if every simulation passed.

        Otherwise the worst outcome of a simulation: ``failed``, ``error``, ``unfinished`` or
        ``inconclusive``.
        """
        found = {one.outcome for one in self.simulations}
        if self.left:
            found.add("unfinished")
        order: tuple[TrialOutcome, ...] = ("failed", "error", "unfinished", "inconclusive")
        return next((one for one in order if one in found), "passed")

    def __str__(self) -> str:
        lines = [self._title()]
        for one in self.scenarios:
            counts = ", ".join(f"{many} {outcome}" for outcome, many in one.outcomes.items())
            name, errors = join_names(one.scenario, one.persona), one.user_errors
            line = f"  {name}: {counts}{describe_passes(one.passes)}"
            if errors is not None and errors.value:
                line += f"; user errors {describe_share(errors)}"
            lines.append(line)
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the sentences about the simulated users and the judges."""
        users = (
            f"Errors of the simulated user ({model}): {describe_share(share)}"
            for model, share in self.user_errors.items()
            if share.value
        )
        judges = () if self.agreement is None else (f"Two judges: {self.agreement}",)
        return (*users, *judges)

    def _title(self) -> str:
        left = f", {self.left:,} not begun" if self.left else ""
        return f"Suite {self.batch}: {self.counts}{left}{describe_passes(self.passes)}"

    def _panel(self) -> Panel:
        rows = tuple(
            (
                one.scenario,
                one.persona or "",
                ", ".join(f"{many} {name}" for name, many in one.outcomes.items()),
                format_estimate(one.passes[0], is_share=True) if one.passes else "",
            )
            for one in self.scenarios
        )
        head = ("Scenario", "Persona", "Simulations", "pass^1")
        return Panel(title=self._title(), tag=self.verdict, notes=self.notes, head=head, rows=rows)


def count_outcomes(rows: Sequence[SimulationRow]) -> str:
    """Return the number of simulations with each outcome that occurs, as text."""
    found = Counter(row.outcome for row in rows)
    shown = (name for name in _SHOWN_ORDER if found[name] or name == "passed")
    return ", ".join(f"{found[name]:,} {name}" for name in shown)


def describe_passes(passes: Sequence[Estimate]) -> str:
    """Return pass^1 and the last pass^k with their intervals, or an empty text.

    After few trials, one sentence replaces them.
    """
    if passes and (why := explain_interval(passes[0])):
        return f"; {why}"
    shown = {k: passes[k - 1] for k in sorted({1, len(passes)}) if passes}
    texts = [
        f"pass^{k} {one.value:.2f}"
        + ("" if one.low is None or one.high is None else f" ({one.low:.2f} to {one.high:.2f})")
        for k, one in shown.items()
    ]
    return "; " + ", ".join(texts) if texts else ""


def describe_share(share: Estimate) -> str:
    """Return a share of simulations in percent, with its interval."""
    low, high = share.low or 0.0, 1.0 if share.high is None else share.high
    return f"{share.value:.0%} of {share.sessions:,} simulations ({low:.0%} to {high:.0%})"


def join_names(scenario: str, persona: str | None) -> str:
    """Return the names of a scenario and of a persona."""
    return scenario if persona is None else f"{scenario}, {persona}"


async def read_suite(store: Store, name: str) -> SuiteReport:
    """Read the results of a suite from its batch.

    Raises:
        BatchError: The batch does not exist, or was not run from a suite.
        StoreError: The store can't be read.
    """
    batch = await known_batch(store, name)
    with reading_store(store.url):
        facts: dict[str, Any] = read_facts(batch)
    if "scenarios" not in facts:
        raise BatchError(
            f"Batch {name!r} in {store.url} is not a suite of scenarios; name the batch of a run "
            "of `duologue simulate`."
        )
    known: dict[str, tuple[Scenario, Sequence[str]]] = {}
    for key, fields in facts["scenarios"].items():
        # Stored without its functions; the names of the checks are stored.
        own = {field: one for field, one in fields.items() if field not in ("checks", "world")}
        known[key] = Scenario(**own), [*map(str, fields.get("checks") or ())]
    asked = facts.get("judge_model")
    judges = asked if isinstance(asked, list) else ()
    rows = [row async for row in store.batches.each(CellsWanted(batch=name))]
    read: list[_Simulation] = []
    for chunk in batch_iterate(_AT_ONCE, rows):
        read += await asyncio.gather(*(_read_row(store, row, known, judges) for row in chunk))
    found = [row for row, _ in read]
    return SuiteReport(
        batch=name,
        agent=str(facts.get("agent")),
        agent_version=facts.get("agent_version"),
        left=max(0, batch.cells - len(rows)),
        passes=tuple(pass_hat(_list_trials(found))),
        scenarios=tuple(_scenario_rows(found, facts)),
        simulations=tuple(sorted(found, key=lambda one: (_ORDER.index(one.outcome), -one.faults))),
        user_errors=_errors_by_model(found, known),
        agreement=measure_agreement(one for _, verdicts in read for one in verdicts),
    )


async def _read_row(
    store: Store,
    row: CellRow,
    known: Mapping[str, tuple[Scenario, Sequence[str]]],
    judges: Sequence[str | None],
) -> _Simulation:
    persona = row.varied.get(PERSONA)
    made = SimulationRow(
        session=row.session,
        scenario=str(row.varied.get(SCENARIO)),
        persona=None if persona is None else str(persona),
        trial=row.trial,
        outcome="error" if row.status == "failed" else "unfinished",
        at_fault="run",
        ended="",
        reasons=() if row.error is None else (row.error,),
        error=row.error,
        messages=row.messages,
        cost=row.cost,
    )
    if row.status not in ("finished", "failed") or made.scenario not in known:
        return made, ()
    try:
        stored = await read_stored_session(store, row.session)
    except DuologueError as error:
        if row.status == "failed":
            return made, ()
        return made.model_copy(
            update={"outcome": "error", "error": str(error), "reasons": (str(error),)}
        ), ()
    result = read_simulation(result_of(stored, store.address), *known[made.scenario], judges)
    facts = _make_facts(result)
    if row.status == "failed":
        return made.model_copy(update={"lines": facts["lines"]}), ()
    return made.model_copy(update=facts), result.verdicts


def _make_facts(result: SimulationResult) -> dict[str, Any]:
    findings = [one.finding for one in result.verdicts]
    verdicts = sorted(result.verdicts, key=lambda one: _FINDINGS.index(one.finding))
    return {
        "outcome": result.outcome,
        "reasons": tuple(map(excerpt, result.reasons)),
        "at_fault": result.at_fault,
        "user_errors": tuple(excerpt(str(one)) for one in result.user_errors),
        "ended": str(result.ended),
        "verdicts": tuple(excerpt(str(one)) for one in verdicts),
        "lines": () if result.outcome == "passed" else tuple(map(excerpt, result.decisive_lines())),
        "faults": findings.count(Finding.NOT_MET) / max(1, len(findings)),
    }


_FINDINGS: Final = (Finding.NOT_MET, Finding.INCONCLUSIVE, Finding.MET)


def group_simulations(
    rows: Iterable[SimulationRow],
) -> dict[tuple[str, str | None], list[SimulationRow]]:
    """Return the simulations of each scenario with each persona."""
    found: dict[tuple[str, str | None], list[SimulationRow]] = {}
    for row in rows:
        found.setdefault((row.scenario, row.persona), []).append(row)
    return found


def _list_trials(rows: Iterable[SimulationRow]) -> list[Trials]:
    """Return the trials that passed or failed, of each scenario that has some."""
    found: list[Trials] = []
    for group in group_simulations(rows).values():
        outcomes = Counter(row.outcome for row in group)
        if scored := outcomes["passed"] + outcomes["failed"]:
            found.append(Trials(scored, outcomes["passed"]))
    return found


def _share_of_errors(rows: Iterable[SimulationRow]) -> Estimate | None:
    """Return the share of the simulations that have ended in which the user made an error."""
    found = [bool(row.user_errors) for row in rows if row.ended]
    return mean_of([Trials(len(found), sum(found))], is_share=True) if found else None


def _errors_by_model(
    rows: Iterable[SimulationRow], known: Mapping[str, tuple[Scenario, Sequence[str]]]
) -> dict[str, Estimate]:
    groups = defaultdict[str, list[SimulationRow]](list)
    for row in rows:
        model = known[row.scenario][0].model if row.scenario in known else None
        groups[model or "the default model"].append(row)
    shares = {model: _share_of_errors(group) for model, group in groups.items()}
    return {model: share for model, share in shares.items() if share is not None}


def _scenario_rows(
    rows: Iterable[SimulationRow], facts: Mapping[str, Any]
) -> Iterable[ScenarioRow]:
    for (scenario, persona), group in group_simulations(rows).items():
        parts = [facts["scenarios"].get(scenario), facts["personas"].get(persona or "")]
        outcomes = Counter(row.outcome for row in group)
        ends = Counter(row.ended.partition(":")[0] for row in group if row.ended)
        yield ScenarioRow(
            scenario=scenario,
            persona=persona,
            digest=sha256(canonical_json(parts).encode()).hexdigest()[:16],
            outcomes={name: outcomes[name] for name in _ORDER if outcomes[name]},
            passes=tuple(pass_hat(_list_trials(group))),
            ends=dict(ends.most_common()),
            user_errors=_share_of_errors(group),
            cost=sum_known(row.cost for row in group),
        )


_ROWS: Final = 200
"""Maximum number of scenarios with their personas that are listed."""

_WORST: Final = 40
"""Maximum number of simulations whose verdicts are shown."""

_TRANSCRIPTS: Final = 1000
"""Maximum number of transcripts that are written."""

_LABELS: Final = "labels."


async def write_suite_page(store: Store, report: SuiteReport, page: Path) -> None:
    """Write the report of a suite as a page, with a folder of transcripts next to it.

    Args:
        store: The store of the sessions.
        report: The report.
        page: The file of the page, which is replaced if it exists.

    Raises:
        SpecError: The page can't be written.
    """
    places = {one.session: place for place, one in enumerate(report.simulations)}

    def rank(row: CellRow) -> tuple[float, ...]:
        return (places.get(row.session, len(places)), row.number)

    values = {
        "suite": report,
        "has_personas": any(one.persona is not None for one in report.scenarios),
        "rows": _ROWS,
        "failures": report.failures,
        "outcomes": {one.session: one.outcome for one in report.simulations},
        "tones": _TONES,
        "worst": {key: rows[0] for key, rows in group_simulations(report.simulations).items()},
        "listed": _WORST,
    }
    verdicts = {
        one.session: PageVerdict(
            _TONES[one.outcome], describe_outcome(one.outcome.capitalize(), one.reasons)
        )
        for one in report.simulations
    }
    variant = PageVariant(
        "simulations.html", values, lambda path: path.startswith(_LABELS), verdicts
    )
    await write_report(store, report.batch, page, _TRANSCRIPTS, variant=variant, rank=rank)
