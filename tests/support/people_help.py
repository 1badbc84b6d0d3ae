"""Runs of conversations with people, and a record of the questions to them. No tests here."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from langchain_core.language_models import BaseChatModel

from duologue.graphs import Conversation, MessageQuestion, Outcome, Question, Result, converse
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall


class Played(NamedTuple):
    """The results of a run with people."""

    result: Result
    asked: list[Question]
    """The questions, oldest first."""
    model: BaseChatModel

    @property
    def transcript(self) -> list[tuple[str, str]]:
        return self.result.transcript

    @property
    def outcome(self) -> Outcome:
        assert self.result.outcome is not None
        return self.result.outcome

    @property
    def reason(self) -> str:
        return self.outcome.reason.value

    @property
    def heard(self) -> list[str]:
        """Return the messages shown by each question for a message."""
        return [one.heard for one in self.asked if isinstance(one, MessageQuestion)]

    @property
    def prompts(self) -> list[list[dict[str, Any]]]:
        """Return the prompts of a scripted model."""
        assert isinstance(self.model, ScriptedChatModel)
        return [call.prompt for call in self.model.calls]


def play(
    conversation: Conversation,
    script: Sequence[Line] | BaseChatModel,
    answers: Iterable[Any] = (),
    **options: Any,
) -> Played:
    """Run a conversation and answer its questions in turn, with None after the last answer."""
    asked: list[Question] = []
    given = iter(answers)

    def answer(question: Question) -> Any:  # noqa: ANN401
        asked.append(question)
        return next(given, None)

    model = script if isinstance(script, BaseChatModel) else ScriptedChatModel(script=script)
    options = {"store": f"memory:{uuid4().hex}", "session": "s"} | options
    return Played(converse(conversation, model=model, answer=answer, **options), asked, model)


def call(name: str, number: int = 1, **arguments: Any) -> ScriptedToolCall:
    """Return a tool call."""
    return ScriptedToolCall(name=name, args=arguments, id=f"call {number}")


def calls(*made: ScriptedToolCall, text: str = "") -> Reply:
    """Return a message that calls tools."""
    return Reply(text=text, tool_calls=made)
