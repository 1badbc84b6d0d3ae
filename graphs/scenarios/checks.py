"""Checks: functions of users that decide about a simulation."""

from collections.abc import Callable
from typing import Any

from ...tools.registry.functions import call
from ..common.errors import SpecError, name_type
from ..conversation.judges import Finding
from .result import SimulationResult
from .scenario import ScenarioVerdict


def name_check(check: Callable[..., Any]) -> str:
    """Return the name of a check in verdicts: that of the function, or of the object's class."""
    return getattr(check, "__name__", None) or type(check).__name__


async def run_check(check: Callable[..., Any], result: SimulationResult) -> ScenarioVerdict:
    """Call a check.

    Raises:
        SpecError: The check raised another error than an AssertionError, or returned a value that
            is no decision.
    """
    name = name_check(check)
    try:
        found = await call("check", name, check, result)
    except SpecError as error:
        if not isinstance(error.__cause__, AssertionError):
            raise
        reason = " ".join(str(error.__cause__).split()) or "an assertion failed"
        return ScenarioVerdict(name, Finding.NOT_MET, reason)
    if found is None or found is True:
        return ScenarioVerdict(name, Finding.MET, "")
    if found is False:
        return ScenarioVerdict(name, Finding.NOT_MET, "it returned False")
    raise SpecError(
        f"the check {name!r} failed: it must return True, False or None, not {name_type(found)}"
    )
