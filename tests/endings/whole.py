"""A recorded dialogue as a conversation in the graph: a scripted model says the recorded lines.

It shows on a sample that `adapter.Rules`, which is fed directly and faster, decides the same. The
two differ if a speaker answers its own termination word: the record contains the next speaker, and
the rules, which get no later turn, follow the order of the speakers.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from duologue.graphs import converse
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from endings.adapter import conversation_of
from endings.dialogue import Dialogue
from support.prompts import PROMPTS

_ASKED_AGAIN = PROMPTS["rewrite_reply"].rpartition("}")[2].strip()
"""Last words of the request to rewrite a reply."""


class RecordOverError(Exception):
    """The record has no more lines."""


def tellable(dialogue: Dialogue) -> bool:
    """Return whether the graph can run a dialogue: models say all turns, calls keep the turn."""
    pairs = pairwise(dialogue.turns)
    models = not any(turn.automatic for turn in dialogue.turns)
    return models and all(not one.calls or one.speaker == then.speaker for one, then in pairs)


def stop_of(dialogue: Dialogue, *, answered: bool = False) -> tuple[int | None, str | None]:
    """Return the number of turns and the reason at the conversation's end, or None twice."""
    record = _Record(dialogue)
    order = {"kind": "function", "name": "recorded"}
    conversation = conversation_of(dialogue, answered=answered, turn_order=order)
    try:
        result = converse(
            conversation,
            session="record",
            reset=True,
            model=ScriptedChatModel(script=record.line),
            tools=list(record.tools()),
            orders={"recorded": record.next_speaker},
            store="memory:endings",
        )
    except Exception:
        if record.is_over:
            return None, None
        raise
    assert result.outcome is not None
    return record.said, result.outcome.reason.value


class _Record:
    def __init__(self, dialogue: Dialogue) -> None:
        self._turns = dialogue.turns
        self._names = {call.name for turn in dialogue.turns for call in turn.calls} | {
            tool.name for tool in dialogue.tools
        }
        self.said = 0
        self.is_over = False

    def line(self, prompt: Sequence[dict[str, Any]]) -> Reply:
        """Return the next recorded line, or the same line again if it is to be rewritten."""
        again = self.said and str(prompt[-1]["content"]).rstrip().endswith(_ASKED_AGAIN)
        if self.said == len(self._turns) and not again:
            self.is_over = True
            raise RecordOverError
        self.said += not again
        turn = self._turns[self.said - 1]
        calls = [
            ScriptedToolCall(name=call.name, args=dict(call.arguments), id=f"{self.said}-{place}")
            for place, call in enumerate(turn.calls)
        ]
        return Reply(text=turn.text, tool_calls=calls)

    def next_speaker(self, messages: Sequence[BaseMessage], names: Sequence[str]) -> str:
        """Return the speaker of the next recorded line; after the last line, any other speaker."""
        if self.said < len(self._turns):
            return self._turns[self.said].speaker
        return next((name for name in names if name != self._turns[-1].speaker), names[0])

    def tools(self) -> Iterator[BaseTool]:
        """Yield a tool for each name, which returns the recorded result."""
        for name in sorted(self._names):
            yield StructuredTool.from_function(
                func=self._answers(name),
                name=name,
                description="Answers as recorded.",
                args_schema={"type": "object", "properties": {}, "additionalProperties": True},
            )

    def _answers(self, name: str) -> Callable[..., str]:
        def answer(**arguments: Any) -> str:
            calls = self._turns[self.said - 1].calls
            call = next(
                one for one in calls if one.name == name and dict(one.arguments) == arguments
            )
            if call.failed:
                raise RuntimeError(call.result)
            return call.result

        return answer
