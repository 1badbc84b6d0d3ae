"""Files that are complete or absent, abandoned temporary files, and JSON that people write."""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from hypothesis import strategies as st

from duologue.graphs import AnswerError, ApprovalQuestion, ToolQuestion
from duologue.graphs.common import files
from duologue.graphs.common.files import NewFile, parse_json, remove_abandoned_files, write_file
from duologue.graphs.rules.questions import read_answer
from support.cases import drawn_cases

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


# Parsing of JSON that clients and people write.


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\\n\u00e9[{,:\U0001f600'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\a'), inner),
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@drawn_cases(
    *(25, 200),
    value=JSON,
    is_ascii=st.booleans(),
    indent=st.sampled_from((None, 2)),
    is_text=st.booleans(),
)
def test_json_is_read_as_the_standard_library_reads_it(
    value: object, is_ascii: bool, indent: int | None, is_text: bool
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    assert parse_json(text if is_text else text.encode()) == json.loads(text)


@drawn_cases(25, 200, value=JSON, most=st.integers(0, 60))
def test_only_bytes_outside_strings_count(value: object, most: int) -> None:
    text = json.dumps(value)
    # Strings count by their quotation marks alone.
    outside, marks = len(_STRING.sub("", text)), 2 * len(_STRING.findall(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_MOST_OUTSIDE", most)
        if max(outside, marks) <= most:
            assert parse_json(text) == value
        else:
            with pytest.raises(ValueError, match=f"more than {most} bytes outside its strings"):
                parse_json(text)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 30_000 + "1" + "}" * 30_000])
def test_deep_json_of_a_person_is_no_answer_and_no_crash(deep: str) -> None:
    approval = ApprovalQuestion(action_requests=(), review_configs=(), id="q")
    with pytest.raises(AnswerError, match="the answer is not JSON"):
        approval.read(deep)
    assert ToolQuestion(value=1, id="q").read(deep) == deep
    assert read_answer(deep) == deep
