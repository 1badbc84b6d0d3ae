"""Conversations of every shape, to be interrupted; every answer depends on its prompt alone."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime

from duologue import Hook, MessageQuestion, Question
from duologue.graphs.prompts import prompts
from duologue.nodes.judge.self_judge import Judgement
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from support.results import StoredSession
from support.tables import read_rows

_TALKS: dict[str, dict[str, Any]] = read_rows(__file__, "broken_talks")
SPECS: dict[str, dict[str, Any]] = {name: row["spec"] for name, row in _TALKS.items()}
CALLS: dict[str, int] = {name: row["calls"] for name, row in _TALKS.items()}
"""Number of model calls of each conversation."""


def structured(prompt: Prompt) -> Line:
    """Specify a long task, answer with a draft, call a tool, and return verdicts."""
    last = str(prompt[-1]["content"])
    turns = sum(
        message["role"] == "assistant" and not message.get("tool_calls") for message in prompt
    )
    if len(prompt) == 1:
        return " ".join(["beans"] * 11)
    if "shorter version" in last:
        return "Plan a garden with beans."
    if last == prompts.JUDGE_OWN_TASK:
        return Judgement(objectives_left=["beans"] if turns == 1 else [], complete=turns > 1)
    if "You are Owner" in prompt[0]["content"]:
        if turns == 0:
            return "Plant bed 0."
        return f"Instruction: plant bed {turns}."
    if turns == 0 and prompt[-1]["role"] == "user":
        return dig_first()
    return f"Bed {turns} is planted."


def two_questions(prompt: Prompt) -> Line:
    """Speak, list the remaining objectives, and answer in one word whether the task is complete."""
    last = str(prompt[-1]["content"])
    own = sum(message["role"] == "assistant" for message in prompt)
    if last == prompts.LIST_OBJECTIVES_LEFT:
        return f"After line {own}: beans."
    if last == prompts.IS_TASK_COMPLETE:
        return "Yes." if own > 2 else "No."
    return f"My line {own}."


def moderated(prompt: Prompt) -> Line:
    """Answer with secrets, opening answers and findings, and choose the next speaker."""
    last = str(prompt[-1]["content"])
    if prompts.JUDGE_CRITERIA in last:
        return {"criterion_1": "met" if last.count("'s line") > 6 else "not_met"}
    if "Who speaks next" in last:
        return {"next_speaker": re.findall("Ann|Ben|Cat", last)[-1]}
    return say_a_line(prompt)


def chosen(prompt: Prompt) -> Line:
    """Call a tool and speak as Ann; end the conversation by a call as Ben."""
    if "You are Cat" in prompt[0]["content"] or prompt[-1]["role"] == "tool":
        return say_a_line(prompt)
    return dig_first()


def hooked(prompt: Prompt) -> Line:
    """Speak together with a tool call, then say a line each."""
    if "You are Ann" in prompt[0]["content"] and len(prompt) == 2:
        return dig_first(text="Let me see.")
    return say_a_line(prompt)


def side_by_side(prompt: Prompt) -> Line:
    """Call three tools in one message, as Ann."""
    if "You are Ann" in prompt[0]["content"] and prompt[-1]["role"] != "tool":
        calls = [
            ScriptedToolCall(name=name, args={"depth": depth}, id=f"call_{depth}")
            for depth, name in enumerate(("dig", "plant", "dig"), start=1)
        ]
        return Reply(tool_calls=calls)
    return say_a_line(prompt)


def people(prompt: Prompt) -> Line:
    """Call a tool that a person must approve, as Ann."""
    return dig_first() if str(prompt[-1]["content"]).startswith("Dig") else say_a_line(prompt)


def coded(prompt: Prompt) -> Line:
    """Write code, as Ann."""
    own = sum(message["role"] == "assistant" for message in prompt)
    return f"```python\nprint({own} + 6)\n```"


def summed_up(prompt: Prompt) -> Line:
    """Speak at length, and summarize briefly."""
    if prompt[0]["content"] == prompts.SUMMARY_ROLE.replace("{me}", "Ann"):
        return f"They have said {str(prompt[-1]['content']).count('line')} lines."
    own = sum(message["role"] == "assistant" for message in prompt)
    heard = sum(len(str(message["content"])) for message in prompt)
    return f"This is line {own}, after {heard} characters. " + "Beans are good. " * 5


def dig_first(text: str = "") -> Reply:
    """Call the tool."""
    call = ScriptedToolCall(name="dig", args={"depth": 3}, id="call_1")
    return Reply(text=text, tool_calls=(call,))


def say_a_line(prompt: Prompt) -> str:
    """Return a line with its number."""
    name = str(prompt[0]["content"]).removeprefix("You are ")[:3]
    own = sum(message["role"] == "assistant" for message in prompt)
    return f"This is {name}'s line {own}."


SCRIPTS: dict[str, Callable[[Prompt], Line]] = {
    one.__name__: one
    for one in (
        *(structured, two_questions, moderated, chosen, hooked),
        *(side_by_side, people, coded, summed_up),
    )
}


def backwards(said: Sequence[Any], names: tuple[str, ...]) -> str:
    """Return the speaker before the last one: a turn order."""
    return names[names.index(said[-1].name) - 1]


def brackets() -> Hook:
    """Return a hook at all four points that puts all texts into brackets."""
    return Hook(
        before_speaker=lambda turn: HumanMessage(f"({turn.heard})"),
        after_speaker=lambda turn, reply: AIMessage(f"[{reply.text}]"),
        before_tool=lambda turn, call: {**call, "args": {"depth": 2 * call["args"]["depth"]}},
        after_tool=lambda turn, call, result: ToolMessage(f"<{result.text}>", tool_call_id=""),
    )


class World:
    """The objects that the conversations name, and the record of their use."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        """The tool calls that ran."""
        self.asked: list[str] = []
        """The questions that people answered."""

        async def run(name: str, depth: int, runtime: ToolRuntime[Any, Any]) -> str:
            self.ran.append(str(runtime.tool_call_id))
            return f"{runtime.tool_call_id}: a {name} of {depth}."

        @tool
        async def dig(depth: int, runtime: ToolRuntime[Any, Any]) -> str:
            """Dig a hole."""
            return await run("hole", depth, runtime)

        @tool
        async def plant(depth: int, runtime: ToolRuntime[Any, Any]) -> str:
            """Plant a bean."""
            return await run("bean", depth, runtime)

        self.options: dict[str, Any] = {
            "tools": [dig, plant],
            "orders": {"backwards": backwards},
            "hooks": {
                "brackets": brackets(),
                "exclaims": Hook(after_speaker=lambda turn, reply: AIMessage(f"{reply.text}!")),
            },
            "answer": self._answer,
        }

    def _answer(self, question: Question) -> Any:  # noqa: ANN401
        if isinstance(question, MessageQuestion):
            self.asked.append(f"after {question.heard!r}")
            return "Go on" if question.heard else "Dig"
        self.asked.append("approval")
        return {"decisions": [{"type": "approve"}]}


def told(result: StoredSession) -> dict[str, Any]:
    """Return a result without the parts that differ from run to run."""
    return {
        "messages": [
            message.model_dump(mode="json", exclude={"id"}) for message in result.messages
        ],
        "outcome": None
        if result.outcome is None
        else result.outcome.model_dump(mode="json", exclude={"seconds"}),
        "specified_task": result.specified_task,
    }
