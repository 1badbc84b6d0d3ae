"""How interpreters are launched: their programs, and the folders that they see."""

import os
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from duologue.graphs import Sandbox
from duologue.tools.sandbox import launch
from duologue.tools.sandbox.workers import Worker
from support.sandboxes import need
from support.tables import read_rows


async def test_a_process_of_monty_needs_no_package_and_hides_errors(tmp_path: Path) -> None:
    """A program may find this package by a path that the process does not know."""
    await need("monty")
    (tmp_path / "duologue.py").write_text("raise ImportError")
    noisy, program = tmp_path / "monty", Path(sysconfig.get_path("scripts"), "monty")
    noisy.write_text(f'#!/bin/sh\necho noise >&2\nexec "{program}" "$@"\n')
    noisy.chmod(0o700)
    monty = launch.launch_monty()
    own = {"MONTY_BIN": str(noisy), "PYTHONPATH": str(tmp_path)}

    worker = await Worker.start(replace(monty, environment={**monty.environment, **own}))

    assert await worker.close() == 137


@pytest.mark.process
@pytest.mark.parametrize(
    ("base", "packages", "shown"),
    read_rows(__file__, "of_pythons_folder_is_shown_what_python_is_made_of"),
)
async def test_of_pythons_folder_is_shown_what_python_is_made_of(
    base: str, packages: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project (/usr/src) or other environments (conda's envs) may be in the same folder."""
    await need("bubblewrap")
    base, packages = base.format(tmp="/home/a"), packages.format(tmp="/home/a")
    there = {base, packages, *(f"{base}/{name}" for name in ("bin", "include", "lib", "envs"))}
    monkeypatch.setattr(sys, "base_prefix", base)
    monkeypatch.setattr(
        sysconfig, "get_paths", lambda: dict.fromkeys(("purelib", "platlib"), packages)
    )
    monkeypatch.setattr(os.path, "realpath", str)
    monkeypatch.setattr(Path, "is_dir", lambda self: str(self) in there)
    monkeypatch.setattr(launch, "_open_to_all", lambda path: True)

    command = launch.launch_bubblewrap(Sandbox()).command

    bound = {command[at + 1] for at, part in enumerate(command) if part == "--ro-bind"}
    expected = {f"{base}/{name}" for name in shown} | ({packages} if shown else set())
    assert bound == expected
