"""People's answers: answers that do not fit, several at once, and runs interrupted after them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs import AnswerError, DuologueError, SpecError, astream
from duologue.graphs.events import ToolCallFinished
from duologue.nodes.testing import ScriptedChatModel
from duologue.tools import Hook
from support.log import fields_of, log_of
from support.tables import read_rows

from .adding import add
from .approval_help import (
    APPROVE,
    ASKS,
    BOTH,
    END,
    LOOK,
    MAIL,
    REJECT,
    RESPOND,
    Saver,
    Talk,
    call,
    calls,
    decided,
    edited,
)

DECISIONS = {"approve": APPROVE, "respond": RESPOND, "reject": REJECT} | {
    "another mail": edited("mail", to="Zoe"),
    "look instead": edited("look", at="it"),
    "edit nothing": edited("mail", to="Bob"),
    "reject bare": {"type": "reject"},
    "reject null": {"type": "reject", "message": None},
}

BAD: dict[str, tuple[Any, str]] = {
    name: (bad, says) for name, bad, says in read_rows(__file__, "answers_that_do_not_fit")
} | {"null": ({"decisions": None}, "decisions: input should be a list")}


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("name", "by_id"),
    [
        *((name, at % 2 == 1) for at, name in enumerate(BAD)),
        *(
            pytest.param(name, at % 2 == 0, marks=pytest.mark.exhaustive)
            for at, name in enumerate(BAD)
        ),
    ],
)
async def test_an_answer_that_does_not_fit_has_the_question_asked_again_with_the_reason(
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
        (again,) = await talk.answer(given(bad))
        assert (again.id, again.response_schema) == (asked.id, asked.response_schema)
        problem = again.value["problem"]
        assert again.value == asked.value | {"problem": problem}
        assert problem.startswith(f"the answer does not fit, and the question stays open: {says}")
        assert "\n" not in problem
        assert talk.ran == []
        assert [one.value for one in await talk.pending()] == [again.value]
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
        # This decision has no id, so the tools must not take it for their answer.
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


async def test_tools_that_ask_at_once_are_answered_at_once(
    saver: Saver, caplog: pytest.LogCaptureFixture
) -> None:
    asks = call("ask", "c1", what="Size"), call("ask", "c2", what="Weight")
    made = calls(*asks, call("look", "c3", at="it"), call("look", "c4"))
    talk = Talk(saver, [made, *END])
    first, second = await talk.start()
    assert await talk.answer({first.id: {"size": 1}, second.id: {"size": 2}}) == []
    # A tool that asks runs again from its start after its answer; the other tool does not.
    assert sorted(talk.ran) == [
        *[("ask", "Size")] * 2,
        *[("ask", "Weight")] * 2,
        ("asked", "Size"),
        ("asked", "Weight"),
        ("look", "it"),
    ]
    *texts, failed = [one.text for one in await talk.results()]
    assert texts == ["Size: 1", "Weight: 2", "Seen it."]
    assert "at: Field required" in failed
    # Results are recorded as plain values. LangGraph warns when it reads any other.
    assert caplog.records == []


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
    talk = Talk(saver, [calls(call("ask", "c1", what="Size")), *END], fields={"tool_timeout": 2})
    await talk.start()
    await asyncio.sleep(2.1)
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


# Interrupted runs


class Breaking(InMemorySaver):
    """A saver that writes nothing from some moment on."""

    def __init__(self) -> None:
        super().__init__()
        # LangGraph uses a copy of the saver, which shares this event.
        self.broken = asyncio.Event()
        self.recorded = asyncio.Event()
        """Set when a call has finished and its result is written."""

    async def aput(self, *given: Any, **named: Any) -> RunnableConfig:
        self._check()
        return await super().aput(*given, **named)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._check()
        await super().aput_writes(config, writes, task_id, task_path)
        if any(channel == "__return__" for channel, _ in writes):
            self.recorded.set()

    def _check(self) -> None:
        if self.broken.is_set():
            raise OSError("it is broken off")


@pytest.mark.parametrize("by_id", [False, True], ids=["alone", "by-id"])
async def test_broken_off_behind_the_decisions_nobody_is_asked_again(by_id: bool) -> None:
    """A completed call is not run again, a call in flight is, and a refused call never."""
    saver, noted = Breaking(), list[str]()

    @tool
    async def quick(what: str) -> str:
        """Works."""
        noted.append(f"quick {what}")
        return f"{what} is done."

    @tool
    async def slow() -> str:
        """Is still running when the run is interrupted."""
        noted.append("slow")
        await saver.recorded.wait()
        if noted.count("slow") == 1:
            saver.broken.set()
        return "It lives."

    made = calls(
        call("quick", "c1", what="refused"),
        call("quick", "c2", what="edited"),
        call("slow", "c3"),
    )
    talk = Talk(
        saver,
        [made, *END],
        tools=["quick", "slow"],
        interrupt_on={"quick": True},
        more={"tools": [quick, slow]},
    )
    (asked,) = await talk.start()
    answer = {"decisions": [REJECT, edited("quick", what="changed")]}
    with pytest.raises(OSError, match="broken off"):
        await talk.answer({asked.id: answer} if by_id else answer)
    assert sorted(noted) == ["quick changed", "slow"]
    saver.broken.clear()
    assert await talk.go_on() == []
    assert sorted(noted) == ["quick changed", "slow", "slow"]
    results = await talk.results()
    assert [fields_of(one).decision for one in results] == ["reject", "edit", None]
    assert [one.status for one in results] == ["error", "success", "success"]
    assert await talk.said() == ["Done.", "Fine."]


# Tests, in the graph, of approval before tools run and of tools that call ``interrupt()``.


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
    look = {"allowed_decisions": ["approve", "reject"], "description": "Really?"}
    rules = {"look": look, "mail": True, "ask": False}
    talk = Talk(saver, [calls(*made), *END], interrupt_on=rules)
    (asked,) = await talk.start()
    requests = asked.value["action_requests"]
    assert requests[0] == {"name": "look", "args": {"at": "1"}, "description": "Really?"}
    assert [one["args"] for one in requests[1:]] == [{"to": "Bob"}, {"at": "3"}]
    # Without editing, no schema of the arguments is needed.
    review = {"action_name": "look", "allowed_decisions": ["approve", "reject"]}
    assert asked.value["review_configs"][0] == review
    assert await talk.decide(REJECT, APPROVE, APPROVE) == []
    assert sorted(talk.ran) == [("look", "3"), ("mail", "Bob")]
    assert [fields_of(one).decision for one in await talk.results()] == [
        "reject",
        "approve",
        "approve",
    ]


@pytest.mark.parametrize(
    "ann",
    [{"interrupt_on": {"look": False, "ask": True}}, {"tool_choice": "none", **ASKS}],
    ids=["other tools", "nothing would run"],
)
async def test_nobody_is_asked_about_other_calls(saver: Saver, ann: dict[str, Any]) -> None:
    talk = Talk(saver, [BOTH, *END], **ann)
    assert await talk.start() == []
    assert [fields_of(one).decision for one in await talk.results()] == [None, None]


# The effect of each decision


@pytest.mark.part(9)
@pytest.mark.parametrize("row", read_rows(__file__, "decisions"), ids=lambda row: row["name"])
async def test_a_decision_has_its_effect(saver: Saver, row: dict[str, Any]) -> None:
    """Y19: a call that a person refuses counts as no error of either kind."""
    made = BOTH if row.get("both") else None
    ann = {"fields": row.get("fields", {}), **row.get("ann", {})}
    talk = await decided(saver, DECISIONS[row["decision"]], made=made, **ann)
    results = await talk.results()
    fields = [fields_of(one) for one in results]
    found = {
        "ran": [list(one) for one in sorted(talk.ran)],
        "texts": [one.text for one in results],
        "statuses": [one.status for one in results],
        "failures": [str(one.failure or "") for one in fields],
        "decisions": [one.decision or "" for one in fields],
        "refusals": [one.refusal or "" for one in fields],
        "changed": [one.arguments is not None for one in fields],
        "said": await talk.said(),
        "reason": (await talk.reasons())[0],
    }
    assert {name: found[name] for name in row["found"]} == row["found"]


@pytest.mark.parametrize(
    ("args", "name", "told"), read_rows(__file__, "what_is_edited_runs_as_a_person_wrote_it")
)
async def test_what_is_edited_runs_as_a_person_wrote_it_and_the_speaker_is_told(
    saver: Saver, args: dict[str, Any], name: str, told: str
) -> None:
    talk = await decided(saver, edited(name, **args))
    assert talk.ran == [(name, *args.values())]
    (result,) = await talk.results()
    assert (result.text, result.status) == (f"A person changed this call {told}", "success")
    fields = fields_of(result)
    tool_run = None if name == "mail" else name
    assert (fields.decision, fields.tool) == ("edit", tool_run)
    assert fields.arguments == args
    # The speaker sees its original call.
    shown = [one for one in talk.model.calls[1].prompt if one["role"] == "assistant"]
    assert "Bob" in str(shown[-1]["tool_calls"])
    assert told in str(talk.model.calls[1].prompt[-1]["content"])
    log = log_of(await talk.values())
    (made,) = [one.tool_calls for one in log if isinstance(one, AIMessage) and one.tool_calls]
    assert [(one["name"], one["args"]) for one in made] == [("mail", {"to": "Bob"})]


async def test_an_event_says_that_a_person_refused_a_call() -> None:
    ann = {"name": "Ann", "tools": ["add"], "interrupt_on": {"add": True}}
    spec = {"task": "Add.", "speakers": [ann, {"name": "Bob"}], "end_chat": {"max_iterations": 1}}
    model = ScriptedChatModel([calls(call("add", "c1", a=1, b=2)), *END])
    decides: Any = {"answer": lambda _: {"decisions": [REJECT]}}
    found = [
        (event.call_id, event.failed, event.decision)
        async for event in astream(spec, model=model, tools=[add], store="memory:", **decides)
        if isinstance(event, ToolCallFinished)
    ]
    assert found == [("c1", True, "reject")]


async def test_rounds_in_which_all_is_refused_count_so_that_a_turn_ends(saver: Saver) -> None:
    script = [calls(call("mail", f"c{number}", to=str(number))) for number in range(2)]
    talk = Talk(saver, [*script, *END], fields={"max_tool_rounds": 2}, **ASKS)
    await talk.start()
    assert len(await talk.decide(REJECT)) == 1
    assert await talk.decide(REJECT) == []
    assert await talk.said() == ["Done.", "Fine."]
    assert [bool(one.tools) for one in talk.model.calls] == [True, True, False, False]
    assert talk.ran == []


async def test_arguments_of_a_person_that_do_not_fit_are_asked_for_again(saver: Saver) -> None:
    """The speaker is not at fault, so they do not count as its call errors."""
    talk = Talk(saver, [calls(MAIL), *END], **ASKS)
    await talk.start()
    (again,) = await talk.decide(edited("mail", towards="Bob"))
    assert "edited_action.args: to: Field required" in again.value["problem"]
    await talk.decide(edited("mail", to="Ann"))
    (result,) = await talk.results()
    assert result.text.startswith("A person changed this call to mail with")
    assert fields_of(result).failure is None


# Hooks


async def test_hooks_see_what_a_person_made_of_a_call(saver: Saver) -> None:
    """L7: hooks before a tool run after the decision; hooks after it see the call that ran."""
    seen: list[Any] = []

    def before(_turn: object, made: ToolCall) -> ToolCall:
        seen.append(("before", made["name"], dict(made["args"])))
        return ToolCall(name=made["name"], args={"at": f"{made['args']['at']}!"}, id="any")

    def after(_turn: object, made: ToolCall, found: ToolMessage) -> ToolMessage:
        seen.append(("after", made["name"], dict(made["args"]), found.text))
        return ToolMessage(f"<{found.text}>", tool_call_id="any")

    more = {"hooks": {"h": Hook(before_tool=before, after_tool=after)}}
    talk = await decided(saver, edited("look", at="Bob"), hooks=["h"], more=more)
    assert seen == [
        ("before", "look", {"at": "Bob"}),
        ("after", "look", {"at": "Bob!"}, "Seen Bob!."),
    ]
    assert talk.ran == [("look", "Bob!")]
    result = (await talk.results())[-1]
    assert result.text == (
        'A person changed this call to look with {"at": "Bob!"} before it ran. Result:\n'
        "<Seen Bob!.>"
    )
    assert fields_of(result).arguments == {"at": "Bob!"}


@pytest.mark.parametrize(
    ("decision", "seen", "text"),
    [
        (REJECT, [], "A person rejected"),
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

    hook = Hook(before_tool=lambda _t, _c: found.append("before"), after_tool=after)
    talk = await decided(saver, decision, hooks=["h"], more={"hooks": {"h": hook}})
    result = (await talk.results())[-1]
    assert result.text.startswith(text)
    assert found == seen
    assert fields_of(result).decision == decision["type"]


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
    # The decisions, which LangGraph keeps, do not answer the tool's question.
    assert asked.value == "Colour"
    assert await talk.answer("red") == []
    assert sorted(talk.ran) == [("ask_freely", "Colour"), ("ask_freely", "Colour"), ("mail", "Bob")]
    assert [one.text for one in await talk.results()] == ["Sent to Bob.", "Colour: red"]
