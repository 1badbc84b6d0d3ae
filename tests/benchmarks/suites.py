"""A suite of scenarios whose model calls take a while. Run as a program, it prints its costs."""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from duologue.graphs.batch.worker import COLLECTED
from duologue.graphs.scenarios import arun_suite
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel

DELAY = 0.2
"""Delay of each answer in seconds."""

TURNS = 3
"""Number of messages of the simulated user; the last one is only the done token."""

CALLS = 2 * TURNS
"""Number of delayed calls of a simulation: of the user, of the agent, and of the judge."""


def play_user(prompt: Prompt) -> Line:
    """Ask some questions, then say the word for the end."""
    said = sum(one["role"] == "assistant" for one in prompt)
    text = "###STOP###" if said == TURNS - 1 else f"Question {said + 1} about the order, please?"
    return Reply(text=text, delay=DELAY)


def judge(prompt: Prompt) -> Line:
    """Find the criterion met, in either form of the question."""
    decision = {"reason": "It answers.", "message": 2, "finding": "met"}
    return Reply(text=json.dumps({"criterion_1": decision}), delay=DELAY)


async def answer(messages: Sequence[BaseMessage]) -> str:
    """Reply as the agent under test."""
    await asyncio.sleep(DELAY)
    return f"Here is answer {len(messages)}."


async def run(scenarios: int, trials: int, concurrency: int, store: str) -> dict[str, float]:
    """Return the seconds and the CPU seconds of a suite, and the seconds of its waiting."""
    named = {
        f"scenario {number}": {"goal": f"Get order {number} refunded.", "criteria": ["It answers."]}
        for number in range(scenarios)
    }
    began, cpu = time.monotonic(), time.process_time()
    report = await arun_suite(
        {"scenarios": named, "trials": trials},
        answer,
        name="suite",
        concurrency=concurrency,
        store=store,
        model=ScriptedChatModel(play_user),
        judge_model=ScriptedChatModel(judge),
    )
    simulations = scenarios * trials
    waiting = -(-simulations // concurrency) * CALLS * DELAY
    seconds = time.monotonic() - began
    spent = time.process_time() - cpu
    return {
        "simulations": simulations,
        "passed": report.passed,
        "seconds": round(seconds, 2),
        "waiting": round(waiting, 2),
        "ratio": round(seconds / waiting, 2),
        "cpu": round(spent, 2),
        "cpu_ms_each": round(1000 * spent / simulations, 1),
    }


if __name__ == "__main__":
    gc.set_threshold(*COLLECTED)
    scenarios, trials, concurrency = (int(one) for one in sys.argv[1:4])
    found = asyncio.run(run(scenarios, trials, concurrency, sys.argv[4]))
    sys.stdout.write(json.dumps(found) + "\n")
