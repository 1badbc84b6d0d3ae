"""People's answers: answers that do not fit, several at once, and runs interrupted after them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs import AnswerError, DuologueError
from support.log import fields_of
from support.tables import read_rows

from .approval_help import (
    APPROVE,
    ASKS,
    END,
    LOOK,
    MAIL,
    REJECT,
    Saver,
    Talk,
    call,
    calls,
    edited,
)

# Answers that do not fit

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


async def test_tools_that_ask_at_once_are_answered_at_once(saver: Saver) -> None:
    made = calls(call("ask", "c1", what="Size"), call("ask", "c2", what="Weight"), LOOK)
    made = calls(*made.tool_calls[:2], LOOK.model_copy(update={"id": "c3"}))
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
