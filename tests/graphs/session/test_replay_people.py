"""Sessions with people, tools and code replay without questions to people (U7).

The log contains each person's answer in some form: as a message, as a call's result, or as the end.
"""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import tool
from langgraph.types import interrupt

from duologue.graphs import Conversation, Session, SessionError, chat, converse, user_proxy
from duologue.nodes.models.tools_by_schema import ARGUMENTS, TOOL
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.logs import as_replayed
from support.people_help import Played, call, calls, play

RAN: list[str] = []
"""Calls of the tools."""


@tool
def mail(to: str) -> str:
    """Send a mail."""
    RAN.append(to)
    return f"Sent to {to}."


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"Seen {at}."


@tool
def wonder(what: str) -> str:
    """Ask a person."""
    return f"{what}: {interrupt(what)}"


def _other(_: Turn, made: ToolCall) -> ToolCall:
    return ToolCall(name=made["name"], args={"to": "Eve"}, id=made["id"])


def _praised(_: Turn, __: ToolCall, found: ToolMessage) -> ToolMessage:
    return ToolMessage(f"{found.text} Well done.", tool_call_id="any")


def _loud(_: Turn, reply: AIMessage) -> AIMessage:
    return AIMessage(reply.text.upper())


def _whispered(turn: Turn) -> HumanMessage:
    return HumanMessage(f"({turn.heard})")


REGISTERED: dict[str, Any] = {
    "tools": [mail, look, wonder],
    "hooks": {
        "talk": Hook(before_speaker=_whispered, after_speaker=_loud),
        "tools": Hook(before_tool=_other, after_tool=_praised),
    },
}


def two(ann: dict[str, Any] | None = None, ben: dict[str, Any] | None = None) -> Conversation:
    """Return a conversation of Ann, who may have tools, and Ben, who may be a person."""
    speakers = [{"name": "Ann", **(ann or {})}, {"name": "Ben", **(ben or {})}]
    many = 9 if ben else 1
    return Conversation.model_validate(
        {"task": "Write.", "speakers": speakers, "end_chat": {"max_iterations": many}}
    )


def asking(**rule: Any) -> Conversation:
    """Return a conversation in which Ann asks before she mails."""
    ann = {"tools": ["mail", "look"], "interrupt_on": {"mail": rule or True}}
    return two(ann)


def speaking(**ann: Any) -> Conversation:
    """Return a conversation in which Ann speaks while she mails."""
    return two({"tools": ["mail"], "speaks_with_tool_calls": True, **ann})


MAIL = calls(call("mail", to="Bob"), text="Now")
SPOKEN: list[Line] = ["Done.", "Fine."]
PERSON = {"replies": ["human", {"kind": "text", "text": "Go on."}]}
EDIT = {"type": "edit", "edited_action": {"name": "look", "args": {"at": "it"}}}
SAME = {"type": "edit", "edited_action": {"name": "mail", "args": {"to": "Bob"}}}
REJECT = {"type": "reject", "message": "No. They say: never."}
TO_USER = call("mail", to="Bob", to_user="I mail Bob.")
BROKEN = ScriptedToolCall(name="mail", args='{"to_user": "And Eve.", "to": ', id="call 2")
EMPTY = ScriptedToolCall(name="mail", args="", id="call 1")

