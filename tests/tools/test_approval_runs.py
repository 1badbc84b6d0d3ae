"""Approval before tools run, and tools that ask by ``interrupt()``: issue 6, point 4, in the graph.

Each conversation runs on memory and on SQLite; tools note every run, so that none is missed.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, Interrupt, interrupt
from pydantic import BaseModel

from duologue.graphs import AnswerError, DuologueError, Reason, SpecError, build_graph
from duologue.graphs.build import Graph
from duologue.graphs.log.channels import log_of
from duologue.graphs.log.messages import About, Failure, line
from duologue.graphs.run.events import ToolAnswered, events_of
from duologue.nodes.testing import Line as Scripted, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook

Saver = BaseCheckpointSaver[Any]

APPROVE: dict[str, Any] = {"type": "approve"}
REJECT: dict[str, Any] = {"type": "reject", "message": "Not on a Sunday."}
RESPOND: dict[str, Any] = {"type": "respond", "message": "Already sent."}
YES: Any = object()
"""Answers the question with an approval of all calls."""


def edited(name: str = "mail", **args: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": args}}


@pytest.fixture(params=["memory", "sqlite"])
async def saver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Saver]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "s.db")) as found:
        yield found


class Size(BaseModel):
    """An answer to a tool."""

    size: int


class Talk:
    """A conversation between Ann, who has tools, and Bob, with a note of each run of a tool."""

    def __init__(self, saver: Saver, script: Sequence[Scripted], **ann: Any) -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.model = ScriptedChatModel(script=script)
        self.more: dict[str, Any] = ann.pop("more", {})
        self.fields: dict[str, Any] = ann.pop("fields", {})
        tools = {one.name: one for one in self._tools()}
        self.spec = {
            "task": "Write.",
            "speakers": [{"name": "Ann", "tools": list(tools)} | ann, {"name": "Bob"}],
            "end_chat": {"max_iterations": 1},
        } | self.fields
        given: Any = {"model": self.model, "tools": list(tools.values())} | self.more
        self.graph: Graph = build_graph(checkpointer=saver, **given)
        self.config: Any = {"configurable": {"thread_id": "s"}}

    def _tools(self) -> list[BaseTool]:
        ran = self.ran

        @tool
        async def mail(to: str) -> str:
            """Sends a mail."""
            ran.append(("mail", to))
            return f"Sent to {to}."

        @tool
        def look(at: str) -> str:
            """Looks at something."""
            ran.append(("look", at))
            return f"Seen {at}."

        @tool
        async def ask(what: str) -> str:
            """Asks a person."""
            ran.append(("ask", what))
            found = interrupt({"what": what}, response_schema=Size)
            ran.append(("asked", what))
            return f"{what}: {found.size}"

        @tool
        def ask_freely(what: str) -> str:
            """Asks a person for anything."""
            ran.append(("ask_freely", what))
            return f"{what}: {interrupt(what)}"

        return [mail, look, ask, ask_freely]

    async def start(self) -> list[Interrupt]:
        return await self._on({"conversation": self.spec})

    async def answer(self, value: Any) -> list[Interrupt]:  # noqa: ANN401
        return await self._on(Command(resume=value))

    async def decide(self, *decisions: dict[str, Any]) -> list[Interrupt]:
        return await self.answer({"decisions": [*decisions]})

    async def go_on(self) -> list[Interrupt]:
        return await self._on(None)

    async def _on(self, given: Any) -> list[Interrupt]:  # noqa: ANN401
        found = await self.graph.ainvoke(given, self.config, durability="sync")
        return list(found.get("__interrupt__", []))

    async def pending(self) -> list[Interrupt]:
        return list((await self.graph.aget_state(self.config)).interrupts)

    async def values(self) -> Any:  # noqa: ANN401
        return (await self.graph.aget_state(self.config)).values

    async def results(self) -> list[ToolMessage]:
        log = log_of(await self.values())
        return [one for one in log if isinstance(one, ToolMessage)]

    async def said(self) -> list[str]:
        log = log_of(await self.values())
        return [one.text for one in log if line(one).kind == "speech"]


def call(name: str, call_id: str, **args: Any) -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=call_id)


def calls(*made: ScriptedToolCall) -> Reply:
    return Reply(tool_calls=made)


MAIL = call("mail", "c1", to="Bob")
LOOK = call("look", "c2", at="it")
BOTH = calls(MAIL, LOOK)
END: list[Scripted] = ["Done.", "Fine."]
ASKS: dict[str, Any] = {"interrupt_on": {"mail": True}}


def about(message: ToolMessage) -> About:
    return line(message)


# The question


async def test_a_person_is_asked_before_anything_runs(saver: Saver) -> None:
    talk = Talk(saver, [BOTH, *END], **ASKS)
    (asked,) = await talk.start()
    assert asked.value == {
        "action_requests": [
            {
                "name": "mail",
                "args": {"to": "Bob"},
                "description": 'Ann wants to call mail with {"to": "Bob"}.',
            }
        ],
        "review_configs": [
            {
                "action_name": "mail",
                "allowed_decisions": ["approve", "edit", "reject", "respond"],
                "args_schema": {
                    "type": "object",
                    "properties": {"to": {"type": "string"}},
                    "required": ["to"],
                },
            }
        ],
    }
    assert asked.response_schema is not None
    assert set(asked.response_schema["properties"]) == {"decisions"}
    assert [one.id for one in await talk.pending()] == [asked.id]
    assert talk.ran == []
    assert await talk.results() == []


async def test_one_question_holds_all_calls_that_need_it_in_their_order(saver: Saver) -> None:
    made = (call("look", "c1", at="1"), MAIL.model_copy(update={"id": "c2"}), LOOK)
    made = (*made[:2], call("look", "c3", at="3"))
    rules = {"look": {"allowed_decisions": ["approve", "reject"]}, "mail": True, "ask": False}
    talk = Talk(saver, [calls(*made), *END], interrupt_on=rules)
    (asked,) = await talk.start()
    requests = asked.value["action_requests"]
    assert [(one["name"], one["args"]) for one in requests] == [
        ("look", {"at": "1"}),
        ("mail", {"to": "Bob"}),
        ("look", {"at": "3"}),
    ]
    assert await talk.decide(REJECT, APPROVE, APPROVE) == []
    assert sorted(talk.ran) == [("look", "3"), ("mail", "Bob")]
    assert [about(one).decision for one in await talk.results()] == ["reject", "approve", "approve"]


async def test_nobody_is_asked_about_other_tools(saver: Saver) -> None:
    rules = {"look": False, "ask": True}
    talk = Talk(saver, [BOTH, *END], interrupt_on=rules)
    assert await talk.start() == []
    assert [about(one).decision for one in await talk.results()] == [None, None]


# What each decision does


async def test_what_is_approved_runs_as_it_was_made(saver: Saver) -> None:
    talk = Talk(saver, [BOTH, *END], **ASKS)
    await talk.start()
    assert await talk.decide(APPROVE) == []
    assert sorted(talk.ran) == [("look", "it"), ("mail", "Bob")]
    first, second = await talk.results()
    assert (first.text, about(first).decision, about(first).arguments) == (
        "Sent to Bob.",
        "approve",
        None,
    )
    assert (second.text, about(second).decision) == ("Seen it.", None)
    assert await talk.said() == ["Done.", "Fine."]


@pytest.mark.parametrize(
    ("decision", "ran", "tool_run", "told"),
    [
        (
            edited("mail", to="Zoë"),
            ("mail", "Zoë"),
            None,
            'to mail with {"to": "Zoë"}. What came of it:\nSent to Zoë.',
        ),
        (
            edited("look", at="Bob"),
            ("look", "Bob"),
            "look",
            'to look with {"at": "Bob"}. What came of it:\nSeen Bob.',
        ),
    ],
)
async def test_what_is_edited_runs_as_a_person_wrote_it_and_the_speaker_is_told(
    saver: Saver, decision: dict[str, Any], ran: tuple[str, str], tool_run: str | None, told: str
) -> None:
    talk = Talk(saver, [calls(MAIL), *END], **ASKS)
    await talk.start()
    assert await talk.decide(decision) == []
    assert talk.ran == [ran]
    (result,) = await talk.results()
    assert result.text == f"A person changed this call before it ran, {told}"
    assert result.status == "success"
    assert about(result).decision == "edit"
    assert about(result).tool == tool_run
    assert about(result).arguments == decision["edited_action"]["args"]
    # The speaker sees the call as it made it.
    shown = [one for one in talk.model.calls[1].prompt if one["role"] == "assistant"]
    assert "Bob" in str(shown[-1]["tool_calls"])
    assert told in str(talk.model.calls[1].prompt[-1]["content"])
    (made,) = [
        one.tool_calls
        for one in log_of(await talk.values())
        if isinstance(one, AIMessage) and one.tool_calls
    ]
    assert [(one["name"], one["args"]) for one in made] == [("mail", {"to": "Bob"})]


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (
            REJECT,
            "A person refused the call of mail, so it did not run. They say: Not on a Sunday.",
        ),
        (
            {"type": "reject"},
            "A person refused the call of mail, so it did not run. They gave no reason.",
        ),
    ],
)
async def test_what_is_refused_does_not_run_and_is_nobodys_error(
    saver: Saver, decision: dict[str, Any], told: str
) -> None:
    """Y19: it counts as no error of either kind."""
    fields = {"max_call_errors": 1, "max_tool_errors": 1}
    talk = Talk(saver, [BOTH, *END], fields=fields, **ASKS)
    await talk.start()
    assert await talk.decide(decision) == []
    assert talk.ran == [("look", "it")]
    refused, _ = await talk.results()
    assert (refused.text, refused.status) == (told, "error")
    assert (about(refused).failure, about(refused).decision) == (Failure.PERSON, "reject")
    assert about(refused).refusal == decision.get("message")
    assert (await talk.values())["outcome"]["reasons"] == [Reason.MAX_ITERATIONS.value]


async def test_who_answers_in_a_tools_place_is_its_result(saver: Saver) -> None:
    talk = Talk(saver, [calls(MAIL), *END], **ASKS)
    await talk.start()
    assert await talk.decide(RESPOND) == []
    assert talk.ran == []
    (result,) = await talk.results()
    assert (result.text, result.status) == ("Already sent.", "success")
    assert (about(result).failure, about(result).decision) == (None, "respond")


@pytest.mark.parametrize(
    ("decision", "ended_by"),
    [
        (APPROVE, Reason.ENDING_TOOL),
        (RESPOND, Reason.ENDING_TOOL),
        (REJECT, Reason.MAX_ITERATIONS),
        (edited("mail", to="Zoe"), Reason.ENDING_TOOL),
        (edited("look", at="it"), Reason.MAX_ITERATIONS),
    ],
)
async def test_a_tool_ends_the_conversation_where_it_was_let_answer(
    saver: Saver, decision: dict[str, Any], ended_by: Reason
) -> None:
    fields = {"end_chat": {"max_iterations": 1, "when": {"kind": "ending_tool", "tool": "mail"}}}
    talk = Talk(saver, [calls(MAIL), *END], fields=fields, **ASKS)
    await talk.start()
    await talk.decide(decision)
    assert (await talk.values())["outcome"]["reasons"][0] == ended_by.value


async def test_a_tool_that_a_person_chose_instead_may_end_it(saver: Saver) -> None:
    fields = {"end_chat": {"max_iterations": 1, "when": {"kind": "ending_tool", "tool": "look"}}}
    talk = Talk(saver, [calls(MAIL), *END], fields=fields, **ASKS)
    await talk.start()
    await talk.decide(edited("look", at="it"))
    assert (await talk.values())["outcome"]["reasons"][0] == Reason.ENDING_TOOL.value


async def test_rounds_in_which_all_is_refused_count_so_that_a_turn_ends(saver: Saver) -> None:
    script = [calls(call("mail", f"c{number}", to=str(number))) for number in range(2)]
    talk = Talk(saver, [*script, *END], fields={"max_tool_rounds": 2}, **ASKS)
    await talk.start()
    assert len(await talk.decide(REJECT)) == 1
    assert await talk.decide(REJECT) == []
    assert await talk.said() == ["Done.", "Fine."]
    assert [bool(one.tools) for one in talk.model.calls] == [True, True, False, False]
    assert talk.ran == []


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (APPROVE, ["Sent to Bob.", "Done."]),
        (edited("mail", to="Zoe"), ["Sent to Zoe.", "Done."]),
        (REJECT, ["Done.", "Fine."]),
        (RESPOND, ["Done.", "Fine."]),
    ],
)
async def test_only_what_a_tool_gave_is_said_as_it_is(
    saver: Saver, decision: dict[str, Any], said: list[str]
) -> None:
    talk = Talk(saver, [calls(MAIL), *END], return_direct=True, **ASKS)
    await talk.start()
    await talk.decide(decision)
    assert await talk.said() == said


async def test_the_events_tell_who_decided(saver: Saver) -> None:
    talk = Talk(saver, [BOTH, *END], **ASKS)
    await talk.start()
    await talk.decide(REJECT)
    told = [
        (event.call_id, event.failed, event.decision)
        for one in await talk.results()
        for event in events_of(one)
        if isinstance(event, ToolAnswered)
    ]
    assert told == [("c1", True, "reject"), ("c2", False, None)]


async def test_arguments_of_a_person_that_do_not_fit_are_asked_for_again(saver: Saver) -> None:
    """They are no fault of the speaker's, whose call errors they would else be."""
    talk = Talk(saver, [calls(MAIL), *END], **ASKS)
    await talk.start()
    with pytest.raises(AnswerError, match=r"edited_action\.args: to: Field required"):
        await talk.decide(edited("mail", towards="Bob"))
    await talk.decide(edited("mail", to="Ann"))
    (result,) = await talk.results()
    assert result.text.startswith("A person changed this call before it ran, to mail with")
    assert about(result).failure is None


