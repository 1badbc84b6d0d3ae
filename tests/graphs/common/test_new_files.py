"""Files that are complete or absent, and the temporary files that killed processes leave."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from duologue.graphs.common.files import NewFile, remove_abandoned_files, write_file

WRITER = """
import sys
from pathlib import Path
from duologue.graphs.common.files import NewFile

file = NewFile.begin(Path("found.json"))
file.write("half")
print("begun", flush=True)
sys.stdin.readline()
file.put()
"""
"""A process that writes a file, and waits in the middle."""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Popen[str]]:
    command = [sys.executable, "-c", WRITER]
    with Popen(command, cwd=tmp_path, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def drafts(folder: Path) -> list[str]:
    return [one.name for one in folder.glob(".duologue-*.tmp")]


@pytest.mark.process
def test_the_temporary_file_of_a_killed_writer_is_removed_and_that_of_a_live_one_stays(
    tmp_path: Path, writer: Popen[str]
) -> None:
    begun = drafts(tmp_path)
    write_file(tmp_path / "other.json", "{}")
    assert drafts(tmp_path) == begun != []
    writer.kill()
    writer.wait()
    assert drafts(tmp_path) == begun
    write_file(tmp_path / "other.json", "{}")
    assert drafts(tmp_path) == []


@pytest.mark.process
def test_a_live_writer_finishes_its_file_while_others_remove_files(
    tmp_path: Path, writer: Popen[str]
) -> None:
    remove_abandoned_files(tmp_path)
    writer.communicate("\n")
    assert (tmp_path / "found.json").read_text() == "half"


def test_files_that_are_written_at_the_same_time_are_all_complete(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for round_ in range(40):
            write_file(tmp_path / f"{number}.json", f"{number} {round_}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [(tmp_path / f"{one}.json").read_text() for one in range(4)] == [
        f"{one} 39" for one in range(4)
    ]
    assert drafts(tmp_path) == []


def test_links_and_folders_of_such_names_stay_and_a_pipe_blocks_nobody(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    link, pipe = tmp_path / ".duologue-1.tmp", tmp_path / ".duologue-2.tmp"
    link.symlink_to(kept)
    os.mkfifo(pipe)
    (tmp_path / ".duologue-3.tmp").mkdir()
    (tmp_path / ".duologue-4.tmp").write_text("half")
    file = NewFile.begin(tmp_path / "a.json")
    file.drop()
    assert kept.read_text() == "{}"
    assert link.is_symlink()
    assert not (tmp_path / ".duologue-4.tmp").exists()
    assert (tmp_path / ".duologue-3.tmp").is_dir()
