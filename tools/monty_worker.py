"""The process that runs Monty, a subset of Python in a sandbox of its own (pydantic-monty).

It is apart from the library because the interpreter's client is native code: in the library's own
process a large value or an unlucky exit would take that process with it. The untrusted code is
one process further on. Who starts this one is `tools/workers.py`.
"""

import ast
import base64
import builtins
import json
import os
import signal
import sys
import threading
from typing import Any, Final

import pydantic_monty as monty

if sys.platform != "win32":
    import fcntl

MODULES: Final = (
    *("asyncio", "base64", "bisect", "collections", "copy", "csv", "dataclasses", "datetime"),
    *("decimal", "functools", "hashlib", "itertools", "json", "math", "random", "re", "time"),
    *("typing", "unicodedata"),
)
"""Modules of the standard library that it knows, in whole or in part."""

HINT: Final = (
    "This interpreter knows a subset of Python: functions, lambdas, simple classes, comprehensions "
    "and exceptions work, and parts of the modules " + ", ".join(MODULES) + ". It has no class "
    "inheritance, no generators (yield), no del, no input(), no other modules, and no files, "
    "network or processes. Write it another way."
)
"""What the code's author is told when code needs what there is not."""

_SHOWN: Final = "shown__"
_MISSING: Final = ("not supported in this environment", "Permission denied")
_STOPPED: Final = ("feed time limit exceeded", "sleep limit exceeded", "turn time limit exceeded")
_FRAMES: Final = 10


class Call:
    """One call: what it was told, and where its output goes.

    Args:
        order: ``code``, ``memory`` (base64 or None), ``seconds``, ``memory_mib`` and the largest
            ``dump`` in bytes.
        answers: Where output goes.
    """

    def __init__(self, order: dict[str, Any], answers: int) -> None:
        self._order = order
        self._answers = answers

    def _say(self, stream: str, text: str) -> None:
        write(self._answers, text.encode(errors="replace"))

    def run(self, pool: monty.Monty) -> tuple[int, bytes]:
        """Run it; give the exit code and what to keep of the variables."""
        seconds = self._order["seconds"]
        limits: monty.ResourceLimits = {
            "max_feed_duration_secs": seconds,
            "max_total_sleep_secs": seconds,
            "max_memory": self._order["memory_mib"] << 20,
            "max_recursion_depth": 1000,
            "max_suspensions": 10_000,
        }
        policy: monty.OSPolicy = {"sleep_system_max": float("inf")}
        before = self._order["memory"]
        former = base64.b64decode(before) if before else b""
        with pool.checkout(limits=limits, os_policy=policy) as session:
            if former:
                session.load_session(former)
            code, whole = self._feed(session)
            if not whole:
                return code, former
            after = session.dump()
        if len(after) <= self._order["dump"]:
            return code, after
        self._say(
            "stderr",
            f"[the variables take {len(after) >> 10} KiB, more than the {self._order['dump'] >> 10}"
            " KiB that can be kept: they are again as they were before this call]\n",
        )
        return code, former

    def _feed(self, session: monty.MontySession) -> tuple[int, bool]:
        """Run the code and show its last value; also tell whether the variables are whole."""
        source = self._order["code"]
        try:
            session.feed_run(_with_value_kept(source), print_callback=self._say)
            session.feed_run(
                f"if {_SHOWN} is not None: print(repr({_SHOWN}))\n{_SHOWN} = None",
                print_callback=self._say,
            )
        except monty.MontyCrashedError as error:
            self._say("stderr", f"[the interpreter broke off: {error}]\n")
            return 124 if error.timed_out else 137, False
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as error:
            said = error.display("type-msg")
            self._say("stderr", _traceback(error, source))
            if any(f": {stopped}" in said for stopped in _STOPPED):
                self._say("stderr", f"[ended: it ran longer than {self._order['seconds']:g} s]\n")
                return 124, False
            if _is_missing(said):
                self._say("stderr", f"[{HINT}]\n")
            return 1, True
        return 0, True