async def test_who_edits_nothing_has_approved(saver: Saver) -> None:
    talk = Talk(saver, [calls(MAIL), *END], **ASKS)
    await talk.start()
    await talk.decide(edited("mail", to="Bob"))
    (result,) = await talk.results()
    assert about(result).decision == "approve"
    assert "A person changed" not in result.text


# Hooks


async def test_hooks_see_what_a_person_made_of_a_call(saver: Saver) -> None:
    """L7: hooks before a tool run after the decision, hooks behind it see what was run."""
    seen: list[Any] = []

    def before(_turn: object, made: ToolCall) -> ToolCall:
        seen.append(("before", made["name"], dict(made["args"])))
        return ToolCall(name=made["name"], args={"at": f"{made['args']['at']}!"}, id="any")

    def after(_turn: object, made: ToolCall, found: ToolMessage) -> ToolMessage:
        seen.append(("after", made["name"], dict(made["args"]), found.text))
        return ToolMessage(f"<{found.text}>", tool_call_id="any")

    more = {"hooks": {"h": Hook(before_tool=before, after_tool=after)}}
    talk = Talk(saver, [calls(MAIL), *END], hooks=["h"], more=more, **ASKS)
    await talk.start()
    assert seen == []
    await talk.decide(edited("look", at="Bob"))
    assert seen == [
        ("before", "look", {"at": "Bob"}),
        ("after", "look", {"at": "Bob!"}, "Seen Bob!."),
    ]
    assert talk.ran == [("look", "Bob!")]
    result = (await talk.results())[-1]
    assert result.text == (
        'A person changed this call before it ran, to look with {"at": "Bob!"}. What came of it:\n'
        "<Seen Bob!.>"
    )
    assert about(result).arguments == {"at": "Bob!"}


