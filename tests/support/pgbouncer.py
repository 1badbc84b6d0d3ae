"""A PgBouncer with transaction pooling in front of a PostgreSQL server. No tests here."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict


@contextmanager
def pgbouncer(server: str, database: str) -> Iterator[tuple[str, str]]:
    """Run a pooler; yield its address, and the address of the server itself as HOST:PORT.

    Args:
        server: Address of the server.
        database: Database in the pooler's address.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        assert not os.environ.get("CI"), "PgBouncer is not installed"
        pytest.skip("PgBouncer is not installed")
    given = conninfo_to_dict(server)
    host, port = given.get("host", "localhost"), given.get("port", "5432")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listens = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pb") as name:
        login = f"user={given['user']} password={given.get('password', '')}"
        ini = Path(name, "pgbouncer.ini")
        ini.write_text(
            f"[databases]\n{database} = host={host} port={port} {login}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listens}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 200\n"
            "default_pool_size = 4\n"
        )
        unprivileged: list[str] = []
        if os.geteuid() == 0:
            unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(name, 65534, 65534)
        process = subprocess.Popen(
            [*unprivileged, program, "-q", str(ini)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", listens)) == 0:
                        break
                time.sleep(0.05)
            user = f"{given['user']}:{given.get('password', '')}"
            yield f"postgresql://{user}@127.0.0.1:{listens}/{database}", f"{host}:{port}"
        finally:
            process.terminate()
            process.wait(10)
