"""The files of a suite for continuous integration, which the command writes."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from duologue.nodes.testing import Prompt
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import duologue, isolate

HOSTILE = "\x1b[31m<b>@octocat</b> #1 ]]> & |\x00\u202e\ufffe😀"

MODULE = f"""
HOSTILE = {HOSTILE!r}

def good(_):
    return HOSTILE

def fail(_):
    raise AssertionError(HOSTILE)

def broken(_):
    raise KeyError(HOSTILE)
"""

SUITE = """
personas = {"<&>" = "Calm."}
[scenarios.0]
goal = "x"
[scenarios.1]
goal = "x"
checks = ["ci_shop:fail"]
[scenarios.2]
goal = "x"
checks = ["ci_shop:broken"]
"""


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Write the files of a suite, and serve its simulated user."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("ci_shop.py").write_text(MODULE, encoding="utf-8")
    Path("ci.toml").write_text(SUITE, encoding="utf-8")

    def write(prompt: Prompt) -> str:
        return "###STOP###" if any(one["role"] == "assistant" for one in prompt) else "Ä\x07."

    with ScriptedServer(write) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        yield


def run(agent: str) -> tuple[ET.Element, str]:
    """Return the file of JUnit and the comment that a run with an agent writes."""
    files = ("--junit", f"{agent}.xml", "--markdown", f"{agent}.md")
    ran = duologue("simulate", "ci.toml", "--agent", f"ci_shop:{agent}", "--name", agent, *files)
    assert ran.exit_code in (1, 6), ran.output
    xml = Path(f"{agent}.xml").read_bytes()
    assert xml.startswith(b'<?xml version="1.0" encoding="utf-8"?>')
    return ET.fromstring(xml), Path(f"{agent}.md").read_text("utf-8")  # noqa: S314  # made here


def test_the_files_are_valid_whatever_the_texts_and_the_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "cp1252")
    monkeypatch.setattr("locale.getencoding", lambda: "cp1252", raising=False)
    whole, comment = run("good")
    failure = whole.find(".//failure")
    assert failure is not None
    assert "<b>@octocat</b> #1 ]]> & |" in str(failure.get("message"))
    failed = whole.findtext(".//testcase[failure]/system-out") or ""
    assert "Ä\\x07." in failed
    assert "#1 ]]> & |?\\u202e\ufffd😀" in failed
    assert "\\<b\\>@<!-- -->octocat\\</b\\> \\#1 \\]\\]" in comment
    assert not [one for one in "\x1b\x00\u202e" if one in comment]


def test_junit_has_the_outcomes_and_the_attributes_of_the_schema_of_jenkins() -> None:
    found: dict[str, set[tuple[str, ...]]] = {}
    outcomes: list[list[str]] = []
    for agent, counts in (("good", ["3", "1", "0", "1"]), ("broken", ["3", "0", "3", "0"])):
        whole, comment = run(agent)
        for one in whole.iter():
            found.setdefault(one.tag, set()).add(tuple(sorted(one.attrib)))
        outcomes += ([part.tag for part in case] for case in whole[0])
        names = ("tests", "failures", "errors", "skipped")
        assert [whole[0].get(one) for one in names] == counts
    assert comment.startswith("### ❌ broken: 0 passed, 3 error")
    # An inconclusive simulation is skipped.
    kinds = [[], ["failure"], ["skipped"], *[["error"]] * 3]
    assert outcomes == [[*kind, "system-out"] for kind in kinds]
    # junit-10.xsd of Jenkins' plugin xunit accepts no other attribute of these elements.
    counted = ("errors", "failures", "name")
    assert found == {
        "testsuites": {(*counted, "tests")},
        "testsuite": {(*counted, "skipped", "tests")},
        "testcase": {("classname", "name")},
        "failure": {("message", "type")},
        "error": {("message", "type")},
        "skipped": {("message", "type")},
        "system-out": {()},
    }