@pytest.mark.parametrize(
    ("decision", "seen", "text"),
    [
        (REJECT, [], "A person refused"),
        (RESPOND, ["after"], "<Already sent.>"),
        (APPROVE, ["before", "after"], "<Sent to Bob.>"),
    ],
)
async def test_hooks_see_no_call_that_was_refused(
    saver: Saver, decision: dict[str, Any], seen: list[str], text: str
) -> None:
    found: list[str] = []

    def after(_turn: object, _made: ToolCall, result: ToolMessage) -> ToolMessage:
        found.append("after")
        return ToolMessage(f"<{result.text}>", tool_call_id="any")

    more = {
        "hooks": {"h": Hook(before_tool=lambda _t, _c: found.append("before"), after_tool=after)}
    }
    talk = Talk(saver, [calls(MAIL), *END], hooks=["h"], more=more, **ASKS)
    await talk.start()
    await talk.decide(decision)
    result = (await talk.results())[-1]
    assert result.text.startswith(text)
    assert found == seen
    assert about(result).decision == decision["type"]


async def test_a_hook_that_fails_behind_a_decision_asks_nobody_again(saver: Saver) -> None:
    fails = [True]

    def before(_turn: object, _made: ToolCall) -> None:
        if fails:
            fails.pop()
            raise OSError("no disk")

    more = {"hooks": {"h": Hook(before_tool=before)}}
    made = calls(MAIL, call("ask_freely", "c2", what="Colour"))
    talk = Talk(saver, [made, *END], hooks=["h"], more=more, **ASKS)
    await talk.start()
    with pytest.raises(SpecError, match="failed in before_tool"):
        await talk.decide(APPROVE)
    (asked,) = await talk.go_on()
    # The decisions, which LangGraph keeps, are no answer to what the tool asks.
    assert asked.value == "Colour"
    assert await talk.answer("red") == []
    assert sorted(talk.ran) == [("ask_freely", "Colour"), ("ask_freely", "Colour"), ("mail", "Bob")]
    assert [one.text for one in await talk.results()] == ["Sent to Bob.", "Colour: red"]


