"""Interpreters in separate processes: one for each session, up to a limit.

All output of such a process is untrusted data. Code in it can write to every channel of the process
and so forge its own output and exit code, but nothing else.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import time
from codecs import getincrementaldecoder
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ...graphs.conversation.sandbox import Sandbox
from .launch import Launch, start_process, wait_until_ready
from .processes import Snapshot, family, kill, memory, namespace_bytes, send, snapshot


class CappedOutput:
    """A buffer for output that keeps the first and the last bytes and counts the others."""

    def __init__(self, kib: int) -> None:
        self._kib = kib
        self._first = kib * 512
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        """Number of bytes added so far."""

    def add(self, data: bytes) -> None:
        """Add the next output."""
        self.size += len(data)
        room = self._first - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._first:
            del self._tail[: -self._first]

    def text(self) -> str:
        """Return the kept output, with a note at the place of omitted bytes.

        Bytes that are not valid UTF-8 are replaced. No character is cut in two.
        """
        if self.size <= 2 * self._first:
            return (self._head + self._tail).decode(errors="replace")
        decoder = getincrementaldecoder("utf-8")("replace")
        head = decoder.decode(self._head)
        cut, _ = decoder.getstate()
        tail = bytes(self._tail[-self._first :])
        while tail and tail[0] & 0xC0 == 0x80 and len(tail) > self._first - 3:
            tail = tail[1:]
        left_out = self.size - len(self._head) + len(cut) - len(tail)
        said = f"[{left_out} bytes of output are omitted here; at most {self._kib} KiB are kept]"
        return f"{head}\n{said}\n{tail.decode(errors='replace')}"


MOST_OUTPUT: Final = 128 << 20
"""Maximum output of a call, in bytes. A call with more is ended, since the rest would be discarded.
"""

MOST_MEMORY: Final = 1 << 20
"""Maximum size of an interpreter's stored variables, in bytes."""

_END = re.compile(rb"(\d{1,3}) (\d{1,8})\n")
_READ = 1 << 18
# On Windows only Monty runs, and its single process is ended directly.
_HAS_SIGNALS = os.name == "posix"
_PATIENCE = 0.05
_SWEEPS = 100


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """The result of a call, without its output."""

    exit_code: int
    """0: success. 1: an exception. 124: time limit exceeded. 137: killed. Or the shell's own exit
    code.
    """
    note: str = ""
    """Note to add below the output. Empty if there is none."""
    memory: bytes = b""
    """The interpreter's variables, in Monty's format."""
    broke_off: bool = False
    """Whether the process ended, or sent invalid data, before the call was over."""


class _BrokenError(Exception):
    """The process ended, or sent invalid data."""


