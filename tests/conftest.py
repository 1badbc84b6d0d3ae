"""Fixtures for all tests."""

import functools
import gc
import os
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from drawn_faults import Faults
from support import children
from support.cases import leave_combinations_to_exhaustive
from support.postgres import server

# Read when LangGraph is first imported, here and in every process that a test starts.
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"

# Where nothing may be compiled beside its source, every process that a test starts would compile
# all that it imports anew, which takes several times as long as the test.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# What is drawn anew at each run finds faults while one works; a build must not depend on the draw.
# On a busy machine a case takes longer than usual, which is no failure.
settings.register_profile("drawn_anew", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("drawn_once", settings.get_profile("drawn_anew"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "drawn_anew"))

ELSEWHERE = {"exhaustive", "process", "packaging", "browser", "types", "ray"}
"""Marks of the tests that `.ci/run` runs by commands of their own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much is drawn in `tests/faults`."""
    group = parser.getgroup("faults")
    group.addoption(
        "--faults", type=float, default=1, help="how many times as many faults are drawn"
    )
    group.addoption("--faults-seed", type=int, default=0, help="where drawing faults begins")


def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are cores: some tests wait for other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is loaded here, and stays, to no later search for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Around pytest's own, which leaves out tests by their marks; hypothesis marks its tests there.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Leave most combinations to the exhaustive tests, and order the files in parallel."""
    leave_combinations_to_exhaustive(items, ELSEWHERE)
    result = yield
    if hasattr(config, "workerinput"):
        _begin_with_long_files(items)
    return result


def _begin_with_long_files(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no core waits long for the last."""
    work = Counter[Path]()
    for item in items:
        work[item.path] += 25 if item.get_closest_marker("hypothesis") else 1
    live = {item.path for item in items if item.get_closest_marker("live")}
    few_and_long = {"benchmarks", "faults", "notebooks"}
    live |= {path for path in work if path.parent.name in few_and_long}
    items.sort(key=lambda item: (item.path not in live, -work[item.path]))


@pytest.fixture(autouse=True)
def _apart_from_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(("OPENAI_", "DUOLOGUE_", "LANGSMITH_", "LANGCHAIN_")):
            monkeypatch.delenv(name)
    # The working folder may hold a .env, the data folder sessions.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(autouse=True)
def _apart_from_other_loops() -> None:
    """Forget LangChain's own HTTP clients, each kept for an address.

    A test's server may get the port of an earlier one, whose connections are of a closed loop.
    """
    kept = sys.modules.get("langchain_openai.chat_models._client_utils")
    if kept is not None:
        kept._cached_async_httpx_client.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _slow_reads_cached() -> None:
    """Cache what each conversation or client reads anew, and what is the same for all tests."""
    from langgraph._internal import _serde

    from duologue.tools.registry import registry

    # The same annotations, whenever a graph is compiled.
    _serde._safe_get_type_hints = functools.cache(_serde._safe_get_type_hints)
    # The system's certificates.
    vars(ssl)["create_default_context"] = functools.cache(ssl.create_default_context)
    # The names that packages offer: a folder that a test adds to the path is read.
    read = functools.cache(lambda group, path: entry_points(group=group))
    vars(registry)["entry_points"] = lambda group: read(group, tuple(sys.path))


@pytest.fixture
def start_child(tmp_path: Path) -> Callable[..., children.Child]:
    """Start a process that runs a conversation; `children.start` says how."""

    def start(**order: Any) -> children.Child:
        return children.start(tmp_path, order)

    return start


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server, stopped after the last test."""
    with server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty schema of its own, dropped after the test."""
    import psycopg

    schema = f"t{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        sign = "&" if "?" in postgres_server else "?"
        yield f"{postgres_server}{sign}options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Faults:
    """How many faults this test draws; see `--faults` and `--faults-seed`."""
    config = request.config
    return Faults(config.getoption("--faults"), config.getoption("--faults-seed"))
