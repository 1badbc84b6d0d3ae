"""Compare the rewards of tau2-bench's evaluator with duologue's, on trajectories of its tasks.

Run it with a checkout of tau2-bench and the packages that its evaluator imports:

    uv run --all-extras --with loguru,deepdiff,docstring-parser,addict,toml,python-dotenv \
        --with pandas,litellm,fastapi,uvicorn,tabulate,psutil,tenacity \
        python tests/tau2_rewards.py FOLDER retail airline telecom mock

Each trajectory is a simulation: the agent and the user call the tools of their steps, the agent
says the facts, the user ends. A table shows the trajectories of each kind, and those whose rewards
differ. The exit code is 1 if there are any. ``--whole`` keeps all of a database; otherwise the
orders, users, reservations and flights that a task does not name are removed, since tau2-bench
dumps the database for each reward.
"""

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count, groupby
from typing import Any, Final

from langchain_core.messages import BaseMessage

from duologue import Scenario, Session
from duologue.graphs.scenarios import Suite, load_tau2, run_suite
from duologue.graphs.scenarios.tau2 import Tau2Task, Tau2World
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall

_ENDS: Final = {"transferred": "###TRANSFER###", "out of scope": "###OUT-OF-SCOPE###"}
_STORE: Final = "memory:tau2"
_RUNS: Final = count(1)


@dataclass(frozen=True)
class Step:
    """A tool call of the agent or the user."""

    requestor: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Trajectory:
    """A course of a task."""

    kind: str
    steps: Sequence[Step]
    said: Sequence[str]
    judged: bool = True
    """Whether the assertions in natural language are met."""
    end: str | None = "###STOP###"
    """The user's last word. None if the simulation reaches its cap."""


def list_trajectories(task: Any) -> Iterator[Trajectory]:  # noqa: ANN401  # of tau2-bench
    """Yield the expected course of a task, and courses that deviate from it."""
    criteria = task.evaluation_criteria
    expected = [Step(one.requestor, one.name, one.arguments) for one in criteria.actions or ()]
    facts = criteria.communicate_info or []
    right = Trajectory("as expected", expected, facts)
    yield right
    for at, step in enumerate(expected):
        before, after = expected[:at], expected[at + 1 :]
        yield replace(right, kind="an action left out", steps=[*before, *after])
        yield replace(right, kind="an action repeated", steps=[*before, step, step, *after])
        if step.arguments:
            changed = replace(step, arguments=change(step.arguments))
            yield replace(right, kind="an argument changed", steps=[*before, changed, *after])
    if len(expected) > 1:
        yield replace(right, kind="in another order", steps=expected[::-1])
        yield replace(right, kind="in another order", steps=[*expected[1:], expected[0]])
    for at in range(len(facts)):
        yield replace(right, kind="a fact unsaid", said=[*facts[:at], *facts[at + 1 :]])
    if facts:
        loud = [re.sub(r"\B(?=(\d{3})+$)", ",", one).upper() for one in facts]
        yield replace(right, kind="facts in capitals, with commas", said=loud)
    if criteria.nl_assertions:
        yield replace(right, kind="an assertion not met", judged=False)
    for kind, end in _ENDS.items():
        yield replace(right, kind=kind, end=end)
    yield replace(right, kind="no end", end=None)


