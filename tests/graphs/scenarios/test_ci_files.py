"""The files of a suite for continuous integration."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from duologue.graphs.scenarios import run_suite
from duologue.graphs.scenarios.ci_files import describe_junit, describe_markdown
from support.agents import requesting

HOSTILE = "\x1b[31m<b>@octocat</b> #1 ]]> & |\x00\u202e\ufffe😀"


def fail(_: object) -> Any:  # noqa: ANN401  # an agent or a check
    raise AssertionError(HOSTILE)


def test_the_files_are_valid_whatever_the_texts_and_the_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "cp1252")
    monkeypatch.setattr("locale.getencoding", lambda: "cp1252", raising=False)
    suite = {"scenarios": {"a": {"goal": "x", "checks": [fail]}}}
    model = requesting("Ä\x07.")
    report = run_suite(suite, lambda _: HOSTILE, name="ci", model=model, store="memory:ci")
    text = describe_junit(report)
    assert text.startswith('<?xml version="1.0" encoding="utf-8"?>')
    (suite_element,) = ET.fromstring(text.encode())  # noqa: S314  # made by this test
    failure = suite_element.find(".//failure")
    assert failure is not None
    assert "<b>@octocat</b> #1 ]]> & |" in str(failure.get("message"))
    said = suite_element.findtext(".//system-out") or ""
    assert "Ä\\x07." in said
    assert "#1 ]]> & |?\\u202e\ufffd😀" in said
    comment = describe_markdown(report)
    assert "\\<b\\>@<!-- -->octocat\\</b\\> \\#1 \\]\\]" in comment
    assert not [one for one in "\x1b\x00\u202e" if one in comment]


def test_junit_has_the_outcomes_and_the_attributes_of_the_schema_of_jenkins() -> None:
    found: dict[str, set[tuple[str, ...]]] = {}
    outcomes: list[list[str]] = []

    def broken(_: object) -> str:
        raise KeyError(HOSTILE)

    for name, agent, checks in (
        ("good", lambda _: "Yes.", [[], [fail], [broken]]),
        ("bad", broken, [[]]),
    ):
        scenarios = {f"{number}": {"goal": "x", "checks": own} for number, own in enumerate(checks)}
        suite = {"scenarios": scenarios, "personas": {"<&>": "Calm."}}
        report = run_suite(suite, agent, name=name, model=requesting(), store="memory:junit")
        whole = ET.fromstring(describe_junit(report).encode())  # noqa: S314  # made by this test
        for one in whole.iter():
            found.setdefault(one.tag, set()).add(tuple(sorted(one.attrib)))
        outcomes += ([part.tag for part in case] for case in whole[0])
        names = ("tests", "failures", "errors", "skipped")
        counts = ["3", "1", "0", "1"] if name == "good" else ["1", "0", "1", "0"]
        assert [whole[0].get(one) for one in names] == counts
    assert describe_markdown(report).startswith("### ❌ bad: 0 passed, 1 error")
    # An inconclusive simulation is skipped.
    kinds = [[], ["failure"], ["skipped"], ["error"]]
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
