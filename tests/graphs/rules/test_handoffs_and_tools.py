"""Handoffs that a speaker calls together with tools."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool

from duologue.graphs import Conversation, Result, Session, converse, load_conversation, stream
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.log import Source, fields_of, of_kind
from support.prompts import PROMPTS

CLAIM = "It is refunded."
ERROR = "The card has expired."
AFTER: list[Line] = ["I could not refund it.", "Thank you.", "Goodbye.", "The end."]

ran: list[int] = []


@tool
def refund(number: int) -> str:
    """Refund an order."""
    if number == 12:
        raise ToolException(ERROR)
    ran.append(number)
    return f"Order {number} is refunded."


@tool(return_direct=True)
def receipt() -> str:
    """Send a receipt."""
    return "Receipt 7."


TOOLS: list[BaseTool] = [refund, receipt]


def talk(**orders: Any) -> Conversation:
    """Return a conversation of Orders, who may refund, with Manager and Customer."""
    speakers = [
        {"name": "Orders", "tools": ["refund", "receipt"], **orders},
        {"name": "Manager"},
        {"name": "Customer"},
    ]
    order = {"kind": "handoff", "private": True}
    end = {"max_iterations": 1}
    spec = {"task": "Help.", "speakers": speakers, "turn_order": order, "end_chat": end}
    return load_conversation(spec)


def call(name: str, **args: Any) -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=f"{name}-{len(str(args))}")


def hand_off(to: str = "Customer", message: str = CLAIM, **more: Any) -> ScriptedToolCall:
    return call("hand_off", to=to, message=message, **more)


def message_of(made: ScriptedToolCall) -> str:
    """Return the message of a handoff."""
    assert isinstance(made.args, dict)
    return str(made.args["message"])


def play(
    conversation: Conversation, *script: Line, **options: Any
) -> tuple[Result, ScriptedChatModel]:
    model = ScriptedChatModel(script=[*script])
    options = {"store": f"memory:{uuid4().hex}", "tools": TOOLS} | options
    result = converse(conversation, model=model, **options)
    return result, model


def all_heard(model: ScriptedChatModel, name: str) -> str:
    """Return the prompts of all speakers but one, as text."""
    return str([one.prompt for one in model.calls if one.speaker != name])


def results_are_paired(model: ScriptedChatModel) -> bool:
    """Return whether each call in each prompt is followed by its result."""
    for asked in model.calls:
        waiting: set[str | None] = set()
        for message in asked.messages:
            if isinstance(message, ToolMessage):
                waiting.remove(message.tool_call_id)
                continue
            if waiting:
                return False
            if isinstance(message, AIMessage):
                waiting = {one["id"] for one in message.tool_calls}
    return True


BROKEN = ScriptedToolCall(name="refund", args='{"number": 1', id="broken")

FAILING = {
    "raises": [call("refund", number=12), hand_off()],
    "after the handoff": [hand_off(), call("refund", number=12)],
    "is unknown": [call("cancel", number=12), hand_off()],
    "has wrong arguments": [call("refund", order="x"), hand_off()],
    "has broken arguments": [BROKEN, hand_off()],
    "one of two": [call("refund", number=1), call("refund", number=12), hand_off()],
    "several handoffs": [hand_off("Manager"), call("refund", number=12), hand_off()],
    "private": [call("refund", number=12), hand_off(private=True)],
}


@pytest.mark.parametrize("text", ["", CLAIM])
@pytest.mark.parametrize("calls", FAILING.values(), ids=FAILING)
def test_nobody_hears_a_handoff_next_to_a_call_that_fails(
    calls: Sequence[ScriptedToolCall], text: str
) -> None:
    """R30: the speaker reads the error and goes on with its turn, once."""
    first = Reply(text=text, tool_calls=tuple(calls))
    result, model = play(talk(), first, *AFTER)
    assert [name for name, _ in result.transcript] == ["Orders", "Manager", "Customer"]
    assert result.transcript[0] == ("Orders", "I could not refund it.")
    assert CLAIM not in all_heard(model, "Orders")
    read = [str(one.text) for one in model.calls[1].messages if isinstance(one, ToolMessage)]
    undone = sum(one.name == "hand_off" for one in calls)
    assert read.count(PROMPTS["hand_off_undone"]) == undone
    assert len(read) == len(calls)
    assert results_are_paired(model)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([call("refund", number=7), hand_off()], CLAIM),
        ([hand_off(), call("refund", number=7)], CLAIM),
        ([call("refund", number=7), call("refund", number=8), hand_off()], CLAIM),
        ([call("refund", number=7), hand_off(message="")], ""),
        ([hand_off(), hand_off("Manager", "Or you?"), call("refund", number=7)], None),
        ([hand_off("Zed", "Zed?"), hand_off(), call("refund", number=7)], None),
        ([call("receipt"), hand_off()], f"Receipt 7.\n\n{CLAIM}"),
        ([call("refund", number=7), hand_off(" *customer*. ")], CLAIM),
    ],
)
def test_a_handoff_takes_effect_after_its_tools_at_no_further_model_call(
    calls: Sequence[ScriptedToolCall], said: str | None
) -> None:
    """R30: the message of the handoff is spoken once, and the named speaker is next."""
    text = "\n\n".join(message_of(one) for one in calls if one.name == "hand_off")
    said = text if said is None else said
    result, model = play(talk(), Reply(tool_calls=tuple(calls)), "Thank you.", "Goodbye.")
    assert result.transcript[:2] == [("Orders", said), ("Customer", "Thank you.")]
    assert [one.speaker for one in model.calls] == ["Orders", "Customer", "Orders"]
    assert results_are_paired(model)
    (speech, *_) = of_kind(result.messages, "speech")
    about = fields_of(speech)
    assert about.kind == "speech"
    assert about.source is Source.HANDOFF


def test_text_next_to_the_calls_waits_for_them_as_well() -> None:
    first = Reply(text="All is well.", tool_calls=(call("refund", number=7), hand_off()))
    result, _ = play(talk(), first, "Thank you.", "Goodbye.")
    assert result.transcript[0] == ("Orders", f"All is well.\n\n{CLAIM}")


def test_a_private_handoff_next_to_tools_stays_private() -> None:
    first = Reply(tool_calls=(call("refund", number=7), hand_off(private=True)))
    _, model = play(talk(), first, "Thank you.", "Goodbye.")
    assert CLAIM in str(model.calls[1].prompt)
    first = Reply(tool_calls=(call("refund", number=7), hand_off("Manager", private=True)))
    script: list[Line] = [first, Reply(tool_calls=(hand_off("Customer", "Look."),)), "Bye."]
    _, model = play(talk(), *script)
    assert CLAIM not in str(model.calls[2].prompt)


def test_a_handoff_to_nobody_next_to_a_tool_is_read_as_an_error() -> None:
    first = Reply(tool_calls=(call("refund", number=7), hand_off("Zed")))
    result, model = play(talk(), first, *AFTER)
    assert result.transcript[0] == ("Orders", "I could not refund it.")
    assert "Zed cannot speak next" in str(model.calls[1].prompt)
    assert CLAIM not in all_heard(model, "Orders")


DECISIONS = {
    "approve": ({"type": "approve"}, True),
    "reject": ({"type": "reject", "message": "No."}, False),
    "respond": ({"type": "respond", "message": "Later."}, False),
    "edit": (
        {"type": "edit", "edited_action": {"name": "refund", "args": {"number": 9}}},
        False,
    ),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_handoff_waits_for_the_decision_of_a_person(decision: str, tmp_path: Path) -> None:
    """R30: only a call that ran as the speaker made it counts."""
    answer, is_done = DECISIONS[decision]
    store = f"sqlite:///{tmp_path / 'talks.db'}"
    first = Reply(tool_calls=(call("refund", number=7), hand_off()))
    model = ScriptedChatModel(script=[first, *(AFTER if not is_done else AFTER[1:])])
    options: dict[str, Any] = {"model": model, "tools": TOOLS}
    spec = talk(interrupt_on={"refund": True})
    asked = converse(spec, session="s", store=store, **options)
    assert asked.transcript == []
    assert "hand_off" not in str(asked.pending)
    result = Session("s", store=store).answer({"decisions": [answer]}, **options)
    assert result.transcript[0] == ("Orders", CLAIM if is_done else "I could not refund it.")
    assert results_are_paired(model)


def test_a_session_goes_on_between_the_tools_and_the_handoff(tmp_path: Path) -> None:
    """A failing hook after the tools repeats neither the tools nor the model's call."""
    store = f"sqlite:///{tmp_path / 'talks.db'}"
    seen: list[str] = []

    def after(turn: Turn, call: Any, result: ToolMessage) -> ToolMessage:  # noqa: ANN401
        seen.append(call["name"])
        if len(seen) == 1:
            raise RuntimeError("gone")
        return result

    ran.clear()
    first = Reply(tool_calls=(call("refund", number=7), hand_off()))
    model = ScriptedChatModel(script=[first, "Thank you.", "Goodbye."])
    options: dict[str, Any] = {"model": model, "tools": TOOLS}
    options["hooks"] = {"watch": Hook(after_tool=after)}
    with pytest.raises(Exception, match="gone"):
        converse(talk(hooks=["watch"]), session="s", store=store, **options)
    result = Session("s", store=store).resume(**options)
    assert result.transcript[:2] == [("Orders", CLAIM), ("Customer", "Thank you.")]
    assert (ran, seen) == ([7], ["refund", "refund"])