CASES: dict[str, tuple[Conversation, list[Line], list[Any]]] = {
    "said and left": (two(ben={"replies": ["human"]}), ["a", "b", "c"], ["x", " y\n", "exit"]),
    "nothing said": (two(ben=PERSON), ["a", "b", "c"], ["x", "", "EXIT"]),
    "still waiting": (two(ben=PERSON), ["a", "b", "c"], ["", "x"]),
    "said past hooks": (two(ben=PERSON | {"hooks": ["talk"]}), ["a", "b"], ["x", "exit"]),
    "approved": (asking(), [MAIL, *SPOKEN], [{"decisions": [{"type": "approve"}]}]),
    "edited": (asking(), [MAIL, *SPOKEN], [{"decisions": [EDIT]}]),
    "rejected": (asking(), [MAIL, *SPOKEN], [{"decisions": [REJECT]}]),
    "rejected without a word": (asking(), [MAIL, *SPOKEN], [{"decisions": [{"type": "reject"}]}]),
    "answered": (
        asking(),
        [MAIL, *SPOKEN],
        [{"decisions": [{"type": "respond", "message": "Sent already."}]}],
    ),
    "edited to the same": (
        asking(allowed_decisions=["edit"]),
        [MAIL, *SPOKEN],
        [{"decisions": [SAME]}],
    ),
    "decided one by one": (
        asking(),
        [calls(call("mail", 1, to="A"), call("look", 2, at="B"), call("mail", 3, to="C")), *SPOKEN],
        [{"decisions": [REJECT, {"type": "approve"}]}],
    ),
    "decided past hooks": (
        two({"tools": ["mail"], "interrupt_on": {"mail": True}, "hooks": ["tools"]}),
        [calls(call("mail", 1, to="A"), call("mail", 2, to="B")), *SPOKEN],
        [{"decisions": [{"type": "approve"}, {"type": "respond", "message": "Sent."}]}],
    ),
    "not decided": (asking(), [MAIL], []),
    "left at calls": (asking(), [MAIL], ["exit"]),
    "calls interrupted": (
        user_proxy("Write.", tools=("mail",)),
        [MAIL, "Done. TERMINATE"],
        ["Wait.", ""],
    ),
    "calls let run": (user_proxy("Write.", tools=("mail",)), [MAIL, "Done. TERMINATE"], ["", ""]),
    "automatic replies": (
        user_proxy("Write.", human_input_mode="TERMINATE", max_consecutive_auto_reply=1),
        ["a", "b", "c", "d TERMINATE"],
        ["", "Go on.", ""],
    ),
    "code": (
        user_proxy("Compute.", sandbox={"level": "monty"}),
        ["```python\nx = 6\n```", "```python\nprint(x * 7)\n```", "TERMINATE"],
        ["", "", ""],
    ),
    "a chat": (chat(tools=("mail",)), [calls(TO_USER), *SPOKEN], ["Mail.", "And?", "exit"]),
    "said beside calls": (
        speaking(),
        [calls(TO_USER, call("mail", 2, to="Eve"), text="Now"), *SPOKEN],
        [],
    ),
    "said beside a broken call": (speaking(), [calls(TO_USER, BROKEN, text="Now"), *SPOKEN], []),
    "called by a schema": (
        two({"tools": ["mail"], "tool_calling": "schema"}),
        [{TOOL: "mail", ARGUMENTS: {"to": "Bob"}}, *SPOKEN],
        [],
    ),
    "cut off before any argument": (
        two({"tools": ["mail"]}),
        [Reply(tool_calls=[EMPTY], finish_reason="length"), *SPOKEN],
        [],
    ),
    "cut off before its mark": (
        two(
            {
                "format": {"kind": "blocks", "begin": "<<", "end": ">>"},
                "model_settings": {"stop": [">>"]},
            }
        ),
        [Reply(text="So <<plan it", finish_reason="length"), "So <<plan it>>", "Fine."],
        [],
    ),
}


def played(name: str) -> Played:
    conversation, script, answers = CASES[name]
    return play(
        conversation, script, answers, store=f"memory:{name.replace(' ', '-')}", **REGISTERED
    )


@pytest.mark.part(3)
@pytest.mark.parametrize("name", CASES)
def test_what_people_and_models_said_is_taken_from_the_log(name: str) -> None:
    recorded = played(name).result
    again = Session("s", store=f"memory:{name.replace(' ', '-')}").replay(**REGISTERED)
    assert as_replayed(again.messages) == as_replayed(recorded.messages)
    assert (again.outcome is None) is (recorded.outcome is None)
    if again.outcome is not None and recorded.outcome is not None:
        assert again.outcome.explanations == recorded.outcome.explanations


