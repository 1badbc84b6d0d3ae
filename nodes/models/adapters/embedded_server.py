"""The child process that serves a GGUF model. `nodes.models.adapters.embedded` starts it.

Reads one JSON line of settings from stdin, answers with one JSON line on stdout, and lives until
stdin closes. Who starts it, and with which key, is the parent's side and not here.
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
    """End this process when stdin closes, which a parent's death does even after kill -9."""
    while os.read(0, 1024):
        pass
    # A normal exit would wait for the generation in flight, or crash in the native server.
    os._exit(0)


def _die_with_parent() -> threading.Thread:
    """Arrange that this process ends when stdin closes; joining the thread waits for that."""
    watcher = threading.Thread(target=_exit_with_parent, daemon=True)
    watcher.start()
    if sys.platform != "win32":
        # llama.cpp keeps the GIL while it loads, so no thread of ours runs then; the kernel's
        # signal for "something happened on stdin", whose default is to end the process, does.
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    return watcher


def _serve(settings: dict[str, Any]) -> tuple[object, int]:
    """Start the server; give it, to be kept alive, and its port."""
    xllamacpp = importlib.import_module("xllamacpp")  # an extra, and it has no types
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["model"]}
    params.n_ctx = settings["n_ctx"]
    params.n_parallel = 2
    params.kv_unified = True  # both slots share n_ctx; else each gets half
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_ram_mib = 512  # the default would take 8 GiB
    params.verbosity = -1
    params.warmup = False
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system picks a free one
    # Loopback is open to every user and every web page of this machine: close all but the API.
    params.api_keys = [settings["api_key"]]
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = False
    server = xllamacpp.Server(params)
    return server, int(server.listening_address.rpartition(":")[2])


def main() -> None:
    """Serve until stdin closes.

    Stdin: one line `{"path", "model", "api_key", "n_ctx", "threads"}`. Stdout: one line,
    `{"port": int}` when ready or `{"error": str}`, then nothing.
    """
    # Ctrl-C in a terminal reaches children too: whether to stop is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # unbuffered, so that the watcher below misses nothing
        if not byte:
            return
        line += byte
    watcher = _die_with_parent()

    # llama.cpp writes to the descriptors themselves: keep stdout for the answer, silence both.
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
