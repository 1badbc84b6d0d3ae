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
from duologue.graphs.conversation.limits import ROOM, fixed_tokens, least_limit, most_calls
from duologue.graphs.speakers.call_settings import Context, KeepAll
from duologue.graphs.text.words import tokens_of
from duologue.nodes.testing import ScriptedChatModel, ScriptExhaustedError
from support.tables import each_row


def talk(context: object, **fields: object) -> Conversation:
    ann: dict[str, object] = {"name": "Ann", "context": context} | fields
    return load_conversation({"task": "Talk.", "speakers": [ann, {"name": "Bob"}]})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("all", KeepAll()),
        ({"kind": "all"}, KeepAll()),
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
    written: object, meant: Context
) -> None:
    conversation = talk(written)
    assert conversation.speakers[0].context == meant
    assert conversation.speakers[1].context == KeepAll()
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


def test_the_least_budget_holds_the_system_prompt_and_room_for_a_message() -> None:
    conversation = talk("all", system_prompt="You are {me}. {task}" * 9)
    ann = conversation.speakers[0]
    fixed = fixed_tokens(conversation, ann, conversation.task)
    assert fixed > tokens_of("You are {me}. Talk." * 9)
    assert least_limit(conversation, ann) == fixed + ROOM


def test_a_speakers_examples_stand_in_every_prompt_too() -> None:
    """L4: a budget must include the examples, which are part of each prompt."""
    text = "Weather? " * 30
    examples = [("user", text), ("assistant", "Rain.")]
    conversation = talk("all")
    plain, shown = (
        fixed_tokens(conversation, Speaker(name="Ann", examples=given), "Talk.")
        for given in ([], examples)
    )
    assert shown - plain >= tokens_of(text)


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
    assert most_calls(talk({"kind": "summary", "limit": 3000})) > most_calls(talk("all"))
