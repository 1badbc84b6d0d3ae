"""Serialization of values in stores; `tests/faults` has the hostile values."""

import dataclasses
import re
from collections import deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_KW_ARGS, JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send, interrupt
from pydantic import BaseModel

from duologue.graphs import Session, ToolQuestion, build_graph, converse, role_play
from duologue.graphs.store.errors import UnknownTypeError
from duologue.graphs.store.serializer import PlainSerializer, check_storable
from duologue.nodes.testing import ScriptedChatModel
from support.graphs import RolePlayForm
from support.people_help import call, calls

KNOWN = [
    *(None, True, 3, 1.5, "ü", b"\x00", bytearray(b"a"), {"a": [1, None, {2: "b"}]}),
    AIMessage("a", id="m0", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}]),
    ToolMessage("b", tool_call_id="c", artifact={"rows": [1]}),
    *(HumanMessage("c", additional_kwargs={"k": {"v": 1}}), SystemMessage("d")),
    *(
        ChatMessage(content="e", role="r"),
        FunctionMessage(content="f", name="n"),
        AIMessageChunk(content="g"),
    ),
    *(RemoveMessage(id="m0"), _DeltaSnapshot([HumanMessage("h")]), Overwrite([1])),
    *(Send("tools", {"call": {"id": "c"}}), Send("tools", [HumanMessage("j")], timeout=5)),
    Interrupt({"a": HumanMessage("i")}, id="x", response_schema={"type": "string"}),
    *({1, 2}, frozenset({1}), deque([1]), UUID(int=3), Decimal("1.50"), Path("/a/b")),
    *(IPv4Address("1.2.3.4"), IPv6Network("::/64"), ZoneInfo("Europe/Paris")),
    *(datetime(2026, 1, 2, 3, tzinfo=UTC), datetime(2026, 1, 2), date(2026, 1, 2)),
    *(time(1, 2, 3, 4, tzinfo=UTC), timedelta(-1, 2, 3), timezone(timedelta(hours=1))),
]


@pytest.mark.parametrize("value", KNOWN, ids=lambda value: type(value).__name__)
def test_what_is_known_is_read_as_it_was_written(value: object) -> None:
    ours, theirs = PlainSerializer(), JsonPlusSerializer(allowed_msgpack_modules=None)
    written = ours.dumps_typed(value)
    assert ours.loads_typed(written) == value
    assert type(ours.loads_typed(written)) is type(value)
    # A store may have been written by an older release, or be read by one.
    assert theirs.loads_typed(written) == value
    assert ours.loads_typed(theirs.dumps_typed(value)) == value


class Colour(Enum):
    RED = "red"


class Seat(BaseModel):
    """A class of the user."""

    number: int = 1
    colour: Any = Colour.RED


@dataclasses.dataclass
class Row:
    seats: list[Seat]


@dataclasses.dataclass(frozen=True)
class Place:
    row: int


Pair = namedtuple("Pair", "left right")  # users write them so

SEAT = {"number": 1, "colour": "red"}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Seat(), SEAT),
        (Row([Seat()]), {"seats": [SEAT]}),
        (Pair(1, Row([])), {"left": 1, "right": {"seats": []}}),
        ({Colour.RED}, {"red"}),
        # Members of a set that become unhashable are stored in a list.
        ({(1, 2)}, [[1, 2]]),
        ({"a": frozenset({(1, (2, frozenset({3})))})}, {"a": [[1, [2, frozenset({3})]]]}),
        ({Place(1)}, [{"row": 1}]),
        (Interrupt({"options": {(1, 2)}}, id="x"), Interrupt({"options": [[1, 2]]}, id="x")),
        ([re.compile("a+"), ValueError("no")], ["a+", "ValueError('no')"]),
        (Interrupt(Seat(), id="x"), Interrupt(SEAT, id="x")),
        (
            ToolMessage("a", tool_call_id="c", artifact=Row([Seat()])),
            ToolMessage("a", tool_call_id="c", artifact={"seats": [SEAT]}),
        ),
    ],
)
def test_what_is_of_the_users_own_is_written_as_plain_data(value: object, plain: object) -> None:
    serializer = PlainSerializer()
    written = serializer.dumps_typed(value)
    assert serializer.loads_typed(written) == plain
    # No name of the user's class is left in it.
    assert __name__.rpartition(".")[2].encode() not in written[1]


@pytest.mark.parametrize("value", [object(), Seat, len, [{"a": object()}]])
def test_what_has_no_plain_form_is_refused_when_it_is_written(value: object) -> None:
    with pytest.raises(TypeError, match="not msgpack serializable"):
        PlainSerializer().dumps_typed(value)


def test_a_question_of_the_users_own_type_is_the_same_for_all_who_read_it(tmp_path: Path) -> None:
    @tool
    def seat(what: str) -> str:
        """Ask which seat."""
        return f"{what}: {interrupt(Seat())}"

    spec = role_play("Go out", "Ann", "Ben", specify_task=False).model_dump(mode="json")
    spec["speakers"][0]["tools"] = ["seat"]
    spec["end_chat"]["allow_unanswered_end"] = True
    session = Session("s", store=tmp_path / "x.db")
    model = ScriptedChatModel(script=[calls(call("seat", what="a")), "<CAMEL_TASK_DONE>"])
    asked = converse(spec, session=session, model=model, tools=[seat]).pending
    assert [one.value for one in asked if isinstance(one, ToolQuestion)] == [SEAT]
    assert session.state().pending == asked
    assert session.answer(Seat(number=7), model=model, tools=[seat]).outcome is not None


def test_what_could_not_be_read_back_is_not_stored() -> None:
    class Odd(Enum):
        PARTS = (1, 2)

    check_storable({frozenset({(1, 2)})})
    check_storable([{Odd.PARTS}, deque([1])])
    with pytest.raises(UnknownTypeError):
        check_storable(ormsgpack.Ext(EXT_CONSTRUCTOR_KW_ARGS, ormsgpack.packb(["os", "x", {}])))


async def test_a_graph_on_a_saver_of_langgraphs_may_use_it() -> None:
    model = ScriptedChatModel(script=["<CAMEL_TASK_DONE>"] * 2)
    saver = InMemorySaver(serde=PlainSerializer())
    graph = build_graph(checkpointer=saver, model=model, form=RolePlayForm)
    given: Any = {"task": "a", "user_role": "Ann", "assistant_role": "Ben", "specify_task": False}
    config: Any = {"configurable": {"thread_id": "s"}}
    state = await graph.ainvoke(given, config)
    assert state["outcome"]["reasons"] == ["done_token"]
    assert (await graph.aget_state(config)).values["outcome"] == state["outcome"]
