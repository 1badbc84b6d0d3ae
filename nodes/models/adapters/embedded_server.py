"""The child process that serves a GGUF model. `nodes.models.adapters.embedded` starts it.

It reads one JSON line of settings from stdin, answers with one JSON line on stdout, and runs until
stdin closes.
"""

import importlib
import json
import os
import signal
import sys
import threading
from typing import Any

if sys.platform != "win32":
    import fcntl


def _exit_with_parent() -> None:
    """End this process when stdin closes, which happens even if the parent dies by kill -9."""
    while os.read(0, 1024):
        pass
    # A normal exit would wait for the running generation, or crash in the native server.
    os._exit(0)


def _die_with_parent() -> threading.Thread:
    """Arrange that this process ends when stdin closes. Joining the thread waits for that."""
    watcher = threading.Thread(target=_exit_with_parent, daemon=True)
    watcher.start()
    if sys.platform != "win32":
        # llama.cpp keeps the GIL while it loads, so the thread cannot run then. The kernel's signal
        # for activity on stdin, whose default action is to end the process, works even then.
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    return watcher


def _serve(settings: dict[str, Any]) -> tuple[object, int]:
    """Start the server. Return it, since it must stay referenced, and its port."""
    xllamacpp = importlib.import_module("xllamacpp")  # an extra without types
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["model"]}
    params.n_ctx = settings["n_ctx"]
    params.n_parallel = 2
    params.kv_unified = True  # both slots share n_ctx; otherwise each gets half
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_ram_mib = 512  # the default would take 8 GiB
    params.verbosity = -1
    params.warmup = False
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system picks a free one
    # Every user and web page on this machine can reach loopback: disable everything but the API.
    params.api_keys = [settings["api_key"]]
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = False
    server = xllamacpp.Server(params)
    return server, int(server.listening_address.rpartition(":")[2])


def main() -> None:
    """Serve until stdin closes.

    Stdin: one line `{"path", "model", "api_key", "n_ctx", "threads"}`. Stdout: one line, `{"port":
    int}` when ready or `{"error": str}`, then nothing.
    """
    # Ctrl-C in a terminal reaches child processes too, but the parent decides whether to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # unbuffered, so that the watcher below misses nothing
        if not byte:
            return
        line += byte
    watcher = _die_with_parent()

    # llama.cpp writes to the file descriptors directly: keep stdout for the answer, silence both.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)

    try:
        _server, port = _serve(json.loads(line))
    except Exception as error:
        answer.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        answer.flush()
        os._exit(1)
    answer.write(json.dumps({"port": port}) + "\n")
    answer.close()
    watcher.join()


if __name__ == "__main__":
    main()
