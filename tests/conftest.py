"""Fixtures for all tests."""

import functools
import gc
import os
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from drawn_faults import Faults
from support import children
from support.cases import leave_combinations_to_exhaustive
from support.postgres import server

# LangGraph reads this variable at its first import, here and in every process of a test.
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"

# If no bytecode may be written next to the sources, every process of a test would compile all its
# imports again, which takes several times as long as the test.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# During development, cases drawn at each run find new faults; a build must not depend on chance. On
# a busy machine a case takes longer than usual, which is no failure.
settings.register_profile("drawn_anew", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("drawn_once", settings.get_profile("drawn_anew"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "drawn_anew"))

ELSEWHERE = {"exhaustive", "process", "packaging", "browser", "types", "ray"}
"""Marks of the tests that `.ci/run` runs with separate commands."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the number of faults drawn in `tests/faults`."""
    group = parser.getgroup("faults")
    group.addoption(
        "--faults", type=float, default=1, help="how many times as many faults are drawn"
    )
    group.addoption("--faults-seed", type=int, default=0, help="where drawing faults begins")


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of cores plus one: some tests wait for other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the objects of the collected tests from garbage collections, and make these rare.

    With Python's threshold of 700 objects, collections take 5 % of the time of tests that run
    conversations.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


# This wraps pytest's own hook, which deselects tests by marks; hypothesis adds its marks there.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Leave most combinations to the exhaustive tests, and order the files for parallel runs."""
    leave_combinations_to_exhaustive(items, ELSEWHERE)
    result = yield
    if hasattr(config, "workerinput"):
        _begin_with_long_files(items)
    return result


def _begin_with_long_files(items: list[pytest.Item]) -> None:
    """Run slow files first, so that no core waits long for the last file."""
    work = Counter[Path]()
    for item in items:
        work[item.path] += 25 if item.get_closest_marker("hypothesis") else 1
    live = {item.path for item in items if item.get_closest_marker("live")}
    few_and_long = {"benchmarks", "faults", "notebooks"}
    live |= {path for path in work if path.parent.name in few_and_long}
    items.sort(key=lambda item: (item.path not in live, -work[item.path]))


_NUMBERS = count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new folder. Pytest's own fixture reads the names of all earlier ones each time."""
    return tmp_path_factory.mktemp(f"t{next(_NUMBERS)}", numbered=False)


@pytest.fixture(autouse=True)
def _apart_from_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(("OPENAI_", "DUOLOGUE_", "LANGSMITH_", "LANGCHAIN_")):
            monkeypatch.delenv(name)
    # The working folder may contain a .env file, and the data folder sessions.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(autouse=True)
def _apart_from_other_loops() -> None:
    """Forget LangChain's cached HTTP clients, one for each address.

    A test's server may get the port of an earlier server, whose connections belong to a closed
    loop.
    """
    kept = sys.modules.get("langchain_openai.chat_models._client_utils")
    if kept is not None:
        kept._cached_async_httpx_client.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _slow_reads_cached() -> None:
    """Cache data that each conversation or client loads again and that is the same in all tests."""
    from langgraph._internal import _serde

    from duologue.tools.registry import registry

    # Annotations, which LangGraph reads whenever it compiles a graph.
    _serde._safe_get_type_hints = functools.cache(_serde._safe_get_type_hints)
    # Certificates of the system.
    vars(ssl)["create_default_context"] = functools.cache(ssl.create_default_context)
    # Names that packages offer. Folders that a test adds to the path are still read.
    read = functools.cache(lambda group, path: entry_points(group=group))
    vars(registry)["entry_points"] = lambda group: read(group, tuple(sys.path))


@pytest.fixture
def start_child(tmp_path: Path) -> Callable[..., children.Child]:
    """Return a function that starts a process for a conversation: `children.start`."""

    def start(**order: Any) -> children.Child:
        return children.start(tmp_path, order)

    return start


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Yield the address of a PostgreSQL server, which is stopped after the last test."""
    with server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Yield the address of a new, empty schema, which is dropped after the test."""
    import psycopg

    schema = f"t{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        sign = "&" if "?" in postgres_server else "?"
        yield f"{postgres_server}{sign}options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a session as busy at once, not after a second."""
    monkeypatch.setattr("duologue.graphs.store.base._PATIENCE", 0.0)


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Faults:
    """Return the number of faults that this test draws: see `--faults` and `--faults-seed`."""
    config = request.config
    return Faults(config.getoption("--faults"), config.getoption("--faults-seed"))
