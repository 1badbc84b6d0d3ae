"""Simulations of agents: kinds of agents, ends, verdicts, checks, reports, and bad input."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.types import interrupt

from duologue import AgentError, InconclusiveResult, Scenario, SpecError, asimulate, simulate
from duologue.graphs.scenarios import EndKind, SimulationResult
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.agents import counting, graph_of
from support.tables import check_rows, read_rows

GOAL = "You were charged twice for order 1042 and want one charge refunded."
LOOKS_UP = "The agent looks the order up before it promises anything."
CRITERION = [LOOKS_UP]


def user(*script: str) -> ScriptedChatModel:
    return ScriptedChatModel(script=script or ("Refund order 1042.", "###STOP###"))


def refunds(messages: Sequence[BaseMessage]) -> str:
    return f"Refunded after {len(messages)} messages."


def play(
    agent: object = refunds,
    *script: str,
    judge: Line | Callable[[Prompt], Line] | None = None,
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> SimulationResult:
    lines: Any = judge if callable(judge) else [judge or "met"] * 2
    judging = ScriptedChatModel(script=lines)
    given: dict[str, Any] = {"judge_model": judging, "model": user(*script), "store": "memory:"}
    scenario = Scenario(GOAL, **fields)
    return simulate(scenario, agent, **given | (options or {}))


def verdict(finding: str, reason: str = "It did.", message: int = 1) -> dict[str, Any]:
    return {"criterion_1": {"reason": reason, "message": message, "finding": finding}}


def get_order(number: int) -> str:
    """Look an order up."""
    return f"order {number}: charged twice"


def refund(number: int, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount}"


CALLS = {
    "get_order": ScriptedToolCall(name="get_order", args={"number": 1042}, id="a"),
    "refund": ScriptedToolCall(name="refund", args={"number": 1042, "amount": 9.5}, id="b"),
}


def shop(*lines: str, **options: Any) -> Any:  # noqa: ANN401
    """Return an agent that plays these lines; the name of a tool is a call of the tool."""
    script = [Reply(tool_calls=[CALLS[one]]) if one in CALLS else one for one in lines]
    model = ScriptedChatModel(script=script)
    return create_agent(model, [get_order, refund], name="shop", **options)


# Agents


async def async_refunds(messages: Sequence[BaseMessage]) -> AIMessage:
    await asyncio.sleep(0)
    return AIMessage(refunds(messages))


class Desk:
    def __call__(self, messages: Sequence[BaseMessage]) -> str:
        return refunds(messages)


@pytest.mark.part(2)
@pytest.mark.parametrize(
    "agent",
    [refunds, async_refunds, lambda messages: refunds(messages), Desk(), RunnableLambda(refunds)],
    ids=["function", "coroutine", "lambda", "object", "runnable"],
)
def test_an_agent_may_be_any_function_of_messages_or_runnable(agent: object) -> None:
    result = play(agent, "Hello.", "And now?", "###STOP###")
    texts = [text for name, text in result.transcript if name == "Agent"]
    assert texts == ["Refunded after 1 messages.", "Refunded after 3 messages."]
    assert (result.passed, result.agent_state) == (True, None)


@pytest.mark.exhaustive
def test_an_agent_may_be_the_address_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with ScriptedServer(["It is refunded."], models=["agent"]) as server:
        result = play(server.url)
        (made,) = server.calls
    assert result.transcript[1] == ("Agent", "It is refunded.")
    assert [one["content"] for one in made.prompt] == ["Refund order 1042."]
    assert "secret" not in str(made.headers)


@pytest.mark.part(1)
@pytest.mark.parametrize("options", [{}, {"checkpointer": InMemorySaver()}], ids=["plain", "kept"])
def test_a_graph_s_calls_and_final_state_are_in_the_result(options: dict[str, Any]) -> None:
    agent = shop("get_order", "I see it. Refund?", "refund", "Done.", **options)
    result = play(agent, "Refund order 1042.", "Yes.", "###STOP###")
    assert result.passed
    assert [name for name, _ in result.tool_calls()] == ["get_order", "refund"]
    assert result.called("get_order")
    assert result.called("refund", amount=9.5)
    assert not result.called("refund", amount=0)
    assert not result.called("refund", card=None)
    talk = [one.text for one in result.agent_state["messages"] if one.type == "human"]
    assert talk == ["Refund order 1042.", "Yes."]


def test_a_graph_with_a_checkpointer_has_a_thread_for_each_simulation() -> None:
    agent = counting(checkpointer=InMemorySaver())
    for _ in range(2):
        result = play(agent, "One.", "Two.", "###STOP###")
        assert result.agent_state["count"] == 2
    assert play(counting(), "One.", "Two.", "###STOP###").agent_state["count"] == 1


def test_interrupts_are_answered_by_a_function_or_are_an_error() -> None:
    def ask(_: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"Answer: {interrupt('Refund?')}")]}

    agent = graph_of(ask, checkpointer=InMemorySaver())
    result = play(agent, options={"on_interrupt": lambda value: f"{value} yes"})
    assert result.transcript[1] == ("Agent", "Answer: Refund? yes")
    with pytest.raises(SpecError, match=r"on_interrupt: the agent .* asks 'Refund\?'; pass a"):
        play(agent)


def test_the_user_may_have_tools_which_do_not_count_as_the_agent_s() -> None:
    seen: list[tuple[str, str]] = []

    def note(messages: Sequence[BaseMessage]) -> str:
        seen[:] = [(one.type, one.text) for one in messages]
        return "Noted."

    script: Any = [Reply(tool_calls=[CALLS["get_order"]]), "It was charged twice.", "###STOP###"]
    result = play(note, *script, tools=[get_order])
    # The agent receives the text alone.
    assert seen == [("human", "It was charged twice.")]
    assert not result.tool_calls()
    assert result.passed
    assert '1. (User called get_order with {"number": 1042})' in result.report()
    assert "2. (result of get_order) order 1042: charged twice" in result.report()


def test_the_user_may_have_a_model_of_its_own() -> None:
    own, other = user(), ScriptedChatModel([])
    scenario = Scenario(GOAL, model="small")
    result = simulate(scenario, refunds, model=other, models={"small": own}, store="memory:")
    assert result.passed
    assert len(own.calls) == 2
    assert not other.calls


def test_all_fields_of_the_user_reach_its_model_and_none_reaches_the_agent() -> None:
    fields = {
        "persona": "You are in a hurry.",
        "knows": "Your order number is 1042.",
        "must_not_say": "Your name is Ann.",
        "language": "German",
    }
    seen: list[str] = []

    def note(messages: Sequence[BaseMessage]) -> str:
        seen.extend(one.text for one in messages)
        return "Noted."

    own = user("Hallo.", "###STOP###")
    simulate(Scenario(GOAL, **fields), note, model=own, store="memory:")
    prompt = own.calls[0].messages[0].text
    assert all(text in prompt for text in (GOAL, *fields.values()))
    assert seen == ["Hallo."]


# Ends


def test_each_end_says_which_it_is() -> None:
    def check(script: list[str], kind: EndKind, words: str, outcome: str) -> None:
        result = play(refunds, *script, max_iterations=3)
        assert result.conversation.outcome is not None
        assert result.conversation.outcome.explanations == (outcome,)
        assert f": {outcome}." in str(result.conversation)
        assert (result.ended.kind, str(result.ended)) == (kind, words)
        assert result.passed is (kind == "done")
        assert play(refunds, *script, max_iterations=3, expected_ends=[kind]).passed
        assert f"Ended: {words}" in result.report()

    check_rows(read_rows(__file__, "ends"), check)


# Verdicts


def test_a_sound_agent_passes_and_faulty_ones_fail() -> None:
    sound = shop("get_order", "I refund it now.")
    assert play(sound, judge=verdict("met", message=4), criteria=CRITERION).passed
    late = verdict("not_met", "By the order of messages.", 2)
    hasty = play(shop("I refund it now."), judge=late, criteria=CRITERION)
    assert not hasty.passed
    (found,) = hasty.verdicts
    assert (found.finding.value, found.message) == ("not_met", 2)
    assert "2. Agent: I refund it now." in hasty.report()
    wrong = play(shop("get_order", "refund", "Done."), checks=[no_wrong_amount])
    assert [str(one) for one in wrong.verdicts] == ["[not met] no_wrong_amount: it returned False"]


def no_wrong_amount(result: SimulationResult) -> bool:
    return not result.called("refund", amount=9.5)


@pytest.mark.part(1)
@pytest.mark.parametrize(
    "answer",
    [
        verdict("inconclusive"),
        verdict("met", message=99),
        verdict("met", "Not met: it promised first."),
        "I cannot decide.",
    ],
    ids=["inconclusive", "no such message", "contradiction", "unreadable"],
)
def test_a_doubtful_verdict_is_inconclusive_and_neither_passed_nor_failed(answer: Line) -> None:
    result = play(refunds, judge=answer, criteria=CRITERION)
    with pytest.raises(InconclusiveResult, match="inconclusive, 'The agent looks"):
        _ = result.passed
    assert "[inconclusive]" in result.report()
    failed = play(refunds, judge=answer, criteria=CRITERION, checks=[no_way])
    assert not failed.passed


def no_way(_: SimulationResult) -> None:
    raise AssertionError("no way")  # a check may raise it itself


async def slow_check(result: SimulationResult) -> None:
    await asyncio.sleep(0)
    assert result.transcript


def test_checks_return_or_assert_and_may_be_async() -> None:
    result = play(refunds, checks=[slow_check, no_way])
    assert [str(one) for one in result.verdicts] == ["[met] slow_check", "[not met] no_way: no way"]


def test_the_judge_is_asked_once_and_reads_numbered_messages_with_calls() -> None:
    prompts: list[Prompt] = []

    def judge(prompt: Prompt) -> Line:
        prompts.append(prompt)
        return verdict("met")

    play(shop("get_order", "I see it."), judge=judge, criteria=CRITERION)
    ((system, heard),) = prompts
    asked = heard["content"]
    assert "1. User: Refund order 1042." in asked
    assert '2. (Agent called get_order with {"number": 1042})' in asked
    assert "3. (result of get_order) order 1042: charged twice" in asked
    assert "4. Agent: I see it." in asked
    assert GOAL in system["content"]
    assert LOOKS_UP in system["content"]


def test_the_verdict_is_stored_with_the_session_and_is_shown_with_its_reason() -> None:
    store = "memory:verdicts"
    judging = ScriptedChatModel([verdict("not_met", "It promised first.", 2)])
    result = play(refunds, criteria=CRITERION, options={"judge_model": judging, "store": store})
    (later,) = result.conversation.later_verdicts
    assert later.verdict.reasons[LOOKS_UP].text == "It promised first."
    assert [one.calls for one in later.usage.values()] == [1]
    state = result.session.state()
    assert state.later_verdicts == (later,)
    shown = "promises anything (not met: It promised first, message 2)"
    assert shown in str(result.session.export("html"))
    # The same judge is not asked again: the script has no further line.
    assert result.session.judge(model=judging) == later.verdict


def test_a_report_shows_the_end_of_a_long_talk_alone() -> None:
    talk = [f"Question {number} about {number * 7}?" for number in range(8)]
    report = play(refunds, *talk, "###STOP###").report()
    assert "Question 0" not in report
    assert "\n…\n12. Agent: " in report


async def test_simulations_at_once_do_not_share_threads_or_states() -> None:
    agent = counting(checkpointer=InMemorySaver())
    scripts = [[*["Next."] * turns, "###STOP###"] for turns in (1, 2, 3)]
    scripts = [[f"{text} {at}" for at, text in enumerate(one[:-1])] + one[-1:] for one in scripts]
    runs = (asimulate(Scenario(GOAL), agent, model=user(*one), store="memory:") for one in scripts)
    found = await asyncio.gather(*runs)
    assert [one.agent_state["count"] for one in found] == [1, 2, 3]


# Bad input


@pytest.mark.parametrize("agent", [7, "shop", "ftp://x", dict, ["x"]])
def test_what_is_no_agent_is_one_error(agent: object) -> None:
    model = user()
    kind = SpecError if isinstance(agent, str) else TypeError
    with pytest.raises(kind, match=r"^agent: must be a Runnable, such as a compiled graph, a"):
        simulate(Scenario(GOAL), agent, model=model, store="memory:")
    assert not model.calls


def test_an_agent_and_its_maker_can_be_named_as_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_shop.py").write_text(
        "def agent(messages):\n    return 'Refunded.'\n\ndef make():\n    return agent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ways: list[dict[str, Any]] = [{"agent": "named_shop:agent"}, {"make_agent": "named_shop:make"}]
    for options in ways:
        result = simulate(Scenario(GOAL), **options, model=user(), store="memory:")
        assert result.transcript[1] == ("Agent", "Refunded.")


def test_a_faulty_field_is_one_error_that_names_it() -> None:
    def check(fields: dict[str, Any], words: str) -> None:
        with pytest.raises(SpecError) as caught:
            Scenario(**{"goal": GOAL} | fields)
        assert str(caught.value).startswith(words)

    check_rows(read_rows(__file__, "scenario_errors"), check)


def test_wrong_options_and_faults_of_the_agent_and_of_checks_are_named() -> None:
    with pytest.raises(TypeError, match="there is no option 'models_'"):
        play(options={"models_": {}})
    with pytest.raises(TypeError, match="on_interrupt: must be a function or 'user'"):
        play(options={"on_interrupt": 3})
    with pytest.raises(TypeError, match=r"scenario: must be a Scenario, not str; write Scenario\("):
        simulate("Refund", refunds)  # type: ignore[arg-type]
    for name in ("agent_model", "agent_key_env", "agent_version"):
        with pytest.raises(TypeError, match=f"{name}: must be text, not int"):
            play(options={name: 2})
    with pytest.raises(TypeError, match="agent_timeout: must be a number of seconds above 0, not"):
        play(options={"agent_timeout": True})

    def broken(_: object) -> str:
        raise KeyError("order")

    with pytest.raises(AgentError, match=r"the agent 'broken' failed.*KeyError: 'order'"):
        play(broken)
    with pytest.raises(SpecError, match="the check 'broken' failed: KeyError"):
        play(checks=[broken])
    with pytest.raises(SpecError, match="the check 'refunds_seven' failed: it must return True"):
        play(checks=[refunds_seven])


def refunds_seven(_: SimulationResult) -> int:
    return 7


def test_an_agent_that_hangs_is_cancelled_at_its_time_limit() -> None:
    cancelled: list[str] = []

    async def hangs(_: object) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("hangs")
            raise
        return "Never."

    with pytest.raises(
        AgentError, match=r"agent_timeout: the agent 'hangs' did not answer in 0\.05 s"
    ):
        play(hangs, options={"agent_timeout": 0.05})
    assert cancelled == ["hangs"]


# Interrupts that the simulated user answers


def asks_in_a_tool(**options: Any) -> Any:  # noqa: ANN401
    """Return an agent whose tool asks the user before it refunds."""

    def refund_after_question(number: int, amount: float) -> str:
        """Refund an order."""
        answer = interrupt(f"Refund {amount} for order {number}?")
        return f"refunded after {answer!r}"

    refund_after_question.__name__ = "refund"
    script: Any = [Reply(tool_calls=[CALLS[one]]) for one in ("get_order", "refund")]
    model = ScriptedChatModel([*script, "It is refunded."])
    tools: list[Any] = [get_order, refund_after_question]
    return create_agent(model, tools, checkpointer=InMemorySaver(), **options)


def test_the_simulated_user_answers_an_interrupt_as_a_message_of_the_agent() -> None:
    script = ("Refund order 1042.", "Yes, do.", "###STOP###")
    result = play(asks_in_a_tool(), *script, options={"on_interrupt": "user"})
    assert [text for _, text in result.transcript] == [
        "Refund order 1042.",
        "Refund 9.5 for order 1042?",
        "Yes, do.",
        "It is refunded.",
        "###STOP###",
    ]
    # Each call is reported once, although the run of the graph contains it in both replies.
    assert [name for name, _ in result.tool_calls()] == ["get_order", "refund"]
    assert "7. (result of refund)" in result.report()
    state = [one.text for one in result.agent_state["messages"] if one.type == "tool"]
    assert state[-1] == "refunded after 'Yes, do.'"


def test_several_interrupts_and_values_that_are_no_text_are_shown_to_the_user() -> None:
    def ask(_: MessagesState) -> dict[str, Any]:
        first, second = interrupt({"amount": 9.5}), interrupt("Sure?")
        return {"messages": [AIMessage(f"{first}, then {second}")]}

    agent = graph_of(ask, checkpointer=InMemorySaver())
    script = ("Hello.", "Fine.", "Quite.", "###STOP###")
    result = play(agent, *script, options={"on_interrupt": "user"})
    texts = [text for name, text in result.transcript if name == "Agent"]
    assert texts == ['{"amount":9.5}', "Sure?", "Fine., then Quite."]