class Worker:
    """A process that contains an interpreter. Used by one task at a time."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        process: asyncio.subprocess.Process,
        launch: Launch,
    ) -> None:
        self._transport = transport
        self._process = process
        self._launch = launch
        self._trusted: set[int] = set()
        self._snapshot: Snapshot | None = None
        self._limit = 0
        self.alive = True
        self.runs = 0
        self.asked = 0

    @classmethod
    async def start(cls, launch: Launch) -> "Worker":
        """Start a worker, and wait until it is ready."""
        transport, process = await start_process(launch, _READ)
        worker = cls(transport, process, launch)
        try:
            await wait_until_ready(worker._stdout)
            # No untrusted code has run yet, so all processes found now are trusted.
            worker._trusted = await asyncio.to_thread(family, process.pid)
        except BaseException:
            await worker.close()
            raise
        return worker

    @property
    def _stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None  # noqa: S101  it is a pipe
        return self._process.stdout

    @property
    def has_ended(self) -> bool:
        """Return whether the process is known to have ended, for example for lack of memory."""
        return self._transport.get_returncode() is not None

    async def ask(
        self, sandbox: Sandbox, order: Mapping[str, Any], output: CappedOutput
    ) -> WorkerEnded:
        """Run code until it ends or reaches its time limit. Cancellation kills the process."""
        work: asyncio.Task[WorkerEnded] | None = None
        watch: asyncio.Task[None] | None = None
        self._snapshot = None
        self.asked += 1
        self._limit = (sandbox.memory_mib + self._launch.own_mib) << 20
        try:
            work = asyncio.create_task(self._exchange(order, output))
            watch = asyncio.create_task(self._watch())
            await asyncio.wait(
                {work, watch},
                timeout=sandbox.seconds + self._launch.grace,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended = await self._conclude(work, watch, sandbox, output)
            if self.alive and _HAS_SIGNALS:
                self._snapshot = await asyncio.to_thread(self._stop_leftovers)
                if self._snapshot is None:
                    await self.close()
            return ended
        except BaseException:
            await self.close()
            raise
        finally:
            for task in (work, watch):
                if task is not None:
                    task.cancel()

    async def _conclude(
        self,
        work: "asyncio.Task[WorkerEnded]",
        watch: "asyncio.Task[None]",
        sandbox: Sandbox,
        output: CappedOutput,
    ) -> WorkerEnded:
        if work.done():
            try:
                return work.result()
            except (_BrokenError, OSError):
                code = await self.close()
                if output.size > MOST_OUTPUT:
                    return WorkerEnded(137, f"ended: more than {MOST_OUTPUT >> 20} MiB of output")
                said = f"the interpreter crashed with exit code {code}"
                return WorkerEnded(code, said, broke_off=True)
        await self.close()
        # The task sees the end of the process and then adds the last output.
        await asyncio.wait({work}, timeout=1)
        if watch.done():
            return WorkerEnded(137, f"ended: it used more than {sandbox.memory_mib} MiB of memory")
        return WorkerEnded(124, f"ended: it ran longer than {sandbox.seconds:g} s")

    async def _exchange(self, order: Mapping[str, Any], output: CappedOutput) -> WorkerEnded:
        mark = secrets.token_hex(16).encode()
        data = json.dumps({"mark": mark.decode(), **order}).encode()
        if _HAS_SIGNALS:
            await asyncio.to_thread(send, self._trusted, signal.SIGCONT)
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        self._process.stdin.write(len(data).to_bytes(4, "big") + data)
        await self._process.stdin.drain()
        # Text before the mark was written after the end of the last call, so it is dropped.
        rest = await self._read_until(mark + b"<", b"", None)
        rest = await self._read_until(mark + b">", rest, output)
        while b"\n" not in rest and len(rest) < 16:
            rest += await self._read_more()
        found = _END.match(rest)
        if found is None or int(found[2]) > MOST_MEMORY:
            raise _BrokenError
        memory = rest[found.end() :]
        while len(memory) < int(found[2]):
            memory += await self._read_more()
        return WorkerEnded(int(found[1]) & 0xFF, memory=memory[: int(found[2])])

    async def _read_until(self, mark: bytes, data: bytes, output: CappedOutput | None) -> bytes:
        """Read up to a mark, and return the bytes after it."""
        dropped = 0
        while (at := data.find(mark)) < 0:
            # The end of the data may be the beginning of the mark.
            sure = max(0, len(data) - len(mark) + 1)
            dropped += sure
            if output is not None:
                output.add(data[:sure])
            if dropped > MOST_OUTPUT:
                raise _BrokenError
            data = data[sure:]
            try:
                data += await self._read_more()
            except _BrokenError:
                if output is not None:
                    output.add(data)
                raise
        if output is not None:
            output.add(data[:at])
        return data[at + len(mark) :]

    async def _read_more(self) -> bytes:
        part = await self._stdout.read(_READ)
        if not part:
            raise _BrokenError
        return part

    async def _watch(self) -> None:
        """Return when all processes together use more memory than allowed."""
        while True:
            await asyncio.sleep(_PATIENCE)
            if await asyncio.to_thread(self._is_too_large):
                return

    def _is_too_large(self) -> bool:
        pids = family(self._process.pid) | {self._process.pid}
        held = memory(pids, self._limit)
        if self._launch.in_memory:
            inside = next(iter(self._trusted), self._process.pid)
            held += namespace_bytes(inside, self._launch.in_memory)
        return held > self._limit

    def _stop_leftovers(self) -> Snapshot | None:
        """Kill all that a call left, and suspend the interpreter. Return None if it failed."""
        before = None
        for number in range(_SWEEPS):
            if not self.alive:
                break
            # The interpreter's threads must not run either. A stopped process starts no processes.
            if not self._launch.group:
                send(self._trusted, signal.SIGSTOP)
            found = self._look()
            if found is not None and found == before:
                return found
            before = found
            if found is None:
                send(family(self._process.pid) - self._trusted, signal.SIGKILL)
                time.sleep(0.001 if number < _SWEEPS // 2 else 0.02)
        return None

    def _look(self) -> Snapshot | None:
        stopped = () if self._launch.group else self._trusted
        return snapshot(self._process.pid, self._trusted, stopped)

    def is_idle(self) -> bool:
        """Return whether nothing has run in the process since its last call. Blocks.

        A kernel timer can wake a stopped process.
        """
        if self._snapshot is None:
            return True
        if self._launch.group:
            # On the bare host the threads of the interpreter may continue.
            return not family(self._process.pid) - self._trusted and not self._is_too_large()
        return self._look() == self._snapshot

    async def close(self) -> int:
        """Kill the process with all that it started, and return its exit code."""
        if self.alive:
            self.alive = False
            if self._stdout.at_eof():
                # It has already ended; its exit code will be known soon.
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await self._process.wait()
            if _HAS_SIGNALS:
                await asyncio.to_thread(kill, self._process.pid, group=True)
            # Closing the transport earlier would lose the exit code and log a warning.
            for _ in range(_SWEEPS):
                if self._transport.get_returncode() is not None:
                    break
                await asyncio.sleep(0.005)
        # With unread data in its pipes, the process object would wait forever.
        self._transport.close()
        code = await self._process.wait()
        if self._launch.folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._launch.folder, ignore_errors=True)
        return code if code >= 0 else 128 - code


MOST_KEPT: Final = 8
"""Maximum number of interpreters. A call waits while all of them are busy."""

_IDLE_SECONDS = 0.2
"""Seconds between two checks of the idle interpreters."""


class Workers:
    """The interpreters of this process. Used on one event loop only."""

    def __init__(self) -> None:
        self._idle: OrderedDict[str, Worker] = OrderedDict()
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._room = asyncio.Semaphore(MOST_KEPT)
        self._busy = 0
        self._number = 0
        self._guard: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def check_out(
        self, key: str, runs: int, launch: Callable[[], Awaitable[Launch]]
    ) -> AsyncIterator[tuple[Worker, bool]]:
        """Check out the interpreter of a key. Yields the interpreter, and whether it is new.

        An interpreter that has not made exactly ``runs`` calls is replaced.
        """
        async with self.lock(key), self._room:
            known = self._idle.get(key)
            if known is not None and (known.runs != runs or known.has_ended):
                await self._idle.pop(key).close()
            is_new = key not in self._idle
            async with self._hold(key, launch) as worker:
                worker.runs = runs + 1
                yield worker, is_new

    @asynccontextmanager
    async def check_out_any(
        self, kind: str, launch: Callable[[], Awaitable[Launch]]
    ) -> AsyncIterator[Worker]:
        """Check out any interpreter of a kind that keeps no state."""
        async with self._room:
            key = next((key for key in self._idle if key.startswith(f"any {kind} ")), None)
            if key is None:
                self._number += 1
                key = f"any {kind} {self._number}"
            async with self._hold(key, launch) as worker:
                yield worker

    @asynccontextmanager
    async def _hold(
        self, key: str, launch: Callable[[], Awaitable[Launch]]
    ) -> AsyncIterator[Worker]:
        worker = self._idle.pop(key, None)
        self._busy += 1
        try:
            if worker is not None and worker.has_ended:
                await worker.close()
                worker = None
            if worker is None:
                while self._idle and len(self._idle) + self._busy > MOST_KEPT:
                    _, oldest = self._idle.popitem(last=False)
                    await oldest.close()
                worker = await Worker.start(await launch())
            yield worker
        finally:
            self._busy -= 1
            if worker is not None and worker.alive:
                self._idle[key] = worker
                if self._guard is None or self._guard.done():
                    self._guard = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Check all waiting interpreters regularly, and end each one that still runs code."""
        while self._idle:
            await asyncio.sleep(_IDLE_SECONDS)
            idle = [(key, worker, worker.asked) for key, worker in self._idle.items()]
            checks = [worker.is_idle for _, worker, _ in idle]
            found = await asyncio.to_thread(lambda given: [check() for check in given], checks)
            for (key, worker, asked), is_idle in zip(idle, found, strict=True):
                # If the worker has received a new call meanwhile, the check saw it busy with that
                # call.
                if not is_idle and self._idle.get(key) is worker and worker.asked == asked:
                    await self._idle.pop(key).close()

    async def close(self, key: str) -> None:
        """End the interpreter of a key, after its current call."""
        async with self.lock(key):
            worker = self._idle.pop(key, None)
            if worker is not None:
                await worker.close()

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Hold the lock with this name until the block ends."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)
