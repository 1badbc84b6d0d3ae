"""The process that contains the interpreter, inside the sandbox or beside Monty.

It runs the text of this file with `python -c`. It shares its memory with untrusted code, so all of
its output is untrusted data. It uses only the standard library, and runs on Python 3.9 and later.
Only for Monty, whose code runs in a further process, it imports `monty_worker` from its folder.
`tools.sandbox.launch` starts it.
"""

import ast
import io
import json
import linecache
import os
import shutil
import signal
import subprocess
import sys
import traceback
import types
from importlib import import_module
from typing import Any

if sys.platform != "win32":
    import fcntl
    import resource


_SUBREAPER = 36


def _limit(order: dict[str, Any]) -> None:
    for name, value in order["limits"].items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            resource.setrlimit(number, (value, value))


def _channels() -> tuple[int, int]:
    """Reserve stdin and stdout for the protocol, and open others for the code."""
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(1, 2)
    return orders, answers


def _read(orders: int, size: int, folder: "str | None") -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(orders, size - len(data))
        if not part:
            # The parent process is gone and can no longer remove the folder.
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        data += part
    return data


def _order(orders: int, folder: "str | None") -> dict[str, Any]:
    size = int.from_bytes(_read(orders, 4, folder), "big")
    order: dict[str, Any] = json.loads(_read(orders, size, folder))
    return order


def _write(answers: int, data: bytes) -> None:
    while data:
        data = data[os.write(answers, data) :]


def _python(code: str, names: dict[str, Any], number: int) -> int:
    file = f"<python {number}>"
    # For the source lines in tracebacks.
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    try:
        tree = ast.parse(code, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts = [compile(tree, file, "exec", dont_inherit=True)]
        if last is not None:
            # Prints the value, as Python's prompt does.
            parts.append(compile(ast.Interactive([last]), file, "single", dont_inherit=True))
    except BaseException as error:
        traceback.print_exception(type(error), error, None)
        return 1
    try:
        for part in parts:
            exec(part, names)  # noqa: S102  it is what this process is for
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException as error:
        # The first frame is this function.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, trace)
        return 1
    return 0


def _shell(code: str, shell: str) -> int:
    try:
        ended = subprocess.run([shell, "-c", code], check=False).returncode  # noqa: S603
    except (OSError, ValueError) as error:
        # For example because no more processes or open files are available.
        print(f"[the shell could not be started: {error}]", file=sys.stderr)  # noqa: T201
        return 126
    return ended if ended >= 0 else 128 - ended


def _streams() -> None:
    """Open the code's three streams again, since earlier code may have closed them."""
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        # Unbuffered, since both share one pipe and their order matters.
        raw: Any = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
        setattr(sys, name, stream)


def _die_with(orders: int) -> None:
    """On the bare host, end this process and its group when the parent process is gone."""
    if sys.platform == "linux":
        # Orphaned processes become children of this process, so that they can be found.
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGIO, lambda *_: os.killpg(0, signal.SIGKILL))
    fcntl.fcntl(orders, fcntl.F_SETOWN, os.getpid())


def _watch(orders: int, on: bool) -> None:
    flags = fcntl.fcntl(orders, fcntl.F_GETFL)
    fcntl.fcntl(orders, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)


def _wait_for(*channels: int) -> None:
    """Make reads and writes wait. Any program that shares a pipe may have changed that."""
    if sys.platform != "win32":
        for channel in channels:
            os.set_blocking(channel, True)


def _start_monty(answers: int) -> Any:  # noqa: ANN401
    """Return the function that runs an order in Monty."""
    # Error messages of this process and of Monty's are not for the code's author.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        worker = import_module("monty_worker")
        return worker.start_monty(lambda data: _write(answers, data))
    except Exception as error:
        _write(answers, f"{type(error).__name__}: {error}".encode(errors="replace"))
        raise


def main() -> None:
    """Run orders until stdin ends."""
    settings = json.loads(sys.argv[1])
    orders, answers = _channels()
    _limit(settings)
    sys.path[:] = [path for path in sys.path if path] + settings["packages"]
    run_in_monty = _start_monty(answers) if settings["monty"] else None
    sys.argv[:] = [""]
    own = types.ModuleType("__main__")
    sys.modules["__main__"] = own
    if settings["group"]:
        _die_with(orders)
    _write(answers, b"ready\n")
    number = 0
    while True:
        order = _order(orders, settings["folder"])
        number += 1
        mark, memory = order["mark"].encode(), b""
        _wait_for(answers)
        _streams()
        if settings["group"]:
            _watch(orders, True)
        _write(answers, mark + b"<")
        if run_in_monty is not None:
            code, memory = run_in_monty(order)
        elif order["language"] == "python":
            code = _python(order["code"], own.__dict__, number)
        else:
            code = _shell(order["code"], settings["shell"])
        if settings["group"]:
            _watch(orders, False)
        _wait_for(answers, orders)
        _write(answers, mark + b">%d %d\n" % (code, len(memory)) + memory)


if __name__ == "__main__":
    main()