# Answers that do not fit

BAD: dict[str, tuple[Any, str]] = {
    "word": ("yes", 'it must be {"decisions": [...]}, with a decision for each call'),
    "list": ([APPROVE], 'it must be {"decisions": [...]}, with a decision for each call'),
    "typo": ({"decision": [APPROVE]}, "decision: there is no such field"),
    "few": ({"decisions": []}, "decisions: 2 calls wait for one and 0 decisions came: give one"),
    "many": ({"decisions": [APPROVE] * 3}, "decisions: 2 calls wait for one and 3 decisions"),
    "kind": (
        {"decisions": [APPROVE, {"type": "accept"}]},
        "decisions.1.type: 'accept' is no decision; there are 'approve', 'edit', 'reject'",
    ),
    "no-kind": ({"decisions": [{}, APPROVE]}, "decisions.0.type: is missing; there are"),
    "not-allowed": (
        {"decisions": [APPROVE, RESPOND]},
        "decisions.1.type: 'respond' is not allowed for 'look'; allowed are 'approve', 'edit'",
    ),
    "no-action": ({"decisions": [APPROVE, {"type": "edit"}]}, "decisions.1.edited_action: is mis"),
    "old-key": (
        {"decisions": [{"type": "edit", "edited_action": {"name": "x", "arguments": {}}}, APPROVE]},
        "decisions.0.edited_action.arguments: there is no such field",
    ),
    "tool": (
        {"decisions": [edited("mial", to="Bob"), APPROVE]},
        "decisions.0.edited_action.name: 'mial' is none of the speaker's tools; did you mean "
        "'mail'?",
    ),
    "no-object": (
        {"decisions": [{"type": "edit", "edited_action": {"name": "mail", "args": "x"}}, APPROVE]},
        "decisions.0.edited_action.args: input should be a valid dictionary",
    ),
    "not-finite": (
        {"decisions": [APPROVE, edited("look", at=float("nan"))]},
        "decisions.1.edited_action.args: the arguments of look can't be taken: at at, a number is "
        "not finite",
    ),
    "no-message": ({"decisions": [{"type": "respond"}, APPROVE]}, "decisions.0.message: is miss"),
}


