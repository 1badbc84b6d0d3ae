"""The other ends, composed by ``|`` and ``&``, and the guards, in whole conversations."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChat,
    EndChatMode,
    Guards,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    ModelError,
    Predicate,
    Price,
    Reason,
    Result,
    SpecError,
    StopRequested,
    ToolCalled,
    converse,
    load_conversation,
)
from duologue.nodes.testing import (
    Line,
    Reply,
    ScriptedChatModel,
    ScriptedToolCall,
    ScriptExhaustedError,
)
from support.ends import AnyEndChat, End
from support.log import Flaw, fields_of, of_kind
from support.results import outcome_of
from support.shape_help import play as play_script

NO: dict[str, Any] = {"objectives_left": ["price"], "complete": False}

GROUP = EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION


def talk(when: End | None = None, **fields: Any) -> Conversation:
    """Return a conversation of Ann and Bob."""
    end_chat = {"max_iterations": 4, "when": when} | fields.pop("end_chat", {})
    return load_conversation(
        {
            "task": "Plan.",
            "speakers": [{"name": "Ann"} | fields.pop("ann", {}), {"name": "Bob"}],
            "end_chat": end_chat,
        }
        | fields
    )


def play(conversation: Conversation, script: Sequence[Line], **options: Any) -> Result:
    return play_script(conversation, script, **options)[0]


def lines(number: int) -> list[Line]:
    """Return so many ordinary messages."""
    return [f"This is what is said as line {place}." for place in range(number)]


def reasons(result: Result) -> list[str]:
    return [reason.value for reason in outcome_of(result).reasons]


# An end alone

DEAL = DoneToken(token="DEAL")  # noqa: S106


@pytest.mark.parametrize(
    "end_chat",
    [
        pytest.param(DEAL | MaxMessages(limit=12), id="in-python"),
        pytest.param(
            [{"kind": "done_token", "token": "DEAL"}, {"kind": "max_messages", "limit": 12}],
            id="a-list-as-in-files",
        ),
        pytest.param(
            {
                "kind": "any",
                "of": [DEAL, {"kind": "max_messages", "limit": 12}],
            },
            id="a-dict",
        ),
    ],
)
def test_an_end_alone_is_taken_and_its_number_of_messages_is_the_only_cap(
    end_chat: AnyEndChat,
) -> None:
    spec = Conversation(
        task="Sell.", speakers=[{"name": "Ann"}, {"name": "Bob"}], end_chat=end_chat
    )
    assert spec == load_conversation(spec.stored())
    said = [f"Then I offer {number} coins for it." for number in range(100, 112)]
    capped = play(spec, said)
    assert reasons(capped) == ["max_messages"]
    assert reasons(play(spec, [*said[:2], "DEAL"])) == ["done_token"]


@pytest.mark.parametrize(
    ("end_chat", "rounds"),
    [
        (DEAL, 5),
        (DEAL & MaxMessages(limit=9), 5),
        (DEAL | MaxMessages(limit=12), None),
        ({"kind": "max_messages", "limit": 8}, None),
        (EndChat(when=MaxMessages(limit=8)), 5),
        (EndChat(when=MaxMessages(limit=8), max_iterations=5), 5),
        ({"when": MaxMessages(limit=8), "max_iterations": 4}, 4),
    ],
)
def test_rounds_are_capped_unless_messages_are_or_both_are_set(
    end_chat: AnyEndChat, rounds: int | None
) -> None:
    spec = talk().replace(end_chat={"max_iterations": 5})
    whole = Conversation(task="Sell.", speakers=spec.speakers, end_chat=end_chat)
    assert whole.end_chat.max_iterations == rounds


def test_without_a_cap_of_its_own_a_conversation_needs_one() -> None:
    for when in (DEAL, DEAL & MaxMessages(limit=2)):
        with pytest.raises(SpecError, match=r"end_chat\.max_iterations: can be null only"):
            talk(when, end_chat={"max_iterations": None})


# Single ends


def test_tokens_count_prompts_and_answers() -> None:
    first = play(talk(MaxMessages(limit=1)), lines(1)).outcome
    assert first is not None
    used = first.total.input_tokens + first.total.output_tokens
    assert reasons(play(talk(MaxTokens(limit=used)), lines(1))) == ["max_tokens"]
    assert len(play(talk(MaxTokens(limit=used + 1)), lines(2)).transcript) == 2


def test_where_a_model_tells_no_tokens_they_are_estimated() -> None:
    model = FakeListChatModel(responses=["Beans, I think.", "Well, I do not."])
    result = converse(talk(MaxTokens(limit=60)), model=model, store="memory:estimates")
    assert reasons(result) == ["max_tokens"]
    assert outcome_of(result).total.estimated_calls == outcome_of(result).total.calls > 0


def test_money_is_counted_by_the_price_table() -> None:
    prices = {"dear": Price(input=1_000_000, output=2_000_000), "cheap": Price(input=0, output=1)}
    spec = talk(MaxCost(limit=30), prices=prices, model="cheap", ann={"model": "dear"})
    models = {
        "dear": ScriptedChatModel(script=lines(4)),
        "cheap": ScriptedChatModel(script=["Well, if you say so, dear Ann."] * 2),
    }
    result = converse(spec, models=models, store="memory:money")
    assert reasons(result) == ["max_cost"]
    used = outcome_of(result).usage["dear"]
    assert used.cost == used.input_tokens + 2 * used.output_tokens
    assert (outcome_of(result).total.cost or 0) >= 30
    assert (
        f"the cost cap was reached ({outcome_of(result).total.cost:.6g} of 30)"
        in outcome_of(result).explanations
    )


def test_a_model_without_a_price_is_refused_before_it_is_called() -> None:
    model = ScriptedChatModel(script=lines(1))
    spec = talk(MaxCost(limit=1), prices={"other": Price(input=1, output=1)})
    with pytest.raises(SpecError, match="prices: the model 'ScriptedChatModel' has no price"):
        converse(spec, model=model, store="memory:no-price")
    assert model.calls == []


def test_time_is_summed_over_all_runs_and_not_counted_in_between() -> None:
    model = ScriptedChatModel(script=["This is said.", ModelError("gone")])
    spec = talk(MaxSeconds(limit=600))
    with pytest.raises(ModelError):
        converse(spec, session="t", model=model, store="memory:time")
    result = converse(
        spec, session="t", model=ScriptedChatModel(script=lines(7)), store="memory:time"
    )
    assert 0 < outcome_of(result).seconds < 600


# Done tokens, predicates and tools


def agreed(said: Sequence[BaseMessage]) -> bool:
    return "agreed" in said[-1].text


async def slowly_agreed(said: Sequence[BaseMessage]) -> bool:
    return agreed(said)


@pytest.mark.parametrize("function", [agreed, slowly_agreed])
def test_a_registered_predicate_ends_it_before_anyone_answers(
    function: Callable[[Sequence[BaseMessage]], bool],
) -> None:
    spec = talk(Predicate(name="agreed"), ann={"checks_completion": True}, end_chat={"mode": GROUP})
    script: list[Line] = ["Beans, I think.", NO, "Peas.", "Peas, agreed."]
    result = play(spec, script, predicates={"agreed": function})
    assert reasons(result) == ["predicate"]
    assert outcome_of(result).explanations == ("the predicate 'agreed' returned true",)


def test_a_predicate_sees_what_all_heard_and_who_said_it() -> None:
    seen: list[list[tuple[str | None, str]]] = []

    def note(said: Sequence[BaseMessage]) -> bool:
        seen.append([(message.name, message.text) for message in said])
        return False

    spec = load_conversation(
        {
            "speakers": [
                {"name": "Ann", "task": "A.", "private_opening": {"prompt": "A secret?"}},
                {"name": "Bob", "task": "B."},
            ],
            "opening": {"answers": True},
            "end_chat": {"max_iterations": 1, "when": Predicate(name="note")},
        }
    )
    play(spec, ["Secret.", "A1", "B1", "", "B2", "A2"], predicates={"note": note})
    assert seen == [[("Bob", "B2")], [("Bob", "B2"), ("Ann", "A2")]]


def test_a_predicate_that_fails_is_one_clear_error_and_loses_nothing() -> None:
    def broken(said: Sequence[BaseMessage]) -> bool:
        raise LookupError(said[-1].text)

    spec = talk(Predicate(name="agreed"), end_chat={"max_iterations": 1})
    with pytest.raises(SpecError, match="the predicate 'agreed' failed: LookupError: Beans"):
        converse(
            spec,
            session="p",
            model=ScriptedChatModel(script=["Beans."]),
            predicates={"agreed": broken},
            store="memory:broken",
        )
    result = converse(
        spec,
        session="p",
        model=ScriptedChatModel(script=["Peas, agreed."]),
        predicates={"agreed": agreed},
        store="memory:broken",
    )
    assert reasons(result) == ["predicate", "max_iterations"]


def test_an_unregistered_predicate_is_refused_with_the_near_names() -> None:
    model = ScriptedChatModel(script=lines(1))
    expected = r"end_chat\.when\.name: there is no predicate 'agred'; did you mean 'agreed'\?"
    with pytest.raises(SpecError, match=expected):
        converse(
            talk(Predicate(name="agred")),
            model=model,
            predicates={"agreed": agreed},
            store="memory:unknown",
        )
    assert model.calls == []


@tool
def submit(plan: str) -> str:
    """Submit the plan."""
    if not plan:
        raise ValueError("there is no plan")
    return "submitted"


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"{what} is green"


NUMBERS = count()


def call(name: str, **arguments: str) -> Reply:
    made = ScriptedToolCall(name=name, args=arguments, id=f"call-{next(NUMBERS)}")
    return Reply(tool_calls=(made,))


def test_a_tool_ends_it_once_it_has_answered() -> None:
    spec = talk(ToolCalled(tool="submit"), ann={"tools": ["submit", "look"]})
    script: list[Line] = [
        call("look", what="it"),
        call("submit", plan=""),
        call("submit", plan="Beans."),
    ]
    result = play(spec, script, tools=[submit, look])
    assert reasons(result) == ["tool_called"]
    assert (outcome_of(result).by, outcome_of(result).messages) == ("Ann", 0)
    assert result.messages[-1].text == "submitted"


# Joined ends

DONE_BY_ANN = DoneToken(token="DONE", by="Ann")  # noqa: S106


def test_a_predicate_in_an_and_must_hold_at_that_moment() -> None:
    spec = talk(Predicate(name="agreed") & MaxMessages(limit=3))
    script: list[Line] = ["Beans, agreed.", "Well, no.", "No beans.", "Peas, agreed."]
    assert reasons(play(spec, script, predicates={"agreed": agreed})) == [
        "predicate",
        "max_messages",
    ]


@pytest.mark.parametrize(
    ("built", "written"),
    [
        (MaxCalls(limit=1) | MaxCalls(limit=2) | MaxCalls(limit=3), 3),
        (MaxCalls(limit=1) & MaxCalls(limit=2) & MaxCalls(limit=3), 3),
        ((MaxCalls(limit=1) & MaxCalls(limit=2)) | MaxCalls(limit=3), 2),
        (MaxCalls(limit=1) & (MaxCalls(limit=2) | MaxCalls(limit=3)), 2),
    ],
)
def test_joined_ends_are_flat_where_they_can_be(built: End, written: int) -> None:
    dumped = EndChat(when=built).model_dump(mode="json")["when"]
    assert len(dumped["of"]) == written
    assert EndChat.model_validate({"when": dumped}).when == built


# Guards

LOOK = call("look", what="beans")


@tool
def toss(number: int) -> str:
    """Toss a coin."""
    TOSSED.append(number)
    return str(len(TOSSED))


@tool
def busy(number: int) -> str:
    """Fail twice, then answer."""
    TOSSED.append(number)
    if len(TOSSED) % 3:
        raise ValueError("503 Service Unavailable")
    return "Here."


TOSSED: list[int] = []


def called(*names: str) -> Reply:
    made = [
        ScriptedToolCall(name=name, args={"number": 1}, id=f"{name} {place}")
        for place, name in enumerate(names)
    ]
    return Reply(tool_calls=tuple(made))


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("made", "ends"),
    [
        pytest.param([LOOK] * 6, True, id="the-same"),
        pytest.param([Reply(tool_calls=LOOK.tool_calls * 3)] * 6, True, id="in-one-message-as-one"),
        pytest.param([Reply(tool_calls=LOOK.tool_calls * 9), "Ok."], False, id="at-once"),
        pytest.param([LOOK] * 5 + ["I give up."], False, id="asked-once-more"),
        pytest.param([LOOK] * 5 + [called("toss"), "Ok."], False, id="something-else"),
        pytest.param([called("toss")] * 9 + ["Ok."], False, id="other-results"),
        pytest.param([called("busy")] * 12 + ["Ok."], False, id="failures"),
        pytest.param([called("toss", "toss")] * 6 + ["Ok."], False, id="several-of-other-results"),
        pytest.param([LOOK, LOOK, called("toss"), LOOK, LOOK, "Ok."], False, id="not-in-a-row"),
        pytest.param([LOOK] * 4 + ["Ok.", "Hm."] + [LOOK] * 4 + ["Ok."], False, id="two-turns"),
    ],
)
def test_r21_what_counts_as_the_same_call(made: list[Line], ends: bool) -> None:
    TOSSED.clear()
    spec = talk(ann={"tools": ["look", "toss", "busy"]}, max_tool_errors=99)
    script = ScriptedChatModel(script=[*made, *(f"This is new, the {n}th." for n in range(12))])
    tools = [look, toss, busy]
    result = converse(spec, model=script, tools=tools, store=f"memory:{uuid4().hex}")
    assert reasons(result) == (["same_tool_calls"] if ends else ["max_iterations"])


def test_r21_a_repeated_call_is_a_draft_that_is_never_sent_back() -> None:
    model = ScriptedChatModel(script=[LOOK] * 5 + ["I give up.", *["Hm, well."] * 20])
    spec = talk(ann={"tools": ["look"]}, end_chat={"max_iterations": 1})
    result = converse(spec, model=model, tools=[look], store="memory:repeated-call")
    drafts = of_kind(result.messages, "draft")
    assert [fields_of(one).flaw for one in drafts[:1]] == [Flaw.SAME_CALLS]
    prompt = model.calls[5].prompt
    assert sum(bool(one.get("tool_calls")) for one in prompt) == 4
    assert (
        "You called look again with the same or nearly the same arguments" in prompt[-1]["content"]
    )


@pytest.mark.parametrize("answered", [4, 5])
def test_r21_what_broke_off_goes_on_with_its_count(answered: int) -> None:
    """A resumed session keeps its count: the model gets exactly one more request."""
    spec = talk(ann={"tools": ["look"]}, end_chat={"max_iterations": 1})
    where: dict[str, Any] = {"session": "s", "store": f"memory:{uuid4().hex}", "tools": [look]}
    with pytest.raises(ScriptExhaustedError):
        converse(spec, model=ScriptedChatModel(script=[LOOK] * answered), **where)
    model = ScriptedChatModel(script=[LOOK] * (6 - answered))
    result = converse(spec, model=model, **where)
    assert reasons(result) == ["same_tool_calls"]
    assert sum(fields_of(one).flaw is Flaw.SAME_CALLS for one in result.messages) == 1


def test_the_guards_are_on_unless_switched_off() -> None:
    assert all(limit > 0 for limit in Guards().model_dump().values())
    assert set(Guards.model_fields) <= {reason.value for reason in Reason}


def test_the_smallest_of_the_met_costs_is_told() -> None:
    cheap = MaxCost(limit=0.000001) & DONE_BY_ANN
    prices = {"m": {"input": 1, "output": 1}}
    spec = talk(cheap | MaxCost(limit=0.00001), prices=prices, model="m")
    model = ScriptedChatModel(script=lines(8))
    result = converse(spec, models={"m": model}, store="memory:limits")
    assert result.outcome is not None
    assert outcome_of(result).explanations[0].endswith("of 1e-05)")


STOP = StopRequested()
WRITTEN: list[tuple[Any, End]] = [
    ([{"kind": "max_calls", "limit": 1}, {"kind": "stop_requested"}], MaxCalls(limit=1) | STOP),
    ([{"kind": "max_calls", "limit": 3}], MaxCalls(limit=3)),
    ("stop_requested", STOP),
]


@pytest.mark.parametrize(("written", "end"), WRITTEN)
def test_files_write_ends_as_lists_and_a_kind_without_fields_as_a_word(
    written: Any,  # noqa: ANN401
    end: End,
) -> None:
    assert EndChat.model_validate({"when": written}).when == end


@pytest.mark.parametrize("wrong", [None, "X", 3, EndChatMode.ALL_TASK_MUST_COMPLETE])
def test_only_ends_are_joined(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match="unsupported operand"):
        DONE_BY_ANN | wrong
    with pytest.raises(TypeError, match="unsupported operand"):
        DONE_BY_ANN & wrong


LAZY: dict[str, Callable[[End], object]] = {
    "or": lambda end: end or MaxCost(limit=0.5),
    "and": lambda end: end and MaxCost(limit=0.5),
    "not": lambda end: not end,
    "if": lambda end: 1 if end else 2,
    "any": lambda end: any([end]),
    "bool": bool,
}
"""Expressions that treat an end as true or false, and thereby drop the second end."""


@pytest.mark.parametrize("read", LAZY.values(), ids=LAZY)
@pytest.mark.parametrize("end", [DONE_BY_ANN, DONE_BY_ANN | MaxCalls(limit=3), MaxCost(limit=1)])
def test_an_end_is_neither_true_nor_false(end: End, read: Callable[[End], object]) -> None:
    with pytest.raises(TypeError, match=r"use '\|' instead of 'or', '&' instead of 'and'"):
        read(end)
