"""Examples as data: whose they are, in which order, and what can't be shown (L4, issue 4)."""

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

from duologue.graphs import Example, SpecError, converse

from .shape_help import never, play, talk

ASKED = {"role": "user", "content": "Is it late?"}
ANSWERED = {"role": "assistant", "content": "It is\n\nlate."}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param([ASKED, ANSWERED], id="L4-dicts"),
        pytest.param([Example.model_validate(one) for one in (ASKED, ANSWERED)], id="L4-objects"),
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
    """L4: each stays a message of its own, its blank lines with it."""
    spec = talk({"name": "Ann", "examples": pair}, "Bob")
    assert [one.model_dump() for one in spec.speakers[0].examples] == [ASKED, ANSWERED]
    _, model = play(spec, ["One.", "Two."])
    assert [message.text for message in model.calls[0].messages[1:3]] == [
        *("Is it late?", "It is\n\nlate."),
    ]


LAST = "the last one must be the assistant's: add how the speaker answers"
CALLED = AIMessage("So.", tool_calls=[ToolCall(name="look", args={}, id="c1")])
SEEN = HumanMessage([{"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}])


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ([ASKED], f": {LAST}"),
        ([ASKED, ANSWERED, ASKED], f": {LAST}"),
        ([ANSWERED], ": number 1 must be the user's: they alternate, and the user begins"),
        ([ASKED, ASKED], ": number 2 must be the assistant's: they alternate"),
        ([ASKED, ANSWERED, ANSWERED], ": number 3 must be the user's: they alternate"),
        (
            [{"role": "system", "content": "Be brief."}],
            ".0.role: input should be 'user' or 'assistant', not 'system'",
        ),
        ([SystemMessage("Be brief.")], ".0.role: input should be 'user' or 'assistant', not 'sys"),
        (
            [ASKED, ToolMessage("3", tool_call_id="c1")],
            ".1.role: input should be 'user' or 'assistant', not 'tool'",
        ),
        (
            [ChatMessage(role="user", content="Hm?")],
            ".0.role: input should be 'user' or 'assistant'",
        ),
        ([ASKED, CALLED], ".1: calls of tools can't be shown: give what is said alone"),
        ([SEEN, ANSWERED], ".0: only text can be shown: leave out images and the like"),
        ([{"role": "user", "content": " \n"}, ANSWERED], ".0.content: must not be empty"),
        ([HumanMessage(""), ANSWERED], ".0.content: must not be empty"),
        (["Is it late?"], ".0: must be a table or a dict with fields of Example, not 'Is"),
        (
            [("user", "Hm?")],
            ".0: must be a table or a dict with fields of Example, not tu",
        ),
        (ASKED, ": input should be a list, not dict"),
        (None, ": input should be a list, not None"),
    ],
)
def test_examples_that_show_no_answer_are_refused_before_any_call(
    examples: Any,  # noqa: ANN401
    words: str,
) -> None:
    """L4: one sentence that names the field; nothing of what was given is left out in silence."""
    spec = {"task": "x", "speakers": [{"name": "Ann"}, {"name": "Bob", "examples": examples}]}
    with pytest.raises(SpecError) as caught:
        converse(spec, model=never(), store="memory:")
    assert str(caught.value).startswith(f"speakers.1.examples{words}")
    assert "\n" not in str(caught.value)
