"""Approvals that are answered with text, and names of files whose letters are not ASCII."""

import pytest

from duologue import AnswerError, Result, chat, converse
from duologue.graphs.common.settings import load_settings
from duologue.graphs.conversation.served import name_graph
from duologue.nodes.testing import Reply, ScriptedChatModel


def _ask(answer: object) -> Result:
    def look() -> str:
        """Look."""
        return "Seen."

    call = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    assistant = {"tools": [look], "interrupt_on": {"look": True}}
    spec = chat("Hi.", assistant=assistant, end_chat={"max_iterations": 1})
    result = converse(spec, model=ScriptedChatModel(script=[call]), store="memory:")
    model = ScriptedChatModel(script=["Done."])
    return result.session.answer(answer, tools=[look], model=model)


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        ('{"type": "approve"}', "Seen."),
        ('{"decisions": [{"type": "approve"}]}', "Seen."),
        ('[{"type": "approve"}]', "Seen."),
        ({"type": "approve"}, "Seen."),
        (" Yes ", "Seen."),
        ("no", "A person rejected the call"),
        ('{"type": "reject", "message": "Not now."}', "Not now."),
    ],
)
def test_text_answers_an_approval(answer: object, heard: str) -> None:
    """JSON as text, a single decision and a word are read as decisions."""
    assert heard in _ask(answer).messages[-2].text


@pytest.mark.parametrize("answer", ["maybe", '{"x": 1}', "7"])
def test_other_text_does_not_answer_an_approval(answer: str) -> None:
    """The question stays open."""
    with pytest.raises(AnswerError, match="stays open"):
        _ask(answer)


def test_each_file_has_a_name_of_its_own() -> None:
    """Files whose letters a tool's name can't contain do not get the title as their name."""
    spec = chat("Hi.", title="Plan")
    files = ["plan.toml", "计划.toml", "计画.toml", "план.toml", "plan_计划.toml"]
    names = [name_graph(spec, file, "conversation") for file in files]
    assert names[0] == "plan"
    assert len({*names}) == len(files)
    assert all(name.isascii() and len(name) <= 64 for name in names)
    assert name_graph(spec, "résumé.toml", "conversation") == "resume"


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_variable_counts_as_not_set(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings have their defaults."""
    for name in ("OPENAI_BASE_URL", "DUOLOGUE_STORE", "DUOLOGUE_TIMEOUT", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, blank)
    settings = load_settings()
    assert (settings.base_url, settings.store, settings.api_key) == (None, None, None)
