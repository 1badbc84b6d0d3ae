"""The agent under test in the sessions of a suite, and the verdicts about these sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from pydantic import JsonValue

from ..batch.scores import MissingScoreError
from ..common.errors import InconclusiveResult
from ..conversation.judges import Finding, FindingReason, SeparateJudge, Verdict
from ..session.later_verdicts import LaterVerdict, hash_log, verdicts_on
from ..session.session import Result
from .checks import name_check, run_check
from .judging import read_verdicts
from .result import SimulationResult
from .scenario import Scenario, ScenarioVerdict
from .simulate import ending_of
from .suite import SCENARIO, import_object
from .tested_agent import OnInterrupt, TestedAgent

_NOT_JUDGED: Final = "the judge returned no verdict"
_NOT_CHECKED: Final = "the check could not be run"


@dataclass
class SuiteAgent:
    """The agent under test in many sessions, each with its own thread and state."""

    agent: Any = field(repr=False)
    """The agent, as `simulate` accepts it."""
    on_interrupt: OnInterrupt | None = None
    """A function that answers a graph's interrupts. None if there is none."""
    timeout: float | None = None
    """Seconds after which a reply is cancelled. The default if None."""
    reference: str | None = None
    """The agent as ``module:name``, for other processes. None if only the object is known."""
    _by_session: dict[str, TestedAgent] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the agent by its reference, because many agents can't be pickled."""
        fields = (self.on_interrupt, self.timeout, self.reference)
        if self.reference is None:
            return type(self), (self.agent, *fields)
        return _load_agent, fields

    @property
    def name(self) -> str:
        """Return the agent's name."""
        return TestedAgent.of(self.agent, self.on_interrupt, self.timeout).name

    def runnable(self) -> Runnable[Any, Any]:
        """Return the Runnable that is registered as the agent of all sessions."""
        return RunnableLambda(self.areply, name=self.name)

    async def areply(self, messages: list[BaseMessage], config: RunnableConfig) -> Any:  # noqa: ANN401
        """Return the agent's answer in the session of the configuration."""
        session = str(config.get("configurable", {}).get("thread_id"))
        tested = self._by_session.get(session)
        if tested is None:
            tested = TestedAgent.of(self.agent, self.on_interrupt, self.timeout)
            self._by_session[session] = tested
        try:
            return await tested.areply(messages, config)
        except BaseException:
            # The thread of a reply that has failed may contain a part of it.
            self._by_session.pop(session, None)
            raise

    def take_state(self, session: str) -> Any:  # noqa: ANN401  # the state of any graph
        """Return the final state of the agent in a session, and forget it. None if not known."""
        tested = self._by_session.pop(session, None)
        return None if tested is None else tested.state


def _load_agent(
    on_interrupt: OnInterrupt | None, timeout: float | None, reference: str
) -> SuiteAgent:
    found = import_object(reference, "agent")
    return SuiteAgent(found, on_interrupt, timeout, reference)


@dataclass(frozen=True)
class SuiteJudge:
    """The functions of a suite's batch that judge in code, and compute whether a trial passed."""

    scenarios: Mapping[str, Scenario]
    """The scenarios, by name."""
    agent: SuiteAgent
    """The agent under test."""
    judges: Sequence[str | None] = ()
    """The names of the models of two judges. Empty if there is one judge."""

    async def examine(self, result: Result, values: Mapping[str, JsonValue]) -> LaterVerdict | None:
        """Run the checks of a session that has ended, unless their verdict is stored already."""
        scenario = self.scenarios[str(values[SCENARIO])]
        state = self.agent.take_state(result.session_id)
        names = names_of_checks(scenario)
        if not names or _stored_checks(result, names) is not None:
            return None
        judged = _judge_verdicts(result, scenario, self.judges)
        found = SimulationResult(scenario, result, ending_of(result), state, judged)
        verdicts = [await run_check(one, found) for one in scenario.checks]
        judge = SeparateJudge(names, with_reasons=True)
        return LaterVerdict(
            judge=judge,
            log=hash_log(result.messages, judge),
            answer="",
            verdict=_make_verdict(result, names, verdicts),
            created_at=datetime.now(UTC),
        )

    def passed(self, result: Result, values: Mapping[str, JsonValue]) -> bool:
        """Return whether a trial passed.

        Raises:
            MissingScoreError: The trial is inconclusive.
        """
        scenario = self.scenarios[str(values[SCENARIO])]
        found = judged_result(result, scenario, names_of_checks(scenario), self.judges)
        try:
            return found.passed
        except InconclusiveResult as error:
            raise MissingScoreError(str(error)) from None


