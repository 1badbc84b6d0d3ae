"""CPU time of a simulated round: a model plays the user, and a sync function is the agent."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from openai import AsyncOpenAI

from benchmarks.in_turns import measure_in_turns
from duologue.graphs import Scenario, asimulate

ROUNDS = (5, 60)
"""Numbers of rounds of a simulation."""

GOAL = "Get order 7 refunded"

MEMORY = "duologue, memory"
SQLITE = "duologue, SQLite"
LOOP = "a loop by hand, not stored"
LANGWATCH = "langwatch-scenario"


def answer(messages: Sequence[BaseMessage]) -> str:
    """Reply as the agent under test."""
    return f"Answer {len(messages)}: the order is on its way."


async def simulate(rounds: int, store: Path | str) -> None:
    """Simulate a scenario with a check in code."""
    checks = [lambda result: len(result.transcript) == 2 * rounds]
    scenario = Scenario(GOAL, max_iterations=rounds, checks=checks)
    result = await asimulate(scenario, answer, store=store)
    assert result.verdicts[0].finding == "met", result


async def loop(rounds: int, store: Path | str) -> None:
    """Play the user with OpenAI's client, as documented."""
    said: list[str] = []
    async with AsyncOpenAI() as client:
        for _ in range(rounds):
            prompt: list[Any] = [{"role": "system", "content": f"You are a user. Goal: {GOAL}"}]
            for number, text in enumerate(said):
                prompt.append({"role": "user" if number % 2 else "assistant", "content": text})
            found = await client.chat.completions.create(model="speaker", messages=prompt)
            said.append(found.choices[0].message.content or "")
            said.append(f"Answer {len(said)}: the order is on its way.")


async def langwatch(rounds: int, store: Path | str) -> None:
    """Run langwatch-scenario with its simulated user, and without a judge."""
    # It need not be installed.
    scenario: Any = import_module("scenario")

    class Agent(scenario.AgentAdapter):  # type: ignore[misc]
        async def call(self, given: Any) -> str:  # noqa: ANN401
            return answer(given.messages)

    user = scenario.UserSimulatorAgent(model="openai/speaker")
    steps = [one for _ in range(rounds) for one in (scenario.user(), scenario.agent())]
    await scenario.run(
        name="refund",
        description=GOAL,
        agents=[Agent(), user],
        script=[*steps, scenario.succeed()],
        max_turns=rounds + 1,
        verbose=False,
    )


Run = Callable[[int], Coroutine[Any, Any, None]]


async def measured(
    rounds: int, folder: Path, tell: Callable[[str], None]
) -> Mapping[str, Mapping[int, float]]:
    """Return the CPU time of a simulated round in ms, set-up included, by the number of rounds.

    The simulations take turns. Each figure is the median of some measurements.
    """
    rows: dict[str, Run] = {
        MEMORY: partial(simulate, store="memory:"),
        SQLITE: partial(simulate, store=folder / "simulations.db"),
        LOOP: partial(loop, store=""),
    }
    if find_spec("scenario") is not None:
        rows[LANGWATCH] = partial(langwatch, store="")
    return await measure_in_turns(rows, ROUNDS, rounds, tell, "simulations of {} rounds")
