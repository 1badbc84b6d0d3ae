"""Characters that a database refuses: one rule for all stores."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from duologue import (
    Result,
    Session,
    SpecError,
    chat,
    converse,
    list_sessions,
    load_session,
    remember,
    role_play,
    run_batch,
)
from duologue.nodes.testing import Reply, ScriptedChatModel
from support.stores import EACH_STORE, store_address

GARDEN = role_play("Plan a garden", "Cook", "Gardener", specify_task=False)
SCRIPT = ["Instruction: Dig.\nInput: None", "Solution: Dug.\nNext request.", "<CAMEL_TASK_DONE>"]
SHORT = {"max_iterations": 1}


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


@pytest.fixture(params=["\0", "\ud800"], ids=["null", "half"])
def bad(request: pytest.FixtureRequest) -> str:
    return f"a{request.param}b"


def _model(*lines: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*(lines or SCRIPT)])


def _run(store: str, **changes: Any) -> Result:
    return converse(GARDEN.replace(**changes), model=_model(), store=store)


def _batch(store: str, field: str, bad: str) -> object:
    fields = {"kind": "chat", "message": "Hi", "end_chat": SHORT}
    return run_batch({"conversation": fields, "vary": {field: [bad]}}, name="b", store=store)


def _load(store: str, bad: str) -> Session:
    dump = _run(store).session.dump()
    dump["spec"]["title"] = bad
    return load_session(dump, into="loaded", store=store)


REFUSED: dict[str, Callable[[str, str], object]] = {
    "task": lambda store, bad: converse(role_play(bad, "A", "B"), model=_model(), store=store),
    "message": lambda store, bad: converse(chat(bad), model=_model(), store=store),
    "title": lambda store, bad: _run(store, title=bad),
    "speakers.Cook.system_prompt": lambda store, bad: _run(
        store, speakers={"Cook": {"system_prompt": bad}}
    ),
    "speakers.Cook.memory.0.content": lambda store, bad: _run(
        store, speakers={"Cook": {"memory": [{"role": "user", "content": bad}]}}
    ),
    "task in a fork": lambda store, bad: _run(store).session.fork(at=1, task=bad),
    "spec.title": _load,
    "criteria.0": lambda store, bad: _run(store).session.judge([bad], model=_model()),
    "vary.message.0": lambda store, bad: _batch(store, "message", bad),
    "vary.labels.team.0": lambda store, bad: _batch(store, "labels.team", bad),
    "text": lambda store, bad: list_sessions(store=store, text=bad),
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_with_such_a_character_is_refused(field: str, bad: str, store: str) -> None:
    """The error names the field and the character, before a model is called."""
    name, code = field.partition(" ")[0], f"U+{ord(bad[1]):04X}"
    with pytest.raises(SpecError, match=re.escape(f"{name}: contains {code}, ") + ".*remove it"):
        REFUSED[field](store, bad)


def _by_message(store: str, bad: str) -> Result:
    return converse(chat(end_chat=SHORT), model=_model("Hi."), message=bad, store=store)


def _by_answer(store: str, bad: str) -> Result:
    asked = converse(chat(end_chat=SHORT), model=_model("Hi."), store=store)
    return asked.session.answer(bad, model=_model("Hi."))


def _by_model(store: str, bad: str) -> Result:
    return converse(chat("Hi.", end_chat=SHORT), model=_model(bad), store=store)


def _by_tool(store: str, bad: str) -> Result:
    def look() -> str:
        """Look."""
        return bad

    asks = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    spec = chat("Hi.", tools=[look], end_chat=SHORT)
    return converse(spec, model=_model(asks, "Seen."), store=store)


def _by_memory(store: str, bad: str) -> Result:
    result = _run(store)
    result.session.set_memory("Cook", [HumanMessage(bad), ("assistant", "Yes.")])
    known = remember(result.conversation.speakers[0], result.session.state())
    assert [message.text for message in known.memory] == ["a?b", "Yes."]
    return result.session.add_message("Cook", [bad])


REPLACED = [_by_message, _by_answer, _by_model, _by_tool, _by_memory]


@pytest.mark.parametrize("way", REPLACED, ids=lambda way: way.__name__[1:])
def test_a_question_mark_replaces_it_in_the_log(
    way: Callable[[str, str], Result], bad: str, store: str
) -> None:
    """Text of people, models and tools enters the log without the character."""
    result = way(store, bad)
    assert "a?b" in [message.text for message in result.messages]
    assert result.session.state() == result


def test_a_call_with_such_a_character_is_not_made(bad: str, store: str) -> None:
    """The model reads why, and calls the tool again."""
    heard: list[str] = []

    def look(place: str) -> str:
        """Look."""
        heard.append(place)
        return "Seen."

    calls = [
        Reply(tool_calls=[{"name": "look", "args": {"place": place}, "id": place}])
        for place in (bad, "here")
    ]
    spec = chat("Hi.", tools=[look], end_chat=SHORT)
    converse(spec, model=_model(*calls, "Done."), store=store)
    assert heard == ["here"]
