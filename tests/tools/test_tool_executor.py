"""The tool executor: calls and their results, errors, rounds, timeouts, and what others hear."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    tool,
)
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import interrupt

from duologue.graphs import Conversation, Reason, Result, Session, aconverse, load_conversation
from duologue.graphs.events import ToolRoundLimitReached
from duologue.nodes.testing import Line, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, ToolState, Turn
from support.log import Failure, fields_of, kind_of
from support.tables import read_rows

from .adding import add, call, calls, fail


def talk(*tools: str, ann: dict[str, Any] | None = None, **fields: object) -> Conversation:
    given: dict[str, object] = {
        "task": "Sum up.",
        "speakers": [{"name": "Ann", "tools": tools} | (ann or {}), {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    }
    return load_conversation(given | fields)


async def run(
    script: Sequence[Line],
    tools: Sequence[BaseTool],
    conversation: Conversation,
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    model = ScriptedChatModel(script=script)
    given: dict[str, Any] = {"store": "memory:", "model": model, "tools": tools} | options
    return await aconverse(conversation, **given), model


def answers(result: Result) -> list[ToolMessage]:
    return [message for message in result.messages if isinstance(message, ToolMessage)]


def reason(result: Result) -> Reason:
    assert result.outcome is not None
    return result.outcome.reason


# Calls, and the messages that others hear


async def test_a_tools_answer_goes_back_to_its_caller_and_others_hear_only_text() -> None:
    """The tools are offered in the speaker's order, and to no other speaker."""
    script: list[Line] = [
        calls(call("add", {"a": 20, "b": 3}), text="Let me see."),
        "I have it.",
        "Thanks.",
    ]
    result, model = await run(script, [add, fail], talk("fail", "add"))
    assert result.transcript == [("Ann", "Let me see."), ("Ann", "I have it."), ("Bob", "Thanks.")]
    [answer] = answers(result)
    assert (answer.text, answer.tool_call_id, answer.status) == ("23", "c1", "success")
    asked, told = model.calls[1].prompt[-2:]
    assert [asked[key] for key in ("role", "content", "name")] == [
        "assistant",
        "Let me see.",
        "Ann",
    ]
    assert [made["id"] for made in asked["tool_calls"]] == ["c1"]
    assert told == {"role": "tool", "content": "23", "tool_call_id": "c1"}
    offered = [[offer["function"]["name"] for offer in asked.tools] for asked in model.calls]
    assert offered == [["fail", "add"], ["fail", "add"], []]
    heard = model.calls[2].prompt
    assert {message["role"] for message in heard} == {"system", "user"}
    assert not any("tool_calls" in message for message in heard)
    text = "\n".join(message["content"] for message in heard)
    assert ["Let me see." in text, "I have it." in text, "23" in text] == [True, True, False]


async def test_calls_run_side_by_side_and_answer_in_their_order() -> None:
    second_ran = asyncio.Event()
    order: list[str] = []

    @tool
    async def first() -> str:
        """Waits for the second."""
        await second_ran.wait()
        order.append("first")
        return "one"

    @tool
    async def second() -> str:
        """Ends before the first."""
        order.append("second")
        second_ran.set()
        return "two"

    made = calls(call("first", {}, "c1"), call("second", {}, "c2"))
    async with asyncio.timeout(30):
        result, _ = await run([made, "Hm.", "Ok."], [first, second], talk("first", "second"))
    assert order == ["second", "first"]
    found = [(answer.tool_call_id, answer.text) for answer in answers(result)]
    assert found == [("c1", "one"), ("c2", "two")]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("name", "args", "words"),
    read_rows(__file__, "whatever_goes_wrong_with_a_call_is_told_to_the_model"),
)
async def test_whatever_goes_wrong_with_a_call_is_told_to_the_model(
    name: str, args: dict[str, Any] | str, words: list[str]
) -> None:
    made = calls(call(name, args), call("add", {"a": 1, "b": 2}, "c2"))
    others = [{"name": "Ann", "tools": ["add", "fail"]}, {"name": "Bob", "tools": ["sleep"]}]
    conversation = talk(speakers=others)
    result, model = await run([made, "Hm.", "Ok."], [add, fail, sleep], conversation)
    told = {message["tool_call_id"]: message["content"] for message in model.calls[1].prompt[-2:]}
    assert told["c2"] == "3"
    assert [word for word in words if word not in told["c1"]] == []
    status = {answer.tool_call_id: answer.status for answer in answers(result)}
    assert status == {"c1": "error", "c2": "success"}