@pytest.mark.parametrize("by_id", [False, True], ids=["alone", "by-id"])
@pytest.mark.parametrize("name", BAD)
async def test_an_answer_that_does_not_fit_leaves_the_question_open(
    saver: Saver, name: str, by_id: bool
) -> None:
    bad, says = BAD[name]
    rules = {"mail": True, "look": {"allowed_decisions": ["approve", "edit"]}}
    free = call("ask", "c3", what="Size")
    script = [calls(MAIL, LOOK, free), *END]
    talk = Talk(saver, script, interrupt_on=rules)
    (asked,) = await talk.start()

    def given(answer: Any) -> Any:  # noqa: ANN401
        return {asked.id: answer} if by_id else answer

    for _ in range(2):
        with pytest.raises(AnswerError) as caught:
            await talk.answer(given(bad))
        assert str(caught.value).startswith(
            f"the answer does not fit, and the question stays open: {says}"
        )
        assert "\n" not in str(caught.value)
        assert talk.ran == []
        assert [one.value for one in await talk.pending()] == [asked.value]
    (size,) = await talk.answer(given({"decisions": [APPROVE, APPROVE]}))
    assert await talk.answer({size.id: {"size": 3}} if by_id else {"size": 3}) == []
    once = [("asked", "Size"), ("look", "it"), ("mail", "Bob")]
    assert sorted(set(talk.ran)) == [("ask", "Size"), *once]
    assert [one for one in sorted(talk.ran) if one[0] != "ask"] == once
    assert [one.text for one in await talk.results()] == ["Sent to Bob.", "Seen it.", "Size: 3"]


def test_langgraphs_servers_pass_the_sentence_on() -> None:
    assert issubclass(AnswerError, RuntimeError)
    assert issubclass(AnswerError, DuologueError)


# Tools that ask


