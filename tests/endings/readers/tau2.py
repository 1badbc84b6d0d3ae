"""τ²-bench's recorded runs, and τ-bench's: a simulated customer and an agent with tools.

Read: every ``.json`` file below the folder that contains runs in either format. A τ² file is a run
of ``tau2 run`` (``data/tau2/results``, ``data/simulations``, the leaderboard's ``trajectories``), a
τ file is a run of ``historical_trajectories``.

Labels: the recorded end is a field (``termination_reason``, or the kind of the last message); the
rules below find loops and early stop words.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from endings.dialogue import Call, Case, Dialogue, EndTool, Label, Origin, Turn, Word
from endings.readers.loops import loop_label

USER, AGENT = "User", "Agent"
STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"
TRANSFER_TOOL = "transfer_to_human_agents"
SPEAKERS = {"user": USER, "assistant": AGENT}

_ASKS_FOR_WORK = re.compile(
    r"\b(?:go ahead|proceed|please (?:do|book|cancel|change|process|confirm|send|update)"
    r"|yes,? (?:please|that|i (?:confirm|agree)|confirm|do))\b",
    re.IGNORECASE,
)


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all runs below a folder, each id once."""
    seen = set[str]()
    for path in sorted(folder.rglob("*.json")):
        for dialogue in _of_file(path):
            if dialogue.id not in seen:
                seen.add(dialogue.id)
                yield dialogue


def _of_file(path: Path) -> Iterator[Dialogue]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return
    if isinstance(found, list):
        for run in found:
            if isinstance(run, dict) and {"traj", "task_id", "trial"} <= run.keys():
                yield _of_tau(path.stem, run)
        return
    runs = found.get("simulations", [found]) if isinstance(found, dict) else []
    for run in runs:
        is_run = isinstance(run, dict) and {"id", "messages", "termination_reason"} <= run.keys()
        if is_run and any(one.get("role") in SPEAKERS for one in run["messages"]):
            yield _of_tau2(run)


def _of_tau2(run: dict[str, Any]) -> Dialogue:
    turns = _turns(run["messages"])
    words = tuple(Word(token, USER) for token in (STOP, TRANSFER, OUT_OF_SCOPE))
    # A person who plays the agent may stop, too.
    words += (Word(STOP, AGENT),)
    return Dialogue(f"tau2/{run['id']}", "tau2", turns, _label(turns), words)


def _of_tau(file: str, run: dict[str, Any]) -> Dialogue:
    turns = _turns(run["traj"])
    last = turns[-1]
    label = _label(turns)
    # The environment ends a run when this tool is called.
    if any(call.name == TRANSFER_TOOL for call in last.calls):
        label = Label(Case.HAND_OFF, len(turns), Origin.FIELD, signalled=True)
    return Dialogue(
        f"tau/{file}/{run['task_id']}/{run['trial']}",
        "tau",
        turns,
        loop_label(turns, label),
        (Word(STOP, USER),),
        (EndTool(TRANSFER_TOOL, AGENT),),
    )


def _turns(messages: list[dict[str, Any]]) -> tuple[Turn, ...]:
    results = {
        one.get("id") or one.get("tool_call_id"): one for one in messages if one["role"] == "tool"
    }
    turns = []
    for one in messages:
        speaker = SPEAKERS.get(one["role"])
        if speaker is not None:
            calls = tuple(_call(call, results) for call in one.get("tool_calls") or ())
            turns.append(Turn(speaker, one.get("content") or "", calls))
    return tuple(turns)


def _call(call: dict[str, Any], results: dict[Any, dict[str, Any]]) -> Call:
    function = call.get("function", call)
    arguments = function["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"text": arguments}
    result = results.get(call.get("id"), {})
    text = str(result.get("content") or "")
    failed = bool(result.get("error")) or text.startswith("Error")
    return Call(function["name"], arguments if isinstance(arguments, dict) else {}, text, failed)


def _label(turns: tuple[Turn, ...]) -> Label:
    length, last = len(turns), turns[-1]
    if TRANSFER in last.text:
        label = Label(Case.HAND_OFF, length, Origin.FIELD, signalled=True)
    elif OUT_OF_SCOPE in last.text or (STOP in last.text and last.speaker == AGENT):
        label = Label(Case.OTHER_SIDE, length, Origin.FIELD, signalled=True)
    elif STOP in last.text:
        label = Label(Case.WORD_SAID, length, Origin.FIELD, signalled=True)
        if _is_early(turns):
            label = Label(Case.EARLY_WORD, length + 1, Origin.RULE)
    else:
        label = Label(Case.NO_END, length + 1, Origin.FIELD)
    return loop_label(turns, label)


def _is_early(turns: tuple[Turn, ...]) -> bool:
    """Return whether the user asks for work, and stops before the agent can do it.

    The agent's last message asks a question, and the user's answer with the stop word asks the
    agent to continue.
    """
    if len(turns) < 2 or turns[-2].speaker != AGENT or "?" not in turns[-2].text:
        return False
    beside = turns[-1].text.replace(STOP, "")
    return bool(_ASKS_FOR_WORK.search(beside))