async def test_broken_calls_are_answered_behind_the_good_ones_as_the_client_reads_them() -> None:
    made = calls(call("add", "{a", "c1"), call("add", {"a": 1, "b": 2}, "c2"))
    result, _ = await run([made, "Hm.", "Ok."], [add], talk("add"))
    asked = next(message for message in result.messages if kind_of(message) == "tool_calls")
    assert isinstance(asked, AIMessage)
    # LangChain keeps no order between valid and invalid calls.
    assert [made["id"] for made in [*asked.tool_calls, *asked.invalid_tool_calls]] == ["c2", "c1"]
    assert [answer.tool_call_id for answer in answers(result)] == ["c2", "c1"]


async def test_a_broken_call_alone_is_answered_too() -> None:
    result, model = await run([calls(call("add", "{a")), "Hm.", "Ok."], [add], talk("add"))
    asked, told = model.calls[1].prompt[-2:]
    assert [made["id"] for made in asked["tool_calls"]] == ["c1"]
    assert told["role"] == "tool"
    assert told["content"].startswith("The arguments of add are not valid JSON: ")
    assert result.transcript == [("Ann", "Hm."), ("Bob", "Ok.")]


# Errors, counted per turn and kind (Y19)

UNKNOWN = call("subtract", {"a": 1})
NO_JSON = call("add", "{a: 1")
UNFIT = call("add", {"a": "one", "b": 2})
RAISING = call("fail", {"reason": "disk on fire"})


total = add.model_copy(update={"name": "total", "return_direct": True})


def lines_of(row: Any) -> list[Line]:  # noqa: ANN401
    """Return the lines of a row of a script: calls, a judgement or a text."""
    if not isinstance(row, dict) or "calls" not in row:
        return [row]
    made = [call(*one) for one in row["calls"]]
    if "times" in row:
        return numbered(made[0], row["times"])
    return [calls(*made, text=row.get("text", ""))]


@pytest.mark.parametrize("row", read_rows(__file__, "turns"), ids=lambda row: row["name"])
async def test_a_turn_with_calls_runs_to_its_end(row: dict[str, Any]) -> None:
    """The rows name their expectations."""
    tools = row.get("tools", ["add", "fail"])
    conversation = talk(*tools, ann=row.get("ann"), **row.get("fields", {}))
    script = [line for one in row["script"] for line in lines_of(one)]
    result, model = await run(script, [add, fail, total], conversation)
    assert result.outcome is not None
    found = {
        "transcript": [list(line) for line in result.transcript],
        "reason": result.outcome.reason.value,
        "asked": len(model.calls),
        "results": [answer.text for answer in answers(result)],
        "failures": [str(fields_of(answer).failure or "") for answer in answers(result)],
        "offered": [bool(asked.tools) for asked in model.calls],
        "choices": [asked.tool_choice or "" for asked in model.calls],
    }
    assert {name: found[name] for name in row["found"]} == row["found"]
    assert len({answer.tool_call_id for answer in answers(result)}) == len(answers(result))


def numbered(made: ScriptedToolCall, count: int) -> list[Line]:
    """Return the same call in message after message, with different arguments if allowed."""
    return [
        calls(made.model_copy(update={"id": f"c{number}", "args": _varied(made.args, number)}))
        for number in range(count)
    ]


def _varied(args: dict[str, Any] | str, number: int) -> dict[str, Any] | str:
    return f"{args}{number}" if isinstance(args, str) else args | {"n": number}


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("made", "ends"),
    [
        pytest.param(UNKNOWN, Reason.CALL_ERRORS, id="Y19-unknown-tool"),
        pytest.param(NO_JSON, Reason.CALL_ERRORS, id="Y19-bad-json"),
        pytest.param(UNFIT, Reason.CALL_ERRORS, id="Y19-wrong-arguments"),
        pytest.param(RAISING, Reason.TOOL_ERRORS, id="Y19-tool-error"),
    ],
)
async def test_the_fifth_error_of_a_kind_in_a_turn_ends_it_and_nothing_is_lost(
    made: ScriptedToolCall, ends: Reason
) -> None:
    conversation = talk("add", "fail")
    result, model = await run(numbered(made, 5), [add, fail], conversation)
    assert result.outcome is not None
    assert result.outcome.reasons[0] is ends
    assert result.outcome.by == "Ann"
    assert result.outcome.explanations[0].startswith("tool calls by Ann")
    assert result.outcome.explanations[0].endswith(", 5 times in one turn")
    assert len(answers(result)) == len(model.calls) == 5
    counted = [cause for cause in result.why() if cause.kind.value == "counted"]
    assert [(cause.count, cause.limit) for cause in counted if cause.reason is ends] == [
        (number, 5) for number in range(1, 6)
    ]