@pytest.mark.parametrize("approved", [False, True], ids=["freely", "approved"])
@pytest.mark.parametrize("last", ["alone", "by-id"])
async def test_tools_that_ask_at_once_are_answered_one_by_one(
    saver: Saver, approved: bool, last: str
) -> None:
    made = calls(
        call("ask", "c1", what="Size"),
        MAIL.model_copy(update={"id": "c2"}),
        call("ask_freely", "c3", what="Colour"),
        LOOK.model_copy(update={"id": "c4"}),
    )
    talk = Talk(saver, [made, *END], **(ASKS if approved else {}))
    found = await talk.start()
    if approved:
        # Answered without its id, which must be no answer to the tools.
        found = await talk.decide(APPROVE)
    assert [one.value for one in found] == [{"what": "Size"}, "Colour"]
    others = [("look", "it"), ("mail", "Bob")]
    assert sorted(one for one in talk.ran if one[0] in ("look", "mail")) == others
    pending = {str(one.value): one.id for one in await talk.pending()}
    assert len(pending) == 2
    with pytest.raises(AnswerError, match="size: field required"):
        await talk.answer({pending["{'what': 'Size'}"]: {}})
    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        await talk.answer({"size": 1})
    (left,) = await talk.answer({pending["Colour"]: "red"})
    assert left.value == {"what": "Size"}
    assert [one.id for one in await talk.pending()] == [left.id]
    assert await talk.answer({"size": 2} if last == "alone" else {left.id: {"size": 2}}) == []
    assert sorted(one for one in talk.ran if one[0] in ("look", "mail", "asked")) == [
        ("asked", "Size"),
        *others,
    ]
    results = await talk.results()
    assert [one.tool_call_id for one in results] == ["c1", "c2", "c3", "c4"]
    assert [one.text for one in results] == ["Size: 2", "Sent to Bob.", "Colour: red", "Seen it."]


async def test_tools_that_ask_at_once_are_answered_at_once(saver: Saver) -> None:
    made = calls(call("ask", "c1", what="Size"), call("ask", "c2", what="Weight"), LOOK)
    made = calls(*made.tool_calls[:2], LOOK.model_copy(update={"id": "c3"}))
    talk = Talk(saver, [made, *END])
    first, second = await talk.start()
    assert await talk.answer({first.id: {"size": 1}, second.id: {"size": 2}}) == []
    # What asks runs again from its start, once for its answer; the other tool does not.
    assert sorted(talk.ran) == [
        *[("ask", "Size")] * 2,
        *[("ask", "Weight")] * 2,
        ("asked", "Size"),
        ("asked", "Weight"),
        ("look", "it"),
    ]
    assert [one.text for one in await talk.results()] == ["Size: 1", "Weight: 2", "Seen it."]


async def test_a_good_and_a_bad_answer_at_once_keep_the_good_one(saver: Saver) -> None:
    made = calls(call("ask", "c1", what="Size"), call("ask", "c2", what="Weight"))
    talk = Talk(saver, [made, *END])
    first, second = await talk.start()
    with pytest.raises(AnswerError, match="stays open: size: field required"):
        await talk.answer({first.id: {"size": 1}, second.id: {}})
    assert talk.ran.count(("asked", "Size")) == 1
    assert await talk.answer({second.id: {"size": 2}}) == []
    assert talk.ran.count(("asked", "Size")) == talk.ran.count(("asked", "Weight")) == 1
    assert [one.text for one in await talk.results()] == ["Size: 1", "Weight: 2"]


async def test_waiting_for_a_person_is_no_timeout(saver: Saver) -> None:
    talk = Talk(saver, [calls(call("ask", "c1", what="Size")), *END], fields={"tool_timeout": 0.2})
    await talk.start()
    await asyncio.sleep(0.3)
    assert await talk.answer({"size": 1}) == []
    assert [one.text for one in await talk.results()] == ["Size: 1"]


async def test_a_decision_for_each_message_of_a_turn(saver: Saver) -> None:
    script = [calls(MAIL), calls(call("mail", "c2", to="Zoe")), *END]
    talk = Talk(saver, script, **ASKS)
    await talk.start()
    (asked,) = await talk.decide(APPROVE)
    assert asked.value["action_requests"][0]["args"] == {"to": "Zoe"}
    assert talk.ran == [("mail", "Bob")]
    assert await talk.decide(REJECT) == []
    assert talk.ran == [("mail", "Bob")]


# Which calls are meant


