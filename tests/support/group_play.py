"""Runs of the plans of `histories` through the graph, compared with the expected results.

One graph and one model serve thousands of runs.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs import Conversation, build_graph, group_solve
from duologue.graphs.log.state import Input, State
from duologue.graphs.rules.position import max_steps
from duologue.nodes.testing import ScriptedChatModel
from support.results import StoredSession, make_session

from .histories import Entry, Plan, Played, played

_ROLES: dict[str, Any] = {"system": "system", "human": "user", "ai": "assistant"}


def spec_of(plan: Plan) -> Conversation:
    """Return the conversation of a plan."""
    speakers = [_speaker(plan, name) for name in plan.names]
    alike: dict[str, Any] = {
        "end_chat": {"mode": plan.mode, "max_iterations": plan.cap},
        "judge": {"form": "two_questions" if plan.two_questions else "structured"},
    }
    if not plan.answers:
        # The same default as in a group solve.
        alike["end_chat"]["announce_last_words"] = False
        opening = {"first_speaker": plan.owner, "first_line": plan.content}
        return Conversation.model_validate(
            {"task": plan.shared_task, "speakers": speakers, "opening": opening} | alike
        )
    return group_solve(
        speakers,
        shift_owner=plan.owner,
        shift_content=plan.content,
        reconcile_first_message=plan.reconcile,
        **alike,
    )


def _speaker(plan: Plan, name: str) -> dict[str, Any]:
    speaker: dict[str, Any] = {
        "name": name,
        "system_prompt": f"You are {name}.",
        "checks_completion": name in plan.completes,
        "keep_self_reflection": name in plan.keeps,
    }
    if plan.answers:
        speaker["task"] = plan.task(name)
    if name in plan.told:
        speaker["private_opening"] = {"lines": plan.told[name]}
    if name in plan.made_up:
        speaker["private_opening"] = {"prompt": plan.request(name)}
    return speaker


def entries(messages: Sequence[BaseMessage]) -> list[Entry]:
    """Return messages as roles and texts."""
    return [(_ROLES[message.type], message.text) for message in messages]


class Troupe:
    """A player of plans that compares each run with the rules."""

    def __init__(self) -> None:
        self.model = ScriptedChatModel(script=lambda _: next(self._replies))
        self._graph = build_graph(checkpointer=InMemorySaver(), model=self.model)
        self._replies: Iterator[Any] = iter(())
        self._numbers = count()

    async def play(self, plan: Plan) -> tuple[StoredSession, Played]:
        """Run a plan and compare everything about the run.

        Returns:
            The run's result, and the result expected by the rules.
        """
        expected = played(plan)
        result = await self.run(spec_of(plan), [call.reply for call in expected.calls])
        self._compare(result, expected)
        return result, expected

    async def run(self, conversation: Conversation, replies: Sequence[Any]) -> StoredSession:
        """Run a conversation on these replies; the model records only the calls of this run."""
        self.model.calls.clear()
        self._replies = iter(replies)
        session = f"s{next(self._numbers)}"
        config = RunnableConfig(
            configurable={"thread_id": session}, recursion_limit=max_steps(conversation)
        )
        given = Input(conversation=conversation.model_dump(mode="json"))
        whole = [*State.__annotations__]
        state = await self._graph.ainvoke(given, config, durability="sync", output_keys=whole)
        return make_session(session, conversation, dict(state))

    def _compare(self, result: StoredSession, expected: Played) -> None:
        plan = expected.plan
        for number, (call, asked) in enumerate(zip(self.model.calls, expected.calls, strict=False)):
            assert entries(call.messages) == [*asked.prompt], (plan, number)
            assert (call.response_format is not None) is asked.to_schema, (plan, number)
        assert len(self.model.calls) == len(expected.calls), plan
        for name in plan.names:
            system, *view = entries(result.viewpoint(name))
            assert system == expected.system(name), (plan, name)
            assert view == expected.histories[name], (plan, name)
        assert result.transcript == expected.spoken, plan
        assert result.outcome is not None, plan
        assert result.outcome.reasons == expected.reasons, plan
        assert result.outcome.completed == tuple(expected.completed), plan
        assert result.outcome.total.calls == len(expected.calls), plan
