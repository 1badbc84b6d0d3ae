"""Turns that are larger than the model's context: their messages are shortened in the prompt."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any, Final
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from drawn.player import too_long
from duologue.graphs import (
    ContextTooLongError,
    Conversation,
    Reason,
    Result,
    Session,
    converse,
    load_conversation,
)
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.prompts import PROMPTS
from support.results import outcome_of

MARK: Final = PROMPTS["left_out"].partition("}")[2]
TOKENS_OF_IMAGE: Final = 1000
LIMIT: Final = 4000
"""The tokens that the models accept, of four characters or one Chinese character each."""


def size_of(prompt: Prompt) -> int:
    """Return the tokens of a prompt as its model counts them."""
    found = 0
    for one in prompt:
        content = one["content"]
        if not isinstance(content, str):
            texts = [part["text"] for part in content if "text" in part]
            found += TOKENS_OF_IMAGE * (len(content) - len(texts))
            content = "".join(texts)
        text = content + json.dumps(one.get("tool_calls", ""), ensure_ascii=False)
        found += sum(1 if sign > "\u3000" else 0.25 for sign in text).__ceil__()
    return found


class Narrow:
    """A model with a small context, which calls the tools in each of its turns and then answers."""

    def __init__(self, *rounds: Sequence[str], names_limit: bool = True, **args: Any) -> None:
        self.rounds, self.args, self.names_limit = rounds, args, names_limit
        self.accepted: list[Prompt] = []
        self.refused: list[int] = []
        self._ids = count()

    def __call__(self, prompt: Prompt) -> Line:
        """Refuse a prompt that is too long, or call the next tools, or answer."""
        size = size_of(prompt)
        if size > LIMIT:
            self.refused.append(size)
            if self.names_limit:
                return too_long(size, LIMIT)
            body = {"error": {"message": "input is too long", "code": "context_length_exceeded"}}
            return Reply(error=400, body=body)
        self.accepted.append(prompt)
        heard = max((at for at, one in enumerate(prompt) if one["role"] == "user"), default=0)
        made = sum(bool(one.get("tool_calls")) for one in prompt[heard:])
        if "Ann" in str(prompt[0]["content"])[:40] and made < len(self.rounds):
            calls = [
                ScriptedToolCall(name=name, args=self.args, id=f"c{next(self._ids)}")
                for name in self.rounds[made]
            ]
            return Reply(tool_calls=calls)
        return f"Answer {len(self.accepted)}: {uuid4().hex}."


def returning(name: str, *results: Any) -> BaseTool:
    """Return a tool with these results, of which the last is repeated."""
    left = [*results]

    def run(text: str = "") -> Any:  # noqa: ANN401
        return left.pop(0) if len(left) > 1 else left[0]

    return tool(name, description="Look.")(run)


def say(tokens: int, word: str = "A line of the report. ") -> str:
    """Return a text of about this many tokens."""
    return f"Begin. {word * (tokens * 4 // len(word))}The end."


IMAGE: Final = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
RESULTS: Final[dict[str, tuple[Any, Sequence[Sequence[str]]]]] = {
    "one large result": (say(10_000), [["look"]]),
    "five results in turn": (say(1_500), [["look"]] * 5),
    "twelve calls at once": (say(600), [["look"] * 12]),
    "twelve calls in turn": (say(600), [["look"]] * 12),
    "a Chinese text": ("开始。" + "这是一份很长的报告。" * 1_000 + "结束。", [["look"]] * 2),
    "JSON": ({"rows": [{"id": n, "name": f"name {n}"} for n in range(3_000)]}, [["look"]]),
    "images": ([{"type": "text", "text": "A bee."}, *[IMAGE] * 6], [["look"]] * 2),
    "a long line": ("x" * 60_000, [["look"]] * 2),
}
CONTEXTS: Final[dict[str, Any]] = {
    "none": None,
    "last": {"kind": "last", "limit": 4},
    "tokens": {"kind": "tokens", "limit": 3000},
    "summary": {"kind": "summary", "limit": 3000, "words": 50},
}


def talk(rounds: int = 2, **ann: Any) -> Conversation:
    """Return a conversation in which Ann has a tool."""
    first = {"name": "Ann", "system_prompt": "You are Ann.", "tools": ["look"], **ann}
    first = {name: value for name, value in first.items() if value is not None}
    speakers = [first, {"name": "Bob", "system_prompt": "You are Bob."}]
    end_chat = {"max_iterations": rounds, "guards": {"same_tool_calls": 0}}
    return load_conversation({"task": "Read.", "speakers": speakers, "end_chat": end_chat})


def play(
    spec: Conversation, model: Narrow | ScriptedChatModel, *results: Any, **options: Any
) -> Result:
    """Run a conversation to its end."""
    chat = ScriptedChatModel(script=model) if isinstance(model, Narrow) else model
    given = {
        "store": f"memory:{uuid4().hex}",
        "model": chat,
        "tools": [returning("look", *results)],
    }
    return converse(spec, **{**given, **options})


@pytest.mark.part(4)
@pytest.mark.parametrize("names_limit", [True, False])
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("kind", RESULTS.values(), ids=RESULTS)
def test_a_turn_larger_than_the_context_ends_as_usual(
    kind: tuple[Any, Sequence[Sequence[str]]],
    context: Any,  # noqa: ANN401
    *,
    names_limit: bool,
) -> None:
    """R28: results are shortened in the prompt, and the log has all of them."""
    result, rounds = kind
    model = Narrow(*rounds, names_limit=names_limit)
    chat = ScriptedChatModel(script=model)
    found = play(talk(context=context), chat, result)
    assert outcome_of(found).reason is Reason.MAX_ITERATIONS
    if context is not None and context["limit"] > 1000:
        by_ann = [one for one in chat.calls if one.tools]
        assert all(size_of(one.prompt) <= 3000 for one in by_ann)
        assert not model.refused
    stored = [one.text for one in found.messages if isinstance(one, ToolMessage)]
    assert len(stored) == 2 * sum(map(len, rounds))
    assert not any(MARK in text for text in stored)


def test_the_head_and_the_tail_of_the_oldest_results_are_left() -> None:
    """R28: results are shortened from the oldest on; the mark says how much is missing."""
    found = play(
        talk(1, context={"kind": "tokens", "limit": 3000}),
        model := Narrow(*[["look"]] * 4),
        say(1500),
    )
    assert outcome_of(found)
    last = [one for one in model.accepted if "You are Ann." in str(one[0])][-1]
    results = [str(one["content"]) for one in last if one["role"] == "tool"]
    lengths = [len(one) for one in results]
    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0]
    for one in results:
        assert one.startswith("Begin.")
        assert one.endswith("The end.")
    left_out = int(results[0].partition("\n(")[2].partition(" ")[0])
    assert left_out == len(say(1500)) - len(results[0].replace(MARK, "")) + len(f"\n[{left_out}\n")


def test_a_shortened_result_stays_equal_from_call_to_call() -> None:
    """R28: the prompts of a turn have as much of their beginning in common as possible."""
    spec = talk(1, context={"kind": "tokens", "limit": 3000})
    play(spec, model := Narrow(["look"], *[["look"]] * 3), say(10_000), "Short.")
    prompts = [one for one in model.accepted if "You are Ann." in str(one[0])]
    first = [next(str(one["content"]) for one in p if one["role"] == "tool") for p in prompts[1:]]
    assert MARK in first[0]
    assert len({*first}) == 1


LARGE: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "examples": (
        {
            "examples": [
                HumanMessage("Look."),
                AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "e1"}]),
                ToolMessage(say(9_000), tool_call_id="e1"),
                AIMessage("It is long."),
            ]
        },
        {},
    ),
    "a private opening": ({"private_opening": {"lines": [say(9_000)]}}, {}),
    "arguments of calls": ({}, {"text": say(1_500)}),
    "arguments that are no text": ({}, {"text": say(500, '"\\'), "rows": [*range(2_000)]}),
}


@pytest.mark.parametrize("context", [None, {"kind": "last", "limit": 4}], ids=["none", "last"])
@pytest.mark.parametrize(("ann", "args"), LARGE.values(), ids=LARGE)
def test_other_parts_of_a_prompt_are_shortened_too(
    ann: dict[str, Any],
    args: dict[str, Any],
    context: Any,  # noqa: ANN401
) -> None:
    """R28: examples, memories, and arguments, which stay objects."""

    @tool
    def look(text: str = "", rows: list[int] | None = None) -> str:
        """Look."""
        return "A bee."

    model = Narrow(*[["look"]] * 4, **args)
    found = play(talk(context=context, **ann), model, tools=[look])
    assert outcome_of(found).reason is Reason.MAX_ITERATIONS
    shown = json.dumps(model.accepted)
    assert MARK in shown
    for prompt in model.accepted:
        for one in prompt:
            for made in one.get("tool_calls", ()):
                assert {*json.loads(made["function"]["arguments"])} == {*args}


@pytest.mark.parametrize("names_limit", [True, False])
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_a_large_message_of_another_speaker_or_a_person_is_shortened(
    context: Any,  # noqa: ANN401
    *,
    names_limit: bool,
) -> None:
    """R28: the message is whole in the log, and the next turn leaves it out as usual."""
    long = say(9_000)
    person = {"name": "User", "replies": ["human"]}
    ann = {
        "name": "Ann",
        "system_prompt": "You are Ann.",
        **({"context": context} if context else {}),
    }
    spec = load_conversation(
        {"task": "Talk.", "speakers": [person, ann]} | {"end_chat": {"max_iterations": 3}}
    )
    model = Narrow(names_limit=names_limit)
    given: dict[str, Any] = {"model": ScriptedChatModel(script=model)}
    store = f"memory:{uuid4().hex}"
    converse(spec, session="s", store=store, **given)
    for text in (long, "And now?", "Once more."):
        result = Session("s", store=store).answer(text, **given)
    assert outcome_of(result).reason is Reason.MAX_ITERATIONS
    assert result.transcript[0] == ("User", long)
    assert MARK in str(model.accepted[0][-1]["content"])
    assert all(size_of(one) <= LIMIT for one in model.accepted)


def test_a_speaker_judges_its_task_after_a_large_turn() -> None:
    """R28: the question about the task follows the shortened messages of the turn."""
    spec = talk(checks_completion=True).replace(
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 2}
    )
    narrow = Narrow(["look"])

    def answer(prompt: Prompt) -> Line:
        if prompt[-1]["content"] != PROMPTS["judge_own_task"] or size_of(prompt) > LIMIT:
            return narrow(prompt)
        return {"objectives_left": [], "complete": True}

    model = ScriptedChatModel(script=answer)
    tools = [returning("look", say(10_000))]
    found = converse(spec, model=model, tools=tools, store=f"memory:{uuid4().hex}")
    assert outcome_of(found).reason is Reason.COMPLETED


def test_a_judge_reads_a_large_message_shortened() -> None:
    """R28: a message that a separate judge cannot read whole."""
    spec = talk(tools=None, replies=[{"kind": "text", "text": say(9_000)}]).replace(
        judge={"kind": "separate", "criteria": ["It has an end."]},
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 1},
    )
    narrow = Narrow()

    def answer(prompt: Prompt) -> Line:
        line = narrow(prompt)
        return (
            {"criterion_1": "met"}
            if isinstance(line, str) and "It has an end" in str(prompt)
            else line
        )

    model = ScriptedChatModel(script=answer)
    found = converse(spec, model=model, store=f"memory:{uuid4().hex}")
    assert outcome_of(found).reason is Reason.COMPLETED


def test_the_sent_prompt_of_a_large_turn_is_shown_as_sent() -> None:
    """R14, R28: the prompt is the same when it is built again from the log."""
    model = Narrow(["look"])
    chat = ScriptedChatModel(script=model)
    tools = [returning("look", say(10_000))]
    found = converse(talk(1), model=chat, tools=tools, store=f"memory:{uuid4().hex}")
    shown = found.session.prompt("Ann", tools=tools)
    sent = next(one for one in reversed(chat.calls) if one.messages[-1].type == "tool")
    assert [one.text for one in shown] == [one.text for one in sent.messages]


@pytest.mark.parametrize("part", ["system_prompt", "task"])
def test_a_prompt_that_cannot_be_shortened_has_a_true_remedy(part: str) -> None:
    """U5, R28: the error names the parts that must become shorter."""
    spec = talk(system_prompt=f"You are Ann. {say(9_000 if part == 'system_prompt' else 9)}")
    if part == "task":
        spec = spec.replace(task=say(9_000))
    with pytest.raises(ContextTooLongError, match="shorten the system prompt, the task"):
        play(spec, model := Narrow(["look"]), "Short.")
    assert len(model.refused) == 1