async def test_tools_that_run_code_are_asked_about_and_their_variables_stay(saver: Saver) -> None:
    made = calls(
        call("python", "c1", code="x = 1"),
        call("python", "c2", code="x = 100"),
        call("python", "c3", code="print(x + 1)"),
    )
    fields = {"sandbox": {"level": "monty"}}
    rules = {"python": True}
    talk = Talk(saver, [made, *END], tools=["python"], interrupt_on=rules, fields=fields)
    (asked,) = await talk.start()
    assert [one["args"]["code"] for one in asked.value["action_requests"]] == [
        "x = 1",
        "x = 100",
        "print(x + 1)",
    ]
    assert await talk.decide(APPROVE, REJECT, edited("python", code="print(x + 2)")) == []
    first, second, third = await talk.results()
    assert [about(one).decision for one in (first, second, third)] == ["approve", "reject", "edit"]
    assert third.text.endswith("What came of it:\n3\n")
    assert 'to python with {"code": "print(x + 2)"}' in third.text


async def test_a_command_is_asked_about_before_a_shell_runs_it(
    saver: Saver, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    made = calls(
        call("shell", "c1", code=f"echo refused >> {note}"),
        call("shell", "c2", code=f"echo made >> {note}"),
    )
    talk = Talk(
        saver,
        [made, *END],
        tools=["shell"],
        interrupt_on={"shell": True},
        fields={"sandbox": {"level": "host"}},
        more={"allow_host": True},
    )
    await talk.start()
    assert await talk.decide(REJECT, edited("shell", code=f"echo changed >> {note}")) == []
    assert note.read_text() == "changed\n"


async def test_code_that_is_heard_is_no_call_of_the_tool_of_that_name(saver: Saver) -> None:
    """A7: a code reply's blocks are named by their language, as the tool is."""
    fields = {
        "sandbox": {"level": "monty"},
        "speakers": [
            {"name": "Bob"},
            {
                "name": "Ann",
                "replies": ["code", "model"],
                "tools": ["python"],
                "interrupt_on": {"python": True},
            },
        ],
    }
    talk = Talk(saver, ["```python\nprint(6 * 7)\n```"], fields=fields)
    assert await talk.start() == []
    assert "42" in (await talk.said())[-1]


async def test_a_tool_is_asked_about_by_its_registered_name(saver: Saver) -> None:
    sent: list[str] = []

    @tool("post.send now")
    def send(to: str) -> str:
        """Sends."""
        sent.append(to)
        return "Sent."

    rules = {"post.send now": True}
    more = {"tools": [send]}
    talk = Talk(
        saver,
        [calls(call("post_send_now", "c1", to="Bob")), *END],
        tools=["post.send now"],
        interrupt_on=rules,
        more=more,
    )
    (asked,) = await talk.start()
    assert asked.value["action_requests"][0]["name"] == "post.send now"
    with pytest.raises(AnswerError, match="'post_send_now' is none of the speaker's tools"):
        await talk.decide(edited("post_send_now", to="Zoe"))
    assert await talk.decide(edited("post.send now", to="Zoe")) == []
    assert sent == ["Zoe"]


async def test_tools_of_an_mcp_server_are_asked_about(tmp_path: Path) -> None:
    served = str(Path(__file__).with_name("served.py"))
    servers = {"served": {"command": sys.executable, "args": [served, str(tmp_path)]}}
    made = calls(call("served.note", "c1", number=1), call("served.note", "c2", number=2))
    talk = Talk(
        InMemorySaver(),
        [made, *END],
        tools=["served.note"],
        interrupt_on={"served.note": {"allowed_decisions": ["edit", "reject"]}},
        more={"mcp_servers": servers},
    )
    (asked,) = await talk.start()
    (review, _) = asked.value["review_configs"]
    assert review["action_name"] == "served.note"
    assert review["args_schema"]["properties"]["number"]["type"] == "integer"
    assert not (tmp_path / "notes").exists()
    assert await talk.decide(REJECT, edited("served.note", number=7)) == []
    assert (tmp_path / "notes").read_text() == "7\n"
    _, second = await talk.results()
    assert second.text.endswith("What came of it:\n8")


async def test_a_call_of_no_tool_is_told_to_the_speaker_and_asked_about_by_nobody(
    saver: Saver,
) -> None:
    made = calls(call("post", "c1", to="Bob"), MAIL.model_copy(update={"id": "c2"}))
    made = calls(*made.tool_calls, ScriptedToolCall(name="mail", args="{to: Bob", id="c3"))
    talk = Talk(saver, [made, *END], **ASKS)
    (asked,) = await talk.start()
    assert len(asked.value["action_requests"]) == 1
    assert await talk.decide(REJECT) == []
    failures = [about(one).failure for one in await talk.results()]
    assert failures == [Failure.CALL, Failure.PERSON, Failure.CALL]


async def test_tools_that_run_code_wait_behind_one_that_asks(saver: Saver) -> None:
    """The others finish; those behind it would find the interpreter as it is not yet."""
    ran: list[str] = []

    def coding(name: str, *, asks: bool) -> BaseTool:
        async def work(runtime: ToolRuntime[Any, Any]) -> str:
            ran.append(name)
            size = f" {interrupt(name)}" if asks else ""
            ran.append(f"{name}!")
            return f"{name}{size}"

        made: BaseTool = tool(name, description="Runs code.")(work)
        made.metadata = {"sandbox": ["python"]}
        return made

    tools = [coding("one", asks=False), coding("two", asks=True), coding("three", asks=False)]
    names = [one.name for one in tools]

    @tool
    def free() -> str:
        """Runs beside them."""
        ran.append("free!")
        return "free"

    talk = Talk(
        saver,
        [calls(*(call(name, f"c_{name}") for name in (*names, "free"))), *END],
        tools=[*names, "free"],
        fields={"sandbox": {"level": "monty"}},
        more={"tools": [*tools, free]},
    )
    (asked,) = await talk.start()
    assert asked.value == "two"
    assert sorted(one for one in ran if one.endswith("!")) == ["free!", "one!"]
    assert await talk.answer("large") == []
    assert sorted(one for one in ran if one.endswith("!")) == ["free!", "one!", "three!", "two!"]
    assert [one.text for one in await talk.results()] == ["one", "two large", "three", "free"]


# Kills


class Killed:
    """A conversation in a file, of which a process that is killed runs the first part."""

    def __init__(self, folder: Path, saver: Saver, *, again: bool) -> None:
        self.notes = folder / "notes"

        @tool
        async def quick(what: str) -> str:
            """Works."""
            self._note(f"quick {what}")
            return f"{what} is done."

        @tool
        async def deadly() -> str:
            """Ends the process, the first time, when the other's result is stored."""
            self._note("deadly")
            if self.noted.count("deadly") == 1:
                query = "SELECT count(*) FROM writes WHERE channel = '__return__'"
                while True:
                    with closing(sqlite3.connect(folder / "s.db")) as found:
                        if found.execute(query).fetchone()[0]:
                            os._exit(9)
                    await asyncio.sleep(0.01)
            return "It lives."

        made = calls(
            call("quick", "c1", what="refused"),
            call("quick", "c2", what="edited"),
            call("deadly", "c3"),
        )
        self.talk = Talk(
            saver,
            END if again else [made],
            tools=["quick", "deadly"],
            interrupt_on={"quick": True},
            more={"tools": [quick, deadly]},
        )

    @property
    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def _note(self, what: str) -> None:
        with self.notes.open("a") as file:
            print(what, file=file)


def be_killed(folder: str, how: str) -> None:
    """What the killed process runs."""

    async def run() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "s.db")) as saver:
            talk = Killed(Path(folder), saver, again=False).talk
            (asked,) = await talk.start()
            answer = {"decisions": [REJECT, edited("quick", what="changed")]}
            await talk.answer({asked.id: answer} if how == "by-id" else answer)

    asyncio.run(run())


@pytest.mark.process
@pytest.mark.parametrize("how", ["alone", "by-id"])
async def test_killed_behind_the_decisions_nobody_is_asked_again(tmp_path: Path, how: str) -> None:
    """A call that has finished is not run again, one in flight is, and one refused never."""
    here = str(Path(__file__).parent)
    program = (
        f"import sys; sys.path.insert(0, {here!r}); import {Path(__file__).stem} as test; "
        f"test.be_killed({str(tmp_path)!r}, {how!r})"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 9
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "s.db")) as saver:
        killed = Killed(tmp_path, saver, again=True)
        assert sorted(killed.noted) == ["deadly", "quick changed"]
        assert await killed.talk.go_on() == []
        assert sorted(killed.noted) == ["deadly", "deadly", "quick changed"]
        results = await killed.talk.results()
        assert [about(one).decision for one in results] == ["reject", "edit", None]
        assert [one.status for one in results] == ["error", "success", "success"]
        assert await killed.talk.said() == ["Done.", "Fine."]
