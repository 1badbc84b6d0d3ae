"""The files of a suite for continuous integration."""

import xml.etree.ElementTree as ET

import pytest

from duologue.graphs.scenarios import run_suite
from duologue.graphs.scenarios.ci_files import describe_junit
from duologue.nodes.testing import Prompt, ScriptedChatModel


def test_junit_is_valid_whatever_the_texts_and_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "cp1252")
    monkeypatch.setattr("locale.getencoding", lambda: "cp1252", raising=False)
    suite = {"scenarios": {"a": {"goal": "x", "max_iterations": 1}}}
    model = ScriptedChatModel(["Ä\x07\ufffe."])
    report = run_suite(suite, lambda _: "No\uffff ]]>", name="ci", model=model, store="memory:")
    text = describe_junit(report)
    assert text.startswith('<?xml version="1.0" encoding="utf-8"?>')
    said = ET.fromstring(text.encode()).findtext(".//system-out")  # noqa: S314  # made by this test
    assert said is not None
    assert "Ä\\x07\ufffd." in said
    assert "No\ufffd ]]>" in said


def test_junit_has_the_attributes_of_the_schema_of_jenkins() -> None:
    def broken(_: object) -> str:
        raise KeyError("😀\x00 ]]>")

    def unmet(_: object) -> None:
        raise AssertionError("]]> " * 9_000)

    def user(prompt: Prompt) -> str:
        is_first = not any(one["role"] == "assistant" for one in prompt)
        return "Hello.\x1b" if is_first else "###STOP###"

    found: dict[str, set[tuple[str, ...]]] = {}
    for name, agent, checks in (
        ("good", lambda _: "Yes \ufffe.", [[], [unmet], [broken]]),
        ("bad", broken, [[]]),
    ):
        scenarios = {f"{number}": {"goal": "x", "checks": own} for number, own in enumerate(checks)}
        suite = {"scenarios": scenarios, "personas": {"<&>": "Calm."}}
        model = ScriptedChatModel(user)
        report = run_suite(suite, agent, name=name, model=model, store="memory:junit")
        for one in ET.fromstring(describe_junit(report).encode()).iter():  # noqa: S314
            found.setdefault(one.tag, set()).add(tuple(sorted(one.attrib)))
    # junit-10.xsd of Jenkins' plugin xunit accepts no other attribute of these elements.
    counts = ("errors", "failures", "name")
    assert found == {
        "testsuites": {(*counts, "tests")},
        "testsuite": {(*counts, "skipped", "tests")},
        "testcase": {("classname", "name")},
        "failure": {("message", "type")},
        "error": {("message", "type")},
        "skipped": {("message", "type")},
        "system-out": {()},
    }
