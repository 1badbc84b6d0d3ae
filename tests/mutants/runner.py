"""The run: one process that has imported everything, and a child for each fault."""

import argparse
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mutants.faults import AREAS, Found, Site, all_functions, changed_tree, find_all
from mutants.memory import forget_results, live_functions, product_caches, put_in, watch

SLOW_FIXTURES = {"start_child", "postgres_url", "postgres_server"}
SLOWEST = 10.0
"""Maximum processor time of a test in seconds; slower tests are left out."""

ELSEWHERE = ("test_cli", "graphs/batch/", "test_threads", "test_settings", "test_embedded")
"""Parts of the names of tests that start processes or servers and test none of the rules."""


def is_used(test: dict[str, Any]) -> bool:
    return not test["failed"] and test["cpu"] <= SLOWEST


def by_fault(tests: dict[str, dict[str, Any]], seconds: float) -> dict[int, list[str]]:
    """Return the tests that reach each fault, from each file the cheapest first, within a bound."""
    files: defaultdict[int, defaultdict[str, list[str]]]
    files = defaultdict(lambda: defaultdict(list))
    for test in sorted(tests, key=lambda test: (tests[test]["cpu"], test)):
        for at in tests[test]["reaches"]:
            files[at][test.split("::")[0]].append(test)
    chosen: dict[int, list[str]] = {}
    for at, of_file in files.items():
        ranks = {test: rank for own in of_file.values() for rank, test in enumerate(own)}
        used, chosen[at] = 0.0, []
        for test in sorted(
            ranks, key=lambda test: ((ranks[test] + 1) ** 0.5 * tests[test]["cpu"], test)
        ):
            used += tests[test]["cpu"]
            if used > seconds:
                break
            chosen[at].append(test)
    return chosen


class Child:
    """A child that runs tests and reports each; killed if a test takes far too long."""

    def __init__(self, work: Callable[[Callable[[object], None]], None]) -> None:
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            self.rest = b""
            return
        os.setsid()
        gigabyte = 1 << 30
        resource.setrlimit(resource.RLIMIT_DATA, (6 * gigabyte, 6 * gigabyte))
        try:
            work(lambda told: (os.write(writing, json.dumps(told).encode() + b"\n"), None)[1])
        except BaseException as error:
            os.write(writing, json.dumps({"error": repr(error)[:300]}).encode() + b"\n")
        finally:
            os._exit(0)

    def next(self, seconds: float) -> Any:  # noqa: ANN401
        """Return the next message; None at the end. Raises TimeoutError after `seconds`."""
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.reading], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise TimeoutError
            came = os.read(self.reading, 1 << 16)
            if not came:
                return None
            self.rest += came
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def close(self) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.reading)