@pytest.mark.parametrize("limit", [2, 5])
async def test_a_speaker_is_asked_for_something_else_before_its_last_error(limit: int) -> None:
    """Y19: the request is the last message of one prompt, and a success begins the count again."""
    right = calls(call("add", {"a": 1, "b": 1}, "right"))
    failing = numbered(RAISING, 2 * limit - 2)
    script = [*failing[: limit - 1], right, *failing[limit - 1 :], "I give up.", "Ok."]
    result, model = await run(script, [add, fail], talk("add", "fail", max_tool_errors=limit))
    assert reason(result) is Reason.MAX_ITERATIONS
    request = f"Your tool calls have failed {limit - 1} times."
    asked = [str(one.prompt[-1]["content"]).startswith(request) for one in model.calls]
    assert [place for place, is_asked in enumerate(asked) if is_asked] == [limit - 1, 2 * limit - 1]


# Rounds (Z7, G4)


async def test_each_turn_has_its_rounds_of_calls_anew() -> None:
    one, two = (calls(call("add", {"a": 1, "b": n}, f"c{n}")) for n in range(2))
    conversation = talk("add", max_tool_rounds=1, end_chat={"max_iterations": 2})
    script: list[Line] = [one, "One.", "Ok.", two, "Two.", "Fine."]
    result, model = await run(script, [add], conversation)
    offered = [bool(asked.tools) for asked in model.calls]
    assert offered == [True, False, False, True, False, False]
    assert [answer.text for answer in answers(result)] == ["1", "2"]
    events = [event async for event in result.session.astream()]
    reached = [one for one in events if isinstance(one, ToolRoundLimitReached)]
    assert [(one.speaker, one.rounds) for one in reached] == [("Ann", 1), ("Ann", 1)]
    assert result.outcome is not None
    (warning,) = result.outcome.warnings
    assert warning.startswith("Ann reached max_tool_rounds (1) in 2 turns")


async def test_twenty_rounds_by_default_and_failures_are_no_rounds() -> None:
    """Z7: a round without success only counts towards the turn's errors."""
    assert talk("add").max_tool_rounds == 20
    made = [calls(call("add", {"a": 1, "b": n}, f"c{n}")) for n in range(19)]
    failed = calls(call("add", {"a": "one"}, "f"))
    result, _ = await run([*made[:9], failed, *made[9:], "Enough.", "Ok."], [add], talk("add"))
    assert result.outcome is not None
    assert result.outcome.warnings == ()


# Timeouts, and tools that behave oddly


@tool
async def sleep() -> str:
    """Never answers."""
    await asyncio.Event().wait()
    return ""


@tool
def late() -> str:
    """Raises a timeout."""
    raise TimeoutError("the server is silent")


@tool
def strict() -> str:
    """Raises an error whose text is for the model, as Yacana's ToolError does."""
    raise ToolException("n must be above 3")


@tool
def parse() -> str:
    """Validates an empty conversation: its own mistake, and not the model's."""
    Conversation.model_validate({})
    return ""


hurry = sleep.model_copy(update={"name": "hurry", "metadata": {"timeout": 0.05}})
patient_add = add.model_copy(update={"metadata": {"timeout": 60.0}})
"""A busy machine may take longer than the conversation allows its tools here."""


@pytest.mark.parametrize(
    ("odd", "seconds", "told"),
    [
        (sleep, 0.1, "sleep took longer than 0.1 s and was stopped"),
        (hurry, 60.0, "hurry took longer than 0.05 s and was stopped"),
        (late, 60.0, "late failed: TimeoutError: the server is silent"),
        (strict, 60.0, "strict failed: n must be above 3"),
        (parse, 60.0, "parse failed: ValidationError"),
    ],
)
async def test_a_tool_that_fails_or_takes_too_long_is_told_and_its_siblings_answer(
    odd: BaseTool, seconds: float, told: str
) -> None:
    made = calls(call(odd.name, {}), call("add", {"a": 1, "b": 2}, "c2"))
    conversation = talk(odd.name, "add", tool_timeout=seconds)
    result, _ = await run([made, "Hm.", "Ok."], [odd, patient_add], conversation)
    failed, good = answers(result)
    assert failed.text.startswith(told)
    assert fields_of(failed).failure is Failure.TOOL
    assert good.text == "3"