def change(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of which the last is another value of its type."""
    name, value = [*arguments.items()][-1]
    match value:
        case bool():
            other: Any = not value
        case int() | float():
            other = value + 1
        case list():
            other = value[:-1]
        case _:
            other = f"{value}x"
    return {**arguments, name: other}


class Player:
    """The agent and the user of a trajectory."""

    def __init__(self, course: Trajectory, assertions: int) -> None:
        self.course = course
        groups = [[*steps] for _, steps in groupby(course.steps, lambda one: one.requestor)]
        self.turns = [steps for steps in groups if steps[0].requestor == "assistant"]
        self.lines: list[Any] = []
        for place, steps in enumerate(groups):
            if steps[0].requestor == "user":
                calls = [
                    ScriptedToolCall(name=one.name, args={**one.arguments}, id=f"u{place}-{number}")
                    for number, one in enumerate(steps)
                ]
                self.lines += [*(Reply(tool_calls=[one]) for one in calls), f"Done, part {place}."]
            elif place == 0:
                self.lines.append("Please help me.")
        self.lines = self.lines or ["Please help me."]
        finding = {"reason": "So it is.", "message": 1}
        finding["finding"] = "met" if course.judged else "not_met"
        verdict = {f"criterion_{number + 1}": finding for number in range(assertions)}
        self.judge = ScriptedChatModel(lambda _: verdict)
        self.replies = 0
        self.world: Tau2World | None = None

    def user(self) -> ScriptedChatModel:
        """Return the model of the user."""
        end = self.course.end
        # A user that never ends says something new each time.
        more = [f"What else? {number}" for number in range(9)]
        return ScriptedChatModel([*self.lines, *(more if end is None else [end])])

    def make_agent(self, world: Tau2World) -> Any:  # noqa: ANN401  # a function
        """Return the agent, which calls the tools of its next turn."""
        self.world = world

        def answer(messages: Sequence[BaseMessage]) -> str:
            self.replies += 1
            for step in self.turns.pop(0) if self.turns else ():
                world.call(step.name, step.arguments)
            if self.turns:
                return f"Next, part {self.replies}."
            return f"Reply {self.replies}. The facts: {'; '.join(self.course.said)}."

        return answer


def reward_here(suite: Suite, name: str, player: Player) -> tuple[str, str]:
    """Return duologue's reward or ``error``, and the session."""
    scenario = suite.scenarios[name]
    fields: dict[str, Any] = {name: getattr(scenario, name) for name in scenario.model_fields_set}
    if player.course.end is None:
        fields["max_iterations"] = 1 + len(player.turns)
    report = run_suite(
        type(suite)(**dict(suite) | {"scenarios": {name: Scenario(**fields)}}),
        make_agent=player.make_agent,
        name=f"run-{next(_RUNS)}",
        model=player.user(),
        judge_model=player.judge,
        store=_STORE,
    )
    (row,) = report.simulations
    reward = "error" if row.error else f"{row.outcome == 'passed':d}"
    return reward, row.session


def reward_there(task: Any, domain: str, player: Player, session: str) -> str:  # noqa: ANN401
    """Return the reward of tau2-bench's evaluator for the same course, or ``error``."""
    data = import_module("tau2.data_model.message")
    run = import_module("tau2.data_model.simulation")
    judge: Any = import_module("tau2.evaluator.evaluator_nl_assertions")
    evaluator = import_module("tau2.evaluator.evaluator")
    world: Any = player.world
    messages: list[Any] = [*world.history]
    for call, content in world.recorded:
        kind = data.UserMessage if call.requestor == "user" else data.AssistantMessage
        role = call.requestor
        messages.append(kind(role=role, tool_calls=[call]))
        answer = {"role": "tool", "content": content, "requestor": role}
        messages.append(data.ToolMessage(id=call.id, **answer))
    for speaker, text in Session(session, store=_STORE).state().transcript:
        is_user = speaker == "User"
        kind = data.UserMessage if is_user else data.AssistantMessage
        messages.append(kind(role="user" if is_user else "assistant", content=text or "-"))
    verdicts = [
        {"expectedOutcome": one, "reasoning": "", "metExpectation": player.course.judged}
        for one in task.evaluation_criteria.nl_assertions or ()
    ]
    judge.generate = lambda **_: data.AssistantMessage(
        role="assistant", content=json.dumps({"results": verdicts})
    )
    reason = run.TerminationReason
    simulation = run.SimulationRun(
        id="1",
        task_id=task.id,
        timestamp="",
        start_time="",
        end_time="",
        duration=0,
        termination_reason=reason.MAX_STEPS if player.course.end is None else reason.USER_STOP,
        messages=messages,
    )
    every = evaluator.EvaluationType.ALL
    try:
        found = evaluator.evaluate_simulation(
            simulation, task, every, solo_mode=False, domain=domain
        )
    except ValueError:
        # An assertion about an object that does not exist.
        return "error"
    return f"{found.reward:g}"


def shrink(module: Any, task: Any, databases: dict[str, Any]) -> None:  # noqa: ANN401
    """Let the environments of a domain begin with the part of the database that a task names."""
    kind = next(one for one in vars(module).values() if hasattr(one, "load") and "DB" in str(one))
    whole = databases.setdefault(kind.__name__, kind.load(module_path(module)).model_dump())
    text = task.model_dump_json()
    users = {name for name in whole["users"] if name in text}
    for table in ("orders", "reservations"):
        users |= {one["user_id"] for name, one in whole.get(table, {}).items() if name in text}
    kept = {
        table: {
            name: row
            for name, row in rows.items()
            if table == "products" or name in users or row.get("user_id") in users
        }
        for table, rows in whole.items()
    }
    if flights := whole.get("flights"):
        named = f"{text} {json.dumps(kept['reservations'])}"
        kept["flights"] = {name: row for name, row in flights.items() if name in named}
    dumped = kind.model_validate(kept).model_dump_json()
    kind.load = classmethod(lambda cls, path: cls.model_validate_json(dumped))


def module_path(module: Any) -> Any:  # noqa: ANN401
    """Return the path of a domain's database."""
    return next(path for name, path in vars(module).items() if name.endswith("_DB_PATH"))


def compare(folder: str, domain: str, *, whole: bool, counts: Counter[str]) -> Iterator[str]:
    """Compare the rewards of all trajectories of a domain, and yield the differences."""
    suite = load_tau2(folder, domain)
    module = import_module(f"tau2.domains.{domain}.environment")
    databases: dict[str, Any] = {}
    for task in module.get_tasks():
        if task.evaluation_criteria is None:
            continue
        if not whole and domain in ("retail", "airline"):
            shrink(module, task, databases)
        name = Tau2Task(module, task).name
        for course in list_trajectories(task):
            player = Player(course, len(suite.scenarios[name].criteria))
            here, session = reward_here(suite, name, player)
            there = reward_there(task, domain, player, session)
            counts[f"{domain} | {course.kind}"] += 1
            counts[f"{domain} | {course.kind} | {there}"] += 1
            if here != there:
                yield (
                    f"{domain} {task.id}, {course.kind}: {here} here, {there} there\n"
                    f"{course.steps}\n{Session(session, store=_STORE).state().transcript}"
                )


def show(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def record_calls() -> None:
    """Keep the results of tool calls beside the calls."""
    call = Tau2World.call

    def recorded(self: Any, name: str, arguments: Any, requestor: str = "assistant") -> str:  # noqa: ANN401
        content = call(self, name, arguments, requestor)
        self.__dict__.setdefault("recorded", [])
        self.calls[-1].id = f"call-{len(self.recorded)}"
        self.recorded.append((self.calls[-1], content))
        return content

    Tau2World.call = recorded  # type: ignore[method-assign]
    Tau2World.recorded = ()  # type: ignore[attr-defined]


def main() -> int:
    """Print the differences and a table."""
    logging.getLogger("duologue").setLevel(logging.ERROR)
    folder, *domains = (one for one in sys.argv[1:] if not one.startswith("--"))
    record_calls()
    counts = Counter[str]()
    differences: list[str] = []
    # After Ctrl-C, the table contains the trajectories so far.
    with suppress(KeyboardInterrupt):
        for domain in domains:
            for one in compare(folder, domain, whole="--whole" in sys.argv, counts=counts):
                show(one)
                differences.append(one)
    show("| domain | trajectories | number | reward 1 in tau2-bench |")
    show("| --- | --- | --- | --- |")
    kinds = {name: many for name, many in counts.items() if name.count("|") == 1}
    for name, many in kinds.items():
        show(f"| {name} | {many} | {counts[f'{name} | 1']} |")
    total = sum(kinds.values())
    show(f"{total} trajectories, {len(differences)} with different rewards")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
