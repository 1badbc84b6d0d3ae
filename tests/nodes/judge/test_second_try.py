"""R17: a judge's answer has a token limit and one retry, and the judge knows the task."""

from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import Result, Session, converse, load_conversation
from duologue.nodes.testing import Line, Prompt, Script, ScriptedChatModel
from support.log import fields_of, rejections
from support.prompts import PROMPTS
from support.results import reason_of

FORMS: dict[str, tuple[dict[str, Any], Line, Line]] = {
    "structured": (
        {"form": "structured"},
        "Hm.",
        {"objectives_left": [], "complete": True},
    ),
    "separate": (
        {"criteria": ["They agree."], "form": "structured"},
        {"criterion_1": "nearly"},
        {"criterion_1": "met"},
    ),
    "lines": ({"criteria": ["They agree."], "form": "lines"}, "All is well.", "1: met"),
    "two_questions": ({"form": "two_questions"}, "I do not know.", "Yes, it is."),
}


def play(judge: dict[str, Any], script: Script, **fields: Any) -> tuple[Result, Any]:
    ann = {"name": "Ann", "checks_completion": True, "task": "Agree on a price."} | fields.pop(
        "ann", {}
    )
    spec: dict[str, Any] = {
        "task": "Plan.",
        "speakers": [ann, {"name": "Bob", "task": "Sell."}],
        "judge": judge,
        "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 2},
    }
    spec["end_chat"] |= {"allow_unanswered_end": True} | fields.pop("end_chat", {})
    model = fields.pop("kind", ScriptedChatModel)(script=script)
    options = {"store": fields.pop("store", f"memory:{uuid4().hex}")}
    options |= {"session": fields.pop("session")} if "session" in fields else {}
    result = converse(load_conversation(spec | fields), model=model, **options)
    assert callable(script) or len(model.calls) == len(script)
    return result, model


def verdicts(result: Result) -> list[bool]:
    found = (fields_of(message).verdict for message in result.messages)
    return [verdict.readable for verdict in found if verdict is not None]


def before(name: str) -> list[Line]:
    """Return the replies that come before the request for a verdict."""
    return ["Forty.", "Nothing."] if name == "two_questions" else ["Forty."]


@pytest.mark.parametrize("name", FORMS)
def test_r17_a_verdict_that_cannot_be_read_is_asked_for_once_more(name: str) -> None:
    judge, bad, good = FORMS[name]
    result, model = play(judge, [*before(name), bad, good])
    assert reason_of(result) == "completed"
    assert verdicts(result) == [True]
    first, second = (call.messages[-1].text for call in model.calls[-2:])
    assert second == PROMPTS["retry_format"].replace("{question}", first)
    assert model.calls[-2].messages[:-1] == model.calls[-1].messages[:-1]
    assert rejections(result) == ["This is not a readable verdict."]
    # The verdict that was read ended it, not the one before.
    assert [cause.kind.value for cause in result.why()] == ["verdict", "reason"]


@pytest.mark.part(2)
@pytest.mark.parametrize("name", FORMS)
def test_r17_only_verdicts_that_stay_unreadable_count(name: str) -> None:
    judge, bad, _ = FORMS[name]
    guards = {"unreadable_verdicts": 2}
    end = {"mode": "end_chat_after_first_completion", "max_iterations": 3, "guards": guards}
    once = [*before(name)[1:], bad, bad]
    script = ["Forty.", *once, "Fifty is my price.", "Forty-five it is.", *once]
    result, _ = play(judge, script, end_chat=end)
    assert reason_of(result) == "unreadable_verdicts"
    assert verdicts(result) == [False, False]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", FORMS)
def test_r17_a_kill_between_the_tries_repeats_nothing(name: str) -> None:
    judge, bad, good = FORMS[name]
    store = f"memory:{uuid4().hex}"
    with pytest.raises(RuntimeError, match="killed"):
        play(judge, [*before(name), bad, RuntimeError("killed")], store=store, session="s")
    result, model = resumed(store, [good])
    assert reason_of(result) == "completed"
    assert "could not be read" in model.calls[0].messages[-1].text


def resumed(store: str, script: list[Line]) -> tuple[Result, ScriptedChatModel]:
    model = ScriptedChatModel(script=script)
    return Session("s", store=store).resume(model=model), model


class Limited(ScriptedChatModel):
    """A model that declares a token limit."""

    max_tokens: int | None = None


@pytest.mark.parametrize("name", ["lines", "two_questions"])
def test_r17_a_judges_answer_has_a_limit(name: str) -> None:
    judge, bad, good = FORMS[name]
    _, model = play(judge, [*before(name), bad, good], kind=Limited)
    assert model.calls[0].kwargs.get("max_tokens") is None
    first, second = (call.kwargs["max_tokens"] for call in model.calls[-2:])
    assert 0 < first <= 500 < second <= 5000


@pytest.mark.part(1)
@pytest.mark.parametrize("name", FORMS)
def test_r17_the_specs_own_limit_wins(name: str) -> None:
    judge, bad, good = FORMS[name]
    _, model = play({**judge, "max_tokens": 77}, [*before(name), bad, good])
    asked = [call.kwargs.get("max_tokens") for call in model.calls]
    assert asked[0] is None
    assert set(asked[1:]) == {77}


def test_r17_of_a_long_list_the_first_objectives_are_kept() -> None:
    many = [f"in the rain {n}" for n in range(40)]
    script: list[Line] = ["Forty.", {"objectives_left": many, "complete": False}, "Fifty."]
    end = {"mode": "end_chat_after_first_completion", "max_iterations": 1}
    result, model = play({"form": "structured"}, script, end_chat=end)
    (verdict,) = [v for v in (fields_of(m).verdict for m in result.messages) if v is not None]
    assert verdict.readable
    assert list(verdict.objectives_left) == many[:5]
    assert model.calls[1].schema["properties"]["objectives_left"]["maxItems"] == 5


@pytest.mark.part(1)
@pytest.mark.parametrize("name", ["structured", "two_questions"])
def test_r17_a_speaker_judges_by_its_task_however_short_its_context(name: str) -> None:
    judge, _, good = FORMS[name]
    task, asked = "Agree on a price.", []

    def reply(prompt: Prompt) -> Line:
        text = str(prompt[-1]["content"])
        if PROMPTS["list_objectives_left"] in text:
            asked.append(prompt)
            return "A price is left."
        if PROMPTS["judge_own_task"] in text:
            asked.append(prompt)
        elif PROMPTS["is_task_complete"] not in text:
            return f"What would you say to {len(str(prompt))} then?"
        no = {"objectives_left": ["All."], "complete": False}
        return good if len(asked) == 5 else "No." if name == "two_questions" else no

    # After a fork, the new task is a message of the log, between the rounds.
    for limit in (50, 1):
        asked.clear()
        store = f"memory:{uuid4().hex}"
        ann = {"task": "Rest.", "context": {"kind": "last", "limit": limit}}
        end = {"mode": "end_chat_after_first_completion", "max_iterations": 1}
        opening = {"answers": True}
        play(judge, reply, ann=ann, opening=opening, end_chat=end, store=store, session="one")
        new = (
            Session("one", store=store)
            .fork(speakers={"Ann": {"task": task}}, end_chat={"max_iterations": 5})
            .id
        )
        Session(new, store=store).resume(model=ScriptedChatModel(script=reply))
        assert len(asked) == 5
        contents = [str(message["content"]) for message in asked[-1]]
        assert any(task in text for text in contents)