@pytest.mark.parametrize("raised", [SystemExit(2), KeyboardInterrupt(2)], ids=["exit", "ctrl-c"])
@pytest.mark.parametrize("kind", ["sync", "async", "class"])
async def test_a_tool_that_wants_the_program_to_end_has_failed(
    kind: str, raised: BaseException
) -> None:
    """Otherwise it would end the event loop, and every conversation of the process."""

    @tool
    def leave() -> str:
        """Leaves."""
        raise raised

    @tool("leave")
    async def leave_async() -> str:
        """Leaves."""
        raise raised

    class Leaver(BaseTool):
        name: str = "leave"
        description: str = "Leaves."

        def _run(self) -> str:
            raise raised

    made = {"sync": leave, "async": leave_async, "class": Leaver()}[kind]
    result, _ = await run([calls(call("leave", {})), "Hm.", "Ok."], [made], talk("leave"))
    assert answers(result)[0].text == f"leave failed: {type(raised).__name__}: 2"
    assert result.transcript == [("Ann", "Hm."), ("Bob", "Ok.")]


@pytest.mark.parametrize(
    ("args", "words"),
    [({}, "'n' is a required property"), ({"n": "many"}, "n: 'many' is not of type 'integer'")],
)
async def test_arguments_are_held_to_a_json_schema_too(args: dict[str, Any], words: str) -> None:
    """Y19."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    free = StructuredTool(
        name="free", description="Takes a number.", func=lambda **given: "ok", args_schema=schema
    )
    good = calls(call("free", {"n": 1}, "c2"))
    script: list[Line] = [calls(call("free", args)), good, "Hm.", "Ok."]
    result, _ = await run(script, [free], talk("free"))
    wrong, right = answers(result)
    assert fields_of(wrong).failure is Failure.CALL
    assert words in wrong.text
    assert right.text == "ok"


async def test_a_tool_that_waits_for_a_person_leaves_the_session_waiting() -> None:
    @tool
    def ask(question: str) -> str:
        """Asks a person."""
        return str(interrupt(question))

    result, _ = await run([calls(call("ask", {"question": "Well?"}))], [ask], talk("ask"))
    assert result.outcome is None
    assert [question.kind for question in result.pending] == ["tool"]


# Input of a tool


async def test_session_and_call_id_come_from_the_run_and_never_from_the_model() -> None:
    seen: list[Any] = []

    @tool
    def look(
        n: int,
        runtime: ToolRuntime[None, ToolState],
        call_id: Annotated[str, InjectedToolCallId],
        session: Annotated[str, InjectedState("session")],
    ) -> str:
        """Looks."""
        state = runtime.state
        seen.append((n, session, state["session"], runtime.tool_call_id, call_id, state["speaker"]))
        thread = (runtime.config.get("configurable") or {}).get("thread_id")
        seen.append(thread)
        return "seen"

    forged = {
        "n": 1,
        "session": "other",
        "call_id": "forged",
        "runtime": {"state": {"session": "other", "messages": []}, "tool_call_id": "forged"},
        "thread_id": "other",
        "config": {"configurable": {"thread_id": "other"}},
    }
    script: list[Line] = [calls(call("look", forged)), "Hm.", "Ok."]
    result, model = await run(script, [look], talk("look"), session="mine")
    assert seen == [(1, "mine", "mine", "c1", "c1", "Ann"), "mine"]
    assert answers(result)[0].text == "seen"
    [offered] = model.calls[0].tools
    assert set(offered["function"]["parameters"]["properties"]) == {"n"}


async def test_a_tool_knows_what_its_caller_knows_and_no_more() -> None:
    """Messages that only another speaker heard or wrote for itself are missing."""
    seen: list[list[tuple[str | None, str]]] = []

    @tool
    def look(runtime: ToolRuntime[None, ToolState]) -> str:
        """Looks."""
        seen.append([(message.name, message.text) for message in runtime.state["messages"][:-1]])
        return "seen"

    conversation = load_conversation(
        {
            "task": "Guess.",
            "speakers": [
                {"name": "Ann", "tools": ["look"]},
                {"name": "Bob", "private_opening": {"prompt": "Choose a number."}},
            ],
            "end_chat": {"max_iterations": 2},
        }
    )
    script: list[Line] = [
        "It is 7.",
        "Hello.",
        "Hi.",
        calls(call("look", {}), text="So."),
        "3?",
        "No.",
    ]
    await run(script, [look], conversation)
    assert seen == [[("Ann", "Hello."), ("Bob", "Hi."), ("Ann", "So.")]]


# Tool results as the message (Y18)


def direct(**fields: object) -> Conversation:
    return talk("add", "fail", ann={"return_direct": True}, **fields)


async def test_the_tools_output_is_the_speakers_message() -> None:
    """Y18: others hear it, and the speaker's own view ends in it; the model is not asked again."""
    both = calls(call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4}, "c2"), text="Adding.")
    result, model = await run([both, "Thanks."], [add, fail], direct())
    assert result.transcript == [("Ann", "Adding."), ("Ann", "3\n\n7"), ("Bob", "Thanks.")]
    assert len(model.calls) == 2
    assert model.calls[1].prompt[-1]["content"] == "Adding.\n\n3\n\n7"
    own = [(message.type, message.text) for message in result.viewpoint("Ann")[-5:-1]]
    assert own == [("ai", "Adding."), ("tool", "3"), ("tool", "7"), ("ai", "3\n\n7")]


