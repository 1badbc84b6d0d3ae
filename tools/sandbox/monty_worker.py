"""The process that runs Monty, a sandboxed interpreter for a subset of Python (pydantic-monty).

It is separate from the library's process because Monty's client is native code: a large value or a
crash would end the process. The untrusted code runs in a further process, which this process
starts. `tools.sandbox.sandbox_worker` is this process.
"""

import ast
import base64
import builtins
import threading
from collections.abc import Callable
from typing import Any, Final

import pydantic_monty as monty

MODULES: Final = (
    *("asyncio", "base64", "bisect", "collections", "copy", "csv", "dataclasses", "datetime"),
    *("decimal", "functools", "hashlib", "itertools", "json", "math", "random", "re", "time"),
    *("typing", "unicodedata"),
)
"""Modules of the standard library that Monty supports completely or partly."""

HINT: Final = (
    "This interpreter supports a subset of Python: functions, lambdas, simple classes, "
    "comprehensions and exceptions work, and parts of the modules "
    + ", ".join(MODULES)
    + ". It has no class inheritance, no generators (yield), no del, no input(), no other modules, "
    "and no files, network or processes. Write it another way."
)
"""Note for the author of code that needs an unsupported feature."""

_SHOWN: Final = "shown__"
_MISSING: Final = ("not supported in this environment", "Permission denied")
_STOPPED: Final = tuple(
    f"TimeoutError: {limit} limit exceeded" for limit in ("feed time", "sleep", "turn time")
)
_AS: Final = "they have their values from before this call"
_FRAMES: Final = 10


class Call:
    """One run of code: the order to run it, and the function that writes its output."""

    def __init__(self, order: dict[str, Any], say: Callable[[bytes], None]) -> None:
        self._order = order
        self._write = say

    def _say(self, stream: str, text: str) -> None:
        self._write(text.encode(errors="replace"))

    def run_safely(self, pool: monty.Monty) -> tuple[int, bytes]:
        """Run the code, and replace an unexpected exception with a note to the code's author."""
        try:
            return self.run(pool)
        except Exception as error:
            self._say("stderr", f"[the interpreter crashed: {type(error).__name__}]\n")
            return 137, b""

    def run(self, pool: monty.Monty) -> tuple[int, bytes]:
        """Run the code, and return the exit code and the variables to keep."""
        seconds = self._order["seconds"]
        limits: monty.ResourceLimits = {
            "max_feed_duration_secs": seconds,
            "max_total_sleep_secs": seconds,
            "max_memory": self._order["memory_mib"] << 20,
            "max_recursion_depth": 1000,
            "max_suspensions": 10_000,
        }
        policy: monty.OSPolicy = {"sleep_system_max": float("inf")}
        try:
            former = base64.b64decode(self._order["memory"] or "", validate=True)
        except ValueError:
            former = b""
        if former:
            with pool.checkout(limits=limits, os_policy=policy) as session:
                try:
                    session.load_session(former)
                except Exception:
                    # This version of Monty can't read the variables.
                    former = b""
                else:
                    return self._run_in(session, former)
        if self._order["memory"]:
            self._say("stderr", self._order["anew"])
        with pool.checkout(limits=limits, os_policy=policy) as session:
            return self._run_in(session, former)

    def _run_in(self, session: monty.MontySession, former: bytes) -> tuple[int, bytes]:
        code, whole = self._feed(session)
        if not whole:
            return code, former
        try:
            after = session.dump()
        except Exception as error:
            self._say("stderr", f"[the variables can't be kept ({type(error).__name__}): {_AS}]\n")
            return code, former
        if len(after) <= self._order["dump"]:
            return code, after
        self._say(
            "stderr",
            f"[the variables take {len(after) >> 10} KiB, more than the {self._order['dump'] >> 10}"
            f" KiB that can be kept: {_AS}]\n",
        )
        return code, former

    def _feed(self, session: monty.MontySession) -> tuple[int, bool]:
        """Run the code, print its last value, and return the exit code.

        The second value is whether the variables can be kept.
        """
        source = self._order["code"]
        try:
            session.feed_run(_with_value_kept(source), print_callback=self._say)
            session.feed_run(
                f"if {_SHOWN} is not None: print(repr({_SHOWN}))\n{_SHOWN} = None",
                print_callback=self._say,
            )
        except monty.MontyCrashedError as error:
            self._say("stderr", f"[the interpreter crashed: {error}]\n")
            return 124 if error.timed_out else 137, False
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as error:
            said = error.display("type-msg")
            self._say("stderr", _traceback(error, source))
            if said.startswith(_STOPPED):
                self._say("stderr", f"[ended: it ran longer than {self._order['seconds']:g} s]\n")
                return 124, False
            if said.startswith("MemoryError"):
                # The current variables may not fit into the limit again.
                self._say("stderr", f"[the variables are not kept: {_AS}]\n")
                return 1, False
            if _is_missing(said):
                self._say("stderr", f"[{HINT}]\n")
            return 1, True
        return 0, True


def _with_value_kept(source: str) -> str:
    """Return code that assigns its last expression's value to a name, so that it can be printed."""
    none = f"{_SHOWN} = None\n"
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, ValueError, MemoryError, RecursionError, IndexError):
        last = None
    if not isinstance(last, ast.Expr) or last.end_lineno is None:
        return f"{source}\n{none}"
    # Column offsets count bytes.
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
    """Return whether an error is about a feature of Python that Monty does not support."""
    kind, _, what = said.partition(": ")
    if kind in ("NotImplementedError", "ModuleNotFoundError", "ImportError"):
        return True
    if kind == "NameError":
        quoted = what.split("'")
        return len(quoted) > 1 and hasattr(builtins, quoted[1])
    if kind == "AttributeError":
        return what.startswith("module ")
    return any(missing in what for missing in _MISSING)


def start_monty(say: Callable[[bytes], None]) -> Callable[[dict[str, Any]], tuple[int, bytes]]:
    """Start Monty, and return the function that runs an order.

    Args:
        say: Writes the output of the code.
    """
    # Each of Monty's workers serves one call, so that sessions cannot see each other's data.
    pool = monty.Monty(min_processes=1, max_processes=1, max_checkouts_per_worker=1).__enter__()

    def run(order: dict[str, Any]) -> tuple[int, bytes]:
        # In a separate thread, so that the main thread can handle the signal.
        found: list[tuple[int, bytes]] = []
        call = Call(order, say)
        thread = threading.Thread(target=lambda: found.append(call.run_safely(pool)))
        thread.start()
        thread.join()
        return found[0]

    return run
