"""Training examples: each row that an export writes is one that trainers take."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import ToolCall

from drawn.odd_logs import odd_conversation, odd_line
from duologue.graphs import Conversation, load_conversation
from duologue.graphs.session.export_text import TRAINING, examples
from duologue.nodes.testing import Line, Reply, ScriptedToolCall
from duologue.tools.registry.registry import Registry
from support.fork_help import run, weather
from support.fork_talks import TALKS
from support.log import Source, make_line, make_tool_line
from support.results import StoredSession

from .trainers import openai_fault, sharegpt_fault

KNOWN_TOOLS = Registry({"tools": [weather]})
FAULTS = {"openai": openai_fault, "sharegpt": sharegpt_fault}


def handed_over() -> tuple[Conversation, list[Line]]:
    """Return three speakers that hand over with a call next to their text."""
    conversation = load_conversation(
        {
            "task": "Plan.",
            "speakers": [{"name": "Ann", "tools": ["weather"]}, {"name": "Ben"}, {"name": "Cat"}],
            "turn_order": "handoff",
            "end_chat": {"max_iterations": 2},
        }
    )

    def over(to: str, text: str, *more: ScriptedToolCall) -> Reply:
        call = ScriptedToolCall(name="hand_off", args={"to": to, "message": text}, id=f"to-{to}")
        return Reply(tool_calls=(call, *more))

    look = ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")
    lines: list[Line] = [
        Reply(text="I look.", tool_calls=(look,)),
        over("Cat", "Cat first."),
        over("Ann", "Ann again."),
        over("Cat", "Once more."),
        over("Ben", "Ben, too."),
        over("Ann", ""),
        "Done.",
    ]
    return conversation, lines


@pytest.mark.part(3)
@pytest.mark.parametrize("form", TRAINING)
@pytest.mark.parametrize("name", [*TALKS, "handed_over"])
def test_trainers_take_every_example(name: str, form: str) -> None:
    conversation, lines = TALKS.get(name) or handed_over()
    result = run(conversation, lines, store="memory:")
    found = examples(result, registry=KNOWN_TOOLS)
    assert [one.speaker for one in found] == [*conversation.names]
    for one in found:
        row = TRAINING[form](one)
        assert FAULTS[form](row) is None
        # The checks refuse the rows that trainers refuse.
        key = "messages" if form == "openai" else "conversations"
        assert FAULTS[form]({**row, key: row[key][:-1]}) is not None
        assert FAULTS[form]({**row, key: [*row[key], row[key][-1]]}) is not None


def test_an_example_describes_only_the_tools_that_its_format_shows() -> None:
    (first, *_) = examples(run(*handed_over(), store="memory:"), registry=KNOWN_TOOLS)
    names = [one["function"]["name"] for one in first.tools]
    assert names == ["weather", "hand_off"]
    assert [one["name"] for one in json.loads(TRAINING["sharegpt"](first)["tools"])] == ["weather"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_trainers_take_every_example_of_any_log(seed: int) -> None:
    random = Random(seed)  # noqa: S311  # a drawn seed, nothing secret
    conversation = odd_conversation(random)
    log: list[AnyMessage] = []
    for _ in range(random.randint(1, 25)):
        log.append(odd_line(random, conversation.names, log))
    result = StoredSession("s", conversation, log, "Talk.", None)
    for one in (one for name in conversation.names for one in examples(result, name, KNOWN_TOOLS)):
        for form, fault in FAULTS.items():
            assert fault(TRAINING[form](one)) is None


def spoken(number: int, text: str, name: str = "Ann", **line: Any) -> AnyMessage:
    return make_line(number, text, speaker=name, **line)


def made(*log: AnyMessage, **speaker: Any) -> StoredSession:
    speakers = [{"name": "Ann", **speaker}, {"name": "Ben"}]
    conversation = Conversation.model_validate({"task": "Plan", "speakers": speakers})
    return StoredSession("s", conversation, list(log), "Plan", None)


def call(number: int, text: str = "") -> AnyMessage:
    made: list[ToolCall] = [ToolCall(name="weather", args={}, id=f"c{number}", type="tool_call")]
    return make_line(number, text, "tool_calls", speaker="Ann", tool_calls=made)


def turns(result: StoredSession, form: str = "sharegpt") -> list[tuple[str, str]]:
    """Return the turns of Ann's example without its system prompt."""
    (one,) = examples(result, "Ann")
    row = TRAINING[form](one)
    assert FAULTS[form](row) is None
    return [
        (turn.get("from") or turn["role"], turn.get("value") or turn["content"])
        for turn in next(iter(row.values()))[1:]
    ]


def test_what_was_heard_between_a_result_and_the_next_line_stands_with_the_result() -> None:
    """Messages heard after a result are joined to it, since two user turns do not alternate."""
    log = (
        spoken(0, "Hello.", "Ben"),
        call(1),
        make_tool_line(2, "Sun.", speaker="Ann", call_id="c1"),
        spoken(3, "Stop.", "Ben"),
        spoken(4, "Well."),
    )
    assert turns(made(*log))[1:] == [
        ("function_call", '{"name": "weather", "arguments": {}}'),
        ("observation", "Sun.\n\nStop."),
        ("gpt", "Well."),
    ]
    assert [role for role, _ in turns(made(*log), "openai")] == [
        *("user", "assistant", "tool", "user", "assistant")
    ]


def test_an_example_ends_with_a_line_of_its_own() -> None:
    log = (
        spoken(0, "Hello.", "Ben"),
        spoken(1, "Hi."),
        spoken(2, "So?", "Ben"),
        call(3, "Let me see."),
        make_tool_line(4, "Sun.", speaker="Ann", call_id="c3"),
        spoken(5, "Bye.", "Ben"),
    )
    assert turns(made(*log[:3])) == [("human", "Hello."), ("gpt", "Hi.")]
    assert turns(made(*log))[-1][0] == "function_call"
    assert turns(made(*log), "openai")[-1] == ("assistant", "Let me see.")


def test_only_what_a_model_an_agent_or_a_person_gave_is_learned() -> None:
    sources = {Source.MODEL: 1, Source.AGENT: 1, Source.HUMAN: 1, Source.TEXT: 0}
    sources |= {Source.FUNCTION: 0, Source.CODE: 0, Source.HOOK: 0}
    log: list[AnyMessage] = []
    for source in sources:
        log += [spoken(len(log), "And?", "Ben"), spoken(len(log) + 1, source, source=source)]
    shown = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    (one,) = examples(made(*log, examples=shown), "Ann")
    own = [turn for turn in one.messages if turn["role"] == "assistant"]
    weights = {turn["content"]: turn.get("weight", 1) for turn in own}
    assert weights == {"A": 0, **{source.value: weight for source, weight in sources.items()}}
    # Without a speaker's name, only speakers with a model's messages have examples.
    assert [one.speaker for one in examples(made(*log))] == ["Ann", "Ben"]
    assert [one.speaker for one in examples(made(*log[4:]))] == ["Ben"]
    person = made(spoken(0, "And?", "Ben"), spoken(1, "Yes.", source=Source.HUMAN))
    assert [len(examples(person, name)) for name in ("Ann", "Ben")] == [1, 1]
    text = made(spoken(0, "Hello.", source=Source.TEXT))
    assert examples(text, "Ann") == []
