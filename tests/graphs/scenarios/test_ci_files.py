"""The files of a suite for continuous integration."""

import xml.etree.ElementTree as ET

import pytest

from duologue.graphs.scenarios import run_suite
from duologue.graphs.scenarios.ci_files import describe_junit
from duologue.nodes.testing import ScriptedChatModel


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