@pytest.mark.exhaustive
def test_what_was_told_while_an_answer_came_stays_where_it_stood(tmp_path: Path) -> None:
    """G1: streamed text that arrived after the calls keeps its place."""

    class Late(ScriptedChatModel):
        """A model that streams text after its calls."""

        async def _astream(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            async for chunk in super()._astream(*args, **kwargs):
                is_last = getattr(chunk.message, "chunk_position", None) == "last"
                if is_last and len(self.calls) == 1:
                    yield type(chunk)(message=AIMessageChunk(content=" Soon."))
                yield chunk

    store = f"memory:{tmp_path.name}"
    model = Late(script=[calls(TO_USER, text="Now"), *SPOKEN])
    recorded = converse(speaking(), session="s", store=store, model=model, **REGISTERED)
    assert recorded.transcript[0] == ("Ann", "Now\n\nI mail Bob.\n\nSoon.")
    assert as_replayed(Session("s", store=store).replay(**REGISTERED).messages) == as_replayed(
        recorded.messages
    )


def test_nothing_runs_behind_the_first_message_that_differs_nor_behind_the_record() -> None:
    @tool("look")
    def blind(at: str) -> str:
        """Look at something."""
        return "Nothing."

    look_and_mail = [calls(call("look", at="it")), calls(call("mail", 2, to="Bob")), *SPOKEN]
    store = "memory:differs"
    play(two({"tools": ["mail", "look"]}), look_and_mail, store=store, **REGISTERED)
    RAN.clear()
    with pytest.raises(SessionError, match=r"its text is 'Nothing\.' instead of"):
        Session("s", store=store).replay(**REGISTERED | {"tools": [mail, blind]})
    assert RAN == []

    def fails(_: Turn, __: ToolCall) -> ToolCall:
        raise ValueError("not now")

    store = "memory:broken-off"
    hooks = REGISTERED["hooks"] | {"tools": Hook(before_tool=fails)}
    with pytest.raises(Exception, match="not now"):
        play(
            two({"tools": ["mail"], "hooks": ["tools"]}),
            [MAIL],
            store=store,
            **REGISTERED | {"hooks": hooks},
        )
    again = Session("s", store=store).replay(**REGISTERED)
    assert again.messages[-1].text == "Now"
    assert RAN == []


def test_a_person_s_answer_that_does_not_fit_any_more_is_told_with_the_message() -> None:
    played("edited")

    @tool("look")
    def elsewhere(where: str) -> str:
        """Look at something."""
        return where

    with pytest.raises(SessionError, match=r"at message m0002: the answer does not fit.*where"):
        Session("s", store="memory:edited").replay(**REGISTERED | {"tools": [mail, elsewhere]})


def test_a_tool_that_asks_a_person_is_named_and_may_be_replaced() -> None:
    ann = {"tools": ["wonder"]}
    script = [calls(call("wonder", what="Why")), *SPOKEN]
    recorded = play(two(ann), script, ["Because."], store="memory:asks", **REGISTERED).result
    with pytest.raises(SessionError, match=r"can't be replayed after message m0001: a tool asks"):
        Session("s", store="memory:asks").replay(**REGISTERED)

    @tool("wonder")
    def knows(what: str) -> str:
        """Return an answer without a question to a person."""
        return f"{what}: Because."

    again = Session("s", store="memory:asks").replay(tools=[knows])
    assert as_replayed(again.messages) == as_replayed(recorded.messages)


def test_what_was_said_for_a_person_by_say_replays_as_the_answer() -> None:
    store = "memory:said"
    play(chat(), [], [], store=store)
    Session("s", store=store).add_message("User", "Good morning.")
    assert Session("s", store=store).replay().transcript == [("User", "Good morning.")]


def test_a_run_that_time_or_money_ended_replays_as_far_as_it_went() -> None:
    """A run that a limit ended replays to its end, although single calls' usage is not stored."""
    ends: dict[str, dict[str, Any]] = {
        "tokens": {"end_chat": {"when": {"kind": "max_tokens", "limit": 60}}},
        "cost": {
            "end_chat": {"when": {"kind": "max_cost", "limit": 0.00005}},
            "prices": {"ScriptedChatModel": {"input": 1.0, "output": 1.0}},
        },
    }
    for name, fields in ends.items():
        conversation = Conversation.model_validate(
            {"task": "Write.", "speakers": [{"name": "Ann"}, {"name": "Ben"}], **fields}
        )
        script: list[Line] = [f"This is number {number}." for number in range(10)]
        recorded = play(conversation, script, store=f"memory:{name}").result
        assert recorded.outcome is not None
        assert recorded.outcome.reason == f"max_{name}"
        again = Session("s", store=f"memory:{name}").replay()
        assert as_replayed(again.messages) == as_replayed(recorded.messages)
        assert again.outcome is None
