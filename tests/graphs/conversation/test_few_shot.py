"""Examples as data: their speakers, their order, and invalid examples (L4)."""

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from duologue.graphs import SpecError, converse
from support.shape_help import never, play, talk

ASKED = {"role": "user", "content": "Is it late?"}
ANSWERED = {"role": "assistant", "content": "It is\n\nlate."}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param([ASKED, ANSWERED], id="L4-dicts"),
        pytest.param([("user", "Is it late?"), ("ai", "It is\n\nlate.")], id="L4-pairs"),
        pytest.param(["Is it late?", ANSWERED], id="L4-text"),
        pytest.param([HumanMessage("Is it late?"), AIMessage("It is\n\nlate.")], id="messages"),
        pytest.param(
            [
                HumanMessageChunk(content="Is it late?"),
                AIMessageChunk(content=[{"type": "text", "text": "It is\n\nlate."}]),
            ],
            id="L4-chunks-and-blocks",
        ),
    ],
)
def test_examples_are_given_as_data_or_as_langchains_messages(pair: list[Any]) -> None:
    """L4: each example stays a separate message and keeps its blank lines."""
    spec = talk({"name": "Ann", "examples": pair}, "Bob")
    assert spec.speakers[0].model_dump()["examples"] == (ASKED, ANSWERED)
    _, model = play(spec, ["One.", "Two."])
    assert [message.text for message in model.calls[0].messages[1:3]] == [
        *("Is it late?", "It is\n\nlate."),
    ]


LAST = "the last message must be the assistant's; add the speaker's answer"
CALLED = AIMessage("So.", tool_calls=[ToolCall(name="look", args={}, id="c1")])
SEEN = HumanMessage([{"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}])


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ([ASKED], f": {LAST}"),
        ([ASKED, ANSWERED, ASKED], f": {LAST}"),
        ([ASKED, CALLED], f": {LAST}"),
        ([ANSWERED], ": the first message must be the user's"),
        ([{"role": "system", "content": "Be brief."}], ".0: must be a message of the user"),
        (
            [SystemMessage("Be brief.")],
            ".0: must be a message of the user, the assistant or a tool",
        ),
        ([ChatMessage(role="user", content="Hm?")], ".0: must be a message of the user"),
        (
            [SEEN, ANSWERED],
            ".0: content.0: an address is not opened here; send the bytes",
        ),
        ([{"role": "user", "content": " \n"}, ANSWERED], ".0: the content must not be empty"),
        ([HumanMessage(""), ANSWERED], ".0: the content must not be empty"),
        (ASKED, ": input should be a list, not dict"),
        (None, ": input should be a list, not None"),
    ],
)
def test_examples_that_show_no_answer_are_refused_before_any_call(
    examples: Any,  # noqa: ANN401
    words: str,
) -> None:
    """L4: invalid examples are refused in one sentence that names the field."""
    spec = {"task": "x", "speakers": [{"name": "Ann"}, {"name": "Bob", "examples": examples}]}
    with pytest.raises(SpecError) as caught:
        converse(spec, model=never(), store="memory:")
    assert str(caught.value).startswith(f"speakers.1.examples{words}")
    assert "\n" not in str(caught.value)


def test_an_example_may_call_tools() -> None:
    shots = [ASKED, CALLED, ToolMessage("3", tool_call_id="c1"), ANSWERED]
    spec = talk({"name": "Ann", "examples": shots}, "Bob")
    _, model = play(spec, ["One.", "Two."])
    shown = model.calls[0].messages[1:5]
    assert [message.type for message in shown] == ["human", "ai", "tool", "ai"]
    assert isinstance(shown[1], AIMessage)
    assert isinstance(shown[2], ToolMessage)
    assert shown[1].tool_calls[0]["id"] == shown[2].tool_call_id
