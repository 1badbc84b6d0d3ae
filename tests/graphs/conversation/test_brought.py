"""Objects passed in place of names: registered automatically, stored as names."""

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from pydantic import BaseModel

from duologue.graphs import (
    Conversation,
    EndChat,
    Predicate,
    SchemaFormat,
    Session,
    Speaker,
    SpecError,
    TurnFunction,
    chat,
    converse,
    group_solve,
    load_conversation,
    user_proxy,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn

CALL = ScriptedToolCall(name="search", args={"query": "beans"}, id="1")
SCRIPT: list[str | Reply] = [
    Reply(tool_calls=[CALL]),
    "Beans grow fast.",
    '{"steps": "Sow."}',
    "And peas?",
]


def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def another() -> Any:  # noqa: ANN401
    def search(query: str) -> str:
        """Search elsewhere."""
        return query

    return search


class Plan(BaseModel):
    """A plan."""

    steps: str


def shout(turn: Turn, reply: AIMessage) -> AIMessage:
    return AIMessage(reply.text.upper())


def done(messages: Sequence[BaseMessage]) -> bool:
    return len(messages) > 2


def alternate(messages: Sequence[BaseMessage], names: Sequence[str]) -> str:
    return names[len(messages) % 2]


def greet(turn: Turn) -> str | None:
    return "Hello." if not turn.messages else None


LOUD = Hook(after_speaker=shout)


def brought(**fields: Any) -> Conversation:
    """Return a conversation with one object of each kind."""
    ann: dict[str, Any] = {
        "name": "Ann",
        "tools": [search],
        "hooks": [LOUD],
        "replies": [greet, "model"],
    }
    bob: dict[str, Any] = {"name": "Bob", "format": SchemaFormat(Plan, form="text")}
    made: dict[str, Any] = {
        "task": "Plan a garden.",
        "speakers": (Speaker(**ann), Speaker(**bob)),
        "turn_order": TurnFunction(alternate),
        "end_chat": EndChat(when=Predicate(done) | Predicate("done")),
    }
    return Conversation(**made | fields)


def named() -> Conversation:
    """Return the same conversation with names."""
    ann: dict[str, Any] = {"name": "Ann", "tools": ["search"], "hooks": ["shout"]}
    ann["replies"] = [{"kind": "function", "name": "greet"}, "model"]
    bob = {"name": "Bob", "format": {"name": "Plan", "form": "text"}}
    ends = [{"kind": "predicate", "name": "done"}] * 2
    return load_conversation(
        {
            "task": "Plan a garden.",
            "speakers": [ann, bob],
            "turn_order": {"kind": "function", "name": "alternate"},
            "end_chat": {"when": ends},
        }
    )


REGISTERED: dict[str, Any] = {
    "tools": [search],
    "hooks": {"shout": LOUD},
    "functions": {"greet": greet},
    "schemas": {"Plan": Plan},
    "predicates": {"done": done},
    "orders": {"alternate": alternate},
}


def test_as_data_there_are_names_alone() -> None:
    made = brought()
    assert made == named()
    assert made.stored() == named().stored()
    assert made.to_toml() == named().to_toml()
    assert made.model_dump_json() == named().model_dump_json()
    assert load_conversation(made.stored()) == made


def test_what_is_brought_runs_as_what_is_registered() -> None:
    model = ScriptedChatModel(script=SCRIPT)
    by_itself = converse(brought(), model=model, store="memory:brought")
    model = ScriptedChatModel(script=SCRIPT)
    by_name = converse(named(), model=model, store="memory:named", **REGISTERED)
    assert by_itself.transcript == by_name.transcript
    assert by_itself.outcome is not None
    assert by_itself.outcome.reason == "predicate"


def test_copies_bring_the_same_objects() -> None:
    """Copies keep the objects, but a pickle has only names, as local functions can't be pickled."""
    made = chat("Hi.", tools=[another()])
    for one in (made, made.model_copy(), made.model_copy(deep=True), copy.deepcopy(made)):
        result = converse(one, model=ScriptedChatModel(script=["Hi."]), store="memory:")
        assert result.transcript[-1] == ("Assistant", "Hi.")
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301  # of our own


def test_a_session_goes_on_with_the_same_objects(tmp_path: Any) -> None:  # noqa: ANN401
    """A resume by id needs registered objects, and the error names the missing ones."""
    talk = chat("Beans?", tools=[search], interrupt_on={"search": True})
    store = tmp_path / "s.db"
    waits = converse(talk, session="s", model=ScriptedChatModel(script=[SCRIPT[0]]), store=store)
    assert waits.pending
    model = ScriptedChatModel(script=["Beans grow."])
    with pytest.raises(SpecError, match=r"^speakers\.1\.tools: there is no tool 'search'; pass it"):
        Session("s", store=store).resume(model=model)
    approved = {"decisions": [{"type": "approve"}]}
    again = converse(
        chat("Beans?", tools=[search], interrupt_on={"search": True}),
        session="s",
        model=model,
        store=store,
        answer=lambda question: approved if question.kind == "approval" else "exit",
    )
    assert again.transcript == [("User", "Beans?"), ("Assistant", "Beans grow.")]
    assert [one.text for one in again.messages if one.type == "tool"] == ["found beans"]


def test_a_session_by_its_id_takes_a_registered_function(tmp_path: Any) -> None:  # noqa: ANN401
    talk = chat("Beans?", tools=[search], interrupt_on={"search": True})
    store = tmp_path / "s.db"
    converse(talk, session="s", model=ScriptedChatModel(script=[SCRIPT[0]]), store=store)
    approved = {"decisions": [{"type": "approve"}]}
    model = ScriptedChatModel(script=["Beans grow."])
    result = Session("s", store=store).answer(approved, model=model, tools=[search])
    assert result.transcript[-1] == ("Assistant", "Beans grow.")


@pytest.mark.parametrize("given", [search, tool(search)], ids=["function", "tool"])
def test_a_function_is_told_to_models_as_its_tool(given: BaseTool) -> None:
    model = ScriptedChatModel(script=["Hi."])
    result = converse(
        chat("Hi.", tools=[given], speaks_with_tool_calls=False), model=model, store="memory:"
    )
    assert result.transcript[-1] == ("Assistant", "Hi.")
    (told,) = [found["function"] for found in model.calls[0].tools]
    assert (told["name"], told["description"]) == ("search", "Search the web.")
    assert told["parameters"]["properties"] == {"query": {"type": "string"}}


def test_an_async_function_is_a_tool() -> None:
    async def look(query: str) -> str:
        """Look it up."""
        return f"looked up {query}"

    call = ScriptedToolCall(name="look", args={"query": "peas"}, id="1")
    model = ScriptedChatModel(script=[Reply(tool_calls=[call]), "Done."])
    result = converse(chat("Hi.", tools=[look]), model=model, store="memory:")
    assert [one.text for one in result.messages if one.type == "tool"] == ["looked up peas"]


def test_a_hook_that_is_brought_can_be_taken_away_for_a_run() -> None:
    pair = (Speaker(name="Ann", hooks=[LOUD]), Speaker(name="Bob"))
    talk = Conversation(task="Plan.", speakers=pair, end_chat=EndChat(max_iterations=1))

    def first(**registered: Any) -> str:
        model = ScriptedChatModel(script=["One.", "Two."])
        return converse(talk, model=model, store="memory:", **registered).transcript[0][1]

    assert (first(), first(hooks={"shout": None})) == ("ONE.", "One.")


def test_a_user_proxy_takes_functions() -> None:
    proxy = user_proxy(
        "Hi.", is_termination=done, functions=[greet], tools=[search], human_input_mode="NEVER"
    )
    model = ScriptedChatModel(script=["One.", "Two.", "Three."])
    result = converse(proxy, model=model, store="memory:")
    assert result.outcome is not None
    assert (result.outcome.reason, len(result.transcript)) == ("termination", 4)


def test_a_group_solve_takes_functions() -> None:
    given = {"name": "Ann", "task": "a", "tools": [search]}
    group = group_solve([given, Speaker(name="Bob", task="b", tools=[search])])
    assert group.speakers[0].tools == ("search",)
    model = ScriptedChatModel(script=["One.", "Two."] * 6)
    assert converse(group, model=model, store="memory:").outcome


def two(first: Any, second: Any, **registered: Any) -> None:  # noqa: ANN401
    pair = (Speaker(name="Ann", tools=[first]), Speaker(name="Bob", tools=[second]))
    talk = Conversation(task="Plan.", speakers=pair, end_chat=EndChat(max_iterations=1))
    model = ScriptedChatModel(script=["One.", "Two."])
    converse(talk, model=model, store="memory:", **registered)


def test_the_same_object_may_be_given_twice() -> None:
    two(search, search)
    two(search, search, tools=[search])
    two(search, "search", tools=[search])


@pytest.mark.parametrize(
    ("first", "second", "registered", "at"),
    [
        (search, another(), {}, "speakers.1.tools"),
        (search, "search", {"tools": [another()]}, "speakers.0.tools"),
    ],
)
def test_two_objects_of_one_name_are_one_clear_error(
    first: object, second: object, registered: dict[str, Any], at: str
) -> None:
    with pytest.raises(SpecError) as caught:
        two(first, second, **registered)
    said = f"{at}: two different tools are named 'search'; give each a unique name"
    assert str(caught.value) == said


def undocumented(query: str) -> str:
    return query


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Predicate(lambda messages: True), "name: a lambda has no name; write a function"),
        (lambda: Speaker(name="Ann", hooks=[Hook()]), "hooks.0: has no name; register"),
        (lambda: Speaker(name="Ann", tools=[3]), "tools.0: input should be a valid string, not 3"),  # type: ignore[list-item]
        (
            lambda: Speaker("Ann", tools=[dict]),
            "tools.0: must be a function, a named object or a name, not the class dict",
        ),
        (lambda: Predicate(3), "name: input should be a valid string, not 3"),  # type: ignore[arg-type]
        (lambda: two(Plan, "x"), "speakers.0.tools: 'Plan' must be a function or a LangCh"),
        (
            lambda: two(undocumented, "x"),
            "speakers.0.tools: the function 'undocumented' has no d",
        ),
        (
            lambda: converse(brought(turn_order=TurnFunction(done)), store="memory:"),
            "turn_order.name: 'done' must take (messages, names): too many positional arguments",
        ),
    ],
)
def test_what_can_not_be_brought_is_one_clear_error(make: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value).startswith(said)
