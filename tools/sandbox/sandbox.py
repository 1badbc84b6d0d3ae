"""Running untrusted code, by one function for all levels.

`tools.sandbox.launch` starts the interpreter of a level. `tools.sandbox.workers` sends code to it.
"""

import asyncio
import base64
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ...graphs.common.errors import SpecError
from ...graphs.common.threads import LoopThread
from ...graphs.conversation.sandbox import CODE_KIB, Kept, Language, Level, Sandbox
from .launch import Launch, StartError, launch_bubblewrap, launch_monty, launch_on_host
from .workers import MOST_MEMORY, CappedOutput, WorkerEnded, Workers

ANEW = (
    "[the interpreter was restarted: variables and files of earlier calls are gone, so define them "
    "again if you need them]\n"
)
"""First line of a call's output if the variables and files of earlier calls are lost."""

AS_BEFORE = "[the variables have their values from before this call]\n"
"""Last line of a call's output if the call was interrupted in Monty."""

# The kernel kills bubblewrap when the thread that started it ends, so this thread never ends.
_LOOP = LoopThread("duologue-sandbox")

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of running code. The code can forge everything except ``kept`` and ``level``."""

    exit_code: int
    """0: success. 1: an exception, or the exit code that the code chose. 124: time limit exceeded.
    126: not run. 137: killed, for example for its memory. Of a shell: its own exit code, or 128
    plus the number of a signal.
    """
    output: str
    """Stdout and stderr in order, the value of a last expression, a traceback, and notes in
    brackets.
    """
    kept: Kept
    """State of the session's interpreter, to pass to its next call."""
    level: Level
    """The level that ran the code."""


@cache
def _workers() -> Workers:
    return Workers()


@cache
def _problems() -> dict[Level, str | None]:
    return {}


# A forked child cannot use its parent's processes.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.cache_clear)
    os.register_at_fork(after_in_child=_problems.cache_clear)


async def run(sandbox: Sandbox, language: Language, code: str, kept: Kept) -> Ran:
    """Run code. Calls with the same key run in sequence. Cancellation kills the processes."""
    return await _LOOP.call(lambda: _run(sandbox, language, code, kept))


async def check(sandbox: Sandbox, languages: Collection[Language]) -> None:
    """Raise SpecError if this machine can't run these languages. Tests a level once per process."""
    for language in languages:
        await _LOOP.call(partial(_level, sandbox, language))


async def close(key: str) -> None:
    """End the interpreter of a session, if there is one, and delete its files."""
    await _LOOP.call(lambda: _workers().close(key))


async def _run(sandbox: Sandbox, language: Language, code: str, kept: Kept) -> Ran:
    level = await _level(sandbox, language)
    size = len(code.encode(errors="replace"))
    if size > CODE_KIB << 10:
        said = f"[not run: the code has {size} bytes; the limit is {CODE_KIB << 10}]\n"
        return Ran(126, said, kept, level)
    if _NO_TEXT.search(code):
        said = "[not run: the code contains a NUL or a lone surrogate; remove it]\n"
        return Ran(126, said, kept, level)
    output = CappedOutput(sandbox.output_kib)
    try:
        if level == "monty":
            return await _run_monty(sandbox, code, kept)
        start = partial(_launch, level, sandbox)
        async with _workers().check_out(kept.key, kept.runs, start) as (worker, is_new):
            ended = await worker.ask(sandbox, {"language": language, "code": code}, output)
    except StartError as error:
        return Ran(126, f"[not run: the sandbox could not be started ({error})]\n", kept, level)
    anew = ANEW if is_new and kept.started else ""
    return Ran(ended.exit_code, anew + _join_note(output, ended), kept.after_run(None), level)


async def _run_monty(sandbox: Sandbox, code: str, kept: Kept) -> Ran:
    order = _monty_order(sandbox, code, kept.memory)
    launch = partial(_launch, "monty", sandbox)
    async with _workers().lock(kept.key):
        # The idle process may have ended. Monty's code has no outside effects, so it may run twice.
        for _ in range(2):
            output = CappedOutput(sandbox.output_kib)
            async with _workers().check_out_any("monty", launch) as worker:
                ended = await worker.ask(sandbox, order, output)
            if not ended.broke_off:
                break
    anew = ANEW if kept.started and not kept.memory else ""
    cut_short = ended.note or ended.exit_code in (124, 137)
    memory = base64.b64encode(ended.memory).decode() if ended.memory else kept.memory
    said = anew + _join_note(output, ended) + (AS_BEFORE if cut_short else "")
    return Ran(ended.exit_code, said, kept.after_run(memory), "monty")


def _join_note(output: CappedOutput, ended: WorkerEnded) -> str:
    said = output.text()
    if not ended.note:
        return said
    between = "" if not said or said.endswith("\n") else "\n"
    return f"{said}{between}[{ended.note}]\n"


def _monty_order(sandbox: Sandbox, code: str, memory: str | None) -> dict[str, Any]:
    return {
        "code": code,
        "memory": memory,
        "seconds": sandbox.seconds,
        "memory_mib": sandbox.memory_mib,
        "dump": MOST_MEMORY,
        "anew": ANEW,
    }


async def _launch(level: Level, sandbox: Sandbox) -> Launch:
    launchers = {"host": launch_on_host, "monty": launch_monty}
    return await asyncio.to_thread(launchers.get(level) or partial(launch_bubblewrap, sandbox))


async def _level(sandbox: Sandbox, language: Language) -> Level:
    """Return the level in which code of this language will run."""
    wanted = sandbox.level
    if wanted == "monty" and language == "shell":
        raise SpecError(
            "sandbox.level: 'monty' has no shell; set the level to 'bubblewrap', or remove the "
            "shell"
        )
    if wanted == "host":
        return wanted
    tried = await _problem("bubblewrap") if wanted != "monty" else None
    if wanted != "monty" and tried is None:
        return "bubblewrap"
    if wanted == "bubblewrap" or language == "shell":
        why = "a shell needs it" if wanted == "auto" else "sandbox.level requires it"
        raise SpecError(
            f"sandbox.level: bubblewrap doesn't work on this machine ({tried}), and {why}; fix it, "
            "set the level to 'monty' for Python without a shell, or, if you trust the code, to "
            "'host'"
        )
    problem = await _problem("monty")
    if problem is not None:
        raise SpecError(
            f"sandbox.level: monty doesn't work on this machine ({problem}); fix it, or set "
            "another level"
        )
    return "monty"


async def _problem(level: Level) -> str | None:
    """Return why a level does not work on this machine, or None. Tests it once per process."""
    known = _problems()
    if level not in known:
        async with _workers().lock(f"probe {level}"):
            if level not in known:
                known[level] = await _try(level)
    return known[level]


async def _try(level: Level) -> str | None:
    sandbox = Sandbox(level=level, seconds=20)
    output = CappedOutput(1)
    # The shell starts a second process, since a limit may leave no room for one.
    order = {"language": "shell", "code": "echo $((6*7)) | cat"}
    if level == "monty":
        order = _monty_order(sandbox, "6*7", None)
    try:
        async with _workers().check_out_any(level, partial(_launch, level, sandbox)) as worker:
            ended = await worker.ask(sandbox, order, output)
            if level != "monty":
                await worker.close()
    except StartError as error:
        return str(error)
    if (ended.exit_code, output.text()) == (0, "42\n"):
        return None
    return f"a test run returned {_join_note(output, ended)[:200]!r}"
