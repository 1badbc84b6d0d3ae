"""The verdicts of a judge about the criteria of a scenario."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, create_model

from ...nodes.judge.verdicts import read_lines
from ..conversation.judges import VERDICT_TEMPERATURE, Finding
from ..prompts.texts import fill_template, read_kind_prompt
from ..session.ask import aask
from ..speakers.model_settings import ModelSettings
from ..speakers.speaker import Speaker
from .result import SimulationResult, numbered_lines
from .scenario import ScenarioVerdict

JUDGE = read_kind_prompt("simulation_judge")

JUDGE_QUESTION = read_kind_prompt("simulation_judge_question")


class _Decision(BaseModel):
    """A judge's decision on one criterion."""

    reason: str = Field(description="The reason, in one sentence")
    message: int = Field(description="The number of the message that shows it, or 0")
    finding: Finding


async def judge_criteria(
    result: SimulationResult, options: Mapping[str, Any]
) -> tuple[ScenarioVerdict, ...]:
    """Ask the judge once about all criteria."""
    criteria, lines = result.scenario.criteria, numbered_lines(result.conversation)
    fields: dict[str, Any] = {
        f"criterion_{number}": (_Decision, Field(description=text))
        for number, text in enumerate(criteria, start=1)
    }
    question = fill_template(
        JUDGE_QUESTION,
        goal=result.scenario.goal,
        transcript="\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1)),
        ended=result.ended,
        criteria="\n".join(f"{number}. {text}" for number, text in enumerate(criteria, start=1)),
    )
    judge = Speaker("Judge", JUDGE, model_settings=ModelSettings(temperature=VERDICT_TEMPERATURE))
    schema = create_model("Verdicts", **fields)
    answer = await aask(judge, question, schema=schema, on_failure="return", **options)
    if not isinstance(answer.output, Mapping):
        unread = "the judge's answer could not be read"
        return tuple(ScenarioVerdict(one, Finding.INCONCLUSIVE, unread) for one in criteria)
    return tuple(
        _verdict(criterion, _Decision.model_validate(one), len(lines))
        for criterion, one in zip(criteria, answer.output.values(), strict=True)
    )


def _verdict(criterion: str, decision: _Decision, count: int) -> ScenarioVerdict:
    """Return the verdict, which is inconclusive if the decision contradicts itself."""
    finding, message = decision.finding, decision.message
    reason = " ".join(decision.reason.split())
    if not 0 <= message <= count:
        reason = f"the judge named message {message}, but there are {count}"
        return ScenarioVerdict(criterion, Finding.INCONCLUSIVE, reason)
    in_words = read_lines(f"1. {reason}", [criterion])
    if in_words is not None and in_words[criterion] is not finding:
        reason = f"the judge decided {finding.in_words!r}, but wrote: {reason}"
        finding = Finding.INCONCLUSIVE
    return ScenarioVerdict(criterion, finding, reason, message or None)