def _with_value_kept(source: str) -> str:
    """Have the value of a last expression kept under a name, since only its text may come out."""
    none = f"{_SHOWN} = None\n"
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, ValueError, MemoryError, RecursionError, IndexError):
        last = None
    if not isinstance(last, ast.Expr) or last.end_lineno is None:
        return f"{source}\n{none}"
    # Columns are counted in bytes.
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: last.lineno - 1])) + last.col_offset
    end = sum(map(len, lines[: last.end_lineno - 1])) + (last.end_col_offset or 0)
    data = source.encode()
    kept = data[:start] + f"{_SHOWN} = (".encode() + data[start:end] + b")" + data[end:]
    return kept.decode()


def _traceback(error: "monty.MontyRuntimeError | monty.MontySyntaxError", source: str) -> str:
    frames = error.traceback()
    lines = ["Traceback (most recent call last):"] if frames else []
    for number, frame in enumerate(frames):
        if _FRAMES <= number < len(frames) - _FRAMES:
            if number == _FRAMES:
                lines.append(f"  … {len(frames) - 2 * _FRAMES} more …")
            continue
        lines.append(
            f'  File "<python>", line {frame.line}, in {frame.function_name or "<module>"}'
        )
        shown = (frame.source_line or "").strip()
        if f"{_SHOWN} = (" in shown or f"{_SHOWN} is not None" in shown:
            own = source.splitlines()
            shown = own[frame.line - 1].strip() if frame.line <= len(own) else ""
        if shown:
            lines.append(f"    {shown}")
    return "\n".join([*lines, error.display("type-msg")]) + "\n"


def _is_missing(said: str) -> bool:
    """Whether an error tells of something that Python has and this interpreter has not."""
    kind, _, what = said.partition(": ")
    if kind in ("NotImplementedError", "ModuleNotFoundError", "ImportError"):
        return True
    if kind == "NameError":
        quoted = what.split("'")
        return len(quoted) > 1 and hasattr(builtins, quoted[1])
    if kind == "AttributeError":
        return what.startswith("module ")
    return any(missing in what for missing in _MISSING)


def write(answers: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(answers, data) :]


def _read(orders: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(orders, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def _end_with(orders: int) -> None:
    """End, with the interpreter, when the other side is gone: also in the midst of a call."""
    if sys.platform != "win32":
        signal.signal(signal.SIGIO, lambda *_: os.killpg(0, signal.SIGKILL))
        fcntl.fcntl(orders, fcntl.F_SETOWN, os.getpid())


def _watch(orders: int, on: bool) -> None:
    if sys.platform != "win32":
        flags = fcntl.fcntl(orders, fcntl.F_GETFL)
        fcntl.fcntl(orders, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)


def _aside(call: Call, pool: monty.Monty) -> tuple[int, bytes]:
    """Run a call in a thread of its own: this one has to be free for the signal."""
    found: list[tuple[int, bytes]] = []
    thread = threading.Thread(target=lambda: found.append(call.run(pool)))
    thread.start()
    thread.join()
    return found[0]


def main() -> None:
    """Answer orders until there are no more."""
    orders, answers = os.dup(0), os.dup(1)
    _end_with(orders)
    # A worker serves one call, so that nothing of one session is left for another.
    with monty.Monty(min_processes=1, max_processes=1, max_checkouts_per_worker=1) as pool:
        write(answers, b"ready\n")
        while True:
            order = json.loads(_read(orders, int.from_bytes(_read(orders, 4), "big")))
            mark = order["mark"].encode()
            write(answers, mark + b"<")
            _watch(orders, True)
            code, memory = _aside(Call(order, answers), pool)
            _watch(orders, False)
            write(answers, mark + b">%d %d\n" % (code, len(memory)) + memory)


if __name__ == "__main__":
    main()