def test_a_hook_that_turns_a_result_into_an_error_stops_the_handoff() -> None:
    def after(turn: Turn, call: Any, result: ToolMessage) -> ToolMessage:  # noqa: ANN401
        return result.model_copy(update={"status": "error", "content": "It bounced."})

    first = Reply(tool_calls=(call("refund", number=7), hand_off()))
    hooks = {"watch": Hook(after_tool=after)}
    result, _ = play(talk(hooks=["watch"]), first, *AFTER, hooks=hooks)
    assert result.transcript[0] == ("Orders", "I could not refund it.")


@pytest.mark.parametrize(("number", "said"), [(7, CLAIM), (12, "I could not refund it.")])
def test_a_stream_says_the_message_once(number: int, said: str) -> None:
    first = Reply(tool_calls=(call("refund", number=number), hand_off()))
    model = ScriptedChatModel(script=[first, *(AFTER if number == 12 else AFTER[1:])])
    store = f"memory:{uuid4().hex}"
    events = list(stream(talk(), model=model, tools=TOOLS, store=store))
    texts = [one.text for one in events if isinstance(one, MessageSaid) and one.text]
    assert texts[0] == said
    assert texts.count(CLAIM) == (number == 7)


def test_a_text_that_a_call_sends_at_once_is_not_held_back() -> None:
    """A text for the user (`to_user`) is heard while the tool runs, the handoff's only after it."""
    first = Reply(
        tool_calls=(call("refund", number=12, to_user="One moment."), hand_off()),
    )
    result, _ = play(talk(speaks_with_tool_calls=True), first, *AFTER)
    assert [text for _, text in result.transcript[:2]] == ["One moment.", "I could not refund it."]
    first = Reply(
        tool_calls=(call("refund", number=7, to_user="One moment."), hand_off()),
    )
    result, _ = play(talk(speaks_with_tool_calls=True), first, *AFTER[1:])
    assert [text for _, text in result.transcript[:2]] == ["One moment.", CLAIM]


def test_calls_beyond_the_limit_on_rounds_do_not_hand_over() -> None:
    first = Reply(tool_calls=(call("refund", number=7),))
    second = Reply(tool_calls=(call("refund", number=8), hand_off()))
    spec = talk().replace(max_tool_rounds=1)
    result, model = play(spec, first, second, "Order 7 is refunded.", "Thank you.", "Goodbye.")
    assert result.transcript[0] == ("Orders", "Order 7 is refunded.")
    assert CLAIM not in all_heard(model, "Orders")
