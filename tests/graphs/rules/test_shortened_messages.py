"""Prompts that are shortened to a limit: pairs, order, and equal texts in a growing prompt."""

from collections.abc import Sequence

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from duologue.graphs.rules.history import shorten_messages
from duologue.graphs.text.words import tokens_of_message
from support.cases import drawn_cases
from support.prompts import PROMPTS, fill

MARK = PROMPTS["left_out"].partition("}")[2]

TEXTS = st.builds(
    lambda word, times: word * times,
    st.sampled_from(["word ", "今天天气", "é", "🎲", '{"a": 1}, ', "x"]),
    st.integers(0, 3000),
)


@st.composite
def long_prompts(draw: st.DrawFn) -> list[BaseMessage]:
    """Draw a prompt of some turns with calls."""
    found: list[BaseMessage] = [SystemMessage("Rules.")]
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        found.append(HumanMessage(draw(TEXTS)))
        for _ in range(draw(st.integers(0, 3))):
            made = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                args = {"text": draw(TEXTS), "rows": [*range(draw(st.integers(0, 400)))]}
                made.append(tool_call(name="look", args=args, id=f"c{number}"))
            kwargs = {"signature": f"s{number}"}
            found.append(AIMessage("", tool_calls=made, additional_kwargs=kwargs))
            found += [ToolMessage(draw(TEXTS), tool_call_id=str(one["id"])) for one in made]
        found.append(AIMessage(draw(TEXTS)))
    return found[:-1]


def shorten(prompt: Sequence[BaseMessage], limit: int) -> list[BaseMessage]:
    """Shorten a prompt to a number of tokens."""

    def render_prompt(prompt: str, **values: object) -> str:
        return fill(prompt, **values)

    return shorten_messages(prompt, limit, render_prompt)


def tokens(prompt: Sequence[BaseMessage]) -> int:
    return sum(map(tokens_of_message, prompt))


@drawn_cases(30, 400, drawn=long_prompts(), limit=st.integers(100, 20_000))
def test_any_prompt_fits_if_it_can_and_keeps_its_form(drawn: list[BaseMessage], limit: int) -> None:
    """R28: only texts change; calls and results stay pairs, and other fields stay as they are."""
    found = shorten(drawn, limit)
    assert found == shorten(drawn, limit)
    if tokens(drawn) <= limit:
        assert found == drawn
    # A message that cannot be shortened further has a mark for each part, and its form.
    assert tokens(found) <= max(limit, 200 * len(drawn))
    assert tokens(found) <= tokens(drawn)
    assert [one.type for one in found] == [one.type for one in drawn]
    for before, after in zip(drawn, found, strict=True):
        assert before.additional_kwargs == after.additional_kwargs
        assert len(after.text) <= len(before.text)
        if after.text != before.text:
            assert MARK in after.text
        if isinstance(before, AIMessage) and isinstance(after, AIMessage):
            assert [one["id"] for one in after.tool_calls] == [
                one["id"] for one in before.tool_calls
            ]
            assert [[*one["args"]] for one in after.tool_calls] == [
                [*one["args"]] for one in before.tool_calls
            ]
        if isinstance(before, ToolMessage) and isinstance(after, ToolMessage):
            assert after.tool_call_id == before.tool_call_id


def test_results_are_shortened_before_other_messages_and_the_oldest_first() -> None:
    """R28: of equally long messages, the newest are whole for longest."""
    long = "line of text " * 100
    call = tool_call(name="look", args={}, id="c1")
    later = tool_call(name="look", args={}, id="c2")
    prompt = [
        SystemMessage("Rules."),
        HumanMessage(long),
        AIMessage("", tool_calls=[call]),
        ToolMessage(long, tool_call_id="c1"),
        AIMessage("", tool_calls=[later]),
        ToolMessage(long, tool_call_id="c2"),
    ]
    shortened: list[list[int]] = []
    for limit in range(tokens(prompt), 400, -20):
        found = shorten(prompt, limit)
        assert tokens(found) <= limit
        shortened.append([at for at, one in enumerate(found) if MARK in one.text])
    distinct = [one for at, one in enumerate(shortened) if at == 0 or one != shortened[at - 1]]
    assert distinct == [[], [3], [3, 5], [1, 3, 5]]


def test_a_shortened_message_has_at_most_half_of_the_limit_with_its_mark() -> None:
    """R28: the number of characters left out is part of the shortened text."""
    rules, long = SystemMessage("Rules."), HumanMessage("line of text " * 1000)
    for limit in (400, 1000, 3000):
        _, found = shorten([rules, long], limit)
        assert MARK in found.text
        assert tokens([found]) <= (limit - tokens([rules])) // 2
