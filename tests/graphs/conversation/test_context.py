"""Context policies as data: their notation, and policies that can't be met."""

from typing import Any

import pytest
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    LastMessages,
    RunningSummary,
    Speaker,
    SpecError,
    TokenBudget,
    converse,
    load_conversation,
)
from duologue.nodes.testing import ScriptedChatModel, ScriptExhaustedError
from support.tables import each_row


def talk(context: object, **fields: object) -> Conversation:
    ann: dict[str, object] = {"name": "Ann", "context": context} | fields
    return load_conversation({"task": "Talk.", "speakers": [ann, {"name": "Bob"}]})


ALL = Speaker("Ann").context


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("all", ALL),
        ({"kind": "all"}, ALL),
        ({"kind": "last", "limit": 20}, LastMessages(limit=20)),
        ({"kind": "tokens", "limit": 3000}, TokenBudget(limit=3000)),
        ({"kind": "summary", "limit": 3000}, RunningSummary(limit=3000)),
        (
            {"kind": "summary", "limit": 3000, "words": 80, "model": "small", "temperature": 0},
            RunningSummary(limit=3000, words=80, model="small", temperature=0),
        ),
    ],
)
def test_a_policy_is_written_as_a_table_or_a_word_and_comes_back_the_same(
    written: object, meant: LastMessages | TokenBudget | RunningSummary
) -> None:
    conversation = talk(written)
    assert conversation.speakers[0].context == meant
    assert conversation.speakers[1].context == ALL
    assert load_conversation(conversation.stored()) == conversation
    assert conversation.speakers[0].model_dump()["context"]["kind"] == meant.kind


@each_row("a_policy_that_is_none_is_one_error_that_names_the_field", "written", "words")
def test_a_policy_that_is_none_is_one_error_that_names_the_field(written: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError, match=words.replace(".", r"\.")):
        talk(written)


@pytest.mark.parametrize("kind", ["tokens", "summary"])
@pytest.mark.parametrize(
    "speaker",
    [
        {"system_prompt": "Be brief. " * 50},
        {"task": "Sell. " * 100},
        {"private_opening": {"lines": ["Bob fibs. " * 60]}},
        {"private_opening": {"prompt": "Choose a secret number. " * 30}},
    ],
    ids=lambda it: next(iter(it)),
)
def test_a_budget_smaller_than_what_always_stands_in_the_prompt_is_refused(
    kind: str, speaker: dict[str, Any]
) -> None:
    too_few = r"^speakers\.0\.context\.limit: 200 tokens are too few"
    with pytest.raises(SpecError, match=too_few) as caught:
        talk({"kind": kind, "limit": 200}, **speaker)
    needed = int(str(caught.value).split("set ")[1].split()[0])
    assert needed > 200
    talk({"kind": kind, "limit": needed}, **speaker)
    with pytest.raises(SpecError, match="too few"):
        talk({"kind": kind, "limit": needed - 1}, **speaker)


def test_a_budget_smaller_than_the_tools_is_refused_before_any_model_is_called() -> None:
    """A budget must exceed the tools and schemas, whose size is known at the run."""

    @tool
    def look(where: str) -> str:
        """Look somewhere."""
        return where

    look.description = "Look everywhere. " * 60
    model = ScriptedChatModel(script=[])
    options: dict[str, Any] = {"tools": [look], "model": model, "store": "memory:"}

    def limited(limit: int) -> Conversation:
        return talk({"kind": "tokens", "limit": limit}, tools=["look"])

    too_few = r"^speakers\.0\.context\.limit: 300 tokens are too few for .* its tools too"
    with pytest.raises(SpecError, match=too_few) as caught:
        converse(limited(300), **options)
    needed = int(str(caught.value).split("set ")[1].split()[0])
    with pytest.raises(SpecError, match="too few"):
        converse(limited(needed - 1), **options)
    assert model.calls == []
    with pytest.raises(ScriptExhaustedError):
        converse(limited(needed), **options)


def needed(**ann: object) -> int:
    """Return the least budget of a speaker, as the error for a smaller one names it."""
    with pytest.raises(SpecError, match="too few") as caught:
        talk({"kind": "tokens", "limit": 1}, **ann)
    return int(str(caught.value).split("set ")[1].split()[0])


def test_the_least_budget_holds_the_system_prompt_examples_and_room_for_a_message() -> None:
    """L4: a budget must include the examples, which are part of each prompt."""
    assert 64 < needed(system_prompt="Ann") < 80
    text = "Weather? " * 30
    examples = [("user", text), ("assistant", "Rain.")]
    assert needed(examples=examples) - needed() > len(text) / 5


def test_the_opening_tasks_of_all_stand_in_every_prompt_where_they_are_reconciled() -> None:
    given = {
        "speakers": [
            {"name": "Ann", "task": "Sell.", "context": {"kind": "tokens", "limit": 300}},
            {"name": "Bob", "task": "Buy. " * 200},
        ],
        "opening": {"answers": True},
    }
    load_conversation(given)
    with pytest.raises(SpecError, match=r"speakers\.0\.context\.limit"):
        load_conversation(given | {"opening": {"answers": True, "reconcile": True}})


def test_the_model_that_sums_up_is_one_of_the_conversations_models() -> None:
    conversation = talk({"kind": "summary", "limit": 3000, "model": "small"}, model="big")
    assert conversation.model_names == ["big", None, "small"]
    assert talk({"kind": "summary", "limit": 3000}, model="big").model_names == ["big", None]
    priced = conversation.stored() | {"prices": {"big": {"input": 1, "output": 1}}, "model": "big"}
    with pytest.raises(SpecError, match="prices: the model 'small' has no price"):
        load_conversation(priced)


def test_summaries_are_among_the_calls_that_a_conversation_can_take() -> None:
    never = {"kind": "all", "of": ["stop_requested", {"kind": "max_calls", "limit": 1_000_000}]}

    def most(context: object) -> int:
        with pytest.raises(SpecError, match="can never be met") as caught:
            load_conversation(talk(context).stored() | {"end_chat": {"when": never}})
        return int(str(caught.value).partition(" model calls")[0].split()[-1])

    assert most({"kind": "summary", "limit": 3000}) > most("all")
