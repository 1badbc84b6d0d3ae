"""Tests of `get_history` (Z6): it returns lines that its caller heard in its session only (U6)."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from langchain_core.messages import HumanMessage, ToolMessage

from duologue.graphs import Conversation, Result, Session, converse, load_conversation
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.tables import read_rows

SECRET = "The vault opens with 4711."  # noqa: S105
FACT = "Otters hold hands."


def asks(args: dict[str, Any] | str, name: str = "get_history") -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=name, args=args, id="c")])


def talk(*, rounds: int = 2, first: str = "Ann", **fields: object) -> Conversation:
    given: dict[str, object] = {
        "task": "Talk.",
        "speakers": [{"name": "Ann", "tools": ["get_history"]}, {"name": "Bob"}],
        "opening": {"first_speaker": first},
        "end_chat": {"max_iterations": rounds},
    }
    return load_conversation(given | fields)


def run(
    script: list[Line],
    conversation: Conversation,
    store: str = "memory:history",
    session: str = "s",
) -> Result:
    model = ScriptedChatModel(script=script)
    return converse(conversation, model=model, store=store, session=session, reset=True)


def told(result: Result) -> list[tuple[str, str]]:
    return [
        (message.text, message.status)
        for message in result.messages
        if isinstance(message, ToolMessage)
    ]


@pytest.mark.part(3)
@pytest.mark.parametrize(("limit", "shown"), [(None, 5), (1, 1), (3, 3), (100, 8), ("2", 2)])
def test_the_last_lines_stand_there_each_with_who_said_it(limit: object, shown: int) -> None:
    """Z6: five lines by default; a number in quotes is a number."""
    args = {} if limit is None else {"limit": limit}
    said = [(name, f"Line {number}.") for number in range(4) for name in ("Ann", "Bob")]
    script: list[Line] = [*(text for _, text in said), asks(args), "I see.", "Ok."]
    result = run(script, talk(rounds=5))
    expected = "\n".join(f"{name}: {text}" for name, text in said[-shown:])
    assert told(result) == [(expected, "success")]


def test_where_nothing_was_said_that_is_told() -> None:
    """Z6."""
    assert told(run([asks({}), "Hi.", "Ho."], talk(rounds=1))) == [
        ("There are no messages yet.", "success")
    ]


@pytest.mark.part(3)
@pytest.mark.parametrize("limit", [0, -1, 101, 10**20, "many", None, 1.5, [5]])
def test_a_limit_out_of_bounds_is_a_wrong_argument(limit: object) -> None:
    """Z6: the limit is from 1 to 100."""
    [(text, status)] = told(run([asks({"limit": limit}), "Hi.", "Ho."], talk(rounds=1)))
    assert status == "error"
    assert "arguments of get_history" in text
    assert "limit" in text


def test_only_what_the_caller_may_hear_stands_there() -> None:
    """Z6: no other speaker's secret or opening answer, and no judge's question."""
    conversation = talk(
        rounds=1,
        speakers=[
            {"name": "Ann", "task": "Guess.", "tools": ["get_history"], "checks_completion": True},
            {"name": "Bob", "task": "Keep it.", "private_opening": {"prompt": "Choose."}},
        ],
        opening={"answers": True, "first_speaker": "Bob", "first_line": "Begin."},
        end_chat={"max_iterations": 1, "mode": "end_chat_after_first_completion"},
    )
    done = {"objectives_left": ["all"], "complete": False}
    script: list[Line] = [SECRET, "I guess.", "Mine alone.", "Hello.", asks({"limit": 100})]
    result = run([*script, "Hm.", done], conversation)
    assert told(result) == [("Ann: I guess.\nBob: Hello.", "success")]


def test_what_was_forgotten_or_replaced_by_a_hook_does_not_stand_there() -> None:
    """Z6: the tool returns the caller's current memory."""

    def veil(turn: Turn) -> HumanMessage | None:
        return HumanMessage("Something about otters.") if turn.heard == FACT else None

    conversation = talk(
        first="Bob",
        rounds=1,
        speakers=[
            {"name": "Ann", "tools": ["get_history"], "hooks": ["veil"]},
            {"name": "Bob"},
        ],
    )
    model = ScriptedChatModel(script=[FACT, asks({}), "Hm."])
    result = converse(
        conversation, model=model, store="memory:", hooks={"veil": Hook(before_speaker=veil)}
    )
    assert FACT not in told(result)[0][0]


OTHER = talk(rounds=1)


@pytest.fixture(scope="module")
def store() -> str:
    """Return a store in which another session contains the secret."""
    name = "memory:history-of-others"
    run([SECRET, "Noted."], OTHER, store=name, session="other")
    assert Session("other", store=name).state().last_message("Ann") == SECRET
    return name


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("args", "name"),
    [
        *((args, "get_history") for args in read_rows(__file__, "another_session_can_not_be_read")),
        *(({}, name) for name in ("get_history:other", "other.get_history", "get_history(other)")),
    ],
)
def test_another_session_can_not_be_read(args: Any, name: str, store: str) -> None:  # noqa: ANN401
    """Z6: no speaker's request, no arguments of a model and no tool's name reach it."""
    script: list[Line] = ["Show me session other.", "Please.", asks(args, name), "Hm.", "Ok."]
    result = run(script, talk(), store=store, session="mine")
    assert len(told(result)) == 1
    assert SECRET not in "".join(message.text for message in result.messages)
    assert SECRET not in str(told(result))


FIELDS = ["limit", "session", "session_id", "runtime", "state", "config", "thread_id", "messages"]
INNER = st.sampled_from(["session", "thread_id"])


@pytest.mark.usefixtures("store")
@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(FIELDS),
        st.recursive(
            st.one_of(st.integers(-3, 103), st.sampled_from(["other", "Ann", ""]), st.none()),
            lambda inner: st.dictionaries(INNER, inner, max_size=2),
            max_leaves=4,
        ),
        max_size=4,
    )
)
def test_no_arguments_whatever_read_another_session(args: dict[str, Any]) -> None:
    """Z6."""
    name = "memory:history-of-others"
    result = run(["Hi.", "Ho.", asks(args), "Hm.", "Ok."], talk(), store=name, session="mine")
    [(text, status)] = told(result)
    own = ["Ann: Hi.", "Bob: Ho."]
    assert status == "error" or text.splitlines() in (own, own[-1:])
    assert "4711" not in text


def test_names_that_look_like_sessions_lead_nowhere(store: str) -> None:
    """Z6: a speaker named like another session, or like one of its speakers, reads its own."""
    conversation = talk(
        speakers=[{"name": "other", "tools": ["get_history"]}, {"name": "Ann"}],
        opening={"first_speaker": "other"},
    )
    result = run(["Hi.", "Ho.", asks({}), "Hm.", "Ok."], conversation, store=store, session="o")
    assert told(result) == [("other: Hi.\nAnn: Ho.", "success")]
