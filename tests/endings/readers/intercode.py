"""InterCode's recorded runs: a model that queries a database or works in a shell.

Read: every ``.json`` file below the folder that contains runs (``data/results``). A run has no
messages of people: the task, then one call of the environment after another.

Labels: no run should end before its highest reward, which a field gives after each call. A run
without the full reward is stuck if its last six calls are at most three different ones; it should
end by its last call.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from endings.dialogue import Call, Case, Dialogue, Label, Origin, Turn
from endings.readers.loops import count_different

PERSON, AGENT = "User", "Agent"
LAST = 6
"""Number of calls at the end of a stuck run."""
DIFFERENT = 3
"""Maximum number of different ones among them."""


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all runs below a folder."""
    for path in sorted(folder.rglob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        runs = found.get("logs", found) if isinstance(found, dict) else {}
        for key, run in runs.items() if isinstance(runs, dict) else ():
            if isinstance(run, dict) and isinstance(run.get("turn_history"), dict):
                dialogue = _of_run(f"intercode/{path.stem}/{run.get('task_id', key)}", run)
                if len(dialogue.turns) > 2:
                    yield dialogue


def _of_run(dialogue_id: str, run: dict[str, Any]) -> Dialogue:
    history = run["turn_history"]
    valid = history.get("valid_action") or [True] * len(history["actions"])
    steps = zip(history["actions"], history["observations"], valid, strict=False)
    calls = [
        Call("run", {"code": str(action)}, str(result), failed=is_valid is False)
        for action, result, is_valid in steps
    ]
    turns = (Turn(PERSON, str(run["query"])), *(Turn(AGENT, "", (call,)) for call in calls))
    return Dialogue(dialogue_id, "intercode", turns, _label(calls, history["rewards"]))


def _label(calls: Sequence[Call], rewards: Sequence[Any]) -> Label:
    best, latest = 0.0, 1
    for place, reward in enumerate(rewards[: len(calls)], 2):
        if isinstance(reward, int | float) and reward > best:
            best, latest = reward, place
    end = len(calls) + 1
    if best >= 1:
        return Label(Case.TASK_DONE, end, Origin.FIELD, latest)
    if len(calls) >= LAST and count_different(calls[-LAST:]) <= DIFFERENT:
        return Label(Case.RUNAWAY, end, Origin.RULE, latest, signalled=True)
    return Label(Case.NO_END, end + 1, Origin.FIELD, latest)