async def test_hooks_see_what_the_tools_gave_before_it_is_said() -> None:
    """Y18, L7."""

    def shout(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(f"{reply.text}!")

    spec = talk("add", ann={"return_direct": True, "hooks": ["shout"]})
    hooks = {"shout": Hook(after_speaker=shout)}
    script: list[Line] = [calls(call("add", {"a": 1, "b": 2})), "Thanks."]
    result, _ = await run(script, [add], spec, hooks=hooks)
    assert result.transcript == [("Ann", "3!"), ("Bob", "Thanks.")]


# Tool choice (Y18)


def test_a_choice_that_can_not_be_is_refused() -> None:
    with pytest.raises(Exception, match=r"speakers.0.tool_choice: .*'ad'"):
        talk("add", ann={"tool_choice": "ad"})
    with pytest.raises(Exception, match=r"speakers.0.tool_choice: there are no tools"):
        talk(ann={"tool_choice": "required"})


@pytest.mark.parametrize("name", ["shell", "python", "get_history", "clock"])
async def test_a_tool_that_was_never_given_is_not_there(name: str) -> None:
    """LazyLLM's agent adds a host shell by default; here even installed tools must be named."""
    made = calls(call(name, {"code": "echo reached", "limit": 5}))
    result, model = await run([made, "Hm.", "Ok."], [add], talk("add"))
    assert answers(result)[0].text == f"There is no tool {name!r}. Your tools: add."
    assert [offer["function"]["name"] for offer in model.calls[0].tools] == ["add"]
    alone, model = await run([made, "Hm.", "Ok."], [add], talk())
    assert answers(alone)[0].text == f"There is no tool {name!r}. You have no tools."
    assert list(model.calls[0].tools) == []


# Interrupted calls


async def test_a_finished_call_is_not_made_again_and_the_one_in_flight_has_its_id() -> None:
    """Only the call in flight is repeated after an interruption."""
    made: list[tuple[str, str]] = []
    hangs, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def good(call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Answers."""
        made.append(("good", call_id))
        return "done"

    @tool
    async def slow(call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Hangs at first."""
        made.append(("slow", call_id))
        hangs.set()
        await may_end.wait()
        return "done"

    both = calls(call("slow", {}, "c1"), call("good", {}, "c2"))
    options: dict[str, Any] = {"session": "s", "store": "memory:cut-short"}
    broken = asyncio.create_task(run([both], [good, slow], talk("good", "slow"), **options))
    await hangs.wait()
    # The other call's result is recorded within a moment.
    await asyncio.sleep(0.3)
    broken.cancel()
    with pytest.raises(asyncio.CancelledError):
        await broken
    may_end.set()
    model = ScriptedChatModel(script=["Both.", "Ok."])
    result = await Session("s", store="memory:cut-short").aresume(model=model, tools=[good, slow])
    assert sorted(made) == [("good", "c2"), ("slow", "c1"), ("slow", "c1")]
    assert [answer.tool_call_id for answer in answers(result)] == ["c1", "c2"]
    assert result.transcript == [("Ann", "Both."), ("Bob", "Ok.")]
