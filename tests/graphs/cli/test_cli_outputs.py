"""Exports and dumps that are written to links, devices and full disks."""

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duologue.graphs import converse, role_play
from duologue.nodes.testing import ScriptedChatModel
from support.cli_help import duologue

WRITERS = [("session", "dump", "garden"), ("export", "garden", "--format", "html")]


@pytest.fixture
def store(tmp_path: Path) -> str:
    script = ["Instruction: Dig.\nInput: None", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
    garden = role_play("Plan a garden", "Cook", "Gardener", specify_task=False)
    address = f"sqlite:///{tmp_path}/x.db"
    converse(garden, session="garden", model=ScriptedChatModel(script=script), store=address)
    return address


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder whose disk has room for 100 bytes, in the file ``old``."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root mounts a small disk")
    (folder / "old").write_text("old " * 25)
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as written:
        while True:
            written.write(b"x" * 4096)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("writer", WRITERS)
def test_an_output_may_be_a_link_or_a_device(
    writer: tuple[str, ...], store: str, tmp_path: Path
) -> None:
    target, link, loop = tmp_path / "target", tmp_path / "link", tmp_path / "loop"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    loop.symlink_to(loop)
    for output in (link, Path(os.devnull)):
        written = duologue(*writer, "--store", store, "--output", str(output))
        assert (written.exit_code, written.stderr) == (0, "")
    assert link.is_symlink()
    assert "Dig." in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    for output in (loop, tmp_path, tmp_path / "none" / "x"):
        refused = duologue(*writer, "--store", store, "--output", str(output))
        assert refused.exit_code == 2
        assert refused.stderr.startswith(f"Error: {output}: ")


@pytest.mark.parametrize("writer", WRITERS)
def test_an_old_file_stays_if_the_disk_is_full(
    writer: tuple[str, ...], store: str, full: Path
) -> None:
    refused = duologue(*writer, "--store", store, "--output", str(full / "old"))
    assert refused.exit_code == 2
    assert "old: can't be written: No space left on device" in refused.stderr
    assert (full / "old").read_text() == "old " * 25
    assert {one.name for one in full.iterdir()} == {"old", "filler"}