def names_of_checks(scenario: Scenario) -> list[str]:
    """Return a unique name for each check of a scenario."""
    names: list[str] = []
    for check in scenario.checks:
        name = name_check(check)
        same = sum(one.partition(" (")[0] == name for one in names)
        names.append(f"{name} ({same + 1})" if same else name)
    return names


def judged_result(
    result: Result, scenario: Scenario, checks: Sequence[str], judges: Sequence[str | None] = ()
) -> SimulationResult:
    """Return the result of a simulation with the verdicts that are stored beside its session.

    Args:
        result: The session.
        scenario: The scenario. Its checks are not called.
        checks: The names of its checks.
        judges: The names of the models of two judges. Empty if there is one judge.
    """
    stored = _stored_checks(result, checks)
    checked = (
        ScenarioVerdict(name, Finding.INCONCLUSIVE, _NOT_CHECKED)
        if stored is None
        else _read_check(name, stored)
        for name in checks
    )
    verdicts = (*_judge_verdicts(result, scenario, judges), *checked)
    return SimulationResult(scenario, result, ending_of(result), None, verdicts)


def _make_verdict(
    result: Result, names: Sequence[str], verdicts: Sequence[ScenarioVerdict]
) -> Verdict:
    """Return the verdicts of checks in the form in which verdicts are stored."""
    by_name = dict(zip(names, verdicts, strict=True))
    return Verdict(
        speaker=result.conversation.names[1],
        complete=all(one.finding is Finding.MET for one in verdicts),
        findings={name: one.finding for name, one in by_name.items()},
        reasons={
            name: FindingReason(text=one.reason, message=one.message)
            for name, one in by_name.items()
            if one.reason
        },
    )


def _read_check(name: str, verdict: Verdict) -> ScenarioVerdict:
    reason = verdict.reasons.get(name)
    text, message = ("", None) if reason is None else (reason.text, reason.message)
    return ScenarioVerdict(name, verdict.findings[name], text, message)


def _judge_verdicts(
    result: Result, scenario: Scenario, judges: Sequence[str | None]
) -> tuple[ScenarioVerdict, ...]:
    """Return the verdict on each criterion: of two judges, or of the judge who was asked last."""
    found = [
        one
        for one in verdicts_on(result.messages, result.later_verdicts)
        if one.judge.criteria == scenario.criteria and one.answer
    ]
    if judges:
        own = {name or "": [one for one in found if one.judge.model == name] for name in judges}
    else:
        own = {"": found}
    verdicts = {name: _choose_verdict(given) for name, given in own.items() if given}
    if len(verdicts) == len(own):
        return read_verdicts(scenario, verdicts)
    return tuple(
        ScenarioVerdict(one, Finding.INCONCLUSIVE, _NOT_JUDGED) for one in scenario.criteria
    )


def _choose_verdict(found: Sequence[LaterVerdict]) -> Verdict:
    """Return the newest verdict that could be read, or the newest one."""
    return max(reversed(found), key=lambda one: one.verdict.readable).verdict


def _stored_checks(result: Result, names: Sequence[str]) -> Verdict | None:
    """Return the stored verdict of the checks with these names, or None."""
    found = verdicts_on(result.messages, result.later_verdicts)
    own = (one.verdict for one in found if one.judge.criteria == tuple(names) and not one.answer)
    return next(own, None)