class Runner:
    """The plugin that runs tests its own way once pytest has collected them."""

    def __init__(self, options: argparse.Namespace, stored: dict[str, Any]) -> None:
        self.options = options
        self.root: Path = options.root
        self.faults: list[dict[str, Any]] = stored["faults"]
        self.seed: int = stored["seed"]
        self.failed = False
        self.log = os.fdopen(os.dup(2), "w")

    def say(self, text: str) -> None:
        print(text, file=self.log, flush=True)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        without = (*ELSEWHERE, *self.options.without)
        items[:] = [
            item
            for item in items
            if not SLOW_FIXTURES & set(getattr(item, "fixturenames", ()))
            and not any(part in item.nodeid for part in without)
        ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def run_item(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return self.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = all_functions(self.root, ("graphs", "nodes"))
        found = find_all(self.faults, self.seed, functions)
        self.say(f"{len(session.items)} tests; {Counter(one and one.how for one in found)}")
        for path in {one.path for one in functions}:
            if not path.endswith("__main__.py"):
                with contextlib.suppress(ImportError):
                    importlib.import_module("duologue." + path[:-3].replace("/", "."))
        gc.unfreeze()
        live_functions(self.root)
        product_caches()
        gc.collect()
        gc.freeze()
        sites = [(at, one.site) for at, one in enumerate(found) if one]
        map_of_tests = self.map_tests(session, sites)
        if self.options.map_only:
            return True
        results = self.try_faults(session, found, map_of_tests)
        self.store(results, map_of_tests)
        self.say(summary(results))
        return True

    def map_tests(
        self, session: pytest.Session, sites: list[tuple[int, Site]]
    ) -> dict[str, dict[str, Any]]:
        """Return for each test that passes how long it takes and which faults it reaches."""
        if self.options.map:
            read: dict[str, dict[str, Any]] = json.loads(Path(self.options.map).read_text())[
                "tests"
            ]
            return read

        def work(tell: Callable[[object], None]) -> None:
            seen: set[int] = set()
            watch(self.root, sites, seen)
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                if following is None or item.path != following.path:
                    forget_results()
                seen.clear()
                begun, used = time.perf_counter(), time.process_time()
                failed = self.run_item(item, following)
                taken, used = time.perf_counter() - begun, time.process_time() - used
                one = {"seconds": taken, "cpu": used, "reaches": sorted(seen), "failed": failed}
                tell([item.nodeid, one])
            tell([name for name in sys.modules if sys.modules[name]])

        child = Child(work)
        told: dict[str, dict[str, Any]] = {}
        while (came := child.next(600)) is not None:
            if isinstance(came, dict):
                raise RuntimeError(came["error"])
            if isinstance(came[1], dict):
                test, told[came[0]] = came
                if len(told) % 500 == 0:
                    self.say(f"{len(told)} tests mapped, {time.strftime('%X')}")
                if told[test]["failed"]:
                    self.say(f"fails without a fault: {test}")
            else:
                self.import_all(came)
        child.close()
        slow = [test for test, one in told.items() if one["cpu"] > SLOWEST]
        cpu = sum(one["cpu"] for one in told.values())
        self.say(f"mapped, {cpu:.0f} s of the processor; too slow: {slow}")
        self.store([], told)
        return told

    def store(self, results: list[dict[str, Any]], tests: dict[str, dict[str, Any]]) -> None:
        stored = {"commit": self.options.commit, "faults": results, "tests": tests}
        Path(self.options.to).write_text(json.dumps(stored, indent=1))

    def import_all(self, names: Iterable[str]) -> None:
        """Import all modules that the tests have imported, so that no child imports them again."""
        for name in names:
            if name not in sys.modules and not name.startswith(("test", "__")):
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    def try_faults(
        self,
        session: pytest.Session,
        found: list[Found | None],
        tests: dict[str, dict[str, Any]],
    ) -> list[dict[str, Any]]:
        items = {item.nodeid: item for item in session.items}
        reaching = by_fault(
            {test: one for test, one in tests.items() if test in items and is_used(one)},
            self.options.seconds,
        )
        results = []
        for at, (fault, place) in enumerate(zip(self.faults, found, strict=True)):
            result = {"at": at, **fault, "found": place.how if place else "gone"}
            if self.options.only and at not in self.options.only:
                continue
            if place:
                begun = time.monotonic()
                chosen = [items[test] for test in reaching.get(at, ())]
                result |= self.try_fault(place, chosen, tests)
                result |= {"tests": len(chosen), "seconds": round(time.monotonic() - begun, 1)}
                self.say(
                    f"{time.strftime('%X')} {at:3} {fault['area']:5} {fault['function']:32.32} "
                    f"{fault['change']:16} {result['outcome']:9} {len(chosen):5} tests "
                    f"{result['seconds']:6} s {result.get('by', '')}"
                )
            else:
                result["outcome"] = "gone"
            results.append(result)
            if at % 20 == 19:
                self.store(results, tests)
        return results

    def try_fault(
        self, place: Found, chosen: list[pytest.Item], tests: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Run the tests that reach a fault until one fails."""
        site = place.site
        tree, after = changed_tree(site, place.change, place.node_at)
        now = {"module": site.function.path, "line": site.statement.lineno, "after": after}
        if not chosen:
            return now | {"outcome": "unreached"}

        def work(tell: Callable[[object], None]) -> None:
            if not put_in(self.root, site.function, tree):
                raise LookupError("no such function in memory")
            forget_results()
            for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                tell(self.run_item(item, following))

        child = Child(work)
        outcome = now | {"outcome": "survived"}
        for item in chosen:
            try:
                came = child.next(20 + 10 * tests[item.nodeid]["seconds"])
            except TimeoutError:
                came = "hang"
            if came is False:
                continue
            # A child that dies is a test that fails, too.
            how = came if came == "hang" else "died" if came is None else "failed"
            outcome = now | {"outcome": "caught", "by": item.nodeid, "how": how}
            if isinstance(came, dict):
                outcome |= {"outcome": "error", "how": came["error"]}
            break
        child.close()
        return outcome


def summary(results: Sequence[dict[str, Any]]) -> str:
    """Return how many faults were caught, by area."""
    lines = []
    for area in [*AREAS, None]:
        own = [one for one in results if area in (one["area"], None)]
        counts = Counter(one["outcome"] for one in own)
        there = len(own) - counts["gone"]
        share = 100 * counts["caught"] / there if there else 0
        lines.append(
            f"{area or 'all':6} {len(own):4} faults, {share:5.1f} % caught, {dict(counts)}"
        )
    return "\n".join(lines)
