"""Row R9: a coder's fence that is not marked with a language it can run is text."""

import pytest

from duologue.graphs import (
    CodeReply,
    Conversation,
    Reason,
    Session,
    SessionError,
    coder,
    converse,
    user_proxy,
)
from duologue.graphs.conversation.fields import SPEC_VERSION
from duologue.graphs.log.parsing import code_blocks, holds_code
from duologue.nodes.testing import ScriptedChatModel
from support.people_help import play
from support.tables import check_rows, read_rows

MONTY = {"level": "monty"}


def fenced(code: str, label: str = "", fence: str = "```") -> str:
    return f"The answer:\n{fence}{label}\n{code}\n{fence}"


def test_a_last_word_with_another_fence_ends_it() -> None:
    """R9: a fence in another language is text, so the coder ends."""

    def check(text: str) -> None:
        played = play(coder("Count.", sandbox=MONTY), ["```python\nprint(6 * 7)\n```", text])
        assert [name for name, _ in played.transcript] == ["Coder", "Executor", "Coder"]
        assert played.outcome.reason is Reason.NO_CODE_BLOCK

    check_rows([(text,) for text in read_rows(__file__, "fences_that_are_text")], check)


def test_marked_code_runs_beside_other_fences() -> None:
    """R9: only the marked code runs."""

    def check(label: str) -> None:
        text = f"{fenced('x = ?', 'text')}\n{fenced('print(6 * 7)', label)}\n{fenced('2')}"
        played = play(coder("Count.", sandbox=MONTY), [text, "It is 42."])
        assert played.transcript[1] == ("Executor", "Exit code: 0 (it succeeded)\nOutput:\n42")

    labels = ("python", "Py", "python3", "{.python}", "python:main.py")
    check_rows([(label,) for label in labels], check)


def test_a_shell_is_run_where_the_sandbox_has_one() -> None:
    """R9: shell code needs a sandbox with a shell."""
    both, one = coder("Count.").sandbox.languages, coder("Count.", sandbox=MONTY).sandbox.languages
    assert (both, one) == (("python", "shell"), ("python",))
    assert [block.language for block in code_blocks(fenced("ls", "bash"), both)] == ["shell"]
    assert not holds_code(fenced("ls", "bash"), one)
    assert not holds_code(fenced("ls"), both)


def test_a_user_proxy_goes_by_its_own_rule() -> None:
    """R9, A7: unlabelled code is recognized by its content, and another language is an error."""
    proxy = user_proxy("Count.", human_input_mode="NEVER", sandbox=MONTY)
    played = play(proxy, [fenced("print(6 * 7)"), fenced("42", "text"), "TERMINATE"])
    told = [text for name, text in played.transcript if name == "User"]
    assert "Output:\n42" in told[1]
    assert "unknown language 'text'" in told[2]


def before() -> Conversation:
    """Return a coder of the version without the choice of fences."""
    now = coder("Count.", sandbox=MONTY)
    old = now.speakers[0].model_copy(update={"replies": (CodeReply(),)})
    dumped = [old.model_dump(mode="json"), now.speakers[1].model_dump(mode="json")]
    return Conversation.model_validate({**now.stored(), "speakers": dumped})


def test_an_older_session_goes_on_by_its_rule_by_the_same_python() -> None:
    """R9: an older session keeps its rule, by which all fences run."""
    store = "memory:older-coder"
    with pytest.raises(RuntimeError):
        play(before(), [fenced("print(1)"), RuntimeError("stopped")], store=store)
    model = ScriptedChatModel(script=[fenced("print(2)"), "It is 2."])
    now = coder("Count.", sandbox=MONTY)
    result = converse(now, session="s", store=store, model=model)
    assert [text for name, text in result.transcript if name == "Executor"] == [
        "Exit code: 0 (it succeeded)\nOutput:\n1",
        "Exit code: 0 (it succeeded)\nOutput:\n2",
    ]
    other = coder("Count.", sandbox=MONTY, executions=2)
    with pytest.raises(SessionError, match="differs"):
        converse(other, session="s", store=store, model=model)


def test_the_choice_is_stored() -> None:
    """R9: the spec contains the choice."""
    store = "memory:newer-coder"
    with pytest.raises(RuntimeError):
        play(coder("Count.", sandbox=MONTY), [RuntimeError("stopped")], store=store)
    result = Session("s", store=store).resume(model=ScriptedChatModel(script=[fenced("print(1)")]))
    assert result.outcome is not None
    assert result.outcome.reason is Reason.NO_CODE_BLOCK
    assert coder("Count.").stored()["version"] == SPEC_VERSION
    assert coder("Count.").stored()["speakers"][0]["replies"] == [
        {"kind": "code", "fences": "marked"}
    ]
